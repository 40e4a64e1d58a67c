"""Linear classifiers on the vectors of a network that ranks, in its place
(``cascade.combine=only``).
"""

from __future__ import annotations

import numpy as np
import pytest

from folder_contents import contents

pytest.importorskip("torch")
pytest.importorskip("transformers")

import longtail as lt
from longtail.errors import ConfigError, UsageError
from longtail.models.model_card import model_card
from longtail.models.ranking_model import members_k
from longtail.networks.label_vectors import LABEL_VECTORS, LabelVectors
from longtail.pipeline import predict
from longtail.server.label_path import label_path
from tiny_encoder import write_sample

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH = 16
TRAINING = {"epochs": 1, "batch_size": 32, "warmup_epochs": 0.5, "cooldown_epochs": 0.5}
TREE = {"levels": [8, 32]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("data"), 200, 60, width=WIDTH)


@pytest.fixture(scope="module")
def data(files):
    train = lt.read(files / "train.jsonl")
    return train, lt.read(files / "test.jsonl", labels=train.labels, unknown="drop")


def settings_of(files, method, combine="only", **groups):
    """Return the settings of a method, small; ``groups`` are laid over them."""
    small = {
        "max_tokens": 24,
        **({"width": WIDTH, "min_count": 1} if method == "attentionxml" else {}),
    }
    if method != "attentionxml":
        small["name"] = str(files / "encoder")
    member = {
        "encoder": small,
        "training": TRAINING,
        "cascade": {"combine": combine},
        "calibration": {"method": "none"},
        "ranker": {"trees": 1},
    }
    return {name: {**member.get(name, {}), **groups.get(name, {})} for name in {**member, **groups}}


