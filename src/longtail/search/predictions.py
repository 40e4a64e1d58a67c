"""Ranked labels of documents, as a CSR matrix and as JSON lines ``{"id", "labels": [...], "scores":
[...]}``.
"""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from scipy import sparse

from longtail.data.json_lines import json_blocks
from longtail.data.labels import LabelIndex, Labels
from longtail.data.output import open_output
from longtail.data.problems import EMPTY_LABEL, Problems, quoted
from longtail.data.strings import Strings
from longtail.errors import UsageError, printable

__all__ = ["Predictions", "ScoredLabel", "read_predictions", "write_predictions"]

log = logging.getLogger("longtail")

_SHOWN = 5  # documents, and labels of each, where predictions are printed


class ScoredLabel(NamedTuple):
    """One suggestion for one document; the name is the id where the label has none."""

    id: str
    name: str
    score: float


@dataclass(frozen=True, eq=False)
class Predictions:
    """Suggestions for N documents: ``predictions[0]`` is the list of ``ScoredLabel`` of the first,
    best first.

    ``matrix`` is (N, L) with the entries of each row from best to worst.
    """

    matrix: sparse.csr_array
    labels: Labels
    ids: Strings | None = None

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, row: int) -> list[ScoredLabel]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"document {row} of {len(self)}")
        return [
            ScoredLabel(self.labels.ids[column], self.labels.name(column), score)
            for column, score in zip(*self._row(row % len(self)), strict=True)
        ]

    def __repr__(self) -> str:
        rows = [f"{self._id(row)}: {_shown(self[row])}" for row in range(min(len(self), _SHOWN))]
        if len(self) > _SHOWN:
            rows.append("…")
        return "\n".join([f"predictions for {len(self):,} documents", *rows])

    def line(self, row: int) -> tuple[str, list[str], list[float]]:
        """Return the id of a document, its position where it has none, and the ids and scores of
        its labels.
        """
        columns, scores = self._row(row)
        return self._id(row), [self.labels.ids[column] for column in columns], scores

    def _id(self, row: int) -> str:
        if self.ids is not None:
            return self.ids[row]
        return str(row)

    def _row(self, row: int) -> tuple[list[int], list[float]]:
        start, end = self.matrix.indptr[row : row + 2]
        return self.matrix.indices[start:end].tolist(), self.matrix.data[start:end].tolist()


def _shown(labels: list[ScoredLabel]) -> str:
    """Return the first labels as a person reads them."""
    parts = [f"{printable(label.name)} {label.score:.3f}" for label in labels[:_SHOWN]]
    if len(labels) > _SHOWN:
        parts.append("…")
    return ", ".join(parts) or "none"


class _Line(msgspec.Struct, gc=False):
    labels: list[str] | None = None
    scores: list[float] | None = None
    id: str | int | None = None


_decoder = msgspec.json.Decoder(_Line)  # refuses numbers that are not finite


def read_predictions(
    path: Path | str, labels: Labels, ids: Strings | None = None, n_documents: int | None = None
) -> Predictions:
    """Read the predictions of any system for the documents with ``ids``, or for ``n_documents``
    without.

    Lines with ids may come in any order; documents without ids are called by their position, from
    "0" on. Without scores the order of a line is its ranking. Labels outside ``labels`` are
    appended: they can only be misses."""
    expected = n_documents
    rows = None
    if ids is not None:
        expected = len(ids)
        rows = {document: row for row, document in enumerate(ids)}
    if expected is None:
        raise UsageError(
            f"{path}: neither ids nor n_documents is given; "
            "give the ids of the documents, or their number"
        )
    problems = Problems(path)
    collected = _Collected(LabelIndex(labels.columns), rows, expected)
    for block in json_blocks(path, _decoder, problems):
        for number, prediction in block:
            if wrong := collected.add(prediction):
                problems.add(number, *wrong)
    problems.close()
    if collected.foreign is not None:
        ignored = quoted(collected.foreign)
        log.warning(
            "%s: the test data has no ids: the order of lines is used, ids such as %s are not",
            path,
            ignored,
        )
    if not collected.row and expected:
        problems.fatal("no prediction", f"{expected}, one a document")
    if collected.by_id and rows is not None and len(rows) != expected:
        problems.fatal(
            "ids that stand more than once in the test data",
            "unique ids, or a file in order without ids",
        )
    if not collected.by_id and len(collected.row) != expected:
        way = "one a document in order, as not both sides have ids"
        problems.fatal(f"{len(collected.row)} predictions for {expected} documents", way)
    if len(collected.row) < expected:
        log.warning(
            "%s: no line for %d of %d documents: all misses",
            path,
            expected - len(collected.row),
            expected,
        )
    return Predictions(collected.matrix(expected), labels.extended(list(collected.columns)), ids)


