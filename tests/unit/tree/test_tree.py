"""The label tree as ranges: down, up, coarser label matrices, and what is no tree."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.tree.tree import LabelTree


def tree_of(order, *offsets):
    return LabelTree(
        np.array(order, np.int32), tuple(np.array(level, np.int64) for level in offsets)
    )


@pytest.fixture
def tree():
    """2 → 3 → 5: nodes 0 and 1 hold (0, 1) and (2,); these hold labels (4, 0), (2,) and (1, 3)."""
    return tree_of([4, 0, 2, 1, 3], [0, 2, 3], [0, 2, 3, 5])


@st.composite
def trees(draw):
    widths = sorted(draw(st.sets(st.integers(1, 30), min_size=1, max_size=4)))
    order = draw(st.permutations(range(widths[-1])))
    offsets = []
    for coarse, fine in pairwise(widths):
        cuts = draw(st.sets(st.integers(1, fine - 1), min_size=coarse - 1, max_size=coarse - 1))
        offsets.append([0, *sorted(cuts), fine])
    return tree_of(order, *offsets)


def test_shape(tree):
    assert (tree.n_labels, tree.n_levels, tree.widths) == (5, 3, (2, 3, 5))
    assert repr(tree) == "LabelTree(2 → 3 → 5)"


def test_down_and_up(tree):
    assert tree.children(0, 0) == range(0, 2)
    assert tree.children(1, 2) == range(3, 5)
    assert tree.refine(1, np.array([2, 0])).tolist() == [3, 4, 0, 1]
    assert tree.refine(0, []).tolist() == []
    assert tree.parents(1).tolist() == [0, 0, 1]
    assert tree.parents(2).tolist() == [0, 0, 1, 2, 2]
    assert tree.ancestors(3) == [1, 2, 4]
    with pytest.raises(IndexError, match="level 0"):
        tree.parents(0)


@given(trees(), st.data())
@settings(deadline=None, max_examples=60)
def test_coarser_label_matrices_count_the_labels_below(tree, data):
    rows = data.draw(st.lists(st.sets(st.integers(0, tree.n_labels - 1)), max_size=5))
    matrix = np.zeros((len(rows), tree.n_labels), np.float32)
    for row, labels in enumerate(rows):
        matrix[row, list(labels)] = 1
    before = sparse.csr_array(matrix)
    coarse = tree.coarsen(before)
    assert [level.shape[1] for level in coarse] == list(tree.widths)
    assert all(level.has_canonical_format for level in coarse)
    for level in range(tree.n_levels):
        expected = np.zeros((len(rows), tree.widths[level]))
        for label in range(tree.n_labels):
            expected[:, tree.ancestors(label)[level]] += matrix[:, label]
        assert np.array_equal(coarse[level].toarray(), expected)
    assert np.array_equal(before.toarray(), matrix)  # the caller's is as it was


@given(trees())
@settings(deadline=None, max_examples=60)
def test_every_way_through_the_tree_agrees(tree):
    tree.check()
    assert LabelTree.from_arrays(tree.to_arrays()) == tree
    for label in range(tree.n_labels):
        path = tree.ancestors(label)
        assert tree.order[path[-1]] == label
        for level, (node, child) in enumerate(pairwise(path)):
            assert child in tree.children(level, node)
            assert tree.parents(level + 1)[child] == node
    for level in range(tree.n_levels - 1):
        everything = tree.refine(level, np.arange(tree.widths[level]))
        assert everything.tolist() == list(range(tree.widths[level + 1]))


def test_describe(tree):
    first, second = tree.describe()
    assert first == {
        "level": 0, "nodes": 2, "children_min": 1, "children_mean": 1.5, "children_max": 2,
        "labels_min": 2, "labels_mean": 2.5, "labels_max": 3,
    }  # fmt: skip
    assert (second["labels_min"], second["labels_max"]) == (1, 2)
    assert tree_of([0, 1]).describe() == []


@pytest.mark.parametrize(
    ("order", "offsets", "said"),
    [
        ([0, 0, 1], [], "order"),
        ([0, 3, 1], [], "order"),
        ([0, -1, 1], [], "order"),
        ([0, 1, 2], [[0, 2]], "level 0"),
        ([0, 1, 2], [[1, 3]], "level 0"),
        ([0, 1, 2], [[]], "level 0"),
        ([0, 1, 2], [[0, 0, 3]], "without children"),
        ([0, 1, 2], [[0, 2, 1, 3]], "without children"),
        ([0, 1, 2], [[0, 1, 3], [0, 3]], "level 0"),
    ],
)
def test_what_is_no_tree_is_refused(order, offsets, said):
    with pytest.raises(ValueError, match=said):
        LabelTree.from_arrays(tree_of(order, *offsets).to_arrays())


def test_arrays_that_are_missing_or_of_another_type_are_refused(tree):
    arrays = tree.to_arrays()
    with pytest.raises(ValueError, match="order: found int64"):
        LabelTree.from_arrays(arrays | {"order": arrays["order"].astype(np.int64)})
    with pytest.raises(ValueError, match="found the arrays"):
        LabelTree.from_arrays(
            {name: array for name, array in arrays.items() if name != "offsets.0"}
        )
    with pytest.raises(ValueError, match="found the arrays"):
        LabelTree.from_arrays({})


def test_equal_trees(tree):
    assert tree == LabelTree.from_arrays(tree.to_arrays())
    assert tree != tree_of([4, 0, 2, 3, 1], [0, 2, 3], [0, 2, 3, 5])
    assert tree != tree_of([4, 0, 2, 1, 3], [0, 2, 3, 5])
    assert tree != tree_of([4, 0, 2, 1, 3], [0, 1, 3], [0, 2, 3, 5])
    assert tree != 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        tree.order = tree.order


def test_a_label_matrix_of_other_labels_is_refused(tree):
    with pytest.raises(ValueError, match="found 4 columns; expected 5"):
        tree.coarsen(sparse.csr_array((2, 4)))


def test_borders():
    made = LabelTree.from_borders(
        np.array([4, 0, 2, 1, 3]), [np.array([0, 3, 5]), np.array([0, 2, 3, 5])]
    )
    assert made == tree_of([4, 0, 2, 1, 3], [0, 2, 3], [0, 2, 3, 5])
    assert made.order.dtype == np.int32
    assert LabelTree.from_borders(np.arange(2), []).widths == (2,)
