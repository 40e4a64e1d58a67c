"""Matrices over arrays that are known to be right."""

from __future__ import annotations

import numpy as np

from longtail.data.csr import csr_of_slots


def test_slots_keep_their_order_and_empty_ones_are_left_out():
    columns = np.array([[3, -1, 0], [-1, -1, -1], [2, 1, -1]], np.int32)
    values = np.array([[0.5, 9, 0.25], [9, 9, 9], [1, 2, 9]], np.float32)
    found = csr_of_slots(values, columns, 4)
    assert found.shape == (3, 4)
    assert found.indptr.tolist() == [0, 2, 2, 4]
    assert found.indices.tolist() == [3, 0, 2, 1]
    assert found.data.tolist() == [0.5, 0.25, 1, 2]


def test_no_rows_and_no_slots():
    assert csr_of_slots(np.zeros((0, 3)), np.zeros((0, 3), np.int32), 5).shape == (0, 5)
    assert csr_of_slots(np.zeros((2, 0)), np.zeros((2, 0), np.int32), 5).nnz == 0
