"""fastText lines: labels wherever they stand, and what the format cannot hold."""

from __future__ import annotations

import contextlib
import logging
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tables import contents, datasets, made, problems_of, strings

from longtail.data.builder import Reading
from longtail.data.dataset import Dataset
from longtail.data.fasttext import read_fasttext, write_fasttext
from longtail.errors import DataError

SPACE = " \t\n\v\f\r\0"
labels_it_holds = strings.map(lambda label: re.sub(f"[{SPACE}]", "", label)).filter(bool)
words = st.sampled_from(["__label__", "__label__x", "x__label__y", "_label__", "\ufeff"])
texts = st.lists(st.one_of(strings, words), max_size=4).map(" ".join)


def as_held(text):
    """The text as the writer's docstring says it comes back."""
    text = re.sub("[\r\n]", " ", text.strip(f"{SPACE}\ufeff"))
    return re.sub(f"(?<![^{SPACE}])__label__", "_label__", text)


@given(datasets(texts=texts, labels=labels_it_holds))
@settings(deadline=None, max_examples=300)
def test_labels_without_white_space_are_read_back(tmp_path_factory, dataset):
    file = tmp_path_factory.getbasetemp() / "x.txt"
    write_fasttext(dataset, file)
    rows = zip(*contents(dataset, relevance=False)[:2], strict=True)
    expected = [(as_held(text), labels) for text, labels in rows if as_held(text) or labels]
    if expected:
        back = read_fasttext(file, Reading())
        assert list(zip(*contents(back, relevance=False)[:2], strict=True)) == expected
    else:
        assert file.read_bytes() == b""


def test_a_file_from_the_tutorial(tmp_path):
    content = (
        "__label__sauce __label__cheese How much does potato starch affect a cheese sauce recipe?\n"
        "\n"
        "__label__food-safety\t__label__acidity , Dangerous pathogens \r\n"
        "How do I cover up __label__cast-iron the white spots __label__stove\n"
        "no label here, not even a__label__b\n"
        "__label__alone\n"
    )
    dataset = read_fasttext(made(tmp_path, content), Reading())
    assert contents(dataset, relevance=False)[:2] == (
        [
            "How much does potato starch affect a cheese sauce recipe?",
            ", Dangerous pathogens",
            "How do I cover up the white spots",
            "no label here, not even a__label__b",
            "",
        ],
        [{"sauce", "cheese"}, {"food-safety", "acidity"}, {"cast-iron", "stove"}, set(), {"alone"}],
    )


def test_only_ascii_white_space_divides_words(tmp_path):
    dataset = read_fasttext(made(tmp_path, "__label__a\xa0b c\0__label__d\x1ce\n"), Reading())
    assert contents(dataset, relevance=False)[:2] == (["c"], [{"a\xa0b", "d\x1ce"}])


def test_bad_lines_are_named(tmp_path):
    file = made(tmp_path, b"__label__a good\n__label__ b\n__label__a \xff\nalso good\n")
    with pytest.raises(DataError) as caught:
        read_fasttext(file, Reading())
    assert [problem[:2] for problem in problems_of(caught)] == [
        (2, "'__label__' without a name"),
        (3, "a byte that is not UTF-8 ('\\xff')"),
    ]
    assert contents(read_fasttext(file, Reading(skip_bad=2)))[0] == ["good", "also good"]


def test_what_cannot_be_held_is_replaced_and_told(tmp_path, caplog):
    dataset = Dataset.of(["a\nb __label__z c", ""], [["wind power", "wind_power", " "], []])
    with caplog.at_level(logging.WARNING, "longtail"):
        write_fasttext(dataset, tmp_path / "x.txt")
    expected = "__label__wind_power __label__wind_power __label___ a b _label__z c\n"
    assert (tmp_path / "x.txt").read_text() == expected
    detail = (
        "2 labels with white space in them, written with _, 1 labels that became equal to another"
    )
    (message,) = caplog.messages
    assert message.endswith(
        f"{detail}, 1 words with __label__ in texts, 1 documents without text and labels"
    )


def test_a_byte_order_mark_does_not_come_to_begin_the_file(tmp_path):
    write_fasttext(Dataset.of([" \ufeff\ufeff__label__x", "y"], [[], []]), tmp_path / "x.txt")
    assert contents(read_fasttext(tmp_path / "x.txt", Reading()))[:2] == (
        ["_label__x", "y"],
        [{}, {}],
    )


@given(st.binary(max_size=80))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    with contextlib.suppress(DataError):
        read_fasttext(made(tmp_path_factory.getbasetemp(), content, "any"), Reading(skip_bad=1))
