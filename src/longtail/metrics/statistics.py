"""Statistics per document and per label from two CSR matrices: the one pass behind every metric."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.errors import UsageError
from longtail.kernels import ranking as kernels
from longtail.kernels.ranking import LabelLists, Measures, RankingStatistics, ScoredLabels

if TYPE_CHECKING:
    CSR: TypeAlias = sparse.csr_array[Any, tuple[int, int]]

__all__ = ["Statistics", "check_ks", "collect", "masked_labels"]

Pairs: TypeAlias = NDArray[np.integer[Any]]
_LARGEST_K = 2**31 - 1


class Statistics(NamedTuple):
    """Statistics of one pass over predictions and label matrix."""

    documents: NDArray[np.float64]  # (n_docs with labels, n_ks, columns of kernels.ranking)
    predicted: NDArray[np.int64]  # (n_ks, n_labels) documents with the label in their top k
    hits: NDArray[np.int64]  # (n_ks, n_labels) those of them for which it is true
    true: NDArray[np.int64]  # (n_labels,) documents for which the label is true
    n_without_labels: int


def collect(
    predictions: CSR,
    label_matrix: CSR,
    ks: tuple[int, ...],
    weights: NDArray[np.float64] | None = None,
    mask: Pairs | None = None,
) -> Statistics:
    """Rank each document's predictions and count hits at every k; memory grows with documents and
    labels only.

    ``weights`` (n_labels,) is what a hit of each label is worth; ``mask`` (m, 2) holds (document,
    label) pairs that are passed over in the predictions. Documents without labels are
    counted, and have no part in the others."""
    predicted = _predicted(predictions)
    positives = _positives(label_matrix)
    _check_shapes(predictions, label_matrix, weights)
    n_docs, n_labels = label_matrix.shape
    n_labelled = int(np.count_nonzero(np.diff(positives.offsets)))
    if not n_labelled:
        raise UsageError(
            f"label_matrix: none of its {n_docs} documents has a label; there is nothing to measure"
        )
    longest = max(int(np.diff(rows.offsets).max()) for rows in (predicted, positives))
    discounts = 1.0 / np.log2(np.arange(2, 2 + min(ks[-1], longest)))
    if weights is None:
        n_columns = kernels.N_UNWEIGHTED
        measures = Measures(np.zeros(0), np.array(ks, np.int64), discounts)
    else:
        n_columns = kernels.N_STATISTICS
        measures = Measures(weights, np.array(ks, np.int64), discounts)
    counts = RankingStatistics(
        np.zeros((n_labelled, len(ks), n_columns)), *np.zeros((2, len(ks), n_labels), np.int64)
    )
    masked = masked_labels(mask, label_matrix.shape)
    problem, row = kernels.rank_documents(predicted, positives, masked, measures, counts)
    if problem != kernels.FINE:
        raise _wrong_row(problem, row, n_labels)
    true = np.bincount(positives.labels, minlength=n_labels)
    return Statistics(*counts, true, n_docs - n_labelled)


def check_ks(ks: Iterable[int]) -> tuple[int, ...]:
    """Return the ks rising and each once; refuse what is not a whole number from 1 to 2³¹ - 1."""
    values = list(ks)
    are_valid = all(isinstance(k, (int, np.integer)) and 1 <= k <= _LARGEST_K for k in values)
    if not values or not are_valid:
        raise UsageError(
            f"k: found {values}; expected whole numbers of at least 1 and at most {_LARGEST_K}, "
            "such as 1, 3, 5"
        )
    return tuple(sorted({int(k) for k in values}))


def _check_csr(name: str, matrix: CSR) -> None:
    if not sparse.issparse(matrix) or matrix.format != "csr" or matrix.ndim != 2:
        kind = f"{type(matrix).__name__} of shape {getattr(matrix, 'shape', 'unknown')}"
        raise UsageError(
            f"{name}: found a {kind}; expected a scipy.sparse.csr_array (n_docs, n_labels)"
        )
    if matrix.dtype.kind not in "biuf":
        raise UsageError(f"{name}: found values of type {matrix.dtype}; expected numbers")
    if np.any(np.diff(matrix.indptr) < 0) or matrix.indptr[-1] > min(
        len(matrix.indices), len(matrix.data)
    ):
        raise UsageError(
            f"{name}: its indptr falls or runs past its entries; build it anew from its entries"
        )


def _check_shapes(predictions: CSR, label_matrix: CSR, weights: NDArray[np.float64] | None) -> None:
    if predictions.shape != label_matrix.shape:
        raise UsageError(
            f"predictions {predictions.shape} and label_matrix {label_matrix.shape} differ in "
            "shape; expected both (n_docs, n_labels) over the same documents and labels"
        )
    if weights is not None and weights.shape != (label_matrix.shape[1],):
        raise UsageError(
            f"label_counts or propensities: found shape {weights.shape}; "
            f"expected ({label_matrix.shape[1]},), one for each label of the label matrix"
        )


def _predicted(predictions: CSR) -> ScoredLabels:
    """Return predictions in types that the kernel is compiled for; copies only rare score types."""
    _check_csr("predictions", predictions)
    scores = predictions.data
    if scores.dtype in (np.float16, np.bool_):
        scores = scores.astype(np.float32)
    elif scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float64)
    return ScoredLabels(predictions.indptr.astype(np.int64), predictions.indices, scores)


def _positives(label_matrix: CSR) -> LabelLists:
    """Return the entries above zero, duplicates added up first as scipy does."""
    _check_csr("label_matrix", label_matrix)
    n_entries = int(label_matrix.indptr[-1])
    n_labels = label_matrix.shape[1]
    indices = label_matrix.indices[:n_entries]
    if n_entries and (indices.min() < 0 or indices.max() >= n_labels):
        raise UsageError(
            f"label_matrix: found label {indices.max()} or a negative one; "
            f"expected 0 to {n_labels - 1}"
        )
    if np.isnan(label_matrix.data[:n_entries]).any():
        raise UsageError(
            "label_matrix: found NaN; expected values above 0 for the labels a document has"
        )
    if not label_matrix.has_canonical_format:
        label_matrix = label_matrix.copy()
        label_matrix.sum_duplicates()
    n_entries = int(label_matrix.indptr[-1])
    positive = label_matrix.data[:n_entries] > 0
    kept_before = np.concatenate(([0], np.cumsum(positive, dtype=np.int64)))
    labels = label_matrix.indices[:n_entries][positive].astype(np.int32)
    return LabelLists(kept_before[label_matrix.indptr], labels)


def masked_labels(mask: Pairs | None, shape: tuple[int, int]) -> LabelLists:
    """Return the masked labels of each document."""
    if mask is None:
        mask = np.zeros((0, 2), np.int64)
    pairs = np.asarray(mask)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise UsageError(
            f"mask: found {pairs.dtype} of shape {pairs.shape}; "
            "expected integer pairs (document, label)"
        )
    if np.any(pairs < 0) or np.any(pairs >= np.array(shape)):
        raise UsageError(
            f"mask: found a pair outside the {shape[0]} documents and {shape[1]} labels"
        )
    order = np.argsort(pairs[:, 0], kind="stable")
    per_document = np.bincount(pairs[:, 0].astype(np.int64), minlength=shape[0])
    offsets = np.concatenate(([0], np.cumsum(per_document)))
    return LabelLists(offsets, pairs[order, 1].astype(np.int32))


def _wrong_row(problem: int, row: int, n_labels: int) -> UsageError:
    content, remedy = {
        kernels.OUT_OF_RANGE: ("a label out of range", f"expected labels 0 to {n_labels - 1}"),
        kernels.DUPLICATE: ("a label twice", "expected each label once; keep one of its scores"),
        kernels.SCORE_IS_NAN: ("a NaN score", "expected a number; drop predictions that have none"),
    }[problem]
    return UsageError(f"predictions: document {row} has {content}; {remedy}")
