"""Rankings of the same documents as one: members of an ensemble, and the shards of a level.

Members rank the same labels: their scores are added up, label by label. Shards hold other nodes of
a level: beam search ranks the children of one run of parents after the other, and merges them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.heaps import better, sift_down, sift_up, sort_heap
from longtail.kernels.jit import borrowing, kernel
from longtail.kernels.search import Beam

__all__ = [
    "MemberRankings",
    "fuse_rows",
    "merge_ranked",
    "pairs_below",
    "raised_floors",
]

_HASH_FACTOR = 2654435761  # 2^32 divided by the golden ratio: multiplicative hashing
_HASH_SHIFT = 16


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

    pointers: Any  # (members, n + 1) int64, where each row begins among the member's entries
    labels: Any  # int32
    scores: Any  # float32
    shares: Any  # (members,) float64, the weight of each member


class _Sums(NamedTuple):
    """The sum of scores of each label of a row, in order of first appearance."""

    labels: Any  # int32
    sums: Any  # float64
    # int32, a hash table of 2^b slots: the position of a label, or −1
    slots: Any


@kernel
def fuse_rows(
    first: int,  # IN  rows from here
    last: int,  # IN  to before here
    members: MemberRankings,  # IN
    limit: int,  # IN  labels kept per row
) -> Any:
    """Return the best labels of each row, and Σ share · score of those members that have a label:
    the fields of a Beam of labels, ties by label.
    """
    most, capacity = _row_sizes(first, last, members.pointers, limit)
    sums = _Sums(np.empty(most, np.int32), np.empty(most), np.empty(_table_size(most), np.int32))
    ends = np.zeros(last - first + 1, np.int64)
    labels = np.empty(capacity, np.int32)
    scores = np.empty(capacity, np.float32)
    for row in range(first, last):
        count = _add_by_label(row, members, sums)
        start = ends[row - first]
        size = min(count, limit)
        _keep_best(sums, count, labels[start : start + size], scores[start : start + size])
        ends[row - first + 1] = start + size
    return ends, labels[: ends[-1]], scores[: ends[-1]]


@borrowing
def _row_sizes(first: int, last: int, pointers: Any, limit: int) -> Any:
    """Return the most entries of a row, those of all members together, and how many labels all
    rows keep at most.
    """
    most = np.int64(0)
    capacity = np.int64(0)
    for row in range(first, last):
        count: Any = np.int64(0)
        for member in range(pointers.shape[0]):
            count += pointers[member, row + 1] - pointers[member, row]
        most = max(most, count)
        capacity += min(count, limit)
    return most, capacity


@borrowing
def _table_size(count: Any) -> Any:
    """Return the slots of a hash table for ``count`` labels: a power of 2, half of them empty."""
    size = 2
    while size < 2 * count:
        size *= 2
    return size


@borrowing
def _add_by_label(row: int, members: MemberRankings, sums: _Sums) -> Any:
    """Add up the weighted scores of each label of a row, in the order of members; return how many
    labels there are.
    """
    pointers = members.pointers
    shares = members.shares
    labels = members.labels
    scores = members.scores
    slots = sums.slots
    n_entries = np.int64(0)
    for member in range(shares.shape[0]):
        n_entries += pointers[member, row + 1] - pointers[member, row]
    mask = _table_size(n_entries) - 1
    for slot in range(mask + 1):
        slots[slot] = -1
    count = 0
    shift = np.int64(0)  # the entries of earlier members
    for member in range(shares.shape[0]):
        for at in range(shift + pointers[member, row], shift + pointers[member, row + 1]):
            weighted = scores[at] * shares[member]
            slot = _slot_of(labels[at], mask, sums)
            if slots[slot] >= 0:
                sums.sums[slots[slot]] += weighted
            else:
                slots[slot] = count
                sums.labels[count] = labels[at]
                sums.sums[count] = weighted
                count += 1
        shift += pointers[member, -1]
    return count


@borrowing
def _slot_of(label: Any, mask: Any, sums: _Sums) -> Any:
    """Return the slot of a label, or the one that it may have."""
    labels = sums.labels
    slots = sums.slots
    slot = (np.int64(label) * _HASH_FACTOR >> _HASH_SHIFT) & mask
    while slots[slot] >= 0 and labels[slots[slot]] != label:
        slot = (slot + 1) & mask
    return slot


@borrowing
def _keep_best(
    sums: _Sums,  # IN
    count: int,  # IN  labels of the row
    labels: Any,  # OUT the best of them, as many as there is room for
    scores: Any,  # OUT float32
) -> None:
    """Rank the labels of a row by their sums, rounded to float32."""
    size = labels.shape[0]
    for i in range(count):
        label = sums.labels[i]
        score = np.float32(sums.sums[i])
        if i < size:
            sift_up(scores, labels, 0, i, score, label)
        elif size and better(score, label, scores[0], labels[0]):
            sift_down(scores, labels, 0, size, score, label)
    sort_heap(scores, labels, 0, size)
