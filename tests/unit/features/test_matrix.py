from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from longtail.features import matrix
from longtail.features.matrix import Features, join_blocks, unit_vectors


def block(n=5, d=7, seed=0):
    random = np.random.default_rng(seed)
    return (random.random((n, d)) * (random.random((n, d)) < 0.5)).astype(np.float32)


def assert_layout(features):
    rows = features.sparse
    assert (rows.dtype, rows.indices.dtype, rows.indptr.dtype) == (np.float32, np.int32, np.int64)
    for start, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        assert (np.diff(rows.indices[start:end]) > 0).all()
    assert features.dense.dtype == np.float32
    assert features.dense.flags.c_contiguous
    assert len(features.dense) == rows.shape[0] == len(features)


@pytest.mark.parametrize(
    "form", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_any_sparse_block(form, dtype):
    x = (block() * 10).astype(dtype)
    features = Features.of(form(x))
    assert_layout(features)
    assert features.dense.shape == (5, 0)
    assert features.shape == (5, 7)
    np.testing.assert_allclose(features.sparse.toarray(), x, rtol=1e-6)


def test_a_dense_block_alone_and_both():
    x = block()
    dense = np.asfortranarray(np.random.default_rng(1).random((5, 3)))
    alone = Features.of(dense)
    assert_layout(alone)
    assert alone.shape == (5, 3)
    assert alone.sparse.shape == (5, 0)
    np.testing.assert_array_equal(alone.dense, dense.astype(np.float32))
    both = Features.of(sparse.csr_array(x), dense)
    assert_layout(both)
    assert both.shape == (5, 10)
    assert both.nbytes == both.sparse.nnz * 8 + 6 * 8 + 5 * 3 * 4


def test_what_has_the_layout_is_not_copied():
    features = Features.of(sparse.csr_array(block()), np.ones((5, 2), np.float32))
    again = Features.of(features.sparse, features.dense)
    for name in ("data", "indices", "indptr"):
        assert np.shares_memory(getattr(again.sparse, name), getattr(features.sparse, name)), name
    assert np.shares_memory(again.dense, features.dense)


def test_columns_out_of_order_or_twice_are_brought_in_order_and_the_given_block_stays():
    arguments = sparse.csr_array(
        (np.array([1, 2, 4, 8], np.float32), np.array([3, 0, 3, 1], np.int32), np.array([0, 3, 4])),
        shape=(2, 5),
    )
    features = Features.of(arguments)
    assert_layout(features)
    assert features.sparse.toarray().tolist() == [[2, 0, 0, 5, 0], [0, 8, 0, 0, 0]]
    assert arguments.indices.tolist() == [3, 0, 3, 1]
    assert arguments.data.tolist() == [1, 2, 4, 8]


@pytest.mark.parametrize(
    "rows", [np.array([4, 0, 0]), slice(1, 3), slice(0, 0), np.array([], np.int64)]
)
def test_take(rows):
    x = block()
    dense = np.arange(10, dtype=np.float32).reshape(5, 2)
    taken = Features.of(sparse.csr_array(x), dense).take(rows)
    assert_layout(taken)
    np.testing.assert_array_equal(taken.sparse.toarray(), x[rows])
    np.testing.assert_array_equal(taken.dense, dense[rows])


def test_no_rows():
    features = Features.of(sparse.csr_array((0, 4), dtype=np.float32), np.zeros((0, 2)))
    assert_layout(features)
    assert features.shape == (0, 6)


# -------------------------------------------------------------------------------------------------
# dense rows


@pytest.mark.parametrize("length", [1.0, 0.25])
@pytest.mark.parametrize("in_place", [False, True])
def test_dense_rows_have_the_length_wanted(monkeypatch, length, in_place):
    monkeypatch.setattr(matrix, "_ROWS", 7)
    vectors = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    vectors[[3, 29]] = 0
    arguments = vectors.copy()
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0) * np.float32(
        length
    )
    result = unit_vectors(arguments, length, in_place=in_place)
    assert result.tobytes() == expected.tobytes()
    assert (result is arguments) == in_place
    assert in_place or arguments.tobytes() == vectors.tobytes()


def test_rows_that_may_not_be_written_are_left():
    vectors = np.ones((3, 4), np.float32)
    vectors.flags.writeable = False
    result = join_blocks(sparse.csr_array((3, 2), dtype=np.float32), vectors, 2.0, in_place=True)
    np.testing.assert_array_equal(result.dense, np.ones((3, 4)))
    assert not np.shares_memory(result.dense, vectors)


def test_joining_blocks_takes_no_second_copy_of_vectors():
    vectors = np.ones((40_000, 64), np.float32)
    rows = sparse.csr_array((40_000, 3), dtype=np.float32)
    extra = []
    for in_place in (True, False):
        tracemalloc.start()
        features = join_blocks(rows, vectors, 0.5, in_place=in_place)
        extra.append(tracemalloc.get_traced_memory()[1] / vectors.nbytes)
        tracemalloc.stop()
        np.testing.assert_allclose(features.dense[[0, -1]], 0.5 / 8)
    assert extra[0] < 0.5
    assert 1 < extra[1] < 1.5
