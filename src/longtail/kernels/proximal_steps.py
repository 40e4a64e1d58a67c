"""A step of ProXML's solver: Newton's method on the working set and the touched documents
(newGLMNET).

While the active documents, y (w·x + β b) < 1, stay the same, the loss is a quadratic of these few;
a step is its minimum with the penalty, by coordinate descent, shortened until F is less (Yuan, Ho
and Lin 2012)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel

__all__ = [
    "ColumnIndex",
    "TouchedDocuments",
    "column_of",
    "descend",
    "slope_at",
    "violation_of",
]

_QUADRATIC = 0.1  # share of the first violation at which a step's quadratic counts as minimised
_PASSES = 100  # at most
_DECREASE = 0.01  # of the line search (Armijo's rule)
_HALVINGS = 30
_LEAST_CURVE = 1e-12  # of a column that no active document has


class ColumnIndex(NamedTuple):
    """The documents of each column, which all blocks over the same documents share."""

    starts: Any  # (sparse columns + 2,) int64
    documents: Any  # int32, of each sparse column
    values: Any  # float32
    dense: Any  # (m, e) float32
    everyone: Any  # (m,) int32, all documents
    bias: Any  # float64, value of the constant feature β
    sums: Any  # (columns,) float64, the sum of each column of both blocks


class TouchedDocuments(NamedTuple):
    """Variables of each document; number m stands for all untouched ones together."""

    margin: Any  # (m + 1,) float64
    target: Any  # (m + 1,) float64 y C
    is_touched: Any  # (m + 1,) bool
    listed: Any  # (m + 1,) int32, m and the touched documents, as far as it is filled
    number: Any  # (m + 1,) int32, −1 between uses: number among the active documents
    change: Any  # (m + 1,) float64, room for the change of margins along a step


class _Active(NamedTuple):
    """The active documents' part of the working set, by column, the bias last."""

    starts: Any  # (columns + 1,) int64
    documents: Any  # int32, counted among the active ones
    values: Any  # float32
    costs: Any  # float64 C of each active document
    errors: Any  # float64 y − w·x − β b


@kernel
def slope_at(target: float, margin: float) -> float:
    """Return the derivative of C max(0, 1 − y z)² at the margin z."""
    return -2 * target * max(1 - margin if target > 0 else 1 + margin, 0.0)


@kernel
def violation_of(slope: float, weight: float, penalty: float) -> float:
    """Return the size of the least subgradient of the loss and the penalty together."""
    if weight == 0:
        return max(abs(slope) - penalty, 0.0)
    return abs(slope + (penalty if weight > 0 else -penalty))


@kernel
def column_of(index: ColumnIndex, j: int) -> Any:
    """Return the documents that have column ``j``, and its values in them."""
    e = index.dense.shape[1]
    if j < e:
        return index.everyone, index.dense[:, j]
    start = index.starts[j - e]
    end = index.starts[j - e + 1]
    return index.documents[start:end], index.values[start:end:1]


@kernel
def descend(
    working: Any,  # IN  int32, columns of the working set
    goal: float,  # IN  violation that is small enough
    max_steps: int,  # IN
    index: ColumnIndex,  # IN
    touched: TouchedDocuments,  # IN/OUT
    n_touched: int,  # IN
    w: Any,  # IN/OUT
    penalty: float,  # IN
) -> int:
    """Take Newton steps on the working set and the bias; return how many."""
    old = np.empty(len(working) + 1)
    new = np.empty(len(working) + 1)
    for rank in range(len(old)):
        old[rank] = w[-1]
    for rank in range(len(working)):
        old[rank] = w[working[rank]]
    steps = 0
    while steps < max_steps:
        active = _active(working, index, touched, n_touched)
        new[:] = old
        if _minimise(active, new, penalty) <= goal:
            break
        _changes(working, index, touched, n_touched, old, new)
        share = _line_search(touched, n_touched, old, new, penalty)
        if share == 0:
            break
        for rank in range(len(old)):
            old[rank] = new[rank] if share == 1 else old[rank] + share * (new[rank] - old[rank])
        steps += 1
    for rank in range(len(working)):
        w[working[rank]] = old[rank]
    w[-1] = old[-1]
    return steps


