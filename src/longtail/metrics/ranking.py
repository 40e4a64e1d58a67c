"""The field's ranking metrics over CSR predictions, as the Extreme Classification Repository's
scripts define them.

With y the true labels of a document, n of them, and r the rank of a prediction (falling score, ties
by lower label index; every stored entry is a prediction, also one with score 0):

    P@k        hits in the top k / k, always k, however few predictions or true labels there are
    nDCG@k     Σ_{r<=k} y / log2(r+1), over the same sum of a ranking that starts with
               min(n, k) true labels
    R@k        hits in the top k / n
    PSP@k      mean of Σ_{r<=k} y/p  over  mean of Σ 1/p of the k true labels with the largest 1/p
    PSnDCG@k   mean of Σ_{r<=k} y/(p log2(r+1))  over  mean of the same sum with the true labels as
               ranking, falling 1/p. The repository's scripts also divide both sums by
               Σ_{r<=k} 1/log2(r+1), which cancels; pyxclib divides them by each document's
               ideal DCG of min(n, k), which does not.
    coverage@k labels of the test documents that are hit at least once in a top k / labels of the
               test documents
    macro-F1@k mean over the labels of the test documents of 2 hits / (predicted in a top k + true).
               Labels that are true nowhere are left out, so that the mean runs over the same
               labels for every system.

The first three are means over documents. Documents without labels are left out of everything, and
counted. All values are fractions; tables print percent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError
from longtail.kernels import ranking as kernels
from longtail.metrics.bootstrap import percentile_intervals, resampled_sums
from longtail.metrics.evaluation import Evaluation
from longtail.metrics.propensity import inverse_propensities
from longtail.metrics.statistics import Statistics, check_ks, collect

if TYPE_CHECKING:
    from longtail.metrics.statistics import CSR, Pairs

__all__ = [
    "coverage_at_k",
    "evaluate",
    "macro_f1_at_k",
    "ndcg_at_k",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
    "resampled_metrics",
]


class TrainingFrequencies(TypedDict, total=False):
    """What propensities are estimated from, as keyword arguments."""

    label_counts: NDArray[np.integer[Any]] | None  # training documents of each label
    n_train: int | None  # training documents
    a: float  # 0.55 by default
    b: float  # 1.5 by default


def evaluate(
    predictions: CSR,
    label_matrix: CSR,
    ks: Iterable[int] = (1, 3, 5),
    *,
    mask: Pairs | None = None,
    bootstrap: int = 0,
    seed: int = 0,
    confidence: float = 0.95,
    **frequencies: Unpack[TrainingFrequencies],
) -> Evaluation:
    """Compute every metric at every k.

    Coverage and macro-F1 have no intervals, since a resample always holds fewer different labels
    than the test set.

    Args:
        predictions: scores (n_docs, n_labels).
        label_matrix: the true labels, of the same shape.
        ks: cut-offs of the metrics.
        mask: (m, 2), pairs of a document and a label that are removed from the predictions before
            the top k.
        bootstrap: resamples of the test documents behind the intervals, 1000 being usual.
        seed: of the resamples.
        confidence: of the intervals.
        frequencies: ``label_counts`` and ``n_train`` of the training set, without which there are
            no propensity metrics; ``a`` (0.55) and ``b`` (1.5) of the propensities.
    """
    ks = check_ks(ks)
    propensity = _Propensity(**frequencies)
    weights = propensity.weights()
    statistics = collect(predictions, label_matrix, ks, weights, mask)
    documents = statistics.documents
    means = _from_sums(documents.sum(axis=0), len(documents), ks) | _over_labels(statistics, ks)
    constants = (None, None) if weights is None else (propensity.a, propensity.b)
    intervals = {}
    if bootstrap:
        intervals = percentile_intervals(_resampled(documents, ks, bootstrap, seed), confidence)
    return Evaluation(
        n_documents=len(documents),
        n_without_labels=statistics.n_without_labels,
        n_test_labels=int(np.count_nonzero(statistics.true)),
        ks=ks,
        a=constants[0],
        b=constants[1],
        metrics={name: float(value) for name, value in means.items()},
        hits=tuple(int(n) for n in statistics.hits.sum(axis=1)),
        intervals=intervals,
        n_resamples=bootstrap,
        seed=seed,
        confidence=confidence,
    )


def resampled_metrics(
    predictions: CSR,
    label_matrix: CSR,
    ks: Iterable[int],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    **frequencies: Unpack[TrainingFrequencies],
) -> dict[str, NDArray[np.float64]]:
    """Return the (bootstrap,) values of each metric that :func:`evaluate` has intervals of.

    With the same ``bootstrap``, ``seed`` and documents the resamples are the same, so that two
    systems can be compared. Arguments are those of :func:`evaluate`."""
    ks = check_ks(ks)
    weights = _Propensity(**frequencies).weights()
    statistics = collect(predictions, label_matrix, ks, weights)
    return _resampled(statistics.documents, ks, bootstrap, seed)


def _resampled(
    documents: NDArray[np.float64], ks: tuple[int, ...], bootstrap: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    return _from_sums(resampled_sums(documents, bootstrap, seed), len(documents), ks)


def precision_at_k(predictions: CSR, label_matrix: CSR, k: int, mask: Pairs | None = None) -> float:
    """Return P@k: the share of true labels in the top k, averaged over documents with labels."""
    return _single("P", predictions, label_matrix, k, None, mask)


def ndcg_at_k(predictions: CSR, label_matrix: CSR, k: int, mask: Pairs | None = None) -> float:
    """Return nDCG@k: the discounted gain over that of an ideal ranking, averaged over documents
    with labels.
    """
    return _single("nDCG", predictions, label_matrix, k, None, mask)


def recall_at_k(predictions: CSR, label_matrix: CSR, k: int, mask: Pairs | None = None) -> float:
    """Return R@k: the share of a document's labels among its k best, averaged over documents with
    labels.
    """
    return _single("R", predictions, label_matrix, k, None, mask)


def psp_at_k(
    predictions: CSR,
    label_matrix: CSR,
    k: int,
    propensities: NDArray[np.float64],
    mask: Pairs | None = None,
) -> float:
    """Return PSP@k, a ratio of means; ``propensities`` are the inverse ones of
    ``inverse_propensities``.
    """
    return _single("PSP", predictions, label_matrix, k, propensities, mask)


def psndcg_at_k(
    predictions: CSR,
    label_matrix: CSR,
    k: int,
    propensities: NDArray[np.float64],
    mask: Pairs | None = None,
) -> float:
    """Return PSnDCG@k, a ratio of means; ``propensities`` are the inverse ones of
    ``inverse_propensities``.
    """
    return _single("PSnDCG", predictions, label_matrix, k, propensities, mask)


def coverage_at_k(predictions: CSR, label_matrix: CSR, k: int, mask: Pairs | None = None) -> float:
    """Return coverage@k: the share of the test documents' labels that are hit at least once."""
    return _single("coverage", predictions, label_matrix, k, None, mask)


