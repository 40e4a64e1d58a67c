"""How a node of a tree over documents is split: its documents are dealt to two sides, then a
separator is learnt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.proximal_steps import violation_of
from longtail.kernels.splitmix import random_bits

__all__ = ["LOW", "deal_documents", "falling_key", "solve_l1_logistic"]

Array = NDArray[Any]
LOW = 0xFFFFFFFF  # where a key has its number
# of the line search; what keeps second derivatives above 0
_SUFFICIENT = 0.01
_HALVINGS = 20
_NU = 1e-12


@kernel
def deal_documents(
    documents: Array,  # IN  int32
    label_ptr: Array,  # IN  (n + 1,) int64
    labels: Array,  # IN  int32
    gains: Array,  # IN  float32, one a label of a document: relevance / propensity
    sides: Array,  # IN/OUT (len(documents),) int8, 1 or -1
    numbers: Array,  # buffer (n_labels,) int32, -1 everywhere, before and after
    max_rounds: int,
) -> Any:
    """Deal documents to two sides, so that one ranking of labels for each side gives a high nDCG;
    return it by round.

    Each side ranks labels by Σ I(y_i) y_il / p_l over its documents, which is its best ranking;
    then each document goes to the side whose ranking gives it the larger DCG, or stays (Prabhu and
    Varma 2014, algorithm 2; Jain et al. 2016, eq. 6). Labels without documents on a side come
    behind the others. The nDCG is not divided by documents."""
    own_ptr, own_labels, own_gains, names = _local_labels(
        documents, label_ptr, labels, gains, numbers
    )
    count = len(names)
    sums = np.zeros((2, count))
    gap = np.zeros(count)
    scores = np.empty(count, np.float32)
    bits = scores.view(np.int32)
    keys = np.empty(count, np.int64)
    ndcg = np.empty(max_rounds)
    rounds = 0
    changed = True
    while changed and rounds < max_rounds:
        sums[:], gap[:], ndcg[rounds] = 0.0, 0.0, 0.0
        for row in range(len(documents)):
            for at in range(own_ptr[row], own_ptr[row + 1]):
                sums[(sides[row] + 1) // 2, own_labels[at]] += own_gains[at]
        for side in range(2):
            for label in range(count):  # ties by first use
                scores[label] = sums[side, label]
                keys[label] = falling_key(bits[label], label)
            keys.sort()
            for rank in range(count):
                label = keys[rank] & LOW
                discount = 1 / np.log2(rank + 2.0)
                gap[label] += discount if side else -discount
                ndcg[rounds] += discount * sums[side, label]
        rounds = rounds + 1
        changed = False
        for row in range(len(documents)):
            gain = 0.0
            for at in range(own_ptr[row], own_ptr[row + 1]):
                gain += own_gains[at] * gap[own_labels[at]]
            side = 1 if gain > 0 else (-1 if gain < 0 else sides[row])
            changed |= side != sides[row]
            sides[row] = side
    return ndcg[:rounds]


@kernel
def falling_key(bits: int, number: int) -> Any:
    """Return what sorts by falling score, then by number below 2^32; ``bits`` are those of a
    float32 not below 0.
    """
    return ((0x7FFFFFFF - np.int64(bits)) << 32) | np.int64(number)


@kernel
def _local_labels(
    documents: Array, label_ptr: Array, labels: Array, gains: Array, numbers: Array
) -> Any:
    """Return the documents' labels, numbered by first use, gains times I(y) = 1 / Σ_{r ≤ |y|}
    1/log2(1 + r).
    """
    own_ptr = np.zeros(len(documents) + 1, np.int64)
    for row, document in enumerate(documents):
        own_ptr[row + 1] = own_ptr[row] + label_ptr[document + 1] - label_ptr[document]
    own_labels = np.empty(own_ptr[-1], np.int32)
    own_gains = np.empty(own_ptr[-1])
    names = np.empty(own_ptr[-1], np.int32)
    count = 0
    for row, document in enumerate(documents):
        begin = label_ptr[document]
        size = own_ptr[row + 1] - own_ptr[row]
        ideal = 0.0
        for rank in range(size):
            ideal += 1 / np.log2(rank + 2.0)
        for at in range(size):
            label = labels[begin + at]
            if numbers[label] < 0:
                numbers[label], names[count] = count, label
                count += 1
            own_labels[own_ptr[row] + at] = numbers[label]
            own_gains[own_ptr[row] + at] = gains[begin + at] / ideal
    for label in names[:count]:
        numbers[label] = -1
    return own_ptr, own_labels, own_gains, names[:count]


@kernel
def solve_l1_logistic(
    ptr: Array,  # IN  (columns + 1,) int64
    rows: Array,  # IN  int32, the documents of each column
    values: Array,  # IN  float32
    sides: Array,  # IN  (m,) int8, 1 or -1
    costs: Array,  # IN  (2,) C of documents on side -1 and on side 1
    tolerance: float,
    max_steps: int,
    max_passes: int,
    seed: int,
) -> Any:
    """Return the w of min ‖w‖₁ + Σ C_i ln(1 + exp(−y_i w·x_i)), the bias last, as a column of ones
    that is penalised.

    newGLMNET (Yuan, Ho and Lin 2012): coordinate descent on a quadratic model, then a line search;
    columns at 0 that are far from leaving it are skipped. It stops when the violation is below
    ``tolerance`` times that of w = 0."""
    # n: columns and bias
    n = len(ptr)
    m = len(sides)
    weights = np.zeros(n)
    step = np.zeros(n)
    slope = np.zeros(n)
    curve = np.zeros(n)
    margins = np.zeros(m)
    moved = np.zeros(m)
    residuals = np.zeros(m)
    seconds = np.zeros(m)
    active = np.arange(n)
    last_worst = np.inf
    start = 0.0
    inner = 1.0
    for outer in range(max_steps):
        for row in range(m):
            chance = 1 / (1 + np.exp(-margins[row]))
            cost = costs[(sides[row] + 1) // 2]
            residuals[row] = cost * (chance - (1.0 if sides[row] > 0 else 0.0))
            seconds[row] = cost * chance * (1 - chance)
        count = 0
        worst = 0.0
        total = 0.0
        for column in range(n):
            slope[column], curve[column] = _derivatives(
                ptr, rows, values, residuals, seconds, column
            )
            away = violation_of(slope[column], weights[column], 1.0)
            if weights[column] == 0 and 1 - abs(slope[column]) > last_worst / m:
                continue
            active[count] = column
            count = count + 1
            worst = max(worst, away)
            total = total + away
        start = total if outer == 0 else start
        last_worst = worst
        if total <= tolerance * start:
            break
        step[:], moved[:] = 0.0, 0.0
        passes = _minimise_model(
            ptr,
            rows,
            values,
            seconds,
            slope,
            curve,
            weights,
            active[:count],
            step,
            moved,
            inner * start,
            max_passes,
            seed,
        )
        if not _take_step(sides, costs, slope, weights, step, margins, moved):
            break
        if passes == 1:
            inner *= 0.25
    return weights


@kernel
def _derivatives(
    ptr: Array, rows: Array, values: Array, residuals: Array, seconds: Array, column: int
) -> Any:
    first = 0.0
    second = _NU
    if column == len(ptr) - 1:
        for row in range(len(residuals)):
            first += residuals[row]
            second += seconds[row]
        return first, second
    for at in range(ptr[column], ptr[column + 1]):
        first += values[at] * residuals[rows[at]]
        second += values[at] * values[at] * seconds[rows[at]]
    return first, second


@kernel
def _minimise_model(
    ptr: Array,
    rows: Array,
    values: Array,
    seconds: Array,
    slope: Array,
    curve: Array,
    weights: Array,
    active: Array,
    step: Array,  # OUT
    moved: Array,  # OUT  what the step adds to margins
    enough: float,
    max_passes: int,
    seed: int,
) -> int:
    """Minimise the quadratic model over the active columns, one at a time; return the passes made."""
    bias = len(ptr) - 1
    order = active.copy()
    state = random_bits(seed, len(active), 0)
    for done in range(max_passes):
        total = 0.0
        for at in range(len(order)):
            state = (state * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
            other = at + (state >> 33) % (len(order) - at)
            order[at], order[other] = order[other], order[at]
            column = order[at]
            here = slope[column] + _NU * step[column]
            weight = weights[column] + step[column]
            if column == bias:
                for row in range(len(moved)):
                    here += seconds[row] * moved[row]
            else:
                for entry in range(ptr[column], ptr[column + 1]):
                    here += values[entry] * seconds[rows[entry]] * moved[rows[entry]]
            total += violation_of(here, weight, 1.0)
            change = _shrunk(weight - here / curve[column], 1 / curve[column]) - weight
            change = min(max(change, -10.0), 10.0)
            if abs(change) < 1e-12:
                continue
            step[column] += change
            if column == bias:
                for row in range(len(moved)):
                    moved[row] += change
            else:
                for entry in range(ptr[column], ptr[column + 1]):
                    moved[rows[entry]] += change * values[entry]
        if total <= enough:
            return done + 1
    return max_passes


@kernel
def _shrunk(value: float, by: float) -> float:
    return max(value - by, 0.0) + min(value + by, 0.0)


@kernel
def _take_step(
    sides: Array,
    costs: Array,
    slope: Array,
    weights: Array,
    step: Array,
    margins: Array,
    moved: Array,
) -> bool:
    """Add the step, halved until the objective falls enough, to weights and margins; return whether
    it ever did.
    """
    promised = 0.0
    for column in range(len(weights)):
        promised += (
            slope[column] * step[column]
            + abs(weights[column] + step[column])
            - abs(weights[column])
        )
    size = 1.0
    for _ in range(_HALVINGS):
        change = 0.0
        for column in range(len(weights)):
            change += abs(weights[column] + size * step[column]) - abs(weights[column])
        for row in range(len(sides)):
            old = sides[row] * margins[row]
            new = sides[row] * (margins[row] + size * moved[row])
            cost = costs[(sides[row] + 1) // 2]
            change += cost * (max(-new, 0.0) - max(-old, 0.0))
            change += cost * (np.log1p(np.exp(-abs(new))) - np.log1p(np.exp(-abs(old))))
        if change <= _SUFFICIENT * size * promised:
            for column in range(len(weights)):
                weights[column] += size * step[column]
            for row in range(len(sides)):
                margins[row] += size * moved[row]
            return True
        size /= 2
    return False
