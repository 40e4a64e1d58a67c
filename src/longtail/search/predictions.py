"""Ranked labels of documents, as a CSR matrix and as JSON lines ``{"id", "labels": [...], "scores": [...]}``."""

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
from longtail.data.problems import Problems, quoted
from longtail.data.strings import Strings

__all__ = ["Predictions", "ScoredLabel", "read_predictions", "write_predictions"]

log = logging.getLogger("longtail")
_MOST = float(np.finfo(np.float32).max)


class ScoredLabel(NamedTuple):
    """One suggestion for one document."""

    id: str
    name: str
    score: float


@dataclass(frozen=True, eq=False)
class Predictions:
    """Suggestions for N documents; ``matrix`` is (N, L) with the entries of each row from best to worst."""

    matrix: sparse.csr_array
    labels: Labels
    ids: Strings | None = None

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, row: int) -> list[ScoredLabel]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"document {row} of {len(self)}")
        row %= len(self)
        start, end = self.matrix.indptr[row : row + 2]
        columns, scores = self.matrix.indices[start:end].tolist(), self.matrix.data[start:end].tolist()
        return [
            ScoredLabel(self.labels.ids[column], self.labels.name(column), score)
            for column, score in zip(columns, scores, strict=True)
        ]


class _Line(msgspec.Struct, gc=False):
    labels: list[str] | None = None
    scores: list[float] | None = None
    id: str | int | None = None


_decoder = msgspec.json.Decoder(_Line)


def read_predictions(path: Path | str, labels: Labels, ids: Strings | None = None, n_documents: int = 0) -> Predictions:
    """Read the predictions of any system for the documents with ``ids``, or for ``n_documents`` in order.

    Lines may come in any order where both sides have ids. Without scores the order of a line is its ranking.
    Labels outside ``labels`` are appended: they can only be misses.
    """
    problems = Problems(path)
    rows = {document: row for row, document in enumerate(ids)} if ids is not None else None
    collected = _Collected(LabelIndex(labels.columns), rows)
    for block in json_blocks(path, _decoder, problems):
        for number, prediction in block:
            if wrong := collected.add(prediction):
                problems.add(number, *wrong)
    problems.close()
    expected = n_documents if ids is None else len(ids)
    if not collected.row and expected:
        problems.fatal("no prediction", f"{expected}, one a document")
    if collected.by_id and rows is not None and len(rows) != expected:
        problems.fatal("ids that stand more than once in the test data", "unique ids, or a file in order without ids")
    if not collected.by_id and len(collected.row) != expected:
        way = "one a document in order, as not both sides have ids"
        problems.fatal(f"{len(collected.row)} predictions for {expected} documents", way)
    if len(collected.row) < expected:
        log.warning("%s: no line for %d of %d documents: all misses", path, expected - len(collected.row), expected)
    return Predictions(collected.matrix(expected), labels.extended(list(collected.columns)), ids)


class _Collected:
    """The lines of a prediction file as they come, put in document order at the end."""

    def __init__(self, columns: LabelIndex, rows: dict[str, int] | None) -> None:
        self.columns = columns
        self.by_id: bool | None = None  # or by position; the first line tells
        self.row: dict[int, int] = {}  # document → its line among those taken
        self._rows = rows
        self._labels, self._scores, self._ends = array("i"), array("f"), array("q", [0])

    def add(self, prediction: _Line) -> tuple[str, str] | None:
        """Take one line; return (found, expected) if it is wrong."""
        if prediction.labels is None:
            return "no field 'labels'", "a list of labels, best first, [] for none"
        count = len(prediction.labels)
        scores = prediction.scores if prediction.scores is not None else [1 / rank for rank in range(1, count + 1)]
        if len(scores) != count:
            return f"{len(scores)} scores for {count} labels", "one score a label"
        if scores and not -_MOST <= min(scores) <= max(scores) <= _MOST:
            return f"score {max(scores, key=abs)}", "a finite number of 32 bits"
        if len(set(prediction.labels)) != count:
            return f"label {quoted(Counter(prediction.labels).most_common(1)[0][0])} twice", "each label once"
        by_id = prediction.id is not None and self._rows is not None
        if self.by_id is None:
            self.by_id = by_id
        if by_id != self.by_id:
            word = "no id" if self.by_id else f"id {quoted(prediction.id)}"
            return f"{word}, unlike the lines before", "ids in all lines or in none"
        row = self._row_of(prediction.id)
        if row is None or row in self.row:
            word = "an unknown document id" if row is None else "a second prediction for document"
            return f"{word} {quoted(prediction.id)}", "one line for each document of the test data"
        self.row[row] = len(self.row)
        self._labels.extend(map(self.columns.__getitem__, prediction.labels))
        self._scores.extend(scores)
        self._ends.append(len(self._labels))
        return None

    def _row_of(self, document: str | int | None) -> int | None:
        """Return the row of a document by its id, or by its place where it or the data has no id."""
        if document is None or self._rows is None:
            return len(self.row)
        return self._rows.get(str(document))

    def matrix(self, n_documents: int) -> sparse.csr_array:
        """Return (n_documents, L), documents in order, each row from best to worst."""
        n_labels = len(self.columns)
        taken, ends = np.frombuffer(self._labels, np.int32), np.frombuffer(self._ends, np.int64)
        scores = np.frombuffer(self._scores, np.float32)
        lengths = np.zeros(n_documents, np.int64)
        documents = np.fromiter(self.row, np.int64, len(self.row))
        lengths[documents] = np.diff(ends)
        line_of_entry = np.repeat(documents, np.diff(ends))
        order = np.lexsort((taken, -scores, line_of_entry))  # by document, then falling score, then label
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return sparse.csr_array((scores[order], taken[order], indptr), shape=(n_documents, n_labels))


def write_predictions(predictions: Predictions, path: Path | str) -> None:
    """Write one JSON line a document, labels by id from best to worst."""
    encode = msgspec.json.Encoder().encode
    with open_output(path) as out:
        for row in range(len(predictions)):
            scored = predictions[row]
            name = predictions.ids[row] if predictions.ids is not None else str(row)
            labels, scores = [label.id for label in scored], [label.score for label in scored]
            out.write(encode({"id": name, "labels": labels, "scores": scores}) + b"\n")
