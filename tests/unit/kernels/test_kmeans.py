"""K-means over sparse and dense rows against a short numpy version of the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.kernels import kmeans
from longtail.kernels.kmeans import Block, Centres, Stopping
from longtail.kernels.splitmix import draw

STOPPING = Stopping(max_iterations=20, min_gain=1e-5)


def block_of(rng, rows, columns, dense=0, density=0.2):
    """Return a block as kernels take it, and the same rows as one dense matrix, l2-normalised."""
    made = sparse.random_array(
        (rows, columns), density=density, format="csr", dtype=np.float64, rng=rng
    ).toarray()
    made = np.hstack([rng.random((rows, dense)) - 0.5, made])
    made /= np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
    made = made.astype(np.float32)
    right = sparse.csr_array(made[:, dense:])
    own = np.zeros(rows, np.float32)
    ptr, columns_of = right.indptr.astype(np.int64), right.indices.astype(np.uint32)
    dense_part = np.ascontiguousarray(made[:, :dense])
    return Block(ptr, columns_of, right.data, own, dense_part, dense + columns), made


def gathered_block(block, rows, columns):
    """Return some rows as a block of their own, and the numbers of its sparse columns."""
    *sparse_part, names = kmeans.gathered(block, rows, np.zeros(columns, np.int32))
    dense = block.dense[rows]
    return Block(*sparse_part, dense, dense.shape[1] + len(names)), names


def best(scores, count):
    first = np.zeros(len(scores), bool)
    first[np.argsort(-scores, kind="stable")[:count]] = True
    return first


def plain_two_means(rows, n_first, state, iterations, min_gain):
    seeds = draw(np.arange(len(rows)), 2, state)
    axis, before = rows[seeds[0]] - rows[seeds[-1]], 0.0
    for _ in range(iterations):
        first = best(rows @ axis, n_first)
        one, two = rows[first].sum(0), rows[~first].sum(0)
        norms = np.linalg.norm(one), np.linalg.norm(two)
        axis = one / max(norms[0], 1e-30) - two / max(norms[1], 1e-30)
        likeness = sum(norms) / len(rows)
        if likeness - before < min_gain:
            break
        before = likeness
    return first, axis, likeness


def likeness_of(rows, first):
    return (np.linalg.norm(rows[first].sum(0)) + np.linalg.norm(rows[~first].sum(0))) / len(rows)


@given(
    st.integers(0, 2**32), st.integers(2, 40), st.integers(0, 3), st.integers(1, 6), st.booleans()
)
@settings(deadline=None, max_examples=60)
def test_halves_are_those_of_plain_two_means(seed, count, dense, iterations, gathered):
    rng = np.random.default_rng(seed)
    block, rows = block_of(rng, count, 60, dense)
    n_first = int(rng.integers(1, count))
    rows = rows.astype(np.float64)
    expected, axis, likeness = plain_two_means(rows, n_first, seed, iterations, 1e-5)
    if gathered:  # columns of one row are gone, and nothing else changes
        block, names = gathered_block(block, np.arange(count), 60)
        axis = axis[[*range(dense), *(dense + names.astype(int))]]
    stopping = Stopping(iterations, 1e-5)
    first, found = kmeans.two_means(block, np.arange(count), n_first, seed, stopping)
    assert first.sum() == n_first
    if (first == expected).all():
        assert np.allclose(found, axis, atol=1e-5)
    else:  # near-ties may fall to either side in float32
        assert abs(likeness_of(rows, first) - likeness) < 0.05


def test_halves_are_exactly_those_of_plain_two_means_on_many_nodes():
    rng = np.random.default_rng(0)
    same = 0
    for state in range(40):
        block, rows = block_of(rng, 50, 200, 2, 0.05)
        first, _ = kmeans.two_means(block, np.arange(50), 25, state, STOPPING)
        local, _ = gathered_block(block, np.arange(50), 200)
        short, _ = kmeans.two_means(local, np.arange(50), 25, state, STOPPING)
        expected = plain_two_means(rows.astype(np.float64), 25, state, 20, 1e-5)[0]
        same += (first == expected).all() and (short == expected).all()
    assert same >= 38  # the others hang on a tie


def test_some_rows_of_a_block_are_as_a_block_of_their_own():
    rng = np.random.default_rng(5)
    block, _ = block_of(rng, 30, 80, 1)
    some = np.array([3, 4, 9, 11, 17, 20, 21, 29])
    first, _ = kmeans.two_means(block, some, 4, 9, Stopping(20, 0.0))
    local, _ = gathered_block(block, some, 80)
    again, _ = kmeans.two_means(local, np.arange(8), 4, 9, Stopping(20, 0.0))
    assert first.tolist() == again.tolist()


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 90))
@settings(deadline=None, max_examples=60)
def test_gathering_keeps_what_rows_share(seed, count, columns):
    rng = np.random.default_rng(seed)
    block, rows = block_of(rng, count, columns)
    some = np.sort(rng.permutation(count)[: rng.integers(0, count) + 1])
    number = np.zeros(columns, np.int32)
    ptr, local, values, own, names = kmeans.gathered(block, some, number)
    assert not number.any()
    uses = (rows[some] != 0).sum(0)
    assert sorted(names.tolist()) == np.flatnonzero(uses >= 2).tolist()
    made = sparse.csr_array(
        (values, local.astype(np.int32), ptr), shape=(len(some), len(names))
    ).toarray()
    assert np.array_equal(made, rows[some][:, names])
    assert np.allclose(own, (rows[some][:, uses == 1] ** 2).sum(1))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.data())
@settings(deadline=None, max_examples=60)
def test_halves_takes_the_best_and_of_equals_the_earlier(scores, data):
    count = data.draw(st.integers(0, len(scores)))
    scores = np.array(scores, np.float32)
    assert kmeans.halves(scores, count).tolist() == best(scores, count).tolist()


def plain_k_means(rows, k, state, iterations, min_gain):
    centres, before = rows[draw(np.arange(len(rows)), k, state)], 0.0
    for _ in range(iterations):
        near = np.argmax(rows @ centres.T, axis=1)
        sums = np.array([rows[near == c].sum(0) for c in range(k)])
        norms = np.linalg.norm(sums, axis=1)
        centres = sums / np.maximum(norms, 1e-30)[:, None]
        if norms.sum() / len(rows) - before < min_gain:
            break
        before = norms.sum() / len(rows)
    return near, centres


def test_free_k_means_is_plain_k_means():
    rng = np.random.default_rng(1)
    same = 0
    for state in range(30):
        dense = state % 3
        block, rows = block_of(rng, 40, 100, dense, 0.1)
        expected, centres = plain_k_means(rows.astype(np.float64), 6, state, 20, 1e-5)
        local, names = gathered_block(block, np.arange(40), 100)
        near, found = kmeans.k_means(local, np.arange(40), 6, state, STOPPING)
        assert not found[-1].any()
        if (near == expected).all():
            same += 1
            kept = [*range(dense), *(dense + names.astype(int))]
            assert np.allclose(found[:-1].T, centres[:, kept], atol=1e-5)
    assert same >= 28


def test_joining_the_nearest_centre():
    rng = np.random.default_rng(2)
    block, rows = block_of(rng, 20, 50, 2)
    names = np.array(
        [3, 7, 20, 44, 45]
    )  # the sparse columns that centres have, in rows 2 to 6 of them
    number = np.full(50, 7, np.uint32)
    number[names] = np.arange(2, 7)
    centres = np.vstack([rng.standard_normal((7, 3)), np.zeros((1, 3))]).astype(np.float32)
    near = np.full(20, -1, np.int32)
    extra = np.zeros(20, np.float32)
    kmeans.nearest(block, np.arange(20), Centres(number, centres), extra, near)
    assert near.tolist() == np.argmax(rows[:, [0, 1, *(2 + names)]] @ centres[:7], axis=1).tolist()


def test_scores_on_an_axis():
    block, rows = block_of(np.random.default_rng(4), 20, 50, 2)
    axis = np.random.default_rng(5).standard_normal(52).astype(np.float32)
    some = np.array([19, 0, 7])
    found = kmeans.axis_scores(block, some, axis)
    assert np.allclose(found, rows[some] @ axis, atol=1e-5)
