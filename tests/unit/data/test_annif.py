"""Annif's TSV and document folders, as Annif writes them and as Longtail does."""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tables import contents, datasets, given_strings, made, problems_of, strings

from longtail.data import annif
from longtail.data.annif import (
    read_annif_folder,
    read_annif_tsv,
    write_annif_folder,
    write_annif_tsv,
)
from longtail.data.builder import Reading
from longtail.data.dataset import Dataset
from longtail.data.labels import Label, Labels
from longtail.data.strings import Strings
from longtail.errors import DataError, UsageError

without_space = strings.map(lambda label: re.sub(r"\s", "", label)).filter(bool)
without_line_ends = strings.map(
    lambda label: re.sub(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]", "", label)
).filter(bool)


@given(datasets(labels=without_space))
@settings(deadline=None, max_examples=150)
def test_short_texts_are_read_back(tmp_path_factory, dataset):
    file = tmp_path_factory.getbasetemp() / "x.tsv"
    write_annif_tsv(dataset, file)
    texts, labels, _ = contents(dataset, relevance=False)
    held = [re.sub("^\ufeff|[\t\r\n]", " ", text) for text in texts]
    assert contents(read_annif_tsv(file, Reading()), relevance=False) == (held, labels, None)


def test_a_tsv_of_annif(tmp_path):
    content = (
        "RT @x: wind turbines\t<http://www.yso.fi/onto/yso/p20097> <http://www.yso.fi/onto/yso/p6452>\r\n"
        "\n"
        "bare\thttp://www.yso.fi/onto/yso/p1\t<urn:x>\n"
        "none\t\n"
        "\t<urn:x>\n"
    )
    file = made(tmp_path, gzip.compress(content.encode()), "x.tsv.gz")
    yso = "http://www.yso.fi/onto/yso/"
    assert contents(read_annif_tsv(file, Reading()), relevance=False)[:2] == (
        ["RT @x: wind turbines", "bare", "none", ""],
        [{f"{yso}p20097", f"{yso}p6452"}, {f"{yso}p1", "urn:x"}, set(), {"urn:x"}],
    )


def test_bad_lines_of_a_tsv_are_named(tmp_path):
    file = made(tmp_path, b"good\t<a>\nno tab\nx\t<>\n\xff\t<a>\n")
    with pytest.raises(DataError) as caught:
        read_annif_tsv(file, Reading())
    assert [problem[:2] for problem in problems_of(caught)] == [
        (2, "no tab in 'no tab'"),
        (3, "an empty URI <>"),
        (4, "a byte that is not UTF-8 ('\\xff')"),
    ]
    assert contents(read_annif_tsv(file, Reading(skip_bad=2, labelled=False)))[0] == [
        "good",
        "no tab",
    ]


def test_white_space_in_labels_is_encoded_and_told(tmp_path, caplog):
    dataset = Dataset.of(["a\tb"], [["wind power", " ", "x", "\xa0\t"]])
    with caplog.at_level(logging.WARNING, "longtail"):
        write_annif_tsv(dataset, tmp_path / "x.tsv")
    assert (tmp_path / "x.tsv").read_text() == "a b\t<wind%20power> <%20> <x> <%C2%A0%09>\n"
    assert caplog.messages == [
        f"{tmp_path}/x.tsv: changed or left out, as this format cannot hold it: 3 labels, percent-encoded"
    ]


@given(st.binary(max_size=80))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    with contextlib.suppress(DataError):
        read_annif_tsv(made(tmp_path_factory.getbasetemp(), content, "any"), Reading(skip_bad=1))


# --- folders
# -----------------------------------------------------------------------------------------------------


@given(datasets(labels=without_line_ends, ids=given_strings.map(lambda given: given[:20])))
@settings(deadline=None, max_examples=100)
def test_folders_are_read_back(tmp_path_factory, dataset):
    folder = tmp_path_factory.getbasetemp() / "documents"
    shutil.rmtree(folder, ignore_errors=True)
    write_annif_folder(dataset, folder)
    texts, labels, ids = contents(dataset, relevance=False)
    if ids is None or len({given.casefold() for given in ids}) < len(ids):
        ids = [str(number) for number in range(1, len(texts) + 1)]
    held = {
        given: (re.sub("^\ufeff", " ", text), member)
        for given, text, member in zip(ids, texts, labels, strict=True)
    }
    back = contents(read_annif_folder(folder, Reading()), relevance=False)
    assert {given: (text, member) for text, member, given in zip(*back, strict=True)} == held
    assert len(back[0]) == len(texts)


@pytest.fixture
def corpus(tmp_path):
    """A folder as Annif's users keep it."""
    made(tmp_path, "\ufeffNetworks\nand wires\r\n", "b.txt")
    made(tmp_path, "<http://e.org/1>\tnetworking\n<http://e.org/2>\tcomputers\textra\n\n", "b.tsv")
    made(tmp_path, "not read beside a tsv", "b.key")
    made(tmp_path, "Protocols", "a.txt")
    made(tmp_path, "networking\r\nInternet Protocol \r\n", "a.key")
    made(tmp_path, "nobody's", "z.tsv")
    made(tmp_path, "ignored", "README.md")
    made(tmp_path, "hidden", ".c.txt")
    return tmp_path


