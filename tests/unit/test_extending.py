"""New labels by their words: where they go in the tree, what makes their classifiers, and what
stays as it was.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

import torch

import longtail as lt
from longtail.errors import UsageError
from longtail.extending import _nearest_clusters, _text_nodes, _with_labels_in
from longtail.methods import configure
from longtail.networks.heads.initial_rows import centroid_rows
from longtail.tree.tree import LabelTree

pytestmark = pytest.mark.usefixtures("one_thread")

TOPICS = ("wind", "solar", "river", "tram", "wine", "bridge", "winter", "brick")
KINDS = ("museum", "factory", "history", "design")
UNSEEN = ("wind museum", "river design", "wine history", "brick factory")
ENCODER = {"width": 24, "max_tokens": 8}
SETTINGS = {
    "clusters": ("inceptionxml-lf", {"tree": {"levels": [7]}, "cascade": {"shortlist": [4]}}),
    "full": (
        "inceptionxml-lf",
        {"cascade": {"last_level": "full"}, "encoder": {**ENCODER, "kind": "bag"}},
    ),
    "decaf": ("decaf", {"tree": {"levels": [7]}}),
    "eclare": ("eclare", {"tree": {"levels": [7]}, "phases": {"shortlist": 20}}),
}
TRAINING = {
    "epochs": 8,
    "batch_size": 32,
    "micro_batch": 32,
    "encoder_rate": 5e-3,
    "head_rate": 5e-3,
}


def written(n, seed):
    """Return texts that say a topic and a kind, and the one label of each, which is called after
    both.
    """
    rng = np.random.default_rng(seed)
    names = [f"{topic} {kind}" for topic, kind in product(TOPICS, KINDS)]
    own = [names[at] for at in rng.integers(len(names), size=n)]
    return [
        " ".join(rng.permutation([*name.split(), *rng.choice(["the", "of", "and"], 2)]))
        for name in own
    ], own


TEXTS, OWN = written(700, 0)
SEEN = [at for at, name in enumerate(OWN) if name not in UNSEEN]
NEW_TEXTS, NEW_OWN = written(200, 1)


@pytest.fixture(scope="module", params=SETTINGS)
def fitted(request):
    method, settings = SETTINGS[request.param]
    groups = {"encoder": ENCODER, "training": TRAINING, **settings}
    train = lt.Dataset.of([TEXTS[at] for at in SEEN], [[OWN[at]] for at in SEEN])
    return lt.Longtail(method, **groups).fit(train)


@pytest.fixture(scope="module")
def extended(fitted):
    return lt.extend(fitted, lt.Labels.of(UNSEEN))


def raw(model, k, texts=NEW_TEXTS):
    """Return scores before calibration of the ``k`` best labels, 0 for all others."""
    return model.model.raw_scores(
        lt.Dataset.of(texts, [[] for _ in texts]), k, model.config.search
    ).toarray()


def test_labels_never_seen_are_found_by_their_words(fitted, extended):
    found = extended.predict(NEW_TEXTS, 3)
    hit = [own in [label.id for label in row] for row, own in zip(found, NEW_OWN, strict=True)]
    new = np.array([own in UNSEEN for own in NEW_OWN])
    assert np.mean(np.array(hit)[new]) > 0.6  # by chance: 3 of 32
    before = [
        own in [label.id for label in row]
        for row, own in zip(fitted.predict(NEW_TEXTS, 3), NEW_OWN, strict=True)
    ]
    assert np.mean(np.array(hit)[~new]) > np.mean(np.array(before)[~new]) - 0.15


def test_what_was_known_is_scored_as_before(fitted, extended):
    before = raw(fitted, 28)
    after = raw(extended, 32)
    both = (before > 0) & (after[:, :28] > 0)
    assert both.sum() > 0.5 * (before > 0).sum()
    np.testing.assert_allclose(after[:, :28][both], before[both], rtol=2e-5)
    if fitted.config.cascade.last_level == "full":
        assert before.tobytes() == np.ascontiguousarray(after[:, :28]).tobytes()


def test_the_model_stays_consistent(fitted, extended):
    model = extended.model
    before = fitted.model
    assert list(model.labels.ids) == [*before.labels.ids, *UNSEEN]
    assert model.label_counts.tolist() == [*before.label_counts, 0, 0, 0, 0]
    assert (model.facts, model.calibration, model.metrics) == (
        before.facts,
        before.calibration,
        before.metrics,
    )
    assert (before.network.n_added, model.network.n_added, before.tree.n_labels) == (
        0,
        4,
        28,
    )  # and left as it was
    model.tree.check()
    assert model.tree.n_labels == 32
    assert model.explain("history of wine", "wine history").label == "wine history"


def test_no_new_label_changes_nothing(fitted):
    assert lt.extend(fitted, lt.Labels.of([])).model is fitted.model
    known = lt.Labels.of(
        [lt.Label("wind design", text="something else altogether"), "solar museum"]
    )
    assert lt.extend(fitted, known).model is fitted.model


def test_a_copy_of_a_label_ranks_beside_it(fitted):
    twin = lt.extend(fitted, lt.Labels.of([lt.Label("twin", "solar factory")]))
    at = twin.model.labels.columns["twin"]
    original = twin.model.labels.columns["solar factory"]
    scores = raw(twin, 29, ["the factory of solar", "solar and factory"])
    others = np.delete(scores, [at, original], axis=1)
    assert (scores[:, at] > others.max(1)).all()


def test_saved_and_loaded_it_is_the_same_and_can_be_extended_again(fitted, extended, tmp_path):
    fitted.save(tmp_path / "model")
    extended.save(tmp_path / "extended")
    again = lt.load(tmp_path / "extended")
    assert raw(again, 5).tobytes() == raw(extended, 5).tobytes()
    assert raw(lt.load(tmp_path / "model"), 5).tobytes() == raw(fitted, 5).tobytes()
    for ours, name in ((fitted, "model"), (extended, "extended")):
        assert (
            lt.load(tmp_path / name).model.network.network.slots == ours.model.network.network.slots
        )
    late = lt.extend(
        tmp_path / "model", lt.Labels.of(UNSEEN)
    )  # what was kept makes the same classifiers
    late.save(tmp_path / "late")
    for file in (tmp_path / "extended").rglob("*"):
        assert (
            file.is_dir()
            or file.read_bytes()
            == (tmp_path / "late" / file.relative_to(tmp_path / "extended")).read_bytes()
        )
    assert "4 of them added after training" in (tmp_path / "extended" / "README.md").read_text()
    assert "after training" not in (tmp_path / "model" / "README.md").read_text()
    more = lt.extend(again, lt.Labels.of(["winter wine"])).model
    assert (len(more.labels), more.network.n_added) == (33, 5)


def test_labels_without_a_known_word_are_left_out(fitted, caplog):
    labels = lt.Labels.of(["wind wine", "…", "qwertz", "- x9z"])
    with caplog.at_level(logging.INFO, "longtail"):
        model = lt.extend(fitted, labels).model
    assert list(model.labels.ids)[28:] == ["wind wine"]
    assert (
        "new labels: 3 left out, as the model knows no word of theirs: '…', 'qwertz', '- x9z'"
        in caplog.text
    )
    assert "new labels: 1 added; 0 were known" in caplog.text


def test_unknown_words_count_for_nothing(fitted):
    labels = lt.Labels.of([lt.Label("a", "wine history"), lt.Label("b", "wine qwertz history zzz")])
    a, b = lt.extend(fitted, labels).model.network.label_weights()[-2:]
    np.testing.assert_allclose(a, b, rtol=1e-5)


def test_words_alone_make_the_classifier(fitted):
    ranker = lt.extend(fitted, lt.Labels.of([lt.Label("new", "wine history")])).model.network
    text = ranker.label_text
    tokens = ranker.tokeniser(["wine history"])
    with torch.no_grad():
        z0 = ranker.network.encoder.idf[torch.tensor(tokens.ids.astype(np.int64))]
        z1 = (z0 / z0.norm()) @ text.embedding(torch.tensor(tokens.ids.astype(np.int64)))
        parts = [phi(z1[None]) for phi in (text.phi_l, text.phi_g) if phi is not None] + [
            torch.zeros(1, len(z1))
        ]
        alpha = (
            torch.ones(1, len(parts))
            if text.attention is None
            else text.attention(torch.cat(parts, 1)).softmax(1)
        )
        expected = sum(share * part for share, part in zip(alpha[0], parts, strict=True))[0]
    np.testing.assert_allclose(ranker.label_weights()[-1], expected.numpy(), atol=1e-6)
    bias = ranker.network.heads[-1].bias[ranker.tree.positions]
    assert float(bias[-1]) == pytest.approx(float(bias[:-1].mean()), rel=1e-5)


def test_the_nodes_of_new_labels_are_made_like_those_of_centroids(fitted):
    if fitted.config.phases.kind != "surrogate":
        pytest.skip("has clusters, or none")
    ranker = fitted.model.network
    rng = np.random.default_rng(0)
    vectors = np.abs(rng.normal(size=(300, 24))).astype(np.float32)
    relevance = lt.Dataset.of(["x"] * 300, [[str(at % 28)] for at in range(300)]).label_matrix
    head = ranker.network.heads[0]
    prior = -4.0
    before = head.to_arrays(state=False)
    rows = centroid_rows(vectors, relevance, prior)
    head.set_rows(rows.weights, rows.bias)
    try:
        made = _text_nodes(ranker, lt.Labels.of(UNSEEN))
    finally:
        head.load_arrays(before)
    texts = ranker.level_vectors(ranker.tokeniser(list(UNSEEN)))[0]
    mean = vectors.mean(0)
    length = np.linalg.norm(rows.weights[0])
    expected = (texts - mean) / np.linalg.norm(texts - mean, axis=1, keepdims=True) * length
    np.testing.assert_allclose(made.weights, expected, atol=1e-3)
    np.testing.assert_allclose(made.bias, prior - expected @ mean, atol=1e-3)


def test_new_labels_join_the_cluster_that_is_most_like_them():
    tree = LabelTree(np.array([2, 0, 3, 1], np.int32), (np.array([0, 1, 2]), np.array([0, 2, 4])))
    known = np.eye(2, dtype=np.float32)[
        [0, 1, 0, 1]
    ]  # labels 2 and 0 are of one kind, 3 and 1 of the other
    new = np.array([[0.6, 0.8], [1, 0]], np.float32)
    clusters = _nearest_clusters(tree, known, new)
    assert clusters.tolist() == [1, 0]
    grown = _with_labels_in(tree, clusters)
    grown.check()
    assert grown.order.tolist() == [2, 0, 5, 3, 1, 4]
    assert [offsets.tolist() for offsets in grown.offsets] == [[0, 1, 2], [0, 3, 6]]


def test_a_full_cluster_takes_no_more():
    tree = LabelTree(np.arange(6, dtype=np.int32), (np.array([0, 2, 4, 6]),))
    known = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)
    alike = np.tile(np.array([[0.9, 0.4, 0.1]], np.float32), (30, 1))
    # twice the largest, or twice the mean: 8 of 11 labels, 24 of 36
    assert _nearest_clusters(tree, known, alike[:5]).tolist() == [0] * 5
    assert _nearest_clusters(tree, known, alike).tolist() == [0] * 22 + [1] * 8


def test_models_that_cannot(fitted, extended):
    new = lt.Labels.of(["wind wine"])
    of = lt.Longtail.of
    other = of(replace(fitted.model, network=None, config=configure("xr-linear")))
    with pytest.raises(
        UsageError,
        match=r"^the model: was trained with xr-linear, .* decaf, eclare, inceptionxml-lf$",
    ):
        lt.extend(other, new)
    with pytest.raises(
        UsageError, match=r"linear classifiers beside the network.* cascade\.combine=never$"
    ):
        lt.extend(of(replace(fitted.model, rankers=("a linear one",))), new)
    with pytest.raises(UsageError, match="is an ensemble; extend its members"):
        lt.extend(lt.ensemble([fitted, extended]), new)
