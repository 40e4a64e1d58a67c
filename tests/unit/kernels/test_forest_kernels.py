from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.forest import _by_column
from longtail.kernels.forest_search import dot, label_score
from longtail.kernels.forest_split import (
    DocumentLabels,
    SplitLimits,
    SplitProblem,
    deal_documents,
    solve_l1_logistic,
)


def deal(label_matrix, gains, sides, documents=None, max_rounds=20):
    """Return the nDCG of each round; ``sides`` is changed."""
    documents = np.arange(label_matrix.shape[0], dtype=np.int32) if documents is None else documents
    numbers = np.full(label_matrix.shape[1], -1, np.int32)
    ptr, labels = label_matrix.indptr.astype(np.int64), label_matrix.indices.astype(np.int32)
    document_labels = DocumentLabels(ptr, labels, gains.astype(np.float32))
    ndcg = deal_documents(documents, document_labels, sides, numbers, max_rounds)
    assert (numbers == -1).all()
    return ndcg


def one_round(label_matrix, gains, sides):
    """Return the nDCG of the sides and where each document goes next, by sorting and adding up in plain Python."""
    first_use = list(dict.fromkeys(label_matrix.indices.tolist()))
    discount = {side: {} for side in (-1, 1)}
    ideal = [
        sum(1 / np.log2(rank + 2) for rank in range(size)) for size in np.diff(label_matrix.indptr)
    ]
    sums = {side: dict.fromkeys(first_use, 0.0) for side in (-1, 1)}
    pairs = [
        (row, int(label_matrix.indices[at]), float(gains[at]) / ideal[row])
        for row in range(label_matrix.shape[0])
        for at in range(label_matrix.indptr[row], label_matrix.indptr[row + 1])
    ]
    for row, label, gain in pairs:
        sums[sides[row]][label] += gain
    for side in (-1, 1):
        ranked = sorted(first_use, key=lambda label: -np.float32(sums[side][label]))
        discount[side] = {label: 1 / np.log2(rank + 2) for rank, label in enumerate(ranked)}
    dcg = {side: np.zeros(len(sides)) for side in (-1, 1)}
    for row, label, gain in pairs:
        for side in (-1, 1):
            dcg[side][row] += gain * discount[side][label]
    total = sum(dcg[side][row] for row, side in enumerate(sides))
    gap = dcg[1] - dcg[-1]
    return total, np.where(np.abs(gap) < 1e-9, sides, np.sign(gap)), np.abs(gap) < 1e-9


def random_labels(seed, n=30, labels=12):
    random = np.random.default_rng(seed)
    matrix = sparse.csr_array(random.random((n, labels)) < 0.2)
    sides = (2 * random.integers(0, 2, n) - 1).astype(np.int8)
    return matrix, (1 / random.uniform(0.1, 1, labels))[matrix.indices].astype(np.float32), sides


@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 20))
@settings(max_examples=40)
def test_a_round_ranks_labels_and_sends_documents_where_their_dcg_is_larger(seed, n, n_labels):
    matrix, gains, sides = random_labels(seed, n, n_labels)
    total, expected, tied = one_round(matrix, gains, sides)
    ndcg = deal(matrix, gains, sides, max_rounds=1)
    assert ndcg == pytest.approx([total])
    assert (sides[~tied] == expected[~tied]).all()


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_ndcg_never_falls_and_rounds_end_where_nothing_changes(seed):
    matrix, gains, sides = random_labels(seed, 80, 15)
    ndcg = deal(matrix, gains, sides, max_rounds=100)
    assert len(ndcg) < 100
    assert (np.diff(ndcg) > -1e-5).all()
    before = sides.copy()
    assert deal(matrix, gains, sides, max_rounds=1) == pytest.approx(ndcg[-1:])
    assert (sides == before).all()


def test_two_groups_without_common_labels_are_parted():
    matrix = sparse.csr_array(np.kron(np.eye(2), np.ones((20, 3))))
    sides = (2 * (np.random.default_rng(0).random(40) < 0.5) - 1).astype(np.int8)
    sides[:15], sides[-15:] = 1, -1
    deal(matrix, np.ones(120), sides)
    assert (sides[:20] == 1).all()
    assert (sides[20:] == -1).all()


def test_only_the_given_documents_are_dealt():
    matrix, gains, _ = random_labels(3, 40)
    chosen = np.array([30, 2, 17, 9, 5, 38], np.int32)
    part = matrix[chosen]
    inner = np.concatenate([gains[matrix.indptr[row] : matrix.indptr[row + 1]] for row in chosen])
    sides, other = (np.array([1, -1, 1, -1, 1, -1], np.int8) for _ in range(2))
    assert deal(matrix, gains, sides, chosen) == pytest.approx(deal(part, inner, other))
    assert (sides == other).all()


