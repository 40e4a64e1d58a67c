"""Work on the nodes of a level, divided so that threads can share it, and its results put together
again.

A *span* is a run of nodes that are trained on the same *group* of documents; a *chunk* is a run of
spans whose weights are stored together: all the children of one parent, or a batch of labels where
there is no tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.config import Ranker
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import read_only
from longtail.kernels.newton import Newton
from longtail.kernels.node_documents import NodeDocuments
from longtail.kernels.node_training import (
    ALONE,
    GroupDocuments,
    Positives,
    SiblingSpans,
    Solver,
    TrainedSpans,
    TrainingData,
    TrainingSettings,
    prepare,
    train_spans,
)
from longtail.kernels.proximal import Proximal
from longtail.kernels.solvers import DualHinge, DualLogistic
from longtail.rankers.shared_documents import SharedDocuments
from longtail.search.chunks import Part

__all__ = ["Spans", "positives_of", "train_chunks"]

_TASK = 1 << 18  # documents × siblings of one task: some tenths of a second
_BLOCKS = 8  # a span has a multiple of this many siblings
_FEW = 64  # nodes of a level that may become spans of one
_TOGETHER = 8  # tasks that may travel to another process as one, where there are many


class Spans(NamedTuple):
    """Spans of rising nodes: group of documents, first node, behind the last node, chunk."""

    groups: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    chunks: NDArray[np.int64]

    @classmethod
    def below(
        cls, documents: NDArray[np.integer], offsets: NDArray[np.int64], alone: bool = False
    ) -> Spans:
        """Divide the children of parents with much work; fixed by the data alone.

        Few nodes over very many documents, as at the root of most trees, are too few spans for many
        threads. Those of one node take about three times the work in all, and less than half of the
        time where there are threads enough.

        Args:
            documents: how many each parent has.
            offsets: parent p has the nodes ``offsets[p]:offsets[p + 1]``.
            alone: whether few nodes over very many documents become spans of one.
        """
        rows = []
        few = alone and offsets[-1] - offsets[0] <= _FEW
        for parent, (first, last) in enumerate(pairwise(offsets.tolist())):
            step = max(_TASK // max(int(documents[parent]), 1) // _BLOCKS, 1) * _BLOCKS
            if few and documents[parent] >= ALONE:
                step = 1
            rows += [
                (parent, start, min(start + step, last), parent)
                for start in range(first, last, step)
            ]
        return cls.of(rows)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> Spans:
        """Return spans given as (group, first node, behind the last node, chunk)."""
        return cls(*np.array(rows, np.int64).reshape(-1, 4).T.copy())

    def tasks(self, documents: NDArray[np.integer]) -> list[tuple[int, int]]:
        """Join neighbouring spans until there is work for a task; ``documents`` are those of each
        group.

        A task that has a part of a group has no other group beside it.
        """
        done = np.cumsum(documents[self.groups] * (self.stops - self.starts)) // _TASK
        is_border = np.diff(done) > 0
        is_other = np.diff(self.groups) != 0
        divided = np.isin(self.groups, self.groups[1:][is_border & ~is_other])
        is_border |= is_other & (divided[1:] | divided[:-1])
        borders = np.flatnonzero(is_border) + 1
        return list(pairwise([0, *borders.tolist(), len(self.groups)]))

    def solving_order(self, frequency: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the nodes of each span by falling frequency: those of like frequency need like
        numbers of passes.
        """
        widths = self.stops - self.starts
        before = np.repeat(np.cumsum(widths) - widths, widths)
        nodes = np.repeat(self.starts, widths) + np.arange(widths.sum()) - before
        span = np.repeat(np.arange(len(widths)), widths)
        order = np.zeros(len(frequency), np.int64)
        order[nodes] = np.lexsort((-frequency[nodes], span)) - before
        return order


