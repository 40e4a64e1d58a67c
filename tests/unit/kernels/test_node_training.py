from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.newton import Newton
from longtail.kernels.node_training import ALONE, TrainingSettings, prepare, train_spans
from longtail.kernels.proximal import Proximal
from longtail.kernels.solvers import DualHinge, DualLogistic

# as training calls the kernel, which is compiled for that alone
from longtail.rankers.spans import (
    _aligned,
    _Arguments,
)

D = 30


class Setup(NamedTuple):
    """Documents, the documents of two parents, and the documents of each node with their relevance."""

    x: np.ndarray  # (n, D) sparse block
    dense: np.ndarray
    documents: list[np.ndarray]  # of each parent
    offsets: list[int]  # of the nodes of each parent
    relevance: np.ndarray  # (n, nodes), 0 for negatives


def proximal(tolerance, max_passes, penalty=0.0):
    return Proximal(tolerance, max_passes, penalty)


def setup(*, e=0, offsets=(0, 5, 24), n=50, seed=0, share=0.3):
    random = np.random.default_rng(seed)
    x = random.random((n, D)) * (random.random((n, D)) < 0.15)
    x[np.arange(n), random.integers(D, size=n)] += 0.5
    x[:6, 20:] = 0  # columns that only one document has: two of document 0, one of document 5
    x[:, 24:] = 0
    x[0, 24] = 0.6
    x[0, 25] = 0.8
    x[5, 27] = 2.0
    documents = [np.arange(0, n, 2), np.unique(random.integers(n, size=n))]
    documents[1] = np.union1d(documents[1], [0, 5])
    relevance = (random.random((n, offsets[-1])) < share).astype(np.float32)
    return Setup(
        x.astype(np.float32),
        random.normal(size=(n, e)).astype(np.float32),
        documents,
        list(offsets),
        relevance,
    )


def train(case, spans=None, first=0, last=None, **options):
    """Train and return the parts: a dict (column, sibling) → weight and the dense weights of each
    span.
    """
    settings = {
        "solver": DualHinge,
        "positive": 1.0,
        "negative": 1.0,
        "bias": 1.0,
        "tolerance": 1e-5,
        "prune": 0.0,
        "penalty": 0.0,
        "start": None,
        "passes": 2000,
        "group": None,  # whose documents are prepared before, for all spans
    } | options
    spans = spans or [
        (parent, *ends)
        for parent, ends in enumerate(zip(case.offsets, case.offsets[1:], strict=False))
    ]
    last = len(spans) if last is None else last
    rows = sparse.csr_array(case.x)
    by_node = sparse.csc_array(case.relevance)
    pointers = np.cumsum([0, *map(len, case.documents)])
    order = np.zeros(case.relevance.shape[1], np.int64)
    for _, start, stop in spans:
        order[start:stop] = np.argsort(-np.diff(by_node.indptr)[start:stop], kind="stable")
    solver = settings["solver"](settings["tolerance"], settings["passes"])
    if isinstance(solver, Proximal):
        solver = solver._replace(penalty=settings["penalty"])
    leaves = (
        *np.array(spans, np.int64).T.copy(), order,
        pointers.astype(np.int64), np.concatenate(case.documents).astype(np.int32),
        by_node.indptr.astype(np.int64), by_node.indices.astype(np.int32), by_node.data,
        rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, case.dense, D,
        np.zeros((0, case.dense.shape[1]), np.float32) if settings["start"] is None else settings["start"],
    )  # fmt: skip
    costs = (
        settings["positive"],
        settings["negative"],
        np.float32(settings["bias"]),
        np.float32(settings["prune"]),
    )
    arguments = _Arguments(*map(_aligned, leaves), TrainingSettings(solver, *costs, 0))
    mine = case.documents[settings["group"]] if settings["group"] is not None else np.zeros(0)
    ready = prepare(
        solver, _aligned(mine.astype(np.int32)), arguments.features, arguments.settings.bias,
        np.full(D, -1, np.int32),
    )  # fmt: skip
    result = train_spans((first, last), ready, arguments.spans, arguments.data, arguments.settings)
    return parts(result, [stop - start for _, start, stop in spans[first:last]])


