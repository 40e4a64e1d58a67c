"""The page: how data flows, from files to figures.

documents ─→ text features ─┐ ├─→ label features ─→ label tree ─→ ranker ─→ search ─→ predictions ─→
                            metrics
labels ─→ label matrix ─────┘

A neural method trains a network on a tree first; its vectors then stand beside the text features
(Φcat)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from longtail.checks import check_trainable
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.fingerprints import Fingerprints, document_hashes
from longtail.features.document_features import document_features
from longtail.methods import (
    METHODS,
    classifiers_alone,
    network_ranks,
    reads_label_texts,
    uses_encoder,
)
from longtail.models.model import Facts, Model
from longtail.networks.fitting import (
    combined_features,
    encoder_hash,
    feature_inputs,
    fit_network,
    kept_network,
    label_hints,
)
from longtail.rankers import ranker_family
from longtail.rankers.base import TrainingPoints
from longtail.steps.held_out import calibrate, check_unseen, hold_out, weigh
from longtail.steps.inputs import DOCUMENTS, ENCODER, GIVEN_LOSS, HIERARCHY, VALIDATION
from longtail.steps.run import Run
from longtail.steps.text import text_features
from longtail.steps.trees import label_graph_of, uses_label_graph, with_label_points
from longtail.steps.work import Work
from longtail.store import Stages
from longtail.tree.given import Parents

__all__ = ["follow", "train"]

log = logging.getLogger("longtail")


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
    """Train a model; what ``stages`` holds of an interrupted run is not done again.

    ``valid`` is for the calibration, which otherwise has some documents held out, and for the
    epochs of a network; ``parents`` is a hierarchy of the labels in place of a clustered tree.
    ``loss`` is the loss of a network, where ``training.loss`` is ``custom``."""
    check_trainable(documents, config, device, parents, loss)
    fingerprints = Fingerprints.of(document_hashes(documents))
    if valid is not None:
        check_unseen(valid, [fingerprints], documents)
    _remark_unread_texts(documents, config)
    fitted, held_out, run = _begun(documents, config, valid, parents, stages, device, loss)

    points = with_label_points(fitted, run)  # the documents, and with Gandalf the labels' own texts
    vectoriser, features = text_features(points, run)
    network = fit_network(points, features, vectoriser, run)
    features = combined_features(points, features, network, run)
    hints = partial(label_hints, points, network, run)  # for one-vs-all classifiers
    inputs = feature_inputs(config)
    rankers = ranker_family(config).fit(
        TrainingPoints(points, features, vectoriser, hints, inputs), run
    )
    network = kept_network(network, config)

    share = float(network_ranks(config) and not classifiers_alone(config))
    facts = Facts(
        len(fitted), fitted.label_matrix.nnz, len(held_out or ()), *features.widths, share
    )
    vectoriser = None if config.features == "dnn" else vectoriser
    graph = label_graph_of(fitted, config, run.work) if uses_label_graph(config) else None
    parts = config, fitted.labels, fitted.label_counts, facts, vectoriser, rankers, network, graph
    model = Model(*parts, fingerprints=fingerprints)
    return calibrate(weigh(model, held_out), held_out, of_training=valid is None)


def _remark_unread_texts(documents: Dataset, config: Config) -> None:
    """Say in the log that the labels have texts which this training does not read."""
    texts = documents.labels.texts
    if texts is None or not texts.lengths.any() or reads_label_texts(config):
        return
    able = sorted(
        entry.name
        for entry in METHODS.values()
        if "text" in entry.settings.get("label_text", {}).get("parts", ())
    )
    count = int((texts.lengths > 0).sum())
    log.info(
        "%s does not read the texts of labels (%s have one); --gandalf (gandalf.use) trains on them, and so do %s",
        config.method,
        f"{count:,}",
        ", ".join(able),
    )


def follow(
    documents: Dataset,
    config: Config,
    *,
    valid: Dataset | None,
    parents: Parents | None,
    stages: Stages,
    device: str,
) -> None:
    """Take part in the training of the network, as a rank that is not the first: all else is that
    one's work.
    """
    fitted, _, run = _begun(documents, config, valid, parents, stages, device)
    points = with_label_points(fitted, run)
    none = document_features(replace(points, features=None), None, run.config)
    fit_network(points, none, None, run)


def _begun(
    documents: Dataset,
    config: Config,
    valid: Dataset | None,
    parents: Parents | None,
    stages: Stages | None,
    device: str,
    loss: Callable[..., Any] | None = None,
) -> tuple[Dataset, Dataset | None, Run]:
    """Return what to train on, what to calibrate by, and the run, whose stages go by all that they
    are made from.
    """
    fitted, held_out = (documents, valid) if valid is not None else hold_out(documents, config)
    data: dict[str, object] = {DOCUMENTS: fitted, HIERARCHY: parents}
    if uses_encoder(config):
        data |= {VALIDATION: valid, ENCODER: encoder_hash(config)}
    if loss is not None:
        name = getattr(loss, "__qualname__", type(loss).__qualname__)
        data[GIVEN_LOSS] = [getattr(loss, "__module__", ""), name]
    work = Work.begin(stages, config, data)
    return fitted, held_out, Run(config, work, parents, valid, device, loss)
