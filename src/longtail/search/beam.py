"""Beam search down a label tree: at each level the best few nodes of a document are kept and their
children scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
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

ALL = np.iinfo(np.int64).max
_SCORES: dict[ScoreType, int] = {"hinge-2": HINGE_2, "hinge-3": HINGE_3, "sigmoid": SIGMOID}
# documents that share the reading of a chunk; bytes never depend on it
_LARGEST_BLOCK = 16384
_SMALLEST_BLOCK = 256
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
    """Return (n, nodes of the last of ``levels``) float32 scores of the ``beam_size`` best nodes
    found, best first.

    Args:
        features: of the documents.
        tree: the label tree.
        levels: the weights of its first levels, or of all.
        beam_size: nodes kept on each level.
        score: what a margin is worth along the path.
        bias: value of the constant feature.
        last_level: what the last of ``levels`` is ranked by.
    """
    descent = Descent.of(features, levels, score, bias, tree.order, last_level=last_level)
    ptr, nodes, scores = descent.run([beam_size] * len(levels))
    return csr_of(_values(scores, last_level), nodes, ptr, tree.widths[len(levels) - 1])


def ranked_labels(found: Beam, tree: LabelTree, last_level: LastLevel = "path") -> sparse.csr_array:
    """Return (n, n_labels) scores from nodes of the last level and their log scores, or margins."""
    ptr, nodes, scores = found
    return csr_of(_values(scores, last_level), tree.order[nodes], ptr, len(tree.order))


def _values(scores: NDArray[np.float32], last_level: LastLevel) -> NDArray[np.float32]:
    """Return what a search gives: products from log scores, margins as they are."""
    if last_level == "margin":
        return scores
    products: NDArray[np.float32] = path_scores(scores)
    return products


@dataclass(frozen=True, slots=True)
class Descent:
    """Documents on their way down the levels; what is the same at every step of every block."""

    features: Features
    # rows, columns, values and dense block of the features, read-only
    arrays: tuple[NDArray[Any], ...]
    levels: Sequence[LevelWeights]
    score: int
    bias: np.float32
    labels: NDArray[np.int32]
    excluded: tuple[NDArray[np.int64], NDArray[np.int32]] | None
    last_score: int  # on the last level

    @classmethod
    def of(
        cls,
        features: Features,
        levels: Sequence[LevelWeights],
        score: ScoreType,
        bias: float,
        labels: NDArray[np.int32],
        exclude: sparse.csr_array | None = None,
        last_level: LastLevel = "path",
    ) -> Descent:
        """Check that features and levels fit, and give all arrays one type, so that kernels are
        compiled once.

        Args:
            features: of the documents.
            levels: the weights of each level.
            score: what a margin is worth along the path.
            bias: value of the constant feature.
            labels: the label of each node of the last level.
            exclude: (n, L) has an entry for each label that may not come out.
            last_level: what the last of ``levels`` is ranked by.
        """
        sizes = features.widths
        for chunks in levels:
            if sizes != (chunks.n_columns, chunks.dense_width):
                raise UsageError(
                    f"features of {sizes[0]} sparse and {sizes[1]} dense columns, expected {chunks.n_columns} and "
                    f"{chunks.dense_width} as in training; make them with the model's own vectoriser"
                )
        rows = features.sparse
        arrays = tuple(map(read_only, (rows.indptr, rows.indices, rows.data, features.dense)))
        if exclude is not None and exclude.shape != (len(features), len(labels)):
            raise UsageError(
                f"exclude of shape {exclude.shape}, expected {(len(features), len(labels))}: documents, labels"
            )
        excluded = None if exclude is None else _rising(exclude)
        last_score = MARGIN if last_level == "margin" else _SCORES[score]
        return cls(
            features,
            arrays,
            levels,
            _SCORES[score],
            np.float32(bias),
            read_only(labels),
            excluded,
            last_score,
        )

    def best(self, beam_size: int, k: int | None) -> Beam:
        """Return the ``k`` best nodes of the last level that a beam finds (None: all), best first."""
        return self.run([beam_size] * (len(self.levels) - 1) + [ALL if k is None else k])

    def run(
        self,
        limits: Sequence[int],
        floors: NDArray[np.float32] | None = None,
        largest_block: int = _LARGEST_BLOCK,
    ) -> Beam:
        """Return the best nodes of the last level of each document.

        At level t the best ``limits[t]`` nodes are kept, of document i none with a log score below
        ``floors[i]``."""
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
            for found in pool.run(
                lambda ends: self._block(*ends, limits, floors), pool.row_blocks(n, block)
            ):
                blocks.append(found)
                reporting.advance(len(found[0]) - 1)
        ptrs, nodes, scores = zip(*blocks, strict=True)
        counts = np.concatenate([np.diff(ptr) for ptr in ptrs])
        pointers = np.concatenate([[0], np.cumsum(counts)])
        return Beam(pointers, np.concatenate(nodes), np.concatenate(scores))

    def _block(
        self, first: int, last: int, limits: Sequence[int], floors: NDArray[np.float32]
    ) -> Beam:
        rows, columns, values, dense = self.arrays
        n = last - first
        n_columns = self.features.sparse.shape[1]
        # once: slices take time, too
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
            score = self.score
            if depth == len(self.levels) - 1:
                score = self.last_score
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


def _rising(exclude: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    rows = exclude if exclude.has_sorted_indices else exclude.sorted_indices()
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
