"""Products of a document and a chunk: sums of the weights of all children of one node.

Masked sparse chunk multiplication (Etter, Zhong, Yu, Ying, Dhillon 2022, algorithm 3): a chunk
holds the weights of all children of a node, row by feature column, so one look-up of a column
serves all siblings.

A chunk is cut into buckets of 2^shift columns and a row keeps only the low bits of its column, as
in Elias-Fano coding. Numbers wider than a byte lie in planes: the low bytes of all of them, then
the next bytes of all of them. So each chunk has the width that it needs, while kernels see one
type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import borrowing
from longtail.kernels.simd import (
    BYTES,
    LANES,
    LINE,
    add_multiple,
    lowest_bit,
    matches,
    prefetch,
)

__all__ = ["GROUP_BITS", "LAST", "LONG", "SIBLING_BITS", "Level", "RowTable", "add_by_buckets"]
__all__ += ["add_by_table", "decoded", "fill_table", "start_of"]

SIBLING_BITS = 7  # in the first plane of siblings
LAST = 1 << SIBLING_BITS  # beside them: no further entry in this row
LONG = 1 << 16  # a chunk of this many entries has a second plane of starts
GROUP_BITS = 2  # log2 of the rows that share a start among the entries


class Level(NamedTuple):
    """The arrays of one level's ranker; planes as the head of this file says."""

    offsets: Any  # int64 (n_chunks + 1,) first node of each chunk
    # int64 (n_chunks + 1, 4) first start, first byte of columns, first entry, first sibling byte
    heads: Any
    shifts: Any  # uint8 (n_chunks,) a bucket spans 2^shift columns
    # uint16: the first row of each bucket and of the end, then the first entry of each row group
    starts: Any
    columns: Any  # uint8: low bits of the column of each row
    siblings: Any  # uint8: the child that each entry belongs to, and LAST
    values: Any  # float32, or codes: uint8 or uint16 positions in `table`
    table: Any  # float32
    bias: Any  # float32 (n_nodes,) weight of the bias feature
    dense: Any  # (dense_width, n_siblings) of each chunk end to end; float32 or codes like `values`
    dense_table: Any  # float32


class RowTable(NamedTuple):
    """Where the rows of a chunk begin, by column."""

    # int32 (n_columns,): the first entry of each column's row, counted from 1 within the chunk, or
    # the row's number in ``full_rows``, counted from −1 downwards; 0 where it has none
    row_starts: Any
    full_rows: Any  # float32, room for rows with a number for each sibling
    columns: Any  # int32 (n_columns,), room for the columns that have a row


class _Shape(NamedTuple):
    """Where a chunk lies in the arrays of its level, and how it is packed."""

    start_at: Any  # its first start,
    low_at: Any  # first byte of columns,
    entry_at: Any  # first entry,
    sibling_at: Any  # and first byte of siblings
    n_entries: Any
    n_rows: Any
    shift: Any  # a bucket spans 2^shift columns
    low_more: Any  # planes of columns after the first
    more: Any  # planes of siblings after the first
    is_long: Any  # whether starts have a second plane,
    stride: Any  # and how far it is from the first


class _Entries(NamedTuple):
    """The entries of a chunk: arrays of a level, and the planes of siblings."""

    siblings: Any
    values: Any
    table: Any
    stride: Any  # from plane to plane
    more: Any  # planes after the first


def decoded(values: Any, table: Any, at: Any) -> Any:
    """Return the weight at a position: a code of the table, or the number itself."""
    return table[values[at]] if values.dtype.kind == "u" else values[at]


@overload(decoded)
def decoded_by_type(values: Any, table: Any, at: Any) -> Any:
    """Choose when a kernel is compiled: numba would refuse the branch of the other type."""

    def number(values: Any, table: Any, at: Any) -> Any:
        return values[at]

    def code(values: Any, table: Any, at: Any) -> Any:
        return table[values[at]]

    return number if isinstance(values.dtype, types.Float) else code


@borrowing
def _wide(planes: Any, at: int, stride: int, more: Any, bits: int) -> Any:
    """Put a number together: ``bits`` bits of the first plane, then ``more`` planes of bytes."""
    number = np.int64(planes[at]) & ((1 << bits) - 1)
    for _ in range(more):
        at += stride
        number |= np.int64(planes[at]) << bits
        bits += 8
    return number


@borrowing
def start_of(starts: Any, at: int, stride: int, is_long: Any) -> Any:
    """Return a number of ``starts``; ``stride`` numbers on lie the high halves of long chunks."""
    start = np.int64(starts[at])
    if is_long:
        start |= np.int64(starts[at + stride]) << 16
    return start


@borrowing
def _find_low(
    lows: Any, at: int, stride: int, more: Any, first: int, last: int, wanted: Any
) -> Any:
    """Return the row from first to last that has these low bits, or -1."""
    while last - first > BYTES:
        middle = (first + last) >> 1
        if _wide(lows, at + middle, stride, more, 8) <= wanted:
            first = middle
        else:
            last = middle
    same = matches(lows, at + first, wanted & 255)
    row = first + lowest_bit(same)
    while more and row < last and _wide(lows, at + row, stride, more, 8) != wanted:
        same &= same - np.uint32(1)
        row = first + lowest_bit(same)
    return row if row < last else np.int64(-1)


