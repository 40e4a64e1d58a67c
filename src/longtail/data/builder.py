"""Where every record-by-record reader puts its documents: one treatment of labels, ids and bad
records for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from longtail.data.dataset import Dataset, label_matrix_of
from longtail.data.growing import ArrayBuilder
from longtail.data.labels import LabelIndex, Labels
from longtail.data.problems import EMPTY_LABEL, MAX_SHOWN, Problems, quoted
from longtail.data.strings import StringsBuilder
from longtail.errors import DataError, Problem, UsageError, unknown_name

__all__ = [
    "Builder",
    "Reading",
    "Record",
    "Split",
    "Unknown",
    "in_vocabulary",
]

Split = Literal["train", "test"]
Unknown = Literal["error", "drop", "add"]
_LITTLE = 0.1  # share of known labels up to which documents are of another vocabulary
_EXAMPLES = 3
# relevances that float32 can hold
_LEAST = 2.0**-149
_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Reading:
    """How to read: the same settings for every format."""

    split: Split = "train"  # which part of a folder that holds both
    labels: Labels | None = None  # a given vocabulary, its columns first
    unknown: Unknown = "error"  # what to do with a label outside it
    labelled: bool = True  # every record must say its labels (an empty list is fine)
    needs_text: bool = True  # not where ready-made features stand in for it
    skip_bad: int | None = 0  # bad records that may be left out; None where all are needed
    label_separator: str = ";"  # between the labels of one CSV, TSV or Parquet cell
    separator: str | None = None  # between the cells of a CSV or TSV; None: by the format
    text_column: str | None = None  # of a table, in place of "text"
    labels_column: str | None = None  # of a table, in place of "labels"
    labels_file: str = ""  # that the vocabulary was read from, for messages
    # of documents and labels of a label-feature set; None: by the folder's name
    fields: tuple[str, ...] | None = None
    folder_features: bool = True  # whether features that lie beside the texts are read
    n_documents: int | None = None  # where known before: of features that are read for them
    # what a reader says of the files that it chose
    notes: list[str] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        for kind, name, known in (("split", self.split, Split), ("unknown", self.unknown, Unknown)):
            if name not in get_args(known):
                raise UsageError(f"{kind}={name!r}; expected one of {', '.join(get_args(known))}")
        if (self.skip_bad or 0) < 0:
            raise UsageError(f"skip_bad={self.skip_bad}; expected 0 or more")


class Record(msgspec.Struct, gc=False):
    """One document as a line of JSONL holds it; any other field is ignored."""

    text: str | None = None
    title: str | None = None
    labels: tuple[str, ...] | None = None
    id: str | int | None = None
    relevance: list[float] | None = None  # one a label; 1 where absent

    def document(self) -> str | None:
        """Return title and text joined; None where the record has neither."""
        if not self.title:
            if self.text is not None:
                return self.text
            return self.title
        if self.text:
            return f"{self.title}\n{self.text}"
        return self.title


class _Known(LabelIndex):
    """Label id → column of a closed vocabulary; −1 for any other."""

    def __missing__(self, label: str) -> int:
        return -1


class Builder:
    """Collects records in the layout that :class:`Dataset` keeps; ``problems`` is the reading's
    ledger.
    """

    def __init__(self, file: object, reading: Reading) -> None:
        self.problems = Problems(file, reading.skip_bad)
        self._reading = reading
        self._closed = reading.labels is not None and reading.unknown != "add"
        columns = reading.labels.columns if reading.labels else {}
        index = _Known if self._closed else LabelIndex
        self._columns_of = index(columns)
        self._texts = StringsBuilder()
        self._ids = StringsBuilder()
        self._has_ids = False
        self._has_text = False
        self._columns = ArrayBuilder("i")
        self._row_ends = ArrayBuilder("q", [0])
        self._relevance: ArrayBuilder | None = None
        self._dropped = 0
        self._unknown: list[str] = []  # labels for which records were bad

    def __len__(self) -> int:
        return len(self._texts)

    def extend(self, records: Sequence[Record]) -> bool:
        """Add many plain records at once; add none and return False if any of them needs
        :meth:`add`.
        """
        relevances = [record.relevance for record in records]
        if self._relevance is not None or relevances.count(None) < len(records):
            return False
        texts: list[Any] = [record.text for record in records]
        titles = [record.title for record in records]
        if titles.count(None) < len(records):
            texts = [record.document() for record in records]
        labels: list[Any] = [record.labels for record in records]
        if None in texts or None in labels:
            return False
        pairs = list(chain.from_iterable(labels))
        if "" in pairs:
            return False
        columns = np.fromiter(map(self._columns_of.__getitem__, pairs), np.int32, len(pairs))
        if self._closed and (columns < 0).any():
            return False
        self._texts.extend(texts)
        self._has_text = True
        self._add_ids([record.id for record in records])
        counts = np.fromiter(map(len, labels), np.int64, len(labels))
        self._row_ends.extend_packed(len(self._columns) + np.cumsum(counts))
        self._columns.extend_packed(columns)
        return True

    def add(self, line: int, record: Record) -> None:
        """Add one record, or report it as bad with its line."""
        problem = self._wrong_with(record)
        if problem:
            self._report(line, *problem)
            return
        labels = record.labels or ()
        columns = [self._columns_of[label] for label in labels]
        relevance = record.relevance or [1.0] * len(labels)
        if -1 in columns:
            self._dropped += columns.count(-1)
            relevance = [
                value for value, column in zip(relevance, columns, strict=True) if column >= 0
            ]
            columns = [column for column in columns if column >= 0]
        if record.relevance is not None and self._relevance is None:
            self._relevance = ArrayBuilder("f")
            self._relevance.extend_packed(np.ones(len(self._columns), np.float32))
        if self._relevance is not None:
            self._relevance.extend(relevance)
        self._texts.append(record.document() or "")
        self._has_text |= record.document() is not None
        self._add_ids([record.id])
        self._columns.extend(columns)
        self._row_ends.append(len(self._columns))

    def _report(self, line: int, problem: str, expected: str) -> None:
        """Note a bad record; if no label fits the vocabulary, refuse it instead of the records."""
        try:
            self.problems.add(line, problem, expected)
        except DataError:
            self._refuse_another_vocabulary()
            raise

    def _refuse_another_vocabulary(self) -> None:
        """Raise for documents whose labels are not those of the vocabulary: no record is bad."""
        unknown = len(self._unknown)
        known = len(self._columns)
        vocabulary = self._reading.labels
        if vocabulary is None or unknown < 2 or known > _LITTLE * (unknown + known):
            return
        names = [label for label in self._unknown if vocabulary.named(label)]
        some = ", ".join(quoted(label) for label in self._unknown[:_EXAMPLES])
        theirs = ", ".join(quoted(label) for label in list(vocabulary.ids[:_EXAMPLES]))
        any_label = "no label"
        if known:
            any_label = "hardly any label"
        problem = f"{any_label} of {self.problems.file} ({some})"
        problem += f" is among its {len(vocabulary):,} ({theirs})"
        if names:
            label = names[0]
            problem += f"; {quoted(label)} is the name of {quoted(vocabulary.named(label)[0])}"
        expected = "labels by the ids of the documents: give another label file, or none"
        raise DataError([Problem(self._reading.labels_file or "labels", 0, problem, expected)])

    def _wrong_with(self, record: Record) -> tuple[str, str] | None:
        """Return (problem, expected) for a record that cannot be taken."""
        if record.document() is None and self._reading.needs_text:
            example = '{"text": "…", "labels": ["…"]}'
            return "no field 'text' or 'title'", f"a document such as {example}"
        if record.labels is None and self._reading.labelled:
            return "no field 'labels'", "a list of strings, [] for none"
        labels = record.labels or ()
        if "" in labels:
            return EMPTY_LABEL
        if self._closed and self._reading.unknown == "error":
            for label in labels:
                if self._columns_of[label] < 0:
                    self._unknown.append(label)
                    return self._unknown_label(label)
        if record.relevance is not None:
            if len(record.relevance) != len(labels):
                return (
                    f"{len(record.relevance)} relevances for {len(labels)} labels",
                    "one relevance a label",
                )
            if not all(_LEAST <= value <= _MOST for value in record.relevance):
                return f"relevance {quoted(record.relevance)}", "finite numbers above 0"
        return None

    def _add_ids(self, ids: Sequence[str | int | None]) -> None:
        """Keep document ids once any record has one; those without get their position."""
        first = len(self._texts) - len(ids)
        if not self._has_ids:
            if ids.count(None) == len(ids):
                return
            self._has_ids = True
            self._ids.extend(map(str, range(first)))
        self._ids.extend(
            str(position if document is None else document)
            for position, document in enumerate(ids, first)
        )

    def finish(self) -> Dataset:
        """Return the dataset, or raise for the bad records that may not be skipped."""
        try:
            self.problems.close()
        except DataError:
            self._refuse_another_vocabulary()
            raise
        if not len(self):
            self.problems.fatal("no document", "at least one")
        labels = self._labels()
        self._columns_of = LabelIndex()  # the largest part of a long-tailed vocabulary is its dict
        relevance = None
        if self._relevance is not None:
            relevance = self._relevance.finish()
        columns = self._columns.finish()
        row_ends = self._row_ends.finish()
        if len(columns) < 1 << 31:
            row_ends = row_ends.astype(np.int32)
            del self._row_ends  # freed before the matrix takes its memory
        matrix, merged = label_matrix_of(columns, row_ends, len(labels), relevance, copy=False)
        texts = None
        if self._has_text:
            texts = self._texts.finish()
        ids = None
        if self._has_ids:
            ids = self._ids.finish()
        return Dataset(
            label_matrix=matrix,
            labels=labels,
            texts=texts,
            ids=ids,
            merged_duplicates=merged,
            dropped_unknown=self._dropped,
        )

    def _labels(self) -> Labels:
        vocabulary = self._reading.labels
        if vocabulary is None:
            return Labels(self._columns_of.strings())
        if self._closed:
            return vocabulary
        return vocabulary.extended(self._columns_of.strings())

    def _unknown_label(self, label: str) -> tuple[str, str]:
        problem = f"unknown label {quoted(label)}"
        known = self._columns_of
        # difflib over a million labels takes minutes: the nearest is only looked for in small
        # vocabularies, and to show
        if len(known) <= 10_000 and len(label) <= 200 and self.problems.skipped < MAX_SHOWN:
            _, near, name = unknown_name("label", label, known).rpartition("; did you mean ")
            if near:
                problem += f" (did you mean {name})"
        vocabulary = self._reading.labels
        if vocabulary is not None and (named := vocabulary.named(label)):
            problem += f" (the name of the label {quoted(named[0])})"
        return problem, "a label of the given vocabulary"


def in_vocabulary(dataset: Dataset, reading: Reading) -> Dataset:
    """Return the dataset over the labels that the reading asks for."""
    if reading.labels is None:
        return dataset
    return dataset.with_labels(reading.labels, reading.unknown)
