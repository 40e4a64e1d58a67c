"""Several rankings of the same documents as one, and weights fitted on documents with labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of, joined_rows, places_in_rows
from longtail.kernels import pool
from longtail.kernels.ranked_lists import MemberRankings, fuse_rows
from longtail.search.calibration import hits

__all__ = [
    "FITTED",
    "MISSING_MARGIN",
    "above_missing",
    "best_first",
    "fit_weights",
    "in_order",
    "mean_scores",
    "reciprocal_ranks",
]

# of a label that a search by margins does not find: what its negatives are trained towards
MISSING_MARGIN = -1.0

_FUSION_K = 60  # k of Cormack et al.: how little the first ranks stand out
_TIE = 1e-6
_BLOCK = 1024  # documents of a task
_ALL = np.iinfo(np.int64).max


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
    n, n_labels = members[0].shape
    ends = np.concatenate([member.indptr for member in members], dtype=np.int64)
    rankings = MemberRankings(
        ends.reshape(len(members), n + 1),
        np.concatenate([member.indices for member in members], dtype=np.int32),
        np.concatenate([member.data for member in members], dtype=np.float32),
        shares,
    )
    limit = _ALL if k is None else k
    if n <= _BLOCK:
        pointers, labels, scores = fuse_rows(0, n, rankings, limit)
    else:
        blocks = pool.row_blocks(n, _BLOCK)
        pointers, labels, scores = joined_rows(
            pool.run(lambda rows: fuse_rows(*rows, rankings, limit), blocks)
        )
    return csr_of(scores, labels, pointers, n_labels)


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


# Weights of the members

FITTED = (1, 3, 5)  # weights are those with the best P@1 + P@3 + P@5

_STEPS = 20  # in which a weight is tried, from 0 to 1
# of a hit at each rank
_GAINS = np.array([sum(1 / k for k in FITTED if k > rank) for rank in range(FITTED[-1])])


def fit_weights(
    members: Sequence[sparse.csr_array], label_matrix: sparse.csr_array
) -> tuple[tuple[float, ...], float]:
    """Return the weights, of sum 1, with the best P@1 + P@3 + P@5 of the members' mean, and that
    value.

    Coordinate search: from equal weights, or from a single member where it is better, one weight
    after another is tried in steps of 0.05, the others keeping their proportions, until none of
    them gains. Scores and labels are (n, L)."""
    pairs = _Pairs.of(members, label_matrix)
    n = len(members)
    starts = [np.full(n, 1 / n), *np.eye(n)]
    best, value = _best(pairs, starts)
    while True:
        before = value
        for member in range(n):
            tried = [
                best,
                *(_with_weight(best, member, step / _STEPS) for step in range(_STEPS + 1)),
            ]
            best, value = _best(pairs, tried)
        if value <= before:
            return tuple(best.tolist()), value


def _best(pairs: _Pairs, tried: Iterable[NDArray[np.float64]]) -> tuple[NDArray[np.float64], float]:
    """Return the first of the weights that no later ones are better than, and their value."""
    best = None
    value = -np.inf
    for weights in tried:
        tried_value = pairs.value(weights)
        if best is None or tried_value > value:
            best = weights
            value = tried_value
    assert best is not None  # there is always one to try
    return best, value


def _with_weight(weights: NDArray[np.float64], member: int, weight: float) -> NDArray[np.float64]:
    """Return the weights with that of one member set, the others in proportion, or alike where they
    are all 0.
    """
    others = weights.copy()
    others[member] = 0
    if not others.any():
        others[:] = 1
        others[member] = 0
    others *= (1 - weight) / others.sum()
    others[member] = weight
    return others


class _Pairs(NamedTuple):
    """The (document, label) pairs that can come out on top, by document, then label."""

    rows: NDArray[np.int64]  # (p,)
    scores: NDArray[np.float64]  # (members, p)
    right: NDArray[np.bool_]  # (p,)
    n_documents: int  # with labels

    @classmethod
    def of(cls, members: Sequence[sparse.csr_array], label_matrix: sparse.csr_array) -> _Pairs:
        """Collect what any member has, less what cannot be among the best 5 whatever the weights
        are.
        """
        width = label_matrix.shape[1]
        keys_of_members = [
            np.repeat(np.arange(m.shape[0]) * width, np.diff(m.indptr)) + m.indices for m in members
        ]
        keys = np.unique(np.concatenate(keys_of_members))
        scores = np.zeros((len(members), len(keys)))
        for row, member_keys, matrix in zip(scores, keys_of_members, members, strict=True):
            row[np.searchsorted(keys, member_keys)] = matrix.data
        kept = _within_reach(keys // width, scores, label_matrix.shape[0])
        rows, columns = np.divmod(keys[kept], width)
        ends = np.searchsorted(rows, np.arange(label_matrix.shape[0] + 1))
        right = hits(csr_of(scores[0, kept], columns.astype(np.int32), ends, width), label_matrix)
        return cls(
            rows, scores[:, kept], right, max(1, int((np.diff(label_matrix.indptr) > 0).sum()))
        )

    def value(self, weights: NDArray[np.float64]) -> float:
        """Return P@1 + P@3 + P@5 of the weighted mean, ties going to the first label."""
        shares = weights / np.sum(weights)
        # one after the other, as in mean_scores: what ties there must tie here
        weighted = (member * share for member, share in zip(self.scores, shares, strict=True))
        scores = sum(weighted).astype(np.float32)
        order = np.lexsort((-scores, self.rows))
        ranks = _ranks(self.rows)
        counted = (ranks < len(_GAINS)) & self.right[order] & (scores[order] > 0)
        return float(_GAINS[ranks[counted]].sum()) / self.n_documents


def _within_reach(
    rows: NDArray[np.int64], scores: NDArray[np.float64], n: int
) -> NDArray[np.bool_]:
    """Return for each pair whether its best score reaches the fifth of the worst scores of its row.

    A mean lies between the two, so five others are better than a pair that does not.
    """
    ends = np.searchsorted(rows, np.arange(n + 1))
    columns = np.arange(len(rows), dtype=np.int32)
    worst = best_first(csr_of(scores.min(axis=0), columns, ends, len(rows)), len(_GAINS))
    full = np.diff(worst.indptr) == len(_GAINS)
    bounds = np.zeros(n)
    bounds[full] = worst.data[worst.indptr[1:][full] - 1]
    reached: NDArray[np.bool_] = scores.max(axis=0) >= bounds[rows]
    return reached


def _ranks(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each entry in its row, from 0; rows stand together."""
    starts = np.searchsorted(rows, rows)
    return np.arange(len(rows)) - starts