class _Arguments(NamedTuple):
    """Arguments of a task beside its spans: arrays one by one, as what many calls share travels
    once.
    """

    groups: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    order: NDArray[np.int64]
    document_pointers: NDArray[np.int64]
    documents: NDArray[np.int32]
    positive_pointers: NDArray[np.int64]
    positives: NDArray[np.int32]
    relevance: NDArray[np.float32]
    row_pointers: NDArray[np.integer]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    dense: NDArray[np.float32]
    n_columns: int
    start_weights: NDArray[np.float32]
    settings: TrainingSettings

    @property
    def spans(self) -> SiblingSpans:
        """All spans, as kernels take them."""
        return SiblingSpans(self.groups, self.starts, self.stops, self.order)

    @property
    def features(self) -> FeatureRows:
        """Features of all documents."""
        return FeatureRows(self.row_pointers, self.indices, self.values, self.dense, self.n_columns)

    @property
    def data(self) -> TrainingData:
        """Documents and nodes."""
        groups = GroupDocuments(self.document_pointers, self.documents)
        positives = Positives(self.positive_pointers, self.positives, self.relevance)
        return TrainingData(groups, positives, self.features, self.start_weights)


class _Here(NamedTuple):
    """Documents that tasks of this process share, and how many tasks read those of each group."""

    shared: SharedDocuments
    users: NDArray[np.integer]


def positives_of(relevance: sparse.csr_array, ranker: Ranker) -> Positives:
    """Return the documents of each node, and their R̂.

    Where costs are sensitive, each document's relevance adds up to 1, or to its sum where that is
    less; else it counts
    as it is, up to 1: a document that has a node by half (a soft target, as Gandalf's) costs half
    as much where the node misses it."""
    by_node = relevance.tocsc()
    weights = np.minimum(by_node.data, 1).astype(np.float32)
    if ranker.cost_sensitive:
        totals = np.maximum(np.asarray(relevance.sum(axis=1)).ravel(), 1)
        weights = (by_node.data / totals[by_node.indices]).astype(np.float32)
    return Positives(by_node.indptr.astype(np.int64), by_node.indices.astype(np.int32), weights)


def train_chunks(
    features: Features,
    spans: Spans,
    documents: GroupDocuments,
    positives: Positives,
    ranker: Ranker,
    seed: int,
    start: NDArray[np.float32] | None = None,
    shared: SharedDocuments | None = None,
) -> Iterator[Part]:
    """Yield the weights of each chunk.

    Weights of the dense block have a penalty of their own: ‖w‖²·p over x is ‖w'‖² over x/√p, with w
    = w'/√p.

    Args:
        features: of all documents.
        spans: the nodes to be trained.
        documents: of each group of the spans.
        positives: the documents of each node, and their relevance.
        ranker: the settings of the classifiers.
        seed: of the order in which solvers visit documents.
        start: (nodes, e) where Newton steps begin in the dense block, if given.
        shared: where documents that several tasks read are kept; None: for this call alone.
    """
    if shared is None:
        shared = SharedDocuments()
    rows = features.sparse
    sizes = np.diff(documents.pointers)
    exponent = -1.0 if ranker.solver == "proximal" else -0.5
    scale = np.float32(ranker.dense_penalty**exponent)
    tasks = spans.tasks(sizes)
    start_weights = np.zeros((0, features.dense.shape[1]), np.float32)
    if start is not None:
        start_weights = start / scale
    arguments = _Arguments(
        groups=spans.groups,
        starts=spans.starts,
        stops=spans.stops,
        order=spans.solving_order(np.diff(positives.pointers)),
        document_pointers=documents.pointers,
        documents=documents.documents,
        positive_pointers=positives.pointers,
        positives=positives.documents,
        relevance=positives.relevance,
        row_pointers=rows.indptr,
        indices=rows.indices,
        values=rows.data,
        dense=shared.dense_block(features.dense, scale),
        n_columns=rows.shape[1],
        start_weights=start_weights,
        settings=_settings(ranker, seed),
    )
    users = np.bincount([spans.groups[first] for first, _ in tasks], minlength=len(sizes))
    # other processes share no memory with this one: a task there prepares what it reads
    here = None
    if not pool.handed_over():
        here = _Here(shared, users)
    results = pool.spread(_train, tasks, here, *arguments, together=_TOGETHER)
    return _whole(_parts(tasks, results, spans, scale), spans)


def _settings(ranker: Ranker, seed: int) -> TrainingSettings:
    """Return the settings of classifiers as kernels take them."""
    cost_negative = ranker.cost_negative
    if ranker.cost_sensitive:
        cost_negative *= ranker.alpha
    return TrainingSettings(
        solver=_solver(ranker),
        cost_positive=ranker.cost_positive,
        cost_negative=cost_negative,
        bias=np.float32(ranker.bias),
        prune=np.float32(ranker.prune),
        seed=seed,
    )