def separable(seed, m=120, d=30, negative=False):
    random = np.random.default_rng(seed)
    x = random.random((m, d)) * (random.random((m, d)) < 0.3)
    x = (x - 0.3 * (x > 0) if negative else x).astype(np.float32)
    margins = x @ random.normal(size=d) + 0.3 * random.normal(size=m) + 0.2
    return x, np.where(margins > np.quantile(margins, 0.4), 1, -1).astype(np.int8)


def objective(x, sides, costs, weights):
    margins = x @ weights[:-1] + weights[-1]
    return (
        np.abs(weights).sum() + (costs[(sides + 1) // 2] * np.logaddexp(0, -sides * margins)).sum()
    )


def solved(x, sides, costs, tolerance=1e-4, max_steps=200, max_passes=200):
    by_column = sparse.csc_array(x)
    by_column.sort_indices()
    ptr, rows = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32)
    problem = SplitProblem(ptr, rows, by_column.data, sides, costs)
    return solve_l1_logistic(problem, SplitLimits(tolerance, max_steps, max_passes), 7)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("cost", [0.3, 3.0, 30.0])
def test_the_separator_is_as_good_as_liblinears(cost, negative):
    x, sides = separable(int(cost * 10), negative=negative)
    costs = np.array([cost, 2 * cost])
    reference = LogisticRegression(
        l1_ratio=1, solver="liblinear", C=cost, class_weight={1: 2, -1: 1}, tol=1e-7, max_iter=10000
    ).fit(x, sides)
    best = objective(x, sides, costs, np.append(reference.coef_[0], reference.intercept_))
    assert objective(x, sides, costs, solved(x, sides, costs)) == pytest.approx(best, rel=1e-3)


def test_few_steps_already_help_and_a_large_penalty_holds_all_at_zero():
    x, sides = separable(1)
    costs = np.array([3.0, 3.0])
    rough, best = solved(x, sides, costs, 0.01, 20, 20), solved(x, sides, costs)
    assert objective(x, sides, costs, rough) < 1.02 * objective(x, sides, costs, best)
    assert not solved(x, sides, costs / 1000).any()


def test_columns_left_out_would_have_no_weight():
    x, sides = separable(5, m=40, d=60, negative=True)
    x[:, ::3] *= 0.1
    costs = np.array([0.8, 1.2])
    rows = sparse.csr_array(x[:, 10:])
    ptr, columns = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    features = FeatureRows(ptr, columns, rows.data, x[:, :10].copy(), 50)
    pulls, places = np.zeros((60, 2)), np.zeros(60, np.int32)
    kept, problem = _by_column(features, np.arange(40, dtype=np.int32), sides, costs, pulls, places)
    assert not pulls.any()
    assert not places.any()
    draws = costs[(sides + 1) // 2, None] * sides[:, None] * x
    pull = np.maximum(np.maximum(draws, 0).sum(axis=0), np.maximum(-draws, 0).sum(axis=0))
    assert sorted(kept.tolist()) == np.flatnonzero(pull > 1).tolist()
    assert ((pull > 1) & (pull < 2)).any()
    assert (pull < 1).any()
    weighted = set(np.flatnonzero(solved(x, sides, costs, 1e-6)[:-1]))
    assert len(weighted) > 3
    assert weighted <= set(kept.tolist())
    by_column = (problem.values, problem.rows, problem.pointers)
    gathered = sparse.csc_array(by_column, shape=(40, len(kept))).toarray()
    assert (gathered == x[:, kept]).all()


@given(st.integers(0, 10**6), st.integers(0, 200), st.integers(0, 12))
@settings(max_examples=40)
def test_both_ways_of_a_product_add_the_same_numbers(seed, n_weights, n_values):
    random = np.random.default_rng(seed)
    columns = np.sort(random.choice(300, n_weights, replace=False)).astype(np.int32)
    own = np.sort(random.choice(300, n_values, replace=False))
    weights, lookup = random.normal(size=n_weights).astype(np.float32), np.zeros(300, np.float32)
    lookup[own] = random.normal(size=n_values)
    found = dot(columns, weights, 0, n_weights, own, lookup)
    assert found == dot(columns, weights, 0, n_weights, np.arange(300), lookup)
    assert found == pytest.approx(weights.astype(np.float64) @ lookup[columns], abs=1e-9)


def test_a_score_joins_trees_and_distance_and_stays_above_zero():
    x, centre = np.array([3.0, 4.0]), np.array([0.0, 0.9])
    near = 1 / (1 + np.exp(15 * ((x / 5 - centre) ** 2).sum()))
    found = label_score(0.2, float(x @ centre), 5.0, 0.81, 0.3, 30.0)
    assert found == pytest.approx(0.2**0.7 * near**0.3)
    assert label_score(0.2, float(x @ centre), 5.0, 0.81, 0.0, 30.0) == 0.2
    empty = label_score(0.2, 0.0, 0.0, 0.81, 0.3, 30.0)
    assert empty == pytest.approx(0.2**0.7 * (1 / (1 + np.exp(15 * 0.81))) ** 0.3)
    assert 0 < np.float32(label_score(1e-6, 0.0, 1.0, 1.0, 1.0, 1000.0)) < 1e-30