def parts(result, widths):
    """Cut the answer into the spans, and check that all of it belongs to one."""
    span_rows, columns, counts, siblings, weights, dense = result
    assert len(span_rows) == len(widths)
    assert len(columns) == len(counts) == span_rows.sum()
    assert len(siblings) == len(weights) == counts.sum()
    assert len(dense) == sum(widths)
    results = []
    row = 0
    entry = 0
    node = 0
    for rows, width in zip(span_rows, widths, strict=True):
        mine = columns[row : row + rows]
        assert (np.diff(mine) > 0).all()
        w = np.zeros((D + 1, width))
        for column, count in zip(mine, counts[row : row + rows], strict=True):
            member = siblings[entry : entry + count]
            assert count > 0
            assert (np.diff(member) > 0).all()
            w[column, member] = weights[entry : entry + count]
            entry += count
        results.append((w, dense[node : node + width]))
        row, node = row + rows, node + width
    return results


def oracle(case, parent, node, *, solver=DualHinge, positive=1.0, negative=1.0, bias=1.0):
    """Return the sparse and bias weights, and the dense ones, that scikit-learn finds for a node."""
    mine = case.documents[parent]
    relevance = case.relevance[mine, node]
    settings = {"dual": True, "tol": 1e-10, "max_iter": 1_000_000, "random_state": 0}
    settings |= {"fit_intercept": bias > 0, "intercept_scaling": bias or 1.0}
    model = (
        LinearSVC(**settings)
        if solver != DualLogistic
        else LogisticRegression(solver="liblinear", **settings)
    )
    costs = np.where(relevance > 0, positive * relevance, negative)
    model.fit(np.hstack([case.dense, case.x])[mine], relevance > 0, costs)
    e = case.dense.shape[1]
    last = np.ravel(model.intercept_) / bias if bias else [0.0]
    return np.concatenate([model.coef_[0, e:], last]), model.coef_[0, :e]


def assert_like_the_oracle(case, result, **settings):
    for parent, (w, dense) in enumerate(result):
        for sibling in range(w.shape[1]):
            expected = oracle(case, parent, case.offsets[parent] + sibling, **settings)
            np.testing.assert_allclose(w[:, sibling], expected[0], atol=3e-3)
            np.testing.assert_allclose(dense[sibling], expected[1], atol=3e-3)


# -------------------------------------------------------------------------------------------------
# the same answer


@pytest.mark.parametrize("solver", [DualHinge, DualLogistic, Newton])
@pytest.mark.parametrize(
    ("e", "bias", "positive", "negative"),
    [
        (0, 1.0, 1.0, 1.0),
        (3, 0.5, 2.0, 0.25),
        (2, 0.0, 0.5, 3.0),
        (29, 1.0, 1.0, 0.5),
    ],  # of 29, one by inner products
)
def test_each_node_is_what_scikit_learn_finds_on_its_documents(solver, e, bias, positive, negative):
    case = setup(e=e)
    settings = {"solver": solver, "bias": bias, "positive": positive, "negative": negative}
    result = train(case, **settings)
    assert_like_the_oracle(case, result, **settings)
    alone = result[1][0]
    assert (
        (alone[[24, 25, 27]] != 0).any(axis=1).all()
    )  # columns of one document have their weights
    np.testing.assert_allclose(alone[24] / 0.6, alone[25] / 0.8, rtol=1e-5)
    assert (alone[[26, 28, 29]] == 0).all()


@pytest.mark.parametrize("solver", [DualHinge, Newton])
def test_relevance_is_a_factor_of_the_cost(solver):
    case = setup()
    random = np.random.default_rng(3)
    case = case._replace(
        relevance=case.relevance * random.uniform(0.1, 2, case.relevance.shape).astype(np.float32)
    )
    assert_like_the_oracle(case, train(case, solver=solver, positive=1.5), positive=1.5)


def sparse_objective(case, parent, w, *, penalty, positive, negative):
    """Return λ‖w‖₁, without the bias, and Σ C max(0, 1 − y w·x)² of each sibling of a parent."""
    mine = case.documents[parent]
    start = case.offsets[parent]
    relevance = case.relevance[mine, start : start + w.shape[1]]
    y = np.where(relevance > 0, 1, -1)
    costs = np.where(relevance > 0, positive * relevance, negative)
    losses = costs * np.maximum(0, 1 - y * (case.x[mine] @ w[:D] + w[D])) ** 2
    return penalty * np.abs(w[:D]).sum(axis=0) + losses.sum(axis=0)


