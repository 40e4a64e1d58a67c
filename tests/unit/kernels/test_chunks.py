"""Query × chunk against a plain product, by buckets and by table, which must agree to the last bit."""

import numpy as np
import pytest

from longtail.kernels.chunks import RowTable, add_by_buckets, add_by_table, fill_table
from longtail.kernels.dense_block import sums_of_one
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.simd import LANES
from longtail.search.chunks import Chunks, Part


def chunk_of(weights, n_columns, dtype):
    """One chunk from {column: {sibling: weight}}."""
    rows = sorted(weights)
    entries = [(sibling, value) for row in rows for sibling, value in sorted(weights[row].items())]
    ptr = np.cumsum([0] + [len(weights[row]) for row in rows])
    siblings, values = np.array(entries).T
    width = int(siblings.max()) + 1
    dense = np.random.default_rng(0).normal(size=(width, 5)).astype(np.float32)
    part = Part(np.array(rows), ptr, siblings.astype(int), values.astype(np.float32), dense)
    return Chunks.build([0, width], [part], n_columns, 5, dtype), width, dense


def features_of(columns, xs, n_columns, pointers=None):
    """Return the features of documents, by default of one."""
    pointers = np.array([0, len(columns)] if pointers is None else pointers, np.int64)
    return FeatureRows(
        pointers, columns, xs, np.zeros((len(pointers) - 1, 0), np.float32), n_columns
    )


def random_weights(rng, n_columns, width, n_rows, mean_entries):
    rows = rng.choice(n_columns, n_rows, replace=False)
    counts = np.minimum(rng.geometric(1 / mean_entries, n_rows), width)
    return {
        int(row): {int(i): rng.normal() for i in rng.choice(width, count, replace=False)}
        for row, count in zip(rows, counts, strict=True)
    }


@pytest.mark.parametrize(
    ("n_columns", "width", "n_rows", "mean_entries"),
    [
        (50, 3, 50, 2),  # every column
        (2000, 16, 40, 3),  # buckets of 256
        (2000, 16, 900, 3),
        (100_000, 128, 50, 5),  # two planes of columns
        (3_000_000, 129, 4, 20),  # three, and two of siblings
        (2000, 56, 900, 4),  # few rows in full, and these of 7 times 8 numbers
        (9000, 40_000, 5000, 30),  # long: more than 65535 entries, three planes of siblings
    ],
)
@pytest.mark.parametrize("room", [0, 3, 1000], ids=lambda room: f"{room} full rows")
def test_buckets_and_table_add_what_a_product_adds(n_columns, width, n_rows, mean_entries, room):
    rng = np.random.default_rng(n_columns)
    weights = random_weights(rng, n_columns, width, n_rows, mean_entries)
    chunks, width, _ = chunk_of(weights, n_columns, "float32")
    level = chunks.level
    known = rng.choice(sorted(weights), min(n_rows, 30), replace=False)
    columns = np.unique(
        np.concatenate([known, rng.integers(n_columns, size=30), [0, n_columns - 1]])
    ).astype(np.int32)
    xs = rng.normal(size=len(columns) + 2).astype(np.float32)[1:-1]
    expected = np.zeros(width, np.float32)
    for column, x in zip(columns.tolist(), xs, strict=True):
        for sibling, value in weights.get(column, {}).items():
            expected[sibling] += x * np.float32(value)
    lanes = -(-width // LANES) * LANES
    by_buckets, by_table = np.zeros(width, np.float32), np.zeros(lanes, np.float32)
    table, filled = np.zeros(n_columns, np.int32), np.empty(n_columns, np.int32)
    scratch = np.empty((2, len(columns) + 1), np.int64)
    features = features_of(columns, xs, n_columns)
    add_by_buckets(level, 0, features, 0, scratch, by_buckets)
    full_rows = np.full(room * lanes, np.nan, np.float32)
    count = fill_table(level, 0, n_columns, RowTable(table, full_rows, filled))
    assert filled[:count].tolist() == np.flatnonzero(table).tolist() == sorted(weights)
    often = sum(16 * len(row) >= width for row in weights.values()) if width <= 128 else 0
    assert np.count_nonzero(table < 0) == min(often, room)
    add_by_table(level, 0, RowTable(table, full_rows, filled), features, 0, scratch, by_table)
    assert np.array_equal(by_buckets, expected)
    assert np.array_equal(by_table[:width], expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_every_type_adds_the_weights_that_it_holds(dtype):
    weights = {1: {0: 0.3, 2: -1.25}, 5: {1: 2.5}, 7: {0: 1.1, 1: 0.7, 2: -0.2}}
    chunks, width, dense = chunk_of(weights, 8, dtype)
    level = chunks.level
    columns, xs = np.array([1, 3, 7], np.int32), np.array([2, 9, -1], np.float32)
    sums = np.zeros(width, np.float32)
    add_by_buckets(level, 0, features_of(columns, xs, 8), 0, np.empty((2, 4), np.int64), sums)
    assert np.allclose(sums, [0.6 - 1.1, -0.7, -2.5 + 0.2], atol=0.002)
    features = np.arange(10, dtype=np.float32).reshape(2, 5)
    got = np.zeros(width, np.float32)
    sums_of_one(level.dense, level.dense_table, 0, features[1], got)
    assert np.allclose(
        got, (dense * features[1]).sum(1), atol=0.02
    )  # BLAS may warn of lanes that nobody asked for


def test_only_the_features_of_the_document_are_read():
    chunks, width, _ = chunk_of({c: {0: 1.0} for c in range(8)}, 8, "float32")
    sums = np.zeros(width, np.float32)
    features = features_of(np.arange(8, dtype=np.int32), np.full(8, 2, np.float32), 8, [0, 3, 5, 8])
    add_by_buckets(chunks.level, 0, features, 1, np.empty((2, 3), np.int64), sums)
    assert sums.tolist() == [4.0]


def test_a_row_is_found_in_a_crowded_bucket_at_the_end_of_the_arrays():
    rng = np.random.default_rng(3)
    crowd = np.arange(192_063, 200_000, 64)  # of which every fourth has the same low byte
    columns = np.concatenate([rng.choice(100_000, 20, replace=False), crowd])
    weights = {int(column): {0: 1.0 + at} for at, column in enumerate(columns.tolist())}
    chunks, _, _ = chunk_of(weights, 200_000, "float32")
    asked = np.unique(np.concatenate([columns, columns + 1])).astype(np.int32)
    asked = asked[asked < 200_000]
    for column in asked.tolist():
        sums = np.zeros(1, np.float32)
        one, x, scratch = (
            np.array([column], np.int32),
            np.ones(1, np.float32),
            np.empty((2, 2), np.int64),
        )
        add_by_buckets(chunks.level, 0, features_of(one, x, 200_000), 0, scratch, sums)
        assert sums[0] == weights.get(column, {0: 0.0})[0]
