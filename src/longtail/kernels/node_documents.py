"""The documents of a group as its solvers read them: dense rows as they lie, sparse rows renumbered
and joined.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.dense_block import inner_products
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import kernel
from longtail.kernels.proximal import index_columns
from longtail.kernels.proximal_steps import ColumnIndex
from longtail.kernels.sibling_blocks import Documents, square_norms

__all__ = ["JoinedColumns", "NodeDocuments", "prepare_dual", "prepare_primal", "prepare_proximal"]


class JoinedColumns(NamedTuple):
    """Where solvers have the weights of the sparse columns of some documents."""

    names: Any  # int32, rising: the columns of the features
    sources: Any  # int32, of each: the column that solvers see,
    scales: Any  # float32, and the factor of its weight
    n_solved: int  # sparse columns that solvers see


class NodeDocuments(NamedTuple):
    """Data shared by all blocks of siblings over the same documents; threads share it, too.

    Rows of the dense block are never copied (but for a proximal solver, where they are not one
    behind another). The sparse rows are a copy with columns numbered from e on."""

    documents: Documents
    columns: JoinedColumns
    column_index: ColumnIndex  # of no documents unless the solver is proximal


@kernel
def prepare_dual(
    solver: Any,  # IN  settings of a dual solver, which choose this kernel
    rows: Any,  # IN  int32, rising: rows of the features
    features: FeatureRows,  # IN
    bias: Any,  # IN  value of the constant feature
    column_at: Any,  # IN/OUT (n_columns,) -1 where unused; left filled in the columns of the rows
) -> NodeDocuments:
    """Return some rows of the features as the dual solvers read them."""
    joined = _number_columns(rows, features, column_at)
    pointers, columns, values, n_solved = _renumbered(rows, features, column_at, joined, True)
    dense_rows = rows.copy()
    dense = features.dense
    m = len(rows)
    if m >= dense.shape[1]:  # inner products only where they are the shorter rows
        m = 0
    products = inner_products(dense[dense_rows[:m]])
    norms = square_norms(pointers, values, dense, dense_rows, bias)
    documents = Documents(
        pointers, columns, values, dense, dense_rows, np.float64(bias), norms, products
    )
    return NodeDocuments(documents, _with_count(joined, n_solved), _no_index(documents))


@kernel
def prepare_primal(
    solver: Any, rows: Any, features: FeatureRows, bias: Any, column_at: Any
) -> NodeDocuments:
    """Return the same as Newton's method reads them."""
    joined = _number_columns(rows, features, column_at)
    pointers, columns, values, n_solved = _renumbered(rows, features, column_at, joined, True)
    documents = _without_norms(pointers, columns, values, features, rows, bias)
    return NodeDocuments(documents, _with_count(joined, n_solved), _no_index(documents))


@kernel
def prepare_proximal(
    solver: Any, rows: Any, features: FeatureRows, bias: Any, column_at: Any
) -> NodeDocuments:
    """Return the same as the proximal solver reads them."""
    joined = _number_columns(rows, features, column_at)
    pointers, columns, values, n_solved = _renumbered(rows, features, column_at, joined, False)
    documents = _without_norms(pointers, columns, values, features, rows, bias)
    dense = _block(features.dense, rows)
    index = index_columns(documents, dense, dense.shape[1] + n_solved)
    return NodeDocuments(documents, _with_count(joined, n_solved), index)


@kernel
def _without_norms(
    pointers: Any, columns: Any, values: Any, features: FeatureRows, rows: Any, bias: Any
) -> Documents:
    """Return documents for a solver that reads neither norms nor inner products."""
    dense = features.dense
    products = np.empty((0, 0), np.float32)
    norms = np.empty(0, np.float32)
    return Documents(
        pointers, columns, values, dense, rows.copy(), np.float64(bias), norms, products
    )


@kernel
def _with_count(joined: JoinedColumns, n_solved: int) -> JoinedColumns:
    return JoinedColumns(joined.names, joined.sources, joined.scales, n_solved)


