"""A step of ProXML's solver: Newton's method on a few columns and the documents that touch them (newGLMNET).

While the active documents, y (w·x + β b) < 1, stay the same, the loss is a quadratic of these few; a step is its
minimum with the penalty, by coordinate descent, shortened until F is less (Yuan, Ho and Lin 2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["column_of", "descend", "slope_at", "violation_of"]

_QUADRATIC, _PASSES = 0.1, 100  # the same of a step's quadratic
_DECREASE, _HALVINGS = 0.01, 30  # of the line search (Armijo's rule)
_LEAST_CURVE = 1e-12  # of a column that no active document has


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
def column_of(index: Any, j: int) -> Any:
    """Return the documents that have column ``j``, and its values in them."""
    starts, owners, entries, dense, everyone, _, _ = index
    e = dense.shape[1]
    if j < e:
        return everyone, dense[:, j]
    start, end = starts[j - e], starts[j - e + 1]
    return owners[start:end], entries[start:end:1]


@kernel
def descend(
    working: Any, goal: float, max_steps: int, index: Any, documents: Any, n_touched: int, w: Any, penalty: float
) -> int:
    """Take Newton steps on the working set and the bias until no violation is above ``goal``; return how many."""
    old, new, steps = np.empty(len(working) + 1), np.empty(len(working) + 1), 0
    for rank in range(len(old)):
        old[rank] = w[working[rank]] if rank < len(working) else w[-1]
    while steps < max_steps:
        starts, owners, x, costs, errors = _active(working, index, documents, n_touched)
        new[:] = old
        if _minimise(starts, owners, x, costs, errors, new, penalty) <= goal:
            break
        share = _go(working, index, documents, n_touched, old, new, penalty)
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
def _active(working: Any, index: Any, documents: Any, n_touched: int) -> Any:
    """Gather the active documents' part of the working set by column, the bias last; their C and y − w·x − β b."""
    margin, target, _, listed, place, _ = documents
    active, n = np.empty(n_touched, np.int32), 0
    costs, errors = np.empty(n_touched), np.empty(n_touched)
    for i in listed[:n_touched]:
        y = 1.0 if target[i] > 0 else -1.0
        if y * margin[i] < 1 and target[i] != 0:
            active[n], costs[n], errors[n], place[i] = i, target[i] * y, y - margin[i], n
            n += 1
    starts, room, at = np.zeros(len(working) + 2, np.int64), n, 0
    for j in working:
        room += len(column_of(index, j)[0])
    owners, x = np.empty(room, np.int32), np.empty(room, np.float32)
    for rank in range(len(working)):
        mine, entries = column_of(index, working[rank])
        for k in range(len(mine)):
            if place[mine[k]] >= 0:
                owners[at], x[at] = place[mine[k]], entries[k]
                at += 1
        starts[rank + 1] = at
    for rank in range(n):
        owners[at + rank], x[at + rank] = rank, index[5]
        place[active[rank]] = -1
    starts[-1] = at + n
    return starts, owners, x, costs[:n], errors[:n]


@kernel
def _minimise(starts: Any, owners: Any, x: Any, costs: Any, errors: Any, w: Any, penalty: float) -> float:
    """Minimise Σ C (y − w·x)² + λ‖w‖₁ by coordinate descent, the last weight being free; return the first violation.

    Passes over all columns take turns with passes over those that have a weight.
    """
    n, first, everything = len(w), 0.0, True
    curves = np.zeros(n)
    for j in range(n):
        slope = 0.0
        for k in range(starts[j], starts[j + 1]):
            i = owners[k]
            curves[j] += 2 * costs[i] * x[k] * x[k]
            slope -= 2 * costs[i] * errors[i] * x[k]
        first = max(first, violation_of(slope, w[j], penalty if j < n - 1 else 0.0))
    for _ in range(_PASSES):
        worst = 0.0
        for j in range(n - 1, -1, -1):
            if everything or w[j] != 0:
                mine = owners[starts[j] : starts[j + 1]]
                least, curve = penalty if j < n - 1 else 0.0, max(curves[j], _LEAST_CURVE)
                w[j], violation = _coordinate(mine, x[starts[j] :], costs, errors, w[j], curve, least)
                worst = max(worst, violation)
        if everything and worst <= _QUADRATIC * first:
            break
        everything = worst <= _QUADRATIC * first
    return first


@kernel
def _coordinate(
    owners: Any, x: Any, costs: Any, errors: Any, weight: float, curve: float, penalty: float
) -> tuple[float, float]:
    """Return the weight at which the quadratic is least along a column, moved in ``errors``; the violation before."""
    slope = 0.0
    for k in range(len(owners)):
        slope -= 2 * costs[owners[k]] * errors[owners[k]] * x[k]
    free = weight - slope / curve
    new = np.sign(free) * max(abs(free) - penalty / curve, 0.0)
    if new != weight:
        for k in range(len(owners)):
            errors[owners[k]] -= (new - weight) * x[k]
    return new, violation_of(slope, weight, penalty)


@kernel
def _longer(old: Any, new: Any, share: float) -> float:
    """Return how much ‖w‖₁ grows on a share of the way from old to new weights, the last not counted."""
    total = 0.0
    for j in range(len(old) - 1):
        total += abs(old[j] + share * (new[j] - old[j])) - abs(old[j])
    return total


@kernel
def _go(working: Any, index: Any, documents: Any, n_touched: int, old: Any, new: Any, penalty: float) -> float:
    """Move margins from ``old`` towards ``new`` weights, half as far until F is less; return the share of the way."""
    margin, target, _, listed, _, changes = documents
    touched = listed[:n_touched]
    for i in touched:
        changes[i] = (new[-1] - old[-1]) * index[5]
    for rank in range(len(working)):
        if new[rank] != old[rank]:
            mine, x = column_of(index, working[rank])
            for k in range(len(mine)):
                changes[mine[k]] += (new[rank] - old[rank]) * x[k]
    slope, share = penalty * _longer(old, new, 1.0), 1.0
    for i in touched:
        slope += slope_at(target[i], margin[i]) * changes[i]
    for _ in range(_HALVINGS):
        gain = penalty * _longer(old, new, share)
        for i in touched:
            y = 1.0 if target[i] > 0 else -1.0
            before, after = max(1 - y * margin[i], 0.0), max(1 - y * (margin[i] + share * changes[i]), 0.0)
            gain += target[i] * y * (after - before) * (after + before)
        if gain <= _DECREASE * share * slope:
            for i in touched:
                margin[i] += share * changes[i]
            return share
        share /= 2
    return 0.0
