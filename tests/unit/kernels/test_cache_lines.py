"""Vector instructions against the plain functions that they stand for."""

import numpy as np
from numba import njit

from longtail.kernels.cache_lines import BYTES, lowest_bit, matches, prefetch


@njit  # not cached: numba would not see that what it calls has changed
def compiled(array, at, wanted):
    """Ask for the bytes, also far behind the end, and compare them."""
    prefetch(array, at)
    prefetch(array, at + 1_000_000)
    same = matches(array, at, wanted)
    return same, lowest_bit(same)


def test_bytes_are_compared_up_to_the_end_of_the_array_and_never_behind_it():
    rng = np.random.default_rng(0)
    for size in (1, 5, BYTES - 1, BYTES, 3 * BYTES):
        buffer = rng.integers(0, 4, size + BYTES, dtype=np.uint8)
        array = buffer[:size]
        buffer[size:] = 1
        for at in range(size):
            expected = sum(1 << i for i in range(min(BYTES, size - at)) if array[at + i] == 1)
            lowest = next((i for i in range(BYTES) if expected >> i & 1), BYTES)
            assert compiled(array, at, 1) == (expected, lowest)
            plain = matches(array, at, 1)
            assert (plain, lowest_bit(plain)) == (expected, lowest)
            assert prefetch(array, at) is None


def test_the_highest_byte_and_none():
    array = np.full(40, 255, np.uint8)
    assert compiled(array, 0, 255) == (2**32 - 1, 0)
    assert compiled(array, 39, 255) == (1, 0)
    assert compiled(array, 0, 254) == (0, BYTES)
