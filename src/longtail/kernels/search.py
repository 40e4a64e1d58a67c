"""One step down the label tree for a block of documents: scores the children of each beam and keeps the best."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from longtail.kernels.cache_lines import LANES, LINE, borrowing, from_a_line_on, prefetch
from longtail.kernels.chunks import Level, add_by_buckets, add_by_table, fill_table
from longtail.kernels.dense_block import decode, in_lines, panel_count, sums_of_four, sums_of_one
from longtail.kernels.jit import kernel
from longtail.kernels.vectors import DOCUMENTS, PANEL

__all__ = ["HINGE_2", "HINGE_3", "MARGIN", "SIGMOID", "path_scores", "step_down"]

HINGE_2, HINGE_3, SIGMOID = 0, 1, 2  # what an activation costs; a node's score is exp(−costs along its path)
MARGIN = 3  # a node's score is its activation alone, whatever its path
_GROUP = 16  # documents whose dense part is computed together: a multiple of DOCUMENTS
_AHEAD = 2  # pairs
_FULL_ROWS = 1 << 22  # room for weights of rows written out in full: 16 MB, of which only what is used is touched


@borrowing
def _better(score: Any, node: Any, other_score: Any, other_node: Any) -> Any:
    """The order of a ranking: falling score, ties by position in the level."""
    return score > other_score or (score == other_score and node < other_node)


@borrowing
def _sift_down(scores: Any, nodes: Any, start: int, size: int, score: Any, node: Any) -> None:
    """Let (score, node) sink from the top of the heap that begins at ``start`` and has its worst on top."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        a, b = start + child, start + child + 1
        if child + 1 < size and _better(scores[a], nodes[a], scores[b], nodes[b]):
            child, a = child + 1, b
        if not _better(score, node, scores[a], nodes[a]):
            break
        scores[start + at], nodes[start + at] = scores[a], nodes[a]
        at = child
    scores[start + at], nodes[start + at] = score, node


@borrowing
def _sift_up(scores: Any, nodes: Any, start: int, at: int, score: Any, node: Any) -> None:
    while at > 0:
        parent = (at - 1) >> 1
        if not _better(scores[start + parent], nodes[start + parent], score, node):
            break
        scores[start + at], nodes[start + at] = scores[start + parent], nodes[start + parent]
        at = parent
    scores[start + at], nodes[start + at] = score, node


@borrowing
def _sort(scores: Any, nodes: Any, start: int, size: int) -> None:
    """Turn the heap into a list from best to worst."""
    for last in range(start + size - 1, start, -1):
        score, node = scores[last], nodes[last]
        scores[last], nodes[last] = scores[start], nodes[start]
        _sift_down(scores, nodes, start, last - start, score, node)


@borrowing
def _contains(values: Any, begin: int, end: int, wanted: int) -> Any:
    """Binary search in values[begin:end], which rise."""
    last = end
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    return begin < last and values[begin] == wanted


@borrowing
def _to_log_scores(
    sums: Any,  # IN/OUT (width,) activations in, log scores out
    width: int,  # IN
    parent: Any,  # IN  log score of the parent
    score: int,  # IN  HINGE_2, HINGE_3, SIGMOID or MARGIN
) -> None:
    """log score = parent's − max(0, 1 − v)^p, or − log(1 + e^−v); logs, because products along deep paths reach 0.

    Of a MARGIN, the activation stays.
    """
    if score == MARGIN:
        return
    if score == SIGMOID:
        for i in range(width):
            v = np.float64(sums[i])
            sums[i] = parent - np.float32(max(-v, 0.0) + math.log1p(math.exp(-abs(v))))
    elif score == HINGE_3:
        for i in range(width):
            lack = max(np.float32(1) - sums[i], np.float32(0))
            sums[i] = parent - lack * lack * lack
    else:
        for i in range(width):
            lack = max(np.float32(1) - sums[i], np.float32(0))
            sums[i] = parent - lack * lack


@kernel
def _by_chunk(beam: Any, n_chunks: int, n_documents: int) -> Any:
    """Order (document, chunk) pairs by chunk, so that a chunk is read once a block; one document keeps its order."""
    if n_documents == 1:
        return np.arange(beam.shape[0])
    ends = np.zeros(n_chunks + 1, np.int64)
    for chunk in beam:
        ends[chunk + 1] += 1
    for chunk in range(n_chunks):
        ends[chunk + 1] += ends[chunk]
    order = np.empty(beam.shape[0], np.int64)
    for pair in range(beam.shape[0]):
        order[ends[beam[pair]]] = pair
        ends[beam[pair]] += 1
    return order


@kernel
def _places(beam_ptr: Any, beam: Any, offsets: Any, limit: int) -> Any:
    """Return where the places of each document begin, at most ``limit`` each, and the width of the widest chunk."""
    starts, widest = np.zeros(beam_ptr.shape[0], np.int64), np.int64(0)
    for document in range(beam_ptr.shape[0] - 1):
        count = np.int64(0)
        for pair in range(beam_ptr[document], beam_ptr[document + 1]):
            width = offsets[beam[pair] + 1] - offsets[beam[pair]]
            count += width
            widest = max(widest, width)
        starts[document + 1] = starts[document] + min(count, limit)
    return starts, widest


