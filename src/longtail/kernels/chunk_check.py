"""Validation of the packed weights of a level, which all other kernels read without bounds checks.

One pass over what leads to other arrays: starts, the highest bytes of columns, and siblings.
Weights are not looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longtail.kernels.chunks import GROUP_BITS, LAST, LONG, SIBLING_BITS, start_of
from longtail.kernels.jit import kernel
from longtail.kernels.simd import BYTES, at_least, count_ones

__all__ = ["LevelIndex", "first_unsound"]

_LARGEST_SHIFT = 24
_BLOCK_BITS = 5  # log2 of BYTES
_GROUP = 1 << GROUP_BITS


class LevelIndex(NamedTuple):
    """The arrays of a :class:`Level` that lead to others.

    ``heads`` and ``offsets`` are known to rise from 0 to the ends of the others.
    """

    offsets: Any
    heads: Any
    shifts: Any
    starts: Any
    columns: Any
    siblings: Any


class _Chunk(NamedTuple):
    """A chunk as its heads and its shift describe it."""

    start_at: Any  # its first start,
    column_at: Any  # first byte of columns,
    sibling_at: Any  # and first byte of siblings
    n_starts: Any
    n_column_bytes: Any
    n_sibling_bytes: Any
    width: Any  # children
    n_entries: Any
    n_rows: Any
    shift: Any  # a bucket spans 2^shift columns
    column_planes: Any
    n_buckets: Any  # starts of buckets, that of the end included
    is_long: Any  # whether starts have a second plane,
    stride: Any  # and how far it is from the first


@kernel
def first_unsound(first: int, last: int, index: LevelIndex, n_columns: int) -> Any:
    """Return the first of the chunks first..last - 1 that would lead a kernel out of its own rows
    and siblings, or −1.
    """
    heads = index.heads
    starts = index.starts
    siblings = index.siblings
    longest = np.int64(0)
    for number in range(first, last):
        longest = max(longest, heads[number + 1, 2] - heads[number, 2])
    ends = np.empty((longest >> _BLOCK_BITS) + 1, np.uint32)
    rows = np.empty((longest >> _BLOCK_BITS) + 1, np.int64)
    for number in range(first, last):
        chunk = _chunk(index, number, n_columns)
        if not (
            _sizes_fit(chunk, n_columns)
            and _rows_fit(starts, chunk)
            and _columns_fit(index.columns, starts, chunk, n_columns)
            and _entries_fit(siblings, starts, chunk, ends, rows)
            and _siblings_fit(siblings, chunk)
        ):
            return number
    return -1


@kernel
def _chunk(index: LevelIndex, number: Any, n_columns: int) -> _Chunk:
    """Return a chunk by its number in the level."""
    heads = index.heads
    n_starts = heads[number + 1, 0] - heads[number, 0]
    n_column_bytes = heads[number + 1, 1] - heads[number, 1]
    n_entries = heads[number + 1, 2] - heads[number, 2]
    n_sibling_bytes = heads[number + 1, 3] - heads[number, 3]
    width = index.offsets[number + 1] - index.offsets[number]
    shift = np.int64(index.shifts[number])
    column_planes = max((shift + 7) >> 3, 1)
    n_buckets = (n_columns >> shift) + 2
    is_long = n_entries >= LONG
    stride = n_starts
    if is_long:
        stride = n_starts >> 1
    return _Chunk(
        heads[number, 0],
        heads[number, 1],
        heads[number, 3],
        n_starts,
        n_column_bytes,
        n_sibling_bytes,
        width,
        n_entries,
        n_column_bytes // column_planes,
        shift,
        column_planes,
        n_buckets,
        is_long,
        stride,
    )


@kernel
def _sizes_fit(chunk: _Chunk, n_columns: int) -> Any:
    """Return whether the planes of a chunk are as long as its numbers of rows and entries say."""
    n_groups = (chunk.n_rows + _GROUP - 1) >> GROUP_BITS
    start_planes = 2 if chunk.is_long else 1
    return (
        chunk.shift <= _LARGEST_SHIFT
        and chunk.n_rows <= min(n_columns, chunk.n_entries)
        and chunk.stride == chunk.n_buckets + n_groups
        and chunk.stride * start_planes == chunk.n_starts
        and chunk.n_rows * chunk.column_planes == chunk.n_column_bytes
        and chunk.n_entries * _sibling_planes(chunk.width) == chunk.n_sibling_bytes
    )


@kernel
def _sibling_planes(width: int) -> Any:
    planes = 1
    more = max(width - 1, 0) >> SIBLING_BITS
    while more:
        planes = planes + 1
        more = more >> 8
    return planes


@kernel
def _rows_fit(starts: Any, chunk: _Chunk) -> Any:
    """Return whether buckets begin at rows that rise from 0 to the number of rows."""
    at = chunk.start_at
    before = np.int64(0)
    if chunk.is_long:
        for bucket in range(chunk.n_buckets):
            row = start_of(starts, at + bucket, chunk.stride, True)
            if row < before:
                return False
            before = row
    else:
        falls = np.uint32(0)
        for bucket in range(1, chunk.n_buckets):  # no way out of the loop: this is SIMD
            falls |= np.uint32(starts[at + bucket] < starts[at + bucket - 1])
        if falls:
            return False
        before = np.int64(starts[at + chunk.n_buckets - 1])
    return start_of(starts, at, chunk.stride, chunk.is_long) == 0 and before == chunk.n_rows


@kernel
def _columns_fit(lows: Any, starts: Any, chunk: _Chunk, n_columns: int) -> Any:
    """Return whether low bits stay below a bucket's columns, and those of the last buckets below
    all columns.
    """
    at = chunk.column_at
    n_rows = chunk.n_rows
    planes = chunk.column_planes
    highest = at + (planes - 1) * n_rows
    top = chunk.shift - 8 * (planes - 1)
    if top < 8:
        bits = np.uint8(0)
        for row in range(highest, highest + n_rows):
            bits |= lows[row]
        if bits >> top:
            return False
    # the last bucket that has columns, some of them perhaps beyond the end
    bucket = chunk.n_buckets - 2
    first = start_of(starts, chunk.start_at + bucket, chunk.stride, chunk.is_long)
    for row in range(first, n_rows):
        column = bucket << chunk.shift
        for plane in range(planes):
            column |= np.int64(lows[at + plane * n_rows + row]) << (8 * plane)
        if column >= n_columns:
            return False
    return True


@kernel
def _below(count: Any) -> Any:
    """Return the lowest ``count`` ≤ 32 bits."""
    return np.uint32((np.int64(1) << count) - 1)


@kernel
def _entries_fit(
    siblings: Any,  # IN
    starts: Any,  # IN
    chunk: _Chunk,  # IN
    ends: Any,  # buffer: a bit per entry, whether it is the last of its row, 32 together
    rows: Any,  # buffer: the rows that end before each 32 entries
) -> Any:
    """Return whether every group begins in its first row, and the last row ends with the entries.

    Without a branch for each row or group: rows are too short to guess where they end.
    """
    at = chunk.sibling_at
    n_entries = chunk.n_entries
    row = np.int64(0)
    n_blocks = (n_entries + BYTES - 1) >> _BLOCK_BITS
    for block in range(n_blocks):
        first = block << _BLOCK_BITS
        inside = _below(min(n_entries - first, BYTES))
        ends[block] = at_least(siblings, at + first, 0, LAST) & inside
        rows[block] = row
        row += count_ones(ends[block])
    if row != chunk.n_rows or (n_entries > 0 and siblings[at + n_entries - 1] < LAST):
        return False
    wrong = np.int64(0)
    group_at = chunk.start_at + chunk.n_buckets
    for group in range((chunk.n_rows + _GROUP - 1) >> GROUP_BITS):
        entry = start_of(starts, group_at + group, chunk.stride, chunk.is_long)
        block = min(entry >> _BLOCK_BITS, n_blocks - 1)
        before = ends[block] & _below(entry & (BYTES - 1))
        wrong |= rows[block] + count_ones(before) - (group << GROUP_BITS)
        wrong |= np.int64(entry >= n_entries)
    return wrong == 0


@kernel
def _siblings_fit(siblings: Any, chunk: _Chunk) -> Any:
    """Return whether all entries belong to children that there are."""
    at = chunk.sibling_at
    n_entries = chunk.n_entries
    width = chunk.width
    if width < LAST:
        beyond = np.uint32(0)
        for first in range(0, n_entries, BYTES):
            inside = _below(min(n_entries - first, BYTES))
            beyond |= at_least(siblings, at + first, LAST, LAST + width) & inside
        return beyond == 0
    planes = _sibling_planes(width)
    for i in range(n_entries):
        sibling = np.int64(siblings[at + i]) & (LAST - 1)
        for plane in range(1, planes):
            bits = np.int64(siblings[at + plane * n_entries + i])
            sibling |= bits << (SIBLING_BITS + 8 * (plane - 1))
        if sibling >= width:
            return False
    return True
