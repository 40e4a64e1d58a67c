"""Balanced spherical 2-means over the rows of one node (Parabel, section 4.1), and k-means without
balance.

Rows are a sparse block and a dense one beside it, l2-normalised. A node's rows are gathered and
their columns renumbered first, so that the centres fit the cache. A column that only one row has
takes no part in the products: it adds only to the similarity of that row to the centre it belongs
to, which is one exact number per row (``lone_squares``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.splitmix import draw

__all__ = [
    "Block",
    "Centres",
    "Stopping",
    "axis_scores",
    "gathered",
    "halves",
    "k_means",
    "nearest",
    "two_means",
]

Array = NDArray[Any]


class Block(NamedTuple):
    """Rows to be clustered."""

    pointers: Any  # (n + 1,) int64
    columns: Any  # uint32, counted in the sparse block
    values: Any  # float32
    lone_squares: Any  # (n,) float32, Σ value² of the columns that only this row had
    dense: Any  # (n, e) float32
    width: int  # columns of both blocks


class Centres(NamedTuple):
    """Centres of k-means, column by column.

    The last row is zeros, and stands for columns that no centre has.
    """

    rows: Any  # (sparse columns,) uint32, the row of ``values`` of each sparse column
    values: Any  # (width + 1, k) float32


class Stopping(NamedTuple):
    """When k-means stops."""

    max_iterations: int
    min_gain: float  # of the mean similarity of rows to their centres


@kernel
def gathered(block: Block, rows: Array, number: Array) -> Any:
    """Return the sparse part of ``rows`` of a block with their columns renumbered.

    A tuple of pointers, columns, values, lone squares, and the numbers of the columns in the block.
    ``number`` is a buffer of int32 zeros, one for each column, and is left so.
    """
    pointers = block.pointers
    columns = block.columns
    values = block.values
    lone_squares = block.lone_squares
    most = 0
    for row in rows:
        most += pointers[row + 1] - pointers[row]
    shared = _numbered(pointers, columns, rows, number, most)
    new_pointers = np.zeros(len(rows) + 1, np.int64)
    new_lone_squares = np.empty(len(rows), np.float32)
    new_columns = np.empty(most + 1, np.uint32)
    new_values = np.empty(most + 1, np.float32)
    filled = 0
    for position in range(len(rows)):
        row = rows[position]
        lone = lone_squares[row]
        for at in range(pointers[row], pointers[row + 1]):  # no branches, hard to predict
            local = number[columns[at]]
            value = values[at]
            new_columns[filled] = local - 1
            new_values[filled] = value
            filled += local > 0
            lone += value * value * (local <= 0)
        new_pointers[position + 1] = filled
        new_lone_squares[position] = lone
    for column in shared:
        number[column] = 0
    return new_pointers, new_columns[:filled], new_values[:filled], new_lone_squares, shared


@kernel
def _numbered(pointers: Array, columns: Array, rows: Array, number: Array, most: int) -> Array:
    """Number the columns that two or more of ``rows`` have, from 1 in order of appearance; return
    them.
    """
    seen = np.empty(most + 1, np.uint32)
    n_seen = 0
    for row in rows:
        for at in range(pointers[row], pointers[row + 1]):
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
        number[column] = n_shared * twice
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
    """Return for each row whether it is among the ``n_first`` with the highest scores.

    Ties are broken by position."""
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
    centre: Array,
    pointers: Array,
    columns: Array,
    values: Array,
    dense: Array,
    row: int,
    sign: int,
) -> None:
    """Add a row to a centre, or subtract it; the dense columns come first."""
    width = dense.shape[1]
    for column in range(width):
        centre[column] += sign * dense[row, column]
    for at in range(pointers[row], pointers[row + 1]):
        centre[width + columns[at]] += sign * values[at]


@kernel
def _product(
    pointers: Array, columns: Array, values: Array, dense: Array, row: int, axis: Array
) -> Any:
    """Return a row times ``axis``, in four independent sums."""
    width = np.uint32(dense.shape[1])
    a = np.float32(0)
    b = np.float32(0)
    c = np.float32(0)
    d = np.float32(0)
    for column in range(width):
        a += dense[row, column] * axis[column]
    at = pointers[row]
    end = pointers[row + 1]
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
def _point(centre: Array, total: Array, lone_squares: Array, first: Array, axis: Array) -> Any:
    """Set ``axis`` to the difference of the normalised centres.

    Returns the mean similarity of rows to their centre, and 1/norm of each centre.
    """
    square_first = 0.0
    square_second = 0.0
    for row in range(len(lone_squares)):
        if first[row]:
            square_first += lone_squares[row]
        else:
            square_second += lone_squares[row]
    for column in range(len(axis)):
        square_first += centre[column] ** 2
        square_second += (total[column] - centre[column]) ** 2
    similarity = (np.sqrt(square_first) + np.sqrt(square_second)) / len(lone_squares)
    scale_first = _inverse(np.sqrt(square_first))
    scale_second = _inverse(np.sqrt(square_second))
    for column in range(len(axis)):
        second = (total[column] - centre[column]) * scale_second
        axis[column] = centre[column] * scale_first - second
    return similarity, scale_first, scale_second


@kernel
def _inverse(norm: float) -> float:
    """Return 1/norm, and 0 of no length."""
    if norm > 0:
        return 1 / norm
    return 0.0


@kernel
def two_means(block: Block, rows: Array, n_first: int, state: int, stopping: Stopping) -> Any:
    """Split ``rows`` of a block into ``n_first`` and the others by balanced spherical 2-means from
    two random rows.

    Returns (first: bool of each row, axis: first centre minus second).
    """
    pointers = block.pointers
    columns = block.columns
    values = block.values
    dense = block.dense
    lone_squares = block.lone_squares[rows]
    total = np.zeros(block.width, np.float64)
    centre = np.zeros(block.width, np.float64)
    for row in rows:
        _add(total, pointers, columns, values, dense, row, 1)
    seeds = draw(rows, 2, state)
    _add(centre, pointers, columns, values, dense, seeds[0], 1)
    _add(centre, pointers, columns, values, dense, seeds[-1], -1)
    axis = centre.astype(np.float32)
    centre[:] = 0
    first = np.zeros(len(rows), np.bool_)
    scores = np.empty(len(rows), np.float32)
    before = 0.0
    scale_first = 0.0
    scale_second = 0.0
    for _ in range(stopping.max_iterations):
        for at in range(len(rows)):
            scores[at] = _product(pointers, columns, values, dense, rows[at], axis)
            scores[at] += lone_squares[at] * (scale_first if first[at] else -scale_second)
        now = halves(scores, n_first)
        for at in range(len(rows)):
            if now[at] != first[at]:
                _add(centre, pointers, columns, values, dense, rows[at], 1 if now[at] else -1)
        first = now
        similarity, scale_first, scale_second = _point(centre, total, lone_squares, first, axis)
        if similarity - before < stopping.min_gain:
            break
        before = similarity
    return first, axis


@kernel
def axis_scores(block: Block, rows: Array, axis: Array) -> Array:
    """Return each of ``rows`` times ``axis``, which has all columns, the dense ones first."""
    pointers = block.pointers
    columns = block.columns
    values = block.values
    dense = block.dense
    scores = np.empty(len(rows), np.float32)
    for at in range(len(rows)):
        scores[at] = _product(pointers, columns, values, dense, rows[at], axis)
    return scores


@kernel
def nearest(
    block: Block,  # IN
    rows: Array,  # IN  rows of the block
    centres: Centres,  # IN
    extra: Array,  # IN  float32, added to the product of each row with its present centre
    now: Array,  # IN/OUT int32, the centre of each row; −1: none
) -> None:
    """Set ``now`` to the centre with the highest product for each of ``rows``; of equal ones, the
    first.

    A number of a row meets those of all k centres in one run of memory.
    """
    pointers = block.pointers
    columns = block.columns
    values = block.values
    dense = block.dense
    centre_rows = centres.rows
    centre_values = centres.values
    k = centre_values.shape[1]
    scores = np.empty(k, np.float32)
    for at in range(len(rows)):
        row = rows[at]
        scores[:] = 0
        for column in range(dense.shape[1]):
            for c in range(k):
                scores[c] += dense[row, column] * centre_values[column, c]
        for j in range(pointers[row], pointers[row + 1]):
            column = centre_rows[columns[j]]
            value = values[j]
            for c in range(k):
                scores[c] += value * centre_values[column, c]
        if now[at] >= 0:
            scores[now[at]] += extra[at]
        now[at] = np.argmax(scores)


@kernel
def k_means(block: Block, rows: Array, k: int, state: int, stopping: Stopping) -> Any:
    """Cluster ``rows`` of a block by spherical k-means from k random rows, with no bound on the
    size of a cluster.

    Returns (nearest: centre of each row, centres of shape (width + 1, k), the last row zeros). A
    centre may have none."""
    pointers = block.pointers
    columns = block.columns
    values = block.values
    dense = block.dense
    now = np.full(len(rows), -1, np.int32)
    sums = np.zeros((block.width + 1, k), np.float32)
    lone_squares = block.lone_squares[rows]
    centres = Centres(np.arange(dense.shape[1], block.width).astype(np.uint32), sums)
    for c, row in enumerate(draw(rows, k, state)):
        _add(sums[:, c], pointers, columns, values, dense, row, 1)
    squares = np.empty(k, np.float64)
    scales = np.empty(k, np.float64)
    extra = np.zeros(len(rows), np.float32)
    before = 0.0
    for _ in range(stopping.max_iterations):
        nearest(block, rows, centres, extra, now)
        sums[:] = 0
        squares[:] = 0
        for at in range(len(rows)):
            _add(sums[:, now[at]], pointers, columns, values, dense, rows[at], 1)
            squares[now[at]] += lone_squares[at]
        similarity = _normalise(sums, squares, scales, len(rows))
        for at in range(len(rows)):
            extra[at] = lone_squares[at] * scales[now[at]]
        if similarity - before < stopping.min_gain:
            break
        before = similarity
    return now, sums


@kernel
def _normalise(
    sums: Array,  # IN/OUT (width + 1, k) sums of the rows of each centre in, unit vectors out
    squares: Array,  # IN/OUT (k,) squares of columns that are not in ``sums``
    scales: Array,  # OUT (k,) 1/norm of each centre
    n: int,  # IN  rows
) -> float:
    """Divide centres by their norms; return the mean similarity of rows to their centre."""
    width = sums.shape[0] - 1
    k = sums.shape[1]
    for column in range(width):
        for c in range(k):
            squares[c] += sums[column, c] ** 2
    similarity = 0.0
    for c in range(k):
        norm = np.sqrt(squares[c])
        similarity += norm / n
        scales[c] = _inverse(norm)
    for column in range(width):
        for c in range(k):
            sums[column, c] *= scales[c]
    return similarity
