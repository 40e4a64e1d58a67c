"""Splitting a node of a tree over documents: documents are assigned to two sides, then a separator
learns the sides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.proximal_steps import violation_of
from longtail.kernels.splitmix import random_bits

__all__ = [
    "LOW",
    "DocumentLabels",
    "SplitLimits",
    "SplitProblem",
    "deal_documents",
    "falling_key",
    "solve_l1_logistic",
]

Array = NDArray[Any]
LOW = 0xFFFFFFFF  # where a key has its number
# of the line search; what keeps second derivatives above 0
_SUFFICIENT = 0.01
_HALVINGS = 20
_NU = 1e-12


class DocumentLabels(NamedTuple):
    """The labels of documents, with the gain of each."""

    pointers: Any  # (n + 1,) int64
    labels: Any  # int32
    gains: Any  # float32, relevance / propensity, as a share of the largest of all


class SplitProblem(NamedTuple):
    """Documents by column, and the sides that a separator learns."""

    pointers: Any  # (columns + 1,) int64
    rows: Any  # int32, the documents of each column
    values: Any  # float32
    sides: Any  # (m,) int8, 1 or -1
    costs: Any  # (2,) C of documents on side -1 and on side 1


class SplitLimits(NamedTuple):
    """When a separator is good enough."""

    tolerance: float  # violation, as a share of that of w = 0
    max_steps: int
    max_passes: int  # of coordinate descent in each step


class _Model(NamedTuple):
    """The quadratic model of the objective at the weights."""

    weights: Any  # (columns + 1,)
    slope: Any  # (columns + 1,) first derivatives of the loss
    curve: Any  # (columns + 1,) second derivatives
    seconds: Any  # (m,) second derivatives by margin


class _Step(NamedTuple):
    """A step, and what it adds to the margins."""

    weights: Any  # (columns + 1,)
    margins: Any  # (m,)


@kernel
def deal_documents(
    documents: Array,  # IN  int32
    labels: DocumentLabels,  # IN  of all documents
    sides: Array,  # IN/OUT (len(documents),) int8, 1 or -1
    numbers: Array,  # buffer (n_labels,) int32, -1 everywhere, before and after
    max_rounds: int,
) -> Any:
    """Assign documents to two sides, so that one ranking of labels per side gives a high nDCG;
    return the nDCG of each round.

    Each side ranks labels by Σ I(y_i) y_il / p_l over its documents, which is its best ranking;
    then each document goes to the side whose ranking gives it the larger DCG, or stays (Prabhu and
    Varma 2014, algorithm 2; Jain et al. 2016, eq. 6). Labels without documents on a side come
    behind the others. The nDCG is not divided by documents."""
    pointers, local_labels, gains, count = _local_labels(documents, labels, numbers)
    sums = np.zeros((2, count))
    gap = np.zeros(count)
    ndcg = np.empty(max_rounds)
    rounds = 0
    changed = True
    while changed and rounds < max_rounds:
        sums[:] = 0.0
        for row in range(len(documents)):
            for at in range(pointers[row], pointers[row + 1]):
                sums[(sides[row] + 1) // 2, local_labels[at]] += gains[at]
        ndcg[rounds] = _compare_rankings(sums, gap)
        rounds = rounds + 1
        changed = False
        for row in range(len(documents)):
            gain = 0.0
            for at in range(pointers[row], pointers[row + 1]):
                gain += gains[at] * gap[local_labels[at]]
            side = sides[row]
            if gain != 0:
                side = np.int8(np.sign(gain))
            changed |= side != sides[row]
            sides[row] = side
    return ndcg[:rounds]


@kernel
def _compare_rankings(
    sums: Array,  # IN  (2, labels) gain of each label on each side
    gap: Array,  # OUT (labels,) discount on side 1 less that on side -1
) -> float:
    """Rank the labels of each side by their sums; return the nDCG of both rankings."""
    count = len(gap)
    scores = np.empty(count, np.float32)
    bits = scores.view(np.int32)
    keys = np.empty(count, np.int64)
    gap[:] = 0.0
    ndcg = 0.0
    for side in range(2):
        for label in range(count):  # ties by first use
            scores[label] = sums[side, label]
            keys[label] = falling_key(bits[label], label)
        keys.sort()
        for rank in range(count):
            label = keys[rank] & LOW
            discount = 1 / np.log2(rank + 2.0)
            gap[label] += discount if side else -discount
            ndcg += discount * sums[side, label]
    return ndcg


@kernel
def falling_key(bits: int, number: int) -> Any:
    """Return a key that sorts by falling score, then by number below 2^32.

    ``bits`` are those of a float32 not below 0.
    """
    return ((0x7FFFFFFF - np.int64(bits)) << 32) | np.int64(number)


@kernel
def _local_labels(documents: Array, labels: DocumentLabels, numbers: Array) -> Any:
    """Number the documents' labels by first use.

    Returns (pointers, labels, gains times I(y) = 1 / Σ_{r ≤ |y|} 1/log2(1 + r), different labels).
    """
    all_pointers = labels.pointers
    all_labels = labels.labels
    all_gains = labels.gains
    pointers = np.zeros(len(documents) + 1, np.int64)
    for row, document in enumerate(documents):
        pointers[row + 1] = pointers[row] + all_pointers[document + 1] - all_pointers[document]
    local_labels = np.empty(pointers[-1], np.int32)
    gains = np.empty(pointers[-1])
    names = np.empty(pointers[-1], np.int32)
    count = 0
    for row, document in enumerate(documents):
        begin = all_pointers[document]
        size = pointers[row + 1] - pointers[row]
        ideal = 0.0
        for rank in range(size):
            ideal += 1 / np.log2(rank + 2.0)
        for at in range(size):
            label = all_labels[begin + at]
            if numbers[label] < 0:
                numbers[label] = count
                names[count] = label
                count += 1
            local_labels[pointers[row] + at] = numbers[label]
            gains[pointers[row] + at] = all_gains[begin + at] / ideal
    for label in names[:count]:
        numbers[label] = -1
    return pointers, local_labels, gains, count


@kernel
def solve_l1_logistic(problem: SplitProblem, limits: SplitLimits, seed: int) -> Any:
    """Return the w of min ‖w‖₁ + Σ C_i ln(1 + exp(−y_i w·x_i)), the bias last, as a column of ones
    that is penalised.

    newGLMNET (Yuan, Ho and Lin 2012): coordinate descent on a quadratic model, then a line search;
    columns at 0 that are far from leaving it are shrunk. It stops when the violation is below
    ``tolerance`` times that of w = 0."""
    n = len(problem.pointers)  # columns and bias
    m = len(problem.sides)
    model = _Model(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(m))
    step = _Step(np.zeros(n), np.zeros(m))
    margins = np.zeros(m)
    residuals = np.zeros(m)
    active = np.arange(n)
    last_worst = np.inf
    start = 0.0
    inner = 1.0
    for outer in range(limits.max_steps):
        _differentiate_loss(problem, margins, residuals, model.seconds)
        count, worst, total = _expand(problem, model, residuals, last_worst / m, active)
        if outer == 0:
            start = total
        last_worst = worst
        if total <= limits.tolerance * start:
            break
        step.weights[:] = 0.0
        step.margins[:] = 0.0
        enough = inner * start
        passes = _minimise_model(
            problem, model, active[:count], step, enough, limits.max_passes, seed
        )
        if not _take_step(problem, model, step, margins):
            break
        if passes == 1:
            inner *= 0.25
    return model.weights


@kernel
def _differentiate_loss(
    problem: SplitProblem,  # IN
    margins: Array,  # IN  (m,)
    residuals: Array,  # OUT (m,) first derivatives of the loss by margin
    seconds: Array,  # OUT (m,) second derivatives
) -> None:
    sides = problem.sides
    costs = problem.costs
    for row in range(len(sides)):
        probability = 1 / (1 + np.exp(-margins[row]))
        cost = costs[(sides[row] + 1) // 2]
        target = 1.0 if sides[row] > 0 else 0.0
        residuals[row] = cost * (probability - target)
        seconds[row] = cost * probability * (1 - probability)


@kernel
def _expand(
    problem: SplitProblem,  # IN
    model: _Model,  # IN/OUT slope and curve are set
    residuals: Array,  # IN  (m,)
    slack: float,  # IN  a column at 0 this far from leaving it is shrunk
    active: Array,  # OUT columns that are not shrunk
) -> Any:
    """Expand the loss at the weights; return how many columns are active, the largest violation of
    one, and the sum of all.
    """
    pointers = problem.pointers
    rows = problem.rows
    values = problem.values
    weights, slope, curve, seconds = model
    count = 0
    worst = 0.0
    total = 0.0
    for column in range(len(weights)):
        slope[column], curve[column] = _derivatives(
            pointers, rows, values, residuals, seconds, column
        )
        if weights[column] == 0 and 1 - abs(slope[column]) > slack:
            continue
        violation = violation_of(slope[column], weights[column], 1.0)
        active[count] = column
        count = count + 1
        worst = max(worst, violation)
        total = total + violation
    return count, worst, total


@kernel
def _derivatives(
    pointers: Array, rows: Array, values: Array, residuals: Array, seconds: Array, column: int
) -> Any:
    """Return the first and the second derivative of the loss by a weight."""
    first = 0.0
    second = _NU
    if column == len(pointers) - 1:
        for row in range(len(residuals)):
            first += residuals[row]
            second += seconds[row]
        return first, second
    for at in range(pointers[column], pointers[column + 1]):
        first += values[at] * residuals[rows[at]]
        second += values[at] * values[at] * seconds[rows[at]]
    return first, second


@kernel
def _minimise_model(
    problem: SplitProblem,  # IN
    model: _Model,  # IN
    active: Array,  # IN  columns that may move
    step: _Step,  # OUT
    enough: float,  # IN  sum of violations at which to stop
    max_passes: int,
    seed: int,
) -> int:
    """Minimise the quadratic model by coordinate descent over the active columns; return the
    passes.
    """
    pointers, rows, values, _, _ = problem
    weights, slope, curve, seconds = model
    change_of = step.weights
    moved = step.margins
    bias = len(pointers) - 1
    order = active.copy()
    state = random_bits(seed, len(active), 0)
    for done in range(max_passes):
        total = 0.0
        for at in range(len(order)):
            state = (state * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
            other = at + (state >> 33) % (len(order) - at)
            order[at], order[other] = order[other], order[at]
            column = order[at]
            here = slope[column] + _NU * change_of[column]
            weight = weights[column] + change_of[column]
            if column == bias:
                for row in range(len(moved)):
                    here += seconds[row] * moved[row]
            else:
                for entry in range(pointers[column], pointers[column + 1]):
                    here += values[entry] * seconds[rows[entry]] * moved[rows[entry]]
            total += violation_of(here, weight, 1.0)
            change = _shrunk(weight - here / curve[column], 1 / curve[column]) - weight
            change = min(max(change, -10.0), 10.0)
            if abs(change) < 1e-12:
                continue
            change_of[column] += change
            if column == bias:
                for row in range(len(moved)):
                    moved[row] += change
            else:
                for entry in range(pointers[column], pointers[column + 1]):
                    moved[rows[entry]] += change * values[entry]
        if total <= enough:
            return done + 1
    return max_passes


@kernel
def _shrunk(value: float, by: float) -> float:
    """Soft thresholding."""
    return max(value - by, 0.0) + min(value + by, 0.0)


@kernel
def _take_step(problem: SplitProblem, model: _Model, step: _Step, margins: Array) -> bool:
    """Line search: add the step, halved until the objective falls enough, to weights and margins;
    return whether it ever did.
    """
    sides = problem.sides
    costs = problem.costs
    weights = model.weights
    slope = model.slope
    change_of = step.weights
    moved = step.margins
    promised = 0.0
    for column in range(len(weights)):
        promised += (
            slope[column] * change_of[column]
            + abs(weights[column] + change_of[column])
            - abs(weights[column])
        )
    size = 1.0
    for _ in range(_HALVINGS):
        change = 0.0
        for column in range(len(weights)):
            change += abs(weights[column] + size * change_of[column]) - abs(weights[column])
        for row in range(len(sides)):
            old = sides[row] * margins[row]
            new = sides[row] * (margins[row] + size * moved[row])
            cost = costs[(sides[row] + 1) // 2]
            change += cost * (max(-new, 0.0) - max(-old, 0.0))
            change += cost * (np.log1p(np.exp(-abs(new))) - np.log1p(np.exp(-abs(old))))
        if change <= _SUFFICIENT * size * promised:
            for column in range(len(weights)):
                weights[column] += size * change_of[column]
            for row in range(len(sides)):
                margins[row] += size * moved[row]
            return True
        size /= 2
    return False