class _Collected:
    """The lines of a prediction file as they come, put in document order at the end."""

    def __init__(self, columns: LabelIndex, rows: dict[str, int] | None, n_documents: int) -> None:
        self.columns = columns
        self.by_id = False  # or in order; the first line tells
        # the first id, where it means nothing to data without ids
        self.foreign: str | int | None = None
        self.row: dict[int, int] = {}  # document → its line among those taken
        self._has_ids: bool | None = None
        self._rows = rows
        self._n_documents = n_documents
        self._labels = array("i")
        self._scores = array("d")
        self._ends = array("q", [0])

    def add(self, prediction: _Line) -> tuple[str, str] | None:
        """Take one line; return (found, expected) if it is wrong."""
        if prediction.labels is None:
            return "no field 'labels'", "a list of labels, best first, [] for none"
        count = len(prediction.labels)
        scores = prediction.scores
        if scores is None:
            scores = [1 / rank for rank in range(1, count + 1)]
        if len(scores) != count:
            return f"{len(scores)} scores for {count} labels", "one score a label"
        if "" in prediction.labels:
            return EMPTY_LABEL
        if len(set(prediction.labels)) != count:
            return (
                f"label {quoted(Counter(prediction.labels).most_common(1)[0][0])} twice",
                "each label once",
            )
        if self._has_ids is None:
            self._begin(prediction.id)
        has_id = prediction.id is not None
        if has_id != self._has_ids:
            problem = f"id {quoted(prediction.id)}" if has_id else "no id"
            return f"{problem}, unlike the lines before", "ids in all lines or in none"
        row: int | None = len(self.row)
        if self.by_id:
            row = self._row_of(prediction.id)
        if row is None:
            return f"an unknown document id {quoted(prediction.id)}", self._one_line_each
        if row in self.row:
            return f"a second prediction for document {quoted(prediction.id)}", self._one_line_each
        self.row[row] = len(self.row)
        self._labels.extend(map(self.columns.__getitem__, prediction.labels))
        self._scores.extend(scores)
        self._ends.append(len(self._labels))
        return None

    @property
    def _one_line_each(self) -> str:
        """What is expected of the lines of the file."""
        expected = "one line for each document of the test data"
        if self._rows is not None:
            return expected
        return f"{expected}, by its place from 0 to {self._n_documents - 1}"

    def _begin(self, document: str | int | None) -> None:
        """Decide by the id of the first line, if it has one, whether lines go by id or in order."""
        self._has_ids = document is not None
        self.by_id = self._has_ids and (
            self._rows is not None or self._row_of(document) is not None
        )
        if not self.by_id:
            self.foreign = document

    def _row_of(self, document: str | int | None) -> int | None:
        """Return the row of a document by its id, its position where the data has no ids."""
        name = str(document)
        if self._rows is not None:
            return self._rows.get(name)
        if not name.isdecimal() or len(name) >= 20:  # int() refuses long ones
            return None
        row = int(name)
        if row < self._n_documents and str(row) == name:
            return row
        return None

    def matrix(self, n_documents: int) -> sparse.csr_array:
        """Return (n_documents, L), documents in order, each row from best to worst."""
        n_labels = len(self.columns)
        taken = np.frombuffer(self._labels, np.int32)
        ends = np.frombuffer(self._ends, np.int64)
        scores = np.frombuffer(self._scores, np.float64)
        lengths = np.zeros(n_documents, np.int64)
        documents = np.fromiter(self.row, np.int64, len(self.row))
        lengths[documents] = np.diff(ends)
        line_of_entry = np.repeat(documents, np.diff(ends))
        # by document, then falling score, then label
        order = np.lexsort((taken, -scores, line_of_entry))
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return sparse.csr_array(
            (scores[order], taken[order], indptr), shape=(n_documents, n_labels)
        )


def write_predictions(predictions: Predictions, path: Path | str) -> None:
    """Write one JSON line a document, labels by id from best to worst."""
    encode = msgspec.json.Encoder().encode
    with open_output(path) as out:
        for row in range(len(predictions)):
            name, labels, scores = predictions.line(row)
            out.write(encode({"id": name, "labels": labels, "scores": scores}) + b"\n")
