"""Predictions of any system: read by id or by position, ranked, written and read again."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.data.labels import Label, Labels
from longtail.data.strings import Strings
from longtail.errors import DataError, UsageError
from longtail.metrics import precision_at_k
from longtail.search.predictions import (
    Predictions,
    ScoredLabel,
    read_predictions,
    write_predictions,
)

LABELS = Labels.of([Label("a", "Apple"), Label("b"), Label("c", "Cherry")])
IDS = Strings.of(["x", "y", "z"])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "out.jsonl"


def put(file, *lines) -> None:
    file.write_bytes(
        b"".join(
            (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"
            for line in lines
        )
    )


def line(document, labels, scores=None):
    whole = {"id": document, "labels": list(labels), "scores": scores}
    return {key: value for key, value in whole.items() if value is not None}


def ranked(predictions: Predictions) -> list[str]:
    """Return the label ids of each document, from best to worst."""
    return ["".join(label.id for label in predictions[row]) for row in range(len(predictions))]


def said(file, *lines, ids=IDS, n_documents=3) -> str:
    """Return what the only problem of these lines is, after the name of the file."""
    put(file, *lines)
    with pytest.raises(DataError) as caught:
        read_predictions(file, LABELS, ids, n_documents)
    (problem,) = caught.value.problems
    assert str(caught.value).startswith(f"{file}")
    return str(problem).removeprefix(str(file)).lstrip(":")


class TestPrinted:
    def test_names_and_scores(self, file):
        put(file, line("x", "ab", [0.75, 0.0625]), line("y", "c", [1]))
        found = str(read_predictions(file, LABELS, IDS))
        assert (
            found
            == "predictions for 3 documents\nx: Apple 0.750, b 0.062\ny: Cherry 1.000\nz: none"
        )

    def test_the_first_five_of_many(self):
        labels = Labels.of([f"l{column}" for column in range(6)])
        lines = str(Predictions(sparse.csr_array(np.ones((6, 6))), labels)).split("\n")
        assert lines[1] == "0: l0 1.000, l1 1.000, l2 1.000, l3 1.000, l4 1.000, …"
        assert lines[5:] == [lines[1].replace("0:", "4:"), "…"]


class TestById:
    def test_any_order(self, file):
        put(file, line("z", "c"), line("x", "a"), line("y", "ba"))
        predictions = read_predictions(file, LABELS, IDS)
        assert ranked(predictions) == ["a", "ba", "c"]
        assert predictions.ids == IDS

    def test_missing_documents_have_no_predictions(self, file):
        put(file, line("z", "ca"))
        predictions = read_predictions(file, LABELS, IDS)
        assert ranked(predictions) == ["", "", "ca"]
        assert predictions.matrix.shape == (3, 3)

    def test_a_number_is_an_id(self, file):
        put(file, line(12, "b"), line(7, "a"))
        assert ranked(read_predictions(file, LABELS, Strings.of(["7", "12"]))) == ["a", "b"]

    def test_unknown_id(self, file):
        message = said(file, line("x", "a"), line("w", "a"))
        assert (
            message
            == "2: an unknown document id 'w'; expected one line for each document of the test data"
        )

    def test_second_prediction(self, file):
        message = said(file, line("x", "a"), line("y", "b"), line("x", "c"))
        assert (
            message
            == "3: a second prediction for document 'x'; expected one line for each document of the test data"
        )

    def test_id_that_stands_twice_in_the_test_data(self, file):
        message = said(file, line("x", "a"), ids=Strings.of(["x", "y", "x"]))
        assert message.strip() == (
            "ids that stand more than once in the test data; expected unique ids, or a file in order without ids"
        )
        put(file, *(line(None, label) for label in "abc"))
        assert ranked(read_predictions(file, LABELS, Strings.of(["x", "y", "x"]))) == [
            "a",
            "b",
            "c",
        ]

    def test_id_in_some_lines_only(self, file):
        expected = "expected ids in all lines or in none"
        assert (
            said(file, line("x", "a"), line(None, "b"))
            == f"2: no id, unlike the lines before; {expected}"
        )
        assert (
            said(file, line(None, "b"), line("y", "a"))
            == f"2: id 'y', unlike the lines before; {expected}"
        )
        assert said(file, line("z", "a"), line(None, "b"), ids=Strings.of(["z"])).startswith(
            "2: no id"
        )


class TestByPosition:
    def test_no_ids_at_all(self, file):
        put(file, line(None, "a"), line(None, "cb"))
        predictions = read_predictions(file, LABELS, n_documents=2)
        assert ranked(predictions) == ["a", "cb"]
        assert predictions.ids is None

    def test_ids_in_the_test_data_only(self, file):
        put(file, line(None, "a"), line(None, "b"), line(None, "c"))
        predictions = read_predictions(file, LABELS, IDS)
        assert ranked(predictions) == ["a", "b", "c"]
        assert predictions.ids == IDS

    @pytest.mark.parametrize(
        "first", ["z", "", "2", "-1", "00", "+0", "1.0", "٠", "9" * 5000, 2, -1, 10**30]
    )
    def test_with_foreign_ids_the_order_counts(self, file, first, caplog):
        put(file, line(first, "a"), line("0", "b"))
        assert ranked(read_predictions(file, LABELS, n_documents=2)) == ["a", "b"]
        (warning,) = caplog.messages
        assert "the test data has no ids: the order of lines is used" in warning
        assert warning.startswith(f"{file}: ")
        assert len(warning) < len(str(file)) + 200

    def test_foreign_ids_in_some_lines_only(self, file):
        expected = "expected ids in all lines or in none"
        message = said(file, line("z", "a"), line(None, "b"), line("x", "a"), ids=None)
        assert message == f"2: no id, unlike the lines before; {expected}"

    @pytest.mark.parametrize("ids", [None, IDS])
    def test_nothing(self, file, ids):
        assert said(file, ids=ids).strip() == "no prediction; expected 3, one a document"

    @pytest.mark.parametrize("count", [1, 2, 4])
    @pytest.mark.parametrize("ids", [None, IDS])
    def test_not_one_for_each_document(self, file, count, ids):
        message = said(file, *[line(None, "a")] * count, ids=ids)
        assert message.strip() == (
            f"{count} predictions for 3 documents; expected one a document in order, as not both sides have ids"
        )

    def test_not_one_for_each_document_with_ids_in_the_predictions_only(self, file):
        assert (
            said(file, line("x", "a"), ids=None)
            .strip()
            .startswith("1 predictions for 3 documents; ")
        )

    def test_no_documents(self, file):
        put(file)
        assert len(read_predictions(file, LABELS, n_documents=0)) == 0
        assert (
            said(file, line(0, "a"), ids=None, n_documents=0)
            .strip()
            .startswith("1 predictions for 0 documents; ")
        )

    def test_the_documents_must_be_told(self, file):
        put(file, line(None, "a"))
        with pytest.raises(UsageError, match="neither ids nor n_documents is given; give the ids"):
            read_predictions(file, LABELS)


class TestByPositionAsId:
    """Documents without ids are called by their position."""

    @pytest.mark.parametrize("kind", [int, str])
    def test_any_order(self, file, kind, caplog):
        put(file, line(kind(2), "c"), line(kind(0), "a"), line(kind(1), "ba"))
        predictions = read_predictions(file, LABELS, n_documents=3)
        assert ranked(predictions) == ["a", "ba", "c"]
        assert predictions.ids is None
        assert not caplog.messages

    def test_missing_documents_have_no_predictions(self, file, caplog):
        put(file, line("2", "ca"))
        assert ranked(read_predictions(file, LABELS, n_documents=3)) == ["", "", "ca"]
        assert caplog.messages == [f"{file}: no line for 2 of 3 documents: all misses"]

    @pytest.mark.parametrize("unknown", ["x", "3", "01", -1, 3])
    def test_unknown_id(self, file, unknown):
        assert said(file, line("0", "a"), line(unknown, "a"), ids=None) == (
            f"2: an unknown document id {unknown!r}; "
            "expected one line for each document of the test data, by its place from 0 to 2"
        )

    def test_second_prediction(self, file):
        message = said(file, line("1", "a"), line("0", "b"), line(1, "c"), ids=None)
        assert message.startswith(
            "3: a second prediction for document 1; expected one line for each document"
        )

    def test_id_in_some_lines_only(self, file):
        expected = "expected ids in all lines or in none"
        message = said(file, line("1", "a"), line(None, "b"), ids=None)
        assert message == f"2: no id, unlike the lines before; {expected}"
        message = said(file, line(None, "b"), line("0", "a"), ids=None)
        assert message == f"2: id '0', unlike the lines before; {expected}"


class TestRanking:
    def one(self, file, labels, scores=None):
        put(file, line(None, labels, scores))
        return read_predictions(file, LABELS, n_documents=1)

    def test_without_scores_the_order_is_the_ranking(self, file):
        predictions = self.one(file, "cab")
        assert ranked(predictions) == ["cab"]
        scores = [label.score for label in predictions[0]]
        assert scores == sorted(set(scores), reverse=True)

    def test_a_long_ranking_without_scores_stays_in_order(self, file):
        labels = [f"l{n:04}" for n in range(5000)]
        put(file, line(None, labels[::-1]))
        predictions = read_predictions(file, Labels.of(labels), n_documents=1)
        assert predictions.matrix.indices.tolist() == list(range(4999, -1, -1))
        assert (np.diff(predictions.matrix.data) < 0).all()

    def test_scores_may_come_unsorted(self, file):
        assert ranked(self.one(file, "abc", [0.1, 0.3, 0.2])) == ["bca"]

    def test_scores_that_differ_by_little_are_no_ties(self, file):
        predictions = self.one(file, "abc", [0.9, 0.9 + 2e-10, 0.9 + 1e-10])
        assert ranked(predictions) == ["bca"]
        assert [label.score for label in predictions[0]] == [0.9 + 2e-10, 0.9 + 1e-10, 0.9]
        for k, truth in ((1, [0, 1, 0]), (2, [0, 1, 1])):
            assert precision_at_k(predictions.matrix, sparse.csr_array([truth]), k) == 1

    def test_large_scores(self, file):
        assert ranked(self.one(file, "abc", [-1e308, 1e39, 1e300])) == ["cba"]

    def test_ties_go_to_the_earlier_label(self, file):
        assert ranked(self.one(file, "cab", [0.5, 0.5, 0.5])) == ["abc"]
        assert ranked(self.one(file, "cba", [0.5, 0.9, 0.5])) == ["bac"]

    def test_negative_and_whole_scores(self, file):
        predictions = self.one(file, "abc", [-3, -1.5, 0])
        assert ranked(predictions) == ["cba"]
        assert [label.score for label in predictions[0]] == [0, -1.5, -3]

    def test_ranks_within_documents_only(self, file):
        put(file, line(None, "ab", [0.1, 0.2]), line(None, []), line(None, "ca", [0.9, 0.95]))
        predictions = read_predictions(file, LABELS, n_documents=3)
        assert ranked(predictions) == ["ba", "", "ac"]
        assert predictions.matrix.indptr.tolist() == [0, 2, 2, 4]

    def test_scores_null_is_none(self, file):
        put(file, b'{"labels": ["c", "a"], "scores": null, "id": null}')
        assert ranked(read_predictions(file, LABELS, n_documents=1)) == ["ca"]

    def test_no_labels_anywhere(self, file):
        put(file, line(None, []), line(None, [], []))
        predictions = read_predictions(file, LABELS, n_documents=2)
        assert ranked(predictions) == ["", ""]
        assert predictions.matrix.shape == (2, 3)

    def test_matrix_is_float64_csr(self, file):
        matrix = self.one(file, "ab", [0.5, 0.25]).matrix
        assert isinstance(matrix, sparse.csr_array)
        assert matrix.dtype == np.float64
        assert matrix.toarray().tolist() == [[0.5, 0.25, 0]]


class TestVocabulary:
    def test_labels_outside_are_appended(self, file):
        put(file, line("y", ["new", "b"]), line("x", ["c", "newer", "new"]))
        predictions = read_predictions(file, LABELS, IDS)
        assert list(predictions.labels.ids) == ["a", "b", "c", "new", "newer"]
        assert predictions.matrix.shape == (3, 5)
        assert [[label.id for label in predictions[row]] for row in (0, 1)] == [
            ["c", "newer", "new"],
            ["new", "b"],
        ]

    def test_the_given_vocabulary_stays_as_it_is(self, file):
        put(file, line("y", ["new"]))
        read_predictions(file, LABELS, IDS)
        assert len(LABELS) == len(LABELS.columns) == 3
        assert "new" not in LABELS

    def test_names_are_kept(self, file):
        put(file, line("x", ["new", "a", "b"], [3, 2, 1]))
        predictions = read_predictions(file, LABELS, IDS)
        assert predictions[0] == [
            ScoredLabel("new", "new", 3),
            ScoredLabel("a", "Apple", 2),
            ScoredLabel("b", "b", 1),
        ]


class TestBadLines:
    @pytest.mark.parametrize(
        ("bad", "found", "expected"),
        [
            (line("x", "ab", [1]), "1 scores for 2 labels", "one score a label"),
            (line("x", "a", [1, 2]), "2 scores for 1 labels", "one score a label"),
            (line("x", [], [1]), "1 scores for 0 labels", "one score a label"),
            (line("x", "bab"), "label 'b' twice", "each label once"),
            ({"id": "x"}, "no field 'labels'", "a list of labels, best first, [] for none"),
            (
                {"id": "x", "labels": None},
                "no field 'labels'",
                "a list of labels, best first, [] for none",
            ),
            ({"id": "x", "labels": "a"}, "a string in 'labels'", "a list"),
            ({"id": "x", "labels": [1]}, "a whole number in 'labels[0]'", "a string"),
            (line("x", "a", ["0.5"]), "a string in 'scores[0]'", "a number"),
            (line("x", "a", [None]), "null in 'scores[0]'", "a number"),
            ({"id": 1.5, "labels": []}, "a number in 'id'", "a whole number or a string"),
            ("x", "a string", "a JSON object"),
        ],
    )
    def test_wrong_content(self, file, bad, found, expected):
        assert said(file, bad) == f"1: {found}; expected {expected}"

    @pytest.mark.parametrize(
        "bad",
        [
            b'{"id": "x", "labels": ["a"], "scores": [NaN]}',
            b'{"id": "x", "labels": ["a"], "scores": [Infinity]}',
            b'{"id": "x", "labels": ["a"], "scores": [1e999]}',
            b'{"id": "x", "labels": ["a"], "scores": [-1' + b"0" * 400 + b"]}",
            b'{"id": "x", "labels": ["a"]',
            b"x\ta",
            b"[" * 5000,
            b'{"id": "x", "labels": ["\xff"]}',
            b'{"id": "x", "labels": ["\\ud800"]}',
        ],
    )
    def test_not_json(self, file, bad):
        message = said(file, bad)
        assert message.startswith("1: ")
        assert "; expected " in message
        assert "\n" not in message

    def test_each_is_named_by_its_line(self, file):
        put(file, line("x", "a"), b"", b"?", line("y", "aa"), line("z", "a"))
        with pytest.raises(DataError) as caught:
            read_predictions(file, LABELS, IDS)
        assert [problem.line for problem in caught.value.problems] == [3, 4]

    def test_no_such_file(self, tmp_path):
        with pytest.raises(UsageError, match=r"none\.jsonl: no such file"):
            read_predictions(tmp_path / "none.jsonl", LABELS, IDS)

    def test_a_bad_line_does_not_stop_the_count(self, file):
        put(file, *[b"?"] * 25)
        with pytest.raises(DataError) as caught:
            read_predictions(file, LABELS, IDS)
        assert len(caught.value.problems) == 20


class TestFiles:
    def test_blank_lines_crlf_and_a_mark_are_fine(self, file):
        file.write_bytes(
            b'\xef\xbb\xbf{"id":"y","labels":["b"]}\r\n\r\n  \n{"id":"x","labels":["a"]}'
        )
        assert ranked(read_predictions(file, LABELS, IDS)) == ["a", "b", ""]

    def test_other_fields_are_ignored(self, file):
        put(file, {"id": "x", "labels": ["a"], "text": "…", "time": 3})
        assert ranked(read_predictions(file, LABELS, IDS))[0] == "a"

    def test_compressed(self, file):
        file.write_bytes(gzip.compress(json.dumps(line("x", "ab")).encode()))
        assert ranked(read_predictions(file, LABELS, IDS))[0] == "ab"

    def test_several_blocks(self, file):
        labels = [f"label number {n}" for n in range(50)]
        put(file, *(line(n, labels[n % 7 :]) for n in range(3000)))
        assert file.stat().st_size > 2 << 20
        predictions = read_predictions(file, Labels.of(labels), Strings.of(map(str, range(3000))))
        assert all(
            predictions.matrix.indices[predictions.matrix.indptr[n]] == n % 7 for n in range(3000)
        )


class TestSequence:
    PREDICTIONS = Predictions(
        sparse.csr_array(np.array([[0, 2.0, 1], [0, 0, 0], [0, 0, 3]], np.float32)), LABELS
    )

    def test_length_and_rows(self):
        assert len(self.PREDICTIONS) == 3
        assert self.PREDICTIONS[0][0] == ScoredLabel("b", "b", 2)
        assert self.PREDICTIONS[1] == []
        assert self.PREDICTIONS[-1] == self.PREDICTIONS[2] == [ScoredLabel("c", "Cherry", 3)]

    def test_iteration_ends(self):
        assert [len(row) for row in self.PREDICTIONS] == [2, 0, 1]

    @pytest.mark.parametrize("row", [3, -4])
    def test_beyond(self, row):
        with pytest.raises(IndexError, match=f"document {row} of 3"):
            self.PREDICTIONS[row]


class TestWriting:
    def test_lines(self, file):
        matrix = sparse.csr_array(
            (np.array([2, 1, 0.5], np.float32), [2, 0, 1], [0, 2, 2, 3]), shape=(3, 3)
        )
        write_predictions(Predictions(matrix, LABELS, IDS), file)
        assert [json.loads(row) for row in file.read_text().splitlines()] == [
            {"id": "x", "labels": ["c", "a"], "scores": [2, 1]},
            {"id": "y", "labels": [], "scores": []},
            {"id": "z", "labels": ["b"], "scores": [0.5]},
        ]

    def test_scores_are_written_as_they_were_read(self, file):
        put(file, line("0", "bca", [0.9, 0.3, 0.1]))
        write_predictions(
            read_predictions(file, LABELS, n_documents=1), file.with_name("again.jsonl")
        )
        assert (
            file.with_name("again.jsonl").read_text()
            == '{"id":"0","labels":["b","c","a"],"scores":[0.9,0.3,0.1]}\n'
        )

    def test_without_ids_the_position_is_written(self, file):
        write_predictions(TestSequence.PREDICTIONS, file)
        assert [json.loads(row)["id"] for row in file.read_text().splitlines()] == ["0", "1", "2"]

    @settings(deadline=None, max_examples=50)
    @given(data=st.data())
    def test_reads_back(self, data, tmp_path_factory):
        file = tmp_path_factory.mktemp("predictions") / "out.jsonl"
        text = st.text(st.characters(codec="utf-8"), max_size=8)
        labels = Labels.of(
            data.draw(st.lists(text.filter(bool), min_size=1, max_size=6, unique=True))
        )
        score = st.floats(allow_nan=False, allow_infinity=False)
        row = st.dictionaries(st.integers(0, len(labels) - 1), score)
        rows = data.draw(st.lists(row, min_size=1, max_size=5))
        unique = st.lists(text, min_size=len(rows), max_size=len(rows), unique=True)
        ids = data.draw(st.none() | unique.map(Strings.of))
        best_first = [sorted(row.items(), key=lambda item: (-item[1], item[0])) for row in rows]
        columns = [column for row in best_first for column, _ in row]
        scores = np.array([score for row in best_first for _, score in row], np.float64)
        ends = np.cumsum([0, *map(len, rows)])
        written = Predictions(
            sparse.csr_array((scores, columns, ends), shape=(len(rows), len(labels))), labels, ids
        )
        write_predictions(written, file)
        read = read_predictions(file, labels, ids, len(rows))
        assert read.matrix.shape == written.matrix.shape
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(read.matrix, part), getattr(written.matrix, part))
        assert read.labels == labels
        assert read.ids == ids
