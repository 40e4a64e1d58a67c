"""Documents with their labels: what every reader returns and every method is fitted on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of
from longtail.data.description import Description, Finding, check, describe
from longtail.data.labels import Label, Labels
from longtail.data.problems import EMPTY_LABEL
from longtail.data.source import Source
from longtail.data.strings import Strings
from longtail.errors import DataError, Problem, UsageError

__all__ = ["Dataset", "label_matrix_of"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """N documents: text or ready-made features (or both), and an N × L label matrix over a label
    vocabulary.

    ``features`` (N, d) stand in place of text, ``dense`` (N, e) beside text or features;
    ``label_features`` are (L, d). Without ``ids`` a document is called by its position.
    ``merged_duplicates`` and ``dropped_unknown`` count labels that stood twice in a record, and
    that were left out because the vocabulary does not have them."""

    # (N, L) float32, stored values > 0 are relevances, 1 where none is given
    label_matrix: sparse.csr_array
    labels: Labels
    texts: Strings | None = None
    features: sparse.csr_array | None = None  # (N, d) float32, in place of text
    ids: Strings | None = None  # document ids; None: the position counts
    label_features: sparse.csr_array | None = None  # (L, d) float32
    dense: NDArray[np.float32] | None = None  # (N, e) embeddings, beside text or features
    merged_duplicates: int = 0  # labels that stood twice in one record and were kept once
    dropped_unknown: int = 0  # labels outside a given vocabulary that were left out on request
    # of ``features``, where it may lack the last columns: no header counts them
    headerless_file: str | None = None
    source: Source | None = None  # the file or folder that they were read from

    @classmethod
    def of(
        cls,
        texts: Iterable[str],
        labels: Iterable[Iterable[str]],
        vocabulary: Labels | Iterable[Label | str] | None = None,
    ) -> Dataset:
        """Build a dataset from Python values; ``vocabulary`` closes the set of labels."""
        from longtail.data.builder import Builder, Reading, Record  # the builder makes Datasets

        if vocabulary is not None and not isinstance(vocabulary, Labels):
            vocabulary = Labels.of(vocabulary)
        builder = Builder("documents", Reading(labels=vocabulary))
        for position, (text, names) in enumerate(zip(texts, labels, strict=True), 1):
            if isinstance(text, str) and isinstance(names, str):
                shown = f"labels {names!r}"
                raise UsageError(
                    f"document {position}: found {shown}; expected a string and a list of strings"
                )
            labels_of_text = tuple(names)
            wrong = [value for value in (text, *labels_of_text) if not isinstance(value, str)]
            if wrong:
                shown = repr(wrong[0])
                raise UsageError(
                    f"document {position}: found {shown}; expected a string and a list of strings"
                )
            if "" in labels_of_text:
                raise UsageError(
                    f"document {position}: found {EMPTY_LABEL[0]}; expected {EMPTY_LABEL[1]}"
                )
            try:
                builder.add(position, Record(text=text, labels=labels_of_text))
            except UnicodeEncodeError:
                raise UsageError(
                    f"document {position}: half of a surrogate pair; expected whole characters"
                ) from None
        return builder.finish()

    def __len__(self) -> int:
        return int(self.label_matrix.shape[0])

    def __repr__(self) -> str:
        kind = "texts"
        if self.features is not None:
            kind = f"{self.features.shape[1]} features"
        size = f"{len(self)} documents, {self.n_labels} labels, {self.label_matrix.nnz} pairs"
        return f"Dataset({size}, {kind})"

    @property
    def n_labels(self) -> int:
        """Columns of the label matrix, also those that no document has."""
        return len(self.labels)

    @property
    def label_counts(self) -> NDArray[np.int64]:
        """Documents of each label, (L,)."""
        return np.bincount(self.label_matrix.indices, minlength=self.n_labels).astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of texts, ids, features, label matrix and label vocabulary."""
        arrays: list[Any] = [self.labels]
        for matrix in (self.label_matrix, self.features, self.label_features):
            if matrix is not None:
                arrays += [matrix.data, matrix.indices, matrix.indptr]
        arrays += [part for part in (self.texts, self.ids, self.dense) if part is not None]
        return sum(int(array.nbytes) for array in arrays)

    def document_id(self, row: int) -> str:
        """Return the id of a document, its position where the data gives none."""
        if self.ids is None:
            return str(row)
        return self.ids[row]

    def labels_of(self, row: int) -> list[str]:
        """Return the label ids of one document, in column order."""
        start, end = self.label_matrix.indptr[row : row + 2]
        return [self.labels.ids[column] for column in self.label_matrix.indices[start:end].tolist()]

    def relevance_of(self, row: int) -> list[float] | None:
        """Return the relevances of the labels of ``labels_of``; None where they are all 1."""
        start, end = self.label_matrix.indptr[row : row + 2]
        values = self.label_matrix.data[start:end]
        if (values == 1).all():
            return None
        relevances: list[float] = values.tolist()
        return relevances

    def document_texts(self) -> Strings:
        """Return the texts, or say that these documents have none."""
        if self.texts is None:
            raise UsageError("these documents have features but no text; expected texts")
        return self.texts

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of the file or folder that it was read from, none if it was not."""
        if self.source is None:
            return ()
        return self.source.names

    def take(self, rows: NDArray[np.integer]) -> Dataset:
        """Return the documents at ``rows``, in that order, with the same label vocabulary."""
        return replace(
            self,
            label_matrix=self.label_matrix[rows],
            texts=self.texts and self.texts.take(rows),
            features=_rows_of(self.features, rows),
            dense=_rows_of(self.dense, rows),
            ids=self.ids and self.ids.take(rows),
            source=self.source and self.source.part(),
        )

    def split(self, test: float | int = 0.1, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Return (train, test) over the same labels; a share or a number of documents goes to test.

        Documents with the same text stay on the same side, so that test never holds what was learnt
        by heart; the test part may therefore be smaller than asked by the size of one such group. A
        text that stands more often than the documents asked for goes to train."""
        wanted = round(test * len(self)) if isinstance(test, float | np.floating) else test
        if not 0 < wanted < len(self):
            found_size = f"{wanted} of {len(self)} documents"
            raise UsageError(f"split(test={test}): {found_size}; expected at least 1 on each side")
        groups = self._same_text()
        order = np.random.default_rng(seed).permutation(groups.max() + 1)[groups]
        sizes = np.bincount(order)
        fits = sizes <= wanted
        if not fits.any():
            problem = f"every text stands more than {wanted} times"
            raise UsageError(
                f"split(test={test}): {problem}; expected texts that differ, or a larger test part"
            )
        in_test = (fits & (np.cumsum(sizes * fits) <= wanted))[order]
        return self.take(np.flatnonzero(~in_test)), self.take(np.flatnonzero(in_test))

    def _same_text(self) -> NDArray[np.int64]:
        """Return a group number for each document, equal where the texts are equal."""
        if self.texts is None:
            return np.arange(len(self))
        first: dict[str, int] = {}
        numbers = (first.setdefault(text, len(first)) for text in self.texts)
        return np.fromiter(numbers, np.int64, len(self))

    def with_labels(self, labels: Labels, unknown: str = "error") -> Dataset:
        """Return the same documents over another vocabulary; a label outside it: ``error``,
        ``drop`` or ``add``.
        """
        if unknown == "add":
            labels = labels.extended(self.labels.ids)
        if labels is self.labels:
            return self
        columns = np.fromiter(
            (labels.columns.get(label, -1) for label in self.labels.ids), np.int64, self.n_labels
        )
        matrix = self.label_matrix.tocoo()
        target = columns[matrix.col]
        keep = target >= 0
        if unknown == "error" and not keep.all():
            row, column = (int(axis[~keep][0]) for axis in (matrix.row, matrix.col))
            label = self.labels.ids[column]
            problem = f"unknown label {label!r} of document {self.document_id(row)!r}"
            raise DataError([Problem("labels", 0, problem, "a label of the given vocabulary")])
        shape = (len(self), len(labels))
        remapped = sparse.csr_array(
            (matrix.data[keep], (matrix.row[keep], target[keep])), shape=shape
        )
        remapped.sort_indices()
        dropped = self.dropped_unknown + int((~keep).sum())
        return replace(
            self, label_matrix=remapped, labels=labels, label_features=None, dropped_unknown=dropped
        )

    def describe(self) -> Description:
        """Return counts and the shape of the label distribution."""
        return describe(self)

    def check(self) -> list[Finding]:
        """Return what a person should know before training on these documents, errors first."""
        return check(self)

    def with_features(
        self,
        features: sparse.csr_array | NDArray[np.float32],
        file: object = "features",
        headerless: bool = False,
    ) -> Dataset:
        """Return the same documents with ready-made features, one row a document.

        Sparse ones stand in for text, dense ones beside text or sparse ones.

        Args:
            features: The matrix.
            file: Where it is from, for messages.
            headerless: Whether that file may lack the last columns, as it does not say how many
        there are."""
        if features.shape[0] != len(self):
            problem = f"{features.shape[0]} rows of features for {len(self)} documents"
            raise DataError([Problem(str(file), 0, problem, "one row a document")])
        if isinstance(features, np.ndarray):
            return replace(self, dense=features)
        headerless_file = str(file) if headerless else None
        return replace(self, features=features, headerless_file=headerless_file)

    def widened(self, n_columns: int) -> Dataset:
        """Return the documents with the columns of features that a file without a header may lack.

        Args:
            n_columns: Columns of a model's training data. More in the file are refused.
        """
        if self.features is None or self.headerless_file is None:
            return self
        width = self.features.shape[1]
        if width > n_columns:
            problem = f"feature {width - 1}"
            expected = f"a number below {n_columns}, the columns of the model's training data"
            raise DataError([Problem(self.headerless_file, 0, problem, expected)])
        wider = csr_of(self.features.data, self.features.indices, self.features.indptr, n_columns)
        return replace(self, features=wider, headerless_file=None)


