"""A linear classifier on every node of a label tree: XR-Linear, Parabel, Bonsai and PLT are settings of it.

Level after level, the children of each node are trained on the node's documents (teacher-forcing negatives, TFN),
on those that the levels above would send there (matcher-aware negatives, MAN), or on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import progress
from longtail.config import Ranker, Search
from longtail.features.matrix import Features
from longtail.linear.one_vs_all import LabelProblems
from longtail.linear.spans import Documents, Positives, Spans, positives_of, train_chunks
from longtail.search.beam import Beam, Descent, LevelWeights, ranked_labels, shortlist
from longtail.search.chunks import Chunks, Part
from longtail.search.exact import exact_best
from longtail.search.shards import Shards, cut_parents
from longtail.tree.tree import LabelTree

__all__ = ["LevelProblems", "TreeRanker", "fit_rows"]

_RANKER, _SEARCH = Ranker(), Search()


@dataclass(frozen=True)
class TreeRanker:
    """A label tree and the weights of its nodes, one :class:`Chunks` a level; those of the labels may be in shards."""

    tree: LabelTree
    levels: tuple[LevelWeights, ...]
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
        if tree.n_levels == 1:
            labels = LabelProblems.of(features, relevance[0], ranker, seed).solve_all()
            return cls(tree, (Shards.cut(labels, ranker.shard_labels) if ranker.shard_labels else labels,), ranker.bias)
        levels: list[LevelWeights] = []
        for level in range(tree.n_levels):
            problems = LevelProblems.of(features, relevance, tree, levels, ranker, search, seed)
            if ranker.shard_labels and level == tree.n_levels - 1:
                parts = [problems.solve(ends) for ends in problems.shards()]
                levels.append(Shards.of(parts, problems.offsets, ranker.shard_labels))
            else:
                levels.append(problems.solve_all())
        return cls(tree, tuple(levels), ranker.bias)

    @property
    def n_labels(self) -> int:
        """Labels of the tree."""
        return self.tree.n_labels

    def search(
        self, features: Features, search: Search, k: int | None, exclude: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return (n, L) scores of the ``k`` best labels a document (None: all that the beam reaches), best first."""
        return ranked_labels(self.found(features, search, k, exclude), self.tree)

    def found(self, features: Features, search: Search, k: int | None, exclude: sparse.csr_array | None = None) -> Beam:
        """Return the same as nodes of the last level and their log scores, which tell apart what scores may not."""
        descent = Descent.of(features, self.levels, search.score, self.bias, self.tree.order, exclude)
        return exact_best(descent, k) if search.exact and k is not None else descent.best(search.beam_size, k)

    @property
    def shards(self) -> Shards | None:
        """The weights of the labels, if they are in shards."""
        last = self.levels[-1]
        return last if isinstance(last, Shards) else None


@dataclass(frozen=True)
class LevelProblems:
    """The problems of all nodes of a level below others: what is common to its shards."""

    features: Features
    documents: Documents  # of each parent
    positives: Positives
    offsets: NDArray[np.int64]  # (parents + 1,) first child of each parent
    ranker: Ranker
    seed: int
    name: str

    @classmethod
    def of(
        cls,
        features: Features,
        relevance: Sequence[sparse.csr_array],
        tree: LabelTree,
        above: Sequence[LevelWeights],
        ranker: Ranker,
        search: Search,
        seed: int,
    ) -> LevelProblems:
        """Take the level below the levels ``above``; ``relevance`` is the tree's coarsened label matrix."""
        level = len(above)
        given = _given(features, relevance, tree, above, ranker, search)
        documents, positives = _documents(given, len(features)), positives_of(relevance[level], ranker)
        name = f"level {level + 1} of {tree.n_levels}"
        return cls(features, documents, positives, _offsets(tree, level), ranker, seed, name)

    def shards(self) -> list[tuple[int, int]]:
        """Return the first and the last (exclusive) parent of each shard."""
        return list(pairwise(cut_parents(self.offsets, self.ranker.shard_labels).tolist()))

    def solve(self, parents: tuple[int, int]) -> Chunks:
        """Return the weights of the children of the parents from the first to before the last."""
        first, last = parents
        offsets = self.offsets[first : last + 1]
        spans = Spans.below(np.diff(self.documents[0])[first:last], offsets)
        spans = spans._replace(groups=spans.groups + first)
        with progress.stage(self.name, total=int(offsets[-1] - offsets[0]), unit="nodes"):
            parts = train_chunks(self.features, spans, self.documents, self.positives, self.ranker, self.seed)
            widths = self.features.sparse.shape[1], self.features.dense.shape[1]
            return Chunks.build(offsets - offsets[0], parts, *widths, self.ranker.weights)

    def solve_all(self) -> Chunks:
        """Return the weights of all nodes."""
        return self.solve((0, len(self.offsets) - 1))


def fit_rows(
    features: NDArray[np.float32],
    relevance: sparse.csr_array,
    tree: LabelTree,
    level: int,
    given: sparse.csr_array | None,
    ranker: Ranker,
    seed: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Train the nodes of a level on dense ``features`` (n, e); return weights (K, e) and biases (K,).

    ``relevance`` (n, K) is the level's; ``given`` (n, parents) has the parents whose children each document is trained
    on, None: all.
    """
    weights, bias = (
        np.zeros((tree.widths[level], features.shape[1]), np.float32),
        np.zeros(tree.widths[level], np.float32),
    )
    with progress.stage(f"first classifiers of level {level + 1}", total=tree.widths[level], unit="nodes"):
        parts = _parts(Features.of(features), relevance, tree, level, given, ranker, seed)
        for part, start in zip(parts, _offsets(tree, level), strict=False):
            weights[start : start + len(part.dense)] = part.dense
            bias[start + part.siblings] = part.values * np.float32(ranker.bias)  # the only column without a dense one
    return weights, bias


def _parts(
    features: Features,
    relevance: sparse.csr_array,
    tree: LabelTree,
    level: int,
    given: sparse.csr_array | None,
    ranker: Ranker,
    seed: int,
) -> Iterator[Part]:
    """Yield the trained children of each parent of a level."""
    documents = _documents(given, len(features))
    spans = Spans.below(np.diff(documents[0]), _offsets(tree, level))
    return train_chunks(features, spans, documents, positives_of(relevance, ranker), ranker, seed)


def _documents(given: sparse.csr_array | None, n: int) -> Documents:
    """Return the documents of each parent; all ``n`` of the root."""
    if given is None:
        return np.array([0, n], np.int64), np.arange(n, dtype=np.int32)
    by_parent = given.tocsc()
    by_parent.sort_indices()
    return by_parent.indptr.astype(np.int64), by_parent.indices.astype(np.int32)


def _offsets(tree: LabelTree, level: int) -> NDArray[np.int64]:
    return tree.offsets[level - 1] if level else np.array([0, tree.widths[0]])


def _given(
    features: Features,
    relevance: Sequence[sparse.csr_array],
    tree: LabelTree,
    above: Sequence[LevelWeights],
    ranker: Ranker,
    search: Search,
) -> sparse.csr_array | None:
    """Return the parents whose children each document is trained on; None is the root."""
    if not above:
        return None
    true = relevance[len(above) - 1]
    if ranker.negatives == "tfn":
        return true
    matched = shortlist(features, tree, above, beam_size=search.beam_size, score=search.score, bias=ranker.bias)
    matched.data = np.ones_like(matched.data)  # a score of 0 is a match, too
    return matched + true if ranker.negatives == "tfn+man" else matched
