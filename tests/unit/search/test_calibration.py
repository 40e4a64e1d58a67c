from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse, special
from sklearn.isotonic import IsotonicRegression

from longtail.search import calibration as module
from longtail.search.calibration import Calibration, hits, reliability

METHODS = ["isotonic", "logistic"]


def suggestions(n=3000, seed=0):
    """Scores s that are right with a chance of σ(2 ln s + 1)."""
    random = np.random.default_rng(seed)
    scores = random.random(n).astype(np.float32)
    return scores, random.random(n) < special.expit(2 * np.log(scores.astype(np.float64)) + 1)


# -------------------------------------------------------------------------------------------------
# isotonic


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 3),
)
@settings(max_examples=60)
def test_isotonic_steps_are_those_of_scikit_learn(pairs, seed):
    pairs = [pairs[at] for at in np.random.default_rng(seed).permutation(len(pairs))]
    scores = np.array([score / 16 for score, _ in pairs])
    right = np.array([hit for _, hit in pairs])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SMOOTHING", 0.0)
        found = Calibration.fit(scores, right, "isotonic")
    peer = IsotonicRegression().fit_transform(scores, right)
    steps = np.unique(peer)
    np.testing.assert_allclose(np.unique(found.probabilities.round(9)), steps.round(9))
    for value in steps:  # a step's knot is the mean of its scores
        knots = found.scores[np.isclose(found.probabilities, value)]
        assert np.isclose(knots, scores[np.isclose(peer, value)].mean()).any() or len(knots) > 1


def test_isotonic_by_hand():
    scores = np.array([0.8, 0.1, 0.2, 0.3, 0.9], np.float32)
    right = np.array([True, False, True, False, True])
    found = Calibration.fit(scores, right, "isotonic")
    # flat pieces: {0.1} with 0 of 1, {0.2, 0.3} with 1 of 2, {0.8, 0.9} with 2 of 2; one pair of
    # the whole, (3 + 1) of (5 + 2), added
    whole = 4 / 7
    np.testing.assert_allclose(found.probabilities, [whole / 2, (1 + whole) / 3, (2 + whole) / 3])
    np.testing.assert_allclose(found.scores, [0.1, 0.25, 0.85], rtol=1e-6)
    between = (whole / 2 + (1 + whole) / 3) / 2
    expected = [whole / 2, whole / 2, between, (2 + whole) / 3]
    np.testing.assert_allclose(found(np.array([0.0, 0.1, 0.175, 0.95])), expected, rtol=1e-6)


@pytest.mark.parametrize("right", [(0, 0, 1, 1), (1, 1, 1, 1), (0, 0, 0, 0)])
def test_nothing_is_certain(right):
    scores = np.array([0.1, 0.2, 0.8, 0.9])
    found = Calibration.fit(scores, np.array(right, bool), "isotonic")
    assert 0 < found(np.array([0.0]))[0] <= found(np.array([1.0]))[0] < 1


# -------------------------------------------------------------------------------------------------
# logistic


def test_logistic_is_the_best_curve_of_its_kind():
    scores, right = suggestions()
    found = Calibration.fit(scores, right, "logistic")
    high = (right.sum() + 1) / (right.sum() + 2)
    low = 1 / ((~right).sum() + 2)
    targets = np.where(right, high, low)
    logs = np.log(scores.astype(np.float64))

    def loss(p):
        return -(targets * np.log(p) + (1 - targets) * np.log1p(-p)).mean()

    def curve(parameters):
        return special.expit(parameters[0] * logs + parameters[1])

    best = optimize.minimize(
        lambda parameters: loss(curve(parameters)), [2.0, 1.0], method="Nelder-Mead"
    )
    np.testing.assert_allclose(found(scores), curve(best.x), atol=2e-3)
    assert len(found.scores) == 257
    assert (np.diff(found.probabilities) > 0).all()


def test_logistic_never_falls_even_where_the_data_do():
    scores = np.linspace(0.1, 0.9, 50)
    found = Calibration.fit(scores, scores < 0.4, "logistic")
    assert (np.diff(found.probabilities) >= 0).all()
    np.testing.assert_allclose(
        found(scores), (19 * 20 / 21 + 31 / 33) / 50, atol=1e-4
    )  # a flat line at the mean


# -------------------------------------------------------------------------------------------------
# both


@pytest.mark.parametrize("method", METHODS)
@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=20),
    st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=20),
)
@settings(max_examples=60)
def test_a_higher_score_has_a_higher_probability_and_the_same_one_the_same(method, pairs, more):
    scores = np.array([score for score, _ in pairs], np.float32)
    right = np.array([hit for _, hit in pairs])
    found = Calibration.fit(scores, right, method)
    centres = np.concatenate([scores, np.array(more, np.float32), found.scores.astype(np.float32)])
    near = [
        np.nextafter(centres, np.float32(way)) for way in (-3, 3)
    ]  # the nearest neighbours of knots, too
    tried = np.unique(np.concatenate([centres, *near]))
    probabilities = found(tried)
    assert (np.diff(probabilities) > 0).all()
    assert probabilities[0] > 0
    assert probabilities[-1] < 1
    np.testing.assert_array_equal(found(tried[::-1].copy()), probabilities[::-1])
    np.testing.assert_allclose(
        probabilities, np.interp(tried, found.scores, found.probabilities), rtol=1e-6
    )