@borrowing
def _shape(level: Level, chunk: Any) -> _Shape:
    """Return the shape of a chunk."""
    heads = level.heads
    start_at = heads[chunk, 0]
    low_at = heads[chunk, 1]
    entry_at = heads[chunk, 2]
    sibling_at = heads[chunk, 3]
    n_entries = heads[chunk + 1, 2] - entry_at
    shift = np.int64(level.shifts[chunk])
    low_more = 0 if shift <= 8 else (shift - 1) >> 3
    n_rows = (heads[chunk + 1, 1] - low_at) // (low_more + 1)
    more = (heads[chunk + 1, 3] - sibling_at) // max(n_entries, 1) - 1
    is_long = n_entries >= LONG
    stride = (heads[chunk + 1, 0] - start_at) >> 1
    return _Shape(
        start_at,
        low_at,
        entry_at,
        sibling_at,
        n_entries,
        n_rows,
        shift,
        low_more,
        more,
        is_long,
        stride,
    )


@borrowing
def _add_row(entries: _Entries, entry: int, sibling_at: int, x: Any, sums: Any) -> None:
    """Add x times the entries of a row, which begins at ``entry`` of values, ``sibling_at`` of
    siblings.
    """
    siblings, values, table, stride, more = entries
    while more == 0:  # as in nearly every chunk; apart, because this is the hottest loop
        sibling = siblings[sibling_at]
        sums[sibling & np.uint8(LAST - 1)] += x * decoded(values, table, entry)
        if sibling >= LAST:
            return
        entry += 1
        sibling_at += 1
    while True:
        weight = decoded(values, table, entry)
        sums[_wide(siblings, sibling_at, stride, more, SIBLING_BITS)] += x * weight
        if siblings[sibling_at] >= LAST:
            return
        entry += 1
        sibling_at += 1


@borrowing
def _prefetch_buckets(starts: Any, shape: _Shape, features: FeatureRows, document: int) -> None:
    """Prefetch the starts of the buckets of a document's columns."""
    columns = features.columns
    for j in range(features.pointers[document], features.pointers[document + 1]):
        at = shape.start_at + (np.int64(columns[j]) >> shape.shift)
        prefetch(starts, at)
        if shape.is_long:
            prefetch(starts, at + shape.stride)


@borrowing
def _prefetch_columns(level: Level, shape: _Shape, features: FeatureRows, document: int) -> None:
    """Prefetch the columns in the buckets, and the starts of their groups."""
    starts = level.starts
    lows = level.columns
    columns = features.columns
    group_at = shape.start_at + (features.n_columns >> shape.shift) + 2
    for j in range(features.pointers[document], features.pointers[document + 1]):
        at = shape.start_at + (np.int64(columns[j]) >> shape.shift)
        first = start_of(starts, at, shape.stride, shape.is_long)
        for plane in range(shape.low_more + 1):
            prefetch(lows, shape.low_at + first + plane * shape.n_rows)
        prefetch(starts, group_at + (first >> GROUP_BITS))
        if shape.is_long:
            prefetch(starts, group_at + (first >> GROUP_BITS) + shape.stride)


@borrowing
def _find_rows(
    level: Level, shape: _Shape, features: FeatureRows, document: int, scratch: Any
) -> Any:
    """Write the columns that have a row, each with the start of its group and its rank in there;
    return how many, and prefetch the rows.
    """
    starts = level.starts
    siblings = level.siblings
    values = level.values
    columns = features.columns
    group_at = shape.start_at + (features.n_columns >> shape.shift) + 2
    count = 0
    for j in range(features.pointers[document], features.pointers[document + 1]):
        column = np.int64(columns[j])
        at = shape.start_at + (column >> shape.shift)
        first = start_of(starts, at, shape.stride, shape.is_long)
        last = start_of(starts, at + 1, shape.stride, shape.is_long)
        low_bits = column & ((1 << shape.shift) - 1)
        row = _find_low(
            level.columns, shape.low_at, shape.n_rows, shape.low_more, first, last, low_bits
        )
        if row >= 0:
            entry = start_of(starts, group_at + (row >> GROUP_BITS), shape.stride, shape.is_long)
            prefetch(siblings, shape.sibling_at + entry)
            prefetch(values, shape.entry_at + entry)
            # rows before it in its group may fill a line
            prefetch(values, shape.entry_at + entry + 32)
            scratch[0, count] = j
            scratch[1, count] = entry << GROUP_BITS | row & ((1 << GROUP_BITS) - 1)
            count += 1
    return count


