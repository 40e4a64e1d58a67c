"""Balanced spherical 2-means over the rows of one node (Parabel, section 4.1), and the free kind
with k centres.

Rows are a sparse block and a dense one beside it, l2-normalised. A node's rows are gathered and
their columns renumbered first, so that the centres fit the cache. A column that only one row has
takes no part in the products: all it adds to is the likeness of that row to its own centre, which
is one number a row («own»), and exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.splitmix import draw

__all__ = ["axis_scores", "gathered", "halves", "k_means", "nearest", "two_means"]

Array = NDArray[Any]


@kernel
def gathered(
    ptr: Array, columns: Array, values: Array, own: Array, rows: Array, number: Array
) -> Any:
    """Return ``rows`` of a sparse block with their columns renumbered: (ptr, columns, values, own,
    old columns).

    ``number`` is a buffer of int32 zeros, one for each column, and is left so.
    """
    most = 0
    for row in rows:
        most += ptr[row + 1] - ptr[row]
    shared = _numbered(ptr, columns, rows, number, most)
    new_ptr = np.zeros(len(rows) + 1, np.int64)
    new_own = np.empty(len(rows), np.float32)
    new_columns = np.empty(most + 1, np.uint32)
    new_values = np.empty(most + 1, np.float32)
    filled = 0
    for position in range(len(rows)):
        row = rows[position]
        alone = own[row]
        for at in range(ptr[row], ptr[row + 1]):  # without branches, which nothing could foretell
            local = number[columns[at]]
            value = values[at]
            new_columns[filled], new_values[filled] = local - 1, value
            filled += local > 0
            alone += value * value * (local <= 0)
        new_ptr[position + 1], new_own[position] = filled, alone
    for column in shared:
        number[column] = 0
    return new_ptr, new_columns[:filled], new_values[:filled], new_own, shared


@kernel
def _numbered(ptr: Array, columns: Array, rows: Array, number: Array, most: int) -> Array:
    """Number the columns that two or more of ``rows`` have, from 1 in order of appearance; return
    them.
    """
    seen = np.empty(most + 1, np.uint32)
    n_seen = 0
    for row in rows:
        for at in range(ptr[row], ptr[row + 1]):
            column = columns[at]
            count = number[column]
            seen[n_seen] = column
            n_seen += count == 0
            number[column] = min(count + 1, 2)
    n_shared = 0
    for at in range(n_seen):
        column = seen[at]
        twice = number[column] == 2
        seen[n_shared] = column  # n_shared ≤ at: what is overwritten was read
        n_shared += twice
        number[column] = n_shared if twice else 0
    return seen[:n_shared].copy()


@kernel
def _least_of_best(scores: Array, count: int) -> Any:
    """Return the ``count``-th highest score (Wirth's quickselect; np.partition takes seconds to
    compile).
    """
    values = scores.copy()
    at = len(scores) - count
    low = 0
    high = len(scores) - 1
    while low < high:
        pivot = values[at]
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if j < at:
            low = i
        if at < i:
            high = j
    return values[at]


@kernel
def halves(scores: Array, n_first: int) -> Array:
    """Tell for each row whether it is among the ``n_first`` with the highest scores; of equal ones,
    the earlier.
    """
    first = np.zeros(len(scores), np.bool_)
    if n_first <= 0:
        return first
    least = _least_of_best(scores, n_first)
    ties = n_first
    for row in range(len(scores)):
        first[row] = scores[row] > least
        ties -= first[row]
    for row in range(len(scores)):
        if ties > 0 and scores[row] == least:
            first[row] = True
            ties -= 1
    return first


@kernel
def _add(
    centre: Array, ptr: Array, columns: Array, values: Array, dense: Array, row: int, sign: int
) -> None:
    """Add a row to a centre, or take it away; the dense columns come first."""
    width = dense.shape[1]
    for column in range(width):
        centre[column] += sign * dense[row, column]
    for at in range(ptr[row], ptr[row + 1]):
        centre[width + columns[at]] += sign * values[at]


@kernel
def _product(ptr: Array, columns: Array, values: Array, dense: Array, row: int, axis: Array) -> Any:
    """Return a row times ``axis``; four sums, because one would wait for itself."""
    width = np.uint32(dense.shape[1])
    a = b = c = d = np.float32(0)
    for column in range(width):
        a += dense[row, column] * axis[column]
    at = ptr[row]
    end = ptr[row + 1]
    while at + 4 <= end:
        a += values[at] * axis[width + columns[at]]
        b += values[at + 1] * axis[width + columns[at + 1]]
        c += values[at + 2] * axis[width + columns[at + 2]]
        d += values[at + 3] * axis[width + columns[at + 3]]
        at += 4
    while at < end:
        a += values[at] * axis[width + columns[at]]
        at += 1
    return (a + b) + (c + d)


@kernel
def _point(centre: Array, total: Array, own: Array, first: Array, axis: Array) -> Any:
    """Set ``axis`` to the difference of the normalised centres; return (mean likeness, 1/norm of
    each centre).
    """
    square_first = 0.0
    square_second = 0.0
    for row in range(len(own)):
        if first[row]:
            square_first += own[row]
        else:
            square_second += own[row]
    for column in range(len(axis)):
        square_first += centre[column] ** 2
        square_second += (total[column] - centre[column]) ** 2
    likeness = (np.sqrt(square_first) + np.sqrt(square_second)) / len(own)
    scale_first = 1 / np.sqrt(square_first) if square_first > 0 else 0.0
    scale_second = 1 / np.sqrt(square_second) if square_second > 0 else 0.0
    for column in range(len(axis)):
        axis[column] = (
            centre[column] * scale_first - (total[column] - centre[column]) * scale_second
        )
    return likeness, scale_first, scale_second


@kernel
def two_means(
    ptr: Array,
    columns: Array,
    values: Array,
    own: Array,
    dense: Array,
    width: int,
    rows: Array,
    n_first: int,
    state: int,
    max_iterations: int,
    min_gain: float,
) -> Any:
    """Split ``rows`` of a block into ``n_first`` and the others by balanced spherical 2-means from
    two random rows.

    ``width`` counts the columns, dense and sparse. Returns (first: bool of each row, axis: first
    centre minus second)."""
    n = len(rows)
    total = np.zeros(width, np.float64)
    centre = np.zeros(width, np.float64)
    for row in rows:
        _add(total, ptr, columns, values, dense, row, 1)
    seeds = draw(rows, 2, state)
    _add(centre, ptr, columns, values, dense, seeds[0], 1)
    _add(centre, ptr, columns, values, dense, seeds[-1], -1)
    axis = centre.astype(np.float32)
    centre[:] = 0
    first = np.zeros(n, np.bool_)
    scores = np.empty(n, np.float32)
    alone = own[rows]
    before = 0.0
    scale_first = 0.0
    scale_second = 0.0
    for _ in range(max_iterations):
        for at in range(n):
            scores[at] = _product(ptr, columns, values, dense, rows[at], axis)
            scores[at] += alone[at] * (scale_first if first[at] else -scale_second)
        now = halves(scores, n_first)
        for at in range(n):
            if now[at] != first[at]:
                _add(centre, ptr, columns, values, dense, rows[at], 1 if now[at] else -1)
        first = now
        likeness, scale_first, scale_second = _point(centre, total, alone, first, axis)
        if likeness - before < min_gain:
            break
        before = likeness
    return first, axis


@kernel
def axis_scores(
    ptr: Array, columns: Array, values: Array, dense: Array, rows: Array, axis: Array
) -> Array:
    """Return each of ``rows`` times ``axis``, which has all columns, the dense ones first."""
    scores = np.empty(len(rows), np.float32)
    for at in range(len(rows)):
        scores[at] = _product(ptr, columns, values, dense, rows[at], axis)
    return scores


@kernel
def nearest(
    ptr: Array,
    columns: Array,
    values: Array,
    dense: Array,
    rows: Array,
    number: Array,
    centres: Array,
    extra: Array,
    now: Array,
) -> None:
    """Set ``now`` to the centre with the highest product for each of ``rows``; of equal ones, the
    first.

    ``centres`` has shape (width + 1, k), so that a number of a row meets those of all k centres in
    one run of memory; a sparse column is the one at ``number``, the last stands for columns that no
    centre has and holds zeros. The product with the centre that a row has now (−1: none) is raised
    by its ``extra``."""
    k = centres.shape[1]
    scores = np.empty(k, np.float32)
    for at in range(len(rows)):
        row = rows[at]
        scores[:] = 0
        for column in range(dense.shape[1]):
            for c in range(k):
                scores[c] += dense[row, column] * centres[column, c]
        for j in range(ptr[row], ptr[row + 1]):
            column = number[columns[j]]
            value = values[j]
            for c in range(k):
                scores[c] += value * centres[column, c]
        if now[at] >= 0:
            scores[now[at]] += extra[at]
        now[at] = np.argmax(scores)


@kernel
def k_means(
    ptr: Array,
    columns: Array,
    values: Array,
    own: Array,
    dense: Array,
    width: int,
    rows: Array,
    k: int,
    state: int,
    max_iterations: int,
    min_gain: float,
) -> Any:
    """Cluster ``rows`` of a block by spherical k-means from k random rows, with no bound on the
    size of a cluster.

    Returns (nearest: centre of each row, centres of shape (width + 1, k), the last row zeros). A
    centre may have none."""
    n = len(rows)
    now = np.full(n, -1, np.int32)
    centres = np.zeros((width + 1, k), np.float32)
    alone = own[rows]
    number = np.arange(dense.shape[1], width).astype(np.uint32)
    for c, row in enumerate(draw(rows, k, state)):
        _add(centres[:, c], ptr, columns, values, dense, row, 1)
    squares = np.empty(k, np.float64)
    scales = np.empty(k, np.float64)
    extra = np.zeros(n, np.float32)
    before = 0.0
    for _ in range(max_iterations):
        nearest(ptr, columns, values, dense, rows, number, centres, extra, now)
        centres[:], squares[:] = 0, 0
        for at in range(n):
            _add(centres[:, now[at]], ptr, columns, values, dense, rows[at], 1)
            squares[now[at]] += alone[at]
        for column in range(width):
            for c in range(k):
                squares[c] += centres[column, c] ** 2
        likeness = 0.0
        for c in range(k):
            norm = np.sqrt(squares[c])
            likeness += norm / n
            scales[c] = 1 / norm if norm > 0 else 0.0
        for column in range(width):
            for c in range(k):
                centres[column, c] *= scales[c]
        for at in range(n):
            extra[at] = alone[at] * scales[now[at]]
        if likeness - before < min_gain:
            break
        before = likeness
    return now, centres
