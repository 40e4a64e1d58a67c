from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.svm import LinearSVC
from solver_problems import Problem, padded, problem_of

from longtail.kernels import newton_step
from longtail.kernels.mean_separation import mean_separating, means, shortened, unusual
from longtail.kernels.newton import Newton, solve_newton


def make(siblings, *, m=40, d=12, e=0, bias=1.0, seed=0, costs=None, own=0):
    """``own`` documents have a column, behind the others, that no other document has."""
    random = np.random.default_rng(seed)
    x = random.random((m, d + own)) * (random.random((m, d + own)) < 0.4)
    x[:, d:] = 0
    x[np.arange(own), d + np.arange(own)] = random.uniform(-2, 2, own)
    dense = random.normal(size=(m, e)).astype(np.float32)
    inside = np.hstack([x[:, :d], dense])
    margins = inside @ random.normal(size=(d + e, siblings)) + random.normal(size=(m, siblings))
    y = np.where(margins > np.quantile(margins, 0.7, axis=0), 1, -1)
    costs = np.exp(random.normal(size=(m, siblings))) if costs is None else costs
    return Problem(
        sparse.csr_array(x, dtype=np.float32), dense, (y * costs).astype(np.float32), bias
    )


def solve(problem, *, width=None, tolerance=1e-6, max_passes=200, start=None):
    """Return the weights (columns, siblings) and the steps made."""
    siblings = problem.targets.shape[1]
    width = width or problem.width
    out = np.full(problem.x.shape[1] * width, 77, np.float32)
    if start is not None:
        start = np.ascontiguousarray(start.T, np.float32)
    block = problem_of(problem.documents, padded(problem.targets, width), siblings, start=start)
    steps = solve_newton(Newton(tolerance, max_passes), block, out)
    out = out.reshape(-1, width)
    assert (out[:, siblings:] == 0).all()
    return out[:, :siblings].astype(np.float64), steps


def objective(problem, w):
    """Return ½‖w‖² + Σ C max(0, 1 − y w·x)² of each sibling."""
    y = np.sign(problem.targets)
    costs = np.abs(problem.targets)
    return (w**2).sum(axis=0) / 2 + (costs * np.maximum(0, 1 - y * (problem.x @ w)) ** 2).sum(
        axis=0
    )


def gradient(problem, w):
    y = np.sign(problem.targets)
    costs = np.abs(problem.targets)
    return w - 2 * problem.x.T @ (costs * y * np.maximum(0, 1 - y * (problem.x @ w)))


def best(problem):
    """Return the least objective of each sibling: Newton's method by dense algebra, each step
    halved until it gains.
    """
    x = problem.x
    least = []
    for s in range(problem.targets.shape[1]):
        one = problem.only(s)
        w = np.zeros((x.shape[1], 1))
        for _ in range(100):
            inside = np.sign(one.targets) * (x @ w) < 1
            hessian = np.eye(len(w)) + 2 * (x.T * (np.abs(one.targets) * inside).T) @ x
            step = np.linalg.solve(hessian, gradient(one, w))
            before = objective(one, w)
            while objective(one, w - step) > before and abs(step).max() > 1e-12:
                step = step / 2
            w = w - step
            if abs(step).max() < 1e-10:
                break
        least.append(objective(one, w)[0])
    return np.array(least)


def excess(problem, w):
    least = best(problem)
    return (objective(problem, w) - least) / least


# -------------------------------------------------------------------------------------------------
# the same answer


@pytest.mark.parametrize(
    ("siblings", "d", "e", "bias", "own"),
    [
        (1, 12, 0, 1.0, 0),
        (5, 12, 3, 0.5, 0),
        (8, 0, 4, 1.0, 0),
        (9, 12, 0, 0.0, 9),
        (16, 5, 3, 2.0, 40),
    ],
)
def test_weights_are_those_of_scikit_learn(siblings, d, e, bias, own):
    problem = make(siblings, d=d, e=e, bias=bias, own=own, seed=siblings)
    w, _ = solve(problem)
    for s in range(siblings):
        y = np.sign(problem.targets[:, s])
        costs = np.abs(problem.targets[:, s])
        given = {"dual": False, "tol": 1e-8, "max_iter": 100_000, "fit_intercept": bias > 0}
        model = LinearSVC(intercept_scaling=bias or 1.0, **given).fit(problem.x[:, :-1], y, costs)
        expected = np.append(model.coef_[0], np.ravel(model.intercept_)[0] / bias if bias else 0)
        np.testing.assert_allclose(w[:, s], expected, atol=2e-3)
        theirs = objective(problem.only(s), expected[:, None])
        assert objective(problem.only(s), w[:, [s]]) <= theirs * (1 + 1e-4)
        at_zero = np.linalg.norm(gradient(problem.only(s), np.zeros_like(w[:, [s]])))
        assert np.linalg.norm(gradient(problem.only(s), w[:, [s]])) < 1e-3 * at_zero


