"""The facade for scikit-learn: its own checks of estimators, and what they do not look at: texts,
lists, sparse y.
"""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_estimator

import longtail as lt
from longtail.errors import ConfigError
from longtail.sklearn import LongtailClassifier

# checks of scikit-learn that the classifier is known to fail, each with the reason: there is none
EXPECTED_FAILURES: dict[str, str] = {}
# checks that scikit-learn leaves out by itself where something is missing
MAY_SKIP = {"check_array_api_input", "check_classifier_data_not_an_array"}


@pytest.fixture(scope="module")
def sample():
    """Return texts of the bundled sample and their labels as lists, those of ten documents or more."""
    documents = lt.sample()[0].take(np.arange(600))
    often = {
        label
        for label, n in zip(documents.labels.ids, documents.label_counts, strict=True)
        if n >= 10
    }
    labels = [[label for label in documents.labels_of(row) if label in often] for row in range(600)]
    return list(documents.texts), labels


@pytest.fixture(scope="module")
def matrices(sample):
    """Return tf-idf features (600, d) and the 0/1 matrix (600, L), both CSR."""
    texts, labels = sample
    features = TfidfVectorizer(min_df=3).fit_transform(texts)
    return features, MultiLabelBinarizer(sparse_output=True).fit_transform(labels)


@pytest.fixture(scope="module")
def by_lists(sample):
    return LongtailClassifier(settings={"tfidf.0.min_df": 2}).fit(*sample)


def test_the_checks_of_scikit_learn():
    results = check_estimator(
        LongtailClassifier(), expected_failed_checks=EXPECTED_FAILURES, on_fail=None, on_skip=None
    )
    failed = {
        result["check_name"]: result["exception"]
        for result in results
        if result["status"] == "failed"
    }
    assert not failed
    assert {result["check_name"] for result in results if result["status"] == "skipped"} <= MAY_SKIP
    assert len(results) > 50


class TestTexts:
    def test_lists_of_labels(self, by_lists, sample):
        texts, labels = sample
        found = by_lists.predict(texts)
        assert by_lists.classes_.tolist() == sorted({label for own in labels for label in own})
        right = sum(len(set(own) & set(true)) for own, true in zip(found, labels, strict=True))
        assert right / sum(map(len, found)) > 0.7
        assert all(len(own) <= 5 for own in found)
        assert not hasattr(by_lists, "n_features_in_")

    def test_the_best_label_stands_first(self, by_lists, sample):
        texts = sample[0][:50]
        probabilities = by_lists.predict_proba(texts)
        assert sparse.issparse(probabilities)
        columns = {label: column for column, label in enumerate(by_lists.classes_)}
        found = by_lists.predict(texts)
        assert sum(map(len, found)) > 50
        for row, own in enumerate(found):
            scores = [probabilities[row, columns[label]] for label in own]
            assert scores == sorted(scores, reverse=True)
            assert (
                not own
                or scores[0]
                == probabilities.data[slice(*probabilities.indptr[row : row + 2])].max()
            )

    def test_score_is_the_share_of_exactly_right_documents(self, by_lists, sample):
        texts, labels = sample
        found = by_lists.predict(texts)
        exact = np.mean([set(own) == set(true) for own, true in zip(found, labels, strict=True)])
        assert by_lists.score(texts, labels) == pytest.approx(exact)
        assert 0 < exact < 1

    def test_arrays_of_texts(self, by_lists, sample):
        texts = sample[0][:20]
        assert by_lists.predict(np.array(texts)) == by_lists.predict(texts)
        assert by_lists.predict(np.array(texts, object)) == by_lists.predict(texts)

    def test_one_class_a_text(self, sample):
        texts, labels = sample
        sound = np.where(["works-with::audio" in own for own in labels], "sound", "other")
        model = LongtailClassifier().fit(texts, sound)
        assert model.classes_.tolist() == ["other", "sound"]
        assert model.score(texts, sound) > 0.95
        shares = model.predict_proba(texts)
        assert shares.shape == (600, 2)
        assert np.allclose(shares.sum(1), 1)
        assert ((model.decision_function(texts) > 0) == (model.predict(texts) == "sound")).all()

    def test_features_for_a_model_of_texts(self, by_lists):
        with pytest.raises(ValueError, match="found features; expected texts, as in training"):
            by_lists.predict(np.ones((2, 3)))

    def test_texts_for_a_model_of_features(self):
        model = LongtailClassifier().fit(np.eye(4), [0, 1, 0, 1])
        with pytest.raises(ValueError, match="found texts; expected features, as in training"):
            model.predict(["a"])

    def test_texts_after_features(self, sample):
        model = LongtailClassifier().fit(np.eye(4), [0, 1, 0, 1])
        assert model.n_features_in_ == 4
        assert not hasattr(model.fit(*sample), "n_features_in_")


