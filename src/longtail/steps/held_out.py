"""What documents that training has not seen decide: how much a network counts, and what a score means."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec.structs import replace as replace_settings

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.metrics import evaluate
from longtail.search.calibration import Calibration, hits
from longtail.search.ensemble import mean_scores
from longtail.steps.told import told

if TYPE_CHECKING:
    from longtail.models.model import Model
    from longtail.models.ranking_model import RankingModel

__all__ = ["best_share", "calibrate", "hold_out", "weigh", "with_known_labels"]

Ranking = TypeVar("Ranking", bound="RankingModel")

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the network's scores, to choose from by held-out documents
_RANKED = 20  # best labels of each held-out document that the choice looks at
_CALIBRATED = 20  # best labels of each held-out document that the calibration looks at


def hold_out(documents: Dataset, config: Config) -> tuple[Dataset, Dataset | None]:
    """Return what to train on, and some documents for the calibration, none of them the last one of a label."""
    settings = config.calibration
    wanted = min(int(settings.share * len(documents)), settings.max_documents)
    if settings.method == "none" or wanted < 1:
        return documents, None
    matrix, left = documents.label_matrix, documents.label_counts
    order = np.random.default_rng(config.seed).permutation(len(documents))
    chosen: list[int] = []
    for row in order.tolist():
        own = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        if len(own) and (left[own] > 1).all():
            left[own] -= 1
            chosen.append(row)
            if len(chosen) == wanted:
                break
    if not chosen:
        return documents, None
    rows = np.sort(chosen)
    return documents.take(np.setdiff1d(np.arange(len(documents)), rows)), documents.take(rows)


def with_known_labels(documents: Dataset | None, labels: Labels) -> Dataset | None:
    """Return the documents over the labels of training, or None where they have none of these: nothing to measure."""
    if documents is None:
        return None
    known = documents.with_labels(labels, unknown="drop")
    return known if known.label_matrix.nnz else None


def weigh(model: Model, held_out: Dataset | None) -> Model:
    """Return the model with the network's weight beside the linear classifiers that ranks held-out documents best."""
    if model.neural_ranker is None or not model.rankers:
        return model
    known = with_known_labels(held_out, model.labels)
    if known is None:
        return replace(model, facts=replace_settings(model.facts, network_share=0.5))
    with told("network and linear classifiers") as say:
        share, values = best_share(model, known)
        if model.config.cascade.combine == "always" and share == 1:
            share = 0.5
        say(", ".join(f"network {name:.0%}: {value:.1%}" for name, value in values.items()))
    rankers = () if share == 1 else model.rankers
    return replace(model, rankers=rankers, facts=replace_settings(model.facts, network_share=share))


def best_share(model: Model, held_out: Dataset) -> tuple[float, dict[float, float]]:
    """Return the network's best share of the scores, and the mean of P@1, P@3 and P@5 for each that was tried.

    ``held_out`` are documents over the model's labels.
    """
    both = model.both_scores(held_out, _RANKED, model.config.search)
    values = {}
    for share in _SHARES:
        metrics = evaluate(mean_scores(both, _RANKED, (share, 1 - share)), held_out.label_matrix)
        values[share] = float(np.mean([metrics[name] for name in ("P@1", "P@3", "P@5")]))
    return max(values, key=lambda share: (values[share], share)), values


def calibrate(model: Ranking, held_out: Dataset | None) -> Ranking:
    """Return the model with a map from scores to probabilities, learnt on documents that it has not seen."""
    if held_out is None or not len(held_out) or model.config.calibration.method == "none":
        return model
    with told("calibration") as say:
        truth = held_out.with_labels(model.labels, unknown="drop").label_matrix
        ranked = model.raw_scores(held_out, min(_CALIBRATED, len(model.labels)), model.config.search)
        if not truth.nnz or not ranked.nnz:
            say("none of the documents for it has a known label, so scores are not calibrated")
            return model
        right = hits(ranked, truth)
        metrics = evaluate(ranked, truth, label_counts=model.label_counts, n_train=model.facts.documents)
        say(f"{len(held_out):,} documents held out: P@1 {metrics['P@1']:.1%}, P@5 {metrics['P@5']:.1%}")
        calibration = Calibration.fit(ranked.data, right, model.config.calibration.method)
        return replace(model, calibration=calibration, metrics=metrics)