@borrowing
def add_by_buckets(
    level: Level,  # IN
    chunk: Any,  # IN
    features: FeatureRows,  # IN
    document: int,  # IN
    scratch: Any,  # buffer (2, ≥ features of the document) int64
    sums: Any,  # IN/OUT (n_siblings,) columns add to it in their order
) -> None:
    """Look each column up in its bucket: for a chunk that few documents visit.

    Most of the time would go into waiting for memory. So each step is done for all columns before
    the next one, and prefetches its data: starts of buckets; columns in them; entries of the rows.
    """
    siblings = level.siblings
    values = level.values
    xs = features.values
    shape = _shape(level, chunk)
    entry_at = shape.entry_at
    sibling_at = shape.sibling_at
    if shape.n_entries == 0:
        return
    _prefetch_buckets(level.starts, shape, features, document)
    _prefetch_columns(level, shape, features, document)
    count = _find_rows(level, shape, features, document, scratch)
    entries = _Entries(siblings, values, level.table, shape.n_entries, shape.more)
    for i in range(count):
        entry = scratch[1, i] >> GROUP_BITS
        for _ in range(scratch[1, i] & ((1 << GROUP_BITS) - 1)):  # rows before it in its group
            while siblings[sibling_at + entry] < LAST:
                entry += 1
            entry += 1
        _add_row(entries, entry_at + entry, sibling_at + entry, xs[scratch[0, i]], sums)


@borrowing
def fill_table(level: Level, chunk: Any, n_columns: int, table: RowTable) -> Any:
    """Write where each row of a chunk begins; return how many rows there are.

    This is one pass, after which a look-up is one read. A row that at least a sixteenth of the
    siblings have is written out in full, zeros and all, as far as there is room: such rows are
    those of frequent words, and adding one is then SIMD, faster than entry by entry. Where 16
    children share a parent, that is every row."""
    starts = level.starts
    lows = level.columns
    siblings = level.siblings
    row_starts = table.row_starts
    full_rows = table.full_rows
    filled = table.columns
    width = level.offsets[chunk + 1] - level.offsets[chunk]
    shape = _shape(level, chunk)
    sibling_at = shape.sibling_at
    lanes = (width + LANES - 1) // LANES * LANES
    room = np.int64(0)
    if shape.more == 0:
        room = full_rows.shape[0] // lanes
    n_full = np.int64(0)
    entry = np.int64(0)
    row = np.int64(0)
    for bucket in range((n_columns >> shape.shift) + 1):
        last = start_of(starts, shape.start_at + bucket + 1, shape.stride, shape.is_long)
        while row < last:
            low_bits = _wide(lows, shape.low_at + row, shape.n_rows, shape.low_more, 8)
            column = (bucket << shape.shift) | low_bits
            begin = entry
            while siblings[sibling_at + entry] < LAST:
                entry += 1
            entry += 1
            filled[row] = column
            row += 1
            if 16 * (entry - begin) < width or n_full == room:
                row_starts[column] = begin + 1
            else:
                row_starts[column] = -1 - n_full
                at = n_full * lanes
                for k in range(np.uint64(at), np.uint64(at + lanes)):  # unsigned: none below 0
                    full_rows[k] = 0
                for k in range(begin, entry):
                    sibling = siblings[sibling_at + k] & np.uint8(LAST - 1)
                    full_rows[at + sibling] = decoded(level.values, level.table, shape.entry_at + k)
                n_full += 1
    return row


@borrowing
def add_by_table(
    level: Level,  # IN
    chunk: Any,  # IN
    table: RowTable,  # IN  from `fill_table`
    features: FeatureRows,  # IN
    document: int,  # IN
    scratch: Any,  # buffer (2, > features of the document) int64
    sums: Any,  # IN/OUT (n_siblings,) rounded up to LANES, the same additions as `add_by_buckets`
) -> None:
    """Look each column up in the table: for a chunk that many documents visit.

    Columns that have a row are gathered first, without a branch that could be guessed wrong, and
    their rows prefetched."""
    siblings = level.siblings
    values = level.values
    columns = features.columns
    xs = features.values
    row_starts = table.row_starts
    full_rows = table.full_rows
    entry_at = level.heads[chunk, 2]
    sibling_at = level.heads[chunk, 3]
    n_entries = level.heads[chunk + 1, 2] - entry_at
    more = (level.heads[chunk + 1, 3] - sibling_at) // max(n_entries, 1) - 1
    entries = _Entries(siblings, values, level.table, n_entries, more)
    width = level.offsets[chunk + 1] - level.offsets[chunk]
    lanes = (width + LANES - 1) // LANES * LANES
    count = np.int64(0)
    for j in range(features.pointers[document], features.pointers[document + 1]):
        start = np.int64(row_starts[columns[j]])
        scratch[0, count] = j
        scratch[1, count] = start
        count += np.int64(start != 0)
    for i in range(count):
        start = scratch[1, i]
        if start > 0:
            prefetch(siblings, sibling_at + start - 1)
            prefetch(values, entry_at + start - 1)
        else:
            for at in range((-1 - start) * lanes, -start * lanes, LINE):
                prefetch(full_rows, at)
    for i in range(count):
        start = scratch[1, i]
        x = xs[scratch[0, i]]
        if start < 0:
            add_multiple(sums, x, full_rows, (-1 - start) * lanes, lanes)
        else:
            entry = start - 1
            _add_row(entries, entry_at + entry, sibling_at + entry, x, sums)
