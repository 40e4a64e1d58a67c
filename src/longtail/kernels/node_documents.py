"""The documents of a group as its solvers read them: dense rows in place, sparse rows renumbered and joined."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.dense_block import inner_products
from longtail.kernels.jit import kernel
from longtail.kernels.proximal import index_columns
from longtail.kernels.sibling_blocks import square_norms

__all__ = ["NodeDocuments", "prepare"]


class NodeDocuments(NamedTuple):
    """What all blocks of siblings over the same documents share; solvers only read it, so that threads may share it.

    Rows of the dense block are never copied (but for a proximal solver, where they are not one behind another): the
    row of document i is ``dense[rows[i]]``. The sparse rows are a copy with columns numbered from e on.
    """

    rows: Any  # (m,) int32, rising: rows of the features
    pointers: Any  # (m + 1,) int64
    columns: Any  # uint32
    values: Any  # float32
    n_columns: int  # sparse columns that solvers see
    found: Any  # int32, rising: the columns that the documents have
    source: Any  # int32, of each column found: where its weight stands,
    scale: Any  # float32, and what to multiply it by
    norms: Any  # (m,) float32, ‖x‖² with the constant feature; empty unless the solver is a dual one
    products: Any  # (m, m) float32 inner products of the dense rows, or empty
    index: Any  # of ``index_columns``; of no documents unless the solver is proximal


@kernel
def prepare(
    mine: Any,  # IN  int32, rising: rows of the features
    row_pointers: Any,  # IN  sparse block of the features
    indices: Any,  # IN
    values: Any,  # IN
    dense: Any,  # IN  dense block of the features
    bias: Any,  # IN  value of the constant feature
    newton: bool | None,  # IN  as in ``train_spans``
    proximal: bool | None,  # IN
    column_at: Any,  # IN/OUT (n_columns,) -1 where unused; left filled in the columns found
) -> Any:
    """Return the :class:`NodeDocuments` of some rows of the features."""
    pointers, local, local_values, n_local, found, source, scale = _renumbered(
        mine, row_pointers, indices, values, dense.shape[1], proximal, column_at
    )
    rows, dual, m = mine.copy(), newton is None and proximal is None, len(mine) if dense.shape[1] else 0
    few = dual and m < dense.shape[1]  # the shorter of the two rows of a document
    products = inner_products(dense[rows[: m if few else 0]])
    norms = square_norms(pointers if dual else pointers[:1], local_values, dense, rows, bias)
    index = _index(pointers, local, local_values, dense, rows, dense.shape[1] + n_local, bias, proximal)
    return NodeDocuments(rows, pointers, local, local_values, n_local, found, source, scale, norms, products, index)


@kernel
def _renumbered(
    mine: Any, row_pointers: Any, indices: Any, values: Any, e: int, proximal: bool | None, column_at: Any
) -> Any:
    """Copy sparse rows and renumber their columns, so that the weights of a block fit the cache.

    The columns that only one of the documents has are joined into one, of their common length: the weights of all
    of them are multiples of that document's row, so this is the same problem with fewer non-zeros. Under an L1 penalty
    it is cheapest for the column of the largest value to bear it all, so that one stands for them. Returns pointers,
    columns, values, the number of columns that solvers see, the columns found, and of each of these where its weight
    stands and what to multiply it by.
    """
    found, source, scale, n_local, total = _number_columns(mine, row_pointers, indices, column_at)
    pointers, local = np.zeros(len(mine) + 1, np.int64), np.empty(total, np.uint32)
    local_values = np.empty(total, np.float32)
    at = 0
    for position in range(len(mine)):
        i = mine[position]
        square, largest = 0.0, row_pointers[i]
        for k in range(row_pointers[i], row_pointers[i + 1]):
            place = column_at[indices[k]]
            if place >= 0:
                local[at] = place + e
                local_values[at] = values[k]
                at += 1
            else:
                if square == 0 or abs(values[k]) > abs(values[largest]):
                    largest = k
                square += np.float64(values[k]) * values[k]
        if square > 0:
            length = np.sqrt(square) if proximal is None else np.float64(values[largest])
            for k in range(row_pointers[i], row_pointers[i + 1]):
                rank = -2 - column_at[indices[k]]
                if rank >= 0:
                    source[rank] = n_local
                    scale[rank] = values[k] / length if proximal is None else np.float64(k == largest)
            local[at] = n_local + e
            local_values[at] = length
            at += 1
            n_local += 1
        pointers[position + 1] = at
    return pointers, local[:at], local_values[:at], n_local, found, source, scale


@kernel
def _number_columns(mine: Any, row_pointers: Any, indices: Any, column_at: Any) -> Any:
    """Find the columns of some documents; fill ``column_at`` with numbers of those that several have, −2 − rank else.

    Returns the columns, where the weight of each stands and what to multiply it by, how many are numbered, and how many
    entries the documents have.
    """
    once, shared, total = -2, -3, 0
    for i in mine:
        total += row_pointers[i + 1] - row_pointers[i]
    found = np.empty(min(total, len(column_at)), np.int32)
    n_found = 0
    for i in mine:
        for k in range(row_pointers[i], row_pointers[i + 1]):
            column = indices[k]
            if column_at[column] == -1:
                column_at[column] = once
                found[n_found] = column
                n_found += 1
            else:
                column_at[column] = shared
    found = np.sort(found[:n_found])
    # a column that holds nothing but a zero keeps a scale of 0
    source, scale, n_local = np.zeros(n_found, np.int32), np.zeros(n_found, np.float32), 0
    for rank in range(n_found):
        if column_at[found[rank]] == shared:
            source[rank], scale[rank] = n_local, 1
            column_at[found[rank]] = n_local
            n_local += 1
        else:
            column_at[found[rank]] = -2 - rank
    return found, source, scale, n_local, total


@kernel
def _index(
    pointers: Any, columns: Any, values: Any, dense: Any, rows: Any, n_columns: int, bias: Any, proximal: bool | None
) -> Any:  # fmt: skip
    """Return the documents of each column: of no documents, if the solver does not want it."""
    if proximal is None:
        return index_columns(pointers[:1], columns[:0], values[:0], dense[:0], dense.shape[1], bias)
    return index_columns(pointers, columns, values, _block(dense, rows), n_columns, bias)


@kernel
def _block(dense: Any, rows: Any) -> Any:
    """Return some rows of the dense block: a view of it where they lie one behind another."""
    if len(rows) == 0:
        return dense[:0]
    if rows[-1] - rows[0] + 1 == len(rows):
        return dense[rows[0] : rows[-1] + 1]
    return dense[rows]
