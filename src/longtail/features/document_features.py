"""The features of documents that linear classifiers read: Φ_tfidf, Φ_dnn, or both side by side
(Φcat).
"""

from __future__ import annotations

from dataclasses import replace

from numpy import float32
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config
from longtail.data.csr import csr_of_nothing
from longtail.data.dataset import Dataset
from longtail.data.strings import Strings
from longtail.errors import DataError, Problem
from longtail.features.matrix import Features, join_blocks, prepared_rows
from longtail.features.tfidf import TfIdf

__all__ = ["document_features"]


def document_features(
    documents: Dataset | Strings,
    vectoriser: TfIdf | None,
    config: Config,
    vectors: NDArray[float32] | None = None,
    *,
    widths: tuple[int, int] | None = None,
) -> Features:
    """Return what linear classifiers read: sparse features (tf-idf, else those given) and dense
    ones beside them.

    Args:
        documents: texts, or documents with ready-made features.
        vectoriser: makes tf-idf rows of the texts; None where features are given, or there are
        none.
        config: says whether rows of given features are scaled to length 1, the length of
        ``vectors``, and whether these are read at all.
        vectors: an encoder's vectors, in place of the dense features that the documents bring.
        widths: sparse and dense columns in training, which the features must have.
    """
    if config.features == "tfidf":
        vectors = None
    if vectoriser is None and widths is not None and isinstance(documents, Dataset):
        documents = _as_in_training(documents, widths[0], vectors is not None)
    rows = _sparse_rows(documents, vectoriser, config)
    if vectors is not None:
        weight = 1.0 if config.features == "dnn" else config.encoder.weight
        features = join_blocks(rows, vectors, weight)
    elif isinstance(documents, Dataset):
        features = join_blocks(rows, documents.dense)
    else:
        features = join_blocks(rows, None)
    if widths is not None:
        _check_width("sparse", features.sparse.shape[1], widths[0])
        _check_width("dense", features.dense.shape[1], widths[1])
    return features


def _as_in_training(documents: Dataset, n_columns: int, with_vectors: bool) -> Dataset:
    """Return the documents with sparse features as wide as in training; without, where a network's
    vectors are all.
    """
    if with_vectors and not n_columns:
        return replace(documents, features=None)
    return documents.widened(n_columns)


def _sparse_rows(
    documents: Dataset | Strings, vectoriser: TfIdf | None, config: Config
) -> sparse.csr_array:
    """Return tf-idf rows, those given, or rows without columns."""
    if vectoriser is not None:
        texts = documents if isinstance(documents, Strings) else documents.texts
        if texts is None:
            texts = Strings.of([""] * len(documents))
        return vectoriser.transform(texts)
    if isinstance(documents, Dataset) and documents.features is not None:
        return prepared_rows(documents.features, config.normalise_features)
    return csr_of_nothing(len(documents), 0)


def _check_width(block: str, width: int, trained: int) -> None:
    if width != trained:
        problem = f"{width} columns of {block} features"
        expected = f"{trained}, as in training; give --features as then"
        raise DataError([Problem("features", 0, problem, expected)])
