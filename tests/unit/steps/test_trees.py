from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import longtail as lt
from longtail.features.label_features import label_features
from longtail.methods import configure
from longtail.rankers.base import TrainingPoints
from longtail.rankers.tree import TreeFamily
from longtail.steps import trees
from longtail.steps.run import Run
from longtail.steps.text import text_features
from longtail.steps.work import Work
from longtail.tree.cluster import build_tree


def test_trees_of_several_seeds_share_the_features_of_labels(monkeypatch):
    words = [f"word{number}" for number in range(24)]
    documents = lt.Dataset.of(
        [f"{word} {words[at // 2]}" for at, word in enumerate(words)], [[word] for word in words]
    )
    run = Run(configure("parabel", None, {"tree": {"leaf_size": 4, "branching": 2}}), Work())
    vectoriser, features = text_features(documents, run)
    made = []

    def counted(*arguments):
        made.append(label_features(*arguments))
        return made[-1]

    monkeypatch.setattr(trees, "label_features", counted)
    found = trees.label_trees(
        documents, features, vectoriser, run, {"tree-0": 0, "tree-1": 1, "tree-2": 2}
    )
    assert len(made) == 1
    for seed, tree in enumerate(found):
        assert tree == build_tree(made[0], documents.label_counts, run.config.tree, seed)
    assert not np.array_equal(found[0].order, found[1].order)


# texts with one label each of its own, and one that labels with other words have as well
TEXTS = [
    ("apple", "red", "warm"),
    ("stone", "ruby", "warm"),
    ("apple", "blue", "cold"),
    ("stone", "sky", "cold"),
]


def labels_of_nodes(tree, documents):
    """Return the labels of each node of the first level."""
    offsets = tree.offsets[0]
    labels = [documents.labels.ids[label] for label in tree.order]
    return {frozenset(labels[first:last]) for first, last in pairwise(offsets)}


def documents_of_texts():
    return lt.Dataset.of(
        [f"{text[0]} seen{number}" for number in range(3) for text in TEXTS],
        [text[1:] for _ in range(3) for text in TEXTS],
    )


def fitted(*kinds, seed=1):
    """Return an ensemble of trees of two nodes of three labels, each by its kind of features."""
    settings = {
        "seed": seed,
        "calibration": {"method": "none"},
        "tree": {"kind": "balanced", "branching": 2, "leaf_size": 3},
        "ranker": {"trees": len(kinds)},
        "label_features": {"tree_kinds": kinds},
    }
    return lt.Longtail("bonsai", **settings).fit(documents_of_texts())


def trees_of_kinds(*kinds, seed=1):
    """Return the labels of the nodes of each tree."""
    rankers = fitted(*kinds, seed=seed).model.rankers
    return [labels_of_nodes(ranker.tree, documents_of_texts()) for ranker in rankers]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_labels_with_other_words_and_common_neighbours(seed):
    """``output`` joins labels that stand beside a third one, whatever their words; ``pifa`` joins
    those with the same words.
    """
    (by_words, by_labels) = trees_of_kinds("pifa", "output", seed=seed)
    assert by_labels == {frozenset({"red", "ruby", "warm"}), frozenset({"blue", "sky", "cold"})}
    for node in by_words:
        assert {"red", "blue"} <= node or {"ruby", "sky"} <= node


def test_each_tree_has_its_kind(monkeypatch):
    made = []

    def noted(features, label_matrix, kind, *others):
        made.append(kind)
        return label_features(features, label_matrix, kind, *others)

    monkeypatch.setattr(trees, "label_features", noted)
    mixed = trees_of_kinds("joint", "pifa", "pifa", "output")
    assert made == ["joint", "pifa", "output"]  # neighbours share the features of labels
    for number, kind in enumerate(("joint", "pifa", "pifa", "output")):
        assert mixed[number] == trees_of_kinds(*[kind] * 4)[number]
    assert mixed[1] != mixed[3]


def test_kinds_are_stored_with_the_model(tmp_path):
    model = fitted("output", "pifa")
    model.save(tmp_path / "model")
    loaded = lt.load(tmp_path / "model")
    assert loaded.config.label_features.tree_kinds == ("output", "pifa")
    texts = [text[0] for text in TEXTS]
    assert (loaded.predict(texts).matrix != model.predict(texts).matrix).nnz == 0


def test_one_kind_for_all_trees_is_that_kind_for_each():
    documents = lt.sample()[0].take(np.arange(120))
    shape = {"branching": 4, "leaf_size": 10}

    def orders(**kinds):
        config = configure("bonsai", None, {"label_features": kinds, "tree": shape})
        run = Run(config, Work())
        vectoriser, features = text_features(documents, run)
        points = TrainingPoints(documents, features, vectoriser)
        return [tree.order.tolist() for tree in TreeFamily().label_trees(points, run)]

    for kind in ("pifa", "output", "joint"):
        assert orders(kind=kind) == orders(tree_kinds=[kind] * 3)
    assert orders(kind="pifa") == orders()


def test_a_given_tree_needs_no_features_of_labels(monkeypatch):
    documents = lt.Dataset.of(["one", "two", "three"], [["a"], ["b"], ["c"]])
    run = Run(configure("xr-linear"), Work(), {"a": ["x"], "b": ["x"], "c": ["y"]})
    vectoriser, features = text_features(documents, run)
    monkeypatch.setattr(trees, "label_features", None)
    [tree] = trees.label_trees(documents, features, vectoriser, run, {"tree-0": 0})
    assert tree.widths == (2, 3)
