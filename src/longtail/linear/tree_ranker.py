"""A linear classifier on every node of a label tree: XR-Linear, Parabel, Bonsai and PLT are settings of it.

Level after level, the children of each node are trained on the node's documents (teacher-forcing negatives, TFN),
on those that the levels above would send there (matcher-aware negatives, MAN), or on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import progress
from longtail.config import Ranker, Search
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.node_training import HINGE, LOGISTIC, train_spans
from longtail.search.beam import beam_search, shortlist
from longtail.search.chunks import Chunks, Part
from longtail.search.exact import exact_search
from longtail.tree.tree import LabelTree

__all__ = ["TreeRanker", "fit_level"]

_TASK = 1 << 18  # documents × siblings of one task: some tenths of a second
_RANKER, _SEARCH = Ranker(), Search()
_BLOCKS = 8  # a parent with more work than a task is divided into spans of a multiple of this many siblings


@dataclass(frozen=True)
class TreeRanker:
    """A label tree and the weights of its nodes, one :class:`Chunks` a level."""

    tree: LabelTree
    levels: tuple[Chunks, ...]
    bias: float

    @classmethod
    def fit(
        cls,
        features: Features,
        label_matrix: sparse.csr_array,
        tree: LabelTree,
        ranker: Ranker = _RANKER,
        search: Search = _SEARCH,
        seed: int = 0,
    ) -> TreeRanker:
        """Train all levels on ``features`` (n, d) and ``label_matrix`` (n, L)."""
        relevance = tree.coarsen(label_matrix)
        levels: list[Chunks] = []
        for _ in range(tree.n_levels):
            levels.append(fit_level(features, relevance, tree, levels, ranker, search, seed))
        return cls(tree, tuple(levels), ranker.bias)

    def search(
        self, features: Features, search: Search, k: int | None, exclude: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return (n, L) scores of the ``k`` best labels a document (None: all that the beam reaches), best first."""
        if search.exact and k is not None:
            return exact_search(
                features, self.tree, self.levels, k=k, score=search.score, bias=self.bias, exclude=exclude
            )
        return beam_search(
            features,
            self.tree,
            self.levels,
            beam_size=search.beam_size,
            k=k,
            score=search.score,
            bias=self.bias,
            exclude=exclude,
        )


def fit_level(
    features: Features,
    relevance: Sequence[sparse.csr_array],
    tree: LabelTree,
    above: Sequence[Chunks],
    ranker: Ranker,
    search: Search,
    seed: int,
) -> Chunks:
    """Train the nodes of the level below the levels ``above``; ``relevance`` is the tree's coarsened label matrix."""
    level = len(above)
    offsets = tree.offsets[level - 1] if level else np.array([0, tree.widths[0]])
    document_pointers, documents = _documents(features, relevance, tree, above, ranker, search)
    positives = _positives(relevance[level], ranker)
    spans = _spans(np.diff(document_pointers), offsets)
    tasks = _tasks(spans, np.diff(document_pointers))
    rows = features.sparse
    negative_cost = ranker.cost_negative * (ranker.alpha if ranker.cost_sensitive else 1.0)

    arguments: tuple[Any, ...] = (
        *spans,
        _solving_order(spans, np.diff(positives[0])),
        document_pointers,
        documents,
        *positives,
        rows.indptr,
        rows.indices,
        rows.data,
        features.dense,
        rows.shape[1],
        LOGISTIC if ranker.loss == "logistic" else HINGE,
        ranker.cost_positive,
        negative_cost,
        np.float32(ranker.bias),
        ranker.tolerance,
        ranker.max_passes,
        np.float32(ranker.prune),
        seed,
    )

    def train(ends: tuple[int, int]) -> Trained:
        trained: Trained = train_spans(*ends, *arguments)
        return trained

    with progress.stage(f"level {level + 1} of {tree.n_levels}", total=tree.widths[level], unit="nodes"):
        parts = _parts(tasks, pool.run(train, tasks), spans)
        return Chunks.build(offsets, _whole(parts, spans), rows.shape[1], features.dense.shape[1], ranker.weights)


