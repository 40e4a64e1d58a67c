"""Training the classifiers of a run of spans: prepare the documents, solve sibling by sibling block, prune, pack.

A *span* is some of the siblings under one parent: all of them, or a part where the parent has very many documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel
from longtail.kernels.newton import solve_newton
from longtail.kernels.node_documents import NodeDocuments, prepare
from longtail.kernels.proximal import solve_proximal
from longtail.kernels.sibling_blocks import BLOCK
from longtail.kernels.solvers import solve_hinge, solve_logistic
from longtail.kernels.sparse import with_room

__all__ = ["ALONE", "DUAL_HINGE", "DUAL_LOGISTIC", "NEWTON", "PROXIMAL", "train_spans"]

# flags «logistic, newton, proximal»: a solver whose flag is None is left out when the kernel is compiled
DUAL_HINGE, DUAL_LOGISTIC = (None, None, None), (True, None, None)
NEWTON, PROXIMAL = (None, True, None), (None, None, True)


ALONE = 1 << 17  # documents from which on a dual solver takes a span of one node without padding


@kernel
def train_spans(
    first: int,  # IN spans first … last - 1 are trained
    last: int,  # IN
    shared: NodeDocuments,  # IN the documents of all of these spans; without any, each span prepares its own
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
    logistic: bool | None,  # IN these three are DUAL_HINGE or another of the constants above
    newton: bool | None,  # IN
    proximal: bool | None,  # IN
    cost_positive: float,  # IN
    cost_negative: float,  # IN
    bias: np.float32,  # IN
    tolerance: float,  # IN
    max_passes: int,  # IN
    penalty: float,  # IN of the L1 norm, where the solver has one
    prune: np.float32,  # IN
    seed: int,  # IN
    start_weights: NDArray[np.float32] | None,  # IN (nodes, e) dense weights that Newton's method starts from
) -> Any:
    """Return (rows of each span, columns, entries of each row, siblings, values, dense weights) of the spans.

    Columns rise within a span, ``n_columns`` is the bias; siblings are counted from the span's first node and rise
    within a row. A node without positives gets a bias of −1 in the margin, and nothing else.
    """
    is_shared = len(shared.rows) > 0
    column_at = np.full(0 if is_shared else n_columns, -1, np.int32)
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
        own = shared
        if not is_shared:
            own = prepare(mine, row_pointers, indices, values, dense, bias, newton, proximal, column_at)
            column_at[own.found] = -1
        found = own.found
        document_at[mine] = np.arange(len(mine), dtype=np.int32)
        width = stops[span] - starts[span]
        columns, owners, kept = _solve_siblings(
            starts[span], width, order[starts[span] : stops[span]],
            document_at, positive_pointers, positives, relevance,
            own, dense,
            logistic, newton, proximal, cost_positive, cost_negative, bias, tolerance, max_passes, penalty, prune, seed,
            start_weights, dense_weights[node_at : node_at + width],
        )  # fmt: skip
        rows, counts = with_room(rows, n_rows + len(found) + 1), with_room(counts, n_rows + len(found) + 1)
        siblings, weights = with_room(siblings, n_entries + len(kept)), with_room(weights, n_entries + len(kept))
        more = _pack(columns, owners, kept, found, n_columns, rows[n_rows:], counts[n_rows:],
                     siblings[n_entries:], weights[n_entries:])  # fmt: skip
        span_rows[span - first] = more
        n_rows, n_entries, node_at = n_rows + more, n_entries + len(kept), node_at + width
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
def _solve_siblings(
    start: int, width: int, order: Any, document_at: Any, positive_pointers: Any, positives: Any, relevance: Any,
    own: NodeDocuments, dense: Any,
    logistic: bool | None, newton: bool | None, proximal: bool | None,
    cost_positive: float, cost_negative: float, bias: Any, tolerance: float, max_passes: int, penalty: float,
    prune: Any, seed: int, start_weights: Any, dense_weights: Any,
) -> Any:  # fmt: skip
    """Return (column, sibling, weight) of what pruning leaves; the column behind the last is the bias."""
    m, e, n_local, n_found = len(own.rows), dense.shape[1], own.n_columns, len(own.found)
    frequency = positive_pointers[start + 1 : start + width + 1] - positive_pointers[start : start + width]
    kept_columns, kept_owners = np.empty(4096, np.int32), np.empty(4096, np.int32)
    kept, n_kept = np.empty(4096, np.float32), 0
    for begin in range(0, width, BLOCK):
        block = order[begin : begin + BLOCK]
        trained = 0
        for s in block:
            trained += 1 if frequency[s] > 0 and m > 0 else 0
        span = BLOCK if trained > BLOCK // 2 else BLOCK // 2
        if width == 1 and m >= ALONE and newton is None and proximal is None:
            span = 1
        out = np.zeros((e + n_local + 1) * span, np.float32)
        if trained:
            targets = _targets(
                m, span, start + block[:trained], document_at, positive_pointers, positives, relevance,
                logistic, newton, proximal, cost_positive, cost_negative,
            )  # fmt: skip
            _solve(
                own, dense, bias, targets, trained, logistic, newton, proximal,
                tolerance, max_passes, penalty, seed + start, start_weights, start + block, out,
            )  # fmt: skip
        for s in range(trained):
            for j in range(e):
                dense_weights[block[s], j] = out[j * span + s]
        room = n_kept + (n_found + 1) * len(block)
        kept_columns, kept_owners, kept = (
            with_room(kept_columns, room),
            with_room(kept_owners, room),
            with_room(kept, room),
        )
        n_kept = _keep(
            out,
            span,
            e,
            n_local,
            own.source,
            own.scale,
            block,
            trained,
            bias,
            prune,
            kept_columns,
            kept_owners,
            kept,
            n_kept,
        )
    return kept_columns[:n_kept], kept_owners[:n_kept], kept[:n_kept]


@kernel
def _targets(
    m: int, span: int, nodes: Any, document_at: Any, positive_pointers: Any, positives: Any, relevance: Any,
    logistic: bool | None, newton: bool | None, proximal: bool | None, cost_positive: float, cost_negative: float,
) -> Any:  # fmt: skip
    """Return (m * span) targets of all documents for each of the nodes; 0 is padding."""
    targets = np.zeros(m * span, np.float32)
    negative = -_target(cost_negative, logistic, newton, proximal)
    for i in range(m):
        targets[i * span : i * span + len(nodes)] = negative
    for s in range(len(nodes)):
        for k in range(positive_pointers[nodes[s]], positive_pointers[nodes[s] + 1]):
            i = document_at[positives[k]]
            if i >= 0:
                targets[i * span + s] = _target(cost_positive * relevance[k], logistic, newton, proximal)
    return targets


@kernel
def _keep(
    out: Any, span: int, e: int, n_local: int, source: Any, scale: Any, block: Any, trained: int, bias: Any, prune: Any,
    kept_columns: Any, kept_owners: Any, kept: Any, n_kept: int,
) -> int:  # fmt: skip
    """Append what pruning leaves of a block's sparse weights, and its biases; return how many are kept by now."""
    n_found = len(source)
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
    return n_kept


