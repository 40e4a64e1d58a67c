"""Arrays that grow without being copied."""

from __future__ import annotations

import sys
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import growing as module
from longtail.data.growing import ArrayBuilder, GrowingArray

quick = settings(deadline=None, max_examples=80)


@pytest.mark.parametrize("n", [1, 10_000])
def test_finish_does_not_copy(n):
    builder = ArrayBuilder("i")
    builder.extend(range(n))
    arrays = [np.frombuffer(builder._tail, np.int32)] + (
        [builder._large.values] if builder._large else []
    )
    assert any(np.shares_memory(builder.finish(), array) for array in arrays)


@quick
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "extend", "packed"]), st.integers(0, 40)), max_size=30
    )
)
def test_numbers_added_in_any_way_stay_in_order(steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW", 16)
        patch.setattr(module, "PAGESIZE", 64)
        builder = ArrayBuilder("q", [-1])
        expected = [-1]
        for how, n in steps:
            new = list(range(len(expected), len(expected) + n))
            expected += new
            if how == "append":
                for number in new:
                    builder.append(number)
            elif how == "extend":
                builder.extend(new)
            else:
                builder.extend_packed(np.array(new, np.int64))
            assert len(builder) == len(expected)
            assert len(builder._tail) <= 16 + n
        result = builder.finish()
    assert result.dtype == np.int64
    assert result.tolist() == expected


def test_pages_grow_where_they_are_looked_at_and_where_they_are_not():
    array = GrowingArray("i")
    array.extend(np.arange(100_000, dtype=np.int32))
    looked_at = array.values[:10]
    array.extend(np.arange(100_000, 300_000, dtype=np.int32))
    assert looked_at.tolist() == list(range(10))
    assert array.values[: array.used].tolist() == list(range(300_000))
    assert not array.values[array.used :].any()
    del looked_at
    pages = array._pages
    array.make_room(1_000_000)
    assert array._pages is pages  # moved, not copied
    assert len(array.values) >= array.used + 1_000_000
    assert array.values[: array.used].tolist() == list(range(300_000))


def test_no_room_left_is_a_memory_error():
    array = GrowingArray("B")
    array.extend(np.arange(5, dtype=np.uint8))
    with pytest.raises(MemoryError):
        array.make_room(1 << 60)


@pytest.mark.skipif(sys.platform != "linux", reason="counts resident memory as Linux does")
def test_growth_takes_no_memory_but_for_what_is_written():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE

    block = np.ones(1 << 16, np.uint8)
    array = GrowingArray("B")
    before = resident()
    for _ in range(512):  # 32 MiB
        array.extend(block)
    array.make_room(1 << 28)
    assert resident() - before < 36 << 20
