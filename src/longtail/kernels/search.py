"""One level of beam search for a block of documents: scores the children of each beam, and keeps
the best.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.chunks import Level, RowTable, add_by_buckets, add_by_table, fill_table
from longtail.kernels.dense_block import decode, panel_count, sums_of_four, sums_of_one
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.heaps import Heaps, better, ranked_heaps, sift_down, sift_up
from longtail.kernels.jit import borrowing, kernel
from longtail.kernels.row_products import DOCUMENTS, PANEL
from longtail.kernels.simd import LANES, LINE, aligned_zeros, cache_aligned, prefetch

__all__ = ["HINGE_2", "HINGE_3", "MARGIN", "SIGMOID", "Beam", "Candidates", "step_down"]

# the cost of an activation; a node's score is exp(−costs along its path)
HINGE_2 = 0
HINGE_3 = 1
SIGMOID = 2
MARGIN = 3  # a node's score is its activation alone, whatever its path
_GROUP = 16  # documents whose dense part is computed together: a multiple of DOCUMENTS
_AHEAD = 2  # pairs
_FULL_ROWS = 1 << 22  # numbers of rows written out in full: 16 MB, touched only as far as used


class Beam(NamedTuple):
    """Nodes of a level per document, from best to worst."""

    pointers: Any  # (n + 1,) int64
    nodes: Any  # int32
    scores: Any  # float32 log scores, or margins


class Candidates(NamedTuple):
    """Which children may be kept."""

    floors: Any  # (n,) float32 log scores below which no child is kept
    labels: Any  # the label of each node, read where labels are excluded
    pointers: Any  # (n + 1,) int64
    excluded: Any  # int32 labels excluded per document, rising


class _Pairs(NamedTuple):
    """The pairs of a document and a chunk that it visits."""

    chunks: Any  # int32, the chunk of each pair
    documents: Any  # int64, the document of each pair
    order: Any  # int64, the pairs in the order in which they are scored


class _Step(NamedTuple):
    """One level of the search: what is read."""

    level: Level
    features: FeatureRows
    parents: Any  # float32 log scores of the parents, by pair
    pairs: _Pairs
    bias: Any  # float32, value of the bias feature
    score: int  # HINGE_2, HINGE_3, SIGMOID or MARGIN


class _DenseGroup(NamedTuple):
    """Room for the dense part of a group of documents."""

    documents: Any  # (_GROUP,) int64
    weights: Any  # float32, the weights of a chunk as numbers
    sums: Any  # (_GROUP, siblings) float32


class _Room(NamedTuple):
    """Room for the sums of a chunk, and for what is prepared where several documents visit it."""

    sums: Any  # float32, the children of a chunk rounded up to LANES
    scratch: Any  # (2, > features of a document) int64
    table: RowTable
    group: _DenseGroup


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
    """Compute log scores: the parent's − max(0, 1 − v)^p, or − log(1 + e^−v).

    Logs, because products along deep paths reach 0. Of a MARGIN, the activation stays.
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
def _pairs(beam: Beam, n_chunks: int) -> _Pairs:
    """Order (document, chunk) pairs by chunk, so that a chunk is read once per block of documents.

    The pairs of one document alone keep their order.
    """
    n_documents = beam.pointers.shape[0] - 1
    pointers = beam.pointers
    chunks = beam.nodes
    documents = np.empty(pointers[-1], np.int64)
    for document in range(n_documents):
        documents[pointers[document] : pointers[document + 1]] = document
    if n_documents == 1:
        return _Pairs(chunks, documents, np.arange(chunks.shape[0]))
    ends = np.zeros(n_chunks + 1, np.int64)
    for chunk in chunks:
        ends[chunk + 1] += 1
    for chunk in range(n_chunks):
        ends[chunk + 1] += ends[chunk]
    order = np.empty(chunks.shape[0], np.int64)
    for pair in range(chunks.shape[0]):
        order[ends[chunks[pair]]] = pair
        ends[chunks[pair]] += 1
    return _Pairs(chunks, documents, order)


@kernel
def _heaps(beam: Beam, offsets: Any, limit: int) -> Any:
    """Return empty heaps of at most ``limit`` nodes, and the width of the widest chunk of the
    beam.
    """
    pointers, chunks, _ = beam
    n_documents = pointers.shape[0] - 1
    starts = np.zeros(n_documents + 1, np.int64)
    widest = np.int64(0)
    for document in range(n_documents):
        count = np.int64(0)
        for pair in range(pointers[document], pointers[document + 1]):
            width = offsets[chunks[pair] + 1] - offsets[chunks[pair]]
            count += width
            widest = max(widest, width)
        starts[document + 1] = starts[document] + min(count, limit)
    sizes = np.zeros(n_documents, np.int64)
    nodes = np.empty(starts[-1], np.int32)
    scores = np.empty(starts[-1], np.float32)
    return Heaps(starts, sizes, nodes, scores), widest


