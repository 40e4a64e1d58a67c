"""Units, n-grams and their order against Python's own str, re, Counter and sorted."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail.data.strings import Strings
from longtail.kernels import code_points, ngrams, string_order
from longtail.kernels.jit import read_only

TABLE = code_points.code_point_table()
AWKWARD = "aA0_éÉßİıΣσς ΑΩω.-'\t\n\x0b\x1c\x1d\x1e\x1f\x85\xa0\u2028\u3000\u0307\u0301\u200d\u00ad²٣漢字ーคี가😀👩\U000e0101ꙮȺǅ"  # noqa: E501
texts = st.lists(
    st.text(st.one_of(st.sampled_from(AWKWARD), st.characters(codec="utf-8")), max_size=25),
    max_size=6,
)


def words_of(text: str) -> list[str]:
    return re.findall(r"(?u)\b\w\w+\b", text.lower())


def characters_of(text: str) -> list[str]:
    return list(re.sub(r"\s\s+", " ", text.lower()))


def split(documents: list[str], word: bool):
    strings = Strings.of(documents)
    kernel = code_points.split_words if word else code_points.split_characters
    return kernel(read_only(strings.arena), read_only(strings.offsets), 0, len(strings), TABLE)


def units_of(documents: list[str], word: bool) -> list[list[str]]:
    buffer, starts, _, units = split(documents, word)
    data, starts = buffer.tobytes(), starts.tolist()
    all_units = [data[starts[u] : starts[u + 1] - word].decode() for u in range(len(starts) - 1)]
    return [all_units[units[d] : units[d + 1]] for d in range(len(documents))]


def every_character() -> str:
    return "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def test_every_character_is_taken_as_python_takes_it() -> None:
    everything = every_character()
    single = list(everything[:0x3000])
    documents = [
        everything,
        "é".join(everything[:0x20000]),
        *single,
        *("é" + c + "é" for c in single),
    ]
    assert units_of(documents, word=True) == [words_of(text) for text in documents]
    assert units_of(documents, word=False) == [characters_of(text) for text in documents]


def test_capital_sigma_beside_every_character() -> None:
    documents = [f"{c}Σ a{c}Σ aΣ{c}" for c in every_character()[:0x2100]]
    documents += [f"a{c}Σ{c}{d}" for c in "\u0301.'\U000e0101:" for d in ("", "a", "İ", "Σ", "1")]
    assert units_of(documents, word=False) == [characters_of(text) for text in documents]


@settings(max_examples=150, deadline=None)
@given(texts, st.booleans())
@example(["İstanbul aİ", "ΣΑΣ ΑΣ", "  \n ", "a\n b\x1c\x1dc"], True)
@example(["İstanbul aİ", "ΣΑΣ ΑΣ", "  \n ", "a\n b\x1c\x1dc"], False)
def test_units(documents: list[str], word: bool) -> None:
    assert units_of(documents, word) == [
        (words_of if word else characters_of)(text) for text in documents
    ]


def test_documents_amid_an_arena() -> None:
    strings = Strings.of(["left out", "Ab cd", "", "éf", "left out"])
    _, _, _, units = code_points.split_words(
        read_only(strings.arena), read_only(strings.offsets), 1, 4, TABLE
    )
    assert units.tolist() == [0, 2, 2, 3]


def counts(documents: list[str], word: bool, shortest: int, longest: int):
    _, starts, hashes, units = split(documents, word)
    return ngrams.count_ngrams(starts, hashes, units, int(word), shortest, longest)


def expected_ngrams(units: list[str], word: bool, shortest: int, longest: int) -> Counter[str]:
    joint = " " if word else ""
    lengths = range(shortest, longest + 1)
    return Counter(joint.join(units[i : i + n]) for n in lengths for i in range(len(units) - n + 1))


def strings_of(documents: list[str], word: bool, facts) -> list[str]:
    data = split(documents, word)[0].tobytes()
    return [
        data[f[ngrams.BEGIN] : f[ngrams.BEGIN] + f[ngrams.SIZE]].decode() for f in facts.tolist()
    ]


@settings(max_examples=80, deadline=None)
@given(texts, st.booleans(), st.integers(1, 3), st.integers(0, 3))
@example([" ".join(f"w{i % 3001}" for i in range(7000))], True, 1, 1)  # the table grows
def test_counts(documents: list[str], word: bool, shortest: int, more: int) -> None:
    keys, facts, members, shards, rows, numbers, tfs = counts(
        documents, word, shortest, shortest + more
    )
    known = strings_of(documents, word, facts)
    expected = [
        expected_ngrams(units, word, shortest, shortest + more)
        for units in units_of(documents, word)
    ]
    got = [
        {known[n]: tf for n, tf in zip(numbers[a:b].tolist(), tfs[a:b].tolist(), strict=True)}
        for a, b in pairwise(rows.tolist())
    ]
    assert got == expected
    total = sum(expected, Counter())
    df = Counter(ngram for member in expected for ngram in member)
    assert dict(zip(known, facts[:, ngrams.TF].tolist(), strict=True)) == total
    assert dict(zip(known, facts[:, ngrams.DF].tolist(), strict=True)) == df
    assert sorted(members.tolist()) == list(range(len(keys)))
    assert [int(keys[m]) >> 60 for m in members] == np.repeat(
        np.arange(ngrams.SHARDS), np.diff(shards)
    ).tolist()
    strings = Strings.of(known)
    assert ngrams.hash_ngrams(strings.arena, strings.offsets, word).tolist() == keys.tolist()


def test_order_of_units_matters_to_the_hash() -> None:
    strings = Strings.of(
        ["ab cd", "cd ab", "abcd", "ab", "cd", "ab ab", "ab cd ab", "12345678", "123456789"]
    )
    assert len(set(ngrams.hash_ngrams(strings.arena, strings.offsets, True).tolist())) == len(
        strings
    )
    assert len(set(ngrams.hash_ngrams(strings.arena, strings.offsets, False).tolist())) == len(
        strings
    )


@settings(max_examples=60, deadline=None)
@given(st.sets(st.text(st.sampled_from("ab\0é😀"), max_size=30), max_size=80), st.integers(0, 40))
def test_sorting_strings(strings: set[str], same: int) -> None:
    shuffled = Strings.of(["a" * same + string for string in strings])
    order = np.arange(len(shuffled), dtype=np.uint32)
    string_order.sort_strings(shuffled.arena, shuffled.offsets, order)
    assert [shuffled[i] for i in order.tolist()] == sorted(shuffled)


def test_sorting_many_strings() -> None:
    random = np.random.default_rng(0)
    many = list({f"prefix {a} {b}" for a, b in random.integers(0, 300, (5000, 2)).tolist()})
    strings = Strings.of(many)
    order = np.arange(len(many), dtype=np.uint32)
    string_order.sort_strings(strings.arena, strings.offsets, order)
    assert [many[i] for i in order.tolist()] == sorted(many)


@pytest.mark.parametrize(
    "strings",
    [
        ["a"],
        ["a", "ab", "abc", "b", "ba"],
        ["a", "aaaa", "aab"],
        ["ab", "a", "b"],
        ["x" * 300, "x" * 300 + "y", "x" * 301],
        [],
    ],
)
def test_shared_prefixes_there_and_back(strings: list[str]) -> None:
    packed = Strings.of(strings)
    shared, others = string_order.pack_prefixes(packed.arena, packed.offsets)
    arena = np.empty(len(packed.arena), np.uint8)
    string_order.unpack_prefixes(read_only(shared), read_only(others), packed.offsets, arena)
    assert arena.tobytes() == packed.arena.tobytes()
    assert len(others) == len(packed.arena) - shared.sum()
    sizes = np.diff(packed.offsets)
    assert (shared <= sizes).all()
    assert (shared[1:] <= sizes[:-1]).all()  # no more than the string before has
    if strings == ["a", "ab", "abc", "b", "ba"]:
        assert others.tobytes() == b"abcba"


def test_ranges_are_copied_to_where_they_belong() -> None:
    source = np.frombuffer(b"abcdefgh", np.uint8)
    begins = np.array([6, 1, 4, 0])
    offsets = np.array([1, 3, 6, 6, 7])
    target = np.full(8, ord("-"), np.uint8)
    string_order.copy_ranges(source, begins, offsets, target)
    assert target.tobytes() == b"-ghbcda-"
