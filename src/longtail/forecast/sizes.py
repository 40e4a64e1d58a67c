"""The sizes of a dataset that a forecast is made from, counted in documents or as a paper has
published them, and the shape of the encoder that reads the documents.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.strings import Strings
from longtail.errors import LongtailError
from longtail.features.encoder_folder import (
    EncoderShape,
    encoder_folder,
    encoder_shape,
    names_folder,
)
from longtail.features.gandalf import label_points
from longtail.methods import encoder_of
from longtail.networks.encoders.kinds import WordEncoderKind

__all__ = ["DataSizes", "Distribution", "PublishedDataset", "known_shapes", "shape_of"]

# Assumptions where only means are published, checked against four sets of 24,000 to 95,000
# documents.
_WORD_BYTES = 6.0  # of text, with the space behind the word
_WORD_TOKENS = 1.3  # of a subword vocabulary
_LENGTHS = 0.8  # deviation of the logarithm of the lengths of texts: they are log-normal
# documents of the r-th label are in proportion to r to the power of minus this, and at least 1
_ZIPF = 0.7
# a text of n words has this times n^_REPEATS non-zeros among the published features
_DISTINCT = 1.2
_REPEATS = 0.8
_SPECIAL_TOKENS = 2  # of a document beside those of its text
_SPACED_WORD_BYTES = 7.0  # of a text that is counted, a word with the space behind it
_LABEL_BYTES = 40.0  # id and name of a label in memory
_QUANTILES = 1000  # lengths of texts are represented by so many


class Distribution(NamedTuple):
    """Numbers of which many are alike: rising ``values``, and how often each of them occurs."""

    values: NDArray[np.float64]
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, numbers: ArrayLike) -> Distribution:
        """Count how often each number occurs."""
        values, counts = np.unique(np.asarray(numbers, np.float64), return_counts=True)
        return cls(values, counts.astype(np.float64))

    @property
    def size(self) -> float:
        """How many numbers there are."""
        return float(self.counts.sum())

    @property
    def sum(self) -> float:
        """All numbers added up."""
        return float(self.values @ self.counts)

    @property
    def mean(self) -> float:
        """The mean number; 0 of none."""
        return self.sum / max(self.size, 1.0)

    @property
    def largest(self) -> float:
        """The largest number; 0 of none."""
        if len(self.values):
            return float(self.values[-1])
        return 0.0

    def expected_largest(self, number: int) -> float:
        """Return the expected value of the largest of ``number`` numbers, drawn at random."""
        # share of numbers up to each value
        shares = np.append(0.0, np.cumsum(self.counts)) / max(self.size, 1.0)
        return float(self.values @ np.diff(shares**number))


class PublishedDataset(Protocol):
    """What is published of a dataset: a row of ``reproduction/datasets.toml``."""

    @property
    def train(self) -> int:
        """Documents to train on."""

    @property
    def labels(self) -> int:
        """All labels."""

    @property
    def labels_per_document(self) -> float:
        """Mean over the documents to train on."""

    @property
    def features(self) -> int:
        """Columns of the published sparse features."""

    @property
    def words(self) -> float:
        """Mean words of a document to train on."""


@dataclass(frozen=True, eq=False)
class DataSizes:
    """All that a forecast uses of documents and labels."""

    documents: int
    n_labels: int
    pairs: int  # of a document and one of its labels
    labels_of_documents: Distribution  # of those with any
    documents_of_labels: Distribution  # of those with any
    text_lengths: Distribution  # bytes; none where there is no text
    text_bytes: int  # of all texts in memory
    data_bytes: int  # of documents and labels in memory, texts among them
    label_bytes: int  # of ids, names and texts of labels in memory
    features: tuple[int, int] | None = None  # columns and non-zeros of given sparse features
    dense_width: int = 0  # columns of given dense features
    texts: Strings | None = None  # to draw a sample from, where n-grams have to be counted
    token_bytes: float = 4.0  # of text, a token: 3.7 to 4.5

    @classmethod
    def of(cls, documents: Dataset) -> DataSizes:
        """Count the documents."""
        texts = documents.texts
        features = documents.features
        labels = np.diff(documents.label_matrix.indptr)
        counts = documents.label_counts
        text_lengths = Distribution.of([])
        text_bytes = 0
        if texts is not None:
            text_lengths = Distribution.of(texts.lengths)
            text_bytes = texts.nbytes
        given_features = None
        if features is not None:
            given_features = (features.shape[1], features.nnz)
        dense_width = 0
        if documents.dense is not None:
            dense_width = documents.dense.shape[1]
        return cls(
            documents=len(documents),
            n_labels=documents.n_labels,
            pairs=documents.label_matrix.nnz,
            labels_of_documents=Distribution.of(labels[labels > 0]),
            documents_of_labels=Distribution.of(counts[counts > 0]),
            text_lengths=text_lengths,
            text_bytes=text_bytes,
            data_bytes=documents.nbytes,
            label_bytes=documents.labels.nbytes,
            features=given_features,
            dense_width=dense_width,
            texts=texts,
        )

    @classmethod
    def trained_on(cls, documents: Dataset, config: Config) -> DataSizes:
        """Count what is trained on: with Gandalf also the texts of labels, here without neighbours
        for speed.
        """
        if not config.gandalf.use:
            return cls.of(documents)
        alone = sparse.csr_array(sparse.eye_array(documents.n_labels, dtype=np.float32))
        return cls.of(label_points(documents, alone, config.gandalf, config.seed))

    @classmethod
    def published(cls, about: PublishedDataset) -> DataSizes:
        """Assume how documents and labels are distributed about the published means, see the head
        of this file.
        """
        n = about.train
        pairs = round(n * about.labels_per_document)
        lengths = _lengths(n, about.words)
        nonzeros = round(n * min(about.words, _DISTINCT * about.words**_REPEATS, about.features))
        text_bytes = round(lengths.sum) + 8 * n
        label_bytes = round(_LABEL_BYTES * about.labels)
        return cls(
            documents=n,
            n_labels=about.labels,
            pairs=pairs,
            labels_of_documents=_around(n, about.labels_per_document),
            documents_of_labels=Distribution.of(_zipf(about.labels, pairs, n)),
            text_lengths=lengths,
            text_bytes=text_bytes,
            data_bytes=text_bytes + label_bytes + 8 * (pairs + n) + 8 * (nonzeros + n),
            label_bytes=label_bytes,
            features=(about.features, nonzeros),
            token_bytes=_WORD_BYTES / _WORD_TOKENS,
        )

    def with_label_texts(self, config: Config) -> DataSizes:
        """Return the sizes with Gandalf's texts of labels as further documents, of the mean length
        of the others.
        """
        if not config.gandalf.use:
            return self
        more = round(config.gandalf.share * self.n_labels)
        length = self.text_lengths.mean
        each = 0
        features = None
        if self.features is not None:
            columns, nonzeros = self.features
            each = round(nonzeros / max(self.documents, 1))
            features = (columns, nonzeros + each * more)
        text_bytes = round(more * length) + 8 * more
        return replace(
            self,
            documents=self.documents + more,
            pairs=self.pairs + more,
            labels_of_documents=_joined(self.labels_of_documents, 1.0, more),
            text_lengths=_joined(self.text_lengths, length, more),
            text_bytes=self.text_bytes + text_bytes,
            data_bytes=self.data_bytes + text_bytes + 8 * (2 + each) * more,
            features=features,
        )

    def tokens(self, most: int) -> Distribution:
        """Return how many tokens of a subword vocabulary documents have, up to ``most``."""
        return self._parts(self.token_bytes, most)

    def words(self, most: int) -> Distribution:
        """Return how many words documents have, up to ``most``."""
        return self._parts(_SPACED_WORD_BYTES, most)

    @property
    def all_words(self) -> float:
        """Number of words of all texts."""
        return self.text_lengths.sum / _SPACED_WORD_BYTES

    def _parts(self, part_bytes: float, most: int) -> Distribution:
        lengths = self.text_lengths
        parts = np.minimum(_SPECIAL_TOKENS + lengths.values / part_bytes, most)
        return Distribution(parts, lengths.counts)

    @property
    def true_labels(self) -> float:
        """Labels of a document in the mean."""
        return self.pairs / max(self.documents, 1)


def _lengths(documents: int, words: float) -> Distribution:
    """Return log-normal lengths of texts, in bytes, about their mean."""
    shares = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    lengths = np.exp(_LENGTHS * special.ndtri(shares))
    return Distribution(
        lengths * words * _WORD_BYTES / lengths.mean(), np.full(_QUANTILES, documents / _QUANTILES)
    )


def _around(documents: int, mean: float) -> Distribution:
    """Return whole numbers of labels about their mean: that below, and that above."""
    below = int(mean)
    above = round((mean - below) * documents)
    return Distribution(
        np.array([below, below + 1.0]), np.array([documents - above, above], np.float64)
    )


def _zipf(labels: int, pairs: int, documents: int) -> NDArray[np.float64]:
    """Return how many documents each label has: at least 1, at most all, and all pairs together."""
    shares = np.arange(1, labels + 1) ** -_ZIPF
    low = 0.0
    high = float(pairs) + labels
    for _ in range(60):  # halve the range of the factor that gives as many pairs
        factor = (low + high) / 2
        enough = np.clip(factor * shares, 1, documents).sum() >= pairs
        if enough:
            high = factor
        else:
            low = factor
    counts: NDArray[np.float64] = np.round(np.clip(high * shares, 1, documents))
    return counts


def _joined(numbers: Distribution, value: float, count: float) -> Distribution:
    """Return a distribution with a further number that occurs ``count`` times."""
    order = np.argsort(np.append(numbers.values, value), kind="stable")
    return Distribution(
        np.append(numbers.values, value)[order], np.append(numbers.counts, count)[order]
    )


# The shape of an encoder

_WORDS = 40.0  # different ones in a text of n words: these times √n


def shape_of(sizes: DataSizes, config: Config, *, known: bool = False) -> EncoderShape:
    """Return the shape of the encoder; one on vectors of words is mostly these, by Heaps' law for
    their number.

    With ``known`` an encoder whose files are not there has the shape that its name is known for.
    """
    settings = config.encoder
    kind = encoder_of(config)
    if not kind.reads_words:
        return _transformer(settings.name, known)
    kind = cast(WordEncoderKind, kind)
    if names_folder(settings.name):
        pretrained = _transformer(settings.name, known)
        return kind.configured_shape(pretrained.vocabulary, pretrained.width, config)
    vocabulary = int(_WORDS * sizes.all_words**0.5) + 1
    return kind.configured_shape(vocabulary, settings.width, config)


def _transformer(name: str, known: bool) -> EncoderShape:
    try:
        return encoder_shape(encoder_folder(name))
    except LongtailError:
        shape = known_shapes().get(PurePath(name).name)
        if not known or shape is None:
            raise
        return shape


@cache
def known_shapes() -> dict[str, EncoderShape]:
    """Return the shapes of the encoders that the papers' recipes name."""
    content = tomllib.loads((files("longtail.forecast") / "encoders.toml").read_text("utf-8"))
    return {name: EncoderShape(**numbers) for name, numbers in content.items()}