def test_under_an_l1_penalty_one_of_the_columns_of_one_document_bears_it_all():
    case = setup()
    settings = {"penalty": 0.05, "positive": 2.0, "negative": 1.0}
    # the larger one comes later, and is negative
    case.x[5, 28] = -3.0
    case.x[5, 27] = 2.0
    result = train(case, solver=proximal, **settings)
    w = result[1][0]
    assert (w[[24, 27]] == 0).all()  # beside columns 25 and 28
    assert (w[25] != 0).any()
    assert (w[28] != 0).any()
    for parent, (w, _) in enumerate(result):
        least = sparse_objective(case, parent, w, **settings)
        for column in (24, 25, 27, 28, 3, D):  # no single weight is better changed, in any sibling
            for change in (-0.02, 0.02):
                other = w.copy()
                other[column] += change
                assert (sparse_objective(case, parent, other, **settings) >= least - 1e-4).all()


def test_dense_weights_to_start_from_change_the_way_and_not_the_end():
    case = setup(e=3)
    start = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    for (w, dense), (other, other_dense) in zip(
        train(case, solver=Newton), train(case, solver=Newton, start=start), strict=True
    ):
        np.testing.assert_allclose(w, other, atol=2e-3)
        np.testing.assert_allclose(dense, other_dense, atol=2e-3)
    spans = [(0, 0, 5), (1, 5, 24)]
    good = np.concatenate([dense for _, dense in train(case, solver=Newton)])
    first = train(case, spans, solver=Newton, start=good, passes=0)
    for (_, dense), (begin, end) in zip(first, [(0, 5), (5, 24)], strict=True):
        share = (dense * good[begin:end]).sum(axis=1) / (good[begin:end] ** 2).sum(axis=1)
        np.testing.assert_allclose(
            dense, share[:, None] * good[begin:end], atol=1e-5
        )  # a multiple of each node's own
        assert (share > 0.01).all()


def test_positives_among_the_documents_of_others_are_not_looked_at():
    case = setup()
    elsewhere = np.setdiff1d(np.arange(50), case.documents[0])
    changed = case.relevance.copy()
    changed[np.ix_(elsewhere, range(5))] = 0
    changed[elsewhere[0], 2] = 1
    result = train(case._replace(relevance=changed))[0]
    expected = train(case)[0]
    np.testing.assert_allclose(result[0], expected[0], atol=1e-3)


def test_zeros_that_are_written_down_change_nothing():
    case = setup()
    expected = train(case)
    stored = sparse.csr_array(case.x)
    stored.data[stored.indices == 27] = 0  # all that document 5 has for itself
    case.x[5, 27] = 0
    without = train(case)
    rows = sparse.csr_array((stored.data, stored.indices, stored.indptr), shape=stored.shape)
    result = train(case._replace(x=rows))
    assert (expected[1][0][27] != 0).any()
    for (w, _), (other, _) in zip(result, without, strict=True):
        np.testing.assert_allclose(w, other, atol=1e-5)


# -------------------------------------------------------------------------------------------------
# pruning


