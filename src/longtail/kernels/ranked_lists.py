"""A level of beam search in several steps: which pairs are a step's, and what all steps have found as one ranking."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["merge_ranked", "pairs_below", "raised_floors"]


@kernel
def pairs_below(
    ptr: Any,  # IN  (n + 1,) int64: parents of each document
    parents: Any,  # IN  int32
    scores: Any,  # IN  float32
    floors: Any,  # IN  (n,) float32: parents below are left out, as no child scores above its parent
    first: int,  # IN  parents from here
    last: int,  # IN  to before here
) -> Any:
    """Return (ptr, parents counted from ``first``, scores) of the pairs of a run of parents."""
    ends, count = np.zeros(ptr.shape[0], np.int64), 0
    own, own_scores = np.empty(parents.shape[0], np.int32), np.empty(parents.shape[0], np.float32)
    for document in range(ptr.shape[0] - 1):
        for pair in range(ptr[document], ptr[document + 1]):
            if first <= parents[pair] < last and scores[pair] >= floors[document]:
                own[count], own_scores[count] = parents[pair] - first, scores[pair]
                count += 1
        ends[document + 1] = count
    return ends, own[:count], own_scores[:count]


@kernel
def raised_floors(floors: Any, ptr: Any, scores: Any, limit: int) -> Any:
    """Return floors no lower than the worst of ``limit`` ranked nodes, where a document has so many."""
    raised = floors.copy()
    for document in range(floors.shape[0]):
        if ptr[document + 1] - ptr[document] == limit:
            raised[document] = max(floors[document], scores[ptr[document + 1] - 1])
    return raised


@kernel
def merge_ranked(
    ptr: Any,  # IN  (n + 1,) int64: nodes of each document, from best to worst, ties by position in the level
    nodes: Any,  # IN  int32
    scores: Any,  # IN  float32
    other_ptr: Any,  # IN  the same of nodes that are not among the first
    other_nodes: Any,
    other_scores: Any,
    shift: int,  # IN  to be added to ``other_nodes``
    limit: int,  # IN  nodes kept, a document
) -> Any:
    """Return (ptr, nodes, scores) of the best of both, in the same order."""
    ends = np.zeros(ptr.shape[0], np.int64)
    for document in range(ptr.shape[0] - 1):
        count = ptr[document + 1] - ptr[document] + other_ptr[document + 1] - other_ptr[document]
        ends[document + 1] = ends[document] + min(count, limit)
    merged, merged_scores = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
    for document in range(ptr.shape[0] - 1):
        a, b = ptr[document], other_ptr[document]
        a_end, b_end = ptr[document + 1], other_ptr[document + 1]
        for at in range(ends[document], ends[document + 1]):
            first = b == b_end
            if a < a_end and b < b_end:
                tied = scores[a] == other_scores[b] and nodes[a] < other_nodes[b] + shift
                first = scores[a] > other_scores[b] or tied
            if first:
                merged[at], merged_scores[at] = nodes[a], scores[a]
                a += 1
            else:
                merged[at], merged_scores[at] = other_nodes[b] + shift, other_scores[b]
                b += 1
    return ends, merged, merged_scores
