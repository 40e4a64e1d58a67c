"""The levels of the label trees that linear classifiers will be trained on: nodes, documents of
each, weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.config import Config, LabelFeatures, Tree
from longtail.forecast.sizes import DataSizes
from longtail.forecast.text import TextForecast
from longtail.kernels.sibling_blocks import BLOCK
from longtail.tree.cluster import level_widths

__all__ = ["Level", "label_numbers", "pruned_weights", "tree_levels"]

# of the nodes that a document's labels would have in a random tree, beyond the first
_LABELS_APART = 0.45
# Pruning at 0.1 leaves so many weights a different n-gram of a node's documents, by the root of the
# n-grams of a document: the more it has, the smaller is each value of its row, and so each weight.
_WEIGHTS = 4.4
_PRUNING = 0.5  # weights grow by (0.1 / prune) to the power of this


class Level(NamedTuple):
    """One level: its nodes, the documents of a node, and what its parents are trained on."""

    nodes: int
    node_documents: float  # documents of a node
    parents: int
    parent_documents: float  # documents of a parent
    largest: float  # documents of the largest parent

    @property
    def children(self) -> int:
        """Nodes below a parent."""
        return math.ceil(self.nodes / self.parents)


def tree_levels(sizes: DataSizes, config: Config) -> list[Level]:
    """Return the levels that the tree will have; the documents of each come from the labels of each
    document.
    """
    if not sizes.n_labels:
        return []
    if config.tree.kind == "flat":
        return [_flat_level(sizes, config)]
    labels = sizes.labels_of_documents
    most = sizes.documents_of_labels.largest
    levels = list[Level]()
    parents = 1
    pairs = float(sizes.documents)
    largest = float(sizes.documents)
    for level, nodes in enumerate(_widths(sizes.n_labels, config.tree)):
        if nodes > 1:
            apart = nodes * -np.expm1(labels.values * np.log1p(-1 / nodes))
        else:
            apart = np.ones_like(labels.values)
        share = _LABELS_APART
        if nodes == sizes.n_labels:
            share = 1.0
        node_pairs = labels.size + share * float((apart - 1) @ labels.counts)
        levels.append(Level(nodes, node_pairs / nodes, parents, pairs / parents, largest))
        parents = nodes
        pairs = node_pairs
        # the beam adds documents to the parents that it would choose
        if _negatives(config, level + 1) != "tfn":
            pairs = max(pairs, float(sizes.documents * min(config.search.beam_size, nodes)))
        # one holds the most frequent label
        largest = min(most + pairs / parents, float(sizes.documents))
    return levels


def _flat_level(sizes: DataSizes, config: Config) -> Level:
    """Return the labels alone, on all documents, or each block of them on its own ones and on hard
    negatives.
    """
    n = float(sizes.documents)
    hard = min(config.ranker.hard_negatives, sizes.n_labels)
    if not hard:
        return Level(sizes.n_labels, sizes.pairs / sizes.n_labels, 1, n, n)
    blocks = math.ceil(sizes.n_labels / BLOCK)
    documents = min((sizes.pairs + 2 * hard * n) / blocks, n)
    largest = min(sizes.documents_of_labels.largest + documents, n)
    return Level(sizes.n_labels, sizes.pairs / sizes.n_labels, blocks, documents, largest)


def _negatives(config: Config, level: int) -> str:
    """Return the negatives of a level of the tree."""
    by_level = config.ranker.level_negatives
    if level < len(by_level):
        return by_level[level]
    return config.ranker.negatives


def _widths(n_labels: int, tree: Tree) -> list[int]:
    if tree.kind != "unbalanced":
        return [*level_widths(n_labels, tree), n_labels]
    widths = [1]  # the root
    while len(widths) <= tree.max_depth and n_labels > tree.leaf_size * widths[-1]:
        widths.append(min(widths[-1] * tree.branching, -(-n_labels // 3)))
    return [*widths[1:], n_labels]


def label_numbers(
    sizes: DataSizes, text: TextForecast, settings: LabelFeatures, kind: str
) -> float:
    """Return the numbers of all labels' features: a label has those of its documents, and its
    neighbours' with them, or the labels of its documents.

    Args:
        sizes: of the data.
        text: features of the documents.
        settings: of the label graph.
        kind: of the label features.
    """
    counts = sizes.documents_of_labels
    if kind == "output":
        return float(_shared_labels(sizes) @ counts.counts)
    each = text.distinct(counts.values)
    if kind == "joint":
        each = each + _shared_labels(sizes)
    if kind.startswith("graph"):
        each = np.minimum(
            (1 + settings.graph_keep) * each, min(settings.graph_features, text.columns)
        )
    numbers = float(each @ counts.counts)
    if kind.endswith("+text"):
        return 2 * numbers
    return numbers


def _shared_labels(sizes: DataSizes) -> NDArray[np.float64]:
    """Return at most how many labels the documents of a label have, for each value of
    ``documents_of_labels``.
    """
    labels = sizes.labels_of_documents
    # of a document that is drawn by one of its labels, the others
    others = float(labels.values**2 @ labels.counts) / max(labels.sum, 1.0) - 1
    return np.minimum(1 + others * sizes.documents_of_labels.values, sizes.n_labels)


def pruned_weights(text: TextForecast, levels: list[Level], prune: float) -> float:
    """Return what pruning leaves on all levels; a node has no more columns than the documents it is
    trained on.
    """
    kept = _WEIGHTS / math.sqrt(text.each) * (0.1 / max(prune, 1e-4)) ** _PRUNING
    weights = 0.0
    for level in levels:
        of_node = kept * text.distinct(level.node_documents)
        weights += level.nodes * min(of_node, text.distinct(level.parent_documents))
    return float(weights)
