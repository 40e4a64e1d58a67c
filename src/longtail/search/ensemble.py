"""Several rankings of the same documents as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of, places_in_rows
from longtail.kernels import pool
from longtail.kernels.ranked_lists import FusedRanking, MemberRankings, fuse_rows

__all__ = [
    "MISSING_MARGIN",
    "above_missing",
    "best_first",
    "in_order",
    "mean_scores",
    "reciprocal_ranks",
]

# of a label that a search by margins does not find: what its negatives are trained towards
MISSING_MARGIN = -1.0

_FUSION_K = 60  # k of Cormack et al.: how little the first ranks stand out
_TIE = 1e-6
_BLOCK = 1024  # documents of a task


def mean_scores(
    members: Sequence[sparse.csr_array],
    k: int | None,
    weights: Sequence[float] | None = None,
    missing: float = 0.0,
) -> sparse.csr_array:
    """Return the mean of (n, L) scores over the labels that any member has, the best first.

    A member without weight has no say in which labels these are.

    Args:
        members: the scores of each.
        k: labels of each document, None for all.
        weights: of each member; None: equal ones.
        missing: the score of a label that a member does not have.
    """
    if missing:
        above = [above_missing(member, missing) for member in members]
        means = mean_scores(above, k, weights)
        return csr_of(means.data + np.float32(missing), means.indices, means.indptr, means.shape[1])
    if weights is None:
        shares = np.full(len(members), 1 / len(members))
    else:
        shares = np.asarray(weights) / np.sum(weights)
    members = [member for member, share in zip(members, shares, strict=True) if share]
    shares = shares[shares > 0]
    n = members[0].shape[0]
    before = np.cumsum([0, *(member.nnz for member in members)])
    pointers = np.stack(
        [member.indptr + start for member, start in zip(members, before, strict=False)]
    )
    labels = np.concatenate([member.indices for member in members], dtype=np.int32)
    scores = np.concatenate([member.data for member in members], dtype=np.float32)
    most = int(np.diff(pointers).sum(0).max(initial=0))
    shape = n, most if k is None else min(k, most)
    best_labels = np.zeros(shape, np.int32)
    best_scores = np.zeros(shape, np.float32)
    counts = np.zeros(n, np.int64)
    rankings = MemberRankings(pointers.astype(np.int64), labels, scores, shares, most)
    fused = FusedRanking(best_labels, best_scores, counts)
    blocks = pool.row_blocks(n, _BLOCK)
    deque(pool.run(lambda rows: fuse_rows(*rows, rankings, fused), blocks), maxlen=0)
    kept = np.arange(shape[1]) < counts[:, None]
    ends = np.concatenate([[0], np.cumsum(counts)])
    return csr_of(best_scores[kept], best_labels[kept], ends, members[0].shape[1])


def above_missing(ranked: sparse.csr_array, missing: float) -> sparse.csr_array:
    """Return by how much scores are above that of a label that is not there."""
    return csr_of(ranked.data - np.float32(missing), ranked.indices, ranked.indptr, ranked.shape[1])


def best_first(scores: sparse.csr_array, k: int | None) -> sparse.csr_array:
    """Return each row from best to worst, ties by label, ``k`` entries at most."""
    return mean_scores([scores], k)


def reciprocal_ranks(ranked: sparse.csr_array) -> sparse.csr_array:
    """Return 61 / (60 + r) in place of the scores of each row, r being 1 for its first entry.

    Their sum over members is reciprocal rank fusion (Cormack et al. 2009), times 61: a label that
    is first everywhere has a mean of 1."""
    values = ((_FUSION_K + 1) / (_FUSION_K + 1 + places_in_rows(ranked))).astype(np.float32)
    return csr_of(values, ranked.indices, ranked.indptr, ranked.shape[1])


def in_order(ranked: sparse.csr_array, values: NDArray[np.float64]) -> sparse.csr_array:
    """Return ``values`` in place of the scores, less a millionth a rank: what they make equal stays
    in its order.
    """
    values = values * (1 - _TIE * places_in_rows(ranked))
    return csr_of(values.astype(np.float32), ranked.indices, ranked.indptr, ranked.shape[1])
