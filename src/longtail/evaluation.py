"""How good a model, or a file of predictions of any system, is on test data."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of, csr_where, places_in_rows
from longtail.data.dataset import Dataset
from longtail.data.xmc_bow import read_filter
from longtail.metrics import Evaluation, FrequencyTable, by_frequency, evaluate
from longtail.models.ranking_model import RankingModel
from longtail.search.calibration import ReliabilityBin, hits, reliability
from longtail.search.predictions import Predictions, read_predictions

__all__ = ["Measured", "evaluate_model", "evaluate_predictions"]

log = logging.getLogger("longtail")

_RANKED = 10  # labels of each document that reliability looks at, or more where a larger k is measured


class Measured(msgspec.Struct, frozen=True):
    """Metrics; where the hits come from, if the training data is known; what probabilities mean, if there are any."""

    evaluation: Evaluation
    by_frequency: FrequencyTable | None = None
    reliability: tuple[ReliabilityBin, ...] = ()


def evaluate_model(
    model: RankingModel,
    test: Dataset,
    *,
    ks: Iterable[int] = (1, 3, 5),
    propensity: tuple[float, float] = (0.55, 1.5),
    mask: Path | str | None = None,
    bootstrap: int = 0,
    seed: int = 0,
    beam_size: int | None = None,
    frequencies: tuple[NDArray[np.int64], int] | None = None,
    ranked: sparse.csr_array | None = None,
) -> Measured:
    """Measure a model on ``test``; labels that it does not know can only be missed.

    ``frequencies`` are documents of each label, the model's labels first, and of all, in place of the model's own;
    ``ranked`` are its predictions for ``test``, best first, where they are at hand.
    """
    ks = tuple(ks)
    test = test.with_labels(model.labels, unknown="add")
    if not test.label_matrix[:, : len(model.labels)].nnz:
        log.warning("no label of the test documents is one of the model's, so none can be hit; are both of one kind?")
    n_ranked = max(*ks, _RANKED)
    ranked = model.predict(test, n_ranked, beam_size=beam_size).matrix if ranked is None else _first(ranked, n_ranked)
    counts, n_train = frequencies or (model.label_counts, model.facts.documents)
    found = _measure(ranked, test, counts, n_train, ks, propensity, mask, bootstrap, seed)
    if model.calibration is None:
        return found
    right = hits(_widened(ranked, test.n_labels), test.label_matrix)
    return msgspec.structs.replace(found, reliability=tuple(reliability(ranked.data, right)))


def evaluate_predictions(
    predictions: Predictions | Path | str,
    test: Dataset,
    train: Dataset | None = None,
    *,
    ks: Iterable[int] = (1, 3, 5),
    propensity: tuple[float, float] = (0.55, 1.5),
    mask: Path | str | None = None,
    bootstrap: int = 0,
    seed: int = 0,
) -> Measured:
    """Measure predictions, or a file of them, against ``test``, whose label columns begin with those of ``train``.

    ``train`` gives the label frequencies for the propensity metrics; ``mask`` is a filter file of (document, label)
    pairs that no prediction may score with; ``propensity`` is (A, B).
    """
    if not isinstance(predictions, Predictions):
        predictions = read_predictions(predictions, test.labels, test.ids, len(test))
    counts, n_train = (None, 0) if train is None else (train.label_counts, len(train))
    return _measure(predictions.matrix, test, counts, n_train, tuple(ks), propensity, mask, bootstrap, seed)


def _measure(
    ranked: sparse.csr_array,
    test: Dataset,
    counts: NDArray[np.int64] | None,
    n_train: int,
    ks: tuple[int, ...],
    propensity: tuple[float, float],
    mask: Path | str | None,
    bootstrap: int,
    seed: int,
) -> Measured:
    n_labels = max(ranked.shape[1], test.n_labels)
    ranked, truth = _widened(ranked, n_labels), _widened(test.label_matrix, n_labels)
    pairs = None if mask is None else read_filter(mask, len(test), n_labels)
    if counts is None:
        return Measured(evaluate(ranked, truth, ks, mask=pairs, bootstrap=bootstrap, seed=seed))
    frequencies = np.zeros(n_labels, np.int64)
    frequencies[: len(counts)] = counts
    evaluation = evaluate(
        ranked,
        truth,
        ks,
        label_counts=frequencies,
        n_train=n_train,
        a=propensity[0],
        b=propensity[1],
        mask=pairs,
        bootstrap=bootstrap,
        seed=seed,
    )
    return Measured(evaluation, by_frequency(ranked, truth, frequencies, ks, mask=pairs))


def _first(ranked: sparse.csr_array, k: int) -> sparse.csr_array:
    """Return the first ``k`` predictions of each document."""
    return csr_where(ranked, places_in_rows(ranked) < k)


def _widened(matrix: sparse.csr_array, n_labels: int) -> sparse.csr_array:
    """Return the matrix with more columns, nothing in them."""
    if matrix.shape[1] == n_labels:
        return matrix
    return csr_of(matrix.data, matrix.indices, matrix.indptr, n_labels)
