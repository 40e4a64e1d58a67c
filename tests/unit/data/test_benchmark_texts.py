"""Label-feature sets and AttentionXML's texts: as they are in the world, there and back, and with everything wrong."""

import gzip
import json
import logging

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail.data.attentionxml import read_attentionxml, write_attentionxml
from longtail.data.builder import Builder, Reading, Record
from longtail.data.dataset import Dataset
from longtail.data.labels import Label, Labels
from longtail.data.lf import read_lf, write_lf
from longtail.errors import DataError, UsageError

LBL = b"""{"uid": "B00A", "title": "Tutu", "content": "A skirt for ballet."}
{"uid": 17, "title": "Shoes"}
{"uid": "B00C", "title": "Hat", "content": ""}
"""
TRN = b"""{"uid": "0000031909", "title": "Girls Ballet", "content": "Red", "target_ind": [0, 2], "target_rel": [1.0, 1]}
{"uid": "0000032034", "title": "Adult Ballet", "content": "", "target_ind": [1], "target_rel": [0.5]}
{"uid": 3, "title": "Nothing", "target_ind": []}
"""

characters = st.characters(
    exclude_categories=["Cs"], exclude_characters="\ufeff"
)  # a file may begin with this mark
texts = st.lists(st.text(characters, max_size=12), min_size=1, max_size=5)
ids = st.lists(st.text(characters, min_size=1, max_size=5), unique=True, min_size=1, max_size=4)


@st.composite
def datasets(draw, graded=False, with_ids=False):
    """Draw documents over labels with names and texts, none of them of a shape that a file would like."""
    names = st.text(characters, max_size=4)
    labels = Labels.of([Label(label, draw(names), draw(names)) for label in draw(ids)])
    builder = Builder("drawn", Reading(labels=labels))
    for row, text in enumerate(draw(texts)):
        own = draw(st.lists(st.sampled_from(list(labels.ids)), unique=True))
        relevance = [draw(st.floats(0.125, 9, width=32)) for _ in own] if graded else None
        builder.add(
            row, Record(text, labels=own, relevance=relevance, id=draw(names) if with_ids else None)
        )
    return builder.finish()


def label_sets(dataset):
    return [set(dataset.labels_of(row)) for row in range(len(dataset))]


@pytest.fixture
def lf(tmp_path):
    def make(documents=TRN, labels=LBL, name="trn.json.gz"):
        compress = gzip.compress if name.endswith(".gz") else bytes
        (tmp_path / "lbl.json.gz").write_bytes(gzip.compress(labels))
        (tmp_path / name).write_bytes(compress(documents))
        return tmp_path

    return make


# Label-feature sets


@pytest.mark.parametrize("name", ["", "trn.json.gz"])
def test_lf_as_the_repository_has_it(lf, name):
    dataset = read_lf(lf() / name, Reading())
    assert list(dataset.texts) == ["Girls Ballet\nRed", "Adult Ballet", "Nothing"]
    assert list(dataset.ids) == ["0000031909", "0000032034", "3"]
    assert [dataset.labels_of(row) for row in range(3)] == [["B00A", "B00C"], ["17"], []]
    assert dataset.label_matrix.data.tolist() == [1, 1, 0.5]
    assert list(dataset.labels) == [
        Label("B00A", "Tutu", "A skirt for ballet."),
        Label("17", "Shoes"),
        Label("B00C", "Hat"),
    ]


def test_lf_uncompressed_test_part(lf):
    assert len(read_lf(lf(name="tst.json"), Reading(split="test"))) == 3
    with pytest.raises(UsageError, match=r"no file trn\.json"):
        read_lf(lf(name="tst.json"), Reading())


