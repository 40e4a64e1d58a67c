from __future__ import annotations

import numpy as np
import pytest

from longtail.kernels import tiles


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("rows", [1, 64, 300])
def test_arithmetic_along_siblings(width, rows):
    random = np.random.default_rng(rows)
    a, b = random.normal(size=(2, rows, width)).astype(np.float32)
    factors = random.normal(size=width)
    np.testing.assert_allclose(
        tiles.dots(a.ravel(), b.ravel(), width), (a * b).sum(axis=0), rtol=1e-4, atol=1e-5
    )
    to = a.copy()
    tiles.add_multiples(to.reshape(-1), b.ravel(), factors, width)
    np.testing.assert_allclose(to, a + factors * b, rtol=1e-4, atol=1e-6)
    to = a.copy()
    tiles.multiply(to.reshape(-1), factors, width)
    np.testing.assert_allclose(to, a * factors, rtol=1e-5)


@pytest.mark.parametrize("width", [8, 16])
def test_tiles_repeat_the_siblings_and_fold_back(width):
    numbers = np.arange(width, dtype=float)
    tile = tiles.tiled(numbers, width)
    np.testing.assert_array_equal(
        tile.reshape(-1, width), np.broadcast_to(numbers, (tiles.TILE // width, width))
    )
    np.testing.assert_allclose(tiles.folded(tile, width), numbers * tiles.TILE / width)


@pytest.mark.parametrize("width", [8, 16])
def test_rows_with_a_mark_anywhere_are_listed(width):
    marks = np.zeros(tiles.TILE, np.uint8)
    docs = np.full(10, -1, np.int32)
    for place in (0, 3 * width + width - 1, 4 * width + 7, 9 * width):
        marks[place] = 1
    assert (
        tiles.list_marked(marks, 9 * width, 100, width, docs, 1) == 4
    )  # the last mark is behind what counts
    assert docs.tolist() == [-1, 100, 103, 104, -1, -1, -1, -1, -1, -1]


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_marked_positions_are_listed_and_dealt_to_their_siblings(width, share):
    marks = (np.random.default_rng(width).random(tiles.TILE) < share).astype(np.uint8)
    # what lies behind does not count
    count = tiles.TILE - 2 * width
    first = 3 * tiles.TILE
    listed, places = np.full((2, tiles.TILE + 2), -1, np.int32)
    n = tiles.list_positions(marks, count, first, listed, 1)
    expected = first + np.flatnonzero(marks[:count])
    assert listed[0] == -1
    np.testing.assert_array_equal(listed[1:n], expected)
    begins = tiles.by_sibling(listed[1:n], width, places)
    assert (begins[0], begins[width]) == (0, len(expected))
    for k in range(width):
        np.testing.assert_array_equal(
            places[begins[k] : begins[k + 1]], expected[expected % width == k]
        )
