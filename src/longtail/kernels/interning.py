"""Strings to numbers: a hash table over an arena, 19 to 30 bytes a string above the string itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["fill_table", "find_or_add"]

# of FNV-1a
_START = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_U32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@kernel
def _hash(arena: Any, start: int, end: int) -> Any:
    """Hash by FNV-1a, odd and even bytes apart: two short chains of multiplications instead of a
    long one.
    """
    odd = _START
    even = _START
    for i in range(start, end - 1, 2):
        even = (even ^ np.uint64(arena[i])) * _PRIME
        odd = (odd ^ np.uint64(arena[i + 1])) * _PRIME
    if (end - start) % 2:
        even = (even ^ np.uint64(arena[end - 1])) * _PRIME
    h = (even ^ (odd * _MIX)) ^ np.uint64(end - start)
    return (h ^ (h >> _U32)) * _MIX


@kernel
def _equal(arena: Any, start: int, other: int, size: int) -> bool:
    for i in range(size):  # noqa: SIM110  (numba has no generators here)
        if arena[start + i] != arena[other + i]:
            return False
    return True


@kernel
def find_or_add(
    # IN  all strings end to end; the one looked for stands behind the last
    arena: NDArray[np.uint8],
    offsets: NDArray[np.int64],  # IN/OUT (more than count + 1,)
    count: int,  # IN  strings so far
    end: int,  # IN  where the string looked for ends
    # IN/OUT a power of 2, at least 4 / 3 of count: high half hash, low half number + 1
    table: NDArray[np.uint64],
) -> int:
    """Return the number of the string at arena[offsets[count]:end]; it is ``count`` where the
    string is new.
    """
    start = offsets[count]
    size = end - start
    h = _hash(arena, start, end)
    mask = np.uint64(table.shape[0] - 1)
    tag = h & ~_LOW
    slot = h & mask
    while table[slot]:
        if table[slot] & ~_LOW == tag:
            other = int(table[slot] & _LOW) - 1
            if offsets[other + 1] - offsets[other] == size and _equal(
                arena, start, offsets[other], size
            ):
                return other
        slot = (slot + np.uint64(1)) & mask
    table[slot] = tag | np.uint64(count + 1)
    offsets[count + 1] = end
    return count


@kernel
def fill_table(
    arena: NDArray[np.uint8],  # IN
    offsets: NDArray[np.int64],  # IN  (>= count + 1,)
    count: int,  # IN
    table: NDArray[np.uint64],  # OUT zeros before
) -> None:
    """Put strings that differ from one another into an empty table."""
    mask = np.uint64(table.shape[0] - 1)
    for number in range(count):
        h = _hash(arena, offsets[number], offsets[number + 1])
        slot = h & mask
        while table[slot]:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = (h & ~_LOW) | np.uint64(number + 1)
