"""The documents of a node as its solvers read them: copied together, their columns renumbered and joined."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["gather"]


@kernel
def gather(
    mine: Any, row_pointers: Any, indices: Any, values: Any, dense: Any, proximal: bool | None, column_at: Any
) -> Any:  # fmt: skip
    """Copy the rows of some documents and renumber their columns, so that the weights of a block fit the cache.

    The columns that only one of the documents has are joined into one, of their common length: the weights of all
    of them are multiples of that document's row, so this is the same problem with fewer non-zeros. Under an L1 penalty
    it is cheapest for the column of the largest value to bear it all, so that one stands for them. Returns what
    solvers read, the number of columns they see, the columns found, and of each of these where its weight stands and
    what to multiply it by. ``column_at`` (n_columns, -1 where unused) is left filled.
    """
    found, source, scale, n_local, total = _number_columns(mine, row_pointers, indices, column_at)
    e = dense.shape[1]
    pointers, local = np.zeros(len(mine) + 1, np.int64), np.empty(total, np.uint32)
    local_values, local_dense = np.empty(total, np.float32), np.empty((len(mine), e), np.float32)
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
        local_dense[position] = dense[i]
    return pointers, local[:at], local_values[:at], local_dense, n_local, found, source, scale


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
