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
from longtail.features.encoder_folder import (
    encoder_folder,
    encoder_shape,
    is_pretrained,
    pretrained_pooling,
)
from longtail.features.encoder_search import find_word_vectors
from longtail.features.gandalf import check_gandalf
from longtail.methods import METHODS, classifiers_alone, uses_encoder
from longtail.networks import layout
from longtail.networks.fitting import network_widths
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
        raise DataError(
            [
                Problem(
                    "documents",
                    0,
                    f"{len(documents):,} documents without labels",
                    "labels to learn",
                )
            ]
        )
    entry = METHODS[config.method]
    family = ranker_family(config)
    if parents is not None and (
        not family.has_label_tree or (config.tree.kind == "flat" and not entry.network)
    ):
        raise UsageError(
            f"{config.method} has no label tree, so no use for a hierarchy; leave --tree out"
        )
    if parents is not None and not _names_any(parents, documents.labels):
        raise UsageError(
            "--tree: found no label of the documents in it; expected their ids, as children or parents"
        )
    family.check(config, documents, parents)
    if config.gandalf.use:
        check_gandalf(documents)
    check_loss(config, loss)
    if uses_encoder(config):
        check_network(documents, config, parents)
        _check_user_loss(config, loss)


def check_loss(config: Config, loss: Callable[..., Any] | None) -> None:
    """Refuse ``training.loss=custom`` without a loss from Python, as a resumed run may have it, and
    the reverse.
    """
    name = config.training.loss
    if loss is None and name == "custom":
        expected = "the loss of the run as loss= of longtail.Longtail or train_to_folder, also to resume it"
        raise UsageError(
            f"training.loss: found custom without a loss; expected {expected}, or another training.loss"
        )
    if loss is not None and name != "custom":
        raise UsageError(
            f"loss: found a loss beside training.loss={name}; expected training.loss=custom with it"
        )


def _check_user_loss(config: Config, loss: Callable[..., Any] | None) -> None:
    """Refuse a function as loss where nodes have weights, which no function is given."""
    if (
        loss is None
        or METHODS[config.method].network != "recursive"
        or not config.recursive.cost_sensitive
    ):
        return
    from longtail.networks.losses import NodeLoss

    if not isinstance(loss, NodeLoss):
        found = "recursive.cost_sensitive: found true with a function as loss, which is given no weights"
        raise UsageError(f"{found}; expected false, or a loss of longtail.networks.losses")


def warn_of_documents(documents: Dataset) -> None:
    """Repeat in the log what ``longtail check`` warns of."""
    for finding in check_before_training(documents):
        log.warning("training documents: %s", finding.in_words)


def _names_any(parents: Parents, labels: Labels) -> bool:
    """Tell whether a hierarchy speaks of any label at all."""
    return any(
        child in labels or any(parent in labels for parent in own) for child, own in parents.items()
    )


def check_network(documents: Dataset, config: Config, parents: Parents | None = None) -> None:
    """Refuse documents that no network can be trained or used with now, not after the text features
    and the tree.
    """
    documents.document_texts()
    if documents.dense is not None:
        raise UsageError(
            f"{_what(config)} makes its own dense features; expected documents without"
        )
    if METHODS[config.method].network and parents is None:  # a hierarchy has its own levels
        _check_levels(config, network_widths(config, documents.n_labels))


def _check_levels(config: Config, widths: tuple[int, ...]) -> None:
    """Refuse settings for another number of levels than the network's tree will have."""
    kind = METHODS[config.method].network
    settings = config.recursive
    if kind != "cascade":
        tuned = layout.tuned_levels(widths, settings.finest) if kind == "recursive" else len(widths)
        layout.level_lengths(settings, config.training.epochs, tuned)
    elif config.label_text.phases == "one":  # phases have trees of their own
        layout.check_levels(widths, config.cascade)


def check_encoder(config: Config, device: str) -> None:
    """Refuse settings of a network, files of an encoder and devices of no use; documents need not
    be read yet.
    """
    what = _what(config)
    try:
        from longtail.features.tokens import Tokeniser
        from longtail.networks.device import choose_device
    except ImportError:
        raise MissingExtra(what, "neural") from None
    if METHODS[config.method].network == "recursive" and config.features == "tfidf":
        raise ConfigError(
            f"features: found tfidf with {what}; expected cat or dnn, or the method xr-linear"
        )
    if classifiers_alone(config) and config.features == "tfidf":
        found = "features: found tfidf with cascade.combine=only, whose classifiers read the network's vectors"
        raise ConfigError(f"{found}; expected cat or dnn, or the method xr-linear")
    if config.features == "dnn" and config.label_features.kind.endswith("text"):
        kind = config.label_features.kind
        raise ConfigError(
            f"label_features.kind: found {kind} with features=dnn; expected pifa or graph, or features=cat"
        )
    choose_device(device)
    _check_kind(config, what)
    if is_pretrained(config.encoder.kind, config.encoder.name):
        folder = encoder_folder(config.encoder.name)
        Tokeniser.load(folder, config.encoder.max_tokens)
        if config.encoder.kind == "transformer" and config.encoder.pooling == "auto":
            pretrained_pooling(folder)
    elif config.encoder.name != "learned" and find_word_vectors(config.encoder.name) is None:
        found = (
            f"encoder.name: found {printable(config.encoder.name)!r}, which is no file or folder"
        )
        expected = "expected vectors of words as GloVe text, an encoder's folder, minilm or learned"
        raise UsageError(f"{found}; {expected}; --encoder-folder DIR looks for it in DIR as well")
    check_preset_levels(config)


