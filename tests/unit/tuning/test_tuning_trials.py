"""Stages that trials share: a model is the same whatever was trained before it in the same folder."""

from __future__ import annotations

import numpy as np
import pytest

import longtail as lt
from longtail.config import nested
from longtail.methods import METHODS, configure
from longtail.models.model_folder import save_model
from longtail.pipeline import train
from longtail.tuning.trials import SharedStages

DOCUMENTS = lt.sample()[0].take(np.arange(70))
VALID = lt.sample()[0].take(np.arange(90, 110))
BASE = {"tree": {"branching": 3, "leaf_size": 12}, "ranker": {"max_passes": 3}}


class MemoryFolder:
    """Keeps the arrays that a ranker writes into a model folder."""

    def __init__(self):
        self.arrays = {}

    def write_arrays(self, name, arrays):
        self.arrays |= {f"{name} {key}": array for key, array in arrays.items()}


def contents(model):
    """Return every array of a linear model."""
    folder = MemoryFolder()
    for number, ranker in enumerate(model.rankers):
        ranker.write(folder, number)
    assert folder.arrays
    arrays = {
        "counts": model.label_counts,
        **model.vectoriser.to_arrays(),
        **model.calibration.to_arrays(),
        **folder.arrays,
    }
    if model.label_graph is not None:
        arrays["graph"] = model.label_graph.toarray()
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def written(model, place):
    """Return the files of a model."""
    save_model(model, place)
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def trained(stages, method, params, documents=DOCUMENTS):
    base = BASE if METHODS[method].ranker == "tree" else {}
    config = configure(method, None, base, nested(params))
    if stages is not None:
        stages.begin(config)
    return train(documents, config, valid=VALID, stages=stages)


LINEAR = [
    {},
    {"tfidf.0.ngram_max": 2},
    {"tfidf.0.min_df": 2},
    {"tree.branching": 4},
    {"tree.leaf_size": 20},
    {"label_features.kind": "graph"},
    {"label_features.kind": "graph", "label_features.graph_features": 3},
    {"label_features.kind": "graph", "label_features.graph_keep": 2},
    {"label_features.kind": "joint"},
    {"ranker.cost_positive": 4.0},
    {"ranker.trees": 2},
    {"ranker.trees": 2, "label_features.tree_kinds": ["output", "pifa"]},
    {"ranker.negatives": "tfn+man"},
    {"ranker.negatives": "tfn+man", "search.beam_size": 1},
    {"ranker.negatives": "tfn+man", "search.score": "sigmoid"},
    {"search.beam_size": 1},
    {"search.score": "hinge-2"},
    {"calibration.method": "logistic"},
    {"gandalf.use": True},
    {"gandalf.use": True, "label_features.graph_steps": 5},
    {"gandalf.use": True, "seed": 1},
    {"seed": 1},
]
OTHERS = {
    "pfastrexml": [
        {"forest.trees": 2},
        {"forest.trees": 2, "forest.cost": 1.0},
        {"forest.trees": 2, "forest.tail_share": 0.0},
        {"forest.trees": 2, "forest.propensities": False},
        {"forest.trees": 2, "tfidf.0.min_df": 3},
    ],
    "annexml": [
        {"neighbours.learners": 2, "neighbours.part_size": 60, **own}
        for own in (
            {},
            {"neighbours.graph_neighbours": 3},
            {"seed": 1},
            {"neighbours.dimensions": 8},
        )
    ],
    "dismec": [{}, {"ranker.cost_positive": 4.0}, {"tfidf.0.min_df": 3}],
}


@pytest.mark.parametrize(("method", "trials"), [("xr-linear", LINEAR), *OTHERS.items()])
def test_the_same_bytes_as_alone(tmp_path, method, trials):
    with SharedStages(tmp_path / "stages", DOCUMENTS) as stages:
        found = [contents(trained(stages, method, params)) for params in [*trials, trials[0]]]
    for params, shared in zip(trials, found, strict=False):
        assert shared == contents(trained(None, method, params)), params
    assert found[-1] == found[0]