@borrowing
def _offer(
    candidates: Any,  # IN  (width,) log scores
    width: int,  # IN
    first: int,  # IN  node of the first candidate
    floor: Any,  # IN  candidates below are left out
    labels: Any,  # IN  label of each node, read where something is excluded
    excluded: Any,  # IN  labels that may not come out: those from begin to end, rising
    begin: int,
    end: int,
    scores: Any,  # IN/OUT heap of the document, worst on top, from `start` on
    nodes: Any,  # IN/OUT
    start: int,  # IN
    size: int,  # IN  places taken
    capacity: int,  # IN
) -> Any:
    """Put the candidates that are good enough into the heap; return its new size."""
    for i in range(width):
        score, node = candidates[i], first + i
        if score < floor or (size == capacity and not _better(score, node, scores[start], nodes[start])):
            continue
        if begin < end and _contains(excluded, begin, end, labels[node]):
            continue
        if size < capacity:
            _sift_up(scores, nodes, start, size, score, node)
            size += 1
        else:
            _sift_down(scores, nodes, start, size, score, node)
    return size


@kernel
def _compact(starts: Any, sizes: Any, nodes: Any, scores: Any) -> Any:
    """Sort the heap of each document and close the gaps; return CSR arrays."""
    ptr = np.zeros(starts.shape[0], np.int64)
    for document in range(sizes.shape[0]):
        start, to = starts[document], ptr[document]
        _sort(scores, nodes, start, sizes[document])
        ptr[document + 1] = to + sizes[document]
        for i in range(sizes[document]):
            nodes[to + i], scores[to + i] = nodes[start + i], scores[start + i]
    return ptr, nodes[: ptr[-1]], scores[: ptr[-1]]


@borrowing
def _look_ups(beam: Any, order: Any, at: int, document_of: Any, rows: Any) -> Any:
    """Count the features of all documents that visit the chunk of pair ``at`` from there on."""
    count, chunk = np.int64(0), beam[order[at]]
    while at < order.shape[0] and beam[order[at]] == chunk:
        document = document_of[order[at]]
        count += rows[document + 1] - rows[document]
        at += 1
    return count


@kernel
def _next_documents(beam: Any, order: Any, at: int, document_of: Any, documents: Any) -> Any:
    """Write the documents of the next pairs of a chunk, the last one again where there are fewer; return how many."""
    count = 0
    while count < documents.shape[0] and at + count < order.shape[0] and beam[order[at + count]] == beam[order[at]]:
        documents[count] = document_of[order[at + count]]
        count += 1
    documents[count:] = documents[count - 1]
    return count


