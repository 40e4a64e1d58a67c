"""Metrics by training frequency of the labels, by label and by threshold; the worst documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.data.csr import csr_of, csr_where
from longtail.errors import UsageError
from longtail.kernels.ranking import NDCG
from longtail.metrics.layout import in_columns
from longtail.metrics.statistics import check_ks, collect, masked_labels
from longtail.search.calibration import hits as is_hit

if TYPE_CHECKING:
    from longtail.metrics.statistics import CSR, Pairs

__all__ = [
    "FrequencyBin",
    "FrequencyTable",
    "LabelTable",
    "PrecisionRecall",
    "at_least",
    "by_frequency",
    "per_label",
    "precision_recall",
    "unmasked",
    "worst_documents",
]


class FrequencyBin(msgspec.Struct, frozen=True, kw_only=True):
    """The labels with ``low`` to ``high`` training documents (None: no upper end); tuples have a
    number for each of the table's ks.
    """

    low: int
    high: int | None
    n_labels: int
    n_positives: int
    hits: tuple[int, ...]
    precision: tuple[float, ...]
    recall: tuple[float | None, ...]

    @property
    def name(self) -> str:
        """The range in words: «0», «2–5», «>100»."""
        if self.high is None:
            return f">{self.low - 1}"
        if self.low == self.high:
            return f"{self.low}"
        return f"{self.low}–{self.high}"


class FrequencyTable(msgspec.Struct, frozen=True):
    """Bins of rising training frequency. At each k the bins' precisions add up to P@k."""

    n_documents: int
    ks: tuple[int, ...]
    bins: tuple[FrequencyBin, ...]

    def __str__(self) -> str:
        heads = [
            "in train",
            "labels",
            "positives",
            *(f"{name}@{k}" for name in ("P", "R") for k in self.ks),
        ]
        return in_columns([heads, *(self._row(part) for part in self.bins)])

    def _row(self, part: FrequencyBin) -> list[str]:
        values = [*part.precision, *part.recall]
        percent = ["–" if value is None else f"{100 * value:.2f}" for value in values]
        return [part.name, str(part.n_labels), str(part.n_positives), *percent]


class LabelTable(NamedTuple):
    """One entry per label in each array (n_labels,). A ratio whose denominator is 0 is 0."""

    train_count: NDArray[np.int64]
    test_count: NDArray[np.int64]
    predicted_count: NDArray[np.int64]
    hits: NDArray[np.int64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]


class PrecisionRecall(msgspec.Struct, frozen=True):
    """Precision and recall over all pairs of a document and a label with a score of at least a
    threshold.

    Thresholds fall, recall rises. ``best`` is the position of the highest F1, of all thresholds and
    not of these alone."""

    thresholds: tuple[float, ...]
    precision: tuple[float, ...]
    recall: tuple[float, ...]
    best: int
    average_precision: float

    @property
    def threshold(self) -> float:
        """The threshold of the best F1."""
        return self.thresholds[self.best]

    @property
    def f1(self) -> float:
        """The best F1."""
        return self.f1_at(self.best)

    def f1_at(self, position: int) -> float:
        """Return F1 at one of the thresholds."""
        precision = self.precision[position]
        recall = self.recall[position]
        return 2 * precision * recall / max(precision + recall, 1e-12)


def by_frequency(
    predictions: CSR,
    label_matrix: CSR,
    label_counts: NDArray[np.integer[Any]],
    ks: Iterable[int] = (1, 3, 5),
    edges: Sequence[int] = (1, 2, 6, 21, 101),
    mask: Pairs | None = None,
) -> FrequencyTable:
    """Split P@k and recall over labels binned by training frequency; ``edges`` are the lower ends
    after 0.

    With the top k over all labels as always, and for each bin the hits and the true (document,
    label) pairs («positives») of its labels: precision = hits / (k × documents with labels), the
    bin's share of P@k; recall = hits / positives, over pairs and not averaged over documents, None
    where there are no positives."""
    ks = check_ks(ks)
    lows = [0, *edges]
    if any(low >= high for low, high in pairwise(lows)):
        raise UsageError(
            f"edges: found {tuple(edges)}; expected rising whole numbers from 1 on, such as 1, 2, 6"
        )
    statistics = collect(predictions, label_matrix, ks, None, mask)
    bin_of = np.searchsorted(lows, _counts(label_counts, label_matrix), side="right") - 1
    n_documents = len(statistics.documents)

    def per_bin(values: NDArray[np.int64]) -> list[int]:
        totals = np.zeros(len(lows), np.int64)
        np.add.at(totals, bin_of, values)
        return [int(total) for total in totals]

    n_labels = per_bin(np.ones_like(statistics.true))
    n_positives = per_bin(statistics.true)
    hits = list(zip(*(per_bin(at_k) for at_k in statistics.hits), strict=True))  # (bins, ks)
    highs = [*(low - 1 for low in lows[1:]), None]
    bins = tuple(
        FrequencyBin(
            low=low,
            high=highs[i],
            n_labels=n_labels[i],
            n_positives=n_positives[i],
            hits=hits[i],
            precision=tuple(n / (k * n_documents) for n, k in zip(hits[i], ks, strict=True)),
            recall=tuple(_ratio(n, n_positives[i]) for n in hits[i]),
        )
        for i, low in enumerate(lows)
    )
    return FrequencyTable(n_documents, ks, bins)


