"""Trees from label features: their shape, what lies together, edge cases, and the same bytes for
any threads.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.config import Tree
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.tree.cluster import build_tree, level_widths

KINDS = ["balanced", "unbalanced", "random", "frequency"]


def unit_rows(rows, dense=0):
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return Features.of(sparse.csr_array(rows[:, dense:]), rows[:, :dense])


def topics(rng, count, size, dense=0):
    """Return ``count`` × ``size`` labels in random order, each topic with words of its own, and
    each one's topic.
    """
    topic = rng.permutation(np.repeat(np.arange(count), size))
    rows = rng.random((len(topic), count * 8)) * 0.02
    for label, own in enumerate(topic):
        rows[label, own * 8 + rng.permutation(8)[:5]] += 1
    return unit_rows(rows, dense), topic


def tree_of(features, seed=0, counts=None, **options):
    counts = np.arange(len(features)) if counts is None else counts
    tree = build_tree(features, counts, Tree(**options), seed)
    tree.check()
    return tree


def groups(tree, level):
    """Return the labels of each node of a level."""
    at = np.array([tree.ancestors(label)[level] for label in range(tree.n_labels)])
    return [np.flatnonzero(at == node) for node in range(tree.widths[level])]


@pytest.mark.parametrize(
    ("labels", "options", "widths"),
    [
        (110_676, {}, [8, 128, 2048]),  # as PECOS makes it
        (1000, {}, [16]),
        (3000, {}, [2, 32]),
        (100, {}, []),
        (101, {}, [2]),
        (1, {}, []),
        (0, {}, []),
        (3, {"leaf_size": 1}, []),
        (1000, {"leaf_size": 1}, [4, 64]),
        (1000, {"branching": 2}, [2, 4, 8, 16]),
        (1000, {"branching": 3}, [2, 4, 10]),
        (1000, {"branching": 10, "leaf_size": 1}, [10, 100]),
        (1000, {"levels": (7, 50)}, [7, 50]),
        (1000, {"levels": (1, 8, 1000, 5000)}, [8]),
    ],
)
def test_level_widths(labels, options, widths):
    assert level_widths(labels, Tree(**options)) == widths


@pytest.mark.parametrize("kind", ["balanced", "random", "frequency"])
@pytest.mark.parametrize(
    "options",
    [{"levels": (3, 10, 37)}, {"branching": 3, "leaf_size": 4}, {"branching": 4, "leaf_size": 5}],
)
def test_balanced_means_balanced(kind, options):
    features, _ = topics(np.random.default_rng(0), 5, 20)
    tree = tree_of(features, kind=kind, **options)
    assert list(tree.widths[:-1]) == level_widths(100, Tree(**options))
    last = tree.describe()[-1]
    assert last["labels_max"] - last["labels_min"] <= 1
    assert last["labels_max"] <= options.get("leaf_size", 100)
    assert all(row["children_max"] - row["children_min"] <= 1 for row in tree.describe())


@pytest.mark.parametrize("dense", [0, 20, 64])
@pytest.mark.parametrize(("sample", "least"), [(0, 86), (48, 80)])
def test_topics_lie_together(dense, sample, least):
    features, topic = topics(np.random.default_rng(1), 8, 12, dense)
    found = []
    for seed in range(9):  # from random seeds, a topic may be cut in two
        tree = tree_of(features, seed, leaf_size=12, branching=2, sample=sample)
        assert tree.widths == (2, 4, 8, 96)
        found.append(sum(np.bincount(topic[labels]).max() for labels in groups(tree, 2)))
    assert np.median(found) >= least  # of 96 labels


def test_likeness_is_far_above_chance():
    features, _ = topics(np.random.default_rng(2), 16, 25, 40)
    rows = np.hstack([features.dense, features.sparse.toarray()])

    def likeness(tree):
        return sum(
            np.linalg.norm(rows[labels].sum(0)) for labels in groups(tree, tree.n_levels - 2)
        ) / len(rows)

    chance = likeness(tree_of(features, kind="random", leaf_size=25))
    assert likeness(tree_of(features, leaf_size=25)) > chance + 0.3
    assert likeness(tree_of(features, leaf_size=25, sample=100)) > chance + 0.3
    free = {"kind": "unbalanced", "branching": 16, "leaf_size": 25, "max_depth": 1}
    assert likeness(tree_of(features, **free)) > chance + 0.3
    assert (
        likeness(tree_of(features, **free, sample=200)) > likeness(tree_of(features, **free)) - 0.03
    )


def test_frequency_puts_the_most_frequent_first():
    features = Features.of(sparse.csr_array((6, 2)))
    tree = tree_of(
        features, kind="frequency", counts=np.array([1, 5, 2, 5, 9, 0]), leaf_size=2, branching=2
    )
    assert tree.order.tolist() == [4, 1, 3, 2, 0, 5]


def test_random_trees_differ_by_seed():
    features = Features.of(sparse.csr_array((60, 2)))
    assert tree_of(features, kind="random", seed=1) == tree_of(features, kind="random", seed=1)
    assert tree_of(features, kind="random", seed=1) != tree_of(features, kind="random", seed=2)
    assert sorted(tree_of(features, kind="random").order) == list(range(60))


@pytest.mark.parametrize("kind", ["balanced", "unbalanced"])
@pytest.mark.parametrize("sample", [0, 40])
def test_any_threads_give_the_same_tree_and_any_seed_its_own(kind, sample):
    features, _ = topics(np.random.default_rng(3), 10, 30, 5)
    options = {"kind": kind, "leaf_size": 7, "branching": 4, "sample": sample}
    made = []
    for threads in (1, 3):
        with pool.threads(threads):
            made.append(tree_of(features, seed=5, **options))
    assert made[0] == made[1]
    assert made[0] != tree_of(features, seed=6, **options)


def test_unbalanced_nodes_follow_the_topics():
    rng = np.random.default_rng(4)
    rows = np.zeros((100, 30))
    rows[:80, :10] = 1
    rows[80:95, 10:20] = 1
    rows[95:, 20:] = 1
    tree = tree_of(
        unit_rows(rows + 0.01 * rng.random(rows.shape)),
        kind="unbalanced",
        branching=20,
        leaf_size=50,
    )
    topic = np.repeat([0, 1, 2], [80, 15, 5])
    assert all(len(set(topic[labels])) == 1 for labels in groups(tree, 0))
    assert 3 <= tree.widths[0] <= 20


@pytest.mark.parametrize("sample", [0, 30])
def test_unbalanced_depth_ends_at_leaf_size_or_max_depth(sample):
    features, _ = topics(np.random.default_rng(5), 10, 30)
    options = {"kind": "unbalanced", "branching": 2, "leaf_size": 10, "sample": sample}
    for depth in (1, 2, 4):
        tree = tree_of(features, max_depth=depth, **options)
        assert tree.n_levels == depth + 1
        assert all(row["children_max"] <= 2 for row in tree.describe()[:-1])
    tree = tree_of(features, max_depth=30, **options)
    assert tree.describe()[-1]["labels_max"] <= 10
    assert tree.describe()[-1]["children_min"] >= 1
    for level in range(tree.n_levels - 2):  # what is small enough is not cut further
        for node, labels in enumerate(groups(tree, level)):
            assert (len(tree.children(level, node)) == 1) == (len(labels) <= 10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", ["empty", "identical", "random"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_few_and_featureless_labels(kind, content, count):
    rows = {"empty": np.zeros, "identical": np.ones, "random": np.random.default_rng(0).random}[
        content
    ]((count, 4))
    for options in ({}, {"leaf_size": 1}, {"leaf_size": 2, "branching": 5}, {"levels": (2, 100)}):
        tree = tree_of(unit_rows(rows), kind=kind, **options)
        assert sorted(tree.order.tolist()) == list(range(count))
    if count > 2:
        assert tree_of(unit_rows(rows), kind=kind, leaf_size=count).widths == (count,)


@given(
    st.integers(1, 60),
    st.integers(2, 9),
    st.integers(1, 9),
    st.integers(0, 20),
    st.integers(0, 2**63 - 1),
)
@settings(deadline=None, max_examples=40)
def test_every_label_has_its_place(count, branching, leaf_size, sample, seed):
    rng = np.random.default_rng(seed)
    features = unit_rows(rng.random((count, 12)) * (rng.random((count, 12)) < 0.3), 2)
    for kind in ("balanced", "unbalanced"):
        tree = tree_of(
            features, seed, kind=kind, branching=branching, leaf_size=leaf_size, sample=sample
        )
        assert len(tree.order) == count


def test_features_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="not finite"):
        tree_of(Features.of(np.array([[1.0], [np.nan]])))
    with pytest.raises(ValueError, match="not finite"):
        tree_of(Features.of(sparse.csr_array([[1.0], [np.inf]])))
