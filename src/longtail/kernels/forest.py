"""A tree over documents, grown node by node: FastXML (Prabhu and Varma 2014), with the loss of
PfastreXML.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.forest_split import (
    LOW,
    DocumentLabels,
    SplitLimits,
    SplitProblem,
    deal_documents,
    falling_key,
    solve_l1_logistic,
)
from longtail.kernels.jit import kernel
from longtail.kernels.sparse import with_room
from longtail.kernels.splitmix import random_bits

__all__ = ["DocumentTree", "TreeSettings", "entry", "grow_tree", "size", "width"]

Array = NDArray[Any]
# of a separator, which need not be better than that
_LIMITS = SplitLimits(tolerance=0.01, max_steps=20, max_passes=20)


class TreeSettings(NamedTuple):
    """Settings of a tree."""

    leaf_size: int  # documents of a node that is not split
    leaf_labels: int  # labels that a leaf keeps
    cost: float  # C of a separator
    max_rounds: int  # of assigning documents to sides
    prune: float  # weights of a separator up to this size are left out


class DocumentTree(NamedTuple):
    """The nodes of one tree, level by level: the fields of ``Trees`` (forest_search.py) without
    roots.
    """

    children: Any
    bias: Any
    weight_ptr: Any
    columns: Any
    weights: Any
    leaf_ptr: Any
    labels: Any
    gains: Any


class _Buffers(NamedTuple):
    """Arrays that all nodes use; each is left as it was."""

    numbers: Any  # (n_labels,) int32, -1
    sums: Any  # (n_labels,) zeros
    lookup: Any  # (columns,) float32 zeros
    pulls: Any  # (columns, 2) zeros
    positions: Any  # (columns,) int32 zeros


@kernel
def grow_tree(
    features: FeatureRows,  # IN
    documents: Array,  # IN/OUT int32, those the tree is grown on; sorted by leaf afterwards
    labels: DocumentLabels,  # IN
    n_labels: int,
    settings: TreeSettings,  # IN
    seed: int,
) -> DocumentTree:
    """Return one tree.

    A node with more than ``leaf_size`` documents is split by the sign of its separator, which
    learns the sides that ``deal_documents`` assigns; where either leaves a side without documents,
    the node is a leaf."""
    most = max(2 * len(documents) - 1, 1)
    ends = np.zeros((most, 2), np.int64)
    children = np.zeros(most, np.int64)
    bias = np.zeros(most, np.float32)
    weight_ptr = np.zeros(most + 1, np.int64)
    leaf_ptr = np.zeros(most + 1, np.int64)
    columns = np.empty(1024, np.int32)
    weights = np.empty(1024, np.float32)
    n_pairs = _count_pairs(documents, labels.pointers)
    leaf_labels = np.empty(n_pairs, np.int32)
    leaf_gains = np.empty(n_pairs, np.float32)
    buffers = _buffers(n_labels, width(features))
    nodes = 1
    node = 0
    ends[0, 1] = len(documents)
    while node < nodes:
        first = ends[node, 0]
        last = ends[node, 1]
        members = documents[first:last]
        weight_end = weight_ptr[node]
        leaf_end = leaf_ptr[node]
        left, split_columns, split_weights = _split(
            features, members, labels, settings, buffers, seed, node
        )
        if 0 < left < len(members):
            begin = weight_end
            used = len(split_columns)
            weight_end = begin + used
            columns = with_room(columns, weight_end)
            weights = with_room(weights, weight_end)
            columns[begin:weight_end] = split_columns
            weights[begin:weight_end] = split_weights[:used]
            bias[node] = split_weights[used]
            children[node] = nodes
            ends[nodes] = first, first + left
            ends[nodes + 1] = first + left, last
            nodes = nodes + 2
        else:
            leaf_end = _fill_leaf(
                members,
                labels,
                settings.leaf_labels,
                buffers.sums,
                leaf_labels,
                leaf_gains,
                leaf_end,
            )
        weight_ptr[node + 1] = weight_end
        leaf_ptr[node + 1] = leaf_end
        node += 1
    n_weights = weight_ptr[nodes]
    n_kept = leaf_ptr[nodes]
    return DocumentTree(
        children[:nodes],
        bias[:nodes],
        weight_ptr[: nodes + 1],
        columns[:n_weights],
        weights[:n_weights],
        leaf_ptr[: nodes + 1],
        leaf_labels[:n_kept],
        leaf_gains[:n_kept],
    )


@kernel
def _count_pairs(documents: Array, pointers: Array) -> int:
    """Return how many labels the documents have together."""
    pairs = 0
    for document in documents:
        pairs += pointers[document + 1] - pointers[document]
    return pairs


@kernel
def _buffers(n_labels: int, n_columns: int) -> _Buffers:
    return _Buffers(
        np.full(n_labels, -1, np.int32),
        np.zeros(n_labels),
        np.zeros(n_columns, np.float32),
        np.zeros((n_columns, 2)),
        np.zeros(n_columns, np.int32),
    )


@kernel
def _split(
    features: FeatureRows,  # IN
    members: Array,  # IN/OUT documents of the node; those of side -1 come first afterwards
    labels: DocumentLabels,  # IN
    settings: TreeSettings,  # IN
    buffers: _Buffers,  # buffer
    seed: int,
    node: int,
) -> Any:
    """Split the documents of a node; return (how many are on side -1, columns of the separator,
    its weights and bias). None or all on side -1: the node is a leaf.
    """
    size = len(members)
    if size <= settings.leaf_size:
        return 0, np.empty(0, np.int32), np.zeros(1, np.float32)
    sides = _random_sides(size, seed, node)
    deal_documents(members, labels, sides, buffers.numbers, settings.max_rounds)
    columns, weights = _separator(
        features, members, sides, settings, buffers, random_bits(seed, node, size)
    )
    left = _parted(features, members, columns, weights, buffers.lookup)
    return left, columns, weights


@kernel
def _random_sides(count: int, seed: int, node: int) -> Any:
    """Return -1 or 1 for each of the documents of a node."""
    sides = np.empty(count, np.int8)
    for row in range(count):
        sides[row] = 2 * (random_bits(seed, node, row) >> 40 & 1) - 1
    return sides


@kernel
def _separator(
    features: FeatureRows,
    members: Array,
    sides: Array,
    settings: TreeSettings,
    buffers: _Buffers,
    seed: int,
) -> Any:
    """Return the sorted columns of the separator of the two sides, and its weights, the bias last.

    Both sides weigh the same. The slope of a column never exceeds its pulls, Σ C_i |x_ij| over the
    documents that draw its weight one way and the other; where both are at most 1, the penalty
    holds the weight at 0, so most columns of small nodes never enter."""
    size = len(members)
    up = 0
    for side in sides:
        up += side > 0
    if up == 0 or up == size:
        return np.empty(0, np.int32), np.zeros(1, np.float32)
    cost = settings.cost
    costs = np.array([cost * size / (size - up), cost * size / up])
    names, problem = _by_column(features, members, sides, costs, buffers.pulls, buffers.positions)
    solution = solve_l1_logistic(problem, _LIMITS, seed)
    keys = np.empty(len(names), np.int64)
    count = 0
    for position in range(len(names)):
        if abs(solution[position]) > settings.prune:
            keys[count] = (np.int64(names[position]) << 32) | position
            count += 1
    keys = keys[:count].copy()
    keys.sort()
    columns = np.empty(count, np.int32)
    weights = np.empty(count + 1, np.float32)
    for at in range(count):
        columns[at] = keys[at] >> 32
        weights[at] = solution[keys[at] & LOW]
    weights[count] = solution[-1]
    return columns, weights


@kernel
def _by_column(
    features: FeatureRows,  # IN
    members: Array,  # IN  documents
    sides: Array,  # IN  of each of them
    costs: Array,  # IN  (2,)
    pulls: Array,  # buffer (columns, 2), zeros before and after
    positions: Array,  # buffer (columns,), zeros before and after
) -> Any:
    """Return the columns that may get a weight, and the documents by these columns."""
    entries = _add_pulls(features, members, sides, costs, pulls)
    names = np.empty(min(entries, len(positions)), np.int32)
    pointers = np.zeros(len(names) + 2, np.int64)
    count = 0
    for document in members:
        for at in range(size(features, document)):
            column = entry(features, document, at)[0]
            if max(pulls[column, 0], pulls[column, 1]) > 1:
                if positions[column] == 0:
                    names[count] = column
                    count += 1
                    positions[column] = count
                pointers[positions[column] + 1] += 1
    for at in range(count + 1):  # one place ahead: filling moves each start to its end
        pointers[at + 1] += pointers[at]
    rows = np.empty(pointers[count + 1], np.int32)
    values = np.empty(pointers[count + 1], np.float32)
    for row, document in enumerate(members):
        for at in range(size(features, document)):
            column, value = entry(features, document, at)
            if positions[column] > 0:
                end = pointers[positions[column]]
                rows[end] = row
                values[end] = value
                pointers[positions[column]] = end + 1
    for document in members:
        for at in range(size(features, document)):
            column = entry(features, document, at)[0]
            pulls[column, 0] = 0.0
            pulls[column, 1] = 0.0
            positions[column] = 0
    return names[:count], SplitProblem(pointers[: count + 1], rows, values, sides, costs)


@kernel
def _add_pulls(
    features: FeatureRows, members: Array, sides: Array, costs: Array, pulls: Array
) -> int:
    """Add Σ C_i |x_ij| to the pulls of each column, upwards and downwards; return how many numbers
    the documents have.
    """
    entries = 0
    for row, document in enumerate(members):
        cost = costs[(sides[row] + 1) // 2]
        for at in range(size(features, document)):
            column, value = entry(features, document, at)
            upwards = np.int64(value * sides[row] > 0)
            pulls[column, upwards] += cost * abs(value)
            entries += 1
    return entries


@kernel
def width(features: FeatureRows) -> Any:
    """Return how many columns both blocks have."""
    return features.dense.shape[1] + features.n_columns


@kernel
def size(features: FeatureRows, document: int) -> Any:
    """Return how many entries a document has, in the dense block and the sparse one."""
    pointers = features.pointers
    return features.dense.shape[1] + pointers[document + 1] - pointers[document]


@kernel
def entry(features: FeatureRows, document: int, at: int) -> Any:
    """Return the column and the value of an entry, those of the dense block first."""
    n_dense = features.dense.shape[1]
    if at < n_dense:
        return np.int64(at), features.dense[document, at]
    position = features.pointers[document] + at - n_dense
    return np.int64(features.columns[position]) + n_dense, features.values[position]


@kernel
def _parted(
    features: FeatureRows, members: Array, columns: Array, weights: Array, lookup: Array
) -> int:
    """Put the documents of side -1 before those of side 1, in place, each in their order; return
    how many they are.
    """
    for at in range(len(columns)):
        lookup[columns[at]] = weights[at]
    behind = np.empty(len(members), np.int32)
    left = 0
    right = 0
    for document in members:
        total = 0.0
        for at in range(size(features, document)):
            column, value = entry(features, document, at)
            total += np.float64(lookup[column]) * value
        if total + weights[-1] > 0:
            behind[right] = document
            right += 1
        else:
            members[left] = document
            left += 1
    for at in range(right):
        members[left + at] = behind[at]
    for column in columns:
        lookup[column] = 0
    return left


@kernel
def _fill_leaf(
    members: Array,  # IN  documents of the leaf
    labels: DocumentLabels,  # IN
    most: int,  # IN  labels that are kept
    sums: Array,  # buffer (n_labels,) zeros before and after
    leaf_labels: Array,  # OUT from ``start`` on
    leaf_gains: Array,  # OUT
    start: int,  # IN
) -> int:
    """Append the ``most`` labels with the largest mean gain over the documents, best first; return
    where they end.
    """
    pointers = labels.pointers
    labels_of_documents = labels.labels
    gains = labels.gains
    filled = start
    for document in members:
        for at in range(pointers[document], pointers[document + 1]):
            label = labels_of_documents[at]
            if sums[label] == 0:
                leaf_labels[filled] = label
                filled += 1
            sums[label] += gains[at]
    means = np.empty(filled - start, np.float32)
    bits = means.view(np.int32)
    keys = np.empty(filled - start, np.int64)
    for position in range(len(keys)):
        label = leaf_labels[start + position]
        means[position] = sums[label] / len(members)
        keys[position] = falling_key(bits[position], label)
        sums[label] = 0
    keys.sort()
    end = min(start + most, filled)
    for position in range(end - start):
        leaf_labels[start + position] = keys[position] & LOW
        bits[position] = 0x7FFFFFFF - (keys[position] >> 32)
        leaf_gains[start + position] = means[position]
    return end
