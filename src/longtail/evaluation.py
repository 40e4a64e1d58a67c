"""How good a model, or a file of predictions of any system, is on test data."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of, csr_where, places_in_rows
from longtail.data.dataset import Dataset
from longtail.data.filter_files import AUTO, filter_pairs, find_filter
from longtail.data.fingerprints import shared_with
from longtail.metrics import (
    Constants,
    Evaluation,
    FrequencyTable,
    Propensity,
    by_frequency,
    choose_constants,
    evaluate,
)
from longtail.models.ranking_model import RankingModel
from longtail.pipeline import predict
from longtail.search.calibration import ReliabilityBin, hits, reliability
from longtail.search.predictions import Predictions, read_predictions

__all__ = [
    "MeasureKeywords",
    "MeasureOptions",
    "Measured",
    "evaluate_model",
    "evaluate_predictions",
]

log = logging.getLogger("longtail")

# labels of each document that reliability looks at, or more where a larger k is measured
_RANKED = 10


class Measured(msgspec.Struct, frozen=True):
    """Metrics; by label frequency, if the training data is known; reliability of probabilities, if
    there are any.
    """

    evaluation: Evaluation
    by_frequency: FrequencyTable | None = None
    reliability: tuple[ReliabilityBin, ...] = ()


@dataclass(frozen=True)
class MeasureOptions:
    """Options of a measurement; :func:`evaluate_model` documents them."""

    propensity: Propensity = None
    mask: Path | str | None = AUTO
    bootstrap: int = 0
    seed: int = 0


class MeasureKeywords(TypedDict, total=False):
    """The fields of :class:`MeasureOptions` as keyword arguments."""

    propensity: Propensity
    mask: Path | str | None
    bootstrap: int
    seed: int


class _Measure(NamedTuple):
    """Cut-offs, constants of the propensities, filter file and resamples of a measurement."""

    ks: tuple[int, ...]
    constants: Constants
    filter: Path | None
    bootstrap: int
    seed: int

    @classmethod
    def of(
        cls, ks: Iterable[int], options: MeasureOptions, test: Dataset, preset: str = ""
    ) -> _Measure:
        """Choose constants and filter file by the test documents, and by the model's preset."""
        constants = choose_constants(options.propensity, test.source_names, preset)
        filter_file = find_filter(options.mask, test)
        return cls(tuple(ks), constants, filter_file, options.bootstrap, options.seed)


def evaluate_model(
    model: RankingModel,
    test: Dataset,
    *,
    ks: Iterable[int] = (1, 3, 5),
    beam_size: int | None = None,
    frequencies: tuple[NDArray[np.int64], int] | None = None,
    ranked: sparse.csr_array | None = None,
    **options: Unpack[MeasureKeywords],
) -> Measured:
    """Measure a model on ``test``; labels that it does not know can only be missed.

    Args:
        model: A trained model, or an ensemble.
        test: Documents with labels.
        ks: Cut-offs of the metrics.
        beam_size: Nodes kept on each level, in place of the model's own setting.
        frequencies: Documents of each label, the model's labels first, and of all, in place of the
            model's own.
        ranked: The model's predictions for ``test``, best first, where they are at hand.
        **options: Fields of ``MeasureOptions``, below.

    Keyword Args:
        propensity: (A, B) of the propensities, or a family: wikipedia, amazon or default. None:
            that of the benchmark that ``test`` was read from, told by the name of its file or
            folder, else that of the model's preset.
        mask: A filter file of (document, label) pairs that no prediction may score with; "auto" for
            the one that lies beside the files of ``test``, where these are a label-feature set;
            None for none.
        bootstrap: Resamples of the documents, for intervals.
        seed: Seed of the resamples.
    """
    measure = _Measure.of(ks, MeasureOptions(**options), test, model.preset)
    test = test.with_labels(model.labels, unknown="add")
    if not test.label_matrix[:, : len(model.labels)].nnz:
        log.warning(
            "no label of the test documents is one of the model's, so none can be hit; "
            "are both of one kind?"
        )
    n_ranked = max(*measure.ks, _RANKED)
    if ranked is None:
        ranked = predict(model, test, n_ranked, beam_size=beam_size).matrix
    else:
        ranked = _first(ranked, n_ranked)
    counts, n_train = frequencies or (model.label_counts, model.facts.documents)
    measured = _measured(ranked, test, counts, n_train, measure)
    measured = _with_trained_on(measured, test, model)
    if model.calibration is None:
        return measured
    right = hits(_widened(ranked, test.n_labels), test.label_matrix)
    return msgspec.structs.replace(measured, reliability=tuple(reliability(ranked.data, right)))


