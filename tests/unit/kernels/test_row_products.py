from __future__ import annotations

import numpy as np
import pytest

from longtail.kernels import row_products
from longtail.kernels.jit import kernel


@kernel
def summed(out, at, w, width, columns, values, start, end):
    row_products.sum_of_rows(out, at, w, width, columns, values, start, end)


@kernel
def added(step, at, w, width, columns, values, start, end):
    row_products.add_to_rows(step, at, w, width, columns, values, start, end)


def case(width, listed):
    random = np.random.default_rng(width)
    w = random.normal(size=(9, width))
    other = random.normal(size=(4, width))
    columns = np.array([3, 0, 8, 3, 7, 1, 2], np.uint32)  # one comes twice
    return (
        w.astype(np.float32),
        other.astype(np.float32),
        columns if listed else None,
        random.random(7).astype("f"),
    )


@pytest.mark.parametrize("width", [1, 8, 16])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("start", "end"), [(0, 7), (2, 5), (4, 4)])
def test_sums_of_rows_and_additions_to_rows(width, listed, start, end):
    w, other, columns, values = case(width, listed)
    places = columns[start:end] if listed else np.arange(end - start)
    expected = other.copy()
    expected[2] += values[start:end] @ w[places]
    moved = w.copy()
    np.add.at(moved, places, np.outer(values[start:end], other[1]))
    for summing, adding in ((summed, added), (row_products.sum_of_rows, row_products.add_to_rows)):
        out = other.copy()
        to = w.copy()
        summing(out.reshape(-1), 2 * width, w.ravel(), width, columns, values, start, end)
        adding(other.ravel(), width, to.reshape(-1), width, columns, values, start, end)
        np.testing.assert_allclose(out, expected, rtol=1e-5)
        np.testing.assert_allclose(to, moved, rtol=1e-5)
