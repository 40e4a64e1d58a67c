"""The steps of the pipeline that have to do with a network: its training, its vectors, and its weight in the score."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from msgspec.structs import replace as replace_settings

from longtail.config import Config
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import ConfigError, MissingExtra, UsageError, printable
from longtail.features.encoder_folder import is_pretrained
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.linear.one_vs_all import LabelHints
from longtail.methods import METHODS, ranks_alone, uses_encoder
from longtail.metrics import evaluate
from longtail.model import Model, document_features
from longtail.neural import layout
from longtail.neural.ranks import current_ranks
from longtail.search.ensemble import mean_scores
from longtail.tree.cluster import level_widths
from longtail.tree_steps import Parents, label_tree
from longtail.work import Work, told

if TYPE_CHECKING:
    from longtail.features.tokens import Tokeniser, Tokens
    from longtail.neural.embedder import Embedder  # torch is imported only where a network is wanted
    from longtail.neural.ranker import NeuralRanker

__all__ = [
    "check_encoder",
    "check_network",
    "combined_features",
    "encoder_hash",
    "fit_network",
    "label_hints",
    "network_widths",
    "weigh",
    "with_levels",
]

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the network's scores, to choose from by held-out documents
_RANKED = 20  # best labels of each held-out document that the choice looks at


def check_network(documents: Dataset, config: Config, device: str, parents: Parents | None = None) -> None:
    """Refuse what no network can be trained or used with now, not after the text features and the tree."""
    check_encoder(config, device)
    documents.document_texts()
    if documents.dense is not None:
        raise UsageError(f"{_what(config)} makes its own dense features; expected documents without")
    kind, settings = METHODS[config.method].network, config.recursive
    if kind in ("recursive", "attention") and parents is None:
        widths = network_widths(config, documents.n_labels)
        tuned = layout.tuned_levels(widths, settings.finest) if kind == "recursive" else len(widths)
        layout.level_epochs(settings.epochs, config.training.epochs, tuned)


def check_encoder(config: Config, device: str) -> None:
    """Refuse settings of a network, files of an encoder and devices of no use; documents need not be read yet."""
    what = _what(config)
    try:
        from longtail.features.encoder import encoder_folder
        from longtail.features.tokens import Tokeniser
        from longtail.neural.device import choose_device
    except ImportError:
        raise MissingExtra(what, "neural") from None
    if METHODS[config.method].network == "recursive" and config.features == "tfidf":
        raise ConfigError(f"features: found tfidf with {what}; expected cat or dnn, or the method xr-linear")
    if config.features == "dnn" and config.label_features.kind.endswith("text"):
        kind = config.label_features.kind
        raise ConfigError(
            f"label_features.kind: found {kind} with features=dnn; expected pifa or graph, or features=cat"
        )
    choose_device(device)
    _check_kind(config, what)
    if is_pretrained(config.encoder.kind, config.encoder.name):
        Tokeniser.load(encoder_folder(config.encoder.name), config.encoder.max_tokens)
    elif config.encoder.name != "learned" and not Path(config.encoder.name).expanduser().is_file():
        found = f"encoder.name: found {printable(config.encoder.name)!r}, which is no file or folder"
        raise UsageError(f"{found}; expected vectors of words as GloVe text, an encoder's folder, minilm or learned")


def _what(config: Config) -> str:
    """Return what has the network, for refusals."""
    return config.method if METHODS[config.method].network else f"{config.method} with features={config.features}"


def _check_kind(config: Config, what: str) -> None:
    """Refuse an encoder that the method, or classifiers made of label words, cannot have; and phases without parts."""
    kind, network, text = config.encoder.kind, METHODS[config.method].network, config.label_text
    expected = {"": "transformer", "recursive": "transformer", "attention": "lstm"}.get(network, kind)
    if kind != expected:
        raise ConfigError(f"encoder.kind: found {kind} with {what}; expected {expected}")
    if network != "cascade":
        return
    if kind == "lstm":
        raise ConfigError(f"encoder.kind: found lstm with {what}; expected another, or the method attentionxml")
    if text.phases == "surrogate":
        _check_surrogate(config)
    needs = "surrogate phases" if text.phases == "surrogate" else f"label_text.parts={list(text.parts)}"
    if (text.phases == "surrogate" or text.parts != ("free",)) and kind not in layout.TWO_LAYERS:
        raise ConfigError(f"encoder.kind: found {kind} with {needs}; expected {' or '.join(layout.TWO_LAYERS)}")
    if text.phases == "tied" and ("free" not in text.parts or len(text.parts) == 1):
        raise ConfigError(f"label_text.parts: found {list(text.parts)} with phases=tied; expected free beside words")


def _check_surrogate(config: Config) -> None:
    """Refuse first rows by which no label is found, and levels that no phase would look at."""
    if config.cascade.label_rows == "random":
        found = "cascade.label_rows: found random with surrogate phases, which find labels by centroids"
        raise ConfigError(f"{found}; expected centroid or centroid+text")
    if len(levels := config.tree.levels) > 1:
        expected = "one number, that of the clusters, or [] to have it chosen"
        raise ConfigError(f"tree.levels: found {list(levels)} with surrogate phases; expected {expected}")


def encoder_hash(config: Config) -> str:
    """Return a hash of the pretrained encoder: a folder of the same name may hold another one by the next run."""
    from longtail.features.encoder import encoder_folder

    digest, name = hashlib.sha256(), config.encoder.name
    if is_pretrained(config.encoder.kind, name):
        files = sorted(encoder_folder(name).glob("*.[js][sa]*"))  # .json and .safetensors
    else:
        files = [] if name == "learned" else [Path(name).expanduser()]
    for file in files:
        with file.open("rb") as content:
            digest.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def fit_network(
    documents: Dataset,
    features: Features,
    vectoriser: TfIdf | None,
    config: Config,
    parents: Parents | None,
    work: Work,
    valid: Dataset | None,
    device: str,
    log_file: Path | None,
) -> Embedder | None:
    """Return the network of the method, ready for use, or the pretrained encoder if the features want one.

    ``valid`` tells which of the epochs is the best. Several ranks part when it is trained: the rest is the first one's.
    """
    if not uses_encoder(config):
        return None
    kind = METHODS[config.method].network
    if not kind:
        from longtail.neural.embedder import pretrained_embedder

        return pretrained_embedder(config.encoder, config.training.precision, device).freeze()
    from longtail.attention_steps import fit_attention
    from longtail.cascade_steps import fit_cascade
    from longtail.network_run import NetworkRun
    from longtail.recursive_steps import fit_recursive

    embedder, tokens = _first_embedder(documents, config, work, device)  # first: a bad file of vectors is found here
    levels = with_levels(config, documents.n_labels)
    tree = label_tree(documents, features, vectoriser, levels, "tree-network", config.seed, parents, work)
    measured = _with_known_labels(valid, documents.labels)
    tune = {"cascade": fit_cascade, "attention": fit_attention, "recursive": fit_recursive}[kind]
    network = tune(NetworkRun(documents, embedder, tokens, tree, config, work, measured, log_file))
    current_ranks().leave()
    return network


def with_levels(config: Config, n_labels: int) -> Config:
    """Return the settings with the levels of the network's tree: those given, else as the number of labels asks.

    Where the classifiers beside it have none (flat), the network still has a balanced one; LightXML has labels alone
    where all of them are scored.
    """
    kind = "balanced" if config.tree.kind == "flat" else config.tree.kind
    if METHODS[config.method].network == "recursive":
        levels = config.recursive.levels or layout.resolution_widths(n_labels, config.recursive.resolutions)
    elif config.encoder.kind != "transformer":
        levels = config.tree.levels or layout.word_widths(n_labels, config.cascade.last_level, config.label_text.phases)
    elif config.cascade.merge == "concat":
        levels = config.tree.levels or layout.cluster_widths(n_labels, config.cascade.last_level)
    else:
        levels = config.tree.levels or layout.level_widths(n_labels)
    tree = replace_settings(config.tree, kind=kind if levels else "flat", levels=levels)
    return replace_settings(config, tree=tree)


def network_widths(config: Config, n_labels: int) -> tuple[int, ...]:
    """Return the nodes of each level of the network's tree, labels last, where no hierarchy is given."""
    tree = with_levels(config, n_labels).tree
    return (*([] if tree.kind == "flat" else level_widths(n_labels, tree)), n_labels)


