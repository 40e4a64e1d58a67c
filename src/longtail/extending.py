"""Labels that a model was never trained on: their classifiers are composed from their words."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of
from longtail.data.label_files import read_labels
from longtail.data.labels import Label, Labels
from longtail.errors import UsageError, printable
from longtail.estimator import Longtail
from longtail.features.matrix import unit_vectors
from longtail.kernels import pool
from longtail.methods import METHODS, classifiers_alone
from longtail.models.model import Model
from longtail.models.model_folder import load_model
from longtail.models.ranking_model import RankingModel
from longtail.networks.heads.initial_rows import Rows
from longtail.store import check_replaceable
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.networks.cascade_ranker import CascadeRanker  # which need torch
    from longtail.networks.encoders.word_encoder import WordEncoder

__all__ = ["extend", "extend_to_folder"]

log = logging.getLogger("longtail")

_NAMED = 5  # labels that a message names
# labels of a cluster, as a multiple of those that the largest has: all are given as much room in
# the search
_ROOM = 2
_BLOCK = 4096  # labels whose clusters are looked for at a time
_FEW = 1 << 13  # labels that are enough to tell what all have in common
_UNKNOWN = ("[UNK]", "<unk>")
_SPECIAL = (*_UNKNOWN, "[PAD]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<s>", "</s>", "<mask>")


def extend(
    model: Longtail | Path | str,
    labels: Labels | Path | str,
    *,
    threads: int = 0,
    device: str = "auto",
) -> Longtail:
    """Return a model, or a model folder, that knows ``labels``, or those of a label file, by their
    words as well.

    Labels that it has are left as they are, those without a word that it knows are left out.
    """
    with pool.threads(threads):
        if isinstance(model, Longtail):
            trained, ranker = _extendable(model.model, "the model")
        else:
            trained, ranker = _extendable(load_model(model, device), str(model))
        if not isinstance(labels, Labels):
            labels = read_labels(labels)
        return Longtail.of(_extended(trained, ranker, labels), threads, device)


def extend_to_folder(
    model: Path,
    labels: Path | str,
    output: Path,
    *,
    force: bool = False,
    skip_bad: int = 0,
    threads: int = 0,
    device: str = "auto",
) -> None:
    """Write a model folder with the labels of ``model`` and of a label file.

    With ``force`` it may replace a model, also ``model`` itself. Up to ``skip_bad`` bad records of
    the label file are left out."""
    check_replaceable(output, force)
    extended = extend(model, read_labels(labels, skip_bad=skip_bad), threads=threads, device=device)
    extended.save(output, force=force)


def _extendable(trained: RankingModel, name: str) -> tuple[Model, CascadeRanker]:
    """Return the model and its network; refuse one whose classifiers no words can make."""
    model = trained.single
    if model is None:
        raise UsageError(
            f"{name}: is an ensemble; extend its members, then make an ensemble of them again"
        )
    ranker = _ranker_by_words(model)
    if classifiers_alone(model.config) and "text" in model.config.label_text.parts:
        raise UsageError(
            f"{name}: has linear classifiers in the network's place, which cannot be made of "
            "words; train it with cascade.combine=never"
        )
    if ranker is None:
        able = (
            entry.name
            for entry in METHODS.values()
            if "text" in entry.settings.get("label_text", {}).get("parts", ())
        )
        raise UsageError(
            f"{name}: was trained with {model.config.method}, which makes no classifiers of label "
            f"words; train it with one of {', '.join(sorted(able))}"
        )
    if model.rankers:
        raise UsageError(
            f"{name}: has linear classifiers beside the network, which cannot be made of words; "
            "train it with cascade.combine=never"
        )
    return model, ranker


def _ranker_by_words(model: Model) -> CascadeRanker | None:
    """Return the network, if it makes classifiers of words."""
    if model.neural_ranker is None:
        return None
    return model.neural_ranker.composer


def _extended(model: Model, ranker: CascadeRanker, labels: Labels) -> Model:
    """Return the model with those of ``labels`` that it does not have, behind its own."""
    from longtail.networks.cascade_family import ranking_settings

    unknown = [label for label in labels if label.id not in model.labels]
    new = _with_words(ranker, unknown)
    log.info(
        "new labels: %s added; %s were known", f"{len(new):,}", f"{len(labels) - len(unknown):,}"
    )
    if not new:
        return model
    united = Labels.of([*model.labels, *new])
    # with surrogate phases each label is below a node of its own
    is_surrogate = model.config.phases.kind == "surrogate"
    place_labels = _below_own_nodes if is_surrogate else _in_clusters
    tree, rows = place_labels(ranker, model.labels, Labels.of(new))
    counts = np.concatenate([model.label_counts, np.zeros(len(new), np.int64)])
    network = ranker.extended(tree, rows, ranking_settings(model.config, len(united)))
    graph = model.label_graph
    if graph is not None:
        graph = _with_room(graph, len(new))
    return replace(model, labels=united, label_counts=counts, network=network, label_graph=graph)


def _with_room(graph: sparse.csr_array, n: int) -> sparse.csr_array:
    """Return the label graph with ``n`` labels more, which no document leads to."""
    ends = np.concatenate([graph.indptr, np.full(n, graph.indptr[-1])])
    return csr_of(graph.data, graph.indices, ends, graph.shape[1] + n)


def _with_words(ranker: CascadeRanker, labels: Sequence[Label]) -> list[Label]:
    """Return the labels that have a word with a vector; name some of those that have none, and are
    left out.
    """
    if not labels:
        return []
    tokens = ranker.tokeniser(Labels.of(labels).described())
    known = np.add.reduceat(_is_word(ranker)[tokens.ids], tokens.ends[:-1], dtype=np.int64) > 0
    without = [printable(label.id) for label, knows in zip(labels, known, strict=True) if not knows]
    if without:
        named = [repr(label) for label in without[:_NAMED]]
        if len(without) > _NAMED:
            named.append("…")
        log.warning(
            "new labels: %s left out, as the model knows no word of theirs: %s",
            f"{len(without):,}",
            ", ".join(named),
        )
    return [label for label, knows in zip(labels, known, strict=True) if knows]


def _is_word(ranker: CascadeRanker) -> NDArray[np.bool_]:
    """Return (V,) whether a token says something: it is not padding, «unknown» or the like, nor
    punctuation alone.
    """
    return np.array(
        [word not in _SPECIAL and any(map(str.isalnum, word)) for word in _vocabulary(ranker)]
    )


def _in_clusters(
    ranker: CascadeRanker, known: Labels, new: Labels
) -> tuple[LabelTree, dict[int, Rows]]:
    """Return the tree with each new label in the cluster that is most like it, and the classifiers
    of the new ones.
    """
    tree = ranker.tree
    words = _words(ranker, new)
    if tree.n_levels == 1:
        grown = LabelTree(np.append(tree.order, _numbers(tree, new)), ())
    else:
        E = _word_vectors(ranker)
        clusters = _nearest_clusters(
            tree, unit_vectors(_words(ranker, known) @ E), unit_vectors(words @ E)
        )
        grown = _with_labels_in(tree, clusters)
    return grown, {tree.n_levels - 1: _label_rows(ranker, words)}


def _below_own_nodes(
    ranker: CascadeRanker, known: Labels, new: Labels
) -> tuple[LabelTree, dict[int, Rows]]:
    """Return the tree with a node more for each new label, and the classifiers of both levels."""
    order = np.append(ranker.tree.order, _numbers(ranker.tree, new))
    rows = {0: _text_nodes(ranker, new), 1: _label_rows(ranker, _words(ranker, new))}
    return LabelTree(order, (np.arange(len(order) + 1),)), rows


def _numbers(tree: LabelTree, new: Labels) -> NDArray[np.int32]:
    return np.arange(tree.n_labels, tree.n_labels + len(new), dtype=np.int32)


def _nearest_clusters(
    tree: LabelTree, known: NDArray[np.float32], new: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Return (n,) nodes above labels: the mean of ``known`` (L, d) is most like each of ``new`` (n,
    d); all are units.

    A full cluster takes no more: shortlists have room for the largest one everywhere.
    """
    offsets = tree.offsets[-1]
    means = unit_vectors(np.add.reduceat(known[tree.order], offsets[:-1]))
    sizes = np.diff(offsets)
    most = max(_ROOM * int(sizes.max()), -(-_ROOM * (len(known) + len(new)) // len(sizes)))
    closed = np.where(sizes < most, 0, -np.inf).astype(np.float32)
    clusters = np.zeros(len(new), np.int64)
    for first in range(0, len(new), _BLOCK):
        for at, alike in enumerate(new[first : first + _BLOCK] @ means.T, first):
            nearest = (alike + closed).argmax()
            clusters[at] = nearest
            sizes[nearest] += 1
            if sizes[nearest] >= most:
                closed[nearest] = -np.inf
    return clusters


def _with_labels_in(tree: LabelTree, clusters: NDArray[np.integer]) -> LabelTree:
    """Return the tree with labels more, each the last child of its node (n,) of the level above the
    labels.
    """
    owners = np.concatenate([tree.parents(tree.n_levels - 1), clusters])
    # old labels keep their order, new ones come behind them
    places = np.argsort(owners, kind="stable")
    order = np.append(tree.order, np.arange(tree.n_labels, len(owners), dtype=np.int32))[places]
    ends = np.cumsum(np.bincount(owners, minlength=tree.widths[-2]))
    return LabelTree(order, (*tree.offsets[:-1], np.concatenate([[0], ends])))


def _words(ranker: CascadeRanker, labels: Labels) -> sparse.csr_array:
    """Return z⁰ (n, V) of labels, without words that are not known: what these have in common means
    nothing.
    """
    from longtail.networks.heads.label_text import label_words

    idf = np.array(_encoder(ranker).idf.numpy(force=True))
    idf[[at for at, word in enumerate(_vocabulary(ranker)) if word in _UNKNOWN]] = 0
    return label_words(ranker.tokeniser(labels.described()), idf)


def _label_rows(ranker: CascadeRanker, words: sparse.csr_array) -> Rows:
    """Return classifiers composed from words (n, V), with the mean bias of the model's labels."""
    weights = ranker.composed(words)
    bias = ranker.network.heads[-1].bias
    return Rows(weights, np.full(len(weights), float(bias.double().mean()), np.float32))


def _text_nodes(ranker: CascadeRanker, new: Labels) -> Rows:
    """Return what finds new labels before they are scored: their texts, read as documents, in place
    of centroids.

    Those of other labels are s·c/‖c‖ with bias b − w·x̄, c a mean of documents less x̄
    (``initial_rows``): s, b and x̄ are told from them."""
    head = ranker.network.heads[0]
    few = slice(None, None, -(-len(head.bias) // _FEW))
    w, bias = (tensor[few].double().numpy(force=True) for tensor in (head.weight, head.bias))
    mean = np.linalg.lstsq(w - w.mean(0), bias.mean() - bias, rcond=None)[0]
    prior = bias.mean() + w.mean(0) @ mean
    length = np.median(np.linalg.norm(w, axis=1))
    vectors = ranker.level_vectors(ranker.tokeniser(new.described()), "label texts")[0]
    weights = unit_vectors(vectors - mean.astype(np.float32)) * np.float32(length)
    return Rows(weights, (prior - weights @ mean).astype(np.float32))


def _vocabulary(ranker: CascadeRanker) -> list[str]:
    from longtail.features.word_tokens import words_of

    return words_of(ranker.tokeniser)


def _encoder(ranker: CascadeRanker) -> WordEncoder:
    return cast("WordEncoder", ranker.network.encoder)  # what label words are made of


def _word_vectors(ranker: CascadeRanker) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = _encoder(ranker).embedding.weight.numpy(force=True)
    return vectors
