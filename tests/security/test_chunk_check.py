"""What the packed weights of a level are checked for: all that is packed passes, and no lie about places does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import ModelFolderError
from longtail.kernels.chunk_check import LevelIndex, first_unsound
from longtail.search.chunks import Chunks, Part


def level(widths, n_columns, density, dtype="float32", dense_width=0, seed=0):
    """Return a level of random weights, and biases."""
    random, parts = np.random.default_rng(seed), []
    for width in widths:
        weights = random.normal(size=(n_columns + 1, width)) * (
            random.random((n_columns + 1, width)) < density
        )
        rows = np.flatnonzero(weights.any(axis=1))
        where = [np.flatnonzero(weights[row]) for row in rows]
        ptr = np.cumsum([0, *map(len, where)])
        siblings = np.concatenate([np.zeros(0, int), *where])
        values = weights[np.repeat(rows, np.diff(ptr)), siblings].astype(np.float32)
        dense = random.normal(size=(width, dense_width)).astype(np.float32)
        parts.append(Part(rows, ptr, siblings, values, dense))
    offsets = np.cumsum([0, *widths])
    return Chunks.build(offsets, parts, n_columns, dense_width, dtype)


SHAPES = [
    ([1], 1, 1.0),
    ([3, 1, 2], 40, 0.3),
    ([16] * 5, 3000, 0.02),
    ([128, 129, 127], 60, 0.4),
    ([300, 2], 500, 0.05),
    ([40_000], 3, 0.2),  # three planes of siblings
    ([2, 700], 120, 0.9),  # more entries than 16 bits count
    ([8], 70_000, 0.0001),  # three planes of columns
    ([5, 7], 9, 0.0),
    ([2] * 50, 4, 0.5),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_packed_passes(shape, dtype):
    made = level(*shape, dtype=dtype, dense_width=2)
    again = Chunks.from_arrays(made.to_arrays())
    assert again.n_nodes == sum(shape[0])


@given(
    widths=st.lists(st.integers(1, 140), min_size=1, max_size=4),
    n_columns=st.integers(1, 600),
    density=st.floats(0, 1),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_whatever_is_packed_passes(widths, n_columns, density, seed):
    Chunks.from_arrays(level(widths, n_columns, density, seed=seed).to_arrays())


def lies(arrays):
    """Yield arrays with one number changed so that it leads elsewhere."""
    for name in ("offsets", "heads"):
        for at in range(arrays[name].size):
            for value in (-1, 1 << 40):
                yield name, at, value
    for at in range(arrays["starts"].size):
        yield "starts", at, (1 << 16) - 1
    for at in range(arrays["siblings"].size):
        yield "siblings", at, arrays["siblings"][at] ^ 0x80  # the end of a row
        yield "siblings", at, arrays["siblings"][at] | 0x7F  # no such child
    for at in range(arrays["columns"].size):
        yield "columns", at, 255


def test_lies_about_places_are_refused():
    made = level([5, 20, 3], 50, 0.3)
    assert all(shift % 8 for shift in made.level.shifts)  # 255 is no low part of a column
    arrays, count = made.to_arrays(), 0
    for name, at, value in lies(arrays):
        changed = arrays[name].copy()
        if changed.reshape(-1)[at] == value:
            continue
        changed.reshape(-1)[at] = value
        with pytest.raises(ModelFolderError, match="do not fit each other"):
            Chunks.from_arrays({**arrays, name: changed})
        count += 1
    assert count > 500


def test_lies_about_where_more_than_16_bits_are_needed_are_refused():
    made = level([2, 700], 120, 0.9)
    arrays, begin, end = made.to_arrays(), *made.level.heads[1:, 0].tolist()
    for at in np.linspace(begin, end - 1, 12, dtype=int):
        changed = arrays["starts"].copy()
        changed[at] ^= 0x4000
        with pytest.raises(ModelFolderError, match="do not fit each other"):
            Chunks.from_arrays({**arrays, "starts": changed})


@pytest.mark.parametrize("width", [20, 300])
def test_the_child_behind_the_last_is_refused(width):
    made = level([width], 50, 0.9)
    siblings, count = made.level.siblings.copy(), int(made.level.heads[1, 2])
    for plane in range(
        len(siblings) // count
    ):  # the number of the last entry's child; its row ends there
        siblings[(plane + 1) * count - 1] = (
            width & 0x7F | 0x80 if plane == 0 else width >> 7 + 8 * (plane - 1)
        )
    with pytest.raises(ModelFolderError, match="do not fit each other"):
        Chunks.from_arrays({**made.to_arrays(), "siblings": siblings})


def test_the_column_behind_the_last_is_refused():
    made = level([5], 50, 1.0)
    columns, size = made.level.columns.copy(), 1 << int(made.level.shifts[0])
    assert 1 < size <= 256  # one plane, in which a bucket goes on behind the last column
    assert columns[-1] == 49 % size < size - 1
    columns[-1] += 1
    with pytest.raises(ModelFolderError, match="do not fit each other"):
        Chunks.from_arrays({**made.to_arrays(), "columns": columns})


def test_the_first_chunk_that_leads_elsewhere_is_named():
    made = level([5, 20, 3, 4], 50, 0.3).level
    index = LevelIndex(*(getattr(made, name) for name in LevelIndex._fields))
    assert first_unsound(0, 4, index, 50) == -1
    siblings = made.siblings.copy()
    siblings[made.heads[1:3, 3]] |= 0x7F  # no such child, in the second chunk and the third
    index = index._replace(siblings=siblings)
    assert first_unsound(0, 4, index, 50) == 1
    assert first_unsound(2, 4, index, 50) == 2
    assert first_unsound(3, 4, index, 50) == -1


@pytest.mark.parametrize("name", ["offsets", "starts", "columns"])
def test_what_is_one_off_leads_nowhere_else(name):
    made = level([5, 20, 3], 50, 0.3)
    arrays = made.to_arrays()
    for at in range(arrays[name].size):
        for step in (-1, 1):
            changed = arrays[name].copy()
            changed[at] = (int(changed[at]) + step) % (1 << 8 * changed.itemsize - 1)
            try:
                found = Chunks.from_arrays({**arrays, name: changed})
            except ModelFolderError:
                continue
            for node in range(made.n_nodes):  # other weights, but those of some place
                columns, values, _ = found.weights(node)
                assert len(columns) == len(values)
                assert all((columns >= 0) & (columns <= made.n_columns))


@pytest.mark.parametrize(
    "name", ["offsets", "heads", "shifts", "starts", "columns", "siblings", "values", "bias"]
)
def test_other_types_and_sizes_are_refused(name):
    arrays = level([5, 20, 3], 50, 0.3).to_arrays()
    other = np.float64 if arrays[name].dtype != np.float64 else np.float32
    for changed in (
        arrays[name].astype(other),
        arrays[name][:-1],
        arrays[name][None],
        arrays[name][:0],
    ):
        with pytest.raises(ModelFolderError, match="do not fit each other"):
            Chunks.from_arrays({**arrays, name: changed})


@pytest.mark.parametrize("shift", [0, 8, 25, 63, 64, 255])
def test_other_shifts_are_refused(shift):
    made = level([5, 20, 3], 50, 0.3)
    shifts = made.level.shifts.copy()
    shifts[1] = shift
    with pytest.raises(ModelFolderError, match="do not fit each other"):
        Chunks.from_arrays({**made.to_arrays(), "shifts": shifts})


def test_codes_without_a_meaning_are_refused():
    arrays = level([5, 20, 3], 50, 0.3, "int8", dense_width=2).to_arrays()
    for name in ("table", "dense_table"):
        with pytest.raises(ModelFolderError, match="do not fit each other"):
            Chunks.from_arrays({**arrays, name: arrays[name][:10]})
