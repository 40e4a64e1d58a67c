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
from longtail.data.csr import csr_of, joined_rows
from longtail.errors import ModelFolderError, UsageError
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.descent import (
    SearchRules,
    add_level,
    descend,
    first_beam,
    list_of_level,
    path_scores,
)
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import read_only
from longtail.kernels.search import (
    HINGE_2,
    HINGE_3,
    MARGIN,
    SIGMOID,
    Beam,
    Candidates,
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
    "SearchTree",
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
    search_tree = SearchTree.of(levels, bias, tree.order)
    ptr, nodes, scores = Descent.of(features, search_tree, search).run(beam_size)
    return csr_of(_values(scores, last_level), nodes, ptr, tree.widths[len(levels) - 1])


def ranked_labels(beam: Beam, tree: LabelTree, last_level: LastLevel = "path") -> sparse.csr_array:
    """Return (n, n_labels) scores from nodes of the last level and their log scores, or margins."""
    ptr, nodes, scores = beam
    return csr_of(_values(scores, last_level), tree.order.take(nodes), ptr, len(tree.order))


def _values(scores: NDArray[np.float32], last_level: LastLevel) -> NDArray[np.float32]:
    """Return products from log scores, and margins as they are."""
    if last_level == "margin":
        return scores
    products: NDArray[np.float32] = path_scores(scores)
    return products


@dataclass(frozen=True, eq=False)
class SearchTree:
    """The weights and labels of a tree in the form that a search reads; made once per model."""

    # sparse and dense columns of the features, as the levels expect them
    widths: tuple[tuple[int, int], ...]
    levels: Any  # a list for kernels, of those in one file; None: there are none
    shards: Shards | None  # the last level, where it is in several files
    n_roots: int  # one, or the batches of labels where there is no tree above them
    bias: np.float32  # value of the constant feature
    labels: NDArray[np.int32]  # the label of each node of the last level

    @classmethod
    def of(
        cls, levels: Sequence[LevelWeights], bias: float, labels: NDArray[np.int32]
    ) -> SearchTree:
        """Give all arrays one type, so that kernels are compiled once."""
        widths = {(level.n_columns, level.dense_width): None for level in levels}
        shards = None
        if isinstance(levels[-1], Shards):
            shards = levels[-1]
        in_one_file = [level for level in levels if isinstance(level, Chunks)]
        types = sorted({level.dtype for level in in_one_file})
        if len(types) > 1:
            raise ModelFolderError(
                f"weights: found levels stored as {' and '.join(types)}; "
                "expected one type; train the model again"
            )
        for_kernels = None
        if in_one_file:
            for_kernels = list_of_level(in_one_file[0].level)
        for level in in_one_file[1:]:
            add_level(for_kernels, level.level)
        roots = levels[0].n_chunks
        return cls(tuple(widths), for_kernels, shards, roots, np.float32(bias), read_only(labels))


@dataclass(frozen=True, slots=True)
class Descent:
    """A search of documents down the levels; what is the same for every block of documents."""

    tree: SearchTree
    features: FeatureRows  # read-only
    search: Search
    excluded: tuple[NDArray[np.int64], NDArray[np.int32]] | None

    @classmethod
    def of(
        cls,
        features: Features,
        tree: SearchTree,
        search: Search,
        exclude: sparse.csr_array | None = None,
    ) -> Descent:
        """Check that features and tree fit.

        Args:
            features: of the documents.
            tree: weights of each level, and labels.
            search: beam size, scores of nodes, and whether the search is exact.
            exclude: (n, L) has an entry for each label that may not come out.
        """
        n_columns, dense_width = features.widths
        for expected in tree.widths:
            if expected != (n_columns, dense_width):
                raise UsageError(
                    f"features of {n_columns} sparse and {dense_width} dense columns, "
                    f"expected {expected[0]} and {expected[1]} as in training; "
                    "make them with the model's own vectoriser"
                )
        rows = features.sparse
        for_kernels = FeatureRows(
            read_only(rows.indptr),
            read_only(rows.indices),
            read_only(rows.data),
            read_only(features.dense),
            n_columns,
        )
        excluded = None
        if exclude is not None:
            shape = len(features), len(tree.labels)
            if exclude.shape != shape:
                raise UsageError(
                    f"exclude of shape {exclude.shape}, expected {shape}: documents, labels"
                )
            excluded = _sorted(exclude)
        return cls(tree, for_kernels, search, excluded)

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
        rules = self._rules(k)
        n = len(self.features.pointers) - 1
        if floors is None:
            floors = np.empty(n, np.float32)
            floors.fill(-np.inf)
        candidates = self._candidates(floors)
        size = self._block_size(n, largest_block)
        if n <= size:
            return self._block(0, n, rules, candidates)
        blocks = []
        with reporting.stage("searching", n, "documents"):
            for beam in pool.run(
                lambda ends: self._block(*ends, rules, candidates), pool.row_blocks(n, size)
            ):
                blocks.append(beam)
                reporting.advance(len(beam.pointers) - 1)
        return Beam(*joined_rows(blocks))

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
        floors = np.full(len(ptr) - 1, -np.inf, np.float32)
        full = np.diff(ptr) == k
        floors[full] = scores[ptr[1:][full] - 1]
        return self._with_beam(_ALL).run(k, floors, _EXACT_BLOCK)

    def _with_beam(self, beam_size: int) -> Descent:
        search = Search(beam_size, self.search.score, self.search.last_level)
        return replace(self, search=search)

    def _rules(self, k: int | None) -> SearchRules:
        """Return how nodes are scored, and how many of them are kept on each level."""
        beam_size = self.search.beam_size
        limit = _ALL if k is None else k
        if min(beam_size, limit) < 1:
            raise UsageError(f"beam size or k of {min(beam_size, limit)}, expected at least 1")
        score = _SCORES[self.search.score]
        last_score = score
        if self.search.last_level == "margin":
            last_score = MARGIN
        tree = self.tree
        return SearchRules(tree.n_roots, tree.bias, score, beam_size, last_score, limit)

    def _candidates(self, floors: NDArray[np.float32]) -> Candidates:
        """Return the labels of nodes, and those that may not come out."""
        if self.excluded is None:
            return Candidates(floors, self.tree.labels, np.zeros(len(floors) + 1, np.int64), _NONE)
        return Candidates(floors, self.tree.labels, *self.excluded)

    def _block_size(self, n: int, largest: int) -> int:
        """Return how many of ``n`` documents share the reading of chunks, at most."""
        largest = min(largest, max(_PAIRS // self.tree.n_roots, 1))
        if n <= _SMALLEST_BLOCK:
            return min(_SMALLEST_BLOCK, largest)
        return min(max(-(-n // pool.thread_count()), _SMALLEST_BLOCK), largest)

    def _block(self, first: int, last: int, rules: SearchRules, candidates: Candidates) -> Beam:
        """Search the documents from ``first`` to before ``last``."""
        tree = self.tree
        if tree.shards is None:
            return Beam(*descend(tree.levels, self.features, candidates, rules, first, last))
        n = last - first
        all_rows = self.features
        features = all_rows._replace(
            pointers=all_rows.pointers[first : last + 1], dense=all_rows.dense[first:last]
        )
        candidates = candidates._replace(
            floors=candidates.floors[first:last], pointers=candidates.pointers[first : last + 1]
        )
        if tree.levels is None:
            parents = first_beam(n, rules.n_roots)
        else:
            above = rules._replace(last_score=rules.score, last_limit=rules.beam_size)
            any_label = candidates._replace(pointers=np.zeros(n + 1, np.int64))
            parents = descend(tree.levels, features, any_label, above, 0, n)
        return step_down_shards(tree.shards, features, Beam(*parents), rules, candidates)


def _sorted(exclude: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return where the rows begin, and their columns, rising in each row."""
    if not exclude.has_sorted_indices:
        exclude = exclude.sorted_indices()
    return exclude.indptr.astype(np.int64), exclude.indices.astype(np.int32)
