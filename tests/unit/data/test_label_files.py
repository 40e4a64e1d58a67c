"""Label files in every form: what is read, what is refused and where, and that writing and reading
agree.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tables import given_strings, made, problems_of, strings

from longtail.data.label_files import read_labels, write_labels
from longtail.data.labels import Label, Labels
from longtail.errors import DataError, LongtailError, UsageError

label = st.builds(
    Label, given_strings, strings, strings, st.lists(strings, max_size=3).map(tuple), strings
)
vocabularies = st.lists(label, min_size=1, max_size=5, unique_by=lambda label: label.id).map(
    Labels.of
)


@pytest.mark.parametrize("name", ["x.jsonl", "x.tsv", "x.csv", "x.jsonl.gz", "x.tsv.zst"])
@given(vocabularies)
@settings(deadline=None, max_examples=80)
def test_what_is_written_is_read_back(tmp_path_factory, name, labels):
    file = tmp_path_factory.getbasetemp() / name
    write_labels(labels, file)
    assert read_labels(file) == labels


def read(folder, content, name="labels.jsonl", **options):
    return list(read_labels(made(folder, content, name), **options))


def test_json_lines_with_every_field_and_unknown_ones(tmp_path):
    content = (
        '{"id": "1", "name": "Wind", "text": "moving air", "aliases": ["breeze"], "uri": "http://e.org/1"}\r\n'
        "\n"
        '{"extra": [1], "id": "2"}\n'
        '{"id": "3", "name": "größe"}'
    )
    expected = [
        Label("1", "Wind", "moving air", ("breeze",), "http://e.org/1"),
        Label("2"),
        Label("3", "größe"),
    ]
    assert read(tmp_path, content) == expected
    assert read(tmp_path, gzip.compress(content.encode()), "labels") == expected


def test_standard_input_and_output_are_json_lines(tmp_path, monkeypatch, capfdbinary):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"id":"a"}\n')))
    labels = read_labels("-")
    assert list(labels) == [Label("a")]
    write_labels(labels, "-")
    assert capfdbinary.readouterr().out == b'{"id":"a"}\n'


TABLES = {
    "annif": (
        '<http://e.org/1>\tnetworking\n<http://e.org/2>\t"Quoted" thing\t004.6\n\n<http://e.org/3>\n',
        [
            Label("http://e.org/1", "networking", uri="http://e.org/1"),
            Label("http://e.org/2", '"Quoted" thing', aliases=("004.6",), uri="http://e.org/2"),
            Label("http://e.org/3", uri="http://e.org/3"),
        ],
    ),
    "two columns": ("7\tseven\r\n8\teight\r\n", [Label("7", "seven"), Label("8", "eight")]),
    "header": (
        'Name\tID\tmore\taliases\n"two\nlines"\t1\t-\ta; b\nx\t2\t-\t"[""c;d""]"\n',
        [Label("1", "two\nlines", aliases=("a", "b")), Label("2", "x", aliases=("c;d",))],
    ),
    "quoted header": ('"id"\t"name"\n1\tone\n', [Label("1", "one")]),
    "ids under a header": ("id\na b\nc\n", [Label("a b"), Label("c")]),
    "an id column alone is no header": (
        "id\tfirst\nx\tsecond\n",
        [Label("id", "first"), Label("x", "second")],
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_with_and_without_a_header(tmp_path, case):
    content, expected = TABLES[case]
    assert read(tmp_path, content, "labels.tsv") == expected


def test_files_are_told_by_their_content(tmp_path):
    assert read(tmp_path, "wind power\r\n\n solar \n", "labels.txt") == [
        Label("wind power"),
        Label("solar"),
    ]
    assert read(tmp_path, "\ufeff1\tone\n", "labels.txt") == [Label("1", "one")]
    assert read(tmp_path, '{"id": "x"}', "labels.txt") == [Label("x")]
    assert read(tmp_path, 'id,name\n1,"a,b"\n', "labels.csv") == [Label("1", "a,b")]


BAD = {
    "empty": ("x.jsonl", "", 0, "no label"),
    "empty tsv": ("x.tsv", "\n", 0, "no label"),
    "empty csv": ("x.csv", "", 0, "no column 'id' in []"),
    "wrong JSON": ("x.jsonl", '{"id": "a"}\n{"id": "b"\n', 2, ""),
    "no id": ("x.jsonl", '{"id": "a"}\n\n{"name": "b"}\n', 3, "no field 'id'"),
    "id of the wrong type": ("x.jsonl", '{"id": 5}\n', 1, "a whole number in 'id'"),
    "aliases of the wrong type": (
        "x.jsonl",
        '{"id": "a", "aliases": "b"}\n',
        1,
        "a string in 'aliases'",
    ),
    "empty id": ("x.jsonl", '{"id": "a"}\n{"id": ""}\n', 2, "an empty id"),
    "repeated id": ("x.jsonl", '{"id": "a"}\n{"id": "b"}\n{"id": "a"}\n', 3, "the label 'a' again"),
    "not UTF-8": ("x.jsonl", b'{"id": "\xff"}\n', 1, ""),
    "half a surrogate": ("x.jsonl", '{"id": "\\ud800"}\n', 1, "half of a surrogate pair"),
    "empty id in a table": ("x.tsv", "id\tname\n1\ta\n\tb\n", 3, "an empty id"),
    "repeated id in a table": ("x.tsv", 'id\tname\n1\t"a\nb"\n1\tb\n', 4, "the label '1' again"),
    "ragged table": ("x.tsv", "id\tname\n1\n", 2, "1 cells"),
    "bad aliases": ("x.tsv", "id\taliases\n1\t[a]\n", 2, "'[a]' as a list"),
    "repeated URI": ("x.tsv", "<a>\tx\n<b>\ty\n<a>\tz\n", 3, "the label 'a' again"),
    "empty URI": ("x.tsv", "<>\tx\n", 1, "an empty id"),
    "too many cells": ("x.tsv", "a\tb\tc\td\n", 1, "4 cells"),
    "bytes in a table": ("x.tsv", b"a\tb\n\xff\tc\n", 2, "a byte that is not UTF-8"),
    "csv without id": ("x.csv", "name,uri\na,b\n", 1, "no column 'id' in ['name', 'uri']"),
    "repeated line": ("x.txt", "a\nb\na\n", 3, "the label 'a' again"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_label_files_are_refused_with_the_line(tmp_path, case):
    name, content, line, result = BAD[case]
    with pytest.raises(DataError) as caught:
        read(tmp_path, content, name)
    assert problems_of(caught)[0][0] == line
    assert problems_of(caught)[0][1].startswith(result)


def test_bad_labels_may_be_left_out(tmp_path):
    content = '{"id": "a"}\n{"id": 1}\n{"id": "a"}\n{"id": "b"}\n'
    assert read(tmp_path, content, skip_bad=2) == [Label("a"), Label("b")]
    with pytest.raises(DataError):
        read(tmp_path, content, skip_bad=1)


def test_repeated_ids_are_found_across_blocks(tmp_path):
    rows = [f'{{"id": "{number:06}", "name": "{"x" * 40}"}}' for number in range(40_000)]
    with pytest.raises(DataError) as caught:
        read(tmp_path, "\n".join([*rows, '{"id": "000007"}']))
    assert problems_of(caught) == [(40_001, "the label '000007' again", "each id once")]


def test_names_that_say_no_format_cannot_be_written(tmp_path):
    for name in ("x.txt", "x.rdf", "x"):
        with pytest.raises(UsageError, match=r"expected \.jsonl, \.tsv, \.csv or \.ttl"):
            write_labels(Labels.of(["a"]), tmp_path / name)
    with pytest.raises(UsageError, match="no such file"):
        read_labels(tmp_path / "none.jsonl")


@given(
    st.binary(max_size=80),
    st.sampled_from(["x.jsonl", "x.tsv", "x.csv", "x.txt", "x.ttl", "x.rdf", "x.jsonld"]),
)
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_read_or_refused(tmp_path_factory, content, name):
    with contextlib.suppress(LongtailError):
        read_labels(made(tmp_path_factory.getbasetemp(), content, name), skip_bad=1)