def macro_f1_at_k(predictions: CSR, label_matrix: CSR, k: int, mask: Pairs | None = None) -> float:
    """Return macro-F1@k: the mean F1 of the test documents' labels where each document has its k
    best.
    """
    return _single("macro-F1", predictions, label_matrix, k, None, mask)


def _single(
    name: str,
    predictions: CSR,
    label_matrix: CSR,
    k: int,
    propensities: NDArray[np.float64] | None,
    mask: Pairs | None,
) -> float:
    ks = check_ks([k])
    weights = propensities
    if propensities is not None:
        weights = np.asarray(propensities, np.float64)
    statistics = collect(predictions, label_matrix, ks, weights, mask)
    documents = statistics.documents
    values = _from_sums(documents.sum(axis=0), len(documents), ks) | _over_labels(statistics, ks)
    return float(values[f"{name}@{ks[0]}"])


class _Propensity(NamedTuple):
    label_counts: NDArray[np.integer[Any]] | None = None
    n_train: int | None = None
    a: float = 0.55
    b: float = 1.5

    def weights(self) -> NDArray[np.float64] | None:
        """Return the inverse propensity of each label; None where the training set is not known."""
        if self.label_counts is None and self.n_train is None:
            return None
        if self.label_counts is None or self.n_train is None:
            missing = "label_counts" if self.label_counts is None else "n_train"
            raise UsageError(
                f"{missing} is missing; propensity metrics need both label_counts and n_train"
            )
        return inverse_propensities(self.label_counts, self.n_train, self.a, self.b)


def _from_sums(
    sums: NDArray[np.float64], n_documents: int, ks: tuple[int, ...]
) -> dict[str, NDArray[np.float64]]:
    """Return metrics (...,), which are ratios of sums over documents (..., n_ks, columns)."""
    metrics = {}
    for t, k in enumerate(ks):
        at_k = np.moveaxis(sums[..., t, :], -1, 0)  # (columns, ...)
        metrics[f"P@{k}"] = at_k[kernels.HITS] / (k * n_documents)
        metrics[f"nDCG@{k}"] = at_k[kernels.NDCG] / n_documents
        metrics[f"R@{k}"] = at_k[kernels.RECALL] / n_documents
        if len(at_k) == kernels.N_STATISTICS:
            metrics[f"PSP@{k}"] = at_k[kernels.GAIN] / at_k[kernels.BEST_GAIN]
            metrics[f"PSnDCG@{k}"] = at_k[kernels.GAIN_DCG] / at_k[kernels.BEST_DCG]
    return metrics


def _over_labels(statistics: Statistics, ks: tuple[int, ...]) -> dict[str, float]:
    tested = statistics.true > 0
    metrics = {}
    for t, k in enumerate(ks):
        hits = statistics.hits[t, tested]
        predicted = statistics.predicted[t, tested]
        metrics[f"coverage@{k}"] = float(np.mean(hits > 0))
        metrics[f"macro-F1@{k}"] = float(
            np.mean(2.0 * hits / (predicted + statistics.true[tested]))
        )
    return metrics