@kernel
def _active(working: Any, index: ColumnIndex, touched: TouchedDocuments, n_touched: int) -> _Active:
    """Gather the active documents' part of the working set."""
    number = touched.number
    active = np.empty(n_touched, np.int32)
    costs = np.empty(n_touched)
    errors = np.empty(n_touched)
    n = 0
    for i in touched.listed[:n_touched]:
        target = touched.target[i]
        y = 1.0 if target > 0 else -1.0
        if y * touched.margin[i] < 1 and target != 0:
            active[n] = i
            costs[n] = target * y
            errors[n] = y - touched.margin[i]
            number[i] = n
            n += 1
    starts = np.zeros(len(working) + 2, np.int64)
    room = n
    for j in working:
        room += len(column_of(index, j)[0])
    documents = np.empty(room, np.int32)
    values = np.empty(room, np.float32)
    at = 0
    for rank in range(len(working)):
        owners, entries = column_of(index, working[rank])
        for k in range(len(owners)):
            if number[owners[k]] >= 0:
                documents[at] = number[owners[k]]
                values[at] = entries[k]
                at += 1
        starts[rank + 1] = at
    for rank in range(n):
        documents[at + rank] = rank
        values[at + rank] = index.bias
        number[active[rank]] = -1
    starts[-1] = at + n
    return _Active(starts, documents, values, costs[:n], errors[:n])


@kernel
def _minimise(active: _Active, w: Any, penalty: float) -> float:
    """Minimise Σ C (y − w·x)² + λ‖w‖₁ by coordinate descent, the last weight being free.

    Passes over all columns take turns with passes over those that have a weight. Returns the first
    violation.
    """
    starts, documents, values, costs, errors = active
    n = len(w)
    curves = np.zeros(n)
    first = 0.0
    for j in range(n):
        slope = 0.0
        for k in range(starts[j], starts[j + 1]):
            i = documents[k]
            curves[j] += 2 * costs[i] * values[k] * values[k]
            slope -= 2 * costs[i] * errors[i] * values[k]
        first = max(first, violation_of(slope, w[j], penalty if j < n - 1 else 0.0))
    everything = True
    for _ in range(_PASSES):
        worst = 0.0
        for j in range(n - 1, -1, -1):
            if everything or w[j] != 0:
                owners = documents[starts[j] : starts[j + 1]]
                least = penalty if j < n - 1 else 0.0
                curve = max(curves[j], _LEAST_CURVE)
                w[j], violation = _coordinate(
                    owners, values[starts[j] :], costs, errors, w[j], curve, least
                )
                worst = max(worst, violation)
        if everything and worst <= _QUADRATIC * first:
            break
        everything = worst <= _QUADRATIC * first
    return first


@kernel
def _coordinate(
    documents: Any,
    values: Any,
    costs: Any,
    errors: Any,
    weight: float,
    curve: float,
    penalty: float,
) -> tuple[float, float]:
    """Return the weight at which the quadratic is least along a column, and the violation before.

    ``errors`` are moved to those of that weight.
    """
    slope = 0.0
    for k in range(len(documents)):
        slope -= 2 * costs[documents[k]] * errors[documents[k]] * values[k]
    free = weight - slope / curve
    new = np.sign(free) * max(abs(free) - penalty / curve, 0.0)
    if new != weight:
        for k in range(len(documents)):
            errors[documents[k]] -= (new - weight) * values[k]
    return new, violation_of(slope, weight, penalty)


@kernel
def _longer(old: Any, new: Any, share: float) -> float:
    """Return how much ‖w‖₁ grows on a share of the way from old to new weights, bias aside."""
    total = 0.0
    for j in range(len(old) - 1):
        total += abs(old[j] + share * (new[j] - old[j])) - abs(old[j])
    return total


@kernel
def _changes(
    working: Any,
    index: ColumnIndex,
    touched: TouchedDocuments,
    n_touched: int,
    old: Any,
    new: Any,
) -> None:
    """Compute the change of the touched documents' margins from ``old`` to ``new`` weights."""
    change = touched.change
    for i in touched.listed[:n_touched]:
        change[i] = (new[-1] - old[-1]) * index.bias
    for rank in range(len(working)):
        if new[rank] != old[rank]:
            owners, values = column_of(index, working[rank])
            for k in range(len(owners)):
                change[owners[k]] += (new[rank] - old[rank]) * values[k]


@kernel
def _line_search(
    touched: TouchedDocuments, n_touched: int, old: Any, new: Any, penalty: float
) -> float:
    """Move margins towards ``new`` weights, half as far until F is less; return the share of the
    way.
    """
    margin = touched.margin
    target = touched.target
    change = touched.change
    listed = touched.listed[:n_touched]
    slope = penalty * _longer(old, new, 1.0)
    for i in listed:
        slope += slope_at(target[i], margin[i]) * change[i]
    share = 1.0
    for _ in range(_HALVINGS):
        gain = penalty * _longer(old, new, share)
        for i in listed:
            y = 1.0 if target[i] > 0 else -1.0
            before = max(1 - y * margin[i], 0.0)
            after = max(1 - y * (margin[i] + share * change[i]), 0.0)
            gain += target[i] * y * (after - before) * (after + before)
        if gain <= _DECREASE * share * slope:
            for i in listed:
                margin[i] += share * change[i]
            return share
        share /= 2
    return 0.0
