"""Heaps of scored nodes, one per document, with the worst node on top: they keep the best few."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.jit import borrowing, kernel

__all__ = ["Heaps", "better", "ranked_heaps", "sift_down", "sift_up", "sort_heap"]


class Heaps(NamedTuple):
    """A heap of nodes per document, the worst on top."""

    starts: Any  # (n + 1,) int64
    sizes: Any  # (n,) int64
    nodes: Any  # int32
    scores: Any  # float32


@borrowing
def better(score: Any, node: Any, other_score: Any, other_node: Any) -> Any:
    """Return whether a node ranks before another: falling score, ties by position in the level."""
    return score > other_score or (score == other_score and node < other_node)


@borrowing
def sift_down(scores: Any, nodes: Any, start: int, size: int, score: Any, node: Any) -> None:
    """Let (score, node) sink from the top of the heap that begins at ``start`` and has its worst on
    top.
    """
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        a = start + child
        b = a + 1
        if child + 1 < size and better(scores[a], nodes[a], scores[b], nodes[b]):
            child += 1
            a = b
        if not better(score, node, scores[a], nodes[a]):
            break
        scores[start + at] = scores[a]
        nodes[start + at] = nodes[a]
        at = child
    scores[start + at] = score
    nodes[start + at] = node


@borrowing
def sift_up(scores: Any, nodes: Any, start: int, at: int, score: Any, node: Any) -> None:
    """Let (score, node) rise from position ``at`` of the heap that begins at ``start``."""
    while at > 0:
        parent = (at - 1) >> 1
        if not better(scores[start + parent], nodes[start + parent], score, node):
            break
        scores[start + at] = scores[start + parent]
        nodes[start + at] = nodes[start + parent]
        at = parent
    scores[start + at] = score
    nodes[start + at] = node


@borrowing
def sort_heap(scores: Any, nodes: Any, start: int, size: int) -> None:
    """Turn the heap into a list from best to worst."""
    for last in range(start + size - 1, start, -1):
        score = scores[last]
        node = nodes[last]
        scores[last] = scores[start]
        nodes[last] = nodes[start]
        sift_down(scores, nodes, start, last - start, score, node)


@kernel
def ranked_heaps(heaps: Heaps) -> Any:
    """Sort the heap of each document, close the gaps, and return the fields of a Beam."""
    starts, sizes, nodes, scores = heaps
    pointers = np.zeros(starts.shape[0], np.int64)
    for document in range(sizes.shape[0]):
        start = starts[document]
        to = pointers[document]
        sort_heap(scores, nodes, start, sizes[document])
        pointers[document + 1] = to + sizes[document]
        for i in range(sizes[document]):
            nodes[to + i] = nodes[start + i]
            scores[to + i] = scores[start + i]
    return pointers, nodes[: pointers[-1]], scores[: pointers[-1]]
