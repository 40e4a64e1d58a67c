"""Rankings of the same documents as one: members of an ensemble, and the shards of a level.

Members rank the same labels: their scores are added up, label by label. Shards hold other nodes of
a level: beam search ranks the children of one run of parents after the other, and merges them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.search import Beam

__all__ = [
    "FusedRanking",
    "MemberRankings",
    "fuse_rows",
    "merge_ranked",
    "pairs_below",
    "raised_floors",
]


@kernel
def pairs_below(
    beam: Beam,  # IN  parents
    # IN  (n,) float32: parents below are left out, as no child scores above its parent
    floors: Any,
    first: int,  # IN  parents from here
    last: int,  # IN  to before here
) -> Beam:
    """Return the pairs of a run of parents, counted from ``first``."""
    pointers, parents, scores = beam
    ends = np.zeros(pointers.shape[0], np.int64)
    count = 0
    run = np.empty(parents.shape[0], np.int32)
    run_scores = np.empty(parents.shape[0], np.float32)
    for document in range(pointers.shape[0] - 1):
        for pair in range(pointers[document], pointers[document + 1]):
            if first <= parents[pair] < last and scores[pair] >= floors[document]:
                run[count] = parents[pair] - first
                run_scores[count] = scores[pair]
                count += 1
        ends[document + 1] = count
    return Beam(ends, run[:count], run_scores[:count])


@kernel
def raised_floors(floors: Any, ranked: Beam, limit: int) -> Any:
    """Return floors no lower than the worst of ``limit`` ranked nodes, where a document has so
    many.
    """
    pointers, _, scores = ranked
    raised = floors.copy()
    for document in range(floors.shape[0]):
        if pointers[document + 1] - pointers[document] == limit:
            raised[document] = max(floors[document], scores[pointers[document + 1] - 1])
    return raised


@kernel
def merge_ranked(
    ranked: Beam,  # IN  ties by position in the level
    other: Beam,  # IN  of nodes that are not among the first
    shift: int,  # IN  to be added to the nodes of the other
    limit: int,  # IN  nodes kept per document
) -> Beam:
    """Return the best of both, in the same order."""
    pointers, nodes, scores = ranked
    other_pointers, other_nodes, other_scores = other
    ends = np.zeros(pointers.shape[0], np.int64)
    for document in range(pointers.shape[0] - 1):
        count = pointers[document + 1] - pointers[document]
        count += other_pointers[document + 1] - other_pointers[document]
        ends[document + 1] = ends[document] + min(count, limit)
    merged = np.empty(ends[-1], np.int32)
    merged_scores = np.empty(ends[-1], np.float32)
    for document in range(pointers.shape[0] - 1):
        a = pointers[document]
        a_end = pointers[document + 1]
        b = other_pointers[document]
        b_end = other_pointers[document + 1]
        for at in range(ends[document], ends[document + 1]):
            is_first = b == b_end
            if a < a_end and b < b_end:
                tied = scores[a] == other_scores[b] and nodes[a] < other_nodes[b] + shift
                is_first = scores[a] > other_scores[b] or tied
            if is_first:
                merged[at] = nodes[a]
                merged_scores[at] = scores[a]
                a += 1
            else:
                merged[at] = other_nodes[b] + shift
                merged_scores[at] = other_scores[b]
                b += 1
    return Beam(ends, merged, merged_scores)


class MemberRankings(NamedTuple):
    """The rankings of all members, end to end."""

    pointers: Any  # (members, n + 1) int64, where each row of each member begins
    labels: Any  # int32
    scores: Any  # float32
    shares: Any  # (members,) float64, the weight of each member
    most: int  # entries of a row, those of all members together, at most


class FusedRanking(NamedTuple):
    """The best ``k`` labels of each document."""

    labels: Any  # (n, k) int32
    scores: Any  # (n, k) float32
    counts: Any  # (n,) int64, entries of each row that are filled


@kernel
def fuse_rows(
    begin: int,  # IN  first row
    end: int,  # IN  behind the last row
    members: MemberRankings,  # IN
    fused: FusedRanking,  # OUT
) -> None:
    """Write Σ share · score of the labels that any member has, best first, ties by label."""
    pointers = members.pointers
    shares = members.shares
    labels = members.labels
    scores = members.scores
    best_labels = fused.labels
    best_scores = fused.scores
    k = best_labels.shape[1]
    row_labels = np.empty(members.most, np.int32)
    weighted = np.empty(members.most)
    distinct = np.empty(members.most, np.int32)
    totals = np.empty(members.most)
    for row in range(begin, end):
        size = 0
        for member in range(len(shares)):
            for at in range(pointers[member, row], pointers[member, row + 1]):
                row_labels[size] = labels[at]
                weighted[size] = scores[at] * shares[member]
                size += 1
        count = _add_by_label(row_labels[:size], weighted, distinct, totals)
        means = totals[:count].astype(np.float32)
        order = np.argsort(-means, kind="mergesort")
        fused.counts[row] = min(k, count)
        for rank in range(min(k, count)):
            best_labels[row, rank] = distinct[order[rank]]
            best_scores[row, rank] = means[order[rank]]


@kernel
def _add_by_label(
    labels: Any,  # IN  of a row, member after member
    scores: Any,  # IN  of each label
    distinct: Any,  # OUT each label once, rising
    totals: Any,  # OUT the sum of its scores
) -> int:
    """Add up the scores of each label; return how many labels there are."""
    count = 0
    # stable: the scores of a label are added in the order of members
    for at in np.argsort(labels, kind="mergesort"):
        if count and distinct[count - 1] == labels[at]:
            totals[count - 1] += scores[at]
        else:
            distinct[count] = labels[at]
            totals[count] = scores[at]
            count += 1
    return count
