"""Weights in, the same weights out: of any shape of chunk, in every type, through arrays and memory
maps.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from longtail.errors import ModelFolderError
from longtail.search.chunks import Chunks, Part
from longtail.search.weight_codes import code_table, converted, decoded


def part(weights, dense=None):
    """A chunk from (n_columns + 1, n_siblings), the last row being the bias."""
    rows = np.flatnonzero(np.any(weights != 0, axis=1)).astype(np.int32)
    held = sparse.csr_array(weights[rows])
    dense = np.zeros((weights.shape[1], 0), np.float32) if dense is None else dense
    return Part(rows, held.indptr, held.indices, held.data.astype(np.float32), dense)


def random_weights(rng, n_columns, n_siblings, density):
    weights = rng.normal(size=(n_columns + 1, n_siblings)) * (
        rng.random((n_columns + 1, n_siblings)) < density
    )
    return weights.astype(np.float32)


def unpacked(chunks):
    """The (n_columns + 1, n_nodes) sparse weights and (n_nodes, dense_width) dense ones."""
    sparse_weights = np.zeros((chunks.n_columns + 1, chunks.n_nodes), np.float32)
    dense = np.zeros((chunks.n_nodes, chunks.dense_width), np.float32)
    for node in range(chunks.n_nodes):
        columns, values, dense[node] = chunks.weights(node)
        assert np.all(np.diff(columns) > 0)
        sparse_weights[columns, node] = values
    return sparse_weights, dense


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_columns=st.sampled_from([0, 1, 7, 8, 600]),
    widths=st.lists(st.sampled_from([0, 1, 2, 16, 128, 129]), min_size=1, max_size=3),
    density=st.sampled_from([0, 0.002, 0.1, 1]),
    dense_width=st.sampled_from([0, 3]),
)
def test_weights_come_back(seed, n_columns, widths, density, dense_width):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(widths)])
    weights = [random_weights(rng, n_columns, width, density) for width in widths]
    dense = [rng.normal(size=(width, dense_width)).astype(np.float32) for width in widths]
    chunks = Chunks.build(offsets, map(part, weights, dense), n_columns, dense_width)
    assert (chunks.n_chunks, chunks.n_nodes, chunks.dtype) == (len(widths), offsets[-1], "float32")
    assert chunks.nnz == sum(map(np.count_nonzero, weights)) + dense_width * offsets[-1]
    got, got_dense = unpacked(chunks)
    assert np.array_equal(got, np.hstack(weights))
    assert np.array_equal(got_dense, np.vstack(dense))


@pytest.mark.parametrize("n_columns", [70_000, 20_000_000])
def test_columns_that_need_two_and_three_planes(n_columns):
    rows = np.array([0, 1, 255, 256, 65_535, 65_536, n_columns - 1, n_columns])
    values = np.arange(1, 9, dtype=np.float32)
    lone = Part(rows, np.arange(9), np.zeros(8, int), values, np.zeros((1, 0), np.float32))
    chunks = Chunks.build([0, 1], [lone], n_columns)
    columns, got, _ = chunks.weights(0)
    assert columns.tolist() == rows.tolist()
    assert got.tolist() == values.tolist()
    assert chunks.nbytes < 2000  # a bucket table of all columns would take more


@pytest.mark.parametrize("width", [16, 40_000])
def test_a_chunk_of_more_than_65535_entries(width):
    rng = np.random.default_rng(0)
    held = sparse.random_array(
        (9000, width), density=100_000 / (9000 * width), rng=rng, dtype=np.float32
    ).tocsr()
    chunk = Part(
        np.arange(9000), held.indptr, held.indices, held.data, np.zeros((width, 0), np.float32)
    )
    chunks = Chunks.build([0, width], [chunk], 9000)
    for node in (0, 1, 129, width - 1) if width > 129 else range(width):
        columns, values, _ = chunks.weights(node)
        column = held[:, [node]].tocoo()
        assert columns.tolist() == column.coords[0].tolist()
        assert values.tolist() == column.data.tolist()


@pytest.mark.parametrize("entries", [65_535, 65_536, 65_537])
def test_a_chunk_at_the_border_of_two_byte_starts(entries):
    weights = np.zeros((5001, 16), np.float32)
    weights.ravel()[:entries] = np.arange(1, entries + 1)
    assert np.array_equal(unpacked(Chunks.build([0, 16], [part(weights)], 5000))[0], weights)


def heavy_tailed(rng):
    """Two chunks with weights like those that a solver leaves: none below 0.1, few large."""
    sizes = rng.exponential(0.3, (2, 501, 16)) + 0.1
    return [part((size * rng.choice([-1, 0, 1], size.shape)).astype(np.float32)) for size in sizes]


def test_float16_rounds_and_int8_takes_the_nearest_of_256():
    exact = Chunks.build([0, 16, 32], heavy_tailed(np.random.default_rng(1)), 500)
    weights = unpacked(exact)[0][:-1]
    half = unpacked(exact.astype("float16"))[0][:-1]
    assert np.array_equal(half, weights.astype(np.float16))
    coded = exact.astype("int8")
    codes = coded.level.table
    got = unpacked(coded)[0][:-1]
    nearest = codes[np.abs(weights[:, :, None] - codes).argmin(axis=2)]
    assert np.array_equal(
        np.abs(got - weights), np.where(weights != 0, np.abs(nearest - weights), 0)
    )
    step = 2 * np.abs(weights).max() / 255
    assert np.sqrt(np.mean((got - weights)[weights != 0] ** 2)) < 0.6 * step / np.sqrt(
        12
    )  # of even steps


def test_few_distinct_weights_are_exact_as_int8():
    weights = np.random.default_rng(2).choice([0, -1.5, 0.25, 3], (101, 16)).astype(np.float32)
    chunks = Chunks.build([0, 16], [part(weights)], 100, dtype="int8")
    assert chunks.dtype == "int8"
    assert np.array_equal(unpacked(chunks)[0], weights)


def test_bytes_a_weight():
    exact = Chunks.build([0, 16, 32], heavy_tailed(np.random.default_rng(3)), 500)
    sizes = {
        dtype: exact.astype(dtype).nbytes / exact.nnz for dtype in ("float32", "float16", "int8")
    }
    assert all(
        sizes[dtype] < bound
        for dtype, bound in {"float32": 5.5, "float16": 3.5, "int8": 2.7}.items()
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_through_arrays_without_a_copy(dtype):
    rng = np.random.default_rng(4)
    weights = random_weights(rng, 50, 5, 0.5)
    dense = rng.normal(size=(5, 3)).astype(np.float32)
    chunks = Chunks.build([0, 5], [part(weights, dense)], 50, 3, dtype)
    arrays = chunks.to_arrays()
    again = Chunks.from_arrays(arrays)
    assert np.shares_memory(again.level.values, arrays["values"])
    assert not any(array.flags.writeable for array in again.level)
    assert (again.n_columns, again.dense_width, again.dtype) == (50, 3, dtype)
    for one, other in zip(unpacked(again), unpacked(chunks), strict=True):
        assert np.array_equal(one, other)
    assert np.allclose(unpacked(again)[1], dense, atol=0.002)


def test_arrays_that_do_not_fit_are_refused():
    arrays = Chunks.build([0, 2], [part(np.ones((5, 2), np.float32))], 4).to_arrays()
    for name in ("values", "siblings", "starts", "columns", "bias", "heads", "offsets"):
        with pytest.raises(ModelFolderError, match="do not fit"):
            Chunks.from_arrays(arrays | {name: arrays[name][:-1]})


def test_a_missing_part_is_refused():
    with pytest.raises(ValueError, match="1 parts for 2 chunks"):
        Chunks.build([0, 2, 4], [part(np.ones((5, 2), np.float32))], 4)


def test_rows_without_entries_are_dropped():
    empty = Part(
        np.array([1, 2, 3]),
        np.array([0, 1, 1, 2]),
        np.array([0, 1]),
        np.float32([5, 6]),
        np.zeros((2, 0)),
    )
    assert unpacked(Chunks.build([0, 2], [empty], 4))[0][1:4].tolist() == [[5, 0], [0, 0], [0, 6]]


def test_every_float16_is_known_by_its_bits_and_float32_needs_no_table():
    values = np.array([1.5, -2], np.float32)
    nothing = np.zeros(0, np.float32)
    table = code_table(values, nothing, "float16")
    assert np.array_equal(
        table, np.arange(65_536, dtype=np.uint16).view(np.float16), equal_nan=True
    )
    assert table[converted(values, nothing, table, "float16")].tolist() == [1.5, -2]
    assert code_table(values, nothing, "float32").tolist() == []


def test_int8_keeps_the_extremes_that_a_sample_would_miss():
    values = np.random.default_rng(0).normal(0, 0.2, 700_001).astype(np.float32)
    values[1::2][:3] = 11.5, -9.25, 11.0  # rare, and what decides who is first
    table = code_table(values, np.zeros(0, np.float32), "int8")
    coded = converted(values, np.zeros(0, np.float32), table, "int8")
    assert (table.min(), table.max()) == (-9.25, 11.5)
    assert np.abs(decoded(coded, table) - values).max() < 1
    assert np.sqrt(np.mean((decoded(coded, table) - values) ** 2)) < 0.01


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 1, -3], [-3, 1, 2, 2]),
        ([-2, -1], [-2, -1, 0, 0]),
        ([], [0, 0, 0, 0]),
        (
            [0, 0.1875, *range(1, 256)],
            [0.0625, 1, 2, 3],
        ),  # one too many: the nearest share, ends count twice
    ],
)
def test_int8_of_few_values(values, expected):
    table = code_table(np.array(values, np.float32), np.zeros(0, np.float32), "int8")
    assert table[:4].tolist() == expected
    assert len(table) == 256
    assert table[-1] == max(expected[-1], *values, 0)


def test_int8_is_as_good_as_256_codes_can_be():
    values = np.random.default_rng(0).laplace(size=100_000).astype(np.float32)
    table = code_table(values, np.zeros(0, np.float32), "int8")
    error = np.mean((decoded(converted(values, table, table, "int8"), table) - values) ** 2)
    assert error < 0.98 * 108 / (
        12 * 256**2
    )  # the best for the distribution (Panter and Dite 1951), less for a sample
