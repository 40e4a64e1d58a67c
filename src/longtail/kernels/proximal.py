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
from longtail.kernels.proximal_steps import column_of, descend, slope_at, violation_of

__all__ = ["index_columns", "solve_proximal"]

_FIRST_COLUMNS = 4  # taken into the working set at first, or a quarter of the positives; later as many as it has
_INNER, _STEPS = 0.3, 4  # the working set is solved to this share of the worst violation, or for so many steps
_BINS = 256
_ROUNDING = 1e-9  # a violation of this share of the summed costs is none


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
def solve_proximal(
    pointers: NDArray[np.int64],  # IN
    columns: NDArray[np.uint32],  # IN
    values: NDArray[np.float32],  # IN
    index: Any,  # IN what ``index_columns`` has made of the same documents, with their dense block and β
    targets: NDArray[np.float32],  # IN (m * width): y C; 0 is padding
    siblings: int,  # IN how many of the width are no padding
    tolerance: float,  # IN ε
    max_passes: int,  # IN most Newton steps
    penalty: float,  # IN λ
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min F for each sibling; return the most steps that one of them took.

    A sibling is done when no entry of the least subgradient of F is above ``tolerance`` times λ, or times the largest
    entry at w = 0 and the best b if that is less: F is then above its minimum by about ``tolerance`` λ‖w‖₁ at most.
    """
    out[:] = 0
    m = len(pointers) - 1
    if m == 0:
        return 0
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
    zero: Any = np.int64(0)  # a literal would be a type, and compiled, of its own
    n_working, steps, room = zero, zero, zero + _STEPS
    least = 0.0
    for i in documents[3][:n_touched]:
        least += _ROUNDING * abs(documents[1][i])
    descend(working[:0], least, room, index, documents, n_touched, w, penalty)
    while True:
        _gradient(pointers, columns, values, index, documents, n_touched, common, gradient)
        worst = _worst(index[5], documents, n_touched, w, gradient, penalty)
        limit = max(tolerance * min(worst, penalty), least) if limit < 0 else limit
        if worst <= limit or steps >= max_steps:
            return steps, n_touched, n_working
        before = n_working
        n_working = _choose(gradient, chosen, penalty, worst, max(more, n_working), working, n_working)
        for j in working[before:n_working]:
            n_touched = _touch(column_of(index, j)[0], common, documents, n_touched)
        goal, room = max(_INNER * worst, 0.5 * limit), min(_STEPS, max_steps - steps)
        made = descend(working[:n_working], goal, room, index, documents, n_touched, w, penalty)
        if made == 0:  # what is left is rounding
            return steps, n_touched, n_working
        steps += made


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
def _gradient(
    pointers: Any, columns: Any, values: Any, index: Any, documents: Any, n_touched: int, common: Any, gradient: Any
) -> None:
    """Compute the gradient of the loss in each column but the bias: as if all were untouched, then what is not."""
    dense, sums = index[3], index[6]
    margin, target, _, listed, _, _ = documents
    untouched = slope_at(np.float64(common), margin[-1])
    for j in range(len(gradient)):
        gradient[j] = untouched * sums[j]
    for i in listed[1:n_touched]:
        other = slope_at(target[i], margin[i]) - untouched
        if other != 0:
            for j in range(dense.shape[1]):
                gradient[j] += other * dense[i, j]
            for k in range(pointers[i], pointers[i + 1]):
                gradient[columns[k]] += other * values[k]


@kernel
def _worst(bias: Any, documents: Any, n_touched: int, w: Any, gradient: Any, penalty: float) -> float:
    """Return the largest violation of all columns and the bias."""
    margin, target, _, listed, _, _ = documents
    slope = 0.0
    for i in listed[:n_touched]:
        slope += slope_at(target[i], margin[i])
    worst: float = abs(slope * bias)
    for j in range(len(gradient)):
        worst = max(worst, violation_of(gradient[j], w[j], penalty))
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