@given(
    siblings=st.integers(1, 16),
    m=st.integers(1, 20),
    d=st.integers(0, 9),
    e=st.integers(0, 3),
    bias=st.sampled_from([0.0, 1.0, 3.0]),
    own=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_no_weights_are_better(siblings, m, d, e, bias, own, seed):
    problem = make(siblings, m=m, d=d, e=e, bias=bias, own=min(own, m), seed=seed)
    w, steps = solve(problem)
    assert np.isfinite(w).all()
    assert steps < 200
    assert (excess(problem, w) < 1e-4).all()


@pytest.mark.parametrize("tolerance", [0.1, 0.01, 0.001])
def test_a_sibling_is_done_at_its_share_of_the_first_gradient(tolerance):
    problem = make(16, m=150, d=40, e=2, costs=3.0, seed=3)
    w, steps = solve(problem, tolerance=tolerance)
    positives = (problem.targets > 0).sum(axis=0)
    share = np.minimum(positives, 150 - positives) / 150
    at_zero = np.linalg.norm(gradient(problem, np.zeros_like(w)), axis=0)
    result = np.linalg.norm(gradient(problem, w), axis=0)
    assert (result <= 1.01 * tolerance * share * at_zero).all()
    assert (
        result.max() > 0.01 * tolerance * (share * at_zero).min()
    )  # it does no more than was asked
    assert steps < 12


def uneven():
    """Siblings that need very different numbers of steps."""
    problem = make(16, m=60, d=15, e=2, own=5, seed=4, costs=np.geomspace(1e-3, 100, 16))
    targets = problem.targets.copy()
    targets[:, 3] = np.where(np.arange(60) == 7, 1, -1)
    return problem._replace(targets=targets)


def test_a_sibling_is_solved_as_if_it_were_alone():
    problem = uneven()
    for tolerance in (0.1, 1e-4):
        together, steps = solve(problem, tolerance=tolerance)
        alone = [solve(problem.only(s), tolerance=tolerance, width=16) for s in range(16)]
        assert steps == max(made for _, made in alone) > min(made for _, made in alone)
        np.testing.assert_allclose(together, np.hstack([w for w, _ in alone]), atol=1e-5)


def test_padding_changes_nothing():
    problem = make(5, e=2, own=4)
    narrow = solve(problem, width=8)
    wide = solve(problem, width=16)
    np.testing.assert_allclose(narrow[0], wide[0], atol=1e-6)
    assert narrow[1] == wide[1]


def test_many_documents_fill_more_than_one_tile():
    problem = make(9, m=333, d=30, costs=1.0)  # tiles of 64 documents, the last one not full
    assert (excess(problem, solve(problem)[0]) < 1e-5).all()


def test_steps_end_at_their_limit_with_the_weights_reached():
    problem = make(10, costs=100.0, own=10)
    values = [
        objective(problem, solve(problem, max_passes=steps, tolerance=1e-9)[0])
        for steps in range(5)
    ]
    for before, after in pairwise(values):
        assert (after <= before * (1 + 1e-6)).all()
    assert solve(problem, max_passes=2, tolerance=1e-9)[1] == 2


# -------------------------------------------------------------------------------------------------
# the parts


def prepared(problem):
    """Return the rows and targets before the first step, the mean of all documents, and least
    gradients.
    """
    width = 16
    n_columns = problem.x.shape[1]
    targets = padded(problem.targets, width)
    block = unusual(targets, width)
    rows = shortened(problem.documents, targets, width, n_columns)
    mean, least = means(rows, block, n_columns)
    return rows, block, mean, least


@pytest.mark.parametrize(("bias", "e"), [(1.0, 0), (0.0, 2), (2.0, 3)])
def test_the_start_separates_the_means(bias, e):
    problem = make(12, m=60, e=e, bias=bias, costs=1.0)
    rows, block, mean, _ = prepared(problem)
    w = np.full(problem.x.shape[1] * 16, 77, np.float32)
    mean_separating(rows, block, mean, w)
    np.testing.assert_allclose(mean, problem.x.mean(axis=0), atol=1e-6)
    for s, member in enumerate(w.reshape(-1, 16).T[:12]):
        positive = problem.targets[:, s] > 0
        assert member @ problem.x[positive].mean(axis=0) == pytest.approx(1, abs=1e-4)
        assert member @ problem.x.mean(axis=0) == pytest.approx(3 * positive.mean() - 2, abs=1e-4)


@pytest.mark.parametrize(("sign", "value"), [(1, 1.0), (-1, -2.0)])
def test_without_other_documents_the_start_is_along_their_mean(sign, value):
    problem = make(2, m=20)._replace(targets=np.full((20, 2), sign, np.float32))
    rows, block, mean, _ = prepared(problem)
    w = np.empty(13 * 16, np.float32)
    mean_separating(rows, block, mean, w)
    np.testing.assert_allclose(w.reshape(-1, 16)[:, :2].T @ mean, value, rtol=1e-5)
    np.testing.assert_allclose(w.reshape(-1, 16)[:, 0] / w[-16], mean / mean[-1], rtol=1e-4)


def test_the_scale_of_gradients_is_the_one_at_zero():
    problem = make(7, m=30, e=2)
    *_, least = prepared(problem)
    positives = (problem.targets > 0).sum(axis=0)
    norms = np.linalg.norm(gradient(problem, np.zeros((15, 7))), axis=0)
    np.testing.assert_allclose(
        least[:7], np.minimum(positives, 30 - positives) / 30 * norms, rtol=1e-5
    )


def test_the_hessian_is_the_slope_of_the_gradient():
    problem = make(1, m=50, d=10, e=3, bias=0.7)
    random = np.random.default_rng(0)
    w = random.normal(size=(14, 1))
    p = random.normal(size=(14, 1))
    margins = (problem.x @ w)[:, 0]
    target = problem.targets[:, 0]
    inside = np.flatnonzero(np.sign(target) * margins < 1)
    expected = (gradient(problem, w + 1e-6 * p) - gradient(problem, w - 1e-6 * p)) / 2e-6
    rows = problem.rows[inside]
    order = [*range(3, 13), 13, 0, 1, 2]  # found columns, the bias, dense columns
    local = newton_step._LocalRows(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.uint32),
        rows.data,
        problem.dense,
        inside,
        np.float32(0.7),
    )
    result = newton_step._hessian_times(
        p[order, 0].astype(np.float32), local, 2 * np.abs(target[inside])
    )
    assert 5 < len(inside) < 45
    np.testing.assert_allclose(result, expected[order, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [1, 9, 70])
def test_the_preconditioner_is_solved_exactly(n):
    random = np.random.default_rng(n)
    diagonal, u, r = (random.uniform(1, 3, n).astype(np.float32) for _ in range(3))
    across = u / diagonal
    out = np.empty(n, np.float32)
    newton_step._solve(r, newton_step._Hessian(diagonal, across, 1.0 / (1.0 + across @ u)), out)
    np.testing.assert_allclose((np.diag(diagonal) + np.outer(u, u)) @ out, r, rtol=1e-4, atol=1e-5)


def test_the_preconditioner_is_the_hessian_but_for_likeness_within_columns():
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, (30, 6))
    curve = random.uniform(0.5, 2, 30)
    hessian = np.eye(6) + (x.T * curve) @ x
    diagonal = np.diag(hessian).astype(np.float32)
    mean = (curve @ x).astype(np.float32)
    newton_step._split_off_mean(diagonal, mean, curve.sum())
    centred = x - (curve @ x) / curve.sum()
    np.testing.assert_allclose(diagonal, 1 + curve @ centred**2, rtol=1e-4)
    np.testing.assert_allclose(
        np.outer(mean, mean), np.outer(curve @ x, curve @ x) / curve.sum(), rtol=1e-5
    )