def check_preset_levels(config: Config) -> None:
    """Refuse layers that the encoder has not, and settings for another number of levels than those
    that are named.

    This needs neither documents nor their labels; where the levels follow from the number of
    labels, :func:`check_network` looks again."""
    network = METHODS[config.method].network
    kind = config.encoder.kind
    if network == "recursive":
        named = config.recursive.levels
        if named and config.recursive.finest != "auto":
            tuned = len(named) + (config.recursive.finest == "labels")
            layout.level_lengths(config.recursive, config.training.epochs, tuned)
    if network != "cascade":
        return
    if kind == "transformer":
        depth = encoder_shape(encoder_folder(config.encoder.name)).depth
        layout.check_depth(config.cascade.layers, depth)
    named = config.cascade.levels or config.tree.levels
    if named and config.label_text.phases == "one":
        layout.check_levels((*named, "labels"), config.cascade)


def _what(config: Config) -> str:
    """Return what has the network, for refusals."""
    if METHODS[config.method].network:
        return config.method
    return f"{config.method} with features={config.features}"


def _check_kind(config: Config, what: str) -> None:
    """Refuse an encoder that the method, or classifiers made of label words, cannot have; and
    phases without parts.
    """
    kind = config.encoder.kind
    network = METHODS[config.method].network
    text = config.label_text
    expected = {"": "transformer", "recursive": "transformer", "attention": "lstm"}.get(
        network, kind
    )
    if kind != expected:
        raise ConfigError(f"encoder.kind: found {kind} with {what}; expected {expected}")
    if network != "cascade":
        return
    if kind == "lstm":
        raise ConfigError(
            f"encoder.kind: found lstm with {what}; expected another, or the method attentionxml"
        )
    if text.phases == "surrogate":
        _check_surrogate(config)
    if text.phases == "surrogate":
        needs = "surrogate phases"
    else:
        needs = f"label_text.parts={list(text.parts)}"
    if (
        text.phases == "surrogate" or text.parts != ("free",)
    ) and kind not in layout.LABEL_WORD_ENCODERS:
        expected = " or ".join(layout.LABEL_WORD_ENCODERS)
        raise ConfigError(f"encoder.kind: found {kind} with {needs}; expected {expected}")
    if text.phases == "tied" and ("free" not in text.parts or len(text.parts) == 1):
        raise ConfigError(
            f"label_text.parts: found {list(text.parts)} with phases=tied; expected free beside words"
        )


def _check_surrogate(config: Config) -> None:
    """Refuse first rows by which no label is found, and levels that no phase would look at."""
    if (rows := config.cascade.label_rows) in ("random", "xavier"):
        found = f"cascade.label_rows: found {rows} with surrogate phases, which find labels by centroids"
        raise ConfigError(f"{found}; expected centroid or centroid+text")
    name = "cascade.levels" if config.cascade.levels else "tree.levels"
    if len(levels := config.cascade.levels or config.tree.levels) > 1:
        expected = "one number, that of the clusters, or [] to have it chosen"
        raise ConfigError(
            f"{name}: found {list(levels)} with surrogate phases; expected {expected}"
        )


def warn_of_few_words(documents: Dataset, config: Config) -> None:
    """Warn where words are counted in texts that words do not divide; of very many texts, some are
    looked at.
    """
    reads_words = all(block.unit == "word" for block in config.tfidf)
    if documents.features is not None or documents.texts is None or not reads_words:
        return
    if METHODS[config.method].network or config.features == "dnn":
        return
    rows = np.unique(
        np.linspace(0, len(documents) - 1, min(len(documents), _LOOKED_AT)).astype(np.int64)
    )
    hardly = hardly_split(documents.texts.take(rows))
    if are_many(len(hardly), len(rows)):
        log.warning(
            "%.0f %% of the documents have one word or none, or no spaces between words, so that little is learnt of "
            "them; read characters instead: %s",
            100 * len(hardly) / len(rows),
            READ_CHARACTERS,
        )


def check_threads(count: object) -> None:
    """Refuse what a Python caller gives that is no number of threads."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise UsageError(f"threads: found {count!r}; expected a whole number, 0 for all cores")
