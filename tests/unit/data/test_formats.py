"""Formats are told by name and content, and ``read`` and ``write`` hand over to the right module."""

from __future__ import annotations

import gzip
import os
import threading
from typing import get_type_hints

import numpy as np
import pytest
from scipy import sparse

from longtail import reporting
from longtail.data import formats
from longtail.data.dataset import Dataset
from longtail.data.formats import FORMATS, Format, sniff
from longtail.data.labels import Label, Labels
from longtail.data.npz import write_csr_npz
from longtail.data.output import zstd
from longtail.data.reading import ReadKeywords, ReadOptions, read, read_features, write
from longtail.data.sample import FOLDER, sample
from longtail.errors import DataError, UsageError

WIND = b'{"text": "wind", "labels": ["a"]}\n'
SUN = b'{"text": "sun", "labels": ["b"]}\n'


@pytest.fixture
def dataset():
    return Dataset.of(["wind", "sun"], [["a"], ["b"]])


@pytest.fixture
def called(monkeypatch, dataset):
    """The calls that would go to the modules of the formats."""
    calls = []

    def function(self, verb):
        def call(*given, **named):
            calls.append((self.name, verb, *given, named))
            return dataset if verb == "read" else None

        return call

    monkeypatch.setattr(Format, "function", function)
    return calls


def rows(dataset):
    return [dataset.labels_of(row) for row in range(len(dataset))]


# --- sniffing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.jsonl", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("train.jsonl", "jsonl"),
        ("a.csv", "csv"),
        ("A.CSV", "csv"),
        ("a.parquet", "parquet"),
        ("a.pq", "parquet"),
        ("trn.json", "lf"),
        ("tst.json", "lf"),
        ("trn_X_Xf.txt", "xmc-split"),
        ("tst_X_Xf.txt", "xmc-split"),
        ("train_raw_texts.txt", "attentionxml"),
        ("test_texts.txt", "attentionxml"),
        ("X.trn.txt", "pecos"),
        ("Y.tst.npz", "pecos"),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_a_file_is_told_by_its_name(tmp_path, name, format, packed):
    (tmp_path / f"{name}{packed}").write_bytes(b"what is in it does not matter")
    assert sniff(tmp_path / f"{name}{packed}").name == format
    assert sniff(str(tmp_path / f"{name}{packed}")) is FORMATS[format]


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (WIND, "jsonl"),
        (b"  {", "jsonl"),
        (b"\r\n\n" + WIND, "jsonl"),
        (b"3 5 7\n0,1 2:0.5\n", "bow"),
        (b"3\t5\t7\r\n", "bow"),
        (b"3 5 7", "bow"),
        (b"__label__a __label__b wind\n", "fasttext"),
        (b"text\tlabels\nwind\ta\n", "tsv"),
        (b"ID\tTitle\tLabels\r\n", "tsv"),
        (b"wind\t<http://example.org/a> <http://example.org/b>\n", "annif-tsv"),
        (b"text\t<http://example.org/labels>\n", "annif-tsv"),
        (b"labels\twind\n", "annif-tsv"),
    ],
)
@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, zstd.compress, lambda c: gzip.compress(b"") + gzip.compress(c)]
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_other_files_are_told_by_their_first_line(tmp_path, content, format, pack, mark):
    (tmp_path / "data.txt").write_bytes(pack(mark + content))
    assert sniff(tmp_path / "data.txt").name == format