def _first_embedder(documents: Dataset, config: Config, work: Work, device: str) -> tuple[Embedder, Tokens]:
    """Return the encoder as it is before training, and the tokens of the documents."""
    from longtail.neural.device import choose_device
    from longtail.neural.embedder import Embedder, LastLayer
    from longtail.neural.first_encoder import first_encoder, tokeniser_for

    tokeniser = tokeniser_for(documents, config.encoder)
    with told("tokens") as say:
        tokens = _tokens(documents, tokeniser, work)
        say(f"{len(tokens.ids) / len(tokens):.1f} a document")
    encoder = first_encoder(tokeniser, tokens, config.encoder, config.seed)
    return Embedder(tokeniser, LastLayer(encoder).to(choose_device(device)), config.training.precision), tokens


def _tokens(documents: Dataset, tokeniser: Tokeniser, work: Work) -> Tokens:
    """Return the tokens of the documents of a network, made once: from their stage, or memory where none is kept."""
    from longtail.features.tokens import Tokens

    def make() -> dict[str, np.ndarray]:
        return tokeniser(documents.document_texts()).to_arrays()

    return Tokens.from_arrays(work.arrays("tokens", make, hold=work.stages is None))


def combined_features(
    documents: Dataset, features: Features, network: Embedder | None, config: Config, work: Work
) -> Features:
    """Return what linear classifiers read: Φcat, the network's vectors beside the text features, or one of the two."""
    if network is None or config.features == "tfidf" or ranks_alone(config):
        return features

    def make() -> dict[str, np.ndarray]:
        trained = METHODS[config.method].network  # else the documents have not been read yet
        texts = _tokens(documents, network.tokeniser, work) if trained else documents.document_texts()
        return {"vectors": network.embed(texts)}

    with told("embeddings") as say:
        vectors = work.arrays("embeddings", make)["vectors"]
        say(f"{vectors.shape[1]} columns")
    if config.features == "dnn":
        return document_features(replace(documents, features=None), None, vectors=vectors)
    given = replace(documents, features=features.sparse)
    return document_features(given, None, vectors=vectors, vector_weight=config.encoder.weight)


