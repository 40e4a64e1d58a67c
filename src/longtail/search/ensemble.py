"""Several rankings of the same documents as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from longtail.data.csr import csr_of

__all__ = ["best_first", "mean_scores"]


def mean_scores(
    members: Sequence[sparse.csr_array], k: int | None, weights: Sequence[float] | None = None
) -> sparse.csr_array:
    """Return the mean of (n, L) scores over the labels that any member has, a missing one being 0; ``k`` best first."""
    shares = np.full(len(members), 1 / len(members)) if weights is None else np.asarray(weights) / np.sum(weights)
    total = members[0].astype(np.float64) * shares[0]
    for member, share in zip(members[1:], shares[1:], strict=True):
        total = total + member.astype(np.float64) * share
    return best_first(total.astype(np.float32), k)


def best_first(scores: sparse.csr_array, k: int | None) -> sparse.csr_array:
    """Return each row from best to worst, ties by label, ``k`` entries at most."""
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    ranks = np.arange(len(order)) - scores.indptr[rows]
    kept = order if k is None else order[ranks < k]
    counts = np.bincount(rows[kept], minlength=scores.shape[0])
    ends = np.concatenate([[0], np.cumsum(counts)])
    return csr_of(scores.data[kept], scores.indices[kept].astype(np.int32), ends, scores.shape[1])