def _solver(ranker: Ranker) -> Solver:
    tolerance = ranker.tolerance
    max_passes = ranker.max_passes
    if ranker.solver == "newton":
        return Newton(tolerance, max_passes)
    if ranker.solver == "proximal":
        return Proximal(tolerance, max_passes, ranker.penalty)
    if ranker.loss == "logistic":
        return DualLogistic(tolerance, max_passes)
    return DualHinge(tolerance, max_passes)


def _train(ends: tuple[int, int], here: _Here | None, *leaves: Any) -> TrainedSpans:
    """Train the spans from the first to before the last; ``here`` is None in other processes."""
    arguments = _Arguments(*map(_aligned, leaves))
    group = int(arguments.groups[ends[0]])
    borrowed: AbstractContextManager[NodeDocuments]
    if here is None or here.users[group] < 2:
        borrowed = nullcontext(_prepared(arguments, 0, 0))
    else:
        first, last = arguments.document_pointers[group : group + 2].tolist()
        prepare_group = partial(_prepared, arguments, first, last)
        borrowed = here.shared.borrowed(group, int(here.users[group]), prepare_group)
    with borrowed as documents:
        return train_spans(ends, documents, arguments.spans, arguments.data, arguments.settings)


def _prepared(arguments: _Arguments, first: int, last: int) -> NodeDocuments:
    """Prepare the documents of groups from the first to before the last."""
    settings = arguments.settings
    n_columns = 0
    if first < last:
        n_columns = arguments.n_columns
    column_at = np.full(n_columns, -1, np.int32)
    rows = arguments.documents[first:last]
    prepared: NodeDocuments = prepare(
        settings.solver, rows, arguments.features, settings.bias, column_at
    )
    return prepared


def _aligned(argument: Any) -> Any:
    """Return an array, which may be of another process's memory, as kernels are compiled for; all
    else as it is.
    """
    if isinstance(argument, np.ndarray):
        return read_only(np.require(argument, requirements="A"))
    return argument


def _parts(
    tasks: Sequence[tuple[int, int]],
    results: Iterable[TrainedSpans],
    spans: Spans,
    scale: np.float32,
) -> Iterator[Part]:
    """Cut what each task gives into the parts of its spans."""
    widths = spans.stops - spans.starts
    for (first, last), trained in zip(tasks, results, strict=True):
        row = entry = node = 0
        for span in range(first, last):
            row_end = row + int(trained.span_rows[span - first])
            node_end = node + int(widths[span])
            ptr = np.concatenate([[0], np.cumsum(trained.counts[row:row_end])])
            entry_end = entry + int(ptr[-1])
            yield Part(
                trained.columns[row:row_end],
                ptr,
                trained.siblings[entry:entry_end],
                trained.weights[entry:entry_end],
                trained.dense[node:node_end] * scale,
            )
            reporting.advance(node_end - node)
            row = row_end
            entry = entry_end
            node = node_end


def _whole(parts: Iterable[Part], spans: Spans) -> Iterator[Part]:
    """Join the parts of each chunk."""
    # behind the last span of each chunk
    ends = np.flatnonzero(np.diff(spans.chunks, append=-1)) + 1
    parts = iter(parts)
    first = 0
    for end in ends.tolist():
        yield _joined(
            [next(parts) for _ in range(first, end)], spans.starts[first:end] - spans.starts[first]
        )
        first = end
    # so that threads end here, and not whenever what feeds on them is let go
    deque(parts, maxlen=0)


def _joined(parts: Sequence[Part], shifts: NDArray[np.int64]) -> Part:
    if len(parts) == 1:
        return parts[0]
    columns = np.concatenate([np.repeat(part.rows, np.diff(part.ptr)) for part in parts])
    siblings = np.concatenate(
        [part.siblings + shift for part, shift in zip(parts, shifts, strict=True)]
    )
    order = np.argsort(columns, kind="stable")  # siblings rise from part to part
    rows, counts = np.unique(columns, return_counts=True)
    values = np.concatenate([part.values for part in parts])
    dense = np.concatenate([part.dense for part in parts])
    return Part(
        rows, np.concatenate([[0], np.cumsum(counts)]), siblings[order], values[order], dense
    )