def test_minus_zero_is_zero():
    found = Calibration.fit(np.array([0.1, 0.9]), np.array([False, True]), "isotonic")
    low, high = found(np.array([-0.0, 0.0], np.float32))
    assert low == high


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_are_about_right(method):
    found = Calibration.fit(*suggestions(20_000), method)
    scores, right = suggestions(20_000, seed=1)
    for low in np.arange(0, 1, 0.2):
        mine = (scores >= low) & (scores < low + 0.2)
        assert abs(found(scores[mine]).mean() - right[mine].mean()) < 0.03


@pytest.mark.parametrize("method", METHODS)
@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=20))
@settings(max_examples=30)
def test_any_suggestions_give_a_rising_map_that_can_be_stored(method, pairs):
    scores = np.array([score for score, _ in pairs], np.float32)
    right = np.array([hit for _, hit in pairs])
    found = Calibration.fit(scores, right, method)
    grid = found(np.linspace(0, 1, 101))
    assert (np.diff(grid) >= -1e-12).all()
    assert grid.min() >= 0
    assert grid.max() <= 1
    again = Calibration.from_arrays(found.to_arrays())
    np.testing.assert_array_equal(again(scores), found(scores))


@pytest.mark.parametrize("method", METHODS)
def test_scores_that_are_all_the_same(method):
    found = Calibration.fit(np.full(8, 0.5, np.float32), np.arange(8) < 2, method)
    np.testing.assert_allclose(found(np.array([0.1, 0.5, 0.9])), 0.25, atol=0.05)
    Calibration.from_arrays(found.to_arrays())


@pytest.mark.parametrize(
    ("scores", "probabilities"),
    [
        ([], []),
        ([0.1, 0.2], [0.5]),
        ([0.2, 0.1], [0.1, 0.2]),
        ([0.1, 0.1], [0.1, 0.2]),
        ([0.1, 0.2], [0.2, 0.1]),
        ([0.1, np.nan], [0.1, 0.2]),
        ([0.1, 0.2], [0.1, np.nan]),
        ([0.1, 0.2], [-0.1, 0.2]),
        ([0.1, 0.2], [0.1, 1.2]),
    ],
)
def test_damaged_arrays_are_refused(scores, probabilities):
    with pytest.raises(ValueError, match="expected rising scores"):
        Calibration.from_arrays(
            {"scores": np.array(scores), "probabilities": np.array(probabilities)}
        )


@pytest.mark.parametrize("name", ["scores", "probabilities"])
def test_arrays_of_another_kind_are_refused(name):
    arrays = {"scores": np.array([0.1, 0.2]), "probabilities": np.array([0.0, 1.0])}
    with pytest.raises(
        ValueError, match=rf"{name}: found int64 of shape \(2,\); expected a vector of kind f$"
    ):
        Calibration.from_arrays({**arrays, name: np.array([0, 1])})


# -------------------------------------------------------------------------------------------------
# hits, reliability


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_hits_are_those_of_sets(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 6))
    width = int(random.integers(1, 9))
    rows = [
        random.permutation(width)[: random.integers(0, width + 1)] for _ in range(n)
    ]  # best first: no order
    predictions = sparse.csr_array((n, width), dtype=np.float32)
    predictions.indices = np.concatenate([*rows, []]).astype(np.int32)
    predictions.indptr = np.cumsum([0, *map(len, rows)])
    predictions.data = np.ones(len(predictions.indices), np.float32)
    truth = random.random((n, width)) < 0.4
    expected = [label in set(np.flatnonzero(truth[row])) for row in range(n) for label in rows[row]]
    assert hits(predictions, sparse.csr_array(truth)).tolist() == expected


def test_reliability_by_hand():
    probabilities = np.array([0.0, 0.05, 0.1, 0.95, 1.0, 0.55])
    right = np.array([False, True, True, True, True, False])
    assert reliability(probabilities, right) == [
        (0.0, 0.1, 2, pytest.approx(0.025), 0.5),
        (0.1, 0.2, 1, pytest.approx(0.1), 1.0),
        (0.5, 0.6, 1, pytest.approx(0.55), 0.0),
        (0.9, 1.0, 2, pytest.approx(0.975), 1.0),
    ]
    (whole,) = reliability(probabilities, right, n_bins=1)
    assert whole == (0.0, 1.0, 6, pytest.approx(probabilities.mean()), pytest.approx(4 / 6))
    assert (whole.low, whole.high, whole.count) == (0.0, 1.0, 6)
    assert reliability(np.zeros(0), np.zeros(0, bool)) == []


# -------------------------------------------------------------------------------------------------
# margins


@pytest.mark.parametrize("method", METHODS)
def test_margins_below_0_have_probabilities(method):
    random = np.random.default_rng(0)
    margins = random.normal(-0.5, 1.5, 4000).astype(np.float32)
    right = random.random(4000) < special.expit(2 * margins.astype(np.float64) - 1)
    found = Calibration.fit(margins, right, method)
    points = np.linspace(-2, 2.5, 10)
    np.testing.assert_allclose(found(points), special.expit(2 * points - 1), atol=0.07)
    assert (np.diff(found(np.linspace(-4, 4, 50))) >= 0).all()


def test_the_logistic_map_of_margins_is_platts():
    margins = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
    right = np.array([0, 0, 1, 0, 1, 1, 1], bool)
    found = Calibration.fit(margins, right, "logistic")
    targets = np.where(right, 5 / 6, 1 / 5)

    def loss(ab):
        return np.logaddexp(0, ab[0] * margins + ab[1]).sum() - targets @ (ab[0] * margins + ab[1])

    a, b = optimize.minimize(
        loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}
    ).x
    np.testing.assert_allclose(found(margins), special.expit(a * margins + b), atol=1e-3)
