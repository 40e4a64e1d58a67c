"""AnnexML's kernels against plain Python and numpy, and its gradient against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.kernels.feature_rows import Incidence
from longtail.kernels.neighbours import (
    EmbeddingSettings,
    PartSettings,
    SparseRows,
    label_neighbours,
    learn_embedding,
    learn_parts,
    nearest_rows,
    ranking_gradient,
)
from longtail.kernels.splitmix import draw, random_bits

RATE, GAMMA = np.float32(0.1), 10.0


def incidence(labels):
    """The arrays of a 0/1 matrix of documents and labels."""
    rows = sparse.csr_array(labels)
    return Incidence(
        *(
            a.astype(t)
            for m in (rows.tocsc(), rows)
            for a, t in ((m.indptr, np.int64), (m.indices, np.int32))
        )
    )


def neighbours(labels, keep=3, budget=10**6, seed=0, first=0, last=None):
    last = len(labels) if last is None else last
    return label_neighbours(first, last, incidence(labels), keep, budget, seed)


def plain_neighbours(labels, keep, seed):
    """Squared cosines by the whole matrix product, of equal ones by the same random numbers."""
    labels = labels.astype(int)
    found = np.full((len(labels), keep), -1)
    for row, own in enumerate(labels):
        shared = labels @ own
        others = [other for other in np.flatnonzero(shared) if other != row]
        ties = {other: random_bits(seed, row, int(other)) for other in others}
        order = sorted(others, key=lambda o: (-(shared[o] ** 2) / labels[o].sum(), ties[o]))[:keep]
        found[row, : len(order)] = order
    return found


def documents(n=12, d=9, labels=4, seed=0):
    """Sparse rows of length one, and their neighbours by random labels."""
    random = np.random.default_rng(seed)
    x = random.random((n, d)) * (random.random((n, d)) < 0.5)
    x[np.arange(n), random.integers(0, d, n)] = 0.5
    x[5] = 0  # has nothing to say
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    rows = sparse.csr_array(x.astype(np.float32))
    near = neighbours(random.random((n, labels)) < 0.4)
    pointers, columns = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    return x, SparseRows(pointers, columns, rows.data, d), near


@given(
    n=st.integers(1, 30),
    labels=st.integers(1, 8),
    density=st.floats(0, 1),
    keep=st.integers(1, 6),
    seed=st.integers(0, 9),
)
def test_label_neighbours_are_those_of_brute_force(n, labels, density, keep, seed):
    matrix = np.random.default_rng(seed).random((n, labels)) < density
    np.testing.assert_array_equal(
        neighbours(matrix, keep, seed=seed), plain_neighbours(matrix, keep, seed)
    )


def test_a_block_of_documents_finds_what_all_find():
    matrix = np.random.default_rng(1).random((40, 6)) < 0.4
    np.testing.assert_array_equal(neighbours(matrix, first=10, last=25), neighbours(matrix)[10:25])


def test_a_budget_reads_rare_labels_first_and_frequent_ones_from_a_random_place():
    matrix = np.zeros((400, 3), bool)
    matrix[:, 0] = True  # a label that all have
    matrix[[7, 300], 1] = True
    found = neighbours(matrix, keep=5, budget=30)
    assert found[[7, 300], 0].tolist() == [300, 7]
    assert (found >= 0).all()  # the budget's rest went to the frequent label
    assert len(np.unique(found)) > 300  # not the same few documents for everybody
    assert (
        neighbours(matrix, keep=5, budget=1)[[7, 300]] == -1
    ).sum() >= 8  # one entry, at most one neighbour


def test_of_equal_neighbours_no_few_are_everybodys():
    found = neighbours(np.ones((300, 1), bool), keep=5)
    assert (found != np.arange(300)[:, None]).all()
    assert np.bincount(found.ravel(), minlength=300).max() < 25


def plain_loss(vectors, near, gamma):
    """Σ_p −ln softmax of p among p and the others, cosines with the first vector."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit[1:] @ unit[0]
    others = np.exp(gamma * cosines[near:]).sum()
    return -sum(np.log(np.exp(gamma * c) / (np.exp(gamma * c) + others)) for c in cosines[:near])


def plain_gradient(vectors, near, gamma, step=1e-5):
    gradient = np.zeros_like(vectors)
    for at in np.ndindex(*vectors.shape):
        up, down = vectors.copy(), vectors.copy()
        up[at] += step
        down[at] -= step
        gradient[at] = (plain_loss(up, near, gamma) - plain_loss(down, near, gamma)) / (2 * step)
    return gradient


@settings(max_examples=30)
@given(
    near=st.integers(1, 4),
    others=st.integers(0, 5),
    d=st.integers(2, 9),
    gamma=st.floats(0.5, 12),
    seed=st.integers(0, 99),
)
def test_gradient_of_the_ranking_loss_is_that_of_finite_differences(near, others, d, gamma, seed):
    vectors = np.random.default_rng(seed).normal(size=(1 + near + others, d)).astype(np.float32)
    gradients = np.full((len(vectors) + 2, d), 7, np.float32)  # longer buffers are fine
    loss = ranking_gradient(vectors, near, gamma, gradients)
    wide = vectors.astype(np.float64)
    assert loss == pytest.approx(plain_loss(wide, near, gamma), rel=1e-4, abs=1e-5)
    expected = plain_gradient(wide, near, gamma)
    scale = max(np.abs(expected).max(), 1e-3)
    np.testing.assert_allclose(gradients[: len(vectors)] / scale, expected / scale, atol=2e-4)