def label_hints(documents: Dataset, network: Embedder | None, config: Config, work: Work) -> LabelHints:
    """Return what a network that ranks knows of the problems of single labels: hard negatives, and first weights."""
    count = config.ranker.hard_negatives
    if not _ranks(network) or config.cascade.classifier != "dismec":
        return LabelHints()
    start = network.label_weights() if config.cascade.warm_start else None
    if not count:
        return LabelHints(None, start)

    def make() -> dict[str, np.ndarray]:
        ranked = network.search(_tokens(documents, network.tokeniser, work), min(count, documents.n_labels))[0]
        return {"labels": ranked.indices, "ends": ranked.indptr}

    with told("hard negatives") as say:
        arrays = work.arrays("hard-negatives", make)
        say(f"{len(arrays['labels']) / len(documents):.0f} labels a document")
    values = np.ones(len(arrays["labels"]), np.float32)
    return LabelHints(csr_of(values, arrays["labels"], arrays["ends"], documents.n_labels), start)


def weigh(model: Model, held_out: Dataset | None) -> Model:
    """Return the model with the network's weight beside the linear classifiers that ranks held-out documents best."""
    if model.neural_ranker is None or not model.rankers:
        return model
    known = _with_known_labels(held_out, model.labels)
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


def _ranks(network: Embedder | None) -> TypeGuard[NeuralRanker]:
    """Tell whether there is a network that ranks labels by itself."""
    return network is not None and network.tree is not None


def _with_known_labels(documents: Dataset | None, labels: Labels) -> Dataset | None:
    """Return the documents over the labels of training, or None where they have none of these: nothing to measure."""
    if documents is None:
        return None
    known = documents.with_labels(labels, unknown="drop")
    return known if known.label_matrix.nnz else None
