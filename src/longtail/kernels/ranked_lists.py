"""A level of beam search in several steps: the pairs of a step, and the nodes of all steps as one
ranking.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.search import Beam

__all__ = ["merge_ranked", "pairs_below", "raised_floors"]


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