def test_a_folder_of_annif(corpus):
    dataset = read_annif_folder(corpus, Reading())
    assert contents(dataset, relevance=False) == (
        ["Protocols", "Networks\nand wires\r\n"],
        [{"networking", "Internet Protocol"}, {"http://e.org/1", "http://e.org/2"}],
        ["a", "b"],
    )


def test_subjects_given_by_name_are_found_in_the_vocabulary(corpus):
    known = [
        Label("http://e.org/1", "networking"),
        Label("http://e.org/2", "twin"),
        Label("http://e.org/3", "twin"),
    ]
    vocabulary = Labels.of([*known, Label("http://e.org/4", "Internet Protocol")])
    dataset = read_annif_folder(corpus, Reading(labels=vocabulary))
    assert dataset.labels_of(0) == ["http://e.org/1", "http://e.org/4"]
    made(corpus, "twin", "a.key")
    with pytest.raises(DataError, match=r"a\.txt: unknown label 'twin'"):
        read_annif_folder(corpus, Reading(labels=vocabulary))


def test_documents_without_subjects(corpus):
    made(corpus, "free", "c.txt")
    with pytest.raises(
        DataError, match=r"c\.txt: no subject file; expected one with the same name"
    ):
        read_annif_folder(corpus, Reading())
    assert contents(read_annif_folder(corpus, Reading(skip_bad=1)))[2] == ["a", "b"]
    free = contents(read_annif_folder(corpus, Reading(labelled=False)))
    assert (free[0][2], free[1][2]) == ("free", {})


def test_bad_files_of_a_folder_are_named(corpus, monkeypatch):
    monkeypatch.setattr(annif, "MAX_LINE", 1 << 20)
    made(corpus, b"\xff", "c.txt")
    made(corpus, "x", "d.txt")
    made(corpus, "<>\tempty\n", "d.tsv")
    made(corpus, b"x" * (2 << 20), "e.txt")
    os.mkfifo(corpus / "f.txt")
    (corpus / "g.txt").symlink_to(corpus / "missing.txt")
    made(corpus, "x", os.fsdecode(b"h\xff.txt"))
    made(corpus, "x", os.fsdecode(b"h\xff.key"))
    (corpus / "i.txt").symlink_to("/dev/zero")
    with pytest.raises(DataError) as caught:
        read_annif_folder(corpus, Reading())
    result = [(Path(problem.file).name, problem.found) for problem in caught.value.problems]
    assert result == [
        ("c.txt", "a byte that is not UTF-8 ('\\xff')"),
        ("d.tsv", "an empty URI <>"),
        ("e.txt", "more than 1 MiB"),
        ("f.txt", "not a regular file"),
        ("g.txt", "not a regular file"),
        ("h\\xff.txt", "a file name that is not UTF-8"),
        ("i.txt", "not a regular file"),
    ]
    assert contents(read_annif_folder(corpus, Reading(skip_bad=7)))[2] == ["a", "b"]


def test_no_folder_and_an_empty_one(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        read_annif_folder(tmp_path / "none", Reading())
    with pytest.raises(DataError, match="no document"):
        read_annif_folder(tmp_path, Reading())


def test_a_written_folder_as_annif_wants_it(tmp_path):
    vocabulary = Labels.of([Label("http://e.org/1", "wind\tpower"), Label("x\ny")])
    dataset = Dataset.of(["a\n", "b"], [["http://e.org/1", "x\ny"], []], vocabulary)
    write_annif_folder(dataset, tmp_path / "docs")
    files = {file.name: file.read_bytes() for file in (tmp_path / "docs").iterdir()}
    subjects = b"<http://e.org/1>\twind power\n<x%0Ay>\tx y\n"
    assert files == {"1.txt": b"a\n", "1.tsv": subjects, "2.txt": b"b", "2.tsv": b""}
    with pytest.raises(UsageError, match="has documents already"):
        write_annif_folder(dataset, tmp_path / "docs")
    with pytest.raises(UsageError, match="does not exist; make it first"):
        write_annif_folder(dataset, tmp_path / "none" / "docs")


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["../up", ".hidden"], ["%2E.%2Fup", "%2Ehidden"]),
        (["a/b", "50%"], ["50%25", "a%2Fb"]),
        (["wind power", "größe"], ["größe", "wind power"]),
        (["same", "same"], ["1", "2"]),
        (["case", "CASE"], ["1", "2"]),
        (["", "x"], ["1", "2"]),
        (["x" * 201, "y"], ["1", "2"]),
    ],
)
def test_file_names_are_safe(tmp_path, ids, names):
    dataset = replace(Dataset.of(["t"] * len(ids), [["l"]] * len(ids)), ids=Strings.of(ids))
    write_annif_folder(dataset, tmp_path / "docs")
    assert sorted(file.stem for file in (tmp_path / "docs").glob("*.txt")) == names
