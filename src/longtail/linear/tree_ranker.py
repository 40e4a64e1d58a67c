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
from longtail.kernels.node_training import GroupDocuments, Positives
from longtail.linear.level_settings import level_ranker
from longtail.linear.spans import Spans, positives_of, train_chunks
from longtail.search.beam import Beam, Descent, LevelWeights, ranked_labels, shortlist
from longtail.search.chunks import Chunks, Part
from longtail.search.exact import exact_best
from longtail.search.shards import Shards, cut_parents
from longtail.tree.tree import LabelTree

__all__ = ["LevelProblems", "TreeRanker", "fit_rows"]


_WIDE = 64  # dense columns from which on a node alone is solved about as fast as its share of a block


@dataclass(frozen=True)
class TreeRanker:
    """A label tree and the weights of its nodes, one :class:`Chunks` a level; those of the labels may be in shards."""

    tree: LabelTree
    levels: tuple[LevelWeights, ...]
    bias: float

    @property
    def n_labels(self) -> int:
        """Labels of the tree."""
        return self.tree.n_labels

    def search(
        self, features: Features, search: Search, k: int | None, exclude: sparse.csr_array | None = None
    ) -> sparse.csr_array:
        """Return (n, L) scores of the ``k`` best labels a document (None: all that the beam reaches), best first."""
        return ranked_labels(self.found(features, search, k, exclude), self.tree, search.last_level)

    def found(self, features: Features, search: Search, k: int | None, exclude: sparse.csr_array | None = None) -> Beam:
        """Return the same as nodes of the last level and their log scores, which tell apart what scores may not.

        Where labels are ranked by their margins, these take the place of log scores.
        """
        descent = Descent.of(
            features, self.levels, search.score, self.bias, self.tree.order, exclude, search.last_level
        )
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
    documents: GroupDocuments  # of each parent
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
        own = level_ranker(ranker, len(above))
        given = _given(features, relevance, tree, above, own, search)
        return cls.of_given(features, relevance[len(above)], tree, len(above), given, own, seed)

    @classmethod
    def of_given(
        cls,
        features: Features,
        relevance: sparse.csr_array,
        tree: LabelTree,
        level: int,
        given: sparse.csr_array | None,
        ranker: Ranker,
        seed: int,
    ) -> LevelProblems:
        """Take a level and its ``relevance`` (n, nodes); each document is trained on the children of its parents.

        These are ``given`` (n, parents), None: all. Costs are those of ``ranker`` for all levels.
        """
        documents, positives = _documents(given, len(features)), positives_of(relevance, ranker)
        offsets = tree.offsets[level - 1] if level else np.array([0, tree.widths[0]])
        return cls(features, documents, positives, offsets, ranker, seed, f"level {level + 1} of {tree.n_levels}")

    def shards(self) -> list[tuple[int, int]]:
        """Return the first and the last (exclusive) parent of each shard."""
        return list(pairwise(cut_parents(self.offsets, self.ranker.shard_labels).tolist()))

    def solve(self, parents: tuple[int, int]) -> Chunks:
        """Return the weights of the children of the parents from the first to before the last."""
        offsets = self.offsets[parents[0] : parents[1] + 1]
        with progress.stage(self.name, total=int(offsets[-1] - offsets[0]), unit="nodes"):
            return Chunks.build(offsets - offsets[0], self.parts(parents), *self.features.widths, self.ranker.weights)

    def solve_all(self) -> Chunks:
        """Return the weights of all nodes."""
        return self.solve(self.all_parents)

    @property
    def all_parents(self) -> tuple[int, int]:
        """The first parent, 0, and behind the last."""
        return 0, len(self.offsets) - 1

    def parts(self, parents: tuple[int, int]) -> Iterator[Part]:
        """Yield the trained children of each parent from the first to before the last."""
        first, last = parents
        alone = self.ranker.solver == "dual" and self.features.dense.shape[1] >= _WIDE
        spans = Spans.below(np.diff(self.documents.pointers)[first:last], self.offsets[first : last + 1], alone)
        spans = spans._replace(groups=spans.groups + first)
        return train_chunks(self.features, spans, self.documents, self.positives, self.ranker, self.seed)


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
    problems = LevelProblems.of_given(Features.of(features), relevance, tree, level, given, ranker, seed)
    nodes = tree.widths[level]
    weights, bias = np.zeros((nodes, features.shape[1]), np.float32), np.zeros(nodes, np.float32)
    with progress.stage(f"first classifiers of level {level + 1}", total=nodes, unit="nodes"):
        for part, start in zip(problems.parts(problems.all_parents), problems.offsets, strict=False):
            weights[start : start + len(part.dense)] = part.dense
            bias[start + part.siblings] = part.values * np.float32(ranker.bias)  # the only column without a dense one
    return weights, bias


def _documents(given: sparse.csr_array | None, n: int) -> GroupDocuments:
    """Return the documents of each parent; all ``n`` of the root."""
    if given is None:
        return GroupDocuments(np.array([0, n], np.int64), np.arange(n, dtype=np.int32))
    by_parent = given.tocsc()
    by_parent.sort_indices()
    return GroupDocuments(by_parent.indptr.astype(np.int64), by_parent.indices.astype(np.int32))


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
