"""Training of a network in the pipeline, and its vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace as replace_settings

from longtail.config import Config
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.features.document_features import document_features
from longtail.features.encoder_folder import POOLING, encoder_folder, is_pretrained
from longtail.features.encoder_search import find_word_vectors
from longtail.features.matrix import Features, join_blocks
from longtail.features.tfidf import TfIdf
from longtail.methods import classifiers_alone, network_of, ranks_alone, uses_encoder
from longtail.networks.base import NetworkFamily, NetworkRun
from longtail.rankers.base import LabelHints
from longtail.reporting import logged_stage
from longtail.steps.held_out import with_known_labels
from longtail.steps.inputs import (
    ENCODER,
    GIVEN_LOSS,
    TRAINING,
    VALIDATION,
    Inputs,
    settings_in,
)
from longtail.steps.run import Run
from longtail.steps.text import text_inputs
from longtail.steps.trees import label_trees, point_inputs, tree_inputs
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.features.tokens import Tokeniser, Tokens

    # torch is imported only where a network is wanted
    from longtail.networks.embedder import Embedder

__all__ = [
    "combined_features",
    "encoder_hash",
    "feature_inputs",
    "kept_network",
    "label_hints",
    "network_inputs",
    "network_run",
    "network_trees",
    "pretrained_encoder",
    "untrained_network",
    "with_levels",
]


def encoder_hash(config: Config) -> str:
    """Return a hash of the pretrained encoder: a folder of the same name may hold another one by
    the next run.
    """
    digest = hashlib.sha256()
    name = config.encoder.name
    if is_pretrained(config.encoder.kind, name):
        folder = encoder_folder(name)
        # .json and .safetensors
        files = [*sorted(folder.glob("*.[js][sa]*")), *folder.glob(POOLING)]
    elif name == "learned":
        files = []
    else:
        files = [find_word_vectors(name) or Path(name).expanduser()]
    for file in files:
        with file.open("rb") as content:
            digest.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


class Untrained(NamedTuple):
    """A network before training, and the tokens of the documents."""

    embedder: Embedder
    tokens: Tokens


def network_run(
    documents: Dataset,
    untrained: Untrained,
    trees: Sequence[LabelTree],
    family: NetworkFamily,
    run: Run,
) -> NetworkRun:
    """Return what a network is trained on: its encoder, the tokens of the documents, and label
    trees.

    Args:
        documents: to train on.
        untrained: the encoder and the tokens (:func:`untrained_network`).
        trees: of the labels (:func:`network_trees`).
        family: of the network.
        run: settings, stages and validation data.
    """
    from longtail.networks.losses import loss_of

    config = run.config
    tree, *more_trees = trees
    loss = None
    if run.loss is not None:
        loss = loss_of(run.loss)
    return NetworkRun(
        documents,
        untrained.embedder,
        untrained.tokens,
        tree,
        config,
        run.work,
        valid=with_known_labels(run.valid, documents.labels),
        loss=loss,
        inputs=network_inputs(config, family),
        more_trees=more_trees,
    )


def pretrained_encoder(run: Run) -> Embedder | None:
    """Return the pretrained encoder of a method without a network, ready for use; None if the
    features do not want one.
    """
    if not uses_encoder(run.config):
        return None
    from longtail.networks.embedder import pretrained_embedder

    precision = run.config.training.precision
    return pretrained_embedder(run.config.encoder, precision, run.device).freeze()


def network_trees(
    documents: Dataset,
    features: Features,
    vectoriser: TfIdf | None,
    family: NetworkFamily,
    run: Run,
) -> list[LabelTree]:
    """Return the label trees that the network is trained on.

    Args:
        documents: to train on.
        features: of the documents, for the label trees.
        vectoriser: of these features; None without text features.
        family: of the network.
        run: settings and stages.
    """
    levels = with_levels(run.config, documents.n_labels)
    seeds = {"tree-network": run.config.seed}
    for number in range(1, family.n_trees(run.config)):
        seeds[f"tree-network-{number}"] = run.config.seed + number
    inputs = _network_tree_inputs(run.config, family)
    run = run._replace(config=levels)
    return label_trees(documents, features, vectoriser, run, seeds, inputs)


def _network_tree_inputs(config: Config, family: NetworkFamily) -> Inputs:
    """Return the inputs of the label tree of a network."""
    return tree_inputs(config, text_inputs(config)) | family.level_inputs()


def network_inputs(config: Config, family: NetworkFamily) -> Inputs:
    """Return the inputs of the trained network, and of its checkpoints."""
    encoder = settings_in("encoder") - settings_in("encoder.weight")
    common = encoder | TRAINING | settings_in("seed") | {VALIDATION, ENCODER, GIVEN_LOSS}
    of_tree = _network_tree_inputs(config, family)
    return common | family.inputs(config) | token_inputs(config) | of_tree


def with_levels(config: Config, n_labels: int) -> Config:
    """Return the settings with the label tree of the network in the place of that of the linear
    classifiers.
    """
    family = network_of(config)
    if family is None:
        return config
    return replace_settings(config, tree=family.tree_settings(config, n_labels))


def untrained_network(documents: Dataset, run: Run) -> Untrained:
    """Return the encoder before training, and the tokens of the documents.

    A bad file of word vectors is found here, before a label tree is built."""
    from longtail.networks.device import choose_device
    from longtail.networks.embedder import Embedder, LastLayer
    from longtail.networks.network_folder import first_encoder, tokeniser_for

    config = run.config
    tokeniser = tokeniser_for(documents, config.encoder)
    with logged_stage("tokens") as note:
        tokens = _tokens(documents, tokeniser, run)
        note(f"{len(tokens.ids) / len(tokens):.1f} a document")
    encoder = first_encoder(tokeniser, tokens, config)
    network = LastLayer(encoder).to(choose_device(run.device))
    return Untrained(Embedder(tokeniser, network, config.training.precision), tokens)


def _tokens(documents: Dataset, tokeniser: Tokeniser, run: Run) -> Tokens:
    """Return the tokens of the documents of a network, made once: from their stage, or memory where
    none is kept.
    """
    from longtail.features.tokens import Tokens

    def make() -> dict[str, np.ndarray]:
        return tokeniser(documents.document_texts()).to_arrays()

    hold = run.work.stages is None
    inputs = token_inputs(run.config)
    return Tokens.from_arrays(run.work.arrays("tokens", make, inputs, hold=hold, versions=True))


def token_inputs(config: Config) -> Inputs:
    """Return the inputs of the tokens of the documents."""
    not_read = settings_in("encoder.weight", "encoder.width", "encoder.pooling")
    return (settings_in("encoder") - not_read) | {ENCODER} | point_inputs(config)


def vector_inputs(config: Config) -> Inputs:
    """Return the inputs of document vectors of the network or the pretrained encoder."""
    family = network_of(config)
    if family is not None:
        return network_inputs(config, family)
    read = settings_in("encoder", "training.precision") - settings_in("encoder.weight")
    return read | {ENCODER} | point_inputs(config)


def feature_inputs(config: Config) -> Inputs:
    """Return the inputs of the features of linear classifiers."""
    if not uses_encoder(config) or config.features == "tfidf" or ranks_alone(config):
        return text_inputs(config)
    return text_inputs(config) | vector_inputs(config) | settings_in("encoder.weight")


def combined_features(
    documents: Dataset, features: Features, network: Embedder | None, run: Run
) -> Features:
    """Return the features of linear classifiers: Φcat, the network's vectors beside text features,
    or one of both.
    """
    config = run.config
    if network is None or config.features == "tfidf" or ranks_alone(config):
        return features
    is_trained = network_of(config) is not None

    def make() -> dict[str, np.ndarray]:
        if not is_trained:  # the documents have not been read yet
            return {"vectors": network.embed(documents.document_texts())}
        return {"vectors": network.embed(_tokens(documents, network.tokeniser, run))}

    with logged_stage("embeddings") as note:
        inputs = vector_inputs(config)
        arrays = run.work.arrays("embeddings", make, inputs, versions=not is_trained)
        vectors = arrays["vectors"]
        note(f"{vectors.shape[1]} columns")
    if config.features == "dnn":
        return document_features(replace(documents, features=None), None, config, vectors)
    return join_blocks(features.sparse, vectors, config.encoder.weight, in_place=True)


def kept_network(network: Embedder | None, config: Config) -> Embedder | None:
    """Return the network as the model keeps it: without its classifiers, where linear ones rank in
    their place.
    """
    if network is None or network.ranker is None or not classifiers_alone(config):
        return network
    from longtail.networks.label_vectors import without_classifiers

    return without_classifiers(network.ranker)


def label_hints(documents: Dataset, network: Embedder | None, run: Run) -> LabelHints:
    """Return a ranking network's hints for the problems of single labels: hard negatives, and
    initial weights.
    """
    config = run.config
    count = config.ranker.hard_negatives
    if network is None or network.ranker is None or config.cascade.classifier != "dismec":
        return LabelHints()
    ranker = network.ranker
    start = None
    if config.cascade.warm_start:
        start = ranker.label_weights()
    of_network = vector_inputs(config)
    inputs = of_network | settings_in("cascade.classifier", "cascade.warm_start")
    if not count:
        return LabelHints(None, start, inputs)

    def make() -> dict[str, np.ndarray]:
        ranked = ranker.search(
            _tokens(documents, ranker.tokeniser, run), min(count, documents.n_labels)
        )[0]
        return {"labels": ranked.indices, "ends": ranked.indptr}

    with logged_stage("hard negatives") as note:
        arrays = run.work.arrays(
            "hard-negatives", make, of_network | settings_in("ranker.hard_negatives")
        )
        note(f"{len(arrays['labels']) / len(documents):.0f} labels a document")
    values = np.ones(len(arrays["labels"]), np.float32)
    candidates = csr_of(values, arrays["labels"], arrays["ends"], documents.n_labels)
    return LabelHints(candidates, start, inputs)
