"""Strings behave as the list of str they were made of, whatever arena lies beneath."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import strings as module
from longtail.data.strings import Strings, StringsBuilder, blank, count_blank

quick = settings(deadline=None, max_examples=80)
texts = st.lists(
    st.text(max_size=6) | st.sampled_from(["", "ä", "日本", "😀", "a\0b", "\n"]), max_size=9
)


@quick
@given(texts)
def test_a_sequence_as_the_list_is(given):
    packed = Strings.of(given)
    assert len(packed) == len(given)
    assert list(packed) == given
    assert [packed[at] for at in range(-len(given), len(given))] == given + given
    assert list(reversed(packed)) == given[::-1]
    assert packed.lengths.tolist() == [len(text.encode()) for text in given]
    assert packed.arena.tobytes() == "".join(given).encode()
    assert packed.nbytes == len("".join(given).encode()) + 8 * (len(given) + 1)
    assert packed.offsets.dtype == np.int64


@quick
@given(texts, st.slices(9))
def test_slices_as_of_the_list(given, part):
    assert list(Strings.of(given)[part]) == given[part]


@quick
@given(texts.filter(len), st.data())
def test_take_in_any_order_with_repeats_and_from_the_end(given, data):
    rows = data.draw(st.lists(st.integers(-len(given), len(given) - 1), max_size=12))
    taken = Strings.of(given).take(np.array(rows, np.int64))
    assert list(taken) == [given[row] for row in rows]
    assert taken.offsets[0] == 0
    assert taken.offsets[-1] == len(taken.arena)


def test_take_with_narrow_row_numbers():
    strings = Strings.of(map(str, range(300)))
    assert list(strings.take(np.array([255, 0], np.uint8))) == ["255", "0"]
    assert list(strings.take(np.array([127, -1], np.int8))) == ["127", "299"]


@pytest.mark.parametrize("rows", [[3], [-4], [0, 99]])
def test_take_refuses_rows_that_are_not_there(rows):
    with pytest.raises(IndexError):
        Strings.of(["a", "b", "c"]).take(np.array(rows))


@pytest.mark.parametrize("at", [2, -3, 10**12])
def test_index_out_of_range(at):
    with pytest.raises(IndexError, match=f"string {at} of 2"):
        Strings.of(["a", "b"])[at]


def test_no_strings():
    none = Strings.of([])
    assert list(none) == list(none[::2]) == list(none.take(np.array([], np.int64))) == []
    assert none == Strings.of(iter(()))
    assert not none
    with pytest.raises(IndexError):
        none[0]


def test_equality_is_of_strings_not_of_bytes():
    assert Strings.of(["ab", ""]) != Strings.of(["a", "b"])
    assert Strings.of(["", "ab"]) != Strings.of(["ab", ""])
    assert Strings.of(["a"]) != Strings.of(["a", ""])
    assert Strings.of(["a"]) != Strings.of(["b"])
    assert Strings.of(["a"]) != ["a"]
    assert Strings.of(["ä", "b"]) == Strings.of(["ä", "b"])
    with pytest.raises(TypeError):
        hash(Strings.of([]))


def test_a_window_of_a_larger_arena():
    whole = Strings.of(["aa", "b", "", "cccc", "d"])
    window = Strings(whole.arena, whole.offsets[1:5])
    assert list(window) == [window[at] for at in range(4 - 1)] == ["b", "", "cccc"]
    assert list(window.take(np.array([2, 0]))) == ["cccc", "b"]
    assert window == Strings.of(["b", "", "cccc"])
    assert window.packed().arena.tobytes() == b"bcccc"
    assert window.packed().offsets.tolist() == [0, 1, 1, 5]
    start = Strings(whole.arena, whole.offsets[:3])
    assert start == Strings.of(["aa", "b"])
    assert start.packed().arena.tobytes() == b"aab"
    assert whole.packed() is whole


def test_memory_mapped(tmp_path):
    strings = Strings.of(["eins", "", "zwölf", "三"])
    strings.arena.tofile(tmp_path / "arena")
    strings.offsets.tofile(tmp_path / "offsets")
    mapped = Strings(
        np.memmap(tmp_path / "arena", np.uint8, mode="r"),
        np.memmap(tmp_path / "offsets", np.int64, mode="r"),
    )
    assert mapped == strings
    assert list(mapped) == list(strings)
    assert mapped[-2] == "zwölf"
    assert list(mapped.take(np.array([3, 0]))) == ["三", "eins"]


@pytest.mark.parametrize("count", [5, 6, 7, 12])
def test_iteration_and_packing_over_several_blocks(monkeypatch, count):
    monkeypatch.setattr(module, "_BLOCK", 3)
    given = [f"{number}é" * (number % 4) for number in range(count)]
    assert list(Strings.of(iter(given))) == given
    window = Strings(Strings.of(given).arena, Strings.of(given).offsets[2:])
    assert list(window) == given[2:]


def test_of_leaves_strings_as_they_are():
    strings = Strings.of(["a"])
    assert Strings.of(strings) is strings
    assert list(Strings.of({"x": 1, "y": 2})) == ["x", "y"]


def test_numpy_integers_are_positions():
    assert Strings.of(["a", "b"])[np.int64(-1)] == "b"
    assert Strings.of(["a", "b"])[np.uint32(1)] == "b"


def test_shown_by_size():
    assert repr(Strings.of(["ä", "b"])) == "Strings(2 strings, 27 bytes)"


@quick
@given(st.lists(st.text(max_size=4) | texts, max_size=8))
def test_builder_one_by_one_and_many_at_once(steps):
    builder = StringsBuilder()
    expected = []
    for step in steps:
        if isinstance(step, str):
            builder.append(step)
            expected.append(step)
        else:
            builder.extend(iter(step))
            expected.extend(step)
        assert len(builder) == len(expected)
    assert list(builder.finish()) == expected


@pytest.mark.parametrize("add", [lambda b: b.append("\ud800"), lambda b: b.extend(["b", "\ud800"])])
def test_half_a_surrogate_pair_leaves_the_builder_as_it_was(add):
    builder = StringsBuilder()
    builder.append("a")
    with pytest.raises(UnicodeEncodeError):
        add(builder)
    builder.append("c")
    assert list(builder.finish()) == ["a", "c"]


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["a"],
        [" \t\n"],
        ["\u3000\xa0"],
        ["\x1f", "b"],
        ["é", "", " ", "\u2028"],
        ["x"] * 9 + [" "] * 3,
    ],
)
def test_blank_strings_are_counted_alike_for_few_and_many(texts):
    strings = Strings.of(texts)
    expected = [not text.strip() for text in texts]
    assert blank(strings).tolist() == expected
    assert count_blank(strings) == sum(expected)
