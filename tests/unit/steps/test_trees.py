from __future__ import annotations

import numpy as np

import longtail as lt
from longtail.features.label_features import label_features
from longtail.methods import configure
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


def test_a_given_tree_needs_no_features_of_labels(monkeypatch):
    documents = lt.Dataset.of(["one", "two", "three"], [["a"], ["b"], ["c"]])
    run = Run(configure("xr-linear"), Work(), {"a": ["x"], "b": ["x"], "c": ["y"]})
    vectoriser, features = text_features(documents, run)
    monkeypatch.setattr(trees, "label_features", None)
    [tree] = trees.label_trees(documents, features, vectoriser, run, {"tree-0": 0})
    assert tree.widths == (2, 3)
