"""An empty label is refused where it is read or made: a model with it could not be opened."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from scipy import sparse

import longtail as lt
from longtail.data.builder import Builder, Reading, Record
from longtail.data.labels import Label, Labels
from longtail.data.reading import read
from longtail.data.strings import Strings
from longtail.errors import DataError, UsageError
from longtail.search.predictions import read_predictions

FOUND = "an empty label; expected labels of one character or more"


def write_parquet(path):
    table = {"text": ["sea", "wind"], "labels": [["b"], ["a", ""]]}
    parquet.write_table(pyarrow.table(table), path)


def write_lf(folder):
    folder.mkdir()
    (folder / "trn.json").write_text('{"title": "sea", "target_ind": [0]}\n')
    (folder / "lbl.json").write_text('{"uid": "a", "title": "A"}\n{"uid": "", "title": "B"}\n')


def write_bow(path):
    path.write_text("1 2 2\n0,1 0:1\n")
    path.with_name("d.labels.txt").write_text("a\n\n")


def write_text(text):
    return lambda path: path.write_text(text)


READERS = {
    "jsonl": (
        "d.jsonl",
        write_text('{"text": "sea", "labels": ["b"]}\n{"text": "wind", "labels": ["a", ""]}\n'),
        2,
    ),
    "csv": ("d.csv", write_text('text,labels\nsea,b\nwind,"[""a"", """"]"\n'), 3),
    "tsv": ("d.tsv", write_text('text\tlabels\nsea\tb\nwind\t"[""a"", """"]"\n'), 3),
    "parquet": ("d.parquet", write_parquet, 2),
    "lf": ("set", write_lf, 2),
    "bow": ("d.txt", write_bow, 2),
}


@pytest.mark.parametrize("format", READERS)
def test_readers_name_the_line(format, tmp_path):
    name, make, line = READERS[format]
    make(tmp_path / name)
    with pytest.raises(DataError) as caught:
        read(tmp_path / name, format=format)
    assert f":{line}: an empty " in str(caught.value).splitlines()[0]


def test_the_record_may_be_left_out(tmp_path):
    name, make, _ = READERS["jsonl"]
    make(tmp_path / name)
    dataset = read(tmp_path / name, skip_bad=1)
    assert list(dataset.texts) == ["sea"]
    assert list(dataset.labels.ids) == ["b"]


@pytest.mark.parametrize("unknown", ["error", "drop", "add"])
def test_a_vocabulary_makes_no_difference(unknown):
    builder = Builder("d", Reading(labels=Labels.of(["a"]), unknown=unknown))
    record = Record(text="wind", labels=["a", ""])
    assert not builder.extend([record])
    builder.add(7, record)
    with pytest.raises(DataError) as caught:
        builder.finish()
    assert str(caught.value).splitlines()[0] == f"d:7: {FOUND}"


def test_reading_many_lines_at_once_names_the_line(tmp_path):
    lines = [json.dumps({"text": f"text {row}", "labels": [str(row % 5)]}) for row in range(50)]
    lines[30] = json.dumps({"text": "x", "labels": ["7", ""]})
    file = tmp_path / "d.jsonl"
    file.write_text("\n".join([*lines, ""]))
    with pytest.raises(DataError, match=r"d.jsonl:31: an empty label; expected"):
        read(file)


def test_an_item_of_pecos_without_a_name_lets_all_be_called_by_number(tmp_path, caplog):
    (tmp_path / "X.trn.txt").write_text("sea\nwind\n")
    sparse.save_npz(tmp_path / "Y.trn.npz", sparse.csr_matrix(np.eye(2, dtype=np.float32)))
    (tmp_path / "output-items.txt").write_text("a\n\n")
    dataset = read(tmp_path, format="pecos")
    assert list(dataset.labels.ids) == ["0", "1"]
    assert "called by their column numbers" in caplog.text


class TestPython:
    def test_documents(self):
        with pytest.raises(UsageError) as caught:
            lt.Dataset.of(["sea", "wind"], [["b"], ["a", ""]])
        assert str(caught.value) == f"document 2: found {FOUND}"

    @pytest.mark.parametrize("given", [["a", ""], [Label("a"), Label("")], iter(["a", ""])])
    def test_vocabularies(self, given):
        with pytest.raises(
            UsageError, match=r"^label 2: an empty id; expected one character or more$"
        ):
            Labels.of(given)

    def test_columns(self):
        with pytest.raises(UsageError, match=r"^label 1: an empty id"):
            Labels(Strings.of(["", "b"]))

    def test_vocabulary_of_documents(self):
        with pytest.raises(UsageError, match="label 1: an empty id"):
            lt.Dataset.of(["sea"], [["a"]], vocabulary=["", "a"])


def test_predictions_of_others(tmp_path):
    file = Path(tmp_path / "p.jsonl")
    file.write_text('{"labels": ["a", ""]}\n')
    with pytest.raises(DataError, match=r"p.jsonl:1: an empty label; expected"):
        read_predictions(file, Labels.of(["a"]), n_documents=1)


def test_blank_labels_stay(tmp_path):
    documents = lt.Dataset.of(["sea sea", "wind sea", "wind wave"], [[" "], ["\n"], [" ", "a"]])
    tagger = lt.Longtail("dismec").fit(documents)
    tagger.save(tmp_path / "model")
    assert list(lt.load(tmp_path / "model").model.labels.ids) == [" ", "\n", "a"]