def _with_trained_on(measured: Measured, test: Dataset, model: RankingModel) -> Measured:
    """Return the measurement with the number of test documents that the model was trained on; warn
    of these.
    """
    evaluation = msgspec.structs.replace(
        measured.evaluation, trained_on=shared_with(test, model.all_fingerprints)
    )
    if evaluation.trained_on:
        log.warning("%s", evaluation.trained_on_in_words)
    return msgspec.structs.replace(measured, evaluation=evaluation)


def evaluate_predictions(
    predictions: Predictions | Path | str,
    test: Dataset,
    train: Dataset | None = None,
    *,
    ks: Iterable[int] = (1, 3, 5),
    **options: Unpack[MeasureKeywords],
) -> Measured:
    """Measure predictions, or a file of them, against ``test``, whose label columns begin with
    those of ``train``.

    ``train`` gives the label frequencies for the propensity metrics; all else is as for
    :func:`evaluate_model`."""
    if not isinstance(predictions, Predictions):
        predictions = read_predictions(predictions, test.labels, test.ids, len(test))
    counts = None
    n_train = 0
    if train is not None:
        counts = train.label_counts
        n_train = len(train)
    measure = _Measure.of(ks, MeasureOptions(**options), test)
    return _measured(predictions.matrix, test, counts, n_train, measure)


def _measured(
    ranked: sparse.csr_array,
    test: Dataset,
    counts: NDArray[np.int64] | None,
    n_train: int,
    measure: _Measure,
) -> Measured:
    n_labels = max(ranked.shape[1], test.n_labels)
    ranked = _widened(ranked, n_labels)
    truth = _widened(test.label_matrix, n_labels)
    pairs = None
    facts: dict[str, Any] = {}
    if measure.filter is not None:
        pairs = filter_pairs(measure.filter, test, n_labels)
        facts = {"filter": measure.filter.name, "filter_pairs": len(pairs)}
    options: dict[str, Any] = {"mask": pairs, "bootstrap": measure.bootstrap, "seed": measure.seed}
    if counts is None:
        evaluation = evaluate(ranked, truth, measure.ks, **options)
        return Measured(msgspec.structs.replace(evaluation, **facts))
    frequencies = np.zeros(n_labels, np.int64)
    frequencies[: len(counts)] = counts
    a, b, source = measure.constants
    evaluation = evaluate(
        ranked, truth, measure.ks, label_counts=frequencies, n_train=n_train, a=a, b=b, **options
    )
    evaluation = msgspec.structs.replace(evaluation, constants_from=source, **facts)
    return Measured(evaluation, by_frequency(ranked, truth, frequencies, measure.ks, mask=pairs))


def _first(ranked: sparse.csr_array, k: int) -> sparse.csr_array:
    """Return the first ``k`` predictions of each document."""
    return csr_where(ranked, places_in_rows(ranked) < k)


def _widened(matrix: sparse.csr_array, n_labels: int) -> sparse.csr_array:
    """Return the matrix with more columns, nothing in them."""
    if matrix.shape[1] == n_labels:
        return matrix
    return csr_of(matrix.data, matrix.indices, matrix.indptr, n_labels)
