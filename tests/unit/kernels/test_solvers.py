from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse, special
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from solver_problems import documents_of, problem_of

from longtail.kernels import solvers
from longtail.kernels.solvers import DualHinge, DualLogistic, solve_hinge, solve_logistic

SOLVERS = [solve_hinge, solve_logistic]


class Problem(NamedTuple):
    """Documents with a sparse and a dense block, and of each (document, sibling) whether it is
    positive and its C.
    """

    rows: sparse.csr_array
    dense: np.ndarray
    positive: np.ndarray
    costs: np.ndarray
    bias: float

    @property
    def x(self):
        constant = np.full((len(self.dense), 1), self.bias)
        return np.hstack([self.dense, self.rows.toarray(), constant]).astype(np.float64)

    @property
    def y(self):
        return np.where(self.positive, 1.0, -1.0)


def make(siblings, *, m=40, d=12, e=0, bias=1.0, seed=0, costs=None):
    random = np.random.default_rng(seed)
    rows = sparse.csr_array(random.random((m, d)) * (random.random((m, d)) < 0.4), dtype=np.float32)
    dense = random.normal(size=(m, e)).astype(np.float32)
    x = np.hstack([rows.toarray(), dense])
    margins = x @ random.normal(size=(x.shape[1], siblings)) + random.normal(size=(m, siblings))
    positive = margins > np.quantile(margins, 0.7, axis=0)
    if costs is None:
        costs = np.exp(random.normal(size=(m, siblings)))
    return Problem(rows, dense, positive, np.broadcast_to(costs, (m, siblings)), bias)


def arguments(
    solver, problem, *, width=None, tolerance=1e-5, max_passes=3000, seed=0, products=False
):
    """Return what the solver takes; the last of it is where weights go, filled with what must not
    be left.
    """
    m, siblings = problem.positive.shape
    width = width or (8 if siblings <= 8 else 16)
    targets = np.zeros((m, width), np.float32)
    targets[:, :siblings] = problem.y * (
        0.5 / problem.costs if solver is not solve_logistic else problem.costs
    )
    rows = problem.rows
    e = problem.dense.shape[1]
    out = np.full((e + rows.shape[1] + 1) * width, 77, np.float32)
    documents = documents_of(rows, problem.dense, problem.bias, products=products)
    settings = (DualLogistic if solver is solve_logistic else DualHinge)(tolerance, max_passes)
    return settings, problem_of(documents, targets.ravel(), siblings, seed=seed), out


def solve(solver, problem, **settings):
    """Return the weights (columns, siblings) and the passes made."""
    given = arguments(solver, problem, **settings)
    passes = solver(*given)
    m, siblings = problem.positive.shape
    return given[-1].reshape(-1, len(given[1].targets) // m)[:, :siblings].astype(
        np.float64
    ), passes


def peer(solver, problem, sibling):
    """Return the weights that scikit-learn finds."""
    settings = {"C": 1.0, "dual": True, "tol": 1e-10, "max_iter": 1_000_000, "random_state": 0}
    settings |= {"fit_intercept": problem.bias > 0, "intercept_scaling": problem.bias or 1.0}
    model = (
        LinearSVC(**settings)
        if solver is solve_hinge
        else LogisticRegression(solver="liblinear", **settings)
    )
    model.fit(problem.x[:, :-1], problem.positive[:, sibling], problem.costs[:, sibling])
    intercept = model.intercept_ / problem.bias if problem.bias else [0.0]
    return np.concatenate([model.coef_[0], np.ravel(intercept)])


def objective(solver, problem, w):
    """Return ½‖w‖² + Σ C loss of each sibling."""
    margins = problem.y * (problem.x @ w)
    losses = np.maximum(0, 1 - margins) ** 2 if solver is solve_hinge else np.logaddexp(0, -margins)
    return (w**2).sum(axis=0) / 2 + (problem.costs * losses).sum(axis=0)


def best(solver, problem):
    """Return the least objective of each sibling: Newton's method in the primal, each step halved
    until it gains.
    """
    x = problem.x
    values = []
    for s in range(problem.positive.shape[1]):
        one = problem._replace(positive=problem.positive[:, [s]], costs=problem.costs[:, [s]])
        w = np.zeros(x.shape[1])
        y = one.y[:, 0]
        costs = one.costs[:, 0]
        for _ in range(60):
            margins = y * (x @ w)
            if solver is solve_hinge:
                slopes = -2 * np.maximum(0, 1 - margins)
                curves = 2.0 * (margins < 1)
            else:
                slopes = -special.expit(-margins)
                curves = special.expit(margins) * special.expit(-margins)
            gradient = w + x.T @ (costs * slopes * y)
            step = np.linalg.solve(np.eye(len(w)) + (x.T * (costs * curves)) @ x, gradient)
            before = objective(solver, one, w[:, None])[0]
            while (
                objective(solver, one, (w - step)[:, None])[0] > before and abs(step).max() > 1e-12
            ):
                step = step / 2
            w = w - step
            if abs(gradient).max() < 1e-9:
                break
        values.append(objective(solver, one, w[:, None])[0])
    return np.array(values)


