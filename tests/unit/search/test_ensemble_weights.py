from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.metrics import evaluate
from longtail.search.ensemble import (
    FITTED,
    _with_weight,
    best_first,
    fit_weights,
    in_order,
    mean_scores,
    reciprocal_ranks,
)


def ranked(random, n, width, filled=0.6, levels=12):
    """Return (n, width) scores of few values, so that there are ties, best first."""
    dense = random.integers(1, levels, (n, width)) / levels * (random.random((n, width)) < filled)
    return best_first(sparse.csr_array(dense.astype(np.float32)), None)


def truth_of(random, n, width):
    return sparse.csr_array((random.random((n, width)) < 0.2).astype(np.float32))


def value(members, truth, weights):
    metrics = evaluate(mean_scores(members, FITTED[-1], weights), truth, FITTED)
    return sum(metrics[f"P@{k}"] for k in FITTED)


def test_reciprocal_ranks_by_hand():
    one = best_first(
        sparse.csr_array(np.array([[0.1, 0.9, 0, 0.5], [0, 0, 0, 0], [0, 0, 0, 7]], np.float32)),
        None,
    )
    ranks = reciprocal_ranks(one)
    assert ranks.indices.tolist() == [1, 3, 0, 3]
    assert ranks.data.tolist() == pytest.approx([1, 61 / 62, 61 / 63, 1])
    assert (ranks.dtype, ranks.shape) == (np.float32, (3, 4))
    assert one.data.tolist() == pytest.approx([0.9, 0.5, 0.1, 7])  # the member stays as it is


def test_what_is_equal_stays_in_its_order():
    one = best_first(
        sparse.csr_array(np.array([[0.1, 0.9, 0, 0.5], [0.5, 0.25, 0, 0]], np.float32)), None
    )
    found = in_order(one, np.array([0.5, 0.25, 0.25, 0.5, 0.5]))
    assert found.data.tolist() == pytest.approx([0.5, 0.25, 0.25, 0.5, 0.5], rel=1e-5)
    assert best_first(found, None).indices.tolist() == one.indices.tolist() == [1, 3, 0, 0, 1]
    assert (np.diff(found.data)[[0, 1, 3]] < 0).all()
    assert (found.dtype, found.shape) == (np.float32, (2, 4))


@given(st.integers(0, 1000), st.integers(1, 3))
@settings(max_examples=20)
def test_rank_fusion_is_the_sum_of_the_paper(seed, count):
    random = np.random.default_rng(seed)
    members = [ranked(random, 5, 8) for _ in range(count)]
    fused = mean_scores([reciprocal_ranks(member) for member in members], None)
    for row in range(5):
        expected: dict[int, float] = {}
        for member in members:
            labels = member.indices[member.indptr[row] : member.indptr[row + 1]].tolist()
            for rank, label in enumerate(labels, 1):
                expected[label] = expected.get(label, 0) + 1 / (60 + rank)
        found = slice(*fused.indptr[row : row + 2])
        values = {label: 61 * total / count for label, total in expected.items()}
        assert dict(
            zip(fused.indices[found].tolist(), fused.data[found].tolist(), strict=True)
        ) == pytest.approx(values)
        assert (np.diff(fused.data[found]) <= 0).all()


@given(st.integers(0, 1000), st.integers(2, 4))
@settings(max_examples=20)
@example(1213, 3)
@example(1266, 2)
def test_the_value_is_that_of_the_metrics_and_no_member_is_better(seed, count):
    random = np.random.default_rng(seed)
    members = [ranked(random, 30, 15) for _ in range(count)]
    truth = truth_of(random, 30, 15)
    weights, found = fit_weights(members, truth)
    assert sum(weights) == pytest.approx(1)
    assert min(weights) >= 0
    assert found == pytest.approx(value(members, truth, weights))
    assert found >= value(members, truth, [1] * count) - 1e-9
    assert found >= max(value(members, truth, alone) for alone in np.eye(count)) - 1e-9
    assert fit_weights(members, truth) == (weights, found)


def test_two_weights_are_the_best_of_the_grid():
    random = np.random.default_rng(3)
    members = [ranked(random, 60, 20, levels=500) for _ in range(2)]
    truth = truth_of(random, 60, 20)
    grid = [value(members, truth, (step / 20, 1 - step / 20)) for step in range(21)]
    assert fit_weights(members, truth)[1] == pytest.approx(max(grid))
    assert max(grid) > max(grid[0], grid[10], grid[20])  # so that the search had something to find


def test_a_member_that_knows_gets_it_all_and_equal_ones_stay_equal():
    random = np.random.default_rng(0)
    truth = truth_of(random, 40, 12)
    noise = ranked(random, 40, 12, filled=1.0)
    knows = best_first(sparse.csr_array(truth), None)
    knows.data *= np.float32(0.1)  # on a scale where noise of equal weight is louder
    weights, found = fit_weights([noise, knows], truth)
    assert found == pytest.approx(value([knows], truth, [1]))
    assert weights[1] > 0.9
    assert fit_weights([noise, noise, noise], truth)[0] == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_nothing_to_fit_by():
    empty = sparse.csr_array((3, 4), dtype=np.float32)
    assert fit_weights([empty, empty], empty) == ((0.5, 0.5), 0.0)


@pytest.mark.parametrize(
    ("weights", "member", "expected"),
    [
        ([0.5, 0.25, 0.25], 0, [0.4, 0.3, 0.3]),
        ([0.2, 0, 0.8], 1, [0.12, 0.4, 0.48]),
        ([0, 1, 0], 1, [0.3, 0.4, 0.3]),
    ],
)
def test_the_others_keep_their_proportions_or_are_alike(weights, member, expected):
    before = np.array(weights, float)
    assert _with_weight(before, member, 0.4).tolist() == pytest.approx(expected)
    assert before.tolist() == weights
