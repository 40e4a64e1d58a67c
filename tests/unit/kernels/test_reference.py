"""The fast kernels against training and searching a label tree in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from solver_problems import documents_of, problem_of

from longtail.config import Config, Ranker, Search
from longtail.features.matrix import Features
from longtail.kernels import reference
from longtail.kernels.solvers import DualHinge, solve_hinge
from longtail.rankers.tree import fit_ranker
from longtail.steps.work import Work
from longtail.tree.tree import LabelTree

COLUMNS, LABELS = 15, 9
# nodes of 3, 2, 2 and 2 labels under two nodes
OFFSETS = (np.array([0, 2, 4], np.int64), np.array([0, 3, 5, 7, 9], np.int64))
TREE = [
    [np.arange(2)],
    [np.arange(*ends) for ends in ((0, 2), (2, 4))],
    [np.arange(*ends) for ends in ((0, 3), (3, 5), (5, 7), (7, 9))],
]
RANKER = Ranker(tolerance=1e-5, prune=0.0, max_passes=3000, weights="float32", cost_sensitive=False)


def documents(seed, n=60):
    """Return features with a constant column, and labels that depend on them; document 3 has none."""
    random = np.random.default_rng(seed)
    x = random.random((n, COLUMNS)) * (random.random((n, COLUMNS)) < 0.4)
    margins = x @ random.normal(size=(COLUMNS, LABELS)) + 0.3 * random.normal(size=(n, LABELS))
    y = margins > np.quantile(margins, 0.75, axis=0)
    y[3] = False
    return np.hstack([x, np.ones((n, 1))]).astype(np.float32).astype(np.float64), y


def fitted(x, y, **changed):
    """Return the fast ranker of the tree."""
    ranker = Ranker(**{name: getattr(RANKER, name) for name in RANKER.__struct_fields__} | changed)
    features = Features.of(sparse.csr_array(x[:, :-1]))
    labels = sparse.csr_array(y.astype(np.float32))
    tree = LabelTree(np.arange(LABELS, dtype=np.int32), OFFSETS)
    search = Search(score="hinge-3")
    return features, fit_ranker(
        features, labels, tree, Config(ranker=ranker, search=search), 0, Work()
    )


def weights_of(chunks):
    """Return the (nodes, columns) weights of a level, the bias last."""
    weights = np.zeros((chunks.n_nodes, COLUMNS + 1))
    for node in range(chunks.n_nodes):
        columns, values, _ = chunks.weights(node)
        weights[node, columns] = values
    return weights


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(3, 40), st.sampled_from([0.1, 0.5, 1.0]))
def test_the_solvers_reach_the_same_objective(seed, m, cost):
    random = np.random.default_rng(seed)
    x = np.round(random.normal(size=(m, 6)) * (random.random((m, 6)) < 0.6), 2)
    y = np.where(random.random(m) < 0.4, 1.0, -1.0)
    rows = sparse.csr_array(x.astype(np.float32))
    targets = np.zeros((m, 8), np.float32)
    targets[:, 0] = 0.5 * y / cost
    out = np.zeros((6 + 1) * 8, np.float32)
    block = documents_of(rows, np.zeros((m, 0), np.float32), 1.0)
    solve_hinge(DualHinge(1e-5, 3000), problem_of(block, targets.ravel(), 1), out)
    with_constant = np.hstack([rows.toarray().astype(np.float64), np.ones((m, 1))])
    least = reference.objective(
        reference.solve_svm(with_constant, y, cost, 1e-8), with_constant, y, cost
    )
    found = reference.objective(out.reshape(-1, 8)[:, 0].astype(np.float64), with_constant, y, cost)
    assert found == pytest.approx(least, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_has_the_same_weights(seed):
    x, y = documents(seed)
    _, ranker = fitted(x, y)
    expected = reference.train_tree(x, y, TREE, cost=1.0, tolerance=1e-7, threshold=0.0)
    for chunks, weights in zip(ranker.levels, expected, strict=True):
        np.testing.assert_allclose(weights_of(chunks), weights, atol=2e-3)


def test_the_same_weights_are_pruned():
    x, y = documents(0)
    _, ranker = fitted(x, y, prune=0.3)
    expected = reference.train_tree(x, y, TREE, cost=1.0, tolerance=1e-7, threshold=0.3)
    for chunks, weights in zip(ranker.levels, expected, strict=True):
        found = weights_of(chunks)
        near = np.abs(np.abs(weights + found) / (1 + (weights * found != 0)) - 0.3) < 5e-3
        assert (((found != 0) == (weights != 0)) | near).all()
        assert (weights[:, -1] != 0).all()
        assert (weights == 0).any()


@pytest.mark.parametrize("beam_size", [1, 2, 3, 9])
@pytest.mark.parametrize(("score", "power"), [("hinge-2", 2), ("hinge-3", 3)])
def test_a_search_finds_the_same_labels(beam_size, score, power):
    x, y = documents(1)
    features, ranker = fitted(x, y)
    weights = [weights_of(chunks) for chunks in ranker.levels]
    found = ranker.search(features, Search(beam_size=beam_size, score=score), beam_size)
    for row in range(len(x)):
        labels, scores = reference.search_tree(x[row], TREE, weights, beam_size, power)
        start, end = found.indptr[row : row + 2]
        assert found.indices[start:end].tolist() == labels.tolist()
        np.testing.assert_allclose(found.data[start:end], scores, rtol=1e-4, atol=1e-7)


def test_two_means_is_balanced_and_parts_what_is_far_apart():
    random = np.random.default_rng(0)
    rows = np.repeat(np.eye(2, 8), [6, 7], axis=0) + 0.01 * random.normal(size=(13, 8))
    right = reference.two_means(rows, random)
    assert abs(int(right.sum()) - 6.5) == 0.5
    sides = right[:6].mean(), right[6:].mean()
    assert min(sides) < 0.2
    assert max(sides) > 0.8


@pytest.mark.parametrize("n_labels", [1, 4, 5, 23])
def test_a_built_tree_leads_to_each_label_once(n_labels):
    random = np.random.default_rng(n_labels)
    tree = reference.build_tree(random.normal(size=(n_labels, 4)), 4, random)
    above = 1
    for level in tree:
        assert len(level) == above
        nodes = np.concatenate(level)
        assert sorted(nodes.tolist()) == list(range(len(nodes)))
        above = len(nodes)
    assert above == n_labels
    assert max(len(labels) for labels in tree[-1]) <= 4
