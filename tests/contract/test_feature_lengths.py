"""Given sparse features count by their direction alone, in training and prediction, unless settings say otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import longtail as lt
from longtail.features.matrix import prepared_rows
from longtail.methods import METHODS, configure
from longtail.steps.run import Run
from longtail.steps.text import text_features
from longtail.steps.trees import label_trees
from longtail.steps.work import Work
from small_methods import LINEAR, SMALL

N_TRAIN, N_TEST = 200, 60


def times(rows: sparse.csr_array, factors) -> sparse.csr_array:
    """Return the rows, each times its factor."""
    each = np.repeat(np.broadcast_to(factors, rows.shape[0]), np.diff(rows.indptr))
    return sparse.csr_array(
        (rows.data * each.astype(np.float32), rows.indices, rows.indptr), shape=rows.shape
    )


def scaled(documents: lt.Dataset, factors) -> lt.Dataset:
    return replace(documents, features=times(documents.features, factors))


def powers_of_two(n: int, seed: int) -> np.ndarray:
    """Return factors that change no digit of a float32, so that results have to be the same to the last bit."""
    return 2.0 ** np.random.default_rng(seed).integers(-12, 13, n)


def factors(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.01, 50, n)


@pytest.fixture(scope="module")
def with_text():
    """The first documents of the sample with their texts, and tf-idf rows as given features."""
    train, test = lt.sample()
    train, test = train.take(np.arange(N_TRAIN)), test.take(np.arange(N_TEST))
    vectoriser, rows = lt.TfIdf.fit_transform(train.texts)
    return train.with_features(rows), test.with_features(vectoriser.transform(test.texts))


@pytest.fixture(scope="module")
def data(with_text):
    return tuple(replace(documents, texts=None) for documents in with_text)


def assert_same(found: lt.Predictions, expected: lt.Predictions) -> None:
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(
            getattr(found.matrix, name), getattr(expected.matrix, name), err_msg=name
        )


@pytest.fixture(scope="module")
def fitted(data):
    models = {}

    def of(method: str) -> lt.Longtail:
        if method not in models:
            models[method] = lt.Longtail(method, **SMALL[method]).fit(data[0])
        return models[method]

    return of


@pytest.fixture(scope="module")
def groups(with_text, tmp_path_factory):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tiny_encoder import write_encoder

    encoder = write_encoder(
        tmp_path_factory.mktemp("encoder"), with_text[0].texts, width=16, vocabulary=500
    )
    training = {"epochs": 1, "batch_size": 32, "head_rate": 3e-3, "encoder_rate": 1e-3}

    def of(method):
        settings = {"encoder": {"name": str(encoder), "max_tokens": 24}}
        if METHODS[method].network:
            settings["training"] = training
        return settings

    return of


@pytest.mark.parametrize("method", LINEAR)
class TestLinearMethods:
    def test_lengths_of_training_rows_change_nothing(self, fitted, data, method):
        expected = fitted(method).predict(data[1])
        again = lt.Longtail(method, **SMALL[method]).fit(scaled(data[0], powers_of_two(N_TRAIN, 1)))
        assert_same(again.predict(scaled(data[1], powers_of_two(N_TEST, 2))), expected)

    def test_lengths_of_the_rows_of_a_prediction_change_nothing(self, fitted, data, method):
        expected = fitted(method).predict(data[1], 10)
        found = fitted(method).predict(scaled(data[1], factors(N_TEST, 3)), 10)
        for row in range(N_TEST):
            scores = {label.id: label.score for label in expected[row]}
            for label in found[
                row
            ]:  # equal scores, and those at the end of the list, may change places
                assert label.score == pytest.approx(
                    scores.get(label.id, expected[row][-1].score), abs=1e-4
                )

    def test_as_they_are_where_settings_say_so(self, data, method):
        off = lt.Longtail(method, normalise_features=False, **SMALL[method])
        expected = off.fit(data[0]).predict(data[1]).matrix
        found = (
            off.fit(scaled(data[0], factors(N_TRAIN, 1)))
            .predict(scaled(data[1], factors(N_TEST, 2)))
            .matrix
        )
        assert (found != expected).nnz


@given(st.integers(0, 1 << 30))
@settings(max_examples=10)
def test_any_positive_lengths_give_the_same_metrics(seed):
    train, test = _data()
    model = lt.Longtail("xr-linear", ranker={"max_passes": 3}, calibration={"method": "none"})
    found = model.fit(scaled(train, factors(N_TRAIN, seed))).evaluate(
        scaled(test, factors(N_TEST, seed + 1))
    )
    expected = model.fit(train).evaluate(test)
    assert found["P@5"] == pytest.approx(expected["P@5"], abs=2 / (5 * N_TEST))


def _data() -> tuple[lt.Dataset, lt.Dataset]:
    """Return documents with features of the integers, whose rows have many lengths already."""
    random = np.random.default_rng(0)
    truth = (random.random((N_TRAIN + N_TEST, 12)) < 0.15).astype(np.float32)
    truth[truth.sum(1) == 0, 0] = 1
    counts = random.poisson(truth @ random.gamma(0.3, 4, (12, 80)) + 0.1).astype(np.float32)
    labels = lt.Labels.of(map(str, range(12)))
    parts = slice(None, N_TRAIN), slice(N_TRAIN, None)
    return tuple(
        lt.Dataset(sparse.csr_array(truth[part]), labels, features=sparse.csr_array(counts[part]))
        for part in parts
    )


def test_published_numbers_that_depended_on_lengths():
    """Rows of length 20 once cost xr-linear seven points of P@1 on the sample."""
    train, test = lt.sample()
    config = configure("xr-linear")
    vectoriser, rows = lt.TfIdf.fit_transform(train.texts, config.tfidf)
    test_rows = vectoriser.transform(test.texts)

    def precision(factor: float) -> float:
        own = replace(train, texts=None, features=times(rows, factor))
        return (
            lt.Longtail("xr-linear")
            .fit(own)
            .evaluate(replace(test, texts=None, features=times(test_rows, factor)))["P@1"]
        )

    assert precision(20) == pytest.approx(precision(1), abs=1e-9)


@pytest.mark.parametrize("format", ["bow", "xmc-split", "pecos"])
def test_lengths_in_files_change_nothing(data, tmp_path, format):
    def predicted(name: str, train: lt.Dataset, test: lt.Dataset) -> lt.Predictions:
        parts = []
        for documents, split in ((train, "train"), (test, "test")):
            place = tmp_path / (f"{name}-{split}.txt" if format == "bow" else name)
            lt.write(documents, place, format=format, split=split)
            parts.append(lt.read(place, format=format, split=split))
        return lt.Longtail("xr-linear", ranker={"max_passes": 3}).fit(parts[0]).predict(parts[1])

    expected = predicted("one", *data)
    long = scaled(data[0], powers_of_two(N_TRAIN, 1)), scaled(data[1], powers_of_two(N_TEST, 2))
    assert_same(predicted("other", *long), expected)


class TestBesideVectors:
    """Φcat: features that are given beside text, and an encoder's vectors."""

    @pytest.mark.parametrize(
        ("method", "more"),
        [
            ("xr-linear", {"features": "cat"}),
            ("dismec", {"features": "cat"}),
            ("xr-transformer", {}),
            ("cascadexml", {"cascade": {"combine": "always"}}),
        ],
    )
    @pytest.mark.usefixtures("one_thread")
    def test_lengths_change_nothing(self, with_text, groups, method, more):
        train, test = with_text
        expected = lt.Longtail(method, **groups(method), **more).fit(train)
        assert expected.model.facts.n_columns == train.features.shape[1]
        assert expected.model.rankers
        found = lt.Longtail(method, **groups(method), **more).fit(
            scaled(train, powers_of_two(N_TRAIN, 1))
        )
        assert_same(found.predict(scaled(test, powers_of_two(N_TEST, 2))), expected.predict(test))

    def test_both_blocks_have_their_length(self, with_text, groups):
        train, test = with_text
        model = lt.Longtail("xr-linear", features="cat", **groups("xr-linear")).fit(
            scaled(train, factors(N_TRAIN, 1))
        )
        found = model.model.features(scaled(test, factors(N_TEST, 2)))
        np.testing.assert_allclose(
            np.sqrt(found.sparse.multiply(found.sparse).sum(1)), 1, rtol=1e-6
        )
        weight = model.config.encoder.weight
        np.testing.assert_allclose(np.linalg.norm(found.dense, axis=1), weight, rtol=1e-6)


