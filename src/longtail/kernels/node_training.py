"""Training the classifiers of a run of spans: prepare the documents, solve block by block, prune,
pack.

A *span* is some of the siblings under one parent: all of them, or a part where the parent has very
many documents. The solver is chosen by the type of its settings, when a kernel is compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import chosen_by_type, kernel
from longtail.kernels.newton import Newton, solve_newton
from longtail.kernels.node_documents import (
    JoinedColumns,
    NodeDocuments,
    prepare_dual,
    prepare_primal,
    prepare_proximal,
)
from longtail.kernels.proximal import Proximal, solve_proximal
from longtail.kernels.sibling_blocks import BLOCK, Problem
from longtail.kernels.solvers import DualHinge, DualLogistic, solve_hinge, solve_logistic
from longtail.kernels.sparse import with_room

__all__ = [
    "ALONE",
    "GroupDocuments",
    "Positives",
    "SiblingSpans",
    "Solver",
    "TrainedSpans",
    "TrainingData",
    "TrainingSettings",
    "prepare",
    "train_spans",
]

Solver = DualHinge | DualLogistic | Newton | Proximal
ALONE = 1 << 17  # documents from which on a dual solver takes a span of one node without padding


class SiblingSpans(NamedTuple):
    """Spans of nodes; nodes are numbered through the level."""

    groups: Any  # (spans,) int64: the group of documents that each span is trained on
    starts: Any  # (spans,) int64, first node
    stops: Any  # (spans,) int64, behind its last node
    order: Any  # (nodes,) int64, the siblings of each span from 0 on, in the order to solve them


class GroupDocuments(NamedTuple):
    """The documents of each group."""

    pointers: Any  # (groups + 1,) int64
    documents: Any  # int32, rising in each group


class Positives(NamedTuple):
    """The documents of each node, and how much each of them counts."""

    pointers: Any  # (nodes + 1,) int64
    documents: Any  # int32
    relevance: Any  # float32, R̂: a factor of the cost of the document


class TrainingData(NamedTuple):
    """Documents and nodes of a level."""

    groups: GroupDocuments
    positives: Positives
    features: FeatureRows  # of all documents
    # (nodes, e) float32 dense weights that Newton's method starts from, or (0, e)
    start_weights: Any


class TrainingSettings(NamedTuple):
    """Settings of classifiers."""

    solver: Solver
    cost_positive: float  # of a positive document, times its relevance
    cost_negative: float
    bias: Any  # float32, value of the constant feature
    prune: Any  # float32, weights of smaller size are left out
    seed: int


class TrainedSpans(NamedTuple):
    """The weights of some spans, one span after the other."""

    span_rows: Any  # (spans,) int64, rows of each span
    columns: Any  # int32, of each row, rising within a span; ``n_columns`` is the bias
    counts: Any  # int32, entries of each row
    siblings: Any  # int32, of each entry, counted from the span's first node, rising within a row
    weights: Any  # float32
    dense: Any  # (nodes, e) float32


class _Entries(NamedTuple):
    """Weights that pruning leaves, as far as they are filled."""

    columns: Any  # int32, counted among those of the documents; the one behind the last is the bias
    siblings: Any  # int32
    weights: Any  # float32


class _PackedRows(NamedTuple):
    """Room for the weights of a span, as :class:`TrainedSpans` has them."""

    columns: Any
    counts: Any
    siblings: Any
    weights: Any


class _Block(NamedTuple):
    """The weights of some siblings, those that were trained first."""

    out: Any  # (rows * width,) float32, [column][sibling]
    width: int
    siblings: Any  # int64
    n_trained: int


@kernel
def _cost(solver: Solver, cost: float) -> float:
    return cost


@kernel
def _half_of_inverse(solver: DualHinge, cost: float) -> float:
    return 0.5 / cost


# prepare(solver, rows, features, bias, column_at) returns the NodeDocuments of some rows
prepare = chosen_by_type(
    {
        DualHinge: prepare_dual,
        DualLogistic: prepare_dual,
        Newton: prepare_primal,
        Proximal: prepare_proximal,
    }
)
# _target_size(solver, cost) returns the size of a target
_target_size = chosen_by_type(
    {DualHinge: _half_of_inverse, DualLogistic: _cost, Newton: _cost, Proximal: _cost}
)
# _solve(solver, problem, out) writes the weights of a block and returns the passes
_solve = chosen_by_type(
    {
        DualHinge: solve_hinge,
        DualLogistic: solve_logistic,
        Newton: solve_newton,
        Proximal: solve_proximal,
    }
)


@kernel
def train_spans(
    ends: tuple[int, int],  # IN  the first span to be trained, and behind the last one
    # IN  of all of these spans; without any, each span prepares its documents
    shared: NodeDocuments,
    spans: SiblingSpans,  # IN
    data: TrainingData,  # IN
    settings: TrainingSettings,  # IN
) -> TrainedSpans:
    """Return the weights of the spans.

    A node without positives gets a bias of −1 in the margin, and nothing else.
    """
    first, last = ends
    features = data.features
    groups = data.groups
    is_shared = len(shared.documents.dense_rows) > 0
    n_columns = 0 if is_shared else features.n_columns
    column_at = np.full(n_columns, -1, np.int32)
    document_at = np.full(len(features.pointers) - 1, -1, np.int32)
    span_rows = np.zeros(last - first, np.int64)
    n_nodes = 0
    for span in range(first, last):
        n_nodes += spans.stops[span] - spans.starts[span]
    dense_weights = np.zeros((n_nodes, features.dense.shape[1]), np.float32)
    columns = np.empty(1024, np.int32)
    counts = np.empty(1024, np.int32)
    siblings = np.empty(4096, np.int32)
    weights = np.empty(4096, np.float32)
    n_rows = 0
    n_entries = 0
    node_at = 0
    for span in range(first, last):
        group = spans.groups[span]
        rows = groups.documents[groups.pointers[group] : groups.pointers[group + 1]]
        node_documents = shared
        if not is_shared:
            node_documents = prepare(settings.solver, rows, features, settings.bias, column_at)
            column_at[node_documents.columns.names] = -1
        names = node_documents.columns.names
        document_at[rows] = np.arange(len(rows), dtype=np.int32)
        start = spans.starts[span]
        order = spans.order[start : spans.stops[span]]
        entries = _solve_siblings(
            start,
            order,
            node_documents,
            document_at,
            data,
            settings,
            dense_weights[node_at : node_at + len(order)],
        )
        columns = with_room(columns, n_rows + len(names) + 1)
        counts = with_room(counts, n_rows + len(names) + 1)
        siblings = with_room(siblings, n_entries + len(entries.weights))
        weights = with_room(weights, n_entries + len(entries.weights))
        room = _PackedRows(
            columns[n_rows:], counts[n_rows:], siblings[n_entries:], weights[n_entries:]
        )
        span_rows[span - first] = _pack(entries, names, features.n_columns, room)
        n_rows += span_rows[span - first]
        n_entries += len(entries.weights)
        node_at += len(order)
        document_at[rows] = -1
    return TrainedSpans(
        span_rows,
        columns[:n_rows].copy(),
        counts[:n_rows].copy(),
        siblings[:n_entries].copy(),
        weights[:n_entries].copy(),
        dense_weights,
    )


@kernel
def _solve_siblings(
    start: int,  # IN  first node of the span
    order: Any,  # IN  its siblings
    node_documents: NodeDocuments,  # IN
    document_at: Any,  # IN  number of each document among those of the span, or −1
    data: TrainingData,  # IN
    settings: TrainingSettings,  # IN
    dense_weights: Any,  # OUT (siblings, e)
) -> _Entries:
    """Return the sparse weights that pruning leaves; write the dense ones."""
    documents = node_documents.documents
    columns = node_documents.columns
    m = len(documents.dense_rows)
    e = documents.dense.shape[1]
    pointers = data.positives.pointers
    entries = _Entries(
        np.empty(4096, np.int32), np.empty(4096, np.int32), np.empty(4096, np.float32)
    )
    n_entries = 0
    for begin in range(0, len(order), BLOCK):
        siblings = order[begin : begin + BLOCK]
        n_trained = 0
        for s in siblings:
            if pointers[start + s + 1] > pointers[start + s] and m > 0:
                n_trained += 1
        width = BLOCK if n_trained > BLOCK // 2 else BLOCK // 2
        if len(order) == 1 and m >= ALONE and len(documents.norms):  # a dual solver
            width = 1
        out = np.zeros((e + columns.n_solved + 1) * width, np.float32)
        if n_trained:
            nodes = start + siblings[:n_trained]
            problem = Problem(
                documents,
                node_documents.column_index,
                _targets(m, width, nodes, document_at, data.positives, settings),
                n_trained,
                _start_of(data.start_weights, nodes),
                settings.seed + start,
            )
            _solve(settings.solver, problem, out)
        for s in range(n_trained):
            for j in range(e):
                dense_weights[siblings[s], j] = out[j * width + s]
        room = n_entries + (len(columns.names) + 1) * len(siblings)
        entries = _Entries(
            with_room(entries.columns, room),
            with_room(entries.siblings, room),
            with_room(entries.weights, room),
        )
        block = _Block(out[e * width :], width, siblings, n_trained)
        n_entries = _keep(block, columns, settings, entries, n_entries)
    return _Entries(
        entries.columns[:n_entries], entries.siblings[:n_entries], entries.weights[:n_entries]
    )


@kernel
def _start_of(start_weights: Any, nodes: Any) -> Any:
    """Return the start weights of some nodes; none, if there are none."""
    if len(start_weights) == 0:
        return np.empty((0, start_weights.shape[1]), np.float32)
    return start_weights[nodes]


@kernel
def _targets(
    m: int,
    width: int,
    nodes: Any,
    document_at: Any,
    positives: Positives,
    settings: TrainingSettings,
) -> Any:
    """Return (m * width) targets of all documents for each of the nodes; 0 is padding."""
    pointers, documents, relevance = positives
    targets = np.zeros(m * width, np.float32)
    negative = -_target_size(settings.solver, settings.cost_negative)
    for i in range(m):
        targets[i * width : i * width + len(nodes)] = negative
    for s in range(len(nodes)):
        for k in range(pointers[nodes[s]], pointers[nodes[s] + 1]):
            i = document_at[documents[k]]
            if i >= 0:
                cost = settings.cost_positive * relevance[k]
                targets[i * width + s] = _target_size(settings.solver, cost)
    return targets


@kernel
def _keep(
    block: _Block,  # IN  sparse weights and biases
    columns: JoinedColumns,  # IN
    settings: TrainingSettings,  # IN
    entries: _Entries,  # IN/OUT
    n_entries: int,  # IN  entries that are filled
) -> int:
    """Append the weights of a block that pruning leaves, and its biases; return how many are
    filled.
    """
    out, width, siblings, n_trained = block
    kept_columns, kept_siblings, kept_weights = entries
    bias_column = len(columns.names)
    for column in range(bias_column + 1):
        row = columns.n_solved
        factor = np.float32(1)
        least = np.float32(0)  # the bias is never pruned
        if column < bias_column:
            row = columns.sources[column]
            factor = columns.scales[column]
            least = settings.prune
        for s in range(n_trained):
            weight = out[row * width + s] * factor
            if abs(weight) >= least and weight != 0:
                kept_columns[n_entries] = column
                kept_siblings[n_entries] = siblings[s]
                kept_weights[n_entries] = weight
                n_entries += 1
    if settings.bias > 0:
        for s in range(n_trained, len(siblings)):  # ``out`` may have no room for these
            kept_columns[n_entries] = bias_column
            kept_siblings[n_entries] = siblings[s]
            kept_weights[n_entries] = -1 / settings.bias
            n_entries += 1
    return n_entries


@kernel
def _pack(entries: _Entries, names: Any, n_columns: int, out: _PackedRows) -> int:
    """Write entries ordered by column and sibling, and the columns that have any; return how many.

    Args:
        entries: of a span.
        names: the columns of its documents.
        n_columns: of the features, where the bias goes.
        out: room for them.
    """
    columns, siblings, weights = entries
    ends = np.zeros(len(names) + 2, np.int64)
    for column in columns:
        ends[column + 1] += 1
    n_rows = 0
    for column in range(len(names) + 1):
        if ends[column + 1] > 0:
            out.columns[n_rows] = names[column] if column < len(names) else n_columns
            out.counts[n_rows] = ends[column + 1]
            n_rows += 1
        ends[column + 1] += ends[column]
    out_siblings = out.siblings
    out_weights = out.weights
    for k in _order(siblings):  # blocks hold siblings by frequency: bring them into order
        column = columns[k]
        out_siblings[ends[column]] = siblings[k]
        out_weights[ends[column]] = weights[k]
        ends[column] += 1
    return n_rows


@kernel
def _order(keys: Any) -> Any:
    """Return the stable order of small numbers, by counting."""
    most = 0
    for key in keys:
        most = max(most, key)
    ends = np.zeros(most + 2, np.int64)
    for key in keys:
        ends[key + 1] += 1
    for key in range(most + 1):
        ends[key + 1] += ends[key]
    order = np.empty(len(keys), np.int64)
    for k in range(len(keys)):
        order[ends[keys[k]]] = k
        ends[keys[k]] += 1
    return order
