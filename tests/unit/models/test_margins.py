"""Models that rank labels by their margins: predictions, thresholds, shards, explanations,
ensembles.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import special

import longtail as lt
from longtail.data.strings import Strings
from longtail.errors import ConfigError, UsageError
from longtail.methods import configure
from longtail.rankers import ranker_family
from longtail.search.partial_predictions import merge_predictions, write_partial

TREE = {"branching": 4, "leaf_size": 20}


@pytest.fixture(scope="module")
def data():
    train, test = lt.sample()
    return train.take(np.arange(400)), test.take(np.arange(80)), test.take(np.arange(80, 160))


def trained(data, last_level="margin", **settings):
    ranker = {"max_passes": 3, "shard_labels": 60} | settings.pop("ranker", {})
    own = {
        "search": {"last_level": last_level},
        "calibration": {"method": "none"},
        "tree": TREE,
    } | settings
    return lt.Longtail("xr-linear", ranker=ranker, **own).fit(data[0])


@pytest.fixture(scope="module")
def margins(data):
    return trained(data)


@pytest.fixture(scope="module")
def trees(data):
    return trained(data, ranker={"trees": 2, "shard_labels": 0})


def test_scores_are_margins_and_all_come_out(data, margins):
    texts = data[1].texts
    ranked = margins.predict(texts, 30).matrix
    assert (np.diff(ranked.indptr) == 30).all()
    assert (ranked.data < 0).any()
    assert margins.model.missing_score == -1
    by_path = trained(data, "path")
    assert by_path.model.missing_score == 0
    for one, other in zip(
        margins.model.rankers[0].levels[:-1], by_path.model.rankers[0].levels[:-1], strict=True
    ):
        assert all(
            other.to_arrays()[name].tobytes() == array.tobytes()
            for name, array in one.to_arrays().items()
        )


@pytest.mark.parametrize("threshold", [-0.5, 0.3, 1.2])
def test_thresholds_are_in_margins(data, margins, threshold):
    everything = margins.predict(data[1].texts, 20).matrix
    kept = margins.predict(data[1].texts, 20, threshold=threshold).matrix
    assert 0 < kept.nnz < everything.nnz
    assert kept.data.tolist() == everything.data[everything.data >= np.float32(threshold)].tolist()


@pytest.mark.parametrize("threshold", [0.0, -0.5, 0.4])
def test_predictions_of_shards_are_merged_to_those_of_the_whole(data, margins, tmp_path, threshold):
    margins.save(tmp_path / "model")
    shards = margins.model.rankers[0].shards
    assert shards.n_shards > 2
    files = []
    for number in range(shards.n_shards):
        some = lt.load(tmp_path / "model", shards=[number])
        part = some.model.predict_part(data[1], 9, threshold=threshold)
        files.append(tmp_path / f"{number}.jsonl")
        write_partial(part, files[-1])
    merge_predictions(files, tmp_path / "merged.jsonl")
    merged = [json.loads(line) for line in (tmp_path / "merged.jsonl").read_text().splitlines()]
    whole = margins.predict(data[1], 9, threshold=threshold)
    for row, line in enumerate(merged):
        _, labels, scores = whole.line(row)
        assert (line["labels"], line["scores"]) == (labels, scores)


def test_an_explanation_ends_with_the_margin(data, margins, trees):
    for model in (margins, trees):
        text = data[1].texts[3]
        label, _, score = model.predict([text], 1)[0][0]
        found = model.explain(text, label)
        assert found.path_score == pytest.approx(score, abs=1e-3)


def test_trees_give_the_mean_of_their_margins(data, trees):
    texts = data[1].texts
    model = trees.model
    search = model.config.search
    features = model.features(data[1])
    members = [ranker.search(features, search, 100) for ranker in model.rankers]
    total = np.full((80, len(model.labels)), -1.0)
    for member in members:
        for row in range(80):
            own = slice(member.indptr[row], member.indptr[row + 1])
            total[row, member.indices[own]] += (member.data[own] + 1) / 2
    ranked = trees.predict(texts, 5).matrix
    for row in range(80):
        own = slice(ranked.indptr[row], ranked.indptr[row + 1])
        np.testing.assert_allclose(ranked.data[own], np.sort(total[row])[::-1][:5], atol=1e-5)


@pytest.mark.parametrize("method", ["isotonic", "logistic"])
def test_calibrated_margins_are_probabilities(data, method):
    settings = {"calibration": {"method": method, "share": 0.2}}
    ranked = trained(data, **settings).predict(data[1].texts, 5).matrix
    assert ((ranked.data > 0) & (ranked.data < 1)).all()
    assert len(np.unique(ranked.data)) > 5


def test_ensembles_of_margins(data, margins, trees):
    both = lt.ensemble([margins, trees])
    assert both.model.missing_score == -1
    texts = data[1].texts
    total = np.full((80, len(margins.model.labels)), -1.0)
    for member in (margins, trees):
        found = member.predict(texts, 100).matrix
        rows = np.repeat(np.arange(80), np.diff(found.indptr))
        total[rows, found.indices] += (found.data + 1) / 2
    ranked = both.predict(texts, 5).matrix
    np.testing.assert_allclose(
        ranked.data.reshape(80, 5), -np.sort(-total, axis=1)[:, :5], atol=1e-5
    )
    fitted = lt.ensemble([margins, trees], "weights", data[2])
    assert sum(fitted.model.weights) == pytest.approx(1)
    assert 0 < fitted.predict(texts, 1).matrix.data.max() < 1  # calibrated on these documents
    with pytest.raises(
        UsageError, match=r"ranks labels by their margins, and .* by scores from 0 to 1"
    ):
        lt.ensemble([margins, trained(data, "path")])
    lt.ensemble([margins, trained(data, "path")], "rank")


def test_scikit_learn_has_probabilities_of_margins(data):
    from longtail.sklearn import LongtailClassifier

    texts = list(data[0].texts)[:200]
    names = [[str(label) for label in np.unique(row)] for row in np.arange(400).reshape(200, 2) % 7]
    settings = {
        "search": {"last_level": "margin"},
        "calibration": {"method": "none"},
        "tree": {"kind": "flat"},
    }
    model = LongtailClassifier("xr-linear", settings=settings, k=None).fit(texts, names)
    found = model.predict_proba(texts[:10])
    ranked = model.model_.model.raw_scores(
        Strings.of(texts[:10]), 7, model.model_.model.config.search
    )
    assert (ranked.data < 0).any()
    np.testing.assert_allclose(found.toarray(), special.expit(ranked.toarray()), atol=1e-6)


def test_settings_of_levels_are_refused_before_training(data):
    with pytest.raises(
        ConfigError, match=r"ranker.level_costs: found settings for 9 levels; expected \d, .*→"
    ):
        lt.Longtail("xr-linear", ranker={"level_costs": [[1.0, 2.0]] * 9}).fit(data[0])
    with pytest.raises(
        ConfigError, match=r"ranker.level_negatives: found settings for 2 levels; expected 1"
    ):
        lt.Longtail("dismec", ranker={"level_negatives": ["tfn", "man"]}).fit(data[0])
    with pytest.raises(ConfigError, match="last_level=margin"):
        lt.Longtail("xr-linear", search={"last_level": "margin", "exact": True})


def test_label_features_for_another_number_of_trees_are_refused(data):
    kinds = {"tree_kinds": ["pifa", "output"]}
    message = r"tree_kinds: found \['pifa', 'output'\], 2 kinds; expected 3, .*ranker\.trees"
    with pytest.raises(ConfigError, match=message):
        lt.Longtail("bonsai", label_features=kinds).fit(data[0])
    with pytest.raises(ConfigError, match=r"label_features\.tree_kinds.*'input'"):
        lt.Longtail("bonsai", label_features={"tree_kinds": ["input"] * 3})
    network = configure("lightxml", None, {"label_features": kinds, "ranker": {"trees": 2}})
    with pytest.raises(ConfigError, match=r"tree_kinds: .*cascade\.combine=never.*expected \[\]"):
        ranker_family(network).check(network, data[0], None)
    joined = configure(
        "lightxml",
        None,
        {"label_features": kinds, "ranker": {"trees": 2}, "cascade": {"combine": "always"}},
    )
    ranker_family(joined).check(joined, data[0], None)


def test_margins_beside_a_network_are_refused(data):
    def check(config, parents=None):
        ranker_family(config).check(config, data[0], parents)

    config = configure("cascadexml", None, {"search": {"last_level": "margin"}})
    with pytest.raises(
        ConfigError,
        match=r"search.last_level: found margin with cascade.combine=auto.*combine=only",
    ):
        check(config)
    alone = configure(
        "cascadexml", None, {"search": {"last_level": "margin"}, "cascade": {"combine": "only"}}
    )
    check(alone)
    unknown = configure(
        "xr-linear", None, {"tree": {"kind": "unbalanced"}, "ranker": {"level_costs": [[1.0, 1.0]]}}
    )
    check(unknown)  # its depth is known when it is built
    deep = configure("xr-linear", None, {"ranker": {"level_costs": [[1.0, 1.0]] * 9}})
    check(deep, {"a": ("b",)})  # a given hierarchy has its own levels
    with pytest.raises(ConfigError, match="found settings for 9 levels"):
        check(deep)
