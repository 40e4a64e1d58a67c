"""Choice of a network's share of the scores, and calibration, on documents held out of training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace as replace_settings
from numpy.typing import NDArray

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.fingerprints import Fingerprints, shared_ids, shared_with
from longtail.data.labels import Labels
from longtail.errors import UsageError
from longtail.metrics import evaluate
from longtail.reporting import logged_stage
from longtail.search.calibration import Calibration, hits
from longtail.search.ensemble import mean_scores

if TYPE_CHECKING:
    from longtail.models.model import Model
    from longtail.models.ranking_model import RankingModel

__all__ = [
    "Split",
    "best_share",
    "calibrate",
    "check_unseen",
    "hold_out",
    "weigh",
    "with_known_labels",
]

log = logging.getLogger("longtail")

Ranking = TypeVar("Ranking", bound="RankingModel")

# of the network's scores, to choose from by held-out documents
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_RANKED = 20  # best labels of each held-out document that the choice looks at
_CALIBRATED = 20  # best labels of each held-out document that the calibration looks at
_MOST = 0.5  # share of the validation documents from which they are the training data by mistake


def check_unseen(
    valid: Dataset, training: Sequence[Fingerprints], documents: Dataset | None = None
) -> None:
    """Refuse validation data that is training data for the most part; warn where some of it is.

    Args:
        valid: The validation data.
        training: Fingerprints of the training documents, of each member of an ensemble.
        documents: The training documents, where they are at hand, for the ids.
    """
    same = shared_with(valid, training)
    same_ids = 0 if documents is None else shared_ids(valid, documents)
    if not same and not same_ids:
        return
    problem = (
        f"{same:,} of the {len(valid):,} documents are training documents by their text or features"
    )
    if same_ids:
        problem += f", {same_ids:,} by their id"
    if documents is not None and _from_one_file(valid, documents):
        problem += ", and both are read from one file"
    if same >= _MOST * len(valid):
        expected = "expected documents that training does not see"
        raise UsageError(
            f"--valid, or valid=: {problem}; {expected}; "
            "without any, some are held out where there is room"
        )
    log.warning("validation data: %s; probabilities and metrics on them come out too high", problem)


def _from_one_file(valid: Dataset, documents: Dataset) -> bool:
    first = valid.source
    second = documents.source
    if first is None or second is None:
        return False
    return (first.path.resolve(), first.split) == (second.path.resolve(), second.split)


class Split(NamedTuple):
    """The documents to train on, those for the calibration, and the positions of the former where
    the latter are held out.
    """

    fitted: Dataset
    held_out: Dataset | None
    rows: NDArray[np.int64] | None = None


def hold_out(documents: Dataset, config: Config, valid: Dataset | None = None) -> Split:
    """Return the documents to train on and those for the calibration: ``valid``, else some that are
    held out, none of them the only one of a label.
    """
    if valid is not None:
        return Split(documents, valid)
    settings = config.calibration
    wanted = min(int(settings.share * len(documents)), settings.max_documents)
    if settings.method == "none" or wanted < 1:
        return Split(documents, None)
    matrix = documents.label_matrix
    left = documents.label_counts
    order = np.random.default_rng(config.seed).permutation(len(documents))
    chosen: list[int] = []
    for row in order.tolist():
        labels = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        if len(labels) and (left[labels] > 1).all():
            left[labels] -= 1
            chosen.append(row)
            if len(chosen) == wanted:
                break
    if not chosen:
        return Split(documents, None)
    held_out = np.sort(chosen)
    fitted = np.setdiff1d(np.arange(len(documents)), held_out)
    return Split(documents.take(fitted), documents.take(held_out), fitted)


def with_known_labels(documents: Dataset | None, labels: Labels) -> Dataset | None:
    """Return the documents over the labels of training, or None where they have none of these:
    nothing to measure.
    """
    if documents is None:
        return None
    known = documents.with_labels(labels, unknown="drop")
    return known if known.label_matrix.nnz else None


def weigh(model: Model, held_out: Dataset | None) -> Model:
    """Return the model with the network's weight beside the linear classifiers that ranks held-out
    documents best.
    """
    if model.neural_ranker is None or not model.rankers:
        return model
    known = with_known_labels(held_out, model.labels)
    if known is None:
        return replace(model, facts=replace_settings(model.facts, network_share=0.5))
    with logged_stage("network and linear classifiers") as note:
        share, values = best_share(model, known)
        if model.config.cascade.combine == "always" and share == 1:
            share = 0.5
        note(", ".join(f"network {name:.0%}: {value:.1%}" for name, value in values.items()))
    rankers = () if share == 1 else model.rankers
    return replace(model, rankers=rankers, facts=replace_settings(model.facts, network_share=share))


def best_share(model: Model, held_out: Dataset) -> tuple[float, dict[float, float]]:
    """Return the network's best share of the scores, and the mean of P@1, P@3 and P@5 for each that
    was tried.

    ``held_out`` are documents over the model's labels.
    """
    both = model.both_scores(held_out, _RANKED, model.config.search)
    values = {}
    for share in _SHARES:
        metrics = evaluate(mean_scores(both, _RANKED, (share, 1 - share)), held_out.label_matrix)
        values[share] = float(np.mean([metrics[name] for name in ("P@1", "P@3", "P@5")]))
    return max(values, key=lambda share: (values[share], share)), values


def calibrate(model: Ranking, held_out: Dataset | None, *, of_training: bool = False) -> Ranking:
    """Return the model with a map from scores to probabilities, learnt on documents that it has not
    seen.

    ``of_training`` says that these were held out of the training data. Where none is made, the log
    says why."""
    if model.config.calibration.method == "none":
        log.info("no calibration, as calibration.method is none: scores are not probabilities")
        return model
    if held_out is None or not len(held_out):
        way_out = "give documents for it: --valid, or valid="
        log.warning(
            "no calibration, so scores are not probabilities: %s; %s", _missing(model), way_out
        )
        return model
    with logged_stage("calibration") as note:
        truth = held_out.with_labels(model.labels, unknown="drop").label_matrix
        ranked = model.raw_scores(
            held_out, min(_CALIBRATED, len(model.labels)), model.config.search
        )
        if not truth.nnz or not ranked.nnz:
            note("none of the documents for it has a known label, so scores are not probabilities")
            return model
        right = hits(ranked, truth)
        metrics = evaluate(
            ranked, truth, label_counts=model.label_counts, n_train=model.facts.documents
        )
        documents = (
            f"{len(held_out):,} {'documents held out' if of_training else 'documents given for it'}"
        )
        note(f"{documents}: P@1 {metrics['P@1']:.1%}, P@5 {metrics['P@5']:.1%}")
        metrics = msgspec.structs.replace(metrics, held_out=of_training)
        calibration = Calibration.fit(ranked.data, right, model.config.calibration.method)
        return replace(model, calibration=calibration, metrics=metrics)


def _missing(model: RankingModel) -> str:
    """Return why no documents of training were held out for the calibration."""
    count = model.facts.documents
    share = model.config.calibration.share
    if int(share * count) < 1:
        return f"{count:,} documents are too few to hold out {share:.0%} of them"
    return "no document could be held out, as each is the only one of a label"
