"""A matrix over given arrays is one that scipy can work with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from longtail.data.csr import csr_of, csr_of_slots, shallow_copy


@pytest.mark.parametrize("ends", [np.int32, np.int64])
def test_scipy_can_do_everything_with_it(ends):
    values = np.array([3, 1, 2], np.float32)
    columns = np.array([4, 0, 2], np.int32)
    matrix = csr_of(values, columns, np.array([0, 2, 2, 3], ends), 6)
    dense = np.zeros((3, 6), np.float32)
    dense[[0, 0, 2], [4, 0, 2]] = values
    assert np.shares_memory(matrix.data, values)
    assert np.shares_memory(matrix.indices, columns)
    for same in (
        matrix,
        matrix.tocoo(),
        matrix.sorted_indices(),
        matrix.T.T,
        matrix[:],
        matrix.tocsc(),
    ):
        assert np.array_equal(same.toarray(), dense)
    assert matrix.max(axis=1).toarray().ravel().tolist() == [3, 0, 2]


def test_matrices_of_one_shape_do_not_share_their_arrays():
    one, other = (
        csr_of(np.array([x], np.float32), np.array([0], np.int32), np.array([0, 1]), 2)
        for x in (1, 2)
    )
    assert (one[0, 0], other[0, 0]) == (1, 2)


def test_slots_keep_their_order_and_empty_ones_are_left_out():
    columns = np.array([[3, -1, 0], [-1, -1, -1], [2, 1, -1]], np.int32)
    values = np.array([[0.5, 9, 0.25], [9, 9, 9], [1, 2, 9]], np.float32)
    result = csr_of_slots(values, columns, 4)
    assert result.shape == (3, 4)
    assert result.indptr.tolist() == [0, 2, 2, 4]
    assert result.indices.tolist() == [3, 0, 2, 1]
    assert result.data.tolist() == [0.5, 0.25, 1, 2]


def test_no_rows_and_no_slots():
    assert csr_of_slots(np.zeros((0, 3)), np.zeros((0, 3), np.int32), 5).shape == (0, 5)
    assert csr_of_slots(np.zeros((2, 0)), np.zeros((2, 0), np.int32), 5).nnz == 0


def test_a_shallow_copy_shares_the_arrays_and_nothing_else():
    matrix = sparse.csr_array(np.array([[0, 2.5], [1, 0]], np.float32))
    duplicate = shallow_copy(matrix)
    assert type(duplicate) is sparse.csr_array
    assert vars(duplicate).keys() == vars(matrix).keys()
    assert duplicate.data is matrix.data
    duplicate.data = matrix.data * 2
    assert matrix.toarray().tolist() == [[0, 2.5], [1, 0]]
    assert duplicate.toarray().tolist() == [[0, 5], [2, 0]]