@kernel
def _target(cost: float, logistic: bool | None, newton: bool | None, proximal: bool | None) -> float:
    """Return what the solver takes for a cost C: 1 / (2 C) if it is the dual one of the squared hinge, C otherwise."""
    dual = logistic is None and newton is None and proximal is None
    return 0.5 / cost if dual else cost


@kernel
def _solve(
    own: NodeDocuments, dense: Any, bias: Any, targets: Any, siblings: int,
    logistic: bool | None, newton: bool | None, proximal: bool | None,
    tolerance: float, max_passes: int, penalty: float, seed: int,
    start_weights: Any, nodes: Any, out: Any,
) -> None:  # fmt: skip
    """Solve a block with the solver chosen; ``nodes`` are its siblings as rows of ``start_weights``."""
    sparse = (own.pointers, own.columns, own.values)
    problem = (*sparse, dense, own.rows, bias, targets, siblings, tolerance, max_passes)
    if logistic is None:
        if newton is None:
            if proximal is None:
                solve_hinge(*problem, seed, own.norms, own.products, out)
            else:
                solve_proximal(*sparse, own.index, targets, siblings, tolerance, max_passes, penalty, out)
        elif start_weights is None:
            solve_newton(*problem, None, out)
        else:
            width = len(targets) // len(own.rows)
            first = np.zeros(dense.shape[1] * width, np.float32)
            for s in range(siblings):
                first[s::width] = start_weights[nodes[s]]
            solve_newton(*problem, first, out)
    else:
        solve_logistic(*problem, seed, own.norms, own.products, out)


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
