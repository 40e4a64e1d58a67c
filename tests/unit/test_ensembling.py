from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import longtail as lt
from folder_contents import contents
from longtail.errors import DataError, ModelFolderError, UsageError
from longtail.models.ensemble_model import Ensemble, united_labels
from longtail.models.model_folder import load_model
from longtail.pipeline import predict
from longtail.search.ensemble import best_first


@pytest.fixture(scope="module")
def data():
    train, test = lt.sample()
    return train.take(np.arange(400)), test.take(np.arange(80)), test.take(np.arange(80, 160))


@pytest.fixture(scope="module")
def linear(data):
    return lt.Longtail("xr-linear", ranker={"max_passes": 3}).fit(data[0])


@pytest.fixture(scope="module")
def flat(data):
    return lt.Longtail("dismec", ranker={"max_passes": 3}).fit(data[0])


@pytest.fixture(scope="module")
def fewer(data):
    """A model that knows some of the labels only, and one more."""
    train = data[0]
    matrix = train.label_matrix.toarray()
    kept = np.argsort(-matrix.sum(axis=0))[:40]
    labels = lt.Labels.of([*(train.labels[at] for at in kept.tolist()), "extra"])
    matrix = np.hstack([matrix[:, kept], np.zeros((len(train), 1))])
    matrix[:20, -1] = 1
    some = replace(train, labels=labels, label_matrix=sparse.csr_array(matrix.astype(np.float32)))
    return lt.Longtail(
        "xr-linear", ranker={"max_passes": 3}, tree={"branching": 4, "leaf_size": 10}
    ).fit(some)


def dense(predictions):
    return predictions.matrix.toarray()


def uncalibrated(model):
    return lt.Longtail.of(replace(model.model, calibration=None))


def by_hand(models, texts, k, columns, score, **options):
    """Return the k best by the mean of what ``score`` makes of each member's 100 best."""
    total = np.zeros((len(texts), max(map(max, columns)) + 1))
    for model, own in zip(models, columns, strict=True):
        matrix = model.predict(texts, 100, **options).matrix
        total[:, own] += score(matrix).toarray() / len(models)
    return best_first(sparse.csr_array(total.astype(np.float32)), k).toarray()


def all_columns(*models):
    labels = united_labels([model.model.labels for model in models])
    return [[labels.columns[label] for label in model.model.labels.ids] for model in models]


def places(matrix):
    return np.array([at for row in np.diff(matrix.indptr) for at in range(row)])


def with_data(matrix, data):
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def ranks(matrix):
    return with_data(matrix, 61 / (61 + places(matrix)))


def probabilities(matrix):
    """Return them with ties broken by rank."""
    return with_data(matrix, matrix.data * (1 - 1e-6 * places(matrix)))


def test_the_mean_is_of_probabilities(linear, flat, data):
    texts = list(data[1].texts)[:20]
    both = lt.ensemble([linear, flat])
    expected = by_hand([linear, flat], texts, 5, all_columns(linear, flat), probabilities)
    assert dense(both.predict(texts)) == pytest.approx(expected, rel=1e-5)
    assert both.model.weights == (0.5, 0.5)
    assert both.model.calibration is None


def test_the_mean_is_of_raw_scores_where_one_is_not_calibrated(linear, flat, data):
    texts = list(data[1].texts)[:20]
    members = [uncalibrated(linear), uncalibrated(flat)]
    expected = by_hand(members, texts, 5, all_columns(*members), lambda matrix: matrix)
    assert dense(lt.ensemble([linear, members[1]]).predict(texts)) == pytest.approx(
        expected, rel=1e-5
    )
    assert dense(lt.ensemble([linear, flat]).predict(texts)) != pytest.approx(expected, rel=1e-5)


def test_ranks(linear, flat, data):
    texts = list(data[1].texts)[:20]
    expected = by_hand([linear, flat], texts, 5, all_columns(linear, flat), ranks)
    assert dense(lt.ensemble([linear, flat], "rank").predict(texts)) == pytest.approx(
        expected, rel=1e-5
    )
    assert dense(lt.ensemble([uncalibrated(linear), flat], "rank").predict(texts)) == pytest.approx(
        expected, rel=1e-5
    )