CASES = {
    "one layer": ("cascadexml", {"tree": TREE}),
    "two layers": ("cascadexml", {"tree": TREE, "cascade": {"layers": [[1], [2], [2, 3]]}}),
    "side by side": ("lightxml", {"cascade": {"last_level": "full"}}),
    "bottleneck": (
        "lightxml",
        {"cascade": {"last_level": "shortlist", "levels": [16], "bottleneck": 10}},
    ),
    "states": ("attentionxml", {"attention": {"epochs": [1, 1], "levels": [16]}}),
    "one-vs-all": (
        "cascadexml",
        {"tree": TREE, "cascade": {"classifier": "dismec", "warm_start": True}},
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, files, data):
    """A model whose classifiers rank alone, and one of the same network where both rank."""
    method, groups = CASES[request.param]
    fitted = []
    for combine in ("only", "always"):
        member = {**groups, "cascade": {**groups.get("cascade", {}), "combine": combine}}
        fitted.append(lt.Longtail(method, **settings_of(files, method, **member)).fit(data[0]))
    return fitted


class TestModel:
    def test_scores_are_those_of_the_classifiers_beside_the_network(self, case, data):
        only, both = case
        assert only.model.facts.network_share == 0
        assert only.model.neural_ranker is None
        assert only.model.facts.held_out == 0
        network, linear = both.model.both_scores(data[1], 5, both.model.config.search)
        result = only.model.raw_scores(
            data[1], members_k(5, data[0].n_labels), only.model.config.search
        )
        np.testing.assert_array_equal(result.toarray(), linear.toarray())
        assert not np.array_equal(result.toarray(), network.toarray())

    def test_vectors_are_the_networks(self, case, data):
        only, both = case
        assert isinstance(only.model.network.network, LabelVectors)
        np.testing.assert_array_equal(only.embed(data[1]), both.embed(data[1]))

    def test_folder_has_no_classifiers_of_the_network(self, case, data, tmp_path):
        only, _ = case
        only.save(tmp_path / "m")
        assert LABEL_VECTORS in contents(tmp_path / "m")
        assert not [
            name
            for name in contents(tmp_path / "m")
            if name.startswith(("head-", "attention-", "tree-net"))
        ]
        loaded = lt.load(tmp_path / "m")
        assert (loaded.predict(data[1], 5).matrix != only.predict(data[1], 5).matrix).nnz == 0
        np.testing.assert_array_equal(loaded.embed(data[1]), only.embed(data[1]))
        loaded.save(tmp_path / "again")
        assert contents(tmp_path / "again") == contents(tmp_path / "m")

    def test_what_a_person_asks_of_a_model(self, case, data, tmp_path):
        only, both = case
        assert "P@1" in only.evaluate(data[1]).metrics
        explanation = only.explain(data[1].texts[0], data[0].labels.ids[0])
        assert explanation.network_share == 0
        assert len(explanation.steps) == only.model.rankers[0].tree.n_levels
        assert "its vectors are features" in model_card(only.model)
        ensemble = lt.ensemble([only, both])
        assert ensemble.predict(data[1], 3).matrix.nnz == 3 * len(data[1])
        levels = label_path(only.model, data[1].texts[0], data[0].labels.ids[0], 3)
        tree = only.model.rankers[0].tree
        assert [len(level.nodes) > 0 for level in levels] == [True] * (
            tree.n_levels if tree.n_levels > 1 else 0
        )

    def test_from_the_command_line(self, files, run, tmp_path):
        groups = {"encoder.name": files / "encoder", "encoder.max_tokens": 24, "training.epochs": 1}
        groups |= {"cascade.combine": "only", "ranker.trees": 1, "tree.levels": "[8, 32]"}
        sets = [word for name, value in groups.items() for word in ("--set", f"{name}={value}")]
        model = tmp_path / "m"
        train = run(
            "-q", "train", files / "train.jsonl", "--method", "cascadexml", "-o", model, *sets
        )
        assert (train.code, train.err) == (0, "")
        assert "its vectors are features" in run("info", model).out
        predicted = run(
            "predict", model, files / "test.jsonl", "-k", "2", "-o", tmp_path / "p.jsonl"
        )
        assert (predicted.code, len((tmp_path / "p.jsonl").read_text().splitlines())) == (0, 60)
        assert "P@1" in run("evaluate", model, files / "test.jsonl").out
        assert run("export", model, "-o", tmp_path / "encoder.onnx").code == 0


class TestSettings:
    def test_no_document_is_held_out_for_a_share(self, files, data, monkeypatch):
        monkeypatch.setattr(
            "longtail.steps.held_out.best_share", lambda *_: pytest.fail("a share was measured")
        )
        groups = settings_of(files, "cascadexml", tree=TREE)
        result = lt.Longtail("cascadexml", **groups).fit(data[0], valid=data[1])
        assert result.model.facts.network_share == 0
        assert result.model.rankers

    def test_tf_idf_alone_has_no_use_for_a_network(self, files, data):
        groups = settings_of(files, "cascadexml", tree=TREE) | {"features": "tfidf"}
        with pytest.raises(ConfigError, match=r"^features: found tfidf with cascade\.combine=only"):
            lt.Longtail("cascadexml", **groups).fit(data[0])

    def test_dense_vectors_alone(self, files, data):
        groups = settings_of(files, "cascadexml", tree=TREE) | {"features": "dnn"}
        model = lt.Longtail("cascadexml", **groups).fit(data[0]).model
        assert (model.facts.n_columns, model.facts.dense_width) == (0, WIDTH)
        assert predict(model, data[1], 3).matrix.nnz == 3 * len(data[1])

    def test_labels_cannot_be_added(self, data):
        groups = {
            "encoder": {"name": "learned", "width": WIDTH, "min_count": 1},
            "cascade": {"combine": "only"},
        }
        fitted = lt.Longtail("decaf", training={**TRAINING, "epochs": 2}, **groups).fit(data[0])
        with pytest.raises(UsageError, match=r"in the network's place.* cascade\.combine=never$"):
            lt.extend(fitted, lt.Labels.of(["a new one"]))
