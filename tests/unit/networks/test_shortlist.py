"""Shortlists on random unbalanced trees; the oracle is sets of nodes in plain Python (eq. 1–3 of
CascadeXML).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from longtail.networks.shortlist import Shortlist, TreeTables, best_nodes
from longtail.tree.tree import LabelTree


class Case(NamedTuple):
    tree: LabelTree
    truth: list[dict[int, float]]  # position of a label → its target, for each document
    chance: np.random.Generator


@st.composite
def cases(draw):
    """Draw a tree of 1 to 4 levels, whose nodes have 1 to 4 children, and documents of 0 to all
    labels.
    """
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    below = draw(st.integers(1, 3))
    offsets = []
    for _ in range(draw(st.integers(0, 3))):
        ends = np.cumsum(chance.integers(1, 5, below))
        offsets.append(np.concatenate([[0], ends]).astype(np.int64))
        below = int(ends[-1])
    tree = LabelTree(chance.permutation(below).astype(np.int32), tuple(offsets))
    counts = draw(st.lists(st.integers(0, below), min_size=1, max_size=5))
    truth = [
        {
            int(label): float(chance.choice([0.25, 0.5, 1]))
            for label in np.sort(chance.permutation(below)[:count])
        }
        for count in counts
    ]
    return Case(tree, truth, chance)


def padded(rows, fill, dtype, extra=0):
    """Return rows of unlike length as a tensor; ``extra`` columns of padding more than are needed."""
    made = np.full((len(rows), max(map(len, rows)) + extra), fill, np.float64)
    for at, row in enumerate(rows):
        made[at, : len(row)] = row
    return torch.tensor(made, dtype=dtype)


def tensors(truth, extra=0):
    positives = padded([list(own) for own in truth], -1, torch.int32, extra)
    return positives, padded([list(own.values()) for own in truth], 0, torch.float32, extra)


def covered(tree, level, own):
    """Return R^(t)(y) with the largest target below each node."""
    found = {}
    for position, value in own.items():
        node = tree.ancestors(int(tree.order[position]))[level]
        found[node] = max(found.get(node, 0), value)
    return found


def some_nodes(case, level, n):
    """Return for each document some nodes of a level, in any order, as a list and as a tensor with
    padding.
    """
    width = case.tree.widths[level]
    rows = [
        case.chance.permutation(width)[: case.chance.integers(0, width + 1)].tolist()
        for _ in range(n)
    ]
    nodes = padded(rows, -1, torch.int32, extra=1)
    places = case.chance.permuted(np.tile(np.arange(nodes.shape[1]), (n, 1)), axis=1)
    return rows, nodes.gather(1, torch.from_numpy(places))  # padding may stand anywhere


def held(nodes):
    """Return the nodes of a row, each only once."""
    found = [node for node in nodes.tolist() if node >= 0]
    assert len(found) == len(set(found))
    assert all(node == -1 for node in nodes.tolist() if node < 0)
    return set(found)


class TestTables:
    @given(cases())
    def test_cover(self, case):
        tables = TreeTables(case.tree)
        (positives, values) = tensors(case.truth, extra=case.chance.integers(0, 3))
        for level in range(case.tree.n_levels):
            nodes, targets = tables.cover(level, positives, values)
            assert nodes.shape == targets.shape == positives.shape
            for own, row, target in zip(case.truth, nodes, targets, strict=True):
                expected = covered(case.tree, level, own)
                held(row)
                assert (
                    dict(zip(row[: len(expected)].tolist(), target.tolist(), strict=False))
                    == expected
                )
                assert (row[len(expected) :] == -1).all()
                assert (target[len(expected) :] == 0).all()

    @given(cases())
    def test_refine(self, case):
        tables = TreeTables(case.tree)
        for level in range(case.tree.n_levels - 1):
            rows, nodes = some_nodes(case, level, 3)
            for row, children in zip(rows, tables.refine(level, nodes), strict=True):
                assert held(children) == {
                    child for node in row for child in case.tree.children(level, node)
                }

    @given(cases())
    def test_children_stand_where_their_parent_does(self, case):
        tables = TreeTables(case.tree)
        for level in range(case.tree.n_levels - 1):
            _, nodes = some_nodes(case, level, 2)
            children = tables.refine(level, nodes).view(2, nodes.shape[1], -1)
            assert children.shape[2] == tables.most_children[level]
            for node, own in zip(nodes.flatten().tolist(), children.flatten(0, 1), strict=True):
                assert held(own) == (set(case.tree.children(level, node)) if node >= 0 else set())

    @given(cases())
    def test_all_nodes(self, case):
        tables = TreeTables(case.tree)
        shortlist = tables.all_nodes(0, *tables.cover(0, *tensors(case.truth)))
        assert shortlist.nodes is None
        assert shortlist.targets.shape == (len(case.truth), case.tree.widths[0])
        for own, targets in zip(case.truth, shortlist.targets, strict=True):
            expected = covered(case.tree, 0, own)
            assert targets.tolist() == [
                expected.get(node, 0) for node in range(case.tree.widths[0])
            ]
        assert shortlist.counted(shortlist.targets).all()

    @given(cases())
    @settings(max_examples=200)
    def test_refine_with_is_the_union(self, case):
        tables = TreeTables(case.tree)
        documents = len(case.truth)
        for level in range(case.tree.n_levels - 1):
            rows, top = some_nodes(case, level, documents)
            y, values = tables.cover(level + 1, *tensors(case.truth))
            shortlist = tables.refine_with(level, top, y, values)
            counted = shortlist.counted(shortlist.targets)
            for at, (row, own) in enumerate(zip(rows, case.truth, strict=True)):
                expected = covered(case.tree, level + 1, own)
                nodes = shortlist.nodes[at]
                targets = shortlist.targets[at]
                children = {child for node in row for child in case.tree.children(level, node)}
                assert held(nodes) == children | set(expected)
                assert counted[at].sum() == len(children | set(expected))
                assert all(targets[nodes < 0] == 0)
                found = dict(zip(nodes.tolist(), targets.tolist(), strict=True))
                assert {node: target for node, target in found.items() if target} == expected

    def test_of_labels_alone(self):
        tables = TreeTables(LabelTree(np.arange(3, dtype=np.int32), ()))
        positives, values = tensors([{0: 1.0, 2: 0.5}, {}])
        assert tables.cover(0, positives, values)[0] is positives
        assert tables.all_nodes(0, positives, values).targets.tolist() == [[1, 0, 0.5], [0, 0, 0]]


class TestBest:
    @given(st.integers(0, 2**32), st.integers(1, 12), st.booleans())
    def test_are_the_best(self, seed, k, ordered):
        chance = np.random.default_rng(seed)
        nodes = torch.from_numpy(chance.permuted(np.tile(range(7), (4, 1)), axis=1))
        nodes[torch.from_numpy(chance.random((4, 7)) < 0.4)] = -1
        scores = torch.from_numpy(chance.permutation(28).reshape(4, 7) - 14.0)
        best, at = best_nodes(scores, nodes.int(), k, ordered)
        assert best.shape == at.shape == (4, min(k, 7))
        for row in range(4):
            known = [
                (-float(scores[row, slot]), int(nodes[row, slot]))
                for slot in range(7)
                if nodes[row, slot] >= 0
            ]
            expected = [node for _, node in sorted(known)[:k]]
            found = best[row].tolist()
            assert held(best[row]) == set(expected)
            assert found.count(-1) == min(k, 7) - len(expected)
            assert nodes[row][at[row]].tolist() == found
            if ordered:
                assert found[: len(expected)] == expected

    def test_of_all_nodes(self):
        best, at = best_nodes(torch.tensor([[0.5, -1.0, 2.0]]), None, 2, ordered=True)
        assert best.dtype == torch.int32
        assert best.tolist() == at.tolist() == [[2, 0]]
        assert best_nodes(torch.tensor([[0.5, -1.0]]), None, 9)[0].shape == (1, 2)

    def test_padding_never_wins(self):
        best, _ = best_nodes(
            torch.tensor([[9.0, -5.0, -6.0]]), torch.tensor([[-1, 4, 7]], dtype=torch.int32), 2
        )
        assert set(best[0].tolist()) == {4, 7}


def test_counted():
    nodes = torch.tensor([[3, -1], [-1, -1]], dtype=torch.int32)
    assert Shortlist(nodes, torch.zeros(2, 2)).counted(torch.zeros(2, 2)).tolist() == [
        [True, False],
        [False, False],
    ]