def test_members_of_other_labels(linear, fewer, data):
    texts = list(data[1].texts)[:20]
    both = lt.ensemble([fewer, linear])
    labels = both.model.labels
    assert labels.ids[40] == "extra"
    assert list(labels.ids)[:41] == list(fewer.model.labels.ids)
    assert set(labels.ids) == {*linear.model.labels.ids, "extra"}
    assert len(labels) == len(linear.model.labels) + 1
    expected = by_hand([fewer, linear], texts, 7, all_columns(fewer, linear), probabilities)
    assert dense(both.predict(texts, 7)) == pytest.approx(expected, rel=1e-5)
    counts = dict(zip(labels.ids, both.model.label_counts.tolist(), strict=True))
    assert counts["extra"] == fewer.model.label_counts[40] > 0
    for label, count in zip(
        linear.model.labels.ids, linear.model.label_counts.tolist(), strict=True
    ):
        assert counts[label] >= count


def test_beam_threshold_and_exclude_reach_the_members(linear, fewer, data):
    text = data[1].texts[0]
    both = lt.ensemble([fewer, linear])
    usual = both.predict([text], 5)[0]
    without = both.predict([text], 5, exclude=[[usual[0].id, usual[2].id, "unknown"]])[0]
    assert [label.id for label in without[:3]] == [usual[1].id, usual[3].id, usual[4].id]
    sure = both.predict([text], 5, threshold=usual[1].score)[0]
    assert [label.id for label in sure] == [label.id for label in usual[:2]]
    texts = list(data[1].texts)
    expected = by_hand(
        [fewer, linear], texts, 5, all_columns(fewer, linear), probabilities, beam_size=1
    )
    assert dense(both.predict(texts, beam_size=1)) == pytest.approx(expected, rel=1e-5)
    assert dense(both.predict(texts)) != pytest.approx(expected, rel=1e-5)


def test_weights_are_no_worse_than_any_member_on_the_documents(linear, flat, fewer, data):
    valid = data[1]
    members = [fewer, linear, flat]
    fitted = lt.ensemble(members, "weights", valid)
    assert sum(fitted.model.weights) == pytest.approx(1)
    values = [
        sum(model.evaluate(valid)[f"P@{k}"] for k in (1, 3, 5)) for model in (fitted, *members)
    ]
    assert values[0] >= max(values) - 1e-9
    assert fitted.model.metrics["P@1"] == pytest.approx(fitted.evaluate(valid)["P@1"])


def test_a_member_without_weight_is_not_asked(linear, flat, data, monkeypatch):
    model = replace(lt.ensemble([linear, flat]).model, weights=(1.0, 0.0))
    asked = []
    search = type(model.members[0]).raw_scores
    monkeypatch.setattr(
        type(model.members[0]),
        "raw_scores",
        lambda self, *rest: asked.append(self) or search(self, *rest),
    )
    texts = list(data[1].texts)[:3]
    assert dense(predict(model, texts)) == pytest.approx(dense(linear.predict(texts)), rel=1e-5)
    assert asked == [model.members[0], linear.model]


def test_documents_to_validate_by_make_probabilities(linear, flat, data):
    both = lt.ensemble([linear, flat], "rank", data[1])
    assert both.model.calibration is not None
    assert both.model.facts.held_out == 80
    scores = both.predict(data[1], 5).matrix
    truth = data[1].with_labels(both.model.labels, unknown="drop").label_matrix
    right = scores.astype(bool).multiply(truth.astype(bool)).sum()
    assert scores.data.sum() == pytest.approx(right, rel=0.2)


@pytest.mark.parametrize("fusion", ["mean", "rank", "weights"])
def test_saved_and_loaded(fusion, linear, fewer, data, tmp_path):
    made = lt.ensemble([linear, fewer], fusion, data[1])
    made.save(tmp_path / "first")
    loaded = lt.load(tmp_path / "first")
    assert isinstance(loaded.model, Ensemble)
    texts = list(data[2].texts)
    assert (dense(loaded.predict(texts)) == dense(made.predict(texts))).all()
    assert (loaded.model.weights, loaded.model.fusion, loaded.model.labels) == (
        made.model.weights,
        fusion,
        made.model.labels,
    )
    assert loaded.model.metrics == made.model.metrics
    assert loaded.model.facts == made.model.facts
    loaded.save(tmp_path / "second")
    lt.ensemble([tmp_path / "first/member-0", tmp_path / "first/member-1"], fusion, data[1]).save(
        tmp_path / "third"
    )
    assert (
        contents(tmp_path / "first")
        == contents(tmp_path / "second")
        == contents(tmp_path / "third")
    )