class TestMatrices:
    def test_sparse_and_dense_are_the_same(self, matrices):
        features, y = matrices
        narrow = sparse.csr_matrix(features[:, :300])
        by_sparse = LongtailClassifier().fit(narrow, y)
        by_dense = LongtailClassifier().fit(narrow.toarray(), y.toarray())
        found = by_sparse.predict(narrow)
        assert sparse.issparse(found)
        assert found.nnz
        assert (found.toarray() == by_dense.predict(narrow)).all()
        assert (by_sparse.predict_proba(narrow).toarray() == by_dense.predict_proba(narrow)).all()

    def test_threshold_and_k(self, matrices):
        features, y = matrices
        model = LongtailClassifier(k=2, threshold=0.0).fit(features, y)
        assert (np.diff(model.predict(features).indptr) == 2).all()
        probabilities = model.predict_proba(features)
        strict = model.set_params(threshold=0.6).predict(features)
        assert strict.sum() == (probabilities.data > 0.6).sum()
        assert 0 < strict.sum() < probabilities.nnz
        assert (
            np.diff(model.set_params(k=None).predict_proba(features).indptr) == y.shape[1]
        ).all()

    def test_decision_is_above_zero_where_a_label_is_predicted(self, matrices):
        features, y = matrices
        model = LongtailClassifier(threshold=0.3).fit(features, y.toarray())
        assert (
            (model.decision_function(features) > 0) == model.predict(features).astype(bool)
        ).all()

    def test_input_is_left_as_it_was(self, matrices):
        features = sparse.csr_matrix(matrices[0])
        y = matrices[1]
        features.indices, features.data = features.indices.copy(), features.data.copy()
        features.indices[:2] = features.indices[1::-1].copy()
        features.data[:2] = features.data[1::-1].copy()
        features.has_sorted_indices = features.has_canonical_format = False
        before = features.indices.copy(), features.data.copy()
        LongtailClassifier().fit(features, y)
        assert (features.indices == before[0]).all()
        assert (features.data == before[1]).all()

    def test_zeros_that_are_stored_are_no_labels(self, matrices):
        features, y = matrices
        stored = sparse.csr_array(y, dtype=float, copy=True)
        stored.data[::2] = 0
        clean = stored.copy()
        clean.eliminate_zeros()
        found = [
            LongtailClassifier().fit(features, own).predict(features) for own in (stored, clean)
        ]
        assert (found[0] != found[1]).nnz == 0


class TestTools:
    def test_pipeline_and_grid_search(self, sample, matrices):
        texts = sample[0]
        y = matrices[1]
        pipeline = make_pipeline(TfidfVectorizer(min_df=2), LongtailClassifier(threshold=0.3))
        settings = [{"tree.branching": 4, "ranker.trees": 2}, {"tree": {"branching": 16}}]
        grid = {"longtailclassifier__settings": settings, "longtailclassifier__k": [1, 5]}
        search = GridSearchCV(pipeline, grid, cv=2, scoring="f1_micro").fit(texts, y)
        means = search.cv_results_["mean_test_score"]
        assert np.isfinite(means).all()
        assert len(set(means)) > 1
        assert search.best_params_["longtailclassifier__k"] == 5
        assert f1_score(y, search.predict(texts), average="micro") > 0.5

    def test_grid_search_of_other_processes(self, sample):
        texts, labels = sample
        search = GridSearchCV(
            LongtailClassifier(threads=1), {"threshold": [0.2, 0.4]}, cv=KFold(2), n_jobs=2
        )
        assert len(search.fit(texts[:200], labels[:200]).predict(texts[:3])) == 3

    def test_pickle_holds_the_files_of_a_model_folder(self, by_lists, sample):
        texts = sample[0]
        files = by_lists.__getstate__()["model_"]
        assert {"manifest.json", "config.json", "labels.jsonl"} < files.keys()
        assert {type(content) for content in files.values()} == {bytes}
        again = pickle.loads(pickle.dumps(by_lists))  # noqa: S301, made here
        assert again.predict(texts) == by_lists.predict(texts)
        twice = pickle.loads(pickle.dumps(again))  # noqa: S301, made here
        assert twice.predict(texts[:5]) == by_lists.predict(texts[:5])

    def test_clone_has_the_settings_alone(self, by_lists):
        cloned = clone(by_lists)
        assert cloned.get_params() == by_lists.get_params()
        assert not hasattr(cloned, "model_")

    def test_settings_reach_the_method(self, sample):
        given = {"tree.branching": 3, "calibration": {"method": "none"}}
        config = (
            LongtailClassifier("parabel", settings=given, random_state=7).fit(*sample).model_.config
        )
        assert (config.method, config.tree.branching, config.calibration.method, config.seed) == (
            "parabel",
            3,
            "none",
            7,
        )
        assert given == {"tree.branching": 3, "calibration": {"method": "none"}}

    def test_more_of_few_documents_are_held_out(self, by_lists):
        assert by_lists.model_.model.facts.held_out == 50

    def test_unknown_setting(self, sample):
        with pytest.raises(ConfigError, match=r"did you mean 'tree.branching'"):
            LongtailClassifier(settings={"tree.branchin": 3}).fit(*sample)

    def test_random_state_may_be_a_generator(self):
        states = [LongtailClassifier(random_state=np.random.RandomState(1)) for _ in range(2)]
        seeds = [state.fit(np.eye(4), [0, 1, 0, 1]).model_.config.seed for state in states]
        assert seeds[0] == seeds[1] > 0


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ("one text", [1], "found one string; expected a list of texts"),
        (["a", None, "b"], [1, 0, 1], "found None as document 1; expected texts"),
        (
            np.eye(3),
            sparse.csr_matrix([[2, 0], [0, 1], [1, 0]]),
            "expected 0 and 1, a column a label",
        ),
        (["a", "b"], [["x"]], "inconsistent numbers of samples"),
        (["a", "b"], None, "the target y is None"),
        (["a", "b", "c"], [0.5, 1.5, 2.5], "Unknown label type"),
    ],
)
def test_what_cannot_be_meant(X, y, message):
    with pytest.raises(ValueError, match=message):
        LongtailClassifier().fit(X, y)


def test_a_class_without_a_name():
    model = LongtailClassifier().fit(np.eye(4), ["", "a", "", "a"])
    assert model.classes_.tolist() == ["", "a"]
    assert model.predict(np.eye(4)).shape == (4,)


def test_without_scikit_learn():
    code = "import sys; sys.modules['sklearn'] = None\nimport longtail.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'longtail[sklearn]'" in done.stderr
