"""Sorting of many short strings by their bytes, and packing by the prefix that each shares with the
one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["copy_ranges", "pack_prefixes", "sort_strings", "unpack_prefixes"]

_STEP = 7  # bytes of a string in one key
_FEW = 12  # strings that are sorted by insertion
_U8 = np.uint64(8)


@kernel
def _key(arena: Any, start: int, end: int) -> Any:
    """Return seven bytes and, below them, how many there are (8: more), so that a prefix stands
    before the longer.
    """
    key = np.uint64(0)
    for i in range(start, start + _STEP):
        key <<= _U8
        if i < end:
            key |= np.uint64(arena[i])
    return key << _U8 | np.uint64(max(0, min(end - start, _STEP + 1)))


@kernel
def _insert(keys: Any, order: Any, first: int, last: int) -> None:
    for i in range(first + 1, last):
        key = keys[i]
        number = order[i]
        j = i
        while j > first and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            order[j] = order[j - 1]
            j -= 1
        keys[j] = key
        order[j] = number


@kernel
def _partition(keys: Any, order: Any, first: int, last: int) -> tuple[int, int]:
    """Partition a range around the median of three keys; return where keys equal to it begin and
    end.
    """
    a = keys[first]
    b = keys[(first + last) // 2]
    c = keys[last - 1]
    pivot = max(min(a, b), min(max(a, b), c))
    low = first
    i = first
    high = last
    while i < high:
        key = keys[i]
        if key < pivot:
            keys[i], keys[low] = keys[low], key
            order[i], order[low] = order[low], order[i]
            low += 1
            i += 1
        elif key > pivot:
            high -= 1
            keys[i], keys[high] = keys[high], key
            order[i], order[high] = order[high], order[i]
        else:
            i += 1
    return low, high


@kernel
def sort_strings(
    arena: NDArray[np.uint8], offsets: NDArray[np.int64], order: NDArray[np.uint32]
) -> None:
    """Sort ``order``, numbers of strings that all differ, by their bytes, in place.

    Multikey quicksort (Bentley and Sedgewick, Fast algorithms for sorting and searching strings,
    1997), seven bytes per step instead of one."""
    keys = np.empty(order.shape[0], np.uint64)
    for i in range(order.shape[0]):
        keys[i] = _key(arena, offsets[order[i]], offsets[order[i] + 1])
    ranges = [(0, order.shape[0], 0)]  # first, last, bytes known to be equal
    while len(ranges) > 0:
        first, last, depth = ranges.pop()
        if last - first > _FEW:
            low, high = _partition(keys, order, first, last)
            ranges.append((first, low, depth))
            ranges.append((high, last, depth))
            first = low
            last = high
        else:
            _insert(keys, order, first, last)
        i = first
        while i < last:  # what is equal so far goes on with its next bytes
            j = i + 1
            while j < last and keys[j] == keys[i]:
                j += 1
            if j - i > 1 and keys[i] & np.uint64(255) > _STEP:
                for k in range(i, j):
                    keys[k] = _key(arena, offsets[order[k]] + depth + _STEP, offsets[order[k] + 1])
                ranges.append((i, j, depth + _STEP))
            i = j


@kernel
def copy_ranges(
    source: NDArray[np.uint8],  # IN
    begins: NDArray[np.int64],  # IN  of the ranges in source
    offsets: NDArray[np.int64],  # IN  (ranges + 1,) of the ranges in target
    target: NDArray[np.uint8],  # OUT
) -> None:
    """Copy ranges of bytes."""
    for i in range(begins.shape[0]):
        begin = begins[i]
        size = offsets[i + 1] - offsets[i]
        for j in range(size):
            target[offsets[i] + j] = source[begin + j]


@kernel
def pack_prefixes(arena: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[Any, Any]:
    """Return (bytes shared with the string before, at most 255; all other bytes end to end)."""
    count = offsets.shape[0] - 1
    end = 0
    shared = np.zeros(count, np.uint8)
    remaining = np.empty(arena.shape[0], np.uint8)
    for i in range(count):
        start = offsets[i]
        stop = offsets[i + 1]
        before = offsets[max(i - 1, 0)]
        same = 0
        most = 0
        if i:
            most = min(stop - start, start - before, 255)
        while same < most and arena[start + same] == arena[before + same]:
            same += 1
        shared[i] = same
        for at in range(start + same, stop):
            remaining[end] = arena[at]
            end += 1
    return shared, remaining[:end].copy()


@kernel
def unpack_prefixes(
    shared: NDArray[np.uint8],  # IN
    remaining: NDArray[np.uint8],  # IN
    offsets: NDArray[np.int64],  # IN  (strings + 1,)
    arena: NDArray[np.uint8],  # OUT
) -> None:
    """Undo ``pack_prefixes``; shared[i] is at most the length of strings i − 1 and i."""
    used = 0
    for i in range(shared.shape[0]):
        start = offsets[i]
        same = np.int64(shared[i])
        for j in range(same):
            arena[start + j] = arena[offsets[i - 1] + j]
        for at in range(start + same, offsets[i + 1]):
            arena[at] = remaining[used]
            used += 1