class TestReuse:
    def reused(self, stages, *trials, method="xr-linear"):
        names = []
        for params in trials:
            trained(stages, method, params)
            names.append(stages.reused)
        return names

    def test_what_is_taken_over(self, tmp_path):
        with SharedStages(tmp_path / "stages", DOCUMENTS) as stages:
            first, costs, tree, words, again, beam = self.reused(
                stages,
                {},
                {"ranker.cost_positive": 4.0},
                {"tree.branching": 4},
                {"tfidf.0.min_df": 2},
                {"ranker.cost_positive": 2.0},
                {"ranker.cost_positive": 2.0, "search.beam_size": 2},
            )
        features, both = ["features"], ["features", "tree-0"]
        assert (first, costs, tree, words, again) == ([], both, features, [], both)
        assert beam[:2] == ["features", "tree-0"]
        assert beam[2:] == [f"ranker-0-{level}" for level in range(len(beam) - 2)]
        assert len(beam) > 3

    def test_not_where_it_is_not_wanted(self, tmp_path):
        with SharedStages(tmp_path / "stages", DOCUMENTS, share=False) as stages:
            assert self.reused(stages, {}, {"ranker.cost_positive": 4.0}) == [[], []]

    def test_not_of_other_documents(self, tmp_path):
        with SharedStages(tmp_path / "stages", DOCUMENTS) as stages:
            self.reused(stages, {})
        fewer = DOCUMENTS.take(np.arange(60))
        with SharedStages(tmp_path / "stages", fewer) as stages:
            trained(stages, "xr-linear", {}, fewer)
            assert stages.reused == []

    def test_few_are_kept(self, tmp_path):
        trials = [{"tfidf.0.max_df": 1 - at / 100} for at in range(9)]
        with SharedStages(tmp_path / "stages", DOCUMENTS) as stages:
            self.reused(stages, *trials[:6], trials[0], *trials[6:])
            assert (
                len([path for path in stages.root.iterdir() if path.name.startswith("features-")])
                == 6
            )
            (kept,) = self.reused(stages, trials[0])
            (gone,) = self.reused(stages, trials[1])
        assert "features" in kept  # used not long ago
        assert gone == []


def test_of_networks(tmp_path, one_thread):
    from tiny_encoder import write_encoder

    folder = write_encoder(tmp_path / "encoder", DOCUMENTS.texts, vocabulary=300)
    encoder = {"encoder.name": str(folder), "encoder.max_tokens": 16}
    network = {
        **encoder,
        "training.epochs": 1,
        "training.batch_size": 64,
        "cascade.combine": "never",
    }
    trials = [
        network,
        *({**network, **own} for own in ({"training.head_rate": 1e-2}, {"encoder.max_tokens": 8})),
    ]
    reused = []
    with SharedStages(tmp_path / "stages", DOCUMENTS) as stages:
        for number, params in enumerate(trials):
            found = written(trained(stages, "cascadexml", params), tmp_path / f"s{number}")
            reused.append(stages.reused)
            if number:
                assert found == written(
                    trained(None, "cascadexml", params), tmp_path / f"a{number}"
                ), params
    assert reused == [[], ["features", "tokens", "tree-network"], ["features", "tree-network"]]


def test_of_an_encoder_as_it_is(tmp_path, one_thread):
    from tiny_encoder import write_encoder

    folder = write_encoder(tmp_path / "encoder", DOCUMENTS.texts, vocabulary=300)
    base = {"features": "cat", "encoder.name": str(folder), "encoder.max_tokens": 16}
    with SharedStages(tmp_path / "stages", DOCUMENTS) as stages:
        for params in (base, {**base, "encoder.weight": 1.0}):
            found = contents(trained(stages, "xr-linear", params))
            assert found == contents(trained(None, "xr-linear", params))
        assert stages.reused == ["features", "embeddings"]
