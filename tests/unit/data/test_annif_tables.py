"""Annif's CSV corpora and vocabulary files, as Annif has them and as Longtail writes them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tables import datasets, strings

from longtail.data.annif import (
    read_annif_csv,
    read_annif_tsv,
    write_annif_csv,
    write_annif_tsv,
    write_annif_vocabulary,
)
from longtail.data.builder import Reading
from longtail.data.dataset import Dataset
from longtail.data.label_files import read_labels
from longtail.data.labels import Label, Labels
from longtail.errors import DataError

without_space = strings.map(lambda label: re.sub(r"\s", "", label)).filter(bool)
names = strings.map(
    lambda name: re.sub(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029\ufeff]", "", name).strip()
).filter(bool)


@given(datasets(labels=without_space))
def test_tables_are_read_back(tmp_path_factory, dataset):
    file = tmp_path_factory.mktemp("annif") / "corpus.csv"
    write_annif_csv(dataset, file)
    again = read_annif_csv(file, Reading(labels=dataset.labels))
    assert list(again.texts) == list(dataset.texts)
    assert [again.labels_of(row) for row in range(len(again))] == [
        dataset.labels_of(row) for row in range(len(again))
    ]


def test_a_table_of_annif(tmp_path):
    file = tmp_path / "corpus.csv"
    file.write_text(
        'title,text,subject_uris,document_id\nA,"one,\n""two""",<http://x/1> http://x/2,d7\nB,three,,\n'
    )
    read = read_annif_csv(file, Reading())
    assert list(read.texts) == ['one,\n"two"', "three"]
    assert [read.labels_of(row) for row in range(2)] == [["http://x/1", "http://x/2"], []]


def test_ids_are_kept(tmp_path):
    given = Dataset.of(["a", "b"], [["x"], []])
    rows = (tmp_path / "corpus.csv", 'document_id,text,subject_uris\nd1,a,<x>\n"d,2",b,\n')
    rows[0].write_text(rows[1])
    read = read_annif_csv(rows[0], Reading())
    assert [read.document_id(row) for row in range(2)] == ["d1", "d,2"]
    write_annif_csv(read, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == rows[1]
    assert given.labels_of(0) == read.labels_of(0)


def test_a_table_without_subjects(tmp_path):
    file = tmp_path / "corpus.csv"
    file.write_text("document_id,text\n1,one\n")
    assert list(read_annif_csv(file, Reading(labelled=False)).texts) == ["one"]
    with pytest.raises(DataError, match="subject_uris"):
        read_annif_csv(file, Reading())


@pytest.mark.parametrize(
    ("content", "place", "found"),
    [
        ("", "", "no column 'text'"),
        ("text,text,subject_uris\n", ":1", "two columns 'text'"),
        ("text,subject_uris\na,<>\n", ":2", "an empty URI <>"),
        ("text,subject_uris\na\n", ":2", "1 cells"),
    ],
)
def test_bad_tables_are_named(tmp_path, content, place, found):
    file = tmp_path / "corpus.csv"
    file.write_text(content)
    with pytest.raises(DataError) as caught:
        read_annif_csv(file, Reading())
    assert f"corpus.csv{place}: {found}" in str(caught.value)


def test_white_space_in_labels_is_the_same_in_all_files(tmp_path, caplog):
    dataset = Dataset.of(["one"], [["a b"]])
    write_annif_tsv(dataset, tmp_path / "corpus.tsv")
    write_annif_csv(dataset, tmp_path / "corpus.csv")
    write_annif_vocabulary(dataset.labels, tmp_path / "vocabulary.tsv")
    assert caplog.text.count("1 labels, percent-encoded") == 3
    labels = [
        read_annif_tsv(tmp_path / "corpus.tsv", Reading()).labels_of(0),
        read_annif_csv(tmp_path / "corpus.csv", Reading()).labels_of(0),
        list(read_labels(tmp_path / "vocabulary.tsv").ids),
    ]
    assert labels == [["a%20b"]] * 3


@given(
    st.dictionaries(
        without_space.map("http://x/{}".format), st.tuples(names, st.lists(names, max_size=1))
    )
)
def test_vocabularies_are_read_back(tmp_path_factory, given_labels):
    file = tmp_path_factory.mktemp("annif") / "vocabulary.tsv"
    first = Label("http://y", "name", uri="http://y")
    labels = [
        Label(uri, name, aliases=tuple(member), uri=uri)
        for uri, (name, member) in given_labels.items()
    ]
    write_annif_vocabulary(Labels.of([first, *labels]), file)
    assert list(read_labels(file)) == [first, *labels]


def test_a_vocabulary_for_annif(tmp_path, caplog):
    labels = [
        Label("http://x/1", "cats", aliases=("599.75",), uri="http://x/1"),
        Label("http://x/2", "dogs\tand\nmore", "text", aliases=("a", "b")),
        Label("http://x/3"),
    ]
    write_annif_vocabulary(Labels.of(labels), tmp_path / "vocabulary.tsv")
    assert (tmp_path / "vocabulary.tsv").read_text().splitlines() == [
        "<http://x/1>\tcats\t599.75",
        "<http://x/2>\tdogs and more",
        "<http://x/3>\thttp://x/3",
    ]
    assert "1 label texts, 2 aliases" in caplog.text
