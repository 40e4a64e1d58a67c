"""ProXML's classifiers: L1-regularised squared hinge, solved label by label on a growing set of columns.

Babbar and Schölkopf 2019 (Data scarcity, robustness and extreme multi-label classification) minimise for each label

    F(w, b) = Σ C_i max(0, 1 − y_i (w·x_i + β b))² + λ‖w‖₁

where β is the value of the constant feature and its weight b, unlike the others, is not penalised. The siblings of a
block are solved one after the other, because hardly two of them look at the same columns and documents:

- Only columns with w ≠ 0 or a gradient above λ matter. Steps are taken on a *working set* of columns, which starts
  empty and takes in the worst violators until none is left outside (Johnson and Guestrin 2015, Blitz).
- A document without any column of the working set has the margin β b. All of these that are negatives of one cost are
  one document of their summed cost, number m, until a column that one has is taken in: then that one is *touched*.
- While the *active* documents, y (w·x + β b) < 1, stay the same, the loss is a quadratic of these few. A proximal
  Newton step (Yuan, Ho and Lin 2012, newGLMNET) is its minimum with the penalty, shortened until F is less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["index_columns", "solve_indexed", "solve_proximal"]

_FIRST_COLUMNS = 4  # taken into the working set at first, or a quarter of the positives; later as many as it has
_INNER, _STEPS = 0.3, 4  # the working set is solved to this share of the worst violation, or for so many steps
_QUADRATIC, _PASSES = 0.1, 100  # the same of a step's quadratic
_DECREASE, _HALVINGS = 0.01, 30  # of the line search (Armijo's rule)
_BINS = 256
_LEAST_CURVE = 1e-12  # of a column that no active document has
_ROUNDING = 1e-9  # a violation of this share of the summed costs is none


@kernel
def solve_proximal(
    pointers: NDArray[np.int64],  # IN
    columns: NDArray[np.uint32],  # IN
    values: NDArray[np.float32],  # IN
    dense: NDArray[np.float32],  # IN
    bias: np.float32,  # IN β
    targets: NDArray[np.float32],  # IN (m * width): y C; 0 is padding
    siblings: int,  # IN how many of the width are no padding
    tolerance: float,  # IN ε
    max_passes: int,  # IN most Newton steps
    penalty: float,  # IN λ
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min F for each sibling; return the most steps that one of them took.

    A sibling is done when no entry of the least subgradient of F is above ``tolerance`` times the largest one at
    w = 0 and the best b.
    """
    out[:] = 0
    m = len(pointers) - 1
    if m == 0:
        return 0
    index = index_columns(pointers, columns, values, dense, len(out) // (len(targets) // m) - 1, bias)
    return solve_indexed(pointers, columns, values, index, targets, siblings, tolerance, max_passes, penalty, out)


@kernel
def index_columns(pointers: Any, columns: Any, values: Any, dense: Any, n_columns: int, bias: Any) -> Any:
    """Return the documents and values of each sparse column, and what else blocks of the same documents share."""
    m, e = dense.shape
    starts = np.zeros(n_columns - e + 2, np.int64)
    for column in columns:
        starts[np.int64(column) - e + 2] += 1
    for column in range(2, len(starts)):
        starts[column] += starts[column - 1]
    owners, entries = np.empty(len(columns), np.int32), np.empty(len(columns), np.float32)
    sums = np.zeros(n_columns)
    for i in range(m):
        for j in range(e):
            sums[j] += dense[i, j]
        for k in range(pointers[i], pointers[i + 1]):
            column = np.int64(columns[k])
            at = starts[column - e + 1]
            owners[at], entries[at] = i, values[k]
            starts[column - e + 1] = at + 1
            sums[column] += values[k]
    everyone = np.empty(m, np.int32)
    for i in range(m):
        everyone[i] = i
    return starts, owners, entries, dense, everyone, np.float64(bias), sums


@kernel
def solve_indexed(
    pointers: Any, columns: Any, values: Any, index: Any,
    targets: Any, siblings: int, tolerance: float, max_passes: int, penalty: float, out: Any,
) -> int:  # fmt: skip
    """Do as ``solve_proximal`` does, with an index that ``index_columns`` has made of the same documents."""
    m = len(pointers) - 1
    width = len(targets) // m
    n_columns, most = len(out) // width - 1, 0
    common, owners, special = _special_documents(targets, width, siblings)
    # of each document, the untouched ones as number m: margin, y C, whether it is touched; the list of those that are;
    # and two arrays for whoever leaves them as they were
    documents = (
        np.zeros(m + 1), np.zeros(m + 1), np.zeros(m + 1, np.bool_), np.empty(m + 1, np.int32),
        np.full(m + 1, -1, np.int32), np.zeros(m + 1),
    )  # fmt: skip
    w, gradient = np.zeros(n_columns + 1), np.empty(n_columns)
    chosen, working = np.zeros(n_columns, np.bool_), np.empty(n_columns, np.int32)
    out[:] = 0
    for s in range(siblings):
        n_touched = _begin(special[owners[s] : owners[s + 1]], targets[s::width], common[s], documents)
        steps, n_touched, n_working = _solve_one(
            pointers, columns, values, index, documents, n_touched, common[s],
            w, gradient, chosen, working, tolerance, max_passes, penalty,
        )  # fmt: skip
        most = max(most, steps)
        for j in working[:n_working]:
            out[j * width + s] = w[j]
            w[j], chosen[j] = 0, False
        out[n_columns * width + s], w[n_columns] = w[n_columns], 0
        for i in documents[3][:n_touched]:
            documents[2][i] = False
    return most


@kernel
def _special_documents(targets: Any, width: int, siblings: int) -> Any:
    """Return of each sibling the target of its first negative, and the documents that have another one.

    The documents of sibling s are the last array from owners[s] to owners[s + 1].
    """
    m = len(targets) // width
    common, owners = np.zeros(width, np.float32), np.zeros(siblings + 1, np.int64)
    for s in range(siblings):
        for i in range(m):
            if targets[i * width + s] < 0:
                common[s] = targets[i * width + s]
                break
    special = np.empty(0, np.int32)
    for counting in (True, False):
        at = owners.copy()
        for i in range(m):
            row, other = targets[i * width : i * width + width], np.int32(0)
            for s in range(width):  # first all at once: few documents are special for any sibling
                other |= np.int32(row[s] != common[s])
            if other != 0:
                for s in range(siblings):
                    if row[s] != common[s]:
                        if not counting:
                            special[at[s]] = i
                        at[s] += 1
        if counting:
            for s in range(siblings):
                owners[s + 1] = owners[s] + at[s]
            special = np.empty(owners[siblings], np.int32)
    return common, owners, special


@kernel
def _begin(special: Any, targets: Any, common: Any, documents: Any) -> int:
    """Touch the special documents, and make one of all others; return how many are listed."""
    margin, target, touched, listed, _, _ = documents
    m = len(targets)
    listed[0], margin[m], target[m] = m, 0, np.float64(common) * (m - len(special))
    for rank in range(len(special)):
        i = special[rank]
        margin[i], target[i], touched[i], listed[rank + 1] = 0, targets[i], True, i
    return len(special) + 1


@kernel
def _solve_one(
    pointers: Any, columns: Any, values: Any, index: Any, documents: Any, n_touched: int, common: Any,
    w: Any, gradient: Any, chosen: Any, working: Any, tolerance: float, max_steps: int, penalty: float,
) -> Any:  # fmt: skip
    """Solve one sibling; return the steps made, and how many documents are listed and columns chosen."""
    more, limit = max(_FIRST_COLUMNS, n_touched // 4), -1.0
    n_working, steps = np.int64(0), np.int64(0)  # a literal would be a type, and compiled, of its own
    least = 0.0
    for i in documents[3][:n_touched]:
        least += _ROUNDING * abs(documents[1][i])
    _descend(working[:0], least, np.int64(_STEPS), index, documents, n_touched, w, penalty)
    while True:
        _gradient(pointers, columns, values, index, documents, n_touched, common, gradient)
        worst = _worst(index[5], documents, n_touched, w, gradient, penalty)
        limit = max(tolerance * worst, least) if limit < 0 else limit
        if worst <= limit or steps >= max_steps:
            return steps, n_touched, n_working
        before = n_working
        n_working = _choose(gradient, chosen, penalty, worst, max(more, n_working), working, n_working)
        for j in working[before:n_working]:
            n_touched = _touch(_column(index, j)[0], common, documents, n_touched)
        goal, room = max(_INNER * worst, 0.5 * limit), min(_STEPS, max_steps - steps)
        made = _descend(working[:n_working], goal, room, index, documents, n_touched, w, penalty)
        if made == 0:  # what is left is rounding
            return steps, n_touched, n_working
        steps += made


@kernel
def _column(index: Any, j: int) -> Any:
    """Return the documents that have column ``j``, and its values in them."""
    starts, owners, entries, dense, everyone, _, _ = index
    e = dense.shape[1]
    if j < e:
        return everyone, dense[:, j]
    start, end = starts[j - e], starts[j - e + 1]
    return owners[start:end], entries[start:end:1]


@kernel
def _touch(owners: Any, common: Any, documents: Any, n_touched: int) -> int:
    """Take documents out of number m; return how many are listed now."""
    margin, target, touched, listed, _, _ = documents
    m = len(margin) - 1
    for i in owners:
        if not touched[i]:
            touched[i], margin[i], target[i], listed[n_touched] = True, margin[m], common, i
            target[m] -= common
            n_touched += 1
    if n_touched == m + 1:
        target[m] = 0  # not what rounding has left
    return n_touched


@kernel
def _slope_at(target: float, margin: float) -> float:
    """Return the derivative of C max(0, 1 − y z)² at the margin z."""
    return -2 * target * max(1 - margin if target > 0 else 1 + margin, 0.0)


@kernel
def _gradient(
    pointers: Any, columns: Any, values: Any, index: Any, documents: Any, n_touched: int, common: Any, gradient: Any
) -> None:
    """Compute the gradient of the loss in each column but the bias: as if all were untouched, then what is not."""
    dense, sums = index[3], index[6]
    margin, target, _, listed, _, _ = documents
    untouched = _slope_at(np.float64(common), margin[-1])
    for j in range(len(gradient)):
        gradient[j] = untouched * sums[j]
    for i in listed[1:n_touched]:
        other = _slope_at(target[i], margin[i]) - untouched
        if other != 0:
            for j in range(dense.shape[1]):
                gradient[j] += other * dense[i, j]
            for k in range(pointers[i], pointers[i + 1]):
                gradient[columns[k]] += other * values[k]


@kernel
def _violation(slope: float, weight: float, penalty: float) -> float:
    """Return the size of the least subgradient of the loss and the penalty together."""
    if weight == 0:
        return max(abs(slope) - penalty, 0.0)
    return abs(slope + (penalty if weight > 0 else -penalty))


@kernel
def _worst(bias: Any, documents: Any, n_touched: int, w: Any, gradient: Any, penalty: float) -> float:
    """Return the largest violation of all columns and the bias."""
    margin, target, _, listed, _, _ = documents
    slope = 0.0
    for i in listed[:n_touched]:
        slope += _slope_at(target[i], margin[i])
    worst: float = abs(slope * bias)
    for j in range(len(gradient)):
        worst = max(worst, _violation(gradient[j], w[j], penalty))
    return worst


@kernel
def _choose(gradient: Any, chosen: Any, penalty: float, worst: float, count: int, working: Any, n_working: int) -> int:
    """Add about ``count`` of the columns whose gradient is most above the penalty to the working set; return its size.

    These are found by a histogram of what ``worst`` bounds: all of its highest bins that hold ``count`` or fewer, but
    the first of them that holds any in any case.
    """
    bins = np.zeros(_BINS + 1, np.int64)
    scale = _BINS / worst
    for j in range(len(gradient)):
        above = abs(gradient[j]) - penalty
        if above > 0 and not chosen[j]:
            bins[np.int64(above * scale)] += 1
    lowest, total = _BINS + 1, 0
    while lowest > 0 and (total == 0 or total + bins[lowest - 1] <= count):
        lowest -= 1
        total += bins[lowest]
    for j in range(len(gradient)):
        above = abs(gradient[j]) - penalty
        if above > 0 and not chosen[j] and np.int64(above * scale) >= lowest:
            working[n_working], chosen[j] = j, True
            n_working += 1
    return n_working


@kernel
def _descend(
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
        room += len(_column(index, j)[0])
    owners, x = np.empty(room, np.int32), np.empty(room, np.float32)
    for rank in range(len(working)):
        mine, entries = _column(index, working[rank])
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
        first = max(first, _violation(slope, w[j], penalty if j < n - 1 else 0.0))
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
    return new, _violation(slope, weight, penalty)


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
            mine, x = _column(index, working[rank])
            for k in range(len(mine)):
                changes[mine[k]] += (new[rank] - old[rank]) * x[k]
    slope = penalty * _longer(old, new, 1.0)
    for i in touched:
        slope += _slope_at(target[i], margin[i]) * changes[i]
    share = 1.0
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
