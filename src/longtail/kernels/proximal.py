"""ProXML's classifiers: L1-regularised squared hinge, solved label by label on a growing set of
columns.

Babbar and Schölkopf 2019 (Data scarcity, robustness and extreme multi-label classification)
minimise for each label

    F(w, b) = Σ C_i max(0, 1 − y_i (w·x_i + β b))² + λ‖w‖₁

where β is the value of the constant feature and its weight b, unlike the others, is not penalised.
The siblings of a block are solved one after the other, because hardly two of them look at the same
columns and documents:

- Only columns with w ≠ 0 or a gradient above λ matter. Steps are taken on a *working set* of
  columns, which starts empty and takes in the worst violators until none is left outside (Johnson
  and Guestrin 2015, Blitz).
- A document without any column of the working set has the margin β b. All of these that are
  negatives of one cost are one document of their summed cost, number m, until a column that one has
  is taken in: then that one is *touched*.
- While the *active* documents, y (w·x + β b) < 1, stay the same, the loss is a quadratic of these
  few. A proximal Newton step (Yuan, Ho and Lin 2012, newGLMNET) is its minimum with the penalty,
  shortened until F is less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.proximal_steps import (
    ColumnIndex,
    TouchedDocuments,
    column_of,
    descend,
    slope_at,
    violation_of,
)
from longtail.kernels.sibling_blocks import Documents, Problem

__all__ = ["Proximal", "index_columns", "solve_proximal"]

# first taken into the working set, or a quarter of the positives; later its size
_FIRST_COLUMNS = 4
_INNER = 0.3  # the working set is solved to this share of the worst violation,
_STEPS = 4  # or for so many steps
_BINS = 256
_ROUNDING = 1e-9  # a violation of this share of the summed costs is none


class Proximal(NamedTuple):
    """Settings of :func:`solve_proximal`; its targets are y C."""

    tolerance: float  # ε
    max_passes: int  # Newton steps at most
    penalty: float  # λ


class _WorkingSet(NamedTuple):
    """Variables of each column; ``working`` lists the columns of the working set."""

    w: Any  # (columns + 1,) float64, the bias last
    gradient: Any  # (columns,) float64 of the loss
    chosen: Any  # (columns,) bool
    working: Any  # (columns,) int32


class _SpecialDocuments(NamedTuple):
    """The documents of each sibling whose target is not that of its first negative."""

    common: Any  # (width,) float32, the target of the first negative
    pointers: Any  # (siblings + 1,) int64
    documents: Any  # int32


@kernel
def index_columns(documents: Documents, dense: Any, n_columns: int) -> ColumnIndex:
    """Return the index of the columns of some documents.

    Args:
        documents: their sparse blocks, renumbered from the dense columns on.
        dense: (m, e) their dense block.
        n_columns: columns of both blocks.
    """
    m, e = dense.shape
    columns = documents.columns
    starts = np.zeros(n_columns - e + 2, np.int64)
    for column in columns:
        starts[np.int64(column) - e + 2] += 1
    for column in range(2, len(starts)):
        starts[column] += starts[column - 1]
    owners = np.empty(len(columns), np.int32)
    entries = np.empty(len(columns), np.float32)
    sums = np.zeros(n_columns)
    for i in range(m):
        for j in range(e):
            sums[j] += dense[i, j]
        for k in range(documents.pointers[i], documents.pointers[i + 1]):
            column = np.int64(columns[k])
            at = starts[column - e + 1]
            owners[at] = i
            entries[at] = documents.values[k]
            starts[column - e + 1] = at + 1
            sums[column] += documents.values[k]
    everyone = np.empty(m, np.int32)
    for i in range(m):
        everyone[i] = i
    return ColumnIndex(starts, owners, entries, dense, everyone, documents.bias, sums)


@kernel
def solve_proximal(
    solver: Proximal,  # IN
    problem: Problem,  # IN  targets y C
    out: NDArray[np.float32],  # OUT (rows * width)
) -> int:
    """Solve min F for each sibling; return the most steps that one of them took.

    A sibling is solved when no entry of the least subgradient of F is above ``tolerance`` times λ,
    or times the largest entry at w = 0 and the best b if that is less: F is then above its minimum
    by about ``tolerance`` λ‖w‖₁ at most."""
    out[:] = 0
    m = len(problem.documents.pointers) - 1
    if m == 0:
        return 0
    width = len(problem.targets) // m
    n_columns = len(out) // width - 1
    special = _special_documents(problem.targets, width, problem.siblings)
    touched = TouchedDocuments(
        np.zeros(m + 1),
        np.zeros(m + 1),
        np.zeros(m + 1, np.bool_),
        np.empty(m + 1, np.int32),
        np.full(m + 1, -1, np.int32),
        np.zeros(m + 1),
    )
    columns = _WorkingSet(
        np.zeros(n_columns + 1),
        np.empty(n_columns),
        np.zeros(n_columns, np.bool_),
        np.empty(n_columns, np.int32),
    )
    most = 0
    for s in range(problem.siblings):
        n_touched = _touch_special(special, s, problem.targets[s::width], touched)
        steps, n_touched, n_working = _solve_one(
            solver, problem, touched, n_touched, special.common[s], columns
        )
        most = max(most, steps)
        for j in columns.working[:n_working]:
            out[j * width + s] = columns.w[j]
            columns.w[j] = 0
            columns.chosen[j] = False
        out[n_columns * width + s] = columns.w[n_columns]
        columns.w[n_columns] = 0
        for i in touched.listed[:n_touched]:
            touched.is_touched[i] = False
    return most


@kernel
def _special_documents(targets: Any, width: int, siblings: int) -> _SpecialDocuments:
    """Return the documents of each sibling whose target is not that of its first negative."""
    m = len(targets) // width
    common = np.zeros(width, np.float32)
    pointers = np.zeros(siblings + 1, np.int64)
    for s in range(siblings):
        for i in range(m):
            if targets[i * width + s] < 0:
                common[s] = targets[i * width + s]
                break
    special = np.empty(0, np.int32)
    for counting in (True, False):
        at = pointers.copy()
        for i in range(m):
            row = targets[i * width : i * width + width]
            other = np.int32(0)
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
                pointers[s + 1] = pointers[s] + at[s]
            special = np.empty(pointers[siblings], np.int32)
    return _SpecialDocuments(common, pointers, special)


@kernel
def _touch_special(
    special: _SpecialDocuments, s: int, targets: Any, touched: TouchedDocuments
) -> int:
    """Touch the special documents of sibling s, and make one of all others; return how many are
    listed.
    """
    documents = special.documents[special.pointers[s] : special.pointers[s + 1]]
    m = len(targets)
    touched.listed[0] = m
    touched.margin[m] = 0
    touched.target[m] = np.float64(special.common[s]) * (m - len(documents))
    for rank in range(len(documents)):
        i = documents[rank]
        touched.margin[i] = 0
        touched.target[i] = targets[i]
        touched.is_touched[i] = True
        touched.listed[rank + 1] = i
    return len(documents) + 1


@kernel
def _solve_one(
    solver: Proximal,
    problem: Problem,
    touched: TouchedDocuments,
    n_touched: int,
    common: Any,
    columns: _WorkingSet,
) -> Any:
    """Solve one sibling; return the steps made, and how many documents are listed and columns
    chosen.
    """
    documents = problem.documents
    index: ColumnIndex = problem.index
    penalty = solver.penalty
    more = max(_FIRST_COLUMNS, n_touched // 4)
    limit = -1.0
    zero: Any = np.int64(0)  # a literal would be a type, and compiled, of its own
    n_working = zero
    steps = zero
    room = zero + _STEPS
    least = 0.0
    for i in touched.listed[:n_touched]:
        least += _ROUNDING * abs(touched.target[i])
    descend(columns.working[:0], least, room, index, touched, n_touched, columns.w, penalty)
    while True:
        _gradient(documents, index, touched, n_touched, common, columns.gradient)
        worst = _worst(index.bias, touched, n_touched, columns, penalty)
        limit = max(solver.tolerance * min(worst, penalty), least) if limit < 0 else limit
        if worst <= limit or steps >= solver.max_passes:
            return steps, n_touched, n_working
        before = n_working
        n_working = _choose(columns, n_working, max(more, n_working), worst, penalty)
        working = columns.working[:n_working]
        for j in working[before:]:
            n_touched = _touch(column_of(index, j)[0], common, touched, n_touched)
        goal = max(_INNER * worst, 0.5 * limit)
        room = min(_STEPS, solver.max_passes - steps)
        made = descend(working, goal, room, index, touched, n_touched, columns.w, penalty)
        if made == 0:  # what is left is rounding
            return steps, n_touched, n_working
        steps += made


@kernel
def _touch(documents: Any, common: Any, touched: TouchedDocuments, n_touched: int) -> int:
    """Take documents out of number m; return how many are listed now."""
    m = len(touched.margin) - 1
    for i in documents:
        if not touched.is_touched[i]:
            touched.is_touched[i] = True
            touched.margin[i] = touched.margin[m]
            touched.target[i] = common
            touched.listed[n_touched] = i
            touched.target[m] -= common
            n_touched += 1
    if n_touched == m + 1:
        touched.target[m] = 0  # not what rounding has left
    return n_touched


@kernel
def _gradient(
    documents: Documents,
    index: ColumnIndex,
    touched: TouchedDocuments,
    n_touched: int,
    common: Any,
    gradient: Any,
) -> None:
    """Compute the gradient of the loss in each column but the bias.

    First as if all documents were untouched, then by the difference of each that is not.
    """
    dense = index.dense
    untouched = slope_at(np.float64(common), touched.margin[-1])
    for j in range(len(gradient)):
        gradient[j] = untouched * index.sums[j]
    for i in touched.listed[1:n_touched]:
        other = slope_at(touched.target[i], touched.margin[i]) - untouched
        if other != 0:
            for j in range(dense.shape[1]):
                gradient[j] += other * dense[i, j]
            for k in range(documents.pointers[i], documents.pointers[i + 1]):
                gradient[documents.columns[k]] += other * documents.values[k]


@kernel
def _worst(
    bias: Any, touched: TouchedDocuments, n_touched: int, columns: _WorkingSet, penalty: float
) -> float:
    """Return the largest violation of all columns and the bias."""
    slope = 0.0
    for i in touched.listed[:n_touched]:
        slope += slope_at(touched.target[i], touched.margin[i])
    worst: float = abs(slope * bias)
    for j in range(len(columns.gradient)):
        worst = max(worst, violation_of(columns.gradient[j], columns.w[j], penalty))
    return worst


@kernel
def _choose(columns: _WorkingSet, n_working: int, count: int, worst: float, penalty: float) -> int:
    """Add about ``count`` columns with the largest gradients to the working set; return its size.

    Gradients count by what they are above the penalty, which ``worst`` bounds. A histogram of them
    tells which ones: all of its highest bins that hold ``count`` or fewer, but the first of them
    that holds any in any case."""
    gradient = columns.gradient
    bins = np.zeros(_BINS + 1, np.int64)
    scale = _BINS / worst
    for j in range(len(gradient)):
        above = abs(gradient[j]) - penalty
        if above > 0 and not columns.chosen[j]:
            bins[np.int64(above * scale)] += 1
    lowest = _BINS + 1
    total = 0
    while lowest > 0 and (total == 0 or total + bins[lowest - 1] <= count):
        lowest -= 1
        total += bins[lowest]
    for j in range(len(gradient)):
        above = abs(gradient[j]) - penalty
        if above > 0 and not columns.chosen[j] and np.int64(above * scale) >= lowest:
            columns.working[n_working] = j
            columns.chosen[j] = True
            n_working += 1
    return n_working
