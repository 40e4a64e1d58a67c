"""What a training run will take, told before it begins: time, memory and the size of the model.

Labels are counted exactly, n-grams extrapolated (``text.py``); seconds and bytes follow from how the solver
and each stage grow, by constants that were measured, and those of a network from its shape (``networks.py``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np
from scipy import sparse

from longtail.config import Config, LabelFeatures, Tree
from longtail.data.dataset import Dataset
from longtail.features.gandalf import label_points
from longtail.forecast.networks import network_forecast
from longtail.forecast.rankers import one_vs_all_seconds, one_vs_all_weights, ranker_forecast
from longtail.forecast.text import TextForecast, text_forecast
from longtail.kernels import pool
from longtail.linear.level_settings import level_ranker
from longtail.methods import ranks_alone, uses_encoder
from longtail.tree.cluster import level_widths

__all__ = ["Forecast", "forecast", "size_in_words"]


class Costs(NamedTuple):
    """Constants measured on five sets of 6,000 to 182,000 documents, xr-linear, 2 threads; seconds are of one core."""

    tree_seconds: float = 300e-9  # a number of the label features
    # A pass of the solver over a document and 16 siblings costs its numbers and some 10 more; passes grow with the
    # documents of a parent, as its problem is harder: seconds = solver × documents^growth × numbers.
    solver_seconds: float = 14e-9
    solver_growth: float = 0.4
    solver_extra: float = 10.0
    logistic: float = 1.5  # times the seconds of the squared hinge
    spread: tuple[float, float] = (0.6, 2.0)  # low and high end, as multiples of the estimate
    labels_apart: float = 0.45  # of the nodes that a document's labels would have in a random tree, beyond the first
    # Pruning at 0.1 leaves so many weights a different n-gram of a node's documents, by the root of the n-grams of a
    # document: the more it has, the smaller is each value of its row, and so each weight.
    weights: float = 4.4
    pruning: float = 0.5  # weights grow by (0.1 / prune) to the power of this
    base_bytes: float = 235e6  # Python, its packages and the kernels
    counting_bytes: float = 27.0  # a document and n-gram of it, before n-grams are chosen
    ngram_bytes: float = 200.0  # a different n-gram
    label_bytes: float = 22.0  # a number of the label features, with the copies that k-means works on
    pair_bytes: float = 60.0  # a document and node of it, on all levels
    thread_column_bytes: float = 250.0  # a thread and column: 16 siblings with what is kept of them
    thread_number_bytes: float = 12.0  # a thread and number of the features
    thread_document_bytes: float = 64.0  # a thread and document


_COSTS = Costs()
_WEIGHT_BYTES = {"float32": 5.7, "float16": 3.7, "int8": 2.7}  # with their places, as stored


class Forecast(msgspec.Struct, frozen=True):
    """Estimates for one run; ``seconds`` are the low and the high end, kernels being compiled."""

    documents: int
    features: int  # columns
    nonzeros: int
    tree: tuple[int, ...]  # nodes of each level
    weights: int
    threads: int
    seconds: tuple[float, float]
    peak_bytes: int
    model_bytes: int
    network_bytes: int = 0  # of a network while it is trained
    on_gpu: bool = False  # then they are not among ``peak_bytes``, nor are its seconds known

    def __str__(self) -> str:
        low, high = map(_time, self.seconds)
        span = low if low == high else f"{low} to {high}"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        beside = " beside the network (whose time on a GPU is not known)" if self.on_gpu else ""
        memory, model, network = map(size_in_words, (self.peak_bytes, self.model_bytes, self.network_bytes))
        own = f", {network} of the GPU's" if self.on_gpu else f" (network {network})" if self.network_bytes else ""
        return f"forecast: about {span} on {threads}{beside}, {memory} of memory{own}, a model of {model}"


def forecast(documents: Dataset, config: Config) -> Forecast:
    """Estimate a run with the threads that :func:`longtail.kernels.pool.threads` says, in some tenths of a second."""
    documents = _with_label_texts(documents, config)
    text = text_forecast(documents, config)
    network = network_forecast(documents, config) if uses_encoder(config) else None
    trees, threads, tree_seconds = config.ranker.trees, pool.thread_count(), 0.0
    joined, levels = text, _levels(documents, config)
    if network is not None:
        if network.tree:  # one of its own, over labels that look like the text features
            tree_seconds = _COSTS.tree_seconds * _label_numbers(documents, text, config.label_features)
        joined = _beside(text, network.width, config)
        if ranks_alone(config):
            trees, joined, levels = 0, text, []
    other = ranker_forecast(documents, joined, config)
    if other is not None:
        trees, levels = 0, []
    label_numbers = _label_numbers(documents, joined, config.label_features)
    sparse = one_vs_all_weights(documents, config) if config.tree.kind == "flat" else None
    weights = trees * (_weights(joined, levels, config.ranker.prune) if sparse is None else sparse)
    dense = trees * joined.dense_width * sum(level.nodes for level in levels)
    stored = _WEIGHT_BYTES[config.ranker.weights] * (weights + dense)
    each = _COSTS.tree_seconds * label_numbers + _solver_seconds(documents, joined, levels, config)
    seconds = text.seconds + tree_seconds + trees * each + (network.seconds if network else 0)
    if other is not None:
        seconds, stored = seconds + other.seconds, stored + other.stored
    seconds = seconds / threads + 0.5
    peak = _peak(documents, joined, levels, label_numbers, stored, threads)
    peak += threads * other.thread_bytes + other.stored if other is not None else 0.0
    rows = 8.0 * text.numbers
    return Forecast(
        documents=len(documents),
        features=joined.columns + joined.dense_width,
        nonzeros=joined.numbers + joined.dense_width * len(documents),
        tree=network.tree if network and not levels else tuple(level.nodes for level in levels),
        weights=int(weights + dense),
        threads=threads,
        seconds=(_COSTS.spread[0] * seconds, _COSTS.spread[1] * seconds),
        peak_bytes=int(network.peak(_held(documents) + rows, peak) if network else peak),
        model_bytes=int(
            stored + 10 * joined.columns + 2 * documents.labels.nbytes + (network.resting_bytes if network else 0)
        ),
        network_bytes=int(network.training_bytes) if network else 0,
        on_gpu=network is not None and network.on_gpu,
    )


def _with_label_texts(documents: Dataset, config: Config) -> Dataset:
    """Return what is trained on: with Gandalf also the texts of labels, here without neighbours, which take longer."""
    if not config.gandalf.use:
        return documents
    alone = sparse.csr_array(sparse.eye_array(documents.n_labels, dtype=np.float32))
    return label_points(documents, alone, config.gandalf, config.seed)


def _beside(text: TextForecast, width: int, config: Config) -> TextForecast:
    """Return what linear classifiers read: text features, vectors beside them (Φcat), or these alone."""
    if config.features == "tfidf":
        return text
    if config.features == "dnn":
        text = text._replace(columns=0, numbers=0)
    return text._replace(dense_width=text.dense_width + width)


def _label_numbers(documents: Dataset, text: TextForecast, settings: LabelFeatures) -> float:
    """Return the numbers of all labels' features: a label has those of its documents, and its neighbours' with them."""
    counts = documents.label_counts
    each = text.distinct(counts[counts > 0])
    if settings.kind.startswith("graph"):
        each = np.minimum((1 + settings.graph_keep) * each, min(settings.graph_features, text.columns))
    return float(np.sum(each)) * (2 if settings.kind.endswith("+text") else 1)


class _Level(NamedTuple):
    """One level: its nodes, the documents of a node, and what its parents are trained on."""

    nodes: int
    own: float  # documents of a node
    parents: int
    given: float  # documents of a parent


def _levels(documents: Dataset, config: Config) -> list[_Level]:
    """Return the levels that the tree will have; the documents of each come from the labels of each document."""
    sizes = np.diff(documents.label_matrix.indptr)
    sizes = sizes[sizes > 0].astype(np.float64)
    levels, parents, pairs = list[_Level](), 1, float(len(documents))
    for nodes in _widths(documents.n_labels, config.tree) if documents.n_labels else []:
        apart = nodes * -np.expm1(sizes * np.log1p(-1 / nodes)) if nodes > 1 else np.ones_like(sizes)
        share = 1.0 if nodes == documents.n_labels else _COSTS.labels_apart
        own = len(sizes) + share * float((apart - 1).sum())
        levels.append(_Level(nodes, own / nodes, parents, pairs / parents))
        parents, pairs = nodes, own
        if (
            level_ranker(config.ranker, len(levels)).negatives != "tfn"
        ):  # the beam adds documents to the parents that it would choose
            pairs = max(own, float(len(documents) * min(config.search.beam_size, nodes)))
    return levels


def _widths(n_labels: int, tree: Tree) -> list[int]:
    if tree.kind == "flat":
        return [n_labels]
    if tree.kind != "unbalanced":
        return [*level_widths(n_labels, tree), n_labels]
    widths = list[int]()
    while len(widths) < tree.max_depth and n_labels > tree.leaf_size * (widths[-1] if widths else 1):
        widths.append(min((widths[-1] if widths else 1) * tree.branching, -(-n_labels // 3)))
    return [*widths, n_labels]


def _weights(text: TextForecast, levels: list[_Level], prune: float) -> float:
    """Return what pruning leaves on all levels; a node has no more columns than the documents it is trained on."""
    kept = _COSTS.weights / math.sqrt(text.each) * (0.1 / max(prune, 1e-4)) ** _COSTS.pruning
    return float(
        sum(level.nodes * min(kept * text.distinct(level.own), text.distinct(level.given)) for level in levels)
    )


def _solver_seconds(documents: Dataset, text: TextForecast, levels: list[_Level], config: Config) -> float:
    """Return the seconds of one core: documents × blocks of siblings × numbers of a document, at every parent."""
    alone = one_vs_all_seconds(documents, text, config) if config.tree.kind == "flat" else None
    if alone is not None:
        return alone
    each = text.each + text.dense_width / 4 + _COSTS.solver_extra
    seconds = 0.0
    for level in levels:
        halves = math.ceil(level.nodes / level.parents / 8) / 2  # blocks of 16 siblings, or 8 where these will do
        seconds += level.parents * halves * each * level.given ** (1 + _COSTS.solver_growth)
    return seconds * _COSTS.solver_seconds * (_COSTS.logistic if config.ranker.loss == "logistic" else 1.0)


def _peak(
    documents: Dataset, text: TextForecast, levels: list[_Level], label_numbers: float, stored: float, threads: int
) -> float:
    """Return the bytes of the largest stage; the documents are there twice, as some are held out."""
    rows = 8.0 * text.numbers + 4.0 * text.dense_width * len(documents)
    counting = _COSTS.counting_bytes * text.all_numbers + _COSTS.ngram_bytes * text.all_columns
    counting += 0 if documents.texts is None else documents.texts.nbytes
    labels = _COSTS.label_bytes * label_numbers + 8.0 * text.dense_width * documents.n_labels
    thread = _COSTS.thread_column_bytes * text.columns + _COSTS.thread_number_bytes * text.numbers
    thread += (_COSTS.thread_document_bytes + 4 * text.dense_width) * len(documents)
    pairs = _COSTS.pair_bytes * sum(level.nodes * level.own for level in levels)
    return _held(documents) + max(counting, rows + max(labels, threads * thread + pairs + stored))


def _held(documents: Dataset) -> float:
    return _COSTS.base_bytes + 2 * documents.nbytes


def _time(seconds: float) -> str:
    """Return a time of one or two digits."""
    if seconds < 90:
        return f"{max(_two_digits(seconds), 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{_two_digits(seconds / 3600):g} h"


def size_in_words(count: float) -> str:
    """Return bytes as MB or GB of two digits."""
    return f"{_two_digits(count / 1e6):.0f} MB" if count < 1e9 else f"{_two_digits(count / 1e9):g} GB"


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