@settings(max_examples=60, deadline=None)
@given(dataset=datasets(graded=True, with_ids=True))
@example(dataset=Dataset.of(["\na", "a\n", "\n", "", "a\n\nb", "a\nb"], [["x"]] * 6))
def test_lf_round_trip(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lf")
    write_lf(dataset, folder, "test")
    again = read_lf(folder, Reading(split="test"))
    assert again.texts == dataset.texts
    assert again.labels == dataset.labels
    assert [again.document_id(row) for row in range(len(again))] == [
        dataset.document_id(r) for r in range(len(again))
    ]
    assert np.array_equal(again.label_matrix.toarray(), dataset.label_matrix.toarray())


def test_lf_round_trip_twice_is_the_same_bytes(tmp_path, lf):
    dataset = read_lf(lf(), Reading())
    for folder in (tmp_path / "one", tmp_path / "two"):
        write_lf(dataset, folder)
        assert read_lf(folder, Reading()).labels == dataset.labels
    for name in ("trn.json.gz", "lbl.json.gz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    first = json.loads(
        gzip.decompress((tmp_path / "one" / "trn.json.gz").read_bytes()).split(b"\n")[0]
    )
    assert first == json.loads(TRN.split(b"\n")[0])


UTF8 = "UTF-8; text in Latin-1 is converted with: iconv -f LATIN1 -t UTF-8"
BAD_DOCUMENTS = {  # None: in the words of every JSON reader
    b"{": None,
    b"[]": None,
    b'{"title": 5, "target_ind": []}': None,
    b'{"title": "a", "target_ind": [0.5]}': None,
    b'{"title": "a", "target_ind": ["0"]}': None,
    b'{"title": "a", "target_ind": 0}': None,
    b'{"title": "a"}': "a list of label numbers, [] for none",
    b'{"target_ind": [0]}': 'a document such as {"title": "…", "target_ind": [0]}',
    b'{"title": "a", "target_ind": [3]}': "a number below 3, the labels of the set",
    b'{"title": "a", "target_ind": [-1]}': "a number below 3, the labels of the set",
    b'{"title": "a", "target_ind": [99999999999999999999]}': None,
    b'{"title": "a", "target_ind": [0], "target_rel": []}': "one relevance a label",
    b'{"title": "a", "target_ind": [], "target_rel": [1.0]}': "one relevance a label",
    b'{"title": "a", "target_ind": [0], "target_rel": [0]}': "finite numbers above 0",
    b'{"title": "a", "target_ind": [0], "target_rel": [-1]}': "finite numbers above 0",
    b'{"title": "a", "target_ind": [0], "target_rel": [NaN]}': None,
    b'{"title": "\xff", "target_ind": [0]}': UTF8,
    b'{"title": "\\ud800", "target_ind": [0]}': "whole characters",
    b'{"title": "a", "x": ' + b"[" * 2000 + b"]" * 2000 + b', "target_ind": []}': None,
}


@pytest.mark.parametrize("line", BAD_DOCUMENTS, ids=lambda line: repr(line[:50]))
def test_lf_bad_document_is_named_and_can_be_skipped(lf, line):
    folder = lf(TRN + line + b"\n" + TRN)
    with pytest.raises(DataError) as error:
        read_lf(folder, Reading())
    (problem,) = error.value.problems
    assert (problem.file, problem.line) == (str(folder / "trn.json.gz"), 4)
    assert problem.expected == (BAD_DOCUMENTS[line] or problem.expected)
    assert read_lf(folder, Reading(skip_bad=1)).label_matrix.data.tolist() == [1, 1, 0.5] * 2


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"{", ""),
        (b'{"uid": "17"}', "uid '17' again"),
        (b'{"uid": 17}', "uid '17' again"),
        (b'{"uid": []}', "a list"),
    ],
)
def test_lf_bad_label_is_refused_whatever_may_be_skipped(lf, line, found):
    with pytest.raises(DataError) as error:
        read_lf(lf(labels=LBL + line), Reading(skip_bad=9))
    (problem,) = error.value.problems
    assert (problem.file.endswith("lbl.json.gz"), problem.line) == (True, 4)
    assert problem.found.startswith(found)


def test_lf_vocabulary_unlabelled_and_missing_parts(lf):
    assert read_lf(
        lf(), Reading(labels=Labels.of(["17"]), unknown="drop")
    ).label_matrix.toarray().tolist() == [
        [0],
        [0.5],
        [0],
    ]
    with pytest.raises(DataError, match="unknown label 'B00A'"):
        read_lf(lf(), Reading(labels=Labels.of(["17"])))
    folder = lf(b'{"title": "a"}\n')
    assert read_lf(folder, Reading(labelled=False)).label_matrix.shape == (1, 3)
    with pytest.raises(DataError, match="no document"):
        read_lf(lf(b""), Reading())
    (folder / "lbl.json.gz").unlink()
    with pytest.raises(UsageError, match=r"no file lbl\.json"):
        read_lf(folder, Reading(labelled=False))


def test_lf_splits_of_one_folder_have_the_same_labels(tmp_path, caplog):
    one = Dataset.of(["t"], [["b"]], ["a", "b"])
    write_lf(one, tmp_path)
    with pytest.raises(UsageError, match="other labels"):
        write_lf(Dataset.of(["t"], [["b"]]), tmp_path, "test")
    write_lf(one, tmp_path, "test")
    assert not caplog.messages
    with caplog.at_level(logging.WARNING, "longtail"):
        write_lf(
            Dataset.of(["t"], [["b"]], [Label("b", uri="http://b", aliases=("B",))]),
            tmp_path / "new",
        )
    assert "1 label uris, 1 lists of label aliases" in caplog.text


# AttentionXML


@pytest.fixture
def raw(tmp_path):
    def make(texts, labels, part="train"):
        (tmp_path / f"{part}_raw_texts.txt").write_bytes(texts)
        (tmp_path / f"{part}_labels.txt").write_bytes(labels)
        return tmp_path

    return make


@pytest.mark.parametrize("name", ["", "train_raw_texts.txt", "train_labels.txt"])
def test_attentionxml_as_its_authors_have_it(raw, name):
    folder = raw(b"Ballet /SEP/ Pink skirt.\nwind power\n\n", b"sports_outdoors B00A\nwind\n\n")
    dataset = read_attentionxml(folder / name, Reading())
    assert list(dataset.texts) == ["Ballet\nPink skirt.", "wind power", ""]
    assert label_sets(dataset) == [{"sports_outdoors", "B00A"}, {"wind"}, set()]
    assert list(dataset.labels.ids) == ["sports_outdoors", "B00A", "wind"]
    assert dataset.ids is None