@borrowing
def _offer(
    sums: Any,  # IN  (width,) log scores of the children of a chunk
    width: int,  # IN
    first: int,  # IN  node of the first child
    document: int,  # IN
    candidates: Candidates,  # IN
    heaps: Heaps,  # IN/OUT
) -> None:
    """Put the children that may be kept and are good enough into the heap of a document."""
    labels = candidates.labels
    excluded = candidates.excluded
    scores = heaps.scores
    nodes = heaps.nodes
    floor = candidates.floors[document]
    begin = candidates.pointers[document]
    end = candidates.pointers[document + 1]
    start = heaps.starts[document]
    capacity = heaps.starts[document + 1] - start
    size = heaps.sizes[document]
    for i in range(width):
        score = sums[i]
        node = first + i
        if score < floor:
            continue
        if size == capacity and not better(score, node, scores[start], nodes[start]):
            continue
        if begin < end and _contains(excluded, begin, end, labels[node]):
            continue
        if size < capacity:
            sift_up(scores, nodes, start, size, score, node)
            size += 1
        else:
            sift_down(scores, nodes, start, size, score, node)
    heaps.sizes[document] = size


@borrowing
def _end_of_chunk(pairs: _Pairs, at: int) -> Any:
    """Return where the pairs that visit the chunk of pair ``at`` end."""
    chunks, _, order = pairs
    chunk = chunks[order[at]]
    while at < order.shape[0] and chunks[order[at]] == chunk:
        at += 1
    return at


@borrowing
def _pays_table(step: _Step, begin: Any, end: Any, room: _Room) -> Any:
    """Return whether some pairs of a chunk look up more features than it has rows: to write a row
    into the table takes as long as to look one up.
    """
    if room.table.columns.shape[0] == 0:
        return False
    pairs = step.pairs
    heads = step.level.heads
    rows = step.features.pointers
    chunk = pairs.chunks[pairs.order[begin]]
    count = np.int64(0)
    for at in range(begin, end):
        document = pairs.documents[pairs.order[at]]
        count += rows[document + 1] - rows[document]
    return count > heads[chunk + 1, 1] - heads[chunk, 1]


@kernel
def _next_documents(pairs: _Pairs, begin: int, end: int, documents: Any) -> Any:
    """Write the documents of the next pairs of a chunk; return how many.

    Where there are fewer than fit, the last one is written again.
    """
    order = pairs.order
    count = min(end - begin, documents.shape[0])
    for i in range(count):
        documents[i] = pairs.documents[order[begin + i]]
    documents[count:] = documents[count - 1]
    return count


