"""What is refused before any work is done: data, settings and encoders that a run would fail on,
hours later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.data.description import check_before_training
from longtail.data.labels import Labels
from longtail.data.word_boundaries import READ_CHARACTERS, are_many, hardly_split
from longtail.errors import ConfigError, DataError, MissingExtra, Problem, UsageError, printable
from longtail.features.encoder_folder import encoder_folder, is_pretrained, pretrained_pooling
from longtail.features.encoder_search import find_word_vectors
from longtail.features.gandalf import check_gandalf
from longtail.methods import classifiers_alone, encoder_of, network_of, uses_encoder
from longtail.methods.registry import network_family
from longtail.networks.base import NetworkFamily
from longtail.rankers import ranker_family
from longtail.tree.given import Parents

__all__ = [
    "check_encoder",
    "check_loss",
    "check_network",
    "check_settings",
    "check_threads",
    "check_trainable",
    "warn_of_documents",
    "warn_of_few_words",
]

log = logging.getLogger("longtail")

_LOOKED_AT = 2000  # documents


def check_settings(config: Config, device: str = "auto") -> None:
    """Refuse settings, an encoder or a device that no documents can be trained with."""
    if uses_encoder(config):
        check_encoder(config, device)


def check_trainable(
    documents: Dataset,
    config: Config,
    parents: Parents | None = None,
    loss: Callable[..., Any] | None = None,
) -> None:
    """Refuse data that nothing can be learnt from, a hierarchy without use, and a network that
    cannot be trained on the data; :func:`check_settings` comes first.

    Args:
        documents: The documents to train on.
        config: The settings.
        parents: A hierarchy of the labels.
        loss: The loss that was given from Python.
    """
    if not len(documents):
        raise DataError([Problem("documents", 0, "no documents", "at least one with a label")])
    if not documents.label_matrix.nnz:
        problem = f"{len(documents):,} documents without labels"
        raise DataError([Problem("documents", 0, problem, "labels to learn")])
    family = ranker_family(config)
    if parents is not None:
        _check_hierarchy(documents, config, parents)
    family.check(config, documents, parents)
    if config.gandalf.use:
        check_gandalf(documents)
    check_loss(config, loss)
    if uses_encoder(config):
        check_network(documents, config, parents)
        if loss is not None:
            _network_family(config).check_loss(config, loss)


def check_loss(config: Config, loss: Callable[..., Any] | None) -> None:
    """Refuse ``training.loss=custom`` without a loss from Python, as a resumed run may have it, and
    the reverse.
    """
    name = config.training.loss
    if loss is None and name == "custom":
        expected = "the loss of the run as loss= of longtail.Longtail or train_to_folder"
        raise UsageError(
            f"training.loss: found custom without a loss; expected {expected}, also to resume it, "
            "or another training.loss"
        )
    if loss is not None and name != "custom":
        raise UsageError(
            f"loss: found a loss beside training.loss={name}; expected training.loss=custom with it"
        )


def _check_hierarchy(documents: Dataset, config: Config, parents: Parents) -> None:
    """Refuse a hierarchy that no label tree is made of, and one of other labels."""
    is_flat = config.tree.kind == "flat" and network_of(config) is None
    if is_flat or not ranker_family(config).has_label_tree:
        raise UsageError(
            f"{config.method} has no label tree, so no use for a hierarchy; leave --tree out"
        )
    if not _names_any(parents, documents.labels):
        expected = "their ids, as children or parents"
        raise UsageError(f"--tree: found no label of the documents in it; expected {expected}")


def warn_of_documents(documents: Dataset) -> None:
    """Repeat in the log what ``longtail check`` warns of."""
    for finding in check_before_training(documents):
        log.warning("training documents: %s", finding.in_words)


def _names_any(parents: Parents, labels: Labels) -> bool:
    """Return whether a hierarchy names any of the labels."""
    return any(
        child in labels or any(parent in labels for parent in parents_of_child)
        for child, parents_of_child in parents.items()
    )


def _network_family(config: Config) -> NetworkFamily:
    """Return the family of the method's network, or that of a pretrained encoder as it is."""
    return network_of(config) or network_family("encoder")


def check_network(documents: Dataset, config: Config, parents: Parents | None = None) -> None:
    """Refuse documents that no network can be trained or used with now, not after the text features
    and the tree.
    """
    documents.document_texts()
    if documents.dense is not None:
        reader = _reader(config)
        raise UsageError(f"{reader} makes its own dense features; expected documents without")
    if parents is None:  # a hierarchy has its own levels
        _network_family(config).check_levels(config, documents.n_labels)


def check_encoder(config: Config, device: str) -> None:
    """Refuse settings of a network, files of an encoder and devices of no use; documents need not
    be read yet.
    """
    try:
        from longtail.features.tokens import Tokeniser
        from longtail.networks.device import choose_device
    except ImportError:
        raise MissingExtra(_reader(config), "neural") from None
    _check_features(config)
    choose_device(device)
    family = _network_family(config)
    family.check(config)
    encoder = config.encoder
    if is_pretrained(encoder.kind, encoder.name):
        folder = encoder_folder(encoder.name)
        Tokeniser.load(folder, encoder.max_tokens)
        if not encoder_of(config).reads_words and encoder.pooling == "auto":
            pretrained_pooling(folder)
    elif encoder.name != "learned" and find_word_vectors(encoder.name) is None:
        problem = f"encoder.name: found {printable(encoder.name)!r}, which is no file or folder"
        expected = "expected vectors of words as GloVe text, an encoder's folder, minilm or learned"
        raise UsageError(f"{problem}; {expected}; --encoder-folder DIR looks for it in DIR as well")
    family.check_levels(config)


def _check_features(config: Config) -> None:
    """Refuse classifiers that would read other features than they need."""
    if classifiers_alone(config) and config.features == "tfidf":
        problem = "features: found tfidf with cascade.combine=only"
        why = "whose classifiers read the network's vectors"
        raise ConfigError(f"{problem}, {why}; expected cat or dnn, or the method xr-linear")
    of_texts = sorted(kind for kind in config.label_features.kinds if kind.endswith("text"))
    if config.features == "dnn" and of_texts:
        name = "kind"
        if config.label_features.kind not in of_texts:
            name = "tree_kinds"
        problem = f"label_features.{name}: found {', '.join(of_texts)} with features=dnn"
        expected = "expected pifa or graph, output or joint, or features=cat"
        raise ConfigError(f"{problem}; {expected}")


def _reader(config: Config) -> str:
    """Return what reads documents with an encoder, for refusals."""
    if network_of(config) is not None:
        return config.method
    return f"{config.method} with features={config.features}"


def warn_of_few_words(documents: Dataset, config: Config) -> None:
    """Warn where words are counted in texts that words do not divide; of very many texts, some are
    looked at.
    """
    reads_words = all(block.unit == "word" for block in config.tfidf)
    if documents.features is not None or documents.texts is None or not reads_words:
        return
    if network_of(config) is not None or config.features == "dnn":
        return
    rows = np.unique(
        np.linspace(0, len(documents) - 1, min(len(documents), _LOOKED_AT)).astype(np.int64)
    )
    hardly = hardly_split(documents.texts.take(rows))
    if are_many(len(hardly), len(rows)):
        log.warning(
            "%.0f %% of the documents have one word or none, or no spaces between words, so that "
            "little is learnt of them; read characters instead: %s",
            100 * len(hardly) / len(rows),
            READ_CHARACTERS,
        )


def check_threads(count: object) -> None:
    """Refuse what a Python caller gives that is no number of threads."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise UsageError(f"threads: found {count!r}; expected a whole number, 0 for all cores")