def test_attentionxml_tokenised_and_compressed_test_part(tmp_path):
    (tmp_path / "test_texts.txt.gz").write_bytes(gzip.compress(b"a b\r\nc\r\n"))
    (tmp_path / "test_labels.txt").write_bytes(b"x  y\r\ny\tx x\r\n")
    dataset = read_attentionxml(tmp_path, Reading(split="test"))
    assert list(dataset.texts) == ["a b", "c"]
    assert label_sets(dataset) == [{"x", "y"}, {"x", "y"}]
    assert dataset.merged_duplicates == 1


@settings(max_examples=60, deadline=None)
@given(dataset=datasets())
@example(dataset=Dataset.of(["a\n\nb", " \n ", "c\r\nd\re"], [["two words", "x"], [], ["x"]]))
@example(dataset=Dataset.of(["a"], [[" ", "\x1c\x1c", "\u3000\u2028\x85"]]))
def test_attentionxml_round_trip(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("attention")
    written = [
        "".join("_" if c.isspace() else c for c in label) or "_" for label in dataset.labels.ids
    ]
    if len(set(written)) < len(written):
        with pytest.raises(UsageError, match="become one"):
            write_attentionxml(dataset, folder)
        return
    write_attentionxml(dataset, folder)
    again = read_attentionxml(folder, Reading())
    texts = [text.replace("\r\n", "\n").replace("\r", "\n") for text in dataset.texts]
    assert list(again.texts) == texts
    named = dict(zip(dataset.labels.ids, written, strict=True))
    assert label_sets(again) == [{named[label] for label in own} for own in label_sets(dataset)]


def test_attentionxml_writer_says_what_it_cannot_hold(tmp_path, caplog):
    builder = Builder("here", Reading(labels=Labels.of([Label("a b", "A"), Label("c")])))
    builder.add(1, Record("x", labels=["a b"], relevance=[0.5], id="one"))
    with caplog.at_level(logging.WARNING, "longtail"):
        write_attentionxml(builder.finish(), tmp_path, "test")
    changed, left_out = caplog.messages
    assert "'_' stands for what this format cannot hold in 1 label ids" in changed
    assert "1 document ids, 2 label names, 1 relevances other than 1" in left_out
    assert (tmp_path / "test_labels.txt").read_bytes() == b"a_b\n"


def test_attentionxml_bad_lines_are_left_out_in_both_files(raw):
    folder = raw(b"one\n\xfftwo\nthree\nfour\n", b"a\nb\n\xe9\nd\n")
    with pytest.raises(DataError) as error:
        read_attentionxml(folder, Reading())
    assert [(p.file.rsplit("/")[-1], p.line, p.expected) for p in error.value.problems] == [
        ("train_raw_texts.txt", 2, UTF8),
        ("train_labels.txt", 3, UTF8),
    ]
    dataset = read_attentionxml(folder, Reading(skip_bad=2))
    assert list(dataset.texts) == ["one", "four"]
    assert label_sets(dataset) == [{"a"}, {"d"}]


@pytest.mark.parametrize(
    ("texts", "labels", "file", "line"),
    [
        (b"a\nb\nc\n", b"x\ny\n", "train_raw_texts.txt", 3),
        (b"a\n", b"x\n\nz\n", "train_labels.txt", 3),
    ],
)
def test_attentionxml_files_of_different_length(raw, texts, labels, file, line):
    folder = raw(texts, labels)
    with pytest.raises(DataError, match="a line more than in") as error:
        read_attentionxml(folder, Reading(skip_bad=9))
    assert error.value.problems[-1][:2] == (str(folder / file), line)


def test_attentionxml_blank_lines_at_the_end_and_missing_labels(raw):
    folder = raw(b"a\n\n \n", b"x\n")
    assert len(read_attentionxml(folder, Reading())) == 1
    with pytest.raises(DataError, match="unknown label 'x'"):
        read_attentionxml(folder, Reading(labels=Labels.of(["y"])))
    with pytest.raises(DataError, match="no document"):
        read_attentionxml(raw(b"", b""), Reading())
    folder = raw(b"a\n\nb\n", b"")
    (folder / "train_labels.txt").unlink()
    with pytest.raises(UsageError, match=r"no file train_labels\.txt"):
        read_attentionxml(folder, Reading())
    assert list(read_attentionxml(folder, Reading(labelled=False)).texts) == ["a", "", "b"]


def test_overlong_line_is_left_out_in_both_files(raw, monkeypatch):
    monkeypatch.setattr("longtail.data.lines.MAX_LINE", 3_000_000)
    folder = raw(b"a\n" + b"x" * 5_000_000 + b"\nc\n", b"p\nq\nr\n")
    dataset = read_attentionxml(folder, Reading(skip_bad=1))
    assert list(dataset.texts) == ["a", "c"]
    assert label_sets(dataset) == [{"p"}, {"r"}]
