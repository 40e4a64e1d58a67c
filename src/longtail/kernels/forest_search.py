"""The search through trees over documents, with the centroids of labels beside them: PfastreXML
(Jain et al. 2016).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.forest import Rows, entry, size
from longtail.kernels.forest_split import LOW, falling_key
from longtail.kernels.jit import kernel
from longtail.kernels.sparse import with_room

__all__ = ["Centroids", "Trees", "dot", "label_score", "search_forest"]

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


@kernel
def search_forest(
    first: int,  # IN  documents first..last - 1
    last: int,
    rows: Rows,  # IN
    trees: Trees,  # IN
    centroids: Centroids,  # IN
    excluded_ptr: Array,  # IN  (n + 1,) int64
    excluded: Array,  # IN  int32, labels that may not come out
    k: int,
    share: float,  # IN  1 − α
    gamma: float,
) -> Any:
    """Return the ``k`` best labels of each document, best first, ties by label: (ends, labels,
    scores as float32).

    Only labels of the leaves that a document comes to have a score.
    """
    ends = np.zeros(last - first, np.int64)
    leaves = _leaves(first, last, rows, trees)
    out_labels = np.empty(1024, np.int32)
    out_scores = np.empty(1024, np.float32)
    n_labels = len(centroids.squares)
    filled = 0
    sums = np.zeros(n_labels)
    found = np.empty(n_labels, np.int32)
    score = np.zeros(1, np.float32)
    lookup = np.zeros(rows.width, np.float32)
    for document in range(first, last):
        own = _spread(rows, document, lookup)
        count = 0
        square_length = 0.0
        for column in own:
            square_length += np.float64(lookup[column]) ** 2
        for leaf in leaves[document - first]:
            for at in range(trees.leaf_ptr[leaf], trees.leaf_ptr[leaf + 1]):
                label = trees.labels[at]
                if sums[label] == 0:
                    found[count] = label
                    count += 1
                sums[label] += trees.gains[at]
        for at in range(excluded_ptr[document], excluded_ptr[document + 1]):
            sums[excluded[at]] = 0
        keys = np.empty(count, np.int64)
        kept = 0
        for label in found[:count]:
            if sums[label] > 0:
                begin = centroids.ptr[label]
                end = centroids.ptr[label + 1]
                near = (
                    dot(centroids.columns, centroids.values, begin, end, own, lookup)
                    if share > 0
                    else 0.0
                )
                gain = sums[label] / len(trees.roots)
                square = centroids.squares[label]
                score[0] = label_score(gain, near, np.sqrt(square_length), square, share, gamma)
                keys[kept] = falling_key(score.view(np.int32)[0], label)
                kept = kept + 1
                sums[label] = 0.0
        best = keys[:kept].copy()
        best.sort()
        best = best[:k]
        out_labels = with_room(out_labels, filled + len(best))
        out_scores = with_room(out_scores, filled + len(best))
        for key in best:
            out_labels[filled] = key & LOW
            out_scores.view(np.int32)[filled] = 0x7FFFFFFF - (key >> 32)
            filled += 1
        ends[document - first] = filled
        for column in own:
            lookup[column] = 0
    return ends, out_labels[:filled], out_scores[:filled]


@kernel
def _leaves(first: int, last: int, rows: Rows, trees: Trees) -> Array:
    """Return the leaf of each document in each tree; tree after tree, so that its nodes stay in the
    cache.
    """
    leaves = np.empty((last - first, len(trees.roots)), np.int64)
    lookup = np.zeros(rows.width, np.float32)
    for tree, root in enumerate(trees.roots):
        for document in range(first, last):
            own = _spread(rows, document, lookup)
            node = root
            while trees.children[node] > 0:
                begin = trees.weight_ptr[node]
                end = trees.weight_ptr[node + 1]
                margin = (
                    dot(trees.columns, trees.weights, begin, end, own, lookup) + trees.bias[node]
                )
                node = trees.children[node] + (1 if margin > 0 else 0)
            leaves[document - first, tree] = node
            for column in own:
                lookup[column] = 0
    return leaves


@kernel
def _spread(rows: Rows, document: int, lookup: Array) -> Array:
    """Return the columns of a document, and put its values into ``lookup``."""
    own = np.empty(size(rows, document), np.int64)
    for at in range(len(own)):
        own[at], value = entry(rows, document, at)
        lookup[own[at]] = value
    return own


@kernel
def dot(columns: Array, weights: Array, begin: int, end: int, own: Array, lookup: Array) -> float:
    """Return w·x over sorted columns: one way or the other, products are added in the order of
    columns.
    """
    total = 0.0
    if end - begin <= 8 * len(own):
        for at in range(begin, end):
            total += np.float64(weights[at]) * lookup[columns[at]]
        return total
    for column in own:
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
    distance = square + (1 - 2 * near / length if length > 0 else 0.0)
    exponent = gamma / 2 * max(distance, 0.0)
    log_near = -exponent - np.log1p(np.exp(-exponent))
    score: float = np.exp((1 - share) * np.log(gain) + share * log_near)
    return max(score, _SMALLEST)