def test_a_vector_without_direction_pulls_nowhere():
    vectors = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    gradients = np.empty_like(vectors)
    vectors[2] = 0
    ranking_gradient(vectors, 2, GAMMA, gradients)
    assert np.isfinite(gradients).all()
    assert gradients.any(axis=1).tolist() == [True, True, False, True, True]
    vectors[0] = 0
    ranking_gradient(vectors, 2, GAMMA, gradients)
    assert (gradients == 0).all()


def plain_embedding(x, near, dimensions, negatives, epochs, seed):
    """AdaGrad with one sum of squares a column; the gradients have a test of their own."""
    n, d = x.shape
    width, state = np.sqrt(n / np.count_nonzero(x)), random_bits(seed, 0, 0)
    v = np.array(
        [
            [width * (random_bits(state, c, k) / 2.0**62 - 1) for k in range(dimensions)]
            for c in range(d)
        ]
    )
    squares = np.ones(d)
    for epoch in range(epochs):
        for step, row in enumerate(draw(np.arange(n), n, random_bits(seed, 1, epoch)).tolist()):
            mine = [other for other in near[row].tolist() if other >= 0]
            drawn = [
                random_bits(seed, 2 + epoch, step * negatives + number) % n
                for number in range(negatives)
            ]
            rows = [row, *mine, *(other for other in drawn if other not in (row, *mine))]
            if not mine or not x[row].any():
                continue
            vectors = x[rows] @ v
            alive = [at for at in range(len(rows)) if vectors[at].any()]
            gradients = np.zeros_like(vectors, np.float32)
            ranking_gradient(vectors.astype(np.float32), len(mine), GAMMA, gradients)
            for at in alive:
                along = x[rows[at]] > 0
                squares[along] += (
                    x[rows[at], along] ** 2 * (gradients[at].astype(float) ** 2).mean()
                )
                steps = 0.1 * x[rows[at], along] / np.sqrt(squares[along])
                v[along] -= steps[:, None] * gradients[at]
    return v


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_embeddings_are_those_of_plain_adagrad(seed):
    x, arrays, near = documents(seed=seed)
    found = learn_embedding(arrays, near, EmbeddingSettings(5, 4, 3, RATE, GAMMA), seed)
    np.testing.assert_allclose(found, plain_embedding(x, near, 5, 4, 3, seed), atol=2e-4)


def test_training_lowers_the_loss():
    x, arrays, near = documents(n=40, d=25, labels=5)

    def loss(epochs):
        v = learn_embedding(arrays, near, EmbeddingSettings(6, 5, epochs, RATE, GAMMA), 0)
        rows = [
            row
            for row in range(len(x))
            if x[row].any() and near[row, 0] >= 0 and x[near[row, 0]].any()
        ]
        others = [other for other in range(len(x)) if x[other].any()]
        return np.mean([plain_loss(x[[row, near[row, 0], *others]] @ v, 1, GAMMA) for row in rows])

    assert loss(20) < 0.6 * loss(0)


def plain_parts(x, near, n_parts, epochs, shrink, seed):
    """FTRL-Proximal, a number at a time as its paper has it."""
    n, d = x.shape
    w, squares, z = np.zeros((d, n_parts)), np.ones((d, n_parts)), np.zeros((d, n_parts))
    for part, row in enumerate(draw(np.arange(n), n_parts, random_bits(seed, 0, 0)).tolist()):
        w[:, part] = x[row]
        z[:, part] = x[row] / 0.1 + shrink * np.sign(x[row])
    for epoch in range(epochs):
        for step, row in enumerate(draw(np.arange(n), n, random_bits(seed, 1, epoch)).tolist()):
            part = np.argmax((x[row] @ w).astype(np.float32))
            for number, other in enumerate(near[row].tolist()):
                if other < 0:
                    continue
                drawn = random_bits(seed, 2 + epoch, step * near.shape[1] + number) % n
                for wanted, document in ((1, other), (0, drawn)):
                    error = wanted - 1 / (1 + np.exp(-x[document] @ w[:, part]))
                    for c in np.flatnonzero(x[document]).tolist():
                        g = error * x[document, c]
                        sigma = (
                            np.sqrt(squares[c, part] + g * g) - np.sqrt(squares[c, part])
                        ) / 0.1
                        z[c, part] += g + sigma * w[c, part]
                        squares[c, part] += g * g
                        size = max(abs(z[c, part]) - shrink, 0)
                        w[c, part] = 0.1 * np.sign(z[c, part]) * size / np.sqrt(squares[c, part])
    return w


@pytest.mark.parametrize(("seed", "shrink"), [(0, 0.5), (1, 0.5), (2, 2.0)])
def test_part_classifiers_are_those_of_plain_ftrl(seed, shrink):
    x, arrays, near = documents(seed=seed)
    found = learn_parts(arrays, near, PartSettings(3, 2, RATE, np.float32(shrink)), seed)
    np.testing.assert_allclose(found, plain_parts(x, near, 3, 2, shrink, seed), atol=2e-4)


@settings(max_examples=30)
@given(
    n=st.integers(1, 1200),
    queries=st.integers(0, 5),
    d=st.integers(1, 6),
    keep=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_nearest_rows_are_those_of_a_sort(n, queries, d, keep, seed):
    random = np.random.default_rng(seed)
    rows = random.integers(-3, 4, (n, d)).astype(np.float32)  # products are exact and often equal
    asked = random.integers(-3, 4, (queries, d)).astype(np.float32)
    keep = min(keep, n)
    found, products = nearest_rows(asked, np.ascontiguousarray(rows.T), keep)
    expected = np.argsort(-(asked @ rows.T), axis=1, kind="stable")[:, :keep]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(products, np.take_along_axis(asked @ rows.T, expected, 1))
