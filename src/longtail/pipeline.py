"""The page: how data flows, from files to figures.

documents ─→ text features ─┐
                            ├─→ label features ─→ label tree ─→ ranker ─→ search ─→ predictions ─→ metrics
labels ─→ label matrix ─────┘

A neural method trains a network on a tree first; its vectors then stand beside the text features (Φcat).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from longtail.config import Config
from longtail.data.csr import csr_arrays, csr_of_arrays
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import DataError, Problem, UsageError
from longtail.features.gandalf import check_gandalf
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.linear.partitions import check_index
from longtail.methods import METHODS, uses_encoder
from longtail.metrics import evaluate
from longtail.model import Facts, Model, document_features
from longtail.network_steps import check_network, combined_features, encoder_hash, fit_network, weigh
from longtail.ranker_steps import fit_rankers
from longtail.ranking_model import RankingModel
from longtail.search.calibration import Calibration, hits
from longtail.store import Stages
from longtail.tree_steps import Parents, label_graph_of, uses_label_graph, with_label_points
from longtail.work import Work, told

__all__ = ["calibrate", "check_trainable", "follow", "train"]

Ranking = TypeVar("Ranking", bound=RankingModel)

_CALIBRATED = 20  # best labels of each held-out document that the calibration looks at


def train(
    documents: Dataset,
    config: Config,
    *,
    valid: Dataset | None = None,
    parents: Parents | None = None,
    stages: Stages | None = None,
    device: str = "auto",
    log_file: Path | None = None,
) -> Model:
    """Train a model; what ``stages`` holds of an interrupted run is not done again.

    ``valid`` is for the calibration, which otherwise has some documents held out, and for the epochs of a network;
    ``parents`` is a hierarchy of the labels in place of a clustered tree. What a network's training tells of its steps
    goes to ``log_file``, a JSON line each.
    """
    check_trainable(documents, config, device, parents)
    fitted, held_out, work = _begun(documents, config, valid, parents, stages)

    points = with_label_points(fitted, config, work)  # the documents, and with Gandalf the labels' own texts
    vectoriser, features = text_features(points, config, work)
    network = fit_network(points, features, vectoriser, config, parents, work, valid, device, log_file)
    features = combined_features(points, features, network, config, work)
    rankers = fit_rankers(points, features, vectoriser, config, parents, work, network)
    share = float(METHODS[config.method].network_ranks)
    facts = Facts(len(fitted), fitted.label_matrix.nnz, len(held_out or ()), *features.widths, share)
    vectoriser = None if config.features == "dnn" else vectoriser
    graph = label_graph_of(fitted, config, work) if uses_label_graph(config) else None
    model = Model(config, fitted.labels, fitted.label_counts, facts, vectoriser, rankers, network, graph)
    return calibrate(weigh(model, held_out), held_out)


def follow(
    documents: Dataset,
    config: Config,
    *,
    valid: Dataset | None,
    parents: Parents | None,
    stages: Stages,
    device: str,
) -> None:
    """Take part in the training of the network, as a rank that is not the first: all else is that one's work."""
    fitted, _, work = _begun(documents, config, valid, parents, stages)
    points = with_label_points(fitted, config, work)
    none = document_features(replace(points, features=None), None)
    fit_network(points, none, None, config, parents, work, valid, device, None)


def _begun(
    documents: Dataset, config: Config, valid: Dataset | None, parents: Parents | None, stages: Stages | None
) -> tuple[Dataset, Dataset | None, Work]:
    """Return what to train on, what to calibrate by, and where stages go, by all that they are made from."""
    fitted, held_out = (documents, valid) if valid is not None else hold_out(documents, config)
    seen = [fitted, parents, *([valid, encoder_hash(config)] if uses_encoder(config) else [])]
    return fitted, held_out, Work.begin(stages, config, *seen)


def text_features(documents: Dataset, config: Config, work: Work) -> tuple[TfIdf | None, Features]:
    """Return the features of the documents, and the vectoriser that made them unless they were given."""
    if config.features == "dnn" and not METHODS[config.method].network:  # an encoder reads the texts, and nothing else
        return None, document_features(replace(documents, features=None), None)
    if documents.features is not None or (documents.dense is not None and not _has_text(documents)):
        return None, document_features(documents, None)

    def make() -> dict[str, np.ndarray]:
        vectoriser, rows = TfIdf.fit_transform(documents.document_texts(), config.tfidf)
        return csr_arrays(rows) | {f"vectoriser.{name}": array for name, array in vectoriser.to_arrays().items()}

    with told("features") as say:
        arrays = work.arrays("features", make)
        own = {name.removeprefix("vectoriser."): array for name, array in arrays.items() if "." in name}
        vectoriser = TfIdf.from_arrays(own, config.tfidf)
        rows = csr_of_arrays(arrays, vectoriser.n_features)
        say(f"{len(documents):,} documents, {vectoriser.n_features:,} n-grams, {rows.nnz / len(documents):.1f} each")
    dense = document_features(replace(documents, texts=None), None).dense
    return vectoriser, Features.of(rows, dense)


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


def check_trainable(documents: Dataset, config: Config, device: str = "auto", parents: Parents | None = None) -> None:
    """Refuse data that nothing can be learnt from, a hierarchy without use, and a network that cannot be had."""
    if not len(documents):
        raise DataError([Problem("documents", 0, "no documents", "at least one with a label")])
    if not documents.label_matrix.nnz:
        raise DataError([Problem("documents", 0, f"{len(documents):,} documents without labels", "labels to learn")])
    entry = METHODS[config.method]
    if parents is not None and (entry.ranker != "tree" or (config.tree.kind == "flat" and not entry.network)):
        raise UsageError(f"{config.method} has no label tree, so no use for a hierarchy; leave --tree out")
    if parents is not None and not _names_any(parents, documents.labels):
        raise UsageError("--tree: found no label of the documents in it; expected their ids, as children or parents")
    if entry.ranker == "forest" and config.forest.propensities and len(documents) < 3:
        raise UsageError(f"{config.method}: found {len(documents)} documents; expected at least 3, for propensities")
    if entry.ranker == "neighbours":
        check_index(config.neighbours.index)
    if config.gandalf.use:
        check_gandalf(documents)
    if uses_encoder(config):
        check_network(documents, config, device, parents)


def _names_any(parents: Parents, labels: Labels) -> bool:
    """Tell whether a hierarchy speaks of any label at all."""
    return any(child in labels or any(parent in labels for parent in own) for child, own in parents.items())


def _has_text(documents: Dataset) -> bool:
    return documents.texts is not None and documents.texts.arena.size > 0
