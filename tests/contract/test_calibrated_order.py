"""Probabilities rank labels as the scores do that they were made from: in metrics, predictions and
ensembles.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import longtail as lt

METHODS = ["xr-linear", "dismec", "plt", "parabel"]


@pytest.fixture(scope="module")
def data():
    return lt.sample()


@pytest.fixture(scope="module")
def fitted(data):
    models = {}

    def of(method: str) -> lt.Longtail:
        if method not in models:
            models[method] = lt.Longtail(method).fit(data[0])
        return models[method]

    return of


def raw(model: lt.Longtail) -> lt.Longtail:
    return lt.Longtail.of(replace(model.model, calibration=None))


def ties(matrix) -> int:
    """Return how many scores equal the one before them in their row, as float32 tells."""
    starts = np.zeros(matrix.nnz + 1, bool)
    starts[matrix.indptr] = True
    return int((np.diff(matrix.data.astype(np.float32), prepend=-1)[~starts[:-1]] == 0).sum())


@pytest.mark.parametrize("method", METHODS)
class TestModels:
    def test_metrics_are_those_of_the_scores(self, fitted, data, method):
        result, expected = (
            model.evaluate(data[1]) for model in (fitted(method), raw(fitted(method)))
        )
        assert result.metrics == expected.metrics

    def test_probabilities_never_rise_along_a_ranking(self, fitted, data, method):
        result = fitted(method).predict(data[1], 20).matrix
        scores = raw(fitted(method)).predict(data[1], 20).matrix
        assert ties(result) > ties(scores)  # so that there is something to lose
        np.testing.assert_array_equal(result.indices, scores.indices)
        assert result.data.min() >= 0
        assert result.data.max() <= 1
        for start, end in zip(result.indptr[:-1], result.indptr[1:], strict=True):
            falls = np.diff(scores.data[start:end]) < 0
            assert ((np.diff(result.data[start:end]) < 0) == falls).all()


def test_a_calibrated_ensemble_ranks_as_the_mean_does(fitted, data):
    test = data[1].take(np.arange(1000))
    valid = data[1].take(np.arange(1000, 1500))
    both = lt.ensemble([fitted("xr-linear"), fitted("dismec")], valid=valid)
    assert both.model.calibration is not None
    assert both.evaluate(test).metrics == raw(both).evaluate(test).metrics


def test_an_ensemble_of_the_same_ranking_twice_ranks_like_it(fitted, data):
    """Members whose probabilities are equal say by their order which label is the better one."""
    one = fitted("xr-linear")
    twice = lt.ensemble([one, lt.Longtail.of(replace(one.model))])
    result = twice.predict(data[1], 5).matrix
    expected = one.predict(data[1], 5).matrix
    np.testing.assert_array_equal(result.indices, expected.indices)
    assert twice.evaluate(data[1])["P@1"] == one.evaluate(data[1])["P@1"]