def excess(solver, problem, w):
    """Return how far the objective is above the least one, as a share of it."""
    least = best(solver, problem)
    return (objective(solver, problem, w) - least) / least


# -------------------------------------------------------------------------------------------------
# the same answer


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("siblings", "d", "e", "bias"),
    [
        (1, 12, 0, 1.0),
        (5, 12, 3, 0.5),
        (8, 0, 4, 1.0),
        (9, 12, 0, 0.0),
        (16, 5, 3, 2.0),
        (3, 0, 3, 0.0),
    ],
)
def test_weights_are_those_of_scikit_learn(solver, siblings, d, e, bias):
    problem = make(siblings, d=d, e=e, bias=bias, seed=siblings)
    w, _ = solve(solver, problem)
    for s in range(siblings):
        np.testing.assert_allclose(w[:, s], peer(solver, problem, s), atol=2e-3)


@pytest.mark.parametrize("solver", SOLVERS)
@given(
    siblings=st.integers(1, 16),
    m=st.integers(2, 20),
    d=st.integers(0, 9),
    e=st.integers(0, 3),
    bias=st.sampled_from([0.0, 1.0, 3.0]),
    seed=st.integers(0, 1000),
)
@example(siblings=9, m=2, d=4, e=2, bias=3.0, seed=501)  # steep: 0.004 for a tolerance of 1e-4
@settings(max_examples=15)
def test_no_weights_are_better(solver, siblings, m, d, e, bias, seed):
    problem = make(siblings, m=m, d=d, e=e, bias=bias, seed=seed)
    w, _ = solve(solver, problem, tolerance=1e-5)
    assert np.isfinite(w).all()
    assert (excess(solver, problem, w) < 1e-3).all()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("siblings", [3, 16])
def test_inner_products_do_in_place_of_dense_rows(solver, siblings):
    problem = make(siblings, m=12, e=20, seed=siblings)
    (by_products, passes) = solve(solver, problem, products=True)
    (by_rows, _) = solve(solver, problem)
    assert passes < 3000
    np.testing.assert_allclose(by_products, by_rows, atol=2e-3)
    assert (excess(solver, problem, by_products) < 1e-4).all()