def _ratio(part: int, whole: int) -> float | None:
    if whole == 0:
        return None
    return part / whole


def per_label(
    predictions: CSR,
    label_matrix: CSR,
    k: int,
    label_counts: NDArray[np.integer[Any]],
    mask: Pairs | None = None,
) -> LabelTable:
    """Return counts and precision, recall, F1 of each label when each document is given its k best
    labels.

    Documents without labels are left out, so their predictions are not counted.
    """
    statistics = collect(predictions, label_matrix, check_ks([k]), None, mask)
    hits = statistics.hits[0]
    predicted = statistics.predicted[0]
    true = statistics.true
    return LabelTable(
        train_count=_counts(label_counts, label_matrix),
        test_count=true,
        predicted_count=predicted,
        hits=hits,
        precision=hits / np.maximum(predicted, 1),
        recall=hits / np.maximum(true, 1),
        f1=2.0 * hits / np.maximum(predicted + true, 1),
    )


def precision_recall(
    predictions: CSR, label_matrix: CSR, points: int = 200
) -> PrecisionRecall | None:
    """Return at most ``points`` thresholds, or None where nothing is predicted; documents without
    labels are left out.

    The lowest threshold is the smallest score there is, so recall ends where the predictions do.
    """
    labelled = np.repeat(np.diff(label_matrix.indptr) > 0, np.diff(predictions.indptr))
    scores = predictions.data[labelled]
    right = is_hit(predictions, label_matrix)[labelled]
    if not len(scores):
        return None
    order = np.argsort(-scores, kind="stable")
    scores = scores[order]
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)  # of each distinct score
    hits = np.cumsum(right[order])[last]
    precision = hits / (last + 1)
    recall = hits / label_matrix.nnz
    best = int(np.argmax(precision * recall / np.maximum(precision + recall, 1e-12)))
    kept = np.unique(
        [*np.searchsorted(recall, np.linspace(0, recall[-1], points - 2)), best, len(last) - 1]
    )
    return PrecisionRecall(
        tuple(map(float, scores[last[kept]])),
        tuple(map(float, precision[kept])),
        tuple(map(float, recall[kept])),
        int(np.searchsorted(kept, best)),
        float(np.sum(np.diff(recall, prepend=0.0) * precision)),
    )


def worst_documents(predictions: CSR, label_matrix: CSR, k: int = 5, n: int = 20) -> list[int]:
    """Return the rows of the ``n`` documents with the lowest nDCG@k; of those alike, the surest
    wrong label first.
    """
    rows = np.flatnonzero(np.diff(label_matrix.indptr))
    ndcg = collect(predictions, label_matrix, check_ks([k])).documents[:, 0, NDCG]
    wrong = np.where(is_hit(predictions, label_matrix), -np.inf, predictions.data)
    surest = np.full(predictions.shape[0], -np.inf)
    np.maximum.at(surest, np.repeat(np.arange(len(surest)), np.diff(predictions.indptr)), wrong)
    order = np.lexsort((rows, -surest[rows], ndcg))[:n]
    return [int(row) for row in rows[order]]


def at_least(predictions: CSR, threshold: float) -> CSR:
    """Return the predictions with a score of ``threshold`` or more."""
    return csr_where(predictions, predictions.data >= threshold)


def unmasked(predictions: CSR, mask: Pairs | None) -> CSR:
    """Return the predictions without the (document, label) pairs of ``mask``."""
    if mask is None or not len(mask):
        return predictions
    ends, labels = masked_labels(mask, predictions.shape)
    pairs = csr_of(np.ones(len(labels), np.float32), labels, ends, predictions.shape[1])
    return csr_where(predictions, ~is_hit(predictions, pairs))


def _counts(label_counts: NDArray[np.integer[Any]], label_matrix: CSR) -> NDArray[np.int64]:
    counts = np.asarray(label_counts)
    if (
        counts.shape != (label_matrix.shape[1],)
        or counts.dtype.kind not in "iu"
        or np.any(counts < 0)
    ):
        raise UsageError(
            f"label_counts: found {counts.dtype} of shape {counts.shape}; "
            f"expected {label_matrix.shape[1]} whole numbers of at least 0, one for each label"
        )
    return counts.astype(np.int64)
