"""The exact k best labels: probabilities only shrink along a path, so what falls below k found labels can be left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from longtail.features.matrix import Features
from longtail.search.beam import ALL, Beam, Descent, LevelWeights, ScoreType, ranked_labels

if TYPE_CHECKING:
    from longtail.tree.tree import LabelTree

__all__ = ["exact_best", "exact_search"]

_BLOCK = 64  # documents at a time: one with flat scores visits most of the tree


def exact_search(
    features: Features,
    tree: LabelTree,
    levels: Sequence[LevelWeights],
    *,
    k: int,
    score: ScoreType,
    bias: float,
    exclude: sparse.csr_array | None = None,
) -> sparse.csr_array:
    """Return (n, n_labels) float32 scores of the k best of all labels, best first."""
    return ranked_labels(exact_best(Descent.of(features, levels, score, bias, tree.order, exclude), k), tree)


def exact_best(descent: Descent, k: int) -> Beam:
    """Return the k best of all nodes of the last level.

    A beam of k gives k labels; a second descent visits all nodes that score no less than the worst of them. Up to
    ties these are the nodes that a priority queue would take out (Dembczyński et al. 2016), but level by level, so
    that documents of a block share the reading of chunks.
    """
    above = len(descent.levels) - 1
    taken = 0 if descent.excluded is None else int(np.diff(descent.excluded[0]).max(initial=0))
    ptr, _, scores = descent.run([k + taken] * above + [k], largest_block=_BLOCK)
    floors = np.full(len(descent.features), -np.inf, np.float32)
    full = np.diff(ptr) == k
    floors[full] = scores[ptr[1:][full] - 1]
    return descent.run([ALL] * above + [k], floors, _BLOCK)
