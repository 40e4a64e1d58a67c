"""Training the classifiers of a run of spans: gather the documents, solve sibling by sibling block, prune, pack.

A *span* is some of the siblings under one parent: all of them, or a part where the parent has very many documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.sibling_blocks import BLOCK
from longtail.kernels.solvers import solve_hinge, solve_logistic

__all__ = ["HINGE", "LOGISTIC", "train_spans"]

HINGE, LOGISTIC = None, True  # told apart when a kernel is compiled, so that only one solver is compiled in


@kernel
def train_spans(
    first: int,  # IN spans first … last - 1 are trained
    last: int,  # IN
    parents: NDArray[np.int64],  # IN (spans) whose documents each span is trained on
    starts: NDArray[np.int64],  # IN (spans) first node
    stops: NDArray[np.int64],  # IN (spans) behind its last node
    order: NDArray[np.int64],  # IN (nodes) the siblings of each span from 0 on, in the order to solve them
    document_pointers: NDArray[np.int64],  # IN (parents + 1)
    documents: NDArray[np.int32],  # IN documents of each parent, rising
    positive_pointers: NDArray[np.int64],  # IN (nodes + 1)
    positives: NDArray[np.int32],  # IN documents of each node
    relevance: NDArray[np.float32],  # IN beside ``positives``: their cost is cost_positive times this
    row_pointers: NDArray[np.int64],  # IN sparse block of the features of all documents
    indices: NDArray[np.int32],  # IN
    values: NDArray[np.float32],  # IN
    dense: NDArray[np.float32],  # IN dense block (n, e)
    n_columns: int,  # IN columns of the sparse block
    loss: bool | None,  # IN HINGE or LOGISTIC
    cost_positive: float,  # IN
    cost_negative: float,  # IN
    bias: np.float32,  # IN
    tolerance: float,  # IN
    max_passes: int,  # IN
    prune: np.float32,  # IN
    seed: int,  # IN
) -> Any:
    """Return (rows of each span, columns, entries of each row, siblings, values, dense weights) of the spans.

    Columns rise within a span, ``n_columns`` is the bias; siblings are counted from the span's first node and rise
    within a row. A node without positives gets a bias of −1 in the margin, and nothing else.
    """
    column_at = np.full(n_columns, -1, np.int32)
    document_at = np.full(len(row_pointers) - 1, -1, np.int32)
    span_rows = np.zeros(last - first, np.int64)
    n_nodes = 0
    for span in range(first, last):
        n_nodes += stops[span] - starts[span]
    dense_weights = np.zeros((n_nodes, dense.shape[1]), np.float32)
    rows, counts = np.empty(1024, np.int32), np.empty(1024, np.int32)
    siblings, weights = np.empty(4096, np.int32), np.empty(4096, np.float32)
    n_rows, n_entries, node_at = 0, 0, 0
    for span in range(first, last):
        mine = documents[document_pointers[parents[span]] : document_pointers[parents[span] + 1]]
        pointers, local, local_values, local_dense, n_local, found, source, scale = _gather(
            mine, row_pointers, indices, values, dense, column_at
        )
        document_at[mine] = np.arange(len(mine), dtype=np.int32)
        width = stops[span] - starts[span]
        columns, owners, kept = _solve_siblings(
            starts[span], width, order[starts[span] : stops[span]],
            document_at, positive_pointers, positives, relevance,
            pointers, local, local_values, local_dense, n_local, source, scale,
            loss, cost_positive, cost_negative, bias, tolerance, max_passes, prune, seed,
            dense_weights[node_at : node_at + width],
        )  # fmt: skip
        rows, counts = _room(rows, n_rows + len(found) + 1), _room(counts, n_rows + len(found) + 1)
        siblings, weights = _room(siblings, n_entries + len(kept)), _room(weights, n_entries + len(kept))
        more = _pack(columns, owners, kept, found, n_columns, rows[n_rows:], counts[n_rows:],
                     siblings[n_entries:], weights[n_entries:])  # fmt: skip
        span_rows[span - first] = more
        n_rows, n_entries, node_at = n_rows + more, n_entries + len(kept), node_at + width
        column_at[found] = -1
        document_at[mine] = -1
    return (
        span_rows,
        rows[:n_rows].copy(),
        counts[:n_rows].copy(),
        siblings[:n_entries].copy(),
        weights[:n_entries].copy(),
        dense_weights,
    )


@kernel
def _gather(mine: Any, row_pointers: Any, indices: Any, values: Any, dense: Any, column_at: Any) -> Any:
    """Copy the rows of some documents and renumber their columns, so that the weights of a block fit the cache.

    The columns that only one of the documents has are joined into one, of their common length: the weights of all
    of them are multiples of that document's row, so this is the same problem with fewer non-zeros. Returns what
    solvers read, the number of columns they see, the columns found, and of each of these where its weight stands
    and what to multiply it by. ``column_at`` (n_columns, -1 where unused) is left filled.
    """
    once, shared = -2, -3
    e, total = dense.shape[1], 0
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
    pointers, local = np.zeros(len(mine) + 1, np.int64), np.empty(total, np.uint32)
    local_values, local_dense = np.empty(total, np.float32), np.empty((len(mine), e), np.float32)
    at = 0
    for position in range(len(mine)):
        i = mine[position]
        square = 0.0
        for k in range(row_pointers[i], row_pointers[i + 1]):
            place = column_at[indices[k]]
            if place >= 0:
                local[at] = place + e
                local_values[at] = values[k]
                at += 1
            else:
                square += np.float64(values[k]) * values[k]
        if square > 0:
            length = np.sqrt(square)
            for k in range(row_pointers[i], row_pointers[i + 1]):
                rank = -2 - column_at[indices[k]]
                if rank >= 0:
                    source[rank] = n_local
                    scale[rank] = values[k] / length
            local[at] = n_local + e
            local_values[at] = length
            at += 1
            n_local += 1
        pointers[position + 1] = at
        local_dense[position] = dense[i]
    return pointers, local[:at], local_values[:at], local_dense, n_local, found, source, scale


@kernel
def _solve_siblings(
    start: int, width: int, order: Any, document_at: Any, positive_pointers: Any, positives: Any, relevance: Any,
    pointers: Any, columns: Any, values: Any, dense: Any, n_local: int, source: Any, scale: Any,
    loss: bool | None, cost_positive: float, cost_negative: float, bias: Any, tolerance: float, max_passes: int,
    prune: Any, seed: int, dense_weights: Any,
) -> Any:  # fmt: skip
    """Return (column, sibling, weight) of what pruning leaves; the column behind the last is the bias."""
    m, e, n_found = len(pointers) - 1, dense.shape[1], len(source)
    frequency = positive_pointers[start + 1 : start + width + 1] - positive_pointers[start : start + width]
    kept_columns, kept_owners = np.empty(4096, np.int32), np.empty(4096, np.int32)
    kept, n_kept = np.empty(4096, np.float32), 0
    for begin in range(0, width, BLOCK):
        block = order[begin : begin + BLOCK]
        trained = 0
        for s in block:
            trained += 1 if frequency[s] > 0 and m > 0 else 0
        span = BLOCK if trained > BLOCK // 2 else BLOCK // 2
        out = np.zeros((e + n_local + 1) * span, np.float32)
        if trained:
            targets = np.zeros(m * span, np.float32)
            negative = -(0.5 / cost_negative if loss is None else cost_negative)
            for i in range(m):
                targets[i * span : i * span + trained] = negative
            for s in range(trained):
                node = start + block[s]
                for k in range(positive_pointers[node], positive_pointers[node + 1]):
                    i = document_at[positives[k]]
                    if i >= 0:
                        cost = cost_positive * relevance[k]
                        targets[i * span + s] = 0.5 / cost if loss is None else cost
            if loss is None:
                solve_hinge(
                    pointers, columns, values, dense, bias, targets, trained, tolerance, max_passes, seed + start, out
                )
            else:
                solve_logistic(
                    pointers, columns, values, dense, bias, targets, trained, tolerance, max_passes, seed + start, out
                )
        for s in range(trained):
            for j in range(e):
                dense_weights[block[s], j] = out[j * span + s]
        room = n_kept + (n_found + 1) * len(block)
        kept_columns, kept_owners, kept = _room(kept_columns, room), _room(kept_owners, room), _room(kept, room)
        for column in range(n_found + 1):
            at, factor = (source[column], scale[column]) if column < n_found else (n_local, np.float32(1))
            least = prune if column < n_found else np.float32(0)  # the bias is never pruned
            for s in range(trained):
                weight = out[(e + at) * span + s] * factor
                if abs(weight) >= least and weight != 0:
                    kept_columns[n_kept], kept_owners[n_kept], kept[n_kept] = column, block[s], weight
                    n_kept += 1
        if bias > 0:
            for s in range(trained, len(block)):  # ``out`` may have no room for these
                kept_columns[n_kept], kept_owners[n_kept], kept[n_kept] = n_found, block[s], -1 / bias
                n_kept += 1
    return kept_columns[:n_kept], kept_owners[:n_kept], kept[:n_kept]


@kernel
def _pack(
    columns: Any, owners: Any, kept: Any, found: Any, n_columns: int,
    rows: Any, counts: Any, siblings: Any, weights: Any,
) -> int:  # fmt: skip
    """Write the entries ordered by column and sibling, and the columns that have any; return how many have."""
    at = np.zeros(len(found) + 2, np.int64)
    for column in columns:
        at[column + 1] += 1
    n_rows = 0
    for column in range(len(found) + 1):
        if at[column + 1] > 0:
            rows[n_rows] = found[column] if column < len(found) else n_columns
            counts[n_rows] = at[column + 1]
            n_rows += 1
        at[column + 1] += at[column]
    for k in _order(owners):  # blocks hold siblings by frequency: bring them back into order
        place = at[columns[k]]
        siblings[place], weights[place] = owners[k], kept[k]
        at[columns[k]] += 1
    return n_rows


@kernel
def _order(keys: Any) -> Any:
    """Return the stable order of small numbers, by counting."""
    most = 0
    for key in keys:
        most = max(most, key)
    at = np.zeros(most + 2, np.int64)
    for key in keys:
        at[key + 1] += 1
    for key in range(most + 1):
        at[key + 1] += at[key]
    order = np.empty(len(keys), np.int64)
    for k in range(len(keys)):
        order[at[keys[k]]] = k
        at[keys[k]] += 1
    return order


@kernel
def _room(array: Any, size: int) -> Any:
    """Return ``array``, or a longer copy when it is shorter than ``size``."""
    if size <= len(array):
        return array
    longer = np.empty(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer
