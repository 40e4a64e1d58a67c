from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.svm import LinearSVC
from solver_problems import Problem, documents_of, padded, problem_of

from longtail.kernels.proximal import Proximal, index_columns, solve_proximal


def make(siblings, *, m=40, d=12, e=0, bias=1.0, seed=0, equal_costs=False, positive=0.3):
    random = np.random.default_rng(seed)
    rows = sparse.csr_array(random.random((m, d)) * (random.random((m, d)) < 0.3), dtype=np.float32)
    dense = random.normal(size=(m, e)).astype(np.float32)
    x = np.hstack([rows.toarray(), dense])
    margins = x @ random.normal(size=(x.shape[1], siblings)) + 0.3 * random.normal(
        size=(m, siblings)
    )
    y = np.where(margins > np.quantile(margins, 1 - positive, axis=0), 1.0, -1.0)
    costs = np.ones((m, siblings)) if equal_costs else np.exp(random.normal(size=(m, siblings)))
    return Problem(rows, dense, (y * costs).astype(np.float32), bias)


def arguments(problem, *, width=None, tolerance=1e-6, max_passes=2000, penalty=0.1):
    """Return what the solver takes; the last of it is where weights go, filled with what must not
    be left.
    """
    width = width or problem.width
    out = np.full(problem.x.shape[1] * width, 77, np.float32)
    targets = padded(problem.targets, width)
    siblings = problem.targets.shape[1]
    index = index_columns(problem.documents, problem.dense, problem.x.shape[1] - 1)
    block = problem_of(problem.documents, targets, siblings, index=index)
    return Proximal(tolerance, max_passes, penalty), block, out


