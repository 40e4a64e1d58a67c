"""A tree over documents, grown node by node: FastXML (Prabhu and Varma 2014), with the loss of
PfastreXML.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.forest_split import LOW, deal_documents, falling_key, solve_l1_logistic
from longtail.kernels.jit import kernel
from longtail.kernels.sparse import with_room
from longtail.kernels.splitmix import random_bits

__all__ = ["Rows", "entry", "grow_tree", "size"]

Array = NDArray[Any]
# of a separator: a split need not be better than that
_TOLERANCE = 0.01
_STEPS = 20
_PASSES = 20


class Rows(NamedTuple):
    """Features as kernels read them; columns are counted through, those of the dense block first."""

    ptr: Array  # (n + 1,) int64
    columns: Array  # int32, rising in each row, counted in the sparse block
    values: Array  # float32
    dense: Array  # (n, e) float32
    width: int  # columns of both blocks


@kernel
def grow_tree(
    rows: Rows,  # IN
    documents: Array,  # IN/OUT int32, those the tree is grown on; sorted by leaf afterwards
    label_ptr: Array,  # IN  (n + 1,) int64
    labels: Array,  # IN  int32
    gains: Array,  # IN  float32, relevance / propensity, as a share of the largest of all
    n_labels: int,
    leaf_size: int,
    leaf_labels: int,
    cost: float,
    max_rounds: int,
    prune: float,
    seed: int,
) -> Any:
    """Return the nodes of one tree, level by level: what ``Trees`` (forest_search.py) has, without
    roots.

    A node with more than ``leaf_size`` documents is split by the sign of its separator, which
    learns the sides that ``deal_documents`` finds; where either leaves a side without documents,
    the node is a leaf."""
    most = max(2 * len(documents) - 1, 1)
    ends = np.zeros((most, 2), np.int64)
    children = np.zeros(most, np.int64)
    bias = np.zeros(most, np.float32)
    weight_ptr = np.zeros(most + 1, np.int64)
    leaf_ptr = np.zeros(most + 1, np.int64)
    columns = np.empty(1024, np.int32)
    weights = np.empty(1024, np.float32)
    pairs = _pairs(documents, label_ptr)
    out_labels = np.empty(pairs, np.int32)
    out_gains = np.empty(pairs, np.float32)
    lookup = np.zeros(rows.width, np.float32)
    pulls = np.zeros((rows.width, 2))
    places = np.zeros(rows.width, np.int32)
    numbers = np.full(n_labels, -1, np.int32)
    sums = np.zeros(n_labels)
    nodes = 1
    node = 0
    ends[0, 1] = len(documents)
    while node < nodes:
        own = documents[ends[node, 0] : ends[node, 1]]
        filled = weight_ptr[node]
        left = 0
        if len(own) > leaf_size:
            sides = _random_sides(len(own), seed, node)
            deal_documents(own, label_ptr, labels, gains, sides, numbers, max_rounds)
            own_columns, own_weights = _separator(
                rows, own, sides, cost, prune, pulls, places, random_bits(seed, node, len(own))
            )
            left = _parted(rows, own, own_columns, own_weights, lookup)
        if 0 < left < len(own):
            used = len(own_columns)
            columns = with_room(columns, filled + used)
            weights = with_room(weights, filled + used)
            columns[filled : filled + used], weights[filled : filled + used] = (
                own_columns,
                own_weights[:used],
            )
            filled, bias[node], children[node] = filled + used, own_weights[used], nodes
            middle = ends[node, 0] + left
            ends[nodes, 0], ends[nodes, 1] = ends[node, 0], middle
            ends[nodes + 1, 0], ends[nodes + 1, 1] = middle, ends[node, 1]
            nodes = nodes + 2
            leaf_ptr[node + 1] = leaf_ptr[node]
        else:
            leaf_ptr[node + 1] = _fill_leaf(
                own,
                label_ptr,
                labels,
                gains,
                leaf_labels,
                sums,
                out_labels,
                out_gains,
                leaf_ptr[node],
            )
        weight_ptr[node + 1] = filled
        node += 1
    used = weight_ptr[nodes]
    kept = leaf_ptr[nodes]
    return (
        children[:nodes],
        bias[:nodes],
        weight_ptr[: nodes + 1],
        columns[:used],
        weights[:used],
        leaf_ptr[: nodes + 1],
        out_labels[:kept],
        out_gains[:kept],
    )


@kernel
def _pairs(documents: Array, label_ptr: Array) -> int:
    """Return how many labels the documents have together."""
    pairs = 0
    for document in documents:
        pairs += label_ptr[document + 1] - label_ptr[document]
    return pairs


@kernel
def _random_sides(count: int, seed: int, node: int) -> Any:
    """Return -1 or 1 for each of the documents of a node."""
    sides = np.empty(count, np.int8)
    for row in range(count):
        sides[row] = 2 * (random_bits(seed, node, row) >> 40 & 1) - 1
    return sides


@kernel
def _separator(
    rows: Rows,
    own: Array,
    sides: Array,
    cost: float,
    prune: float,
    pulls: Array,
    places: Array,
    seed: int,
) -> Any:
    """Return the sorted columns of the separator of the two sides, and its weights, the bias last.

    Both sides weigh the same. The slope of a column never exceeds its pulls, Σ C_i |x_ij| over the
    documents that draw its weight one way and the other; where both are at most 1, the penalty
    holds the weight at 0, so most columns of small nodes never enter. ``pulls`` and ``places`` are
    0, before and after."""
    up = 0
    for side in sides:
        up += side > 0
    if up == 0 or up == len(own):
        return np.empty(0, np.int32), np.zeros(1, np.float32)
    costs = np.array([cost * len(own) / (len(own) - up), cost * len(own) / up])
    kept, ptr, documents, values = _by_column(rows, own, sides, costs, pulls, places)
    solved = solve_l1_logistic(
        ptr, documents, values, sides, costs, _TOLERANCE, _STEPS, _PASSES, seed
    )
    keys = np.empty(len(kept), np.int64)
    count = 0
    for place in range(len(kept)):
        if abs(solved[place]) > prune:
            keys[count] = (np.int64(kept[place]) << 32) | place
            count += 1
    keys = keys[:count].copy()
    keys.sort()
    columns = np.empty(count, np.int32)
    weights = np.empty(count + 1, np.float32)
    for at in range(count):
        columns[at], weights[at] = keys[at] >> 32, solved[keys[at] & LOW]
    weights[count] = solved[-1]
    return columns, weights


@kernel
def _by_column(
    rows: Rows, own: Array, sides: Array, costs: Array, pulls: Array, places: Array
) -> Any:
    """Return the columns that may get a weight, and for each the documents (as numbers in ``own``)
    and values.
    """
    entries = 0
    for row, document in enumerate(own):
        for at in range(size(rows, document)):
            column, value = entry(rows, document, at)
            pulls[column, 1 if value * sides[row] > 0 else 0] += costs[(sides[row] + 1) // 2] * abs(
                value
            )
            entries += 1
    kept = np.empty(min(entries, rows.width), np.int32)
    ptr = np.zeros(min(entries, rows.width) + 2, np.int64)
    count = 0
    for document in own:
        for at in range(size(rows, document)):
            column, value = entry(rows, document, at)
            if max(pulls[column, 0], pulls[column, 1]) > 1:
                if places[column] == 0:
                    kept[count] = column
                    count += 1
                    places[column] = count
                ptr[places[column] + 1] += 1
    for at in range(count + 1):  # one place ahead: filling moves each start to its end
        ptr[at + 1] += ptr[at]
    documents = np.empty(ptr[count + 1], np.int32)
    values = np.empty(ptr[count + 1], np.float32)
    for row, document in enumerate(own):
        for at in range(size(rows, document)):
            column, value = entry(rows, document, at)
            if places[column] > 0:
                filled = ptr[places[column]]
                documents[filled], values[filled] = row, value
                ptr[places[column]] = filled + 1
    for document in own:
        for at in range(size(rows, document)):
            column = entry(rows, document, at)[0]
            pulls[column, 0], pulls[column, 1], places[column] = 0.0, 0.0, 0
    return kept[:count], ptr[: count + 1], documents, values


@kernel
def size(rows: Rows, document: int) -> Any:
    """Return the entries of a document, those of the dense block and the sparse one."""
    return rows.dense.shape[1] + rows.ptr[document + 1] - rows.ptr[document]


@kernel
def entry(rows: Rows, document: int, at: int) -> Any:
    """Return the column and the value of an entry, those of the dense block first."""
    width = rows.dense.shape[1]
    if at < width:
        return np.int64(at), rows.dense[document, at]
    place = rows.ptr[document] + at - width
    return np.int64(rows.columns[place]) + width, rows.values[place]


@kernel
def _parted(rows: Rows, own: Array, columns: Array, weights: Array, lookup: Array) -> int:
    """Put the documents of side -1 before those of side 1, in place, each in their order; return
    how many they are.
    """
    for at in range(len(columns)):
        lookup[columns[at]] = weights[at]
    behind = np.empty(len(own), np.int32)
    left = 0
    right = 0
    for document in own:
        total = 0.0
        for at in range(size(rows, document)):
            column, value = entry(rows, document, at)
            total += np.float64(lookup[column]) * value
        if total + weights[-1] > 0:
            behind[right] = document
            right += 1
        else:
            own[left] = document
            left += 1
    for at in range(right):
        own[left + at] = behind[at]
    for column in columns:
        lookup[column] = 0
    return left


@kernel
def _fill_leaf(
    own: Array,
    label_ptr: Array,
    labels: Array,
    gains: Array,
    most: int,
    sums: Array,
    out_labels: Array,
    out_gains: Array,
    filled: int,
) -> int:
    """Append the ``most`` labels with the largest mean gain over the documents, best first; return
    where they end.
    """
    start = filled
    for document in own:
        for at in range(label_ptr[document], label_ptr[document + 1]):
            if sums[labels[at]] == 0:
                out_labels[filled] = labels[at]
                filled += 1
            sums[labels[at]] += gains[at]
    means = np.empty(filled - start, np.float32)
    keys = np.empty(filled - start, np.int64)
    for place in range(len(keys)):
        label = out_labels[start + place]
        means[place] = sums[label] / len(own)
        keys[place] = falling_key(means.view(np.int32)[place], label)
        sums[label] = 0
    keys.sort()
    end = min(start + most, filled)
    for place in range(end - start):
        out_labels[start + place] = keys[place] & LOW
        means.view(np.int32)[place] = 0x7FFFFFFF - (keys[place] >> 32)
        out_gains[start + place] = means[place]
    return end