class TestFeaturesOfLabelTexts:
    @pytest.mark.parametrize("kind", ["text", "pifa+text"])
    def test_lengths_change_no_tree(self, data, kind):
        random = np.random.default_rng(4)
        n_labels, width = data[0].n_labels, data[0].features.shape[1]
        own = sparse.random_array(
            (n_labels, width), density=0.01, rng=random, dtype=np.float32, format="csr"
        )

        def order(label_features: sparse.csr_array) -> list[int]:
            documents = replace(data[0], label_features=label_features)
            run = Run(configure("xr-linear", None, {"label_features": {"kind": kind}}), Work())
            features = text_features(documents, run)[1]
            return label_trees(documents, features, None, run, {"tree-0": 0})[0].order.tolist()

        assert order(times(own, powers_of_two(n_labels, 5))) == order(own)


class TestModelFolders:
    def test_the_setting_is_part_of_the_model(self, data, tmp_path):
        for on in (True, False):
            model = lt.Longtail("xr-linear", normalise_features=on).fit(data[0])
            model.save(tmp_path / str(on))
            loaded = lt.load(tmp_path / str(on))
            assert loaded.config.normalise_features is on
            assert_same(loaded.predict(scaled(data[1], 7)), model.predict(scaled(data[1], 7)))

    def test_an_ensemble_prepares_features_for_each_member_as_it_was_trained(self, data):
        members = [
            lt.Longtail("xr-linear", normalise_features=on).fit(data[0]) for on in (True, False)
        ]
        both = lt.ensemble(members)
        long = scaled(data[1], 9)
        for found, member in zip(both.model.members, members, strict=True):
            np.testing.assert_array_equal(
                found.features(long).sparse.data, member.model.features(long).sparse.data
            )
        assert not np.array_equal(
            *(member.features(long).sparse.data for member in both.model.members)
        )


