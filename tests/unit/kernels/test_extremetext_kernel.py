"""eXtremeText's kernel against a reference in numpy and float64, whose gradient is checked by finite
differences.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.kernels.extremetext import (
    Parameters,
    Schedule,
    Targets,
    add_to_row,
    padded_width,
    step_on_row,
    train_documents,
    write_products,
)
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.jit import kernel, read_only

DIMENSIONS = 20  # the rows of the kernel have 32 numbers
WIDTH = padded_width(DIMENSIONS)
# two levels above seven labels: the root has nodes 0 and 1, these have 2, 3 and 4, which have labels
CHILDREN = {-1: [0, 1], 0: [2, 3], 1: [4], 2: [5, 6], 3: [7], 4: [8, 9, 10, 11]}
N_NODES = 12
PARENT = {child: parent for parent, children in CHILDREN.items() for child in children}
CHILD_POINTERS = np.cumsum([0, *map(len, CHILDREN.values())]).astype(np.int64)


class Data(NamedTuple):
    """Documents, dense: features of both blocks, and relevance of nodes."""

    dense: np.ndarray
    words: np.ndarray
    relevance: np.ndarray  # (n, nodes)


def data(n=30, columns=15, dense=3, seed=0):
    """Documents of up to two labels, some by less than 1; the last two have no labels, and no
    features.
    """
    random = np.random.default_rng(seed)
    words = random.random((n, columns)) * (random.random((n, columns)) < 0.4)
    block = random.normal(size=(n, dense))
    relevance = np.zeros((n, N_NODES))
    for document in range(n - 2):
        for label in random.integers(5, N_NODES, 2):
            value = random.choice([1.0, 0.5])
            node = label
            while node >= 0:
                relevance[document, node] = max(relevance[document, node], value)
                node = PARENT[node]
    words[-1] = 0
    block[-1] = 0
    return Data(block, words, relevance)


def rows_of(documents):
    words = sparse.csr_array(documents.words.astype(np.float32))
    arrays = (
        words.indptr.astype(np.int64),
        words.indices.astype(np.int32),
        words.data,
        np.ascontiguousarray(documents.dense, np.float32),
    )
    pointers, columns, values, dense = map(read_only, arrays)
    return FeatureRows(pointers, columns, values, dense, documents.words.shape[1])


def targets_of(documents):
    relevance = sparse.csr_array(documents.relevance.astype(np.float32))
    return Targets(
        CHILD_POINTERS,
        relevance.indptr.astype(np.int64),
        relevance.indices.astype(np.int32),
        relevance.data,
    )


def initial(documents, seed=1):
    """Vectors and nodes, rows of DIMENSIONS."""
    random = np.random.default_rng(seed)
    n_columns = documents.dense.shape[1] + documents.words.shape[1]
    return [random.normal(size=(n, DIMENSIONS)) * 0.3 for n in (n_columns, N_NODES)]


def padded(array):
    rows = np.zeros((len(array), WIDTH), np.float32)
    rows[:, :DIMENSIONS] = array
    return rows


def trained(documents, order, schedule, vectors, nodes):
    """Return the loss, the vectors and the nodes after the kernel's steps."""
    vectors, nodes = padded(vectors), padded(nodes)
    loss = train_documents(
        0,
        len(order),
        np.asarray(order),
        rows_of(documents),
        targets_of(documents),
        Parameters(vectors.ravel(), nodes.ravel(), WIDTH),
        schedule,
    )
    assert not vectors[:, DIMENSIONS:].any()
    assert not nodes[:, DIMENSIONS:].any()
    return loss, vectors[:, :DIMENSIONS], nodes[:, :DIMENSIONS]


def visited(relevance):
    """The nodes that a document is a positive or a negative of: the children of its positives."""
    parents = [-1, *(node for node in CHILDREN if node >= 0 and relevance[node] > 0)]
    return [child for parent in parents for child in CHILDREN[parent]]


def loss_of(document, documents, vectors, nodes):
    """The sum of −y ln σ(w·h) − (1 − y) ln (1 − σ(w·h))."""
    x = np.concatenate([documents.dense[document], documents.words[document]])
    if not x.any():
        return 0.0
    hidden = x @ vectors / np.abs(x).sum()
    at = visited(documents.relevance[document])
    target = documents.relevance[document, at]
    sigmoid = 1 / (1 + np.exp(-nodes[at] @ hidden))
    return -(target * np.log(sigmoid) + (1 - target) * np.log(1 - sigmoid)).sum()


def gradients(document, documents, vectors, nodes):
    """The gradients of ``loss_of`` in vectors and in nodes."""
    x = np.concatenate([documents.dense[document], documents.words[document]])
    of_vectors, of_nodes = np.zeros_like(vectors), np.zeros_like(nodes)
    if not x.any():
        return of_vectors, of_nodes
    shares = x / np.abs(x).sum()
    hidden = shares @ vectors
    at = visited(documents.relevance[document])
    errors = 1 / (1 + np.exp(-nodes[at] @ hidden)) - documents.relevance[document, at]
    of_nodes[at] = np.outer(errors, hidden)
    of_vectors[:] = np.outer(shares, errors @ nodes[at])
    return of_vectors, of_nodes


