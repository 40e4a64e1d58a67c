"""Whether the packed weights of a level may be read without looking at bounds, as all other kernels
do.

One pass over what says where to go: starts, the highest bytes of columns, and siblings; weights are
not looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload

from longtail.kernels.cache_lines import BYTES, everywhere
from longtail.kernels.chunks import GROUP_BITS, LAST, LONG, SIBLING_BITS, start_of
from longtail.kernels.jit import kernel

__all__ = ["first_unsound"]

intrinsic: Any = _intrinsic  # its type knows nothing of compiled calls
_VECTOR = ir.VectorType(ir.IntType(8), BYTES)
_LARGEST_SHIFT = 24
_BLOCK_BITS = 5  # log2 of BYTES
_GROUP = 1 << GROUP_BITS


@kernel
def first_unsound(
    first: int,  # IN  the chunks first..last - 1 are looked at
    last: int,
    # IN  arrays of a Level, heads and offsets known to rise from 0 to the ends of the others
    offsets: Any,
    heads: Any,
    shifts: Any,
    starts: Any,
    lows: Any,
    siblings: Any,
    n_columns: int,  # IN
) -> Any:
    """Return the first chunk that would lead a kernel out of its own rows and siblings, or −1."""
    longest = np.int64(0)
    for chunk in range(first, last):
        longest = max(longest, heads[chunk + 1, 2] - heads[chunk, 2])
    ends = np.empty((longest >> _BLOCK_BITS) + 1, np.uint32)
    rows = np.empty((longest >> _BLOCK_BITS) + 1, np.int64)
    for chunk in range(first, last):
        width = offsets[chunk + 1] - offsets[chunk]
        n_entries = heads[chunk + 1, 2] - heads[chunk, 2]
        shift = np.int64(shifts[chunk])
        low_planes = max((shift + 7) >> 3, 1)
        n_rows = (heads[chunk + 1, 1] - heads[chunk, 1]) // low_planes
        stride = heads[chunk + 1, 0] - heads[chunk, 0]
        n_buckets = (n_columns >> shift) + 2
        if n_entries >= LONG:
            stride >>= 1
        if not (
            shift <= _LARGEST_SHIFT
            and n_rows <= min(n_columns, n_entries)
            and stride == n_buckets + ((n_rows + _GROUP - 1) >> GROUP_BITS)
            and stride * (2 if n_entries >= LONG else 1) == heads[chunk + 1, 0] - heads[chunk, 0]
            and n_rows * low_planes == heads[chunk + 1, 1] - heads[chunk, 1]
            and n_entries * _sibling_planes(width) == heads[chunk + 1, 3] - heads[chunk, 3]
            and _rows_fit(starts, heads[chunk, 0], stride, n_entries >= LONG, n_buckets, n_rows)
            and _columns_fit(lows, heads[chunk, 1], n_rows, shift, low_planes, n_columns, starts, heads[chunk, 0],
                             stride, n_entries >= LONG, n_buckets)
            and _entries_fit(siblings, heads[chunk, 3], n_entries, n_rows, starts, heads[chunk, 0] + n_buckets, stride,
                             ends, rows)
            and _siblings_fit(siblings, heads[chunk, 3], n_entries, width)
        ):  # fmt: skip
            return chunk
    return -1


@kernel
def _sibling_planes(width: int) -> Any:
    planes = 1
    more = max(width - 1, 0) >> SIBLING_BITS
    while more:
        planes = planes + 1
        more = more >> 8
    return planes


@kernel
def _rows_fit(starts: Any, at: Any, stride: Any, is_long: Any, n_buckets: Any, n_rows: Any) -> Any:
    """Say whether buckets begin at rows that rise from 0 to the number of rows."""
    before = np.int64(0)
    if is_long:
        for bucket in range(n_buckets):
            row = start_of(starts, at + bucket, stride, True)
            if row < before:
                return False
            before = row
    else:
        falls = np.uint32(0)
        for bucket in range(1, n_buckets):  # no way out of the loop: this is SIMD
            falls |= np.uint32(starts[at + bucket] < starts[at + bucket - 1])
        if falls:
            return False
        before = np.int64(starts[at + n_buckets - 1])
    return start_of(starts, at, stride, is_long) == 0 and before == n_rows


@kernel
def _columns_fit(
    lows: Any, at: Any, n_rows: Any, shift: Any, planes: Any, n_columns: int, starts: Any, start_at: Any, stride: Any,
    is_long: Any, n_buckets: Any,
) -> Any:  # fmt: skip
    """Say whether low bits stay below a bucket's columns, and those of the last buckets below all
    columns.
    """
    highest = at + (planes - 1) * n_rows
    top = shift - 8 * (planes - 1)
    if top < 8:
        bits = np.uint8(0)
        for row in range(highest, highest + n_rows):
            bits |= lows[row]
        if bits >> top:
            return False
    bucket = n_buckets - 2  # the last one that has columns, some of them perhaps beyond the end
    for row in range(start_of(starts, start_at + bucket, stride, is_long), n_rows):
        column = bucket << shift
        for plane in range(planes):
            column |= np.int64(lows[at + plane * n_rows + row]) << (8 * plane)
        if column >= n_columns:
            return False
    return True


def _at_least(siblings: Any, at: Any, flag: Any, least: Any) -> Any:
    """Return a bit for each of the 32 bytes from ``at`` on, the lowest for the first: whether byte
    | flag ≥ least.
    """
    return np.uint32(
        sum(
            1 << i
            for i, byte in enumerate(siblings[at : at + BYTES].tolist())
            if byte | flag >= least
        )
    )


def _ones(number: Any) -> Any:
    """Return how many bits are set."""
    return int(number).bit_count()


@intrinsic  # type: ignore[untyped-decorator]
def _at_least_vector(typing: Any, siblings: Any, at: Any, flag: Any, least: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(siblings)(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), _VECTOR.as_pointer())
        flags, leasts = (everywhere(builder, number, BYTES) for number in arguments[2:])
        there = builder.or_(builder.load(place, align=1), flags)
        return builder.bitcast(builder.icmp_unsigned(">=", there, leasts), ir.IntType(32))

    return types.uint32(siblings, types.intp, types.uint8, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def _ones_of(typing: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.ctpop(arguments[0]), ir.IntType(64))

    return types.int64(types.uint32), generate


@overload(_at_least)
def _at_least_compiled(siblings: Any, at: Any, flag: Any, least: Any) -> Any:
    def compared(siblings: Any, at: Any, flag: Any, least: Any) -> Any:
        if at + BYTES <= siblings.shape[0]:
            return _at_least_vector(siblings, at, np.uint8(flag), np.uint8(least))
        found = np.uint32(0)
        for i in range(siblings.shape[0] - at):  # a vector would reach behind the end
            found |= np.uint32((siblings[at + i] | flag) >= least) << np.uint32(i)
        return found

    return compared


@overload(_ones)
def _ones_compiled(number: Any) -> Any:
    def counted(number: Any) -> Any:
        return _ones_of(np.uint32(number))

    return counted


@kernel
def _below(count: Any) -> Any:
    """Return the lowest ``count`` ≤ 32 bits."""
    return np.uint32((np.int64(1) << count) - 1)


@kernel
def _entries_fit(
    siblings: Any, at: Any, n_entries: Any, n_rows: Any, starts: Any, group_at: Any, stride: Any,
    ends: Any,  # room for a bit an entry, whether it is the last of its row, 32 together
    rows: Any,  # room for the rows that end before each 32 entries
) -> Any:  # fmt: skip
    """Say whether every group begins in its first row, and the last row ends with the entries.

    Without a branch for each row or group: rows are too short to guess where they end.
    """
    row = np.int64(0)
    is_long = n_entries >= LONG
    n_blocks = (n_entries + BYTES - 1) >> _BLOCK_BITS
    for block in range(n_blocks):
        first = block << _BLOCK_BITS
        ends[block] = _at_least(siblings, at + first, 0, LAST) & _below(
            min(n_entries - first, BYTES)
        )
        rows[block] = row
        row += _ones(ends[block])
    if row != n_rows or (n_entries > 0 and siblings[at + n_entries - 1] < LAST):
        return False
    wrong = np.int64(0)
    for group in range((n_rows + _GROUP - 1) >> GROUP_BITS):
        entry = start_of(starts, group_at + group, stride, is_long)
        block = min(entry >> _BLOCK_BITS, n_blocks - 1)
        before = ends[block] & _below(entry & (BYTES - 1))
        wrong |= (rows[block] + _ones(before) - (group << GROUP_BITS)) | np.int64(
            entry >= n_entries
        )
    return wrong == 0


@kernel
def _siblings_fit(siblings: Any, at: Any, n_entries: Any, width: Any) -> Any:
    """Say whether all entries belong to children that there are."""
    if width < LAST:
        beyond = np.uint32(0)
        for first in range(0, n_entries, BYTES):
            beyond |= _at_least(siblings, at + first, LAST, LAST + width) & _below(
                min(n_entries - first, BYTES)
            )
        return beyond == 0
    planes = _sibling_planes(width)
    for i in range(n_entries):
        sibling = np.int64(siblings[at + i]) & (LAST - 1)
        for plane in range(1, planes):
            sibling |= np.int64(siblings[at + plane * n_entries + i]) << (
                SIBLING_BITS + 8 * (plane - 1)
            )
        if sibling >= width:
            return False
    return True
