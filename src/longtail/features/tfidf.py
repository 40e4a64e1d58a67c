"""Text to sparse features: n-grams of words or characters, weighted by tf-idf as scikit-learn
defines it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import config
from longtail.data.csr import csr_of
from longtail.data.strings import Strings
from longtail.features.counting import Rows, count_and_weigh, over_blocks, split_units
from longtail.features.vocabulary import Vocabulary, damaged
from longtail.kernels import pool, tfidf_rows

__all__ = ["TfIdf"]

_ONE_BLOCK = (config.TfIdf(),)
_TINY = float(np.finfo(np.float64).tiny)
_NOTHING: Rows = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


class TfIdf:
    """A fitted vectoriser of one or more blocks of n-grams, side by side in the columns.

    It equals scikit-learn's TfidfVectorizer or, of several blocks, a FeatureUnion with their
    weights and a Normalizer. Only where ``max_features`` cuts between n-grams that occur equally
    often, it keeps the first in order of bytes."""

    def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
        self._vocabularies = list(vocabularies)

    @classmethod
    def fit(cls, texts: Iterable[str], blocks: Sequence[config.TfIdf] = _ONE_BLOCK) -> TfIdf:
        """Count the n-grams of ``texts`` and keep those that ``blocks`` ask for."""
        documents = Strings.of(texts)
        return cls(
            [count_and_weigh(documents, settings, keep_rows=False)[0] for settings in blocks]
        )

    @classmethod
    def fit_transform(
        cls, texts: Iterable[str], blocks: Sequence[config.TfIdf] = _ONE_BLOCK
    ) -> tuple[TfIdf, sparse.csr_array]:
        """Return the vectoriser and the features of the same texts, which are read only once."""
        documents = Strings.of(texts)
        fitted = [count_and_weigh(documents, settings, keep_rows=True) for settings in blocks]
        vectoriser = cls([vocabulary for vocabulary, _ in fitted])
        return vectoriser, vectoriser._side_by_side([rows for _, rows in fitted], len(documents))

    def transform(self, texts: Iterable[str]) -> sparse.csr_array:
        """Return csr of shape (n_documents, n_features), float32; rows have length one, or 0."""
        documents = Strings.of(texts)
        rows = [_weigh(documents, vocabulary) for vocabulary in self._vocabularies]
        return self._side_by_side(rows, len(documents))

    @property
    def n_features(self) -> int:
        """Columns of the features."""
        return sum(map(len, self._vocabularies))

    @cached_property
    def vocabulary(self) -> Strings:
        """The n-gram of each column."""
        if len(self._vocabularies) == 1:
            return self._vocabularies[0].strings
        return Strings.of(
            [ngram for vocabulary in self._vocabularies for ngram in vocabulary.strings]
        )

    def spans(self, text: str) -> tuple[NDArray[np.int32], list[str]]:
        """Return the columns of ``text``, rising, and the n-gram of each."""
        columns: NDArray[np.int32] = self.transform([text]).indices
        return columns, [self.vocabulary[column] for column in columns.tolist()]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learnt, in few bytes, for the model folder."""
        arrays = [vocabulary.to_arrays() for vocabulary in self._vocabularies]
        return {
            f"{number}.{name}": array
            for number, block in enumerate(arrays)
            for name, array in block.items()
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], blocks: Sequence[config.TfIdf] = _ONE_BLOCK
    ) -> TfIdf:
        """Undo ``to_arrays``; ``blocks`` are the settings it was fitted with."""
        names = [
            {name: f"{number}.{name}" for name in Vocabulary.ARRAYS}
            for number in range(len(blocks))
        ]
        if set(arrays) != {full for block in names for full in block.values()}:
            raise damaged(
                f"arrays {', '.join(sorted(arrays))} for {len(blocks)} block(s) of settings"
            )
        parts = [{name: arrays[full] for name, full in block.items()} for block in names]
        return cls(
            [
                Vocabulary.from_arrays(part, settings)
                for part, settings in zip(parts, blocks, strict=True)
            ]
        )

    def _side_by_side(self, blocks: Sequence[list[Rows]], n_documents: int) -> sparse.csr_array:
        """Join the rows of all blocks of columns, each times its weight, and bring them to length
        one again.
        """
        if len(blocks) == len(blocks[0]) == 1:
            ends, columns, values = blocks[0][0]
            return csr_of(values, columns, ends, self.n_features)
        sizes = [_row_sizes(rows, n_documents) for rows in blocks]
        indptr: NDArray[np.int64] = np.append(0, np.cumsum(np.sum(sizes, axis=0)))
        columns = np.empty(indptr[-1], np.int32)
        values = np.empty(indptr[-1], np.float32)
        weights = [
            vocabulary.settings.weight * (size > 0)
            for vocabulary, size in zip(self._vocabularies, sizes, strict=True)
        ]
        norms = np.maximum(np.sqrt(np.sum(np.square(weights), axis=0)), _TINY)
        begins = indptr[:-1].copy()
        first_column = 0
        widths = map(len, self._vocabularies)
        for width, rows, size, weight in zip(widths, blocks, sizes, weights, strict=True):
            _copy_rows(rows, first_column, weight / norms, begins, columns, values)
            begins += size
            first_column += width
        return csr_of(values, columns, indptr, self.n_features)


def _weigh(documents: Strings, vocabulary: Vocabulary) -> list[Rows]:
    settings = vocabulary.settings
    known = vocabulary.table, vocabulary.idf

    def weigh(block: tuple[int, int]) -> Rows:
        _, _, hashes, units = split_units(documents, block, settings.unit)
        rows: Rows = tfidf_rows.weigh_ngrams(
            hashes, units, settings.ngram_min, settings.ngram_max, *known, settings.sublinear_tf
        )
        return rows

    return list(over_blocks("computing tf-idf", documents, settings, weigh))


def _row_sizes(rows: Sequence[Rows], n_documents: int) -> NDArray[np.int64]:
    sizes = np.zeros(n_documents, np.int64)
    first = 0
    for ends, _, _ in rows:
        np.subtract(ends[1:], ends[:-1], out=sizes[first : first + len(ends) - 1])
        first += len(ends) - 1
    return sizes


def _copy_rows(
    rows: list[Rows],
    first_column: int,
    scales: NDArray[np.float64],
    begins: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
) -> None:
    """Copy the rows of one block of columns to where each begins in the whole."""
    firsts = list(accumulate((len(ends) - 1 for ends, _, _ in rows), initial=0))

    def copy(number: int) -> None:
        here = slice(firsts[number], firsts[number + 1])
        tfidf_rows.place_rows(
            *rows[number], first_column, scales[here], begins[here], columns, values
        )
        rows[number] = _NOTHING  # freed as soon as it is copied

    deque(pool.run(copy, range(len(rows))), maxlen=0)