def _rows_of(matrix: Any, rows: NDArray[np.integer]) -> Any:
    """Return rows of a matrix, None where there is none."""
    if matrix is None:
        return None
    return matrix[rows]


def label_matrix_of(
    columns: NDArray[np.integer],
    row_ends: NDArray[np.integer],
    n_labels: int,
    relevance: NDArray[np.float32] | None = None,
    copy: bool = True,
) -> tuple[sparse.csr_array, int]:
    """Return the canonical CSR label matrix and how many labels stood twice in a row (the first of
    each is kept).

    Without ``copy`` the matrix keeps the arrays and sorts them in place.
    """
    index = np.int32 if len(columns) < 1 << 31 else np.int64
    columns = columns.astype(index, copy=copy)
    row_ends = row_ends.astype(index, copy=copy)
    data = np.ones(len(columns), np.float32)
    # sort_indices is not stable: it would keep any of a label's relevances
    if relevance is not None:
        order = np.lexsort((columns, np.repeat(np.arange(len(row_ends) - 1), np.diff(row_ends))))
        columns = columns[order]
        data = relevance[order]
    matrix = sparse.csr_array((data, columns, row_ends), shape=(len(row_ends) - 1, n_labels))
    matrix.sort_indices()
    # one to spare, so that every row has a place where it starts
    twice = np.zeros(matrix.nnz + 1, bool)
    twice[1:-1] = matrix.indices[1:] == matrix.indices[:-1]
    twice[matrix.indptr[:-1]] = False
    merged = int(twice.sum())
    if merged:
        kept = ~twice[:-1]
        before = np.zeros(len(twice), index)  # entries kept before each place
        np.cumsum(kept, out=before[1:])
        parts = (matrix.data[kept], matrix.indices[kept], before[matrix.indptr])
        matrix = sparse.csr_array(parts, shape=matrix.shape)
    return matrix, merged
