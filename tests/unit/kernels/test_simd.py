"""Vector instructions against the plain functions that they stand for."""

import numpy as np
import pytest
from numba import njit
from numba.core import config
from numba.core.errors import NumbaError

from longtail.kernels import jit
from longtail.kernels.jit import borrowing
from longtail.kernels.simd import (
    BYTES,
    LANES,
    LINE,
    add_multiple,
    cache_aligned,
    lowest_bit,
    matches,
    prefetch,
)


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


@njit
def add_compiled(sums, x, numbers, at, count):
    add_multiple(sums, x, numbers, at, count)


@pytest.mark.parametrize("count", [0, LANES, 3 * LANES, 9 * LANES])
def test_a_multiple_is_added_with_the_product_rounded_first(count):
    rng = np.random.default_rng(count)
    numbers, before = (rng.normal(size=size).astype(np.float32) for size in (100, 80))
    x = np.float32(1 / 3)
    expected = before.copy()
    expected[:count] += x * numbers[5 : 5 + count]
    for add in (add_compiled, add_multiple):
        sums = before.copy()
        add(sums, x, numbers, 5, count)
        assert np.array_equal(sums, expected)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_room_begins_with_a_cache_line(size):
    room = cache_aligned(size)
    assert (room.shape, room.dtype) == ((size,), np.float32)
    assert room.ctypes.data % (4 * LINE) == 0


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_what_borrows_its_arrays_cannot_make_one():
    def total(array):
        return array[0] + array[-1]

    def copied(array):
        return array.copy()

    assert borrowing(total)(np.array([1.0, 2.0])) == 3.0
    with pytest.raises(NumbaError, match="array"):
        borrowing(copied)(np.ones(2))


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_options_that_numba_does_not_know_are_left_out(monkeypatch):
    def total(array):
        return array[0] + array[-1]

    assert borrowing(total).targetoptions["_nrt"] is False
    monkeypatch.setattr(jit, "CPUTargetOptions", type("Options", (), {"forceinline": None}))
    kernel = borrowing(total)
    assert "_nrt" not in kernel.targetoptions
    assert kernel.targetoptions["forceinline"] is True
    assert kernel(np.array([1.0, 2.0])) == 3.0