def test_pruning_is_exact_and_leaves_the_bias():
    case = setup(e=2)
    everything = train(case)
    sizes = np.sort(np.abs(everything[1][0][:D].ravel()))
    threshold = sizes[len(sizes) * 3 // 4]  # a weight of this very size stays
    for (w, dense), (pruned, pruned_dense) in zip(
        everything, train(case, prune=threshold), strict=True
    ):
        expected = np.where(np.abs(w) >= threshold, w, 0)
        expected[D] = w[D]
        np.testing.assert_array_equal(pruned, expected)
        np.testing.assert_array_equal(pruned_dense, dense)
    everything_pruned = train(case, prune=1e9)
    for (w, _), (pruned, _) in zip(everything, everything_pruned, strict=True):
        assert (pruned[:D] == 0).all()
        np.testing.assert_array_equal(pruned[D], w[D])


# -------------------------------------------------------------------------------------------------
# spans


def test_several_spans_in_one_call_are_the_same_as_one_each():
    case = setup(e=1)
    spans = [(0, 0, 2), (0, 2, 5), (1, 5, 13), (1, 13, 24)]
    together = train(case, spans)
    for at, (w, dense) in enumerate(together):
        ((alone, alone_dense),) = train(case, spans, first=at, last=at + 1)
        np.testing.assert_array_equal(w, alone)
        np.testing.assert_array_equal(dense, alone_dense)
    whole = train(case)
    np.testing.assert_allclose(np.hstack([together[0][0], together[1][0]]), whole[0][0], atol=1e-3)
    np.testing.assert_allclose(np.hstack([together[2][0], together[3][0]]), whole[1][0], atol=1e-3)


@pytest.mark.parametrize("solver", [DualHinge, DualLogistic, Newton, proximal])
@pytest.mark.parametrize("e", [0, 2, 60])  # of 60, the dual solvers go by inner products
def test_documents_prepared_before_are_those_that_each_span_prepares(solver, e):
    case = setup(e=e)
    spans = [(1, 5, 13), (1, 13, 24)]
    settings = {"solver": solver, "penalty": 0.05, "passes": 30}
    for member, shared in zip(
        train(case, spans, **settings), train(case, spans, group=1, **settings), strict=True
    ):
        np.testing.assert_array_equal(member[0], shared[0])
        np.testing.assert_array_equal(member[1], shared[1])


@pytest.mark.parametrize("solver", [DualHinge, Newton, proximal])
@pytest.mark.parametrize(
    "mine", [range(50), range(10, 40), range(0, 50, 2)], ids=["all", "run", "some"]
)
def test_the_dense_block_is_read_where_it_is(solver, mine):
    case = setup(e=3)
    x = sparse.csr_array(case.x)
    documents = np.fromiter(mine, np.int32)
    dense = _aligned(case.dense)
    rows = (
        _aligned(x.indptr.astype(np.int64)),
        _aligned(x.indices.astype(np.int32)),
        _aligned(x.data),
    )
    features = FeatureRows(*rows, dense, D)
    result = prepare(
        solver(0.1, 10), _aligned(documents), features, np.float32(1), np.full(D, -1, np.int32)
    )
    np.testing.assert_array_equal(result.documents.dense_rows, documents)
    blocks = [
        array
        for array in [*result.documents, *result.column_index]
        if isinstance(array, np.ndarray) and array.ndim == 2
    ]
    copies = [
        block.shape for block in blocks if block.size and not np.shares_memory(block, case.dense)
    ]
    scattered = solver == proximal and len(mine) == 25  # which reads columns, not rows
    assert copies == ([(25, 3)] if scattered else [])


@pytest.mark.parametrize("solver", [DualHinge, DualLogistic])
def test_a_node_alone_over_very_many_documents_is_what_it_is_beside_others(solver):
    random = np.random.default_rng(0)
    n = ALONE
    x = np.zeros((n, D), np.float32)
    x[np.arange(n), random.integers(D, size=n)] = 1
    dense = random.normal(size=(n, 3)).astype(np.float32)
    y = dense @ random.normal(size=(3, 2)) + x @ random.normal(size=(D, 2)) > 1.5
    case = Setup(x, dense, [np.arange(n)], [0, 2], y.astype(np.float32))
    settings = {
        "solver": solver,
        "passes": 60,
        "tolerance": 1e-2,
        "positive": 1e-3,
        "negative": 1e-3,
    }
    ((both, both_dense),) = train(case, [(0, 0, 2)], **settings)
    alone = train(case, [(0, 0, 1), (0, 1, 2)], **settings)
    for node, (w, member) in enumerate(alone):
        np.testing.assert_allclose(w[:, 0], both[:, node], atol=5e-3)
        np.testing.assert_allclose(member[0], both_dense[node], atol=5e-3)


@pytest.mark.parametrize("trained", [0, 3, 8, 9, 18])
def test_nodes_without_positives_get_a_bias_and_nothing_else(trained):
    case = setup(e=2)
    empty = np.random.default_rng(0).permutation(np.arange(5, 24))[trained:]
    relevance = case.relevance.copy()
    relevance[:, empty] = 0
    expected = train(case, bias=2.0)
    result = train(case._replace(relevance=relevance), bias=2.0)
    w, dense = result[1]
    assert (w[:D, empty - 5] == 0).all()
    assert (w[D, empty - 5] == -0.5).all()  # −1 in the margin
    assert (dense[empty - 5] == 0).all()
    others = np.setdiff1d(np.arange(19), empty - 5)
    np.testing.assert_allclose(w[:, others], expected[1][0][:, others], atol=1e-3)
    np.testing.assert_allclose(dense[others], expected[1][1][others], atol=1e-3)
    w, dense = train(case._replace(relevance=relevance), bias=0.0)[1]
    assert (w[:, empty - 5] == 0).all()
    assert (dense[empty - 5] == 0).all()


def test_a_parent_without_documents():
    case = setup(e=2)
    expected = train(case)[1]
    result = train(
        case._replace(documents=[np.zeros(0, np.int64), case.documents[1]], offsets=[0, 5, 24])
    )
    assert (result[0][0][:D] == 0).all()
    assert (result[0][0][D] == -1).all()
    assert (result[0][1] == 0).all()
    np.testing.assert_array_equal(result[1][0], expected[0])
    np.testing.assert_array_equal(result[1][1], expected[1])
