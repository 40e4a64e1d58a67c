"""A linear classifier on every node of a label tree: XR-Linear, Parabel, Bonsai and PLT are settings of it.

Level after level, the children of each node are trained on the node's documents (teacher-forcing negatives, TFN),
on those that the levels above would send there (matcher-aware negatives, MAN), or on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import progress
from longtail.config import Ranker, Search
from longtail.features.matrix import Features
from longtail.linear.one_vs_all import LabelProblems
from longtail.linear.spans import Spans, positives_of, train_chunks
from longtail.search.beam import beam_search, shortlist
from longtail.search.chunks import Chunks, Part
from longtail.search.exact import exact_search
from longtail.tree.tree import LabelTree

__all__ = ["TreeRanker", "fit_level", "fit_rows"]

_RANKER, _SEARCH = Ranker(), Search()


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
        if tree.n_levels == 1:
            return cls(tree, (LabelProblems.of(features, relevance[0], ranker, seed).solve_all(),), ranker.bias)
        levels: list[Chunks] = []
        for _ in range(tree.n_levels):
            levels.append(fit_level(features, relevance, tree, levels, ranker, search, seed))
        return cls(tree, tuple(levels), ranker.bias)

    @property
    def n_labels(self) -> int:
        """Labels of the tree."""
        return self.tree.n_labels

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
    given = _given(features, relevance, tree, above, ranker, search)
    with progress.stage(f"level {level + 1} of {tree.n_levels}", total=tree.widths[level], unit="nodes"):
        parts = _parts(features, relevance[level], tree, level, given, ranker, seed)
        widths = features.sparse.shape[1], features.dense.shape[1]
        return Chunks.build(_offsets(tree, level), parts, *widths, ranker.weights)


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
    if given is None:
        documents = np.array([0, len(features)], np.int64), np.arange(len(features), dtype=np.int32)
    else:
        by_parent = given.tocsc()
        by_parent.sort_indices()
        documents = by_parent.indptr.astype(np.int64), by_parent.indices.astype(np.int32)
    spans = Spans.below(np.diff(documents[0]), _offsets(tree, level))
    return train_chunks(features, spans, documents, positives_of(relevance, ranker), ranker, seed)


def _offsets(tree: LabelTree, level: int) -> NDArray[np.int64]:
    return tree.offsets[level - 1] if level else np.array([0, tree.widths[0]])


def _given(
    features: Features,
    relevance: Sequence[sparse.csr_array],
    tree: LabelTree,
    above: Sequence[Chunks],
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