@pytest.mark.parametrize(
    ("header", "format"),
    [
        (b"text,subject_uris\n", "annif-csv"),
        (b'\r\n"document_id","text", "subject_uris"\r\n', "annif-csv"),
        (b"text,labels,subject_uris\n", "csv"),
        (b"text,subjects\n", "csv"),
        (b"", "csv"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_table_of_annif_is_told_by_its_columns(tmp_path, header, format, pack, mark):
    (tmp_path / "data.csv").write_bytes(pack(mark + header))
    assert sniff(tmp_path / "data.csv").name == format


@pytest.mark.parametrize(
    "content", [b"\n", b"plain words\n", b"3 5\n", b"3 5 7 9\n", b"[{}]\n", b"\xff\xfe"]
)
def test_what_cannot_be_told_wants_a_format(tmp_path, content):
    (tmp_path / "data.txt").write_bytes(content)
    with pytest.raises(
        UsageError, match=r"data.txt: unknown format; .*give one with --format: jsonl, csv, tsv, "
    ):
        sniff(tmp_path / "data.txt")


def test_an_empty_file_is_bad_data(tmp_path):
    (tmp_path / "data.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"data.txt: an empty file; expected documents"):
        sniff(tmp_path / "data.txt")


def test_parquet_is_told_by_its_first_bytes(tmp_path):
    (tmp_path / "data").write_bytes(b"PAR1\x15\x04\t")
    assert sniff(tmp_path / "data").name == "parquet"


def test_a_folder_format_cannot_go_to_standard_output(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError, match="pecos is a folder of files; expected the name of a folder"
    ):
        write(dataset, "-", format="pecos")
    assert list(tmp_path.iterdir()) == []


def test_labels_beside_are_open_unless_told(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["x", "y"]}\n')
    (tmp_path / "labels.jsonl").write_text('{"id": "x"}\n')
    assert list(read(tmp_path).labels.ids) == ["x", "y"]
    assert list(read(tmp_path, unknown="drop").labels.ids) == ["x"]
    with pytest.raises(DataError, match="unknown label 'y'"):
        read(tmp_path, unknown="error")


def test_features_stand_in_for_text(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": "a", "labels": ["x"]}\n{"id": "b", "labels": []}\n')
    write_csr_npz(sparse.csr_array(np.eye(2, dtype=np.float32)), tmp_path / "x.npz")
    found = read(tmp_path / "x.jsonl", features=tmp_path / "x.npz")
    assert (found.texts, found.features.toarray().tolist()) == (None, [[1, 0], [0, 1]])
    with pytest.raises(DataError, match=r"x.jsonl:1: no field 'text' or 'title'"):
        read(tmp_path / "x.jsonl")
    write_csr_npz(sparse.csr_array(np.eye(3, dtype=np.float32)), tmp_path / "y.npz")
    with pytest.raises(
        DataError, match=r"y.npz: 3 rows of features for 2 documents; expected one row a document"
    ):
        read(tmp_path / "x.jsonl", features=tmp_path / "y.npz")


@pytest.mark.parametrize("wrong", [{"split": "foo"}, {"unknown": "foo"}, {"skip_bad": -1}])
def test_settings_that_do_not_exist(tmp_path, wrong):
    (tmp_path / "x.jsonl").write_text('{"text": "a", "labels": ["x"]}\n')
    with pytest.raises(UsageError, match=f"{next(iter(wrong))}=.*; expected"):
        read(tmp_path / "x.jsonl", **wrong)


def test_a_damaged_archive_is_bad_data(tmp_path):
    (tmp_path / "data.txt.gz").write_bytes(gzip.compress(WIND)[:10])
    with pytest.raises(DataError, match="gzip data that ends too early"):
        sniff(tmp_path / "data.txt.gz")


@pytest.mark.parametrize(
    ("members", "format"),
    [
        (["trn.json.gz", "tst.json.gz", "lbl.json.gz"], "lf"),
        (["tst.json", "notes.txt"], "lf"),
        (["trn_X_Xf.txt", "trn_X_Y.txt"], "xmc-split"),
        (["tst_X_Xf.txt.gz"], "xmc-split"),
        (["train_raw_texts.txt", "train_labels.txt"], "attentionxml"),
        (["train_texts.txt", "train_labels.txt"], "attentionxml"),
        (["test_raw_texts.txt"], "attentionxml"),
        (["X.trn.txt", "Y.trn.npz", "output-items.txt"], "pecos"),
        (["X.tst.txt"], "pecos"),
        (["Y.trn.npz"], "pecos"),
        (["train.jsonl", "labels.jsonl"], "jsonl"),
        (["test.jsonl.zst", "README.txt"], "jsonl"),
        (["one.txt", "one.tsv", "two.txt"], "annif-folder"),
        (["one.txt.gz"], "annif-folder"),
    ],
)
def test_a_folder_is_told_by_its_members(tmp_path, members, format):
    for member in members:
        (tmp_path / member).write_bytes(b"")
    assert sniff(tmp_path).name == format
    assert FORMATS[format].folder or format == "jsonl"


def test_an_unknown_folder_and_nothing(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"")
    with pytest.raises(
        UsageError,
        match=r"no known dataset in this folder; expected one of trn.json, .*train.jsonl, .*",
    ):
        sniff(tmp_path)
    with pytest.raises(UsageError, match="nowhere: no such file or folder"):
        sniff(tmp_path / "nowhere")


def test_standard_input_and_pipes_are_json_lines(tmp_path):
    assert sniff("-").name == "jsonl"
    os.mkfifo(tmp_path / "pipe")
    assert sniff(tmp_path / "pipe").name == "jsonl"


def test_a_pipe_is_read_once_and_whole(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(
        target=(tmp_path / "pipe").write_bytes, args=(WIND * 1000,), daemon=True
    )
    writer.start()
    assert len(read(tmp_path / "pipe")) == 1000
    writer.join(10)


# --- the catalogue -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_reader_and_a_writer(name):
    form = FORMATS[name]
    assert form.name == name
    assert form.what
    for verb in ("read", "write"):
        assert form.function(verb).__name__ == f"{verb}_{name.replace('-', '_')}"


def test_every_told_format_is_in_the_catalogue():
    assert set(formats._BY_MEMBER.values()) | set(formats._BY_SUFFIX.values()) <= set(FORMATS)
    assert all(FORMATS[name].folder or name == "jsonl" for name in formats._BY_MEMBER.values())


# --- read --------------------------------------------------------------------------------------------------------


def test_read_hands_over_all_settings(tmp_path, called, dataset):
    (tmp_path / "a.csv").write_bytes(b"")
    labels = Labels.of("ab")
    found = read(
        tmp_path / "a.csv",
        split="test",
        labels=labels,
        unknown="drop",
        labelled=False,
        skip_bad=7,
        label_separator="|",
    )
    assert found.label_matrix is dataset.label_matrix
    assert (found.source.path, found.source.split, found.source.whole) == (
        tmp_path / "a.csv",
        "",
        False,
    )
    ((name, verb, path, reading, named),) = called
    assert (name, verb, path, named) == ("csv", "read", tmp_path / "a.csv", {})
    assert (reading.split, reading.labels, reading.unknown) == ("test", labels, "drop")
    assert (reading.labelled, reading.skip_bad, reading.label_separator) == (False, 7, "|")


def test_the_given_format_goes_before_the_name(tmp_path, called):
    read(tmp_path / "a.csv", format="fasttext")
    assert [call[:2] for call in called] == [("fasttext", "read")]


@pytest.mark.parametrize(
    "call", [lambda d, p: read(p, format="jsnl"), lambda d, p: write(d, p, format="jsnl")]
)
def test_an_unknown_format_is_answered_with_the_nearest(tmp_path, dataset, call):
    with pytest.raises(UsageError, match=r"unknown format 'jsnl'; did you mean 'jsonl'\?"):
        call(dataset, tmp_path / "a")


def test_reading_is_a_stage_of_the_size_of_the_file(tmp_path):
    class Noted(list):
        def start(self, *given):
            self.append(given)

        def advance(self, amount):
            self.append(amount)

        def finish(self):
            self.append("finish")

    noted = Noted()
    (tmp_path / "a.jsonl").write_bytes(WIND)
    reporting.show_on(noted)
    try:
        read(tmp_path / "a.jsonl")
    finally:
        reporting.show_on(None)
    assert noted[0] == ("reading a.jsonl", len(WIND), "B")
    assert noted[-1] == "finish"
    assert sum(noted[1:-1]) == len(WIND)


def test_a_label_file_fixes_the_columns(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(WIND + SUN)
    (tmp_path / "known.jsonl").write_bytes(b'{"id": "b", "name": "B"}\n{"id": "a"}\n')
    found = read(tmp_path / "a.jsonl", labels=tmp_path / "known.jsonl")
    assert list(found.labels) == [Label("b", "B"), Label("a")]
    assert rows(found) == [["a"], ["b"]]
    with pytest.raises(DataError, match=r"a.jsonl:2: unknown label 'b'"):
        read(tmp_path / "a.jsonl", labels=Labels.of("a"))


# --- folders of JSON lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", ".gz", ".zst"])
def test_a_folder_of_json_lines(tmp_path, end):
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}[end]
    (tmp_path / f"train.jsonl{end}").write_bytes(pack(WIND))
    (tmp_path / f"test.jsonl{end}").write_bytes(pack(SUN))
    assert rows(read(tmp_path)) == [["a"]]
    assert rows(read(tmp_path, split="test")) == [["b"]]
    assert list(read(tmp_path).labels.ids) == ["a"]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_the_labels_beside_come_first_and_others_are_added(tmp_path, end):
    pack = gzip.compress if end else bytes
    (tmp_path / "train.jsonl").write_bytes(SUN + WIND)
    (tmp_path / f"labels.jsonl{end}").write_bytes(pack(b'{"id": "z"}\n{"id": "a", "name": "A"}\n'))
    found = read(tmp_path)
    assert list(found.labels) == [Label("z"), Label("a", "A"), Label("b")]
    assert rows(found) == [["b"], ["a"]]


def test_given_labels_go_before_those_beside(tmp_path):
    (tmp_path / "train.jsonl").write_bytes(SUN + WIND)
    (tmp_path / "labels.jsonl").write_bytes(b'{"id": "z"}\n')
    with pytest.raises(DataError, match="unknown label 'b'"):
        read(tmp_path, labels=Labels.of("a"))
    found = read(tmp_path, labels=Labels.of("a"), unknown="drop")
    assert (rows(found), list(found.labels.ids)) == ([[], ["a"]], ["a"])


def test_a_split_that_is_not_there(tmp_path):
    (tmp_path / "train.jsonl").write_bytes(WIND)
    with pytest.raises(
        UsageError, match=r"no test.jsonl, test.jsonl.gz or test.jsonl.zst in this folder"
    ):
        read(tmp_path, split="test")


def test_the_sample():
    train, test = sample()
    assert (len(train), len(test), train.n_labels) == (6000, 1500, 501)
    assert test.labels is train.labels
    assert train.labels[0].name
    assert train.document_id(0) != "0"
    assert (FOLDER / "LICENCE.md").exists()


# --- features ----------------------------------------------------------------------------------------------------


def save_features(path, n):
    sparse.save_npz(path, sparse.csr_array(np.eye(n, 3, dtype=np.float32)))
    return path


def test_features_stand_beside_the_documents(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(WIND + SUN)
    found = read(tmp_path / "a.jsonl", features=save_features(tmp_path / "x.npz", 2))
    assert found.features.toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert list(found.texts) == ["wind", "sun"]
    with pytest.raises(
        DataError, match="3 rows of features for 2 documents; expected one row a document"
    ):
        read(tmp_path / "a.jsonl", features=save_features(tmp_path / "y.npz", 3))


def test_features_of_a_bag_of_words_file(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"2 3 1\n0 1:0.5\n 0:2\n")
    assert read_features(tmp_path / "x.txt").toarray().tolist() == [[0, 0.5, 0], [2, 0, 0]]


def test_texts_are_no_features(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(WIND)
    with pytest.raises(
        UsageError, match=r"a.jsonl: holds texts; expected features as .npz, .npy, BoW or svmlight"
    ):
        read_features(tmp_path / "a.jsonl")


def test_a_file_of_another_kind_is_no_features(tmp_path):
    (tmp_path / "glove.txt").write_bytes(b"the 0.1 0.2\n")
    with pytest.raises(
        UsageError,
        match=r"glove.txt: unknown format; expected features as .npz, .npy, BoW or svmlight$",
    ):
        read_features(tmp_path / "glove.txt")


# --- write -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.ndjson.zst"])
def test_write_by_name_and_read_back(tmp_path, dataset, name):
    write(dataset, tmp_path / name)
    back = read(tmp_path / name)
    assert (rows(back), back.texts) == (rows(dataset), dataset.texts)


def test_only_folders_are_told_the_split(tmp_path, dataset, called):
    write(dataset, tmp_path / "a.csv", split="test")
    write(dataset, tmp_path / "folder", format="lf", split="test")
    write(dataset, tmp_path / "folder", format="pecos")
    assert called == [
        ("csv", "write", dataset, tmp_path / "a.csv", {}),
        ("lf", "write", dataset, tmp_path / "folder", {"split": "test"}),
        ("pecos", "write", dataset, tmp_path / "folder", {"split": "train"}),
    ]


@pytest.mark.parametrize(
    "name", ["a.txt", "folder", "-", "trn.json.gz", "X.trn.txt", "train_raw_texts.txt"]
)
def test_a_name_that_does_not_tell_what_to_write(tmp_path, dataset, name):
    path = name if name == "-" else tmp_path / name
    with pytest.raises(
        UsageError,
        match=r"the name does not tell the format; give one with --to: jsonl, csv, tsv, parquet",
    ):
        write(dataset, path)
    assert list(tmp_path.iterdir()) == []


def test_keywords_are_the_fields_of_the_options(tmp_path):
    assert get_type_hints(ReadKeywords) == get_type_hints(ReadOptions)
    with pytest.raises(TypeError, match="splitt"):
        read(tmp_path, splitt="test")
