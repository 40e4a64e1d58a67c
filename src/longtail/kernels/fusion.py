"""Several rankings of the same documents as one: scores are added up label by label, and the best
kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["fuse_rows"]


@kernel
def fuse_rows(
    begin: int,
    end: int,
    room: int,
    pointers: Any,
    labels: Any,
    scores: Any,
    shares: Any,
    best_labels: Any,
    best_scores: Any,
    counts: Any,
) -> None:
    """Write Σ share · score of the labels that any member has for the rows ``begin:end``, best
    first, ties by label.

    Member m has ``labels`` and float32 ``scores`` at ``pointers[m, row]:pointers[m, row + 1]``;
    ``best_labels`` and ``best_scores`` are (n, k), of which ``counts`` (n,) are filled. All members
    together have ``room`` entries in a row at most."""
    k = best_labels.shape[1]
    found = np.empty(room, np.int32)
    added = np.empty(room)
    distinct = np.empty(room, np.int32)
    totals = np.empty(room)
    for row in range(begin, end):
        size = 0
        for member in range(len(shares)):
            for at in range(pointers[member, row], pointers[member, row + 1]):
                found[size], added[size] = labels[at], scores[at] * shares[member]
                size += 1
        different = 0
        # stable: each label's members in their order
        for at in np.argsort(found[:size], kind="mergesort"):
            if different and distinct[different - 1] == found[at]:
                totals[different - 1] += added[at]
            else:
                distinct[different], totals[different] = found[at], added[at]
                different += 1
        means = totals[:different].astype(np.float32)
        order = np.argsort(-means, kind="mergesort")
        counts[row] = min(k, different)
        for rank in range(counts[row]):
            best_labels[row, rank], best_scores[row, rank] = (
                distinct[order[rank]],
                means[order[rank]],
            )
