"""The search through trees over documents, with the centroids of labels beside them: PfastreXML
(Jain et al. 2016).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.forest import entry, size, width
from longtail.kernels.forest_split import LOW, falling_key
from longtail.kernels.jit import kernel
from longtail.kernels.sparse import with_room

__all__ = [
    "Centroids",
    "Excluded",
    "TailScoring",
    "Trees",
    "dot",
    "label_score",
    "search_forest",
]

Array = NDArray[Any]
_SMALLEST = float(np.finfo(np.float32).tiny)  # scores stay above 0


class Trees(NamedTuple):
    """Nodes of all trees, a parent before its children: a leaf has labels, any other node a
    separator.
    """

    roots: Array  # (n_trees,) int64
    # (n_nodes,) int64, the child on side -1, that on side 1 comes next; 0 at a leaf
    children: Array
    bias: Array  # (n_nodes,) float32
    weight_ptr: Array  # (n_nodes + 1,) int64
    columns: Array  # int32, rising in each node, counted through
    weights: Array  # float32
    leaf_ptr: Array  # (n_nodes + 1,) int64
    labels: Array  # int32
    gains: Array  # float32, Σ y/p over documents of the leaf, as a share of the most there can be


class Centroids(NamedTuple):
    """A row for each label: the direction of its documents; columns are counted through."""

    ptr: Array  # (n_labels + 1,) int64
    columns: Array  # int32, rising in each row
    values: Array  # float32
    squares: Array  # (n_labels,) float32, squared lengths


class Excluded(NamedTuple):
    """Labels that are left out of the results, per document."""

    pointers: Array  # (n + 1,) int64
    labels: Array  # int32


class TailScoring(NamedTuple):
    """How trees and centroids make a score."""

    share: float  # 1 − α, that of the centroids
    gamma: float


@kernel
def search_forest(
    first: int,  # IN  documents first..last - 1
    last: int,
    features: FeatureRows,  # IN
    trees: Trees,  # IN
    centroids: Centroids,  # IN
    excluded: Excluded,  # IN
    k: int,
    scoring: TailScoring,  # IN
) -> Any:
    """Return the ``k`` best labels of each document, best first, ties by label: (ends, labels,
    scores as float32).

    Only labels of the leaves that a document reaches have a score.
    """
    ends = np.zeros(last - first, np.int64)
    leaves = _leaves(first, last, features, trees)
    out_labels = np.empty(1024, np.int32)
    out_scores = np.empty(1024, np.float32)
    n_labels = len(centroids.squares)
    filled = 0
    sums = np.zeros(n_labels)
    labels = np.empty(n_labels, np.int32)
    lookup = np.zeros(width(features), np.float32)
    for document in range(first, last):
        columns = _spread(features, document, lookup)
        count = _add_gains(trees, leaves[document - first], sums, labels)
        for at in range(excluded.pointers[document], excluded.pointers[document + 1]):
            sums[excluded.labels[at]] = 0
        best = _score(labels[:count], sums, len(trees.roots), centroids, columns, lookup, scoring)
        best.sort()
        best = best[:k]
        out_labels = with_room(out_labels, filled + len(best))
        out_scores = with_room(out_scores, filled + len(best))
        for key in best:
            out_labels[filled] = key & LOW
            out_scores.view(np.int32)[filled] = 0x7FFFFFFF - (key >> 32)
            filled += 1
        ends[document - first] = filled
        for column in columns:
            lookup[column] = 0
    return ends, out_labels[:filled], out_scores[:filled]


@kernel
def _add_gains(
    trees: Trees,  # IN
    leaves: Array,  # IN  (n_trees,) nodes
    sums: Array,  # IN/OUT (n_labels,) 0 of labels that are not in ``labels``
    labels: Array,  # OUT labels of the leaves
) -> int:
    """Add up the gains of labels over leaves; return how many labels there are."""
    leaf_ptr = trees.leaf_ptr
    leaf_labels = trees.labels
    gains = trees.gains
    count = 0
    for leaf in leaves:
        for at in range(leaf_ptr[leaf], leaf_ptr[leaf + 1]):
            label = leaf_labels[at]
            if sums[label] == 0:
                labels[count] = label
                count += 1
            sums[label] += gains[at]
    return count


@kernel
def _score(
    labels: Array,  # IN  labels of the document's leaves
    sums: Array,  # IN/OUT (n_labels,) gains over trees; 0 afterwards
    n_trees: int,
    centroids: Centroids,  # IN
    columns: Array,  # IN  of the document
    lookup: Array,  # IN  (columns,) its values
    scoring: TailScoring,  # IN
) -> Array:
    """Return a sort key for the score of each label with a sum."""
    square_length = 0.0
    for column in columns:
        square_length += np.float64(lookup[column]) ** 2
    length = np.sqrt(square_length)
    score = np.zeros(1, np.float32)
    keys = np.empty(len(labels), np.int64)
    count = 0
    near = 0.0
    for label in labels:
        if sums[label] > 0:
            if scoring.share > 0:
                begin = centroids.ptr[label]
                end = centroids.ptr[label + 1]
                near = dot(centroids.columns, centroids.values, begin, end, columns, lookup)
            square = centroids.squares[label]
            gain = sums[label] / n_trees
            score[0] = label_score(gain, near, length, square, scoring.share, scoring.gamma)
            keys[count] = falling_key(score.view(np.int32)[0], label)
            count = count + 1
            sums[label] = 0.0
    return keys[:count].copy()


@kernel
def _leaves(first: int, last: int, features: FeatureRows, trees: Trees) -> Array:
    """Return the leaf of each document in each tree; tree after tree, so that its nodes stay in the
    cache.
    """
    leaves = np.empty((last - first, len(trees.roots)), np.int64)
    lookup = np.zeros(width(features), np.float32)
    for tree, root in enumerate(trees.roots):
        for document in range(first, last):
            columns = _spread(features, document, lookup)
            node = root
            while trees.children[node] > 0:
                begin = trees.weight_ptr[node]
                end = trees.weight_ptr[node + 1]
                product = dot(trees.columns, trees.weights, begin, end, columns, lookup)
                is_right = product + trees.bias[node] > 0
                node = trees.children[node] + np.int64(is_right)
            leaves[document - first, tree] = node
            for column in columns:
                lookup[column] = 0
    return leaves


@kernel
def _spread(features: FeatureRows, document: int, lookup: Array) -> Array:
    """Return the columns of a document, and put its values into ``lookup``."""
    columns = np.empty(size(features, document), np.int64)
    for at in range(len(columns)):
        columns[at], value = entry(features, document, at)
        lookup[columns[at]] = value
    return columns


@kernel
def dot(
    columns: Array,  # IN  of weights, rising in each row
    weights: Array,  # IN
    begin: int,  # IN  the row of weights
    end: int,
    document_columns: Array,  # IN  rising
    lookup: Array,  # IN  value of the document in each column
) -> float:
    """Return w·x; whichever of the two is gone through, products are added in the order of
    columns.
    """
    total = 0.0
    if end - begin <= 8 * len(document_columns):
        for at in range(begin, end):
            total += np.float64(weights[at]) * lookup[columns[at]]
        return total
    for column in document_columns:
        low = begin
        high = end
        while low < high:
            middle = (low + high) >> 1
            if columns[middle] < column:
                low = middle + 1
            else:
                high = middle
        begin = low
        if low < end and columns[low] == column:
            total += np.float64(weights[low]) * lookup[column]
    return total


@kernel
def label_score(
    gain: float, near: float, length: float, square: float, share: float, gamma: float
) -> float:
    """Return P^α B^(1−α) of a label, B = 1/(1 + exp(γ/2 ‖x − μ‖²)) for x of length one (Jain et al.
    2016, section 4.3).

    ``gain`` is the mean of its gains over trees, ``near`` its x·μ before x is divided by its
    ``length``."""
    if share == 0:
        return gain
    distance = square
    if length > 0:
        distance = square + (1 - 2 * near / length)
    exponent = gamma / 2 * max(distance, 0.0)
    log_near = -exponent - np.log1p(np.exp(-exponent))
    score: float = np.exp((1 - share) * np.log(gain) + share * log_near)
    return max(score, _SMALLEST)