@kernel
def _dense_sums(
    weights: Any, table: Any, at: int, dense: Any, documents: Any, group: Any, width: int,
    written: bool,  # IN  whether ``numbers`` holds the weights of the chunk
    numbers: Any,  # IN/OUT
    sums: Any,  # OUT (group, width) of the documents
) -> Any:  # fmt: skip
    """Compute the dense part of the next documents of a chunk; return of how many, and whether weights are written."""
    count, depth = documents.shape[0], dense.shape[1]
    if not written and count < DOCUMENTS:  # too few to write the weights out for
        sums_of_one(weights, table, at, dense[documents[0]], sums[0, :width])
        return 1, False
    if not written:
        decode(weights, table, at, width, depth, numbers)
    sums_of_four(numbers, dense, group[: -(-count // DOCUMENTS) * DOCUMENTS], width, sums)
    return count, True


@borrowing
def _ask_ahead(
    order: Any, at: int, document_of: Any, rows: Any, columns: Any, xs: Any, starts: Any, nodes: Any, scores: Any
) -> None:
    """Ask for what a pair soon to come reads: documents of a chunk lie far from each other."""
    if at + 2 * _AHEAD >= order.shape[0]:
        return
    later = document_of[order[at + 2 * _AHEAD]]
    prefetch(rows, later)
    prefetch(starts, later)
    document = document_of[order[at + _AHEAD]]
    for j in range(rows[document], rows[document + 1], LINE):
        prefetch(columns, j)
        prefetch(xs, j)
    prefetch(nodes, starts[document])
    prefetch(scores, starts[document])


@kernel
def _longest(rows: Any) -> Any:
    """Return the most features of a document."""
    longest = np.int64(0)
    for document in range(rows.shape[0] - 1):
        longest = max(longest, rows[document + 1] - rows[document])
    return longest


@kernel
def _documents(ptr: Any) -> Any:
    """Return the document of each pair."""
    documents = np.empty(ptr[-1], np.int64)
    for document in range(ptr.shape[0] - 1):
        documents[ptr[document] : ptr[document + 1]] = document
    return documents


@kernel
def step_down(
    level: Level,  # IN  ranker of the children
    rows: Any,  # IN  (n + 1,) int64: sparse features of the block's documents
    columns: Any,  # IN  int32
    xs: Any,  # IN  float32
    n_columns: int,  # IN  of the sparse block
    dense: Any,  # IN  (n, dense_width) float32
    beam_ptr: Any,  # IN  (n + 1,) int64: parents of each document
    beam: Any,  # IN  int32
    parents: Any,  # IN  float32 log scores of the parents
    bias: Any,  # IN  float32 value of the bias feature
    score: int,  # IN  HINGE_2, HINGE_3, SIGMOID or MARGIN
    limit: int,  # IN  children kept, a document
    floors: Any,  # IN  (n,) float32 log scores below which no child is kept
    labels: Any,  # IN  label of each node
    excluded_ptr: Any,  # IN  (n + 1,) int64: labels that may not come out, rising in a row
    excluded: Any,  # IN  int32
) -> Any:
    """Return (ptr, nodes, log scores) of the best children of each document's beam, best first."""
    offsets, heads, shifts, level_starts, lows, siblings, values, table, biases, weights, dense_table = level
    n_documents = beam_ptr.shape[0] - 1
    starts, widest = _places(beam_ptr, beam, offsets, limit)
    sizes = np.zeros(n_documents, np.int64)
    nodes, scores = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    order, document_of = _by_chunk(beam, offsets.shape[0] - 1, n_documents), _documents(beam_ptr)
    sums, found = np.empty(widest + LANES, np.float32), np.empty((2, _longest(rows) + 1), np.int64)
    row_starts = np.zeros(n_columns if n_documents > 1 else 0, np.int32)
    full_rows = from_a_line_on(_FULL_ROWS if n_documents > 1 else 0)
    filled, n_filled = np.empty(n_columns if n_documents > 1 else 0, np.int32), np.int64(0)
    dense_sums, group = np.empty((_GROUP, max(widest, PANEL)), np.float32), np.empty(_GROUP, np.int64)
    dense_weights = in_lines(panel_count(widest) * dense.shape[1] * PANEL if n_documents > 1 else 0)
    chunk, by_table, group_at, in_group, written = np.int64(-1), False, 0, 0, False
    for at in range(order.shape[0]):
        pair = order[at]
        document = document_of[pair]
        start, capacity = starts[document], starts[document + 1] - starts[document]
        _ask_ahead(order, at, document_of, rows, columns, xs, starts, nodes, scores)
        full = sizes[document] == capacity and score != MARGIN
        if full and parents[pair] < scores[start]:  # no child scores above its parent
            continue
        if beam[pair] != chunk:
            for row in range(n_filled):
                row_starts[filled[row]] = 0
            chunk, n_filled, in_group, written = np.int64(beam[pair]), np.int64(0), 0, False
            n_rows = heads[chunk + 1, 1] - heads[chunk, 1]
            look_ups = _look_ups(beam, order, at, document_of, rows)
            by_table = n_documents > 1 and look_ups > n_rows  # to write a row takes as long as to look one up
            if by_table:
                n_filled = fill_table(
                    heads, shifts, level_starts, lows, siblings, values, table, n_columns, chunk,
                    offsets[chunk + 1] - offsets[chunk], row_starts, full_rows, filled,
                )  # fmt: skip
        first, begin, end = offsets[chunk], rows[document], rows[document + 1]
        width = offsets[chunk + 1] - first
        for i in range(width):
            sums[i] = bias * biases[first + i]
        if by_table:
            add_by_table(
                heads, siblings, values, table, row_starts, full_rows, width, chunk, columns, xs, begin, end, found,
                sums,
            )  # fmt: skip
        else:
            add_by_buckets(
                heads, shifts, level_starts, lows, siblings, values, table, n_columns, chunk, columns, xs, begin, end,
                found, sums,
            )  # fmt: skip
        if dense.shape[1] and at >= group_at + in_group:
            group_at, documents = at, group[: _next_documents(beam, order, at, document_of, group)]
            in_group, written = _dense_sums(
                weights, dense_table, first * dense.shape[1], dense, documents, group, width, written, dense_weights,
                dense_sums,
            )  # fmt: skip
        for i in range(width if dense.shape[1] else 0):
            sums[i] += dense_sums[at - group_at, i]
        _to_log_scores(sums, width, parents[pair], score)
        sizes[document] = _offer(
            sums, width, first, floors[document], labels, excluded, excluded_ptr[document], excluded_ptr[document + 1],
            scores, nodes, start, sizes[document], capacity,
        )  # fmt: skip
    return _compact(starts, sizes, nodes, scores)


@kernel
def path_scores(log_scores: Any) -> Any:
    """Return the products along the paths; in float64 on the way, so that a value never depends on its place."""
    scores = np.empty(log_scores.shape[0], np.float32)
    for i in range(log_scores.shape[0]):
        scores[i] = math.exp(np.float64(log_scores[i]))
    return scores
