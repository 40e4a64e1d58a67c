"""Beam search down a label tree: at each level the best few nodes of a document are kept and their
children scored; and exact search by two such descents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.config import Search
from longtail.data.csr import csr_of
from longtail.errors import UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import read_only
from longtail.kernels.search import (
    HINGE_2,
    HINGE_3,
    MARGIN,
    SIGMOID,
    Beam,
    Candidates,
    path_scores,
    step_down,
)
from longtail.search.chunks import Chunks
from longtail.search.shards import Shards, step_down_shards

if TYPE_CHECKING:
    from longtail.tree.tree import LabelTree

__all__ = [
    "Beam",
    "Descent",
    "LastLevel",
    "LevelWeights",
    "ScoreType",
    "ranked_labels",
    "shortlist",
]

ScoreType = Literal["hinge-2", "hinge-3", "sigmoid"]
# what a node of the last level scores: the product along its path, or its margin
LastLevel = Literal["path", "margin"]
LevelWeights = Chunks | Shards  # in one file, or the last level in several

_ALL = np.iinfo(np.int64).max
_SCORES: dict[ScoreType, int] = {"hinge-2": HINGE_2, "hinge-3": HINGE_3, "sigmoid": SIGMOID}
# documents that share the reading of a chunk; bytes never depend on it
_LARGEST_BLOCK = 16384
_SMALLEST_BLOCK = 256
_EXACT_BLOCK = 64  # documents of an exact search: one with flat scores visits most of the tree
_PAIRS = 1 << 22  # documents × chunks of the first level in a block
_NONE = np.zeros(0, np.int32)


def shortlist(
    features: Features,
    tree: LabelTree,
    levels: Sequence[LevelWeights],
    *,
    beam_size: int,
    score: ScoreType,
    bias: float,
    last_level: LastLevel = "path",
) -> sparse.csr_array:
    """Return (n, nodes of the last of ``levels``) float32 scores of the ``beam_size`` best nodes of
    each document, best first.

    Args:
        features: of the documents.
        tree: the label tree.
        levels: the weights of its first levels, or of all.
        beam_size: nodes kept on each level.
        score: what a margin is worth along the path.
        bias: value of the constant feature.
        last_level: what the last of ``levels`` is ranked by.
    """
    search = Search(beam_size=beam_size, score=score, last_level=last_level)
    ptr, nodes, scores = Descent.of(features, levels, search, bias, tree.order).run(beam_size)
    return csr_of(_values(scores, last_level), nodes, ptr, tree.widths[len(levels) - 1])


def ranked_labels(beam: Beam, tree: LabelTree, last_level: LastLevel = "path") -> sparse.csr_array:
    """Return (n, n_labels) scores from nodes of the last level and their log scores, or margins."""
    ptr, nodes, scores = beam
    return csr_of(_values(scores, last_level), tree.order[nodes], ptr, len(tree.order))


def _values(scores: NDArray[np.float32], last_level: LastLevel) -> NDArray[np.float32]:
    """Return products from log scores, and margins as they are."""
    if last_level == "margin":
        return scores
    products: NDArray[np.float32] = path_scores(scores)
    return products


@dataclass(frozen=True, slots=True)
class Descent:
    """A search of documents down the levels; what is the same at every step of every block."""

    features: Features
    # rows, columns, values and dense block of the features, read-only
    arrays: tuple[NDArray[Any], ...]
    levels: Sequence[LevelWeights]
    search: Search
    bias: np.float32
    labels: NDArray[np.int32]
    excluded: tuple[NDArray[np.int64], NDArray[np.int32]] | None

    @classmethod
    def of(
        cls,
        features: Features,
        levels: Sequence[LevelWeights],
        search: Search,
        bias: float,
        labels: NDArray[np.int32],
        exclude: sparse.csr_array | None = None,
    ) -> Descent:
        """Check that features and levels fit, and give all arrays one type, so that kernels are
        compiled once.

        Args:
            features: of the documents.
            levels: the weights of each level.
            search: beam size, scores of nodes, and whether the search is exact.
            bias: value of the constant feature.
            labels: the label of each node of the last level.
            exclude: (n, L) has an entry for each label that may not come out.
        """
        sizes = features.widths
        for chunks in levels:
            if sizes != (chunks.n_columns, chunks.dense_width):
                raise UsageError(
                    f"features of {sizes[0]} sparse and {sizes[1]} dense columns, "
                    f"expected {chunks.n_columns} and {chunks.dense_width} as in training; "
                    "make them with the model's own vectoriser"
                )
        rows = features.sparse
        arrays = tuple(map(read_only, (rows.indptr, rows.indices, rows.data, features.dense)))
        excluded = None
        if exclude is not None:
            expected = len(features), len(labels)
            if exclude.shape != expected:
                raise UsageError(
                    f"exclude of shape {exclude.shape}, expected {expected}: documents, labels"
                )
            excluded = _sorted(exclude)
        return cls(features, arrays, levels, search, np.float32(bias), read_only(labels), excluded)

    def run(
        self,
        k: int | None,
        floors: NDArray[np.float32] | None = None,
        largest_block: int = _LARGEST_BLOCK,
    ) -> Beam:
        """Return the ``k`` best nodes of the last level per document (None: all that the beam
        reaches), best first.

        Args:
            k: nodes per document.
            floors: (n,) least log score of a node on any level.
            largest_block: most documents that share the reading of chunks.
        """
        if self.search.exact and k is not None:
            return self._exact(k)
        limits = [self.search.beam_size] * len(self.levels)
        limits[-1] = _ALL if k is None else k
        if min(limits) < 1:
            raise UsageError(f"beam size or k of {min(limits)}, expected at least 1")
        n = len(self.features)
        largest_block = min(largest_block, max(_PAIRS // self.levels[0].n_chunks, 1))
        block = min(max(-(-n // pool.thread_count()), _SMALLEST_BLOCK), largest_block)
        if floors is None:
            floors = np.full(n, -np.inf, np.float32)
        if n <= block:
            return self._block(0, n, limits, floors)
        blocks = []
        with reporting.stage("searching", n, "documents"):
            for beam in pool.run(
                lambda ends: self._block(*ends, limits, floors), pool.row_blocks(n, block)
            ):
                blocks.append(beam)
                reporting.advance(len(beam.pointers) - 1)
        ptrs, nodes, scores = zip(*blocks, strict=True)
        counts = np.concatenate([np.diff(ptr) for ptr in ptrs])
        pointers = np.concatenate([[0], np.cumsum(counts)])
        return Beam(pointers, np.concatenate(nodes), np.concatenate(scores))

    def _exact(self, k: int) -> Beam:
        """Return the k best of all nodes of the last level.

        Scores only shrink along a path. A beam of k gives k labels; a second descent visits all
        nodes that score no less than the worst of them. Up to ties these are the nodes that a
        priority queue would take out (Dembczyński et al. 2016), but level by level, so that
        documents of a block share the reading of chunks."""
        n_excluded = 0
        if self.excluded is not None:
            n_excluded = int(np.diff(self.excluded[0]).max(initial=0))
        ptr, _, scores = self._with_beam(k + n_excluded).run(k, largest_block=_EXACT_BLOCK)
        floors = np.full(len(self.features), -np.inf, np.float32)
        full = np.diff(ptr) == k
        floors[full] = scores[ptr[1:][full] - 1]
        return self._with_beam(_ALL).run(k, floors, _EXACT_BLOCK)

    def _with_beam(self, beam_size: int) -> Descent:
        search = Search(beam_size, self.search.score, self.search.last_level)
        return replace(self, search=search)

    def _block(
        self, first: int, last: int, limits: Sequence[int], floors: NDArray[np.float32]
    ) -> Beam:
        rows, columns, values, dense = self.arrays
        n = last - first
        n_columns = self.features.sparse.shape[1]
        # sliced once, which takes time, too
        features = FeatureRows(
            rows[first : last + 1], columns, values, dense[first:last], n_columns
        )
        nothing = Candidates(floors[first:last], self.labels, np.zeros(n + 1, np.int64), _NONE)
        # one, or the batches of labels where there is no tree above them
        roots = self.levels[0].n_chunks
        nodes = np.arange(n * roots, dtype=np.int32) % np.int32(roots)
        beam = Beam(np.arange(0, n * roots + 1, roots), nodes, np.zeros(n * roots, np.float32))
        for depth, (chunks, limit) in enumerate(zip(self.levels, limits, strict=True)):
            candidates = nothing
            score = _SCORES[self.search.score]
            if depth == len(self.levels) - 1:
                if self.search.last_level == "margin":
                    score = MARGIN
                if self.excluded is not None:
                    pointers, excluded = self.excluded
                    candidates = nothing._replace(
                        pointers=pointers[first : last + 1], excluded=excluded
                    )
            if isinstance(chunks, Shards):
                beam = step_down_shards(chunks, features, beam, self.bias, score, limit, candidates)
            else:
                level = chunks.level
                beam = Beam(*step_down(level, features, beam, self.bias, score, limit, candidates))
        return beam


def _sorted(exclude: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return where the rows begin, and their columns, rising in each row."""
    if not exclude.has_sorted_indices:
        exclude = exclude.sorted_indices()
    return exclude.indptr.astype(np.int64), exclude.indices.astype(np.int32)