@kernel
def _dense_sums(
    level: Level,  # IN
    at: int,  # IN  where the dense weights of the chunk begin
    width: int,  # IN  siblings of the chunk
    dense: Any,  # IN  (n, dense_width) float32
    count: int,  # IN  documents of the group
    is_decoded: bool,  # IN  whether the group holds the weights of the chunk
    group: _DenseGroup,  # IN/OUT
) -> Any:
    """Compute the dense part of the first documents of a group.

    Returns of how many, and whether the weights are decoded.
    """
    if not is_decoded and count < DOCUMENTS:  # too few to write the weights out for
        row = dense[group.documents[0]]
        sums_of_one(level.dense, level.dense_table, at, row, group.sums[0, :width])
        return 1, False
    if not is_decoded:
        decode(level.dense, level.dense_table, at, width, dense.shape[1], group.weights)
    documents = group.documents[: -(-count // DOCUMENTS) * DOCUMENTS]
    sums_of_four(group.weights, dense, documents, width, group.sums)
    return count, True


@borrowing
def _prefetch_next(pairs: _Pairs, at: int, features: FeatureRows, heaps: Heaps) -> None:
    """Prefetch the data of a pair soon to come: documents of a chunk lie far from each other."""
    order = pairs.order
    if at + 2 * _AHEAD >= order.shape[0]:
        return
    later = pairs.documents[order[at + 2 * _AHEAD]]
    prefetch(features.pointers, later)
    prefetch(heaps.starts, later)
    document = pairs.documents[order[at + _AHEAD]]
    for j in range(features.pointers[document], features.pointers[document + 1], LINE):
        prefetch(features.columns, j)
        prefetch(features.values, j)
    prefetch(heaps.nodes, heaps.starts[document])
    prefetch(heaps.scores, heaps.starts[document])


@kernel
def _longest(rows: Any) -> Any:
    """Return the most features of a document."""
    longest = np.int64(0)
    for document in range(rows.shape[0] - 1):
        longest = max(longest, rows[document + 1] - rows[document])
    return longest


@kernel
def _room(features: FeatureRows, widest: int, n_documents: int) -> _Room:
    """Return room for chunks of up to ``widest`` children.

    A single document visits each chunk once: neither a table nor decoded weights pay.
    """
    several = n_documents > 1
    n_columns = several * features.n_columns
    table = RowTable(
        np.zeros(n_columns, np.int32),
        cache_aligned(several * _FULL_ROWS),
        np.empty(n_columns, np.int32),
    )
    group = _DenseGroup(
        np.empty(_GROUP, np.int64),
        aligned_zeros(several * panel_count(widest) * features.dense.shape[1] * PANEL),
        np.empty((_GROUP, max(widest, PANEL)), np.float32),
    )
    scratch = np.empty((2, _longest(features.pointers) + 1), np.int64)
    return _Room(np.empty(widest + LANES, np.float32), scratch, table, group)


@borrowing
def _clear(table: RowTable, n_filled: Any) -> None:
    """Remove the rows of a chunk from the table."""
    row_starts = table.row_starts
    columns = table.columns
    for row in range(n_filled):
        row_starts[columns[row]] = 0


@borrowing
def _sum_sparse(
    step: _Step,  # IN
    chunk: Any,  # IN
    document: int,  # IN
    by_table: Any,  # IN  whether the table holds the rows of the chunk
    room: _Room,  # OUT sums of the children
) -> None:
    """Compute the activations of the children of a chunk by bias and sparse features."""
    level = step.level
    offsets = level.offsets
    biases = level.bias
    sums = room.sums
    first = offsets[chunk]
    for i in range(offsets[chunk + 1] - first):
        sums[i] = step.bias * biases[first + i]
    if by_table:
        add_by_table(level, chunk, room.table, step.features, document, room.scratch, sums)
    else:
        add_by_buckets(level, chunk, step.features, document, room.scratch, sums)


@borrowing
def _is_pruned(step: _Step, pair: Any, heaps: Heaps) -> Any:
    """Return whether a full heap has no node below the parent's score: no child scores above it."""
    document = step.pairs.documents[pair]
    start = heaps.starts[document]
    is_full = heaps.sizes[document] == heaps.starts[document + 1] - start
    return step.score != MARGIN and is_full and step.parents[pair] < heaps.scores[start]


@borrowing
def _first_visit(step: _Step, begin: int, end: int, heaps: Heaps) -> Any:
    """Return the first of some pairs that is not pruned."""
    order = step.pairs.order
    while begin < end and _is_pruned(step, order[begin], heaps):
        _prefetch_next(step.pairs, begin, step.features, heaps)
        begin += 1
    return begin


@borrowing
def _visit_chunk(
    step: _Step,  # IN
    begin: Any,  # IN  the first pair that visits the chunk
    end: Any,  # IN  behind the last one
    candidates: Candidates,  # IN
    room: _Room,  # buffers
    heaps: Heaps,  # IN/OUT
) -> None:
    """Score the children of a chunk for the documents that visit it, and keep the best."""
    level = step.level
    features = step.features
    pairs = step.pairs
    chunk = np.int64(pairs.chunks[pairs.order[begin]])
    first = level.offsets[chunk]
    width = level.offsets[chunk + 1] - first
    depth = features.dense.shape[1]
    by_table = _pays_table(step, begin, end, room)
    n_filled = np.int64(0)
    if by_table:
        n_filled = fill_table(level, chunk, features.n_columns, room.table)
    group_at = begin
    group_end = begin
    is_decoded = False
    for at in range(begin, end):
        pair = pairs.order[at]
        document = pairs.documents[pair]
        _prefetch_next(pairs, at, features, heaps)
        if _is_pruned(step, pair, heaps):
            continue
        _sum_sparse(step, chunk, document, by_table, room)
        if depth and at >= group_end:
            group_at = at
            count = _next_documents(pairs, at, end, room.group.documents)
            count, is_decoded = _dense_sums(
                level, first * depth, width, features.dense, count, is_decoded, room.group
            )
            group_end = at + count
        if depth:
            for i in range(width):
                room.sums[i] += room.group.sums[at - group_at, i]
        _to_log_scores(room.sums, width, step.parents[pair], step.score)
        _offer(room.sums, width, first, document, candidates, heaps)
    _clear(room.table, n_filled)


@kernel
def step_down(
    level: Level,  # IN  ranker of the children
    features: FeatureRows,  # IN  of the documents
    beam: Beam,  # IN  parents
    bias: Any,  # IN  float32, value of the bias feature
    score: int,  # IN  HINGE_2, HINGE_3, SIGMOID or MARGIN
    limit: int,  # IN  children kept per document
    candidates: Candidates,  # IN
) -> Any:
    """Return the fields of the Beam of best children, as a plain tuple, which is cheaper."""
    pairs = _pairs(beam, level.offsets.shape[0] - 1)
    step = _Step(level, features, beam.scores, pairs, bias, score)
    heaps, widest = _heaps(beam, level.offsets, limit)
    room = _room(features, widest, beam.pointers.shape[0] - 1)
    begin = 0
    while begin < pairs.order.shape[0]:
        end = _end_of_chunk(pairs, begin)
        begin = _first_visit(step, begin, end, heaps)
        if begin < end:
            _visit_chunk(step, begin, end, candidates, room, heaps)
        begin = end
    return ranked_heaps(heaps)