def test_a_block_by_inner_products_becomes_narrow_too():
    problem = uneven()
    dense = np.random.default_rng(5).normal(size=(len(problem.dense), 70)).astype(np.float32) / 20
    problem = problem._replace(dense=dense)
    w, _ = solve(solve_hinge, problem, tolerance=1e-3, products=True)
    assert (excess(solve_hinge, problem, w) < 1e-4).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_padding_changes_nothing(solver):
    problem = make(5, e=2)
    narrow = solve(solver, problem, width=8)
    wide = solve(solver, problem, width=16)
    np.testing.assert_array_equal(narrow[0], wide[0])
    assert narrow[1] == wide[1]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_sibling_is_solved_as_if_it_were_alone(solver):
    problem = make(16, e=2)
    together, _ = solve(solver, problem)
    for s in (0, 7, 15):
        alone = problem._replace(positive=problem.positive[:, [s]], costs=problem.costs[:, [s]])
        np.testing.assert_allclose(together[:, [s]], solve(solver, alone)[0], atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("e", [0, 3, 70])
def test_one_sibling_needs_no_padding(solver, e):
    problem = make(1, m=90, e=e)
    (alone, passes) = solve(solver, problem, width=1)
    (padded, _) = solve(solver, problem, width=8)
    assert passes < 3000
    assert (excess(solver, problem, alone) < 1e-4).all()
    np.testing.assert_allclose(alone, padded, atol=2e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_costs_count_as_so_many_copies_of_a_document(solver):
    problem = make(4, m=20, costs=2.0)
    once = problem._replace(costs=np.full((40, 4), 1.0))
    twice = once._replace(
        rows=sparse.vstack([problem.rows] * 2, format="csr"),
        dense=np.vstack([problem.dense] * 2),
        positive=np.vstack([problem.positive] * 2),
    )
    np.testing.assert_allclose(solve(solver, problem)[0], solve(solver, twice)[0], atol=1e-3)


# -------------------------------------------------------------------------------------------------
# tolerance, passes


@pytest.mark.parametrize(
    ("solver", "bounds"),
    [
        (solve_hinge, {0.1: 1e-2, 0.01: 1e-4, 0.001: 1e-6}),
        (solve_logistic, {0.1: 2e-4, 0.01: 1e-5, 0.001: 1e-7}),
    ],
)
def test_a_smaller_tolerance_means_a_smaller_excess(solver, bounds):
    problem = make(16, m=100, d=30, costs=1.0, seed=3)
    found = {tolerance: solve(solver, problem, tolerance=tolerance) for tolerance in bounds}
    worst = {tolerance: excess(solver, problem, w).max() for tolerance, (w, _) in found.items()}
    assert all(worst[tolerance] < bound for tolerance, bound in bounds.items()), worst
    assert worst[0.1] > worst[0.01] > worst[0.001]
    passes = [passes for _, passes in found.values()]
    assert passes[0] < passes[1] < passes[2] < 3000


@pytest.mark.parametrize("solver", SOLVERS)
def test_passes_end_at_their_limit_with_the_weights_reached(solver):
    problem = make(10, costs=100.0)
    w, passes = solve(solver, problem, max_passes=2, tolerance=1e-9)
    assert passes == 2
    assert (w != 77).all()
    nothing = objective(solver, problem, np.zeros_like(w))
    assert (
        objective(solver, problem, solve(solver, problem, max_passes=50, tolerance=1e-9)[0])
        < nothing
    ).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_seed_decides_the_bytes(solver):
    problem = make(16, m=80, e=3)
    first, again, other = (
        solve(solver, problem, tolerance=0.1, seed=seed)[0] for seed in (5, 5, 6)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def uneven(m=60):
    """Siblings that need from a handful to hundreds of passes."""
    random = np.random.default_rng(1)
    costs = np.geomspace(1e-3, 30, 16)
    problem = make(16, m=m, d=15, seed=4, costs=costs)
    positive = problem.positive.copy()
    positive[:, 3] = positive[:, 12] = random.random(m) < 0.03
    return problem._replace(positive=positive)


def test_siblings_that_take_very_different_times_are_all_right():
    problem = uneven()
    w, passes = solve(solve_hinge, problem, tolerance=1e-3)
    assert 50 < passes < 3000
    assert (excess(solve_hinge, problem, w) < 1e-4).all()
    w, _ = solve(solve_logistic, problem, tolerance=1e-3)
    assert (excess(solve_logistic, problem, w) < 1e-4).all()


def test_documents_rest_and_the_block_becomes_narrow(monkeypatch):
    problem = uneven()
    compiled, passes = solve(solve_hinge, problem, tolerance=1e-2)
    calls = {"narrow": 0, "rest": 0}
    visit = solvers._visit
    narrow = solvers._narrow
    shuffle = solvers.shuffle
    actives = []

    def counting_visit(*given):
        answer = visit(*given)
        calls["rest"] += bool(answer[1])
        return answer

    def counting_narrow(*given):
        calls["narrow"] += 1
        return narrow(*given)

    def counting_shuffle(order, n, state):
        actives.append(n)
        shuffle(order, n, state)

    monkeypatch.setattr(solvers, "_pass", getattr(solvers._pass, "py_func", solvers._pass))
    monkeypatch.setattr(solvers, "_visit", counting_visit)
    monkeypatch.setattr(solvers, "_narrow", counting_narrow)
    monkeypatch.setattr(
        solvers, "_narrowed", getattr(solvers._narrowed, "py_func", solvers._narrowed)
    )
    monkeypatch.setattr(solvers, "shuffle", counting_shuffle)
    plain, steps = solve(getattr(solve_hinge, "py_func", solve_hinge), problem, tolerance=1e-2)
    assert calls["narrow"] == 4  # w, what the dense block pulls, α and targets, once
    assert calls["rest"] > 20
    assert min(actives) < max(actives) == actives[-1] == 60  # the last pass looks at all documents
    np.testing.assert_array_equal(plain, compiled)
    assert steps == passes == len(actives)


# -------------------------------------------------------------------------------------------------
# small and strange


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("sign", [True, False])
def test_all_documents_of_one_sign(solver, sign):
    problem = make(3, m=10)._replace(positive=np.full((10, 3), sign))
    w, passes = solve(solver, problem)
    assert passes < 3000
    assert (excess(solver, problem, w) < 1e-5).all()
    assert ((problem.x @ w > 0) == sign).all()


def test_one_document():
    rows = sparse.csr_array(np.array([[3.0, 0, 4]], np.float32))
    positive = np.array([[True, False]])
    costs = np.array([[1.0, 0.5]])
    problem = Problem(rows, np.zeros((1, 0), np.float32), positive, costs, 0.0)
    w, _ = solve(solve_hinge, problem)
    # one α: y ‖x‖² α − 1 + α / (2 C) = 0
    expected = np.outer([3, 0, 4, 0], [1 / (25 + 0.5), -1 / (25 + 1)])
    np.testing.assert_allclose(w, expected, rtol=1e-5)
    w, _ = solve(solve_logistic, problem)
    assert (excess(solve_logistic, problem, w) < 1e-6).all()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("siblings", [3, 16])
def test_documents_without_features(solver, bias, siblings):
    problem = make(siblings, m=30, bias=bias)
    rows = problem.rows.toarray()
    rows[::3] = 0
    problem = problem._replace(rows=sparse.csr_array(rows))
    w, passes = solve(solver, problem, tolerance=1e-3)
    assert passes < 3000
    assert (excess(solver, problem, w) < 1e-4).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_features_at_all(solver):
    problem = make(2, m=6, d=0, bias=1.0)
    w, _ = solve(solver, problem)
    assert w.shape == (1, 2)
    assert (excess(solver, problem, w) < 1e-6).all()
    problem = problem._replace(bias=0.0)
    w, _ = solve(solver, problem, tolerance=1e-2)
    assert (w == 0).all()