def solve(problem, **settings):
    """Return the weights (columns, siblings), the bias last, and the steps made."""
    solver, block, out = arguments(problem, **settings)
    steps = solve_proximal(solver, block, out)
    m, siblings = problem.targets.shape
    return out.reshape(-1, len(block.targets) // m)[:, :siblings].astype(np.float64), steps


def objective(problem, w, penalty=0.1):
    """Return Σ C max(0, 1 − y w·x)² + λ‖w‖₁ of each sibling, the bias not penalised."""
    short = np.maximum(0, 1 - np.sign(problem.targets) * (problem.x @ w))
    return (np.abs(problem.targets) * short**2).sum(axis=0) + penalty * np.abs(w[:-1]).sum(axis=0)


def loss_gradient(problem, w):
    short = np.maximum(0, 1 - np.sign(problem.targets) * (problem.x @ w))
    return problem.x.T @ (-2 * problem.targets * short)


def violations(problem, w, penalty=0.1):
    """Return the least subgradient's entries (columns, siblings): all 0 at the optimum."""
    slopes = loss_gradient(problem, w)
    at_zero = np.maximum(np.abs(slopes) - penalty, 0)
    found = np.where(w == 0, at_zero, np.abs(slopes + penalty * np.sign(w)))
    found[-1] = np.abs(slopes[-1])
    return found


def oracle(problem, penalty=0.1, steps=4_000):
    """Minimise by accelerated proximal gradient steps of a fixed length, restarted; return the
    weights.
    """
    x = problem.x
    lengths = [
        0.5 / max(np.linalg.norm((x.T * c) @ x, 2), 1e-12)
        for c in np.abs(problem.targets.T.astype(np.float64))
    ]
    w = ahead = np.zeros((x.shape[1], len(lengths)))
    weight = np.ones(len(lengths))
    for _ in range(steps):
        free = ahead - lengths * loss_gradient(problem, ahead)
        new = np.sign(free) * np.maximum(np.abs(free) - penalty * np.array(lengths), 0)
        new[-1] = free[-1]
        weight = np.where(((ahead - new) * (new - w)).sum(axis=0) > 0, 1.0, weight)
        following = (1 + np.sqrt(1 + 4 * weight**2)) / 2
        ahead, w, weight = new + (weight - 1) / following * (new - w), new, following
    return w


# -------------------------------------------------------------------------------------------------
# the same answer


@pytest.mark.parametrize(
    ("siblings", "d", "e", "bias", "equal_costs", "penalty"),
    [
        (1, 12, 0, 1.0, True, 0.1),
        (3, 12, 3, 0.5, False, 1.0),
        (4, 0, 4, 1.0, True, 0.3),
        (9, 8, 0, 0.0, True, 0.1),
        (3, 60, 0, 2.0, True, 0.5),
        (3, 60, 2, 1.0, False, 0.2),
    ],
)
def test_objective_and_support_are_those_of_another_solver(
    siblings, d, e, bias, equal_costs, penalty
):
    problem = make(siblings, d=d, e=e, bias=bias, seed=siblings + d, equal_costs=equal_costs)
    w, _ = solve(problem, penalty=penalty)
    best = oracle(problem, penalty)
    found = objective(problem, w, penalty)
    least = objective(problem, best, penalty)
    np.testing.assert_allclose(found, least, rtol=1e-4, atol=1e-6)
    assert (found <= least * (1 + 1e-6) + 1e-7).all()
    sure = (np.abs(best[:-1]) > 1e-4) | (violations(problem, best, penalty)[:-1] < 1e-2 * penalty)
    assert ((w[:-1] != 0) == (np.abs(best[:-1]) > 1e-4))[sure].all()


def test_weights_are_those_of_scikit_learn_where_it_has_no_intercept():
    problem = make(5, m=60, d=15, bias=0.0, seed=3)
    w, _ = solve(problem, penalty=0.4)
    for s in range(5):
        model = LinearSVC(
            penalty="l1", dual=False, C=1 / 0.4, tol=1e-9, max_iter=100_000, fit_intercept=False
        )
        model.fit(problem.x[:, :-1], problem.targets[:, s] > 0, np.abs(problem.targets[:, s]))
        np.testing.assert_allclose(w[:-1, s], model.coef_[0], atol=1e-3)
        np.testing.assert_array_equal(w[:-1, s] != 0, model.coef_[0] != 0)


@given(
    siblings=st.integers(1, 16),
    m=st.integers(2, 60),
    d=st.integers(0, 90),
    e=st.integers(0, 3),
    bias=st.sampled_from([0.0, 1.0, 3.0]),
    equal_costs=st.booleans(),
    penalty=st.sampled_from([0.01, 0.1, 1.0, 10.0]),
    positive=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_every_column_is_optimal(siblings, m, d, e, bias, equal_costs, penalty, positive, seed):
    problem = make(
        siblings, m=m, d=d, e=e, bias=bias, equal_costs=equal_costs, positive=positive, seed=seed
    )
    w, _ = solve(problem, penalty=penalty)
    allowed = 1e-4 * (1 + np.abs(problem.targets).sum(axis=0) * (1 + np.abs(w).max(axis=0)))
    assert (violations(problem, w, penalty) <= allowed).all()


@pytest.mark.parametrize("tolerance", [0.3, 1e-2, 1e-4])
def test_violations_are_within_the_tolerance_of_the_penalty(tolerance):
    problem = make(3, m=100, d=70, seed=1, equal_costs=True, positive=0.1)
    start = np.zeros((71, 3))
    start[-1] = np.sign(problem.targets).mean(axis=0)
    limit = tolerance * np.minimum(violations(problem, start).max(axis=0), 0.1)
    w, steps = solve(problem, tolerance=tolerance)
    assert (violations(problem, w).max(axis=0) <= limit + 1e-4).all()
    assert 0 < steps < solve(problem, tolerance=tolerance / 100)[1]
    least = objective(problem, solve(problem)[0])
    assert (objective(problem, w) <= least + 2 * tolerance * 0.1 * np.abs(w).sum(axis=0)).all()


def test_fewer_steps_than_needed_are_an_upper_bound_that_falls():
    problem = make(4, m=100, d=80, seed=2)
    values = [objective(problem, solve(problem, max_passes=n)[0]) for n in (0, 1, 2, 4, 8, 2000)]
    for before, after in pairwise(values):
        assert (after <= before * (1 + 1e-6)).all()
    assert (values[-1] < 0.9 * values[1]).all()
    assert [solve(problem, max_passes=n)[1] for n in (0, 1, 3)] == [0, 1, 3]


# --------------------------------------------------------------------------------------------------
# a block's siblings


def test_siblings_do_not_influence_each_other():
    problem = make(11, m=50, d=30, e=2, seed=4)
    together, _ = solve(problem)
    for s in range(11):
        alone, _ = solve(problem._replace(targets=problem.targets[:, [s]]))
        np.testing.assert_array_equal(alone[:, 0], together[:, s])


@pytest.mark.parametrize(("siblings", "width"), [(3, 8), (8, 16), (0, 8)])
def test_padding_gets_zeros(siblings, width):
    solver, block, out = arguments(make(siblings, seed=5), width=width)
    solve_proximal(solver, block, out)
    out = out.reshape(-1, width)
    assert (out[:, siblings:] == 0).all()
    assert siblings == 0 or np.abs(out[:, :siblings]).max(axis=0).all()


def test_an_index_serves_many_blocks():
    first = make(4, m=50, d=30, e=2, seed=6)
    second = make(9, m=50, d=30, e=2, seed=7)
    second = second._replace(rows=first.rows, dense=first.dense)
    index = index_columns(first.documents, first.dense, 32)
    for problem in (first, second, first):
        solver, block, out = arguments(problem)
        assert solve_proximal(solver, block._replace(index=index), out) == solve(problem)[1]
        np.testing.assert_array_equal(
            out.reshape(33, -1)[:, : problem.targets.shape[1]], solve(problem)[0]
        )


# -------------------------------------------------------------------------------------------------------
# edges


def test_a_large_penalty_leaves_the_bias_alone():
    problem = make(3, bias=2.0, seed=8)
    w, _ = solve(problem, penalty=1e4)
    assert (w[:-1] == 0).all()
    best = problem.targets.sum(axis=0) / np.abs(problem.targets).sum(axis=0) / 2
    np.testing.assert_allclose(w[-1], best, rtol=1e-5)


@pytest.mark.parametrize("equal_costs", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_label_of_all_documents_or_of_none_needs_only_the_bias(sign, equal_costs):
    problem = make(2, bias=2.0, seed=9, equal_costs=equal_costs)
    w, _ = solve(problem._replace(targets=sign * np.abs(problem.targets)))
    np.testing.assert_allclose(w[-1], sign / 2, rtol=1e-6)
    assert (w[:-1] == 0).all()


def test_a_label_of_all_documents_without_a_constant_feature_needs_weights():
    problem = make(1, bias=0.0, seed=10)
    problem = problem._replace(targets=np.abs(problem.targets))
    w, _ = solve(problem)
    assert w[-1, 0] == 0
    assert violations(problem, w).max() < 1e-4


def test_documents_without_features_count_in_the_bias():
    problem = make(3, m=40, d=10, seed=11, equal_costs=True)
    rows = problem.rows.toarray()
    rows[5:30] = 0
    problem = problem._replace(rows=sparse.csr_array(rows))
    w, _ = solve(problem)
    np.testing.assert_allclose(
        objective(problem, w), objective(problem, oracle(problem)), rtol=1e-4
    )
    assert violations(problem, w).max() < 1e-3


def test_no_documents_give_zeros():
    out = np.full(8, 77, np.float32)
    documents = documents_of(
        sparse.csr_array((0, 0), dtype=np.float32), np.empty((0, 0), np.float32), 1.0
    )
    block = problem_of(documents, np.empty(0, np.float32), 8)
    assert solve_proximal(Proximal(0.1, 10, 0.1), block, out) == 0
    assert (out == 0).all()


def test_targets_are_left_as_they_were():
    solver, block, out = arguments(make(4, seed=12))
    before = block.targets.copy()
    solve_proximal(solver, block, out)
    np.testing.assert_array_equal(block.targets, before)