class TestPreparedRows:
    def test_by_hand(self):
        rows = sparse.csr_array(
            np.array([[3, 0, 4], [0, 0, 0], [0, 1e-20, 0], [0, 0, 1e30]], np.float32)
        )
        before = rows.data.copy()
        found = prepared_rows(rows, True)
        np.testing.assert_allclose(
            found.toarray(), [[0.6, 0, 0.8], [0, 0, 0], [0, 1, 0], [0, 0, 1]], rtol=1e-6
        )
        np.testing.assert_array_equal(rows.data, before)
        assert found.dtype == np.float32

    def test_a_column_twice_counts_as_one_number(self):
        rows = sparse.csr_array(
            (np.array([1, 2, 4], np.float32), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 3)
        )
        np.testing.assert_allclose(
            prepared_rows(rows, True).toarray(), [[2 / 29**0.5, 5 / 29**0.5, 0]], rtol=1e-6
        )
        assert rows.data.tolist() == [1, 2, 4]

    def test_indices_are_shared(self):
        rows = sparse.csr_array(np.eye(4, dtype=np.float32))
        layout = prepared_rows(rows, False)
        assert np.shares_memory(layout.data, rows.data)
        found = prepared_rows(layout, True)
        assert np.shares_memory(found.indices, rows.indices)
        assert np.shares_memory(found.indptr, layout.indptr)
        assert not np.shares_memory(found.data, rows.data)

    def test_read_only_values_of_a_file_are_taken(self):
        rows = sparse.csr_array(np.diag([2.0, 4.0]).astype(np.float32))
        rows.data.flags.writeable = False
        assert prepared_rows(rows, True).data.tolist() == [1, 1]