@kernel
def _no_index(documents: Documents) -> ColumnIndex:
    """Return an index of no documents."""
    none = Documents(
        documents.pointers[:1],
        documents.columns[:0],
        documents.values[:0],
        documents.dense,
        documents.dense_rows,
        documents.bias,
        documents.norms,
        documents.products,
    )
    dense = documents.dense[:0]
    return index_columns(none, dense, dense.shape[1])


@kernel
def _renumbered(
    rows: Any, features: FeatureRows, column_at: Any, joined: JoinedColumns, by_length: bool
) -> Any:
    """Copy sparse rows and renumber their columns, so that the weights of a block fit the cache.

    The columns that only one of the documents has are joined into one, of their common length: the
    weights of all of them are multiples of that document's row, so this is the same problem with
    fewer non-zeros. Under an L1 penalty it is cheapest for the column of the largest value to bear
    it all, so that one stands for them.

    Args:
        rows: rows of the features.
        features: of all documents.
        column_at: number of each column that several rows have; −2 − rank of one that a single row
        has.
        joined: their sources and scales are completed.
        by_length: whether joined columns get their common length; else the largest value.

    Returns pointers, columns, values, and how many columns solvers see.
    """
    features_at = features.pointers
    indices = features.columns
    values = features.values
    sources = joined.sources
    scales = joined.scales
    e = features.dense.shape[1]
    n_solved = joined.n_solved
    total = 0
    for i in rows:
        total += features_at[i + 1] - features_at[i]
    pointers = np.zeros(len(rows) + 1, np.int64)
    local = np.empty(total, np.uint32)
    local_values = np.empty(total, np.float32)
    at = 0
    for position in range(len(rows)):
        start = features_at[rows[position]]
        end = features_at[rows[position] + 1]
        square = 0.0
        largest = start
        for k in range(start, end):
            number = column_at[indices[k]]
            if number >= 0:
                local[at] = number + e
                local_values[at] = values[k]
                at += 1
            else:
                if square == 0 or abs(values[k]) > abs(values[largest]):
                    largest = k
                square += np.float64(values[k]) * values[k]
        if square > 0:
            length = np.sqrt(square) if by_length else np.float64(values[largest])
            for k in range(start, end):
                rank = -2 - column_at[indices[k]]
                if rank >= 0:
                    sources[rank] = n_solved
                    scale = values[k] / length if by_length else np.float64(k == largest)
                    scales[rank] = scale
            local[at] = n_solved + e
            local_values[at] = length
            at += 1
            n_solved += 1
        pointers[position + 1] = at
    return pointers, local[:at], local_values[:at], n_solved


@kernel
def _number_columns(rows: Any, features: FeatureRows, column_at: Any) -> JoinedColumns:
    """Number the columns that several of the rows have; fill ``column_at`` with these, else −2 −
    rank.
    """
    once = -2
    shared = -3
    pointers = features.pointers
    indices = features.columns
    total = 0
    for i in rows:
        total += pointers[i + 1] - pointers[i]
    names = np.empty(min(total, len(column_at)), np.int32)
    count = 0
    for i in rows:
        for k in range(pointers[i], pointers[i + 1]):
            column = indices[k]
            if column_at[column] == -1:
                column_at[column] = once
                names[count] = column
                count += 1
            else:
                column_at[column] = shared
    names = np.sort(names[:count])
    sources = np.zeros(count, np.int32)
    # a column that holds nothing but a zero keeps a scale of 0
    scales = np.zeros(count, np.float32)
    n_shared = 0
    for rank in range(count):
        if column_at[names[rank]] == shared:
            sources[rank] = n_shared
            scales[rank] = 1
            column_at[names[rank]] = n_shared
            n_shared += 1
        else:
            column_at[names[rank]] = -2 - rank
    return JoinedColumns(names, sources, scales, n_shared)


@kernel
def _block(dense: Any, rows: Any) -> Any:
    """Return some rows of the dense block: a view of it where they lie one behind another."""
    if len(rows) == 0:
        return dense[:0]
    if rows[-1] - rows[0] + 1 == len(rows):
        return dense[rows[0] : rows[-1] + 1]
    return dense[rows]
