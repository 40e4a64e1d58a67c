"""The exact k best labels: probabilities only shrink along a path, so what falls below k found labels can be left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from longtail.features.matrix import Features
from longtail.search.beam import ALL, Descent, ScoreType, ranked_labels
from longtail.search.chunks import Chunks

if TYPE_CHECKING:
    from longtail.tree.tree import LabelTree

__all__ = ["exact_search"]

_BLOCK = 64  # documents at a time: one with flat scores visits most of the tree


def exact_search(
    features: Features,
    tree: LabelTree,
    levels: Sequence[Chunks],
    *,
    k: int,
    score: ScoreType,
    bias: float,
    exclude: sparse.csr_array | None = None,
) -> sparse.csr_array:
    """Return (n, n_labels) float32 scores of the k best of all labels, best first.

    A beam of k gives k labels; a second descent visits all nodes that score no less than the worst of them. Up to
    ties these are the nodes that a priority queue would take out (Dembczyński et al. 2016), but level by level, so
    that documents of a block share the reading of chunks.
    """
    descent = Descent.of(features, levels, score, bias, tree.order, exclude)
    taken = 0 if exclude is None or not exclude.nnz else int(np.diff(exclude.indptr).max())
    ptr, _, scores = descent.run([k + taken] * (len(levels) - 1) + [k], largest_block=_BLOCK)
    floors = np.full(len(features), -np.inf, np.float32)
    full = np.diff(ptr) == k
    floors[full] = scores[ptr[1:][full] - 1]
    return ranked_labels(descent.run([ALL] * (len(levels) - 1) + [k], floors, _BLOCK), tree)
