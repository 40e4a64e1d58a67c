"""Training and prediction: the whole picture on one page.

Training::

    documents and labels
      ├─→ text features
      ├─→ label features ─→ label tree ─→ network      neural methods
      ├─→ Φcat: text features beside the vectors of the network
      ├─→ label features ─→ label trees ─→ rankers
      └─→ calibration on documents held out ─→ model

Prediction::

    documents ─→ features (Φcat) ─→ search ─→ calibration ─→ predictions

Without a network, Φcat is the text features alone. A network may also rank labels by itself; the
score is then the weighted mean of network and rankers. Data and settings are checked before, in
:mod:`longtail.checks`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.fingerprints import Fingerprints, document_hashes
from longtail.features.document_features import document_features
from longtail.methods import classifiers_alone, network_of, network_ranks, uses_encoder
from longtail.metrics.analysis import at_least
from longtail.models.model import Facts, Model
from longtail.models.ranking_model import RankingModel
from longtail.networks.fitting import (
    combined_features,
    encoder_hash,
    feature_inputs,
    kept_network,
    label_hints,
    network_run,
    network_trees,
    pretrained_encoder,
    untrained_network,
)
from longtail.rankers import ranker_family
from longtail.rankers.base import TrainingPoints
from longtail.search.predictions import Predictions
from longtail.steps.held_out import calibrate, check_unseen, hold_out, weigh
from longtail.steps.inputs import DOCUMENTS, ENCODER, GIVEN_LOSS, HIERARCHY, VALIDATION
from longtail.steps.process_group import current_group
from longtail.steps.run import Run
from longtail.steps.text import log_unread_label_texts, text_features
from longtail.steps.trees import kept_label_graph, with_label_points
from longtail.steps.work import Work
from longtail.store import Stages
from longtail.tree.given import Parents

__all__ = ["follow", "predict", "train"]


def train(
    documents: Dataset,
    config: Config,
    *,
    valid: Dataset | None = None,
    parents: Parents | None = None,
    stages: Stages | None = None,
    device: str = "auto",
    loss: Callable[..., Any] | None = None,
) -> Model:
    """Train a model on documents and settings that :func:`longtail.checks.check_trainable` accepts.

    Args:
        documents: to train on.
        config: resolved settings.
        valid: documents for the calibration and the best epoch of a network; without it, some of
            ``documents`` are held out for the calibration.
        parents: a hierarchy of the labels in place of a clustered tree.
        stages: where finished steps are stored, and taken from after an interruption.
        device: where a network runs.
        loss: of a network, where ``training.loss`` is ``custom``.
    """
    fingerprints = Fingerprints.of(document_hashes(documents))
    if valid is not None:
        check_unseen(valid, [fingerprints], documents)
    log_unread_label_texts(documents, config)
    fitted, held_out, rows = hold_out(documents, config, valid)
    run = _start(fitted, config, valid, parents, stages, device, loss)._replace(rows=rows)

    labelled = with_label_points(fitted, run)  # with Gandalf, texts of labels behind the documents
    vectoriser, features = text_features(labelled, run)
    network_family = network_of(config)
    if network_family is None:
        network = pretrained_encoder(run)
    else:
        untrained = untrained_network(labelled, run)  # encoder, tokens
        trees_of_network = network_trees(  # label features, label trees
            labelled, features, vectoriser, network_family, run
        )
        network = network_family.fit(
            network_run(labelled, untrained, trees_of_network, network_family, run)
        )
        current_group().leave()  # of several processes, the first one goes on alone
    features = combined_features(labelled, features, network, run)  # Φcat
    hints = partial(label_hints, labelled, network, run)
    inputs = feature_inputs(config)
    points = TrainingPoints(labelled, features, vectoriser, hints, inputs=inputs)
    family = ranker_family(config)
    trees = family.label_trees(points, run)  # label features, label trees
    rankers = family.fit(points._replace(trees=trees), run)

    facts = Facts(
        documents=len(fitted),
        pairs=fitted.label_matrix.nnz,
        held_out=len(held_out or ()),
        n_columns=features.widths[0],
        dense_width=features.widths[1],
        network_share=float(network_ranks(config) and not classifiers_alone(config)),
    )
    model = Model(
        config,
        fitted.labels,
        fitted.label_counts,
        facts,
        vectoriser=vectoriser if config.features != "dnn" else None,
        rankers=rankers,
        network=kept_network(network, config),
        label_graph=kept_label_graph(fitted, config, run.work),
        fingerprints=fingerprints,
    )
    model = weigh(model, held_out)  # the share of a network that ranks
    return calibrate(model, held_out, of_training=valid is None)


def predict(
    model: RankingModel,
    documents: Dataset | Iterable[str],
    k: int = 5,
    *,
    threshold: float = 0.0,
    beam_size: int | None = None,
    exclude: Sequence[Iterable[str]] | None = None,
) -> Predictions:
    """Return the ``k`` best labels per document with a score of at least ``threshold``, best first.

    Scores are probabilities where the model is calibrated, else those of the ranker: products
    along the path, shares of votes, or margins, which may be negative.

    Args:
        model: a model of one method, or an ensemble.
        documents: texts, or a dataset.
        k: labels per document.
        threshold: the least score; 0 keeps all, also those below 0. Where the model is not
            calibrated, the log warns once that scores are not probabilities.
        beam_size: nodes kept on each level of a label tree; None: as the settings say.
        exclude: for each document the labels that may not be predicted.
    """
    model.warn_of_threshold(threshold)
    k = model.check_k(k)
    search = model.search_settings(beam_size)
    ids = documents.ids if isinstance(documents, Dataset) else None
    documents = model.readable(documents)
    model.warn_of_empty(documents)
    excluded = model.excluded(exclude, len(documents))

    scores = model.raw_scores(documents, k, search, excluded)  # features, search
    scores = model.calibrated(scores)
    if threshold:
        scores = at_least(scores, threshold)
    return Predictions(scores, model.labels, ids)


def follow(
    documents: Dataset,
    config: Config,
    *,
    valid: Dataset | None,
    parents: Parents | None,
    stages: Stages,
    device: str,
) -> None:
    """Train the network together with the first process, which does everything else alone."""
    fitted = hold_out(documents, config, valid).fitted
    run = _start(fitted, config, valid, parents, stages, device)
    labelled = with_label_points(fitted, run)
    no_features = document_features(replace(labelled, features=None), None, run.config)
    network_family = network_of(config)
    if network_family is not None:
        untrained = untrained_network(labelled, run)
        trees = network_trees(labelled, no_features, None, network_family, run)
        network_family.fit(network_run(labelled, untrained, trees, network_family, run))
        current_group().leave()


def _start(
    fitted: Dataset,
    config: Config,
    valid: Dataset | None,
    parents: Parents | None,
    stages: Stages | None,
    device: str,
    loss: Callable[..., Any] | None = None,
) -> Run:
    """Open the run; its stages are keyed by their inputs."""
    data: dict[str, object] = {DOCUMENTS: fitted, HIERARCHY: parents}
    if uses_encoder(config):
        data |= {VALIDATION: valid, ENCODER: encoder_hash(config)}
    if loss is not None:
        name = getattr(loss, "__qualname__", type(loss).__qualname__)
        data[GIVEN_LOSS] = [getattr(loss, "__module__", ""), name]
    return Run(config, Work.begin(stages, config, data), parents, valid, device, loss)