def _documents(
    features: Features,
    relevance: Sequence[sparse.csr_array],
    tree: LabelTree,
    above: Sequence[Chunks],
    ranker: Ranker,
    search: Search,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return which documents each parent is trained on, by parent; the root has all."""
    if not above:
        n = len(features)
        return np.array([0, n], np.int64), np.arange(n, dtype=np.int32)
    true = relevance[len(above) - 1]
    if ranker.negatives == "tfn":
        wanted = true
    else:
        matched = shortlist(features, tree, above, beam_size=search.beam_size, score=search.score, bias=ranker.bias)
        matched.data = np.ones_like(matched.data)  # a score of 0 is a match, too
        wanted = matched + true if ranker.negatives == "tfn+man" else matched
    by_parent = wanted.tocsc()
    by_parent.sort_indices()
    return by_parent.indptr.astype(np.int64), by_parent.indices.astype(np.int32)


def _positives(
    relevance: sparse.csr_array, ranker: Ranker
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return the documents of each node, and their R̂: each document's relevance adds up to 1, or is 1 everywhere."""
    by_node = relevance.tocsc()
    weights = np.ones(by_node.nnz, np.float32)
    if ranker.cost_sensitive:
        totals = np.asarray(relevance.sum(axis=1)).ravel()
        weights = (by_node.data / totals[by_node.indices]).astype(np.float32)
    return by_node.indptr.astype(np.int64), by_node.indices.astype(np.int32), weights


Spans = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # parent, first node, behind the last node
Trained = tuple[NDArray[Any], ...]  # what ``train_spans`` gives


def _spans(documents: NDArray[np.int64], offsets: NDArray[np.int64]) -> Spans:
    """Divide the children of parents with much work, so that threads can share it; fixed by the data alone."""
    parents, starts, stops = [], [], []
    for parent, (first, last) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        step = max(_TASK // max(int(documents[parent]), 1) // _BLOCKS, 1) * _BLOCKS
        for start in range(first, last, step):
            parents.append(parent)
            starts.append(start)
            stops.append(min(start + step, last))
    return np.array(parents, np.int64), np.array(starts, np.int64), np.array(stops, np.int64)


def _solving_order(spans: Spans, frequency: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the siblings of each span by falling frequency: those of like frequency need like numbers of passes."""
    _, starts, stops = spans
    widths = stops - starts
    span = np.repeat(np.arange(len(starts)), widths)
    order: NDArray[np.int64] = np.lexsort((-frequency, span)) - np.repeat(starts, widths)
    return order


def _tasks(spans: Spans, documents: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Join neighbouring spans until there is work for a task."""
    parents, starts, stops = spans
    done = np.cumsum(documents[parents] * (stops - starts)) // _TASK
    borders = np.flatnonzero(np.diff(done)) + 1
    ends = [0, *borders.tolist(), len(parents)]
    return list(pairwise(ends))


def _parts(tasks: Sequence[tuple[int, int]], results: Iterable[Trained], spans: Spans) -> Iterator[Part]:
    """Cut what each task gives into the parts of its spans."""
    _, starts, stops = spans
    for (first, last), (span_rows, rows, counts, siblings, values, dense) in zip(tasks, results, strict=True):
        row = entry = node = 0
        for span in range(first, last):
            row_end, node_end = row + int(span_rows[span - first]), node + int(stops[span] - starts[span])
            ptr = np.concatenate([[0], np.cumsum(counts[row:row_end])])
            entry_end = entry + int(ptr[-1])
            yield Part(rows[row:row_end], ptr, siblings[entry:entry_end], values[entry:entry_end], dense[node:node_end])
            progress.advance(node_end - node)
            row, entry, node = row_end, entry_end, node_end


def _whole(parts: Iterable[Part], spans: Spans) -> Iterator[Part]:
    """Join the parts of each parent."""
    parents, starts, _ = spans
    ends = np.flatnonzero(np.diff(parents, append=-1)) + 1  # behind the last span of each parent
    parts, first = iter(parts), 0
    for end in ends.tolist():
        yield _joined([next(parts) for _ in range(first, end)], starts[first:end] - starts[first])
        first = end


def _joined(parts: Sequence[Part], shifts: NDArray[np.int64]) -> Part:
    if len(parts) == 1:
        return parts[0]
    columns = np.concatenate([np.repeat(part.rows, np.diff(part.ptr)) for part in parts])
    siblings = np.concatenate([part.siblings + shift for part, shift in zip(parts, shifts, strict=True)])
    order = np.argsort(columns, kind="stable")  # siblings rise from part to part
    rows, counts = np.unique(columns, return_counts=True)
    values, dense = np.concatenate([part.values for part in parts]), np.concatenate([part.dense for part in parts])
    return Part(rows, np.concatenate([[0], np.cumsum(counts)]), siblings[order], values[order], dense)
