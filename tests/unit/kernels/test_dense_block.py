"""The dense block: one document and four at a time, and rows of a block of siblings, beside products in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from longtail.kernels import row_products
from longtail.kernels.dense_block import (
    decode,
    inner_products,
    panel_count,
    sums_of_four,
    sums_of_one,
)
from longtail.kernels.row_products import PANEL, add_product, step_and_add_product
from longtail.kernels.simd import aligned_zeros
from longtail.search.weight_codes import half_floats

CODES = np.sort(np.random.default_rng(7).normal(size=256)).astype(np.float32)
STORED = {
    "float32": (lambda w: w, np.zeros(0, np.float32)),
    "float16": (lambda w: w.astype(np.float16).view(np.uint16), half_floats()),
    "int8": (lambda w: np.searchsorted(CODES, w).clip(0, 255).astype(np.uint8), CODES),
}


def numbers_of(stored, table):
    return table[stored] if len(table) else stored


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("width", [1, 7, 16, 17, 130])
@pytest.mark.parametrize("e", [1, 9])
def test_four_documents_get_the_bytes_of_one_each(kind, width, e):
    random = np.random.default_rng(0)
    store, table = STORED[kind]
    weights, rows = (
        store(random.normal(size=e * width + 3).astype(np.float32)),
        random.normal(size=(9, e)),
    )
    rows, documents = rows.astype(np.float32), np.array([8, 0, 3, 3, 1, 2, 2, 2])
    panels, sums = (
        aligned_zeros(panel_count(width) * e * PANEL),
        np.full((9, max(width, PANEL) + 5), np.nan, np.float32),
    )
    panels[:] = np.nan
    decode(weights, table, 3, width, e, panels)
    sums_of_four(panels, rows, documents, width, sums)
    one, numbers = (
        np.full(width + 1, np.nan, np.float32),
        numbers_of(weights[3:], table).reshape(e, width),
    )
    for lane, document in enumerate(documents):
        sums_of_one(weights, table, 3, rows[document], one[:width])
        assert one[:width].tobytes() == sums[lane, :width].tobytes()
        np.testing.assert_allclose(
            one[:width], rows[document].astype(float) @ numbers, rtol=1e-4, atol=1e-5
        )
    assert np.isnan(one[width])
    assert np.isnan(sums[8]).all()
    assert np.isnan(sums[:, max(width, PANEL) :]).all()


def test_every_float16_is_decoded_to_the_same_number():
    halves = np.arange(1 << 16, dtype=np.uint16)
    halves = halves[(halves & 0x7C00) != 0x7C00]  # no infinities, which no weight is
    out = np.zeros(len(halves), np.float32)
    decode(halves, half_floats(), 0, PANEL, len(halves) // PANEL, out)
    assert out.tobytes() == half_floats()[halves].tobytes()


@pytest.mark.parametrize(("m", "e"), [(0, 3), (1, 1), (5, 0), (16, 8), (39, 21)])
def test_inner_products_are_those_of_all_pairs(m, e):
    rows = np.random.default_rng(1).normal(size=(m, e)).astype(np.float32)
    products = inner_products(rows)
    np.testing.assert_allclose(products, rows.astype(float) @ rows.T.astype(float), atol=1e-5)
    assert products.tobytes() == products.T.tobytes()


@njit
def added(out, w, width, row):
    add_product(out, w, width, row)


@njit
def stepped(out, w, width, row, step, before):
    step_and_add_product(out, w, width, row, step, before)


@pytest.mark.parametrize("take", [stepped, step_and_add_product])
@pytest.mark.parametrize("width", [1, 8, 16])
@pytest.mark.parametrize("e", [0, 1, 4, 11, 8, 75])
def test_a_step_and_the_margins_after_it_are_those_of_one_after_the_other(take, width, e):
    random = np.random.default_rng(3)
    w, step = (
        random.normal(size=(e + 1, width)).astype(np.float32),
        random.normal(size=20).astype(np.float32),
    )
    row, before, out = (random.normal(size=size).astype(np.float32) for size in (e, e, 20))
    expected, margins = w.copy(), out.copy()
    expected[:e] += before[:, None] * step[:width]
    margins[:width] += row @ expected[:e]
    take(out, w.reshape(-1), width, row, step, before)
    np.testing.assert_allclose(w, expected, atol=1e-5)
    np.testing.assert_allclose(out, margins, atol=1e-5)


@pytest.mark.parametrize("add", [added, add_product])
@pytest.mark.parametrize("width", [1, 8, 16])
@pytest.mark.parametrize("e", [0, 1, 4, 11, 8, 75])
def test_a_row_times_w_is_added(add, width, e):
    random = np.random.default_rng(2)
    w, row, before = (
        random.normal(size=(e + 1, width)),
        random.normal(size=e),
        random.normal(size=20),
    )
    w, row, out = w.astype(np.float32), row.astype(np.float32), before.astype(np.float32)
    add(out, w.ravel(), width, row)
    before[:width] += row.astype(float) @ w[:e]
    np.testing.assert_allclose(out, before, atol=1e-5)


@pytest.mark.parametrize("size", [0, 5, 1000])
def test_lines_begin_with_a_cache_line_and_are_zero(size):
    lines = aligned_zeros(size)
    assert lines.shape == (size,)
    assert not lines.any()
    assert lines.ctypes.data % 64 == 0


def test_what_is_written_for_the_compiler_and_what_is_plain_are_the_same():
    random = np.random.default_rng(3)
    weights, rows = (
        random.normal(size=9 * 70).astype(np.float32),
        random.normal(size=(4, 9)).astype(np.float32),
    )
    none, one, window = np.zeros(0, np.float32), np.zeros(70, np.float32), np.zeros(70, np.float32)
    sums_of_one(weights, none, 0, rows[0], one)
    row_products.sums_of_window(weights, none, 0, 70, rows[0], window, 0)
    np.testing.assert_allclose(window[:64], one[:64], atol=1e-5)
    panels, plain, sums = (
        aligned_zeros(5 * 9 * PANEL),
        np.zeros(9 * PANEL, np.float32),
        np.zeros((4, 70), np.float32),
    )
    decode(weights, none, 0, 70, 9, panels)
    row_products.copy_panel(weights, none, 0, 70, 9, plain, 0)
    assert plain.tobytes() == panels[: 9 * PANEL].tobytes()
    row_products.product_of_four(plain, 0, rows, np.arange(4), 0, sums, 0)
    np.testing.assert_allclose(sums[0, :PANEL], one[:PANEL], atol=1e-5)