def reference(documents, order, schedule, vectors, nodes):
    """The epoch of :func:`train_documents` in float64."""
    vectors, nodes = vectors.copy(), nodes.copy()
    loss = 0.0
    for position, document in enumerate(order):
        if not (documents.words[document].any() or documents.dense[document].any()):
            continue
        rate = schedule.rate * (1 - (schedule.done + position) / schedule.total)
        loss += loss_of(document, documents, vectors, nodes)
        of_vectors, of_nodes = gradients(document, documents, vectors, nodes)
        at = visited(documents.relevance[document])
        of_nodes[at] += schedule.penalty * nodes[at]
        vectors -= rate * of_vectors
        nodes -= rate * of_nodes
    return loss, vectors, nodes


@pytest.mark.parametrize("document", [0, 5, 28])  # 28 has no labels
def test_gradients_of_the_reference_are_finite_differences(document):
    documents = data()
    parameters = initial(documents)
    for which, gradient in enumerate(gradients(document, documents, *parameters)):
        assert gradient.any()
        for at in np.ndindex(gradient.shape):
            losses = []
            for step in (1e-5, -1e-5):
                moved = [array.copy() for array in parameters]
                moved[which][at] += step
                losses.append(loss_of(document, documents, *moved))
            assert gradient[at] == pytest.approx((losses[0] - losses[1]) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("dense", [0, 3])
@pytest.mark.parametrize(("done", "penalty"), [(0, 0.0), (60, 0.01)])
def test_an_epoch_is_that_of_the_reference(dense, done, penalty):
    documents = data(dense=dense)
    parameters = initial(documents)
    order = np.random.default_rng(3).permutation(30)
    schedule = Schedule(0.5, penalty, done, 90)
    loss, *result = trained(documents, order, schedule, *parameters)
    expected_loss, *expected = reference(documents, order, schedule, *parameters)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    for array, expected_array, before in zip(result, expected, parameters, strict=True):
        np.testing.assert_allclose(array, expected_array, atol=2e-5)
        assert np.abs(expected_array - before).max() > 0.1  # far more than the tolerance


def test_a_step_goes_down_the_gradient():
    documents = data()
    parameters = initial(documents)
    schedule = Schedule(1e-2, 0.0, 0, 10**9)
    _, *result = trained(documents, [4], schedule, *parameters)
    for array, before, gradient in zip(
        result, parameters, gradients(4, documents, *parameters), strict=True
    ):
        np.testing.assert_allclose((before - array) / 1e-2, gradient, atol=5e-5)


def test_a_document_without_features_has_no_step():
    documents = data()
    parameters = initial(documents)
    loss, *result = trained(documents, [29], Schedule(0.5, 0.1, 0, 100), *parameters)
    assert loss == 0
    for array, before in zip(result, parameters, strict=True):
        np.testing.assert_array_equal(array, before.astype(np.float32))


def test_a_document_without_labels_is_a_negative_of_the_first_level():
    documents = data()
    parameters = initial(documents)
    _, _, nodes = trained(documents, [28], Schedule(0.5, 0.0, 0, 100), *parameters)
    changed = np.flatnonzero((nodes != parameters[1].astype(np.float32)).any(axis=1))
    assert changed.tolist() == CHILDREN[-1]


def test_the_rate_falls_to_zero():
    documents = data()
    parameters = initial(documents)
    steps = [
        np.abs(
            trained(documents, [4], Schedule(0.5, 0.0, done, 100), *parameters)[2] - parameters[1]
        ).max()
        for done in (0, 50, 99)
    ]
    assert steps[1] == pytest.approx(steps[0] / 2, rel=1e-3)
    assert steps[2] == pytest.approx(steps[0] / 100, rel=1e-2)


@pytest.mark.parametrize("margin", [60.0, -60.0])
def test_large_margins_stay_finite(margin):
    documents = data(dense=0)
    vectors, nodes = initial(documents)
    vectors[:] = 1
    nodes[:] = margin * 2
    loss, *result = trained(documents, range(30), Schedule(0.5, 0.0, 0, 100), vectors, nodes)
    assert np.isfinite(loss)
    assert all(np.isfinite(array).all() for array in result)


@kernel
def call_products(sums, numbers, at, vector):
    write_products(sums, numbers, at, vector, vector.shape[0])


@kernel
def call_addition(numbers, at, x, vector):
    add_to_row(numbers, at, x, vector, vector.shape[0])


@kernel
def call_step(numbers, at, hidden, gradient, factors):
    step_on_row(numbers, at, hidden, gradient, factors[0], factors[1], factors[2], hidden.shape[0])


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 1000))
@settings(max_examples=30)
def test_compiled_rows_are_those_of_the_plain_functions(lines, row, seed):
    random = np.random.default_rng(seed)
    width = 16 * lines
    numbers, hidden, gradient = (
        random.normal(size=size).astype(np.float32) for size in (4 * width, width, width)
    )
    factors = random.normal(size=3).astype(np.float32)
    at = row * width
    results = []
    for functions in ((call_products, call_addition, call_step), (None, None, None)):
        sums = np.empty(16, np.float32)
        rows, total = numbers.copy(), gradient.copy()
        if functions[0] is None:
            write_products(sums, rows, at, hidden, width)
            add_to_row(rows, at, factors[0], hidden, width)
            step_on_row(rows, at, hidden, total, *factors, width)
        else:
            functions[0](sums, rows, at, hidden)
            functions[1](rows, at, factors[0], hidden)
            functions[2](rows, at, hidden, total, factors)
        results.append((sums, rows, total))
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-5)
    untouched = np.delete(np.arange(4), row)
    np.testing.assert_array_equal(
        results[0][1].reshape(4, -1)[untouched], numbers.reshape(4, -1)[untouched]
    )
