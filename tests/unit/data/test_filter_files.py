"""Where documents are from, and which filter file counts for them, by which numbers."""

from __future__ import annotations

import gzip
import json
import logging

import numpy as np
import pytest
from scipy import sparse

import longtail as lt
from longtail.data.filter_files import AUTO, filter_pairs, find_filter
from longtail.data.source import Source
from longtail.errors import DataError

LABELS = ["c", "a", "b"]
DOCUMENTS = [[0, 1], [2], [1, 2], [0]]


def write_lines(path, records):
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def folder(tmp_path):
    """A label-feature set, whose files number the labels c, a, b."""
    path = tmp_path / "LF-Toys-3"
    path.mkdir()
    write_lines(path / "lbl.json.gz", [{"uid": uid, "title": f"label {uid}"} for uid in LABELS])
    for part in ("trn", "tst"):
        rows = [
            {"uid": f"d{at}", "title": f"text {at}", "target_ind": member}
            for at, member in enumerate(DOCUMENTS)
        ]
        write_lines(path / f"{part}.json.gz", rows)
    (path / "filter_labels_test.txt").write_text("0 0\n1 2\n3 1\n")
    (path / "filter_labels_train.txt").write_text("2 2\n")
    return path


class TestSource:
    def test_of_a_folder(self, folder):
        source = lt.read(folder, split="test").source
        assert (source.path, source.split, source.whole) == (folder, "test", True)
        assert list(source.labels.ids) == LABELS
        assert source.names == ("LF-Toys-3",)
        assert source.folder == folder

    @pytest.mark.parametrize(("file", "split"), [("tst.json.gz", "test"), ("trn.json.gz", "train")])
    def test_of_a_file_the_name_tells_the_split(self, folder, file, split):
        source = lt.read(folder / file, split="test").source
        assert (source.split, source.names, source.folder) == (split, (file, "LF-Toys-3"), folder)

    @pytest.mark.parametrize(
        ("name", "split"),
        [
            ("test.jsonl", "test"),
            ("amazon_test.jsonl.gz", "test"),
            ("X.trn.npz", "train"),
            ("tst_X_Xf.txt", "test"),
            ("data.jsonl", ""),
            ("latest.jsonl", ""),
            ("train-and-test.jsonl", ""),
        ],
    )
    def test_splits(self, tmp_path, name, split):
        assert Source.of(tmp_path / name, "test").split == split

    def test_the_working_folder_has_a_name(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        assert Source.of(".", "test").names == ("LF-Toys-3",)
        assert Source.of("../LF-Toys-3/tst.json.gz", "test").names == ("tst.json.gz", "LF-Toys-3")

    def test_labels_of_files_that_have_them_by_name(self, tmp_path):
        lt.write(lt.Dataset.of(["x", "y"], [["a"], ["b"]]), tmp_path / "test.jsonl")
        assert lt.read(tmp_path / "test.jsonl").source.labels is None

    def test_documents_made_in_python_have_none(self):
        assert lt.Dataset.of(["x"], [["a"]]).source is None

    def test_some_documents_are_not_the_whole(self, folder):
        documents = lt.read(folder, split="test")
        assert not documents.take(np.arange(4)).source.whole
        assert all(not part.source.whole for part in documents.split(2))
        assert documents.with_labels(lt.Labels.of("abc")).source.whole

    def test_nor_are_those_of_which_bad_ones_may_be_missing(self, folder):
        assert not lt.read(folder, split="test", skip_bad=1).source.whole
        assert lt.read(folder, split="test", skip_bad=None).source.whole


class TestFind:
    def test_beside_the_data(self, folder):
        for path in (folder, folder / "tst.json.gz"):
            assert (
                find_filter(AUTO, lt.read(path, split="test")) == folder / "filter_labels_test.txt"
            )
        for path in (folder, folder / "trn.json.gz"):
            assert (
                find_filter(AUTO, lt.read(path, split="train"))
                == folder / "filter_labels_train.txt"
            )

    def test_other_names(self, folder):
        (folder / "filter_labels_test.txt").rename(folder / "filter_labels.txt")
        assert find_filter(AUTO, lt.read(folder, split="test")) == folder / "filter_labels.txt"
        with gzip.open(folder / "filter_labels_test.txt.gz", "wb") as out:
            out.write(b"0 0\n")
        assert (
            find_filter(AUTO, lt.read(folder, split="test")) == folder / "filter_labels_test.txt.gz"
        )
        (folder / "filter_labels_train.txt").unlink()
        assert (
            find_filter(AUTO, lt.read(folder, split="train")) is None
        )  # that of the test data is not for it

    def test_what_is_asked_for_goes_before(self, folder, tmp_path):
        documents = lt.read(folder, split="test")
        assert find_filter(None, documents) is None
        assert find_filter(tmp_path / "mine.txt", documents) == tmp_path / "mine.txt"
        assert find_filter("mine.txt", documents.take(np.arange(2))).name == "mine.txt"

    def test_none_of_documents_from_nowhere(self):
        assert find_filter(AUTO, lt.Dataset.of(["x"], [["a"]])) is None

    def test_a_part_of_the_documents_is_not_filtered_and_that_is_said(self, folder, caplog):
        with caplog.at_level(logging.WARNING, "longtail"):
            assert find_filter(AUTO, lt.read(folder, split="test").take(np.array([1, 0]))) is None
        assert (
            "filter_labels_test.txt: not used, as these are not all documents of LF-Toys-3"
            in caplog.text
        )

    def test_labels_by_name_are_not_filtered_and_that_is_said(self, folder, caplog):
        lt.write(lt.read(folder, split="test"), folder / "test.jsonl")
        with caplog.at_level(logging.WARNING, "longtail"):
            assert find_filter(AUTO, lt.read(folder / "test.jsonl")) is None
        assert "this format has labels by name" in caplog.text


class TestPairs:
    def test_by_the_numbers_of_the_files(self, folder):
        documents = lt.read(folder, split="test")
        path = folder / "filter_labels_test.txt"
        assert filter_pairs(path, documents, 3).tolist() == [[0, 0], [1, 2], [3, 1]]

    @pytest.mark.parametrize("unknown", ["add", "error"])
    def test_over_labels_in_another_order(self, folder, unknown):
        member = lt.Labels.of(["more", "a", "b", "c"])
        path = folder / "filter_labels_test.txt"
        expected = [[0, 3], [1, 2], [3, 1]]
        moved = lt.read(folder, split="test").with_labels(member, unknown=unknown)
        assert filter_pairs(path, moved, 4).tolist() == expected
        assert (
            filter_pairs(
                path, lt.read(folder, split="test", labels=member, unknown=unknown), 4
            ).tolist()
            == expected
        )

    def test_labels_that_were_dropped_are_in_no_pair(self, folder):
        moved = lt.read(folder, split="test").with_labels(lt.Labels.of("a"), unknown="drop")
        assert filter_pairs(folder / "filter_labels_test.txt", moved, 1).tolist() == [[3, 0]]

    def test_by_column_where_files_have_labels_by_name(self, folder):
        documents = lt.Dataset.of(["x", "y", "z", "w"], [["a"], ["b"], ["c"], []])
        assert filter_pairs(folder / "filter_labels_test.txt", documents, 3).tolist() == [
            [0, 0],
            [1, 2],
            [3, 1],
        ]

    def test_a_number_that_the_files_do_not_have_is_refused(self, folder):
        (folder / "filter_labels_test.txt").write_text("0 1\n2 3\n")
        wide = lt.read(folder, split="test").with_labels(lt.Labels.of("vwxyz"), unknown="add")
        with pytest.raises(
            DataError, match=r"filter_labels_test\.txt:2: label 3; expected a number below 3"
        ):
            filter_pairs(folder / "filter_labels_test.txt", wide, 8)


@pytest.fixture
def with_features():
    documents = lt.Dataset.of(["x", "y"], [["p"], ["q", "r"]])
    return documents.with_features(sparse.csr_array(np.eye(2, 5, dtype=np.float32)))


@pytest.mark.parametrize("format", ["xmc-split", "pecos", "lf"])
def test_formats_that_number_labels(tmp_path, with_features, format):
    lt.write(with_features, tmp_path / "data", format=format, split="test")
    (tmp_path / "data" / "filter_labels_test.txt").write_text("1 2\n")
    again = lt.read(tmp_path / "data", split="test", labels=lt.Labels.of(["r", "q", "p"]))
    assert find_filter(AUTO, again) is not None
    ((row, column),) = filter_pairs(find_filter(AUTO, again), again, 3).tolist()
    assert (row, again.labels.ids[column]) == (1, "r")


def test_one_file_of_features_numbers_labels_too(tmp_path, with_features):
    lt.write(with_features, tmp_path / "test.txt", format="bow")
    (tmp_path / "filter_labels_test.txt").write_text("1 2\n")
    assert find_filter(AUTO, lt.read(tmp_path / "test.txt")) == tmp_path / "filter_labels_test.txt"