def test_members_are_the_model_folders_they_were(linear, flat, tmp_path):
    for name, model in (("one", linear), ("two", flat)):
        model.save(tmp_path / name)
    lt.ensemble([tmp_path / "one", str(tmp_path / "two")]).save(tmp_path / "both")
    assert contents(tmp_path / "both/member-0") == contents(tmp_path / "one")
    assert contents(tmp_path / "both/member-1") == contents(tmp_path / "two")
    assert load_model(tmp_path / "both/member-1").config.method == "dismec"


def test_an_altered_member_is_refused(linear, flat, tmp_path):
    lt.ensemble([linear, flat]).save(tmp_path / "both")
    place = tmp_path / "both/member-1/ranker-0-0.safetensors"
    raw = bytearray(place.read_bytes())
    raw[-1] ^= 1
    place.write_bytes(raw)
    with pytest.raises(
        ModelFolderError, match=r"member-1/ranker-0-0\.safetensors: is damaged or was altered"
    ):
        lt.load(tmp_path / "both")
    place.unlink()
    with pytest.raises(ModelFolderError, match=r"member-1/ranker-0-0\.safetensors: is missing"):
        lt.load(tmp_path / "both")


def test_an_explanation_adds_up(linear, fewer, data):
    text = data[1].texts[0]
    both = lt.ensemble([linear, fewer], "weights", data[1])
    best = both.predict([text], 1)[0][0]
    found = both.explain(text, best.id)
    assert found.probability == pytest.approx(best.score)
    assert found.score == pytest.approx(
        sum(member.weight * member.score for member in found.members)
    )
    for member, model in zip(found.members, (linear, fewer), strict=True):
        assert member.explanation == model.explain(text, best.id)
        assert member.score == pytest.approx(member.explanation.probability)
    unknown = next(label for label in linear.model.labels.ids if label not in fewer.model.labels)
    other = both.explain(text, unknown).members[1]
    assert (other.score, other.explanation, other.note) == (0, None, "does not know this label")
    with pytest.raises(UsageError, match="unknown label 'none-such'"):
        both.explain(text, "none-such")


def test_what_has_no_words_says_so(linear, flat, data, monkeypatch):
    both = lt.ensemble([linear, flat])
    members = (linear.model, replace(flat.model, vectoriser=None))
    model = replace(both.model, members=members)
    nothing = sparse.csr_array((1, len(both.model.labels)))
    monkeypatch.setattr(Ensemble, "member_scores", lambda *_: [nothing, nothing])
    label = both.model.labels.ids[0]
    note = model.explain(data[1].texts[0], label).members[1]
    assert note.explanation is None
    assert "no words to explain by" in note.note


def test_refusals(linear, flat, data, tmp_path):
    with pytest.raises(UsageError, match="found no model; expected at least two"):
        lt.ensemble([])
    with pytest.raises(UsageError, match="found model 1; expected at least two"):
        lt.ensemble([linear])
    with pytest.raises(UsageError, match="model 2: is given twice"):
        lt.ensemble([linear, linear])
    with pytest.raises(UsageError, match="unknown fusion 'means'; did you mean 'mean'"):
        lt.ensemble([linear, flat], "means")
    with pytest.raises(UsageError, match="fusion by weights fits them on documents"):
        lt.ensemble([linear, flat], "weights")
    with pytest.raises(DataError, match="without any label of the models"):
        lt.ensemble(
            [linear, flat], "weights", data[1].with_labels(lt.Labels.of(["a"]), unknown="drop")
        )
    with pytest.raises(UsageError, match="model 1: is an ensemble itself; give its members"):
        lt.ensemble([lt.ensemble([linear, flat]), flat])
    with pytest.raises(ModelFolderError, match="no such model folder"):
        lt.ensemble([linear, tmp_path / "nothing"])
    both = lt.ensemble([linear, flat])
    with pytest.raises(UsageError, match="no member with a network; expected exactly one"):
        both.embed(["text"])
    with pytest.raises(UsageError, match="found one string"):
        both.predict("text")
    with pytest.raises(UsageError, match="an ensemble is made of trained models"):
        both.fit(data[0])


