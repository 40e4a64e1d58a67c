"""The steps of the pipeline that only neural methods have: the network, its vectors, and its weight in the score."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace as replace_settings

from longtail.config import Config
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import MissingExtra, UsageError
from longtail.features.matrix import Features
from longtail.linear.one_vs_all import LabelHints
from longtail.metrics import evaluate
from longtail.model import Model, document_features
from longtail.search.ensemble import mean_scores
from longtail.tree.tree import LabelTree
from longtail.work import Work, told

if TYPE_CHECKING:
    from longtail.neural.ranker import NeuralRanker  # torch is imported only where a network is wanted

__all__ = [
    "check_network",
    "combined_features",
    "encoder_hash",
    "fit_network",
    "label_hints",
    "weigh",
    "with_levels",
]

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the network's scores, to choose from by held-out documents
_RANKED = 20  # best labels of each held-out document that the choice looks at


def check_network(documents: Dataset, config: Config, device: str) -> None:
    """Refuse what no network can be trained with now, not after the text features and the tree."""
    try:
        from longtail.features.encoder import encoder_folder
        from longtail.features.tokens import Tokeniser
        from longtail.neural.device import choose_device
    except ImportError:
        raise MissingExtra(config.method, "neural") from None
    documents.document_texts()
    if documents.dense is not None:
        raise UsageError(f"{config.method} makes its own dense features; expected documents without")
    choose_device(device)
    Tokeniser.load(encoder_folder(config.encoder.name), config.encoder.max_tokens)


def encoder_hash(config: Config) -> str:
    """Return a hash of the pretrained encoder: a folder of the same name may hold another one by the next run."""
    from longtail.features.encoder import encoder_folder

    digest = hashlib.sha256()
    for file in sorted(encoder_folder(config.encoder.name).glob("*.[js][sa]*")):  # .json and .safetensors
        with file.open("rb") as content:
            digest.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def with_levels(config: Config, n_labels: int) -> Config:
    """Return the settings with the levels of the network's tree: those given, else as the number of labels asks.

    Where the classifiers beside it have none (flat), the network still has a balanced one.
    """
    from longtail.neural.layout import level_widths

    kind = "balanced" if config.tree.kind == "flat" else config.tree.kind
    levels = config.tree.levels or level_widths(n_labels)
    return replace_settings(config, tree=replace_settings(config.tree, kind=kind, levels=levels))


def fit_network(
    documents: Dataset,
    tree: LabelTree,
    config: Config,
    work: Work,
    valid: Dataset | None,
    device: str,
    log_file: Path | None,
) -> NeuralRanker:
    """Return the trained network, ready for ranking; ``valid`` tells which of its epochs is the best."""
    from longtail.features.tokens import Tokens
    from longtail.neural.checkpoints import Checkpoints
    from longtail.neural.training import pretrained_ranker, train_ranker

    ranker = pretrained_ranker(config, tree, device)
    with told("tokens") as say:
        texts = documents.document_texts()
        tokens = Tokens.from_arrays(work.arrays("tokens", lambda: ranker.tokeniser(texts).to_arrays()))
        say(f"{len(tokens.ids) / len(tokens):.1f} a document")

    def make() -> dict[str, np.ndarray]:
        checkpoints = Checkpoints(work.stages, work.input_hash)
        measured = _with_known_labels(valid, documents.labels)
        train_ranker(ranker, documents, tokens, config, measured, checkpoints, log_file)
        return ranker.network.to_arrays()

    with told("network") as say:
        ranker.network.load_arrays(work.arrays("network", make))
        say(f"{ranker.n_parameters:,} parameters")
    return ranker.freeze()


def combined_features(
    documents: Dataset, features: Features, network: NeuralRanker, config: Config, work: Work
) -> Features:
    """Return Φcat: the network's vectors beside the text features; or these alone if not wanted."""
    if config.cascade.combine == "never":
        return features
    with told("embeddings") as say:
        vectors = work.arrays("embeddings", lambda: {"vectors": network.embed(documents.document_texts())})["vectors"]
        say(f"{vectors.shape[1]} columns")
    given = replace(documents, features=features.sparse)
    return document_features(given, None, vectors=vectors, vector_weight=config.cascade.vector_weight)


def label_hints(documents: Dataset, network: NeuralRanker | None, config: Config, work: Work) -> LabelHints:
    """Return what the network knows of the problems of single labels: their hard negatives, and first weights."""
    count = config.ranker.hard_negatives
    if network is None or config.cascade.classifier != "dismec":
        return LabelHints()
    start = network.label_weights() if config.cascade.warm_start else None
    if not count:
        return LabelHints(None, start)

    def make() -> dict[str, np.ndarray]:
        ranked = network.search(documents.document_texts(), min(count, documents.n_labels))[0]
        return {"labels": ranked.indices, "ends": ranked.indptr}

    with told("hard negatives") as say:
        arrays = work.arrays("hard-negatives", make)
        say(f"{len(arrays['labels']) / len(documents):.0f} labels a document")
    values = np.ones(len(arrays["labels"]), np.float32)
    return LabelHints(csr_of(values, arrays["labels"], arrays["ends"], documents.n_labels), start)


def weigh(model: Model, held_out: Dataset | None) -> Model:
    """Return the model with the network's weight beside the linear classifiers that ranks held-out documents best."""
    if model.network is None or not model.rankers:
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


def _with_known_labels(documents: Dataset | None, labels: Labels) -> Dataset | None:
    """Return the documents over the labels of training, or None where they have none of these: nothing to measure."""
    if documents is None:
        return None
    known = documents.with_labels(labels, unknown="drop")
    return known if known.label_matrix.nnz else None