def test_a_start_from_given_weights_is_no_worse_than_none_and_ends_the_same():
    problem = make(6, e=4, seed=1)
    good = solve(problem)[0][:4]
    for start in (good, 3 * good, -good, np.zeros((4, 6))):
        first, steps = solve(problem, start=start, max_passes=0)
        assert steps == 0
        assert (first[4:] == 0).all()
        assert (
            objective(problem, first) <= objective(problem, np.zeros_like(first)) * (1 + 1e-6)
        ).all()
        assert (excess(problem, solve(problem, start=start)[0]) < 1e-5).all()
    first, _ = solve(problem, start=0.3 * good, max_passes=0)
    np.testing.assert_allclose(first[:4], 0.3 * good, rtol=1e-5)


# -------------------------------------------------------------------------------------------------
# small and strange


@pytest.mark.parametrize("sign", [1, -1])
def test_all_documents_of_one_sign(sign):
    problem = make(3, m=10)._replace(targets=np.full((10, 3), sign, np.float32))
    w, _ = solve(problem)
    assert (excess(problem, w) < 1e-5).all()
    assert ((problem.x @ w > 0) == (sign > 0)).all()


def test_one_document():
    rows = sparse.csr_array(np.array([[3.0, 0, 4]], np.float32))
    problem = Problem(rows, np.zeros((1, 0), np.float32), np.array([[1.0, -0.5]]), 0.0)
    # y ξ with ξ = 1 / (‖x‖² + 1 / (2 C)) in the dual
    expected = np.outer([3, 0, 4, 0], [1 / (25 + 0.5), -1 / (25 + 1)])
    np.testing.assert_allclose(solve(problem)[0], expected, rtol=1e-4)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_documents_without_features(bias):
    problem = make(9, m=30, bias=bias)
    rows = problem.rows.toarray()
    rows[::3] = 0
    problem = problem._replace(rows=sparse.csr_array(rows))
    assert (excess(problem, solve(problem)[0]) < 1e-5).all()


def test_no_features_at_all():
    problem = make(2, m=6, d=0)
    w, _ = solve(problem)
    assert w.shape == (1, 2)
    assert (excess(problem, w) < 1e-6).all()
    assert (solve(problem._replace(bias=0.0))[0] == 0).all()