def test_models_that_do_not_fit_together(linear, data):
    train = data[0]
    other = replace(train, labels=lt.Labels.of(f"x{at}" for at in range(train.n_labels)))
    stranger = lt.Longtail("xr-linear", ranker={"max_passes": 1}).fit(other)
    with pytest.raises(UsageError, match="model 1: has no label in common with the others"):
        lt.ensemble([linear, stranger])
    given = train.with_features(linear.model.features(train).sparse)
    featured = lt.Longtail("xr-linear", ranker={"max_passes": 1}).fit(given)
    with pytest.raises(
        UsageError, match="model 2: was trained on ready-made features, and model 1 on text"
    ):
        lt.ensemble([linear, featured])
    with pytest.raises(
        UsageError, match="model 1: was trained on ready-made features, and model 2 on text"
    ):
        lt.ensemble([featured, linear])
    few = train.with_features(sparse.csr_array(given.features[:, :50]))
    narrow = lt.Longtail("xr-linear", ranker={"max_passes": 1}).fit(few)
    with pytest.raises(UsageError, match=r"model 2: was trained on \(50, 0\) columns"):
        lt.ensemble([featured, narrow])
    twins = lt.ensemble([featured, lt.Longtail.of(replace(featured.model))])
    alone, together = featured.predict(given).matrix, twins.predict(given).matrix
    assert (together.indices == alone.indices).all()  # also those that the calibration makes equal
    assert together.data == pytest.approx(alone.data, rel=1e-5)
    with pytest.raises(UsageError, match="expected a Dataset with features"):
        twins.predict(["text"])


@pytest.fixture(scope="module")
def network(data, tmp_path_factory, one_thread):
    """A small CascadeXML that ranks alone."""
    pytest.importorskip("transformers")
    from tiny_encoder import write_encoder

    folder = write_encoder(
        tmp_path_factory.mktemp("encoder") / "tiny", data[0].texts, vocabulary=500
    )
    settings = {"training": {"epochs": 1, "batch_size": 32}, "cascade": {"combine": "never"}}
    encoder = {"name": str(folder), "max_tokens": 16}
    return lt.Longtail("cascadexml", encoder=encoder, **settings).fit(data[0].take(np.arange(100)))


def test_a_network_beside_a_linear_model(network, linear, data, tmp_path):
    both = lt.ensemble([linear, network])
    texts = list(data[1].texts)[:10]
    expected = by_hand([linear, network], texts, 5, all_columns(linear, network), probabilities)
    assert dense(both.predict(texts)) == pytest.approx(expected, rel=1e-5)
    assert both.embed(texts) == pytest.approx(network.embed(texts), abs=1e-6)
    both.save(tmp_path / "both")
    loaded = lt.load(tmp_path / "both", device="cpu")
    assert (tmp_path / "both/member-1/encoder/model.safetensors").is_file()
    assert dense(loaded.predict(texts)) == pytest.approx(dense(both.predict(texts)), abs=1e-6)
    words, vectors = both.explain(texts[0], network.model.labels.ids[0]).members
    assert [step.kind for step in words.explanation.steps] == ["sum"] * len(words.explanation.steps)
    assert [step.kind for step in vectors.explanation.steps] == ["left-out"]
    assert vectors.explanation == network.explain(texts[0], network.model.labels.ids[0])
    best = network.predict([texts[0]], 1)[0][0]
    member = both.explain(texts[0], best.id).members[1]
    assert member.score == pytest.approx(member.explanation.probability, abs=1e-4)
    twice = lt.ensemble([network, lt.Longtail.of(replace(network.model))])
    with pytest.raises(
        UsageError, match="2 members with a network; expected exactly one; embed with the folder"
    ):
        twice.embed(texts)
