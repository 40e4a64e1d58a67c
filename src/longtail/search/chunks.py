"""The ranker of one level: weights of all its nodes, one chunk for the children of each parent,
packed for search, and checked before kernels read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ModelFolderError
from longtail.kernels import pool
from longtail.kernels.chunk_check import LevelIndex, first_unsound
from longtail.kernels.chunks import GROUP_BITS, LAST, LONG, SIBLING_BITS, Level
from longtail.kernels.jit import read_only
from longtail.search.weight_codes import (
    STORED,
    WeightType,
    code_table,
    converted,
    decoded,
    half_floats,
    stored,
)

__all__ = ["Chunks", "Part", "WeightType"]

# chunk after chunk, in a level
_JOINED = ("shifts", "starts", "columns", "siblings", "values", "bias", "dense")
_BUCKET_ROWS = 8  # at most, in the mean: few enough to scan


class Part(NamedTuple):
    """One chunk as the solver gives it: CSR by sparse column (column n_columns is the bias) over
    the siblings.
    """

    rows: NDArray[np.integer]  # (r,) columns, rising
    ptr: NDArray[np.integer]  # (r + 1,)
    siblings: NDArray[np.integer]  # (nnz,) child within the chunk
    values: NDArray[np.float32]  # (nnz,)
    dense: NDArray[np.float32]  # (n_siblings, dense_width)


@dataclass(frozen=True, eq=False)
class Chunks:
    """Weights of one level; ``level`` is what the kernels read, and its arrays may be read-only
    memory maps.
    """

    level: Level
    n_columns: int
    dense_width: int

    @classmethod
    def build(
        cls,
        chunk_offsets: NDArray[np.integer],
        parts: Iterable[Part],
        n_columns: int,
        dense_width: int = 0,
        dtype: WeightType = "float32",
    ) -> Chunks:
        """Pack the parts as they come, one for each pair of ``chunk_offsets`` (n_chunks + 1,), in
        their order.
        """
        offsets = np.asarray(chunk_offsets, np.int64)
        draft = dtype
        if dtype == "int8":  # chosen when all weights are there; float16 has 1,000 times less error
            draft = "float16"
        packing = _Packing(offsets, n_columns, dense_width, draft)
        for part in parts:
            packing.add(part)
        return packing.finish().astype(dtype)

    @classmethod
    def joined(cls, batches: Sequence[Chunks]) -> Chunks:
        """Return the level whose chunks are those of all ``batches``, which are stored in one way
        and not as int8.
        """
        levels = [chunks.level for chunks in batches]
        arrays = {
            name: np.concatenate([getattr(level, name) for level in levels]) for name in _JOINED
        }
        pointers = {
            name: _appended([getattr(level, name) for level in levels])
            for name in ("offsets", "heads")
        }
        level = levels[0]._replace(**arrays, **pointers)
        return cls(frozen(level), batches[0].n_columns, batches[0].dense_width)

    def run(self, first: int, last: int) -> Chunks:
        """Return the chunks from ``first`` to before ``last`` as a level of their own, whose arrays
        are views.
        """
        level = self.level
        begin = level.heads[first].tolist()
        end = level.heads[last].tolist()
        nodes = slice(int(level.offsets[first]), int(level.offsets[last]))
        changed = level._replace(
            offsets=level.offsets[first : last + 1] - nodes.start,
            heads=level.heads[first : last + 1] - level.heads[first],
            shifts=level.shifts[first:last],
            starts=level.starts[begin[0] : end[0]],
            columns=level.columns[begin[1] : end[1]],
            values=level.values[begin[2] : end[2]],
            siblings=level.siblings[begin[3] : end[3]],
            bias=level.bias[nodes],
            dense=level.dense[nodes.start * self.dense_width : nodes.stop * self.dense_width],
        )
        return Chunks(frozen(changed), self.n_columns, self.dense_width)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Chunks:
        """Take what ``to_arrays`` gave; nothing is copied."""
        n_columns, dense_width = (int(size) for size in arrays["shape"])
        table = np.zeros(0, np.float32)
        if arrays["values"].itemsize == 2:
            table = half_floats()
        tables = dict.fromkeys(("table", "dense_table"), table)
        level = Level(**{name: arrays.get(name, tables.get(name)) for name in Level._fields})
        check_level(level, n_columns, dense_width)
        return cls(frozen(level), n_columns, dense_width)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all that is to be stored, by name."""
        arrays = {
            name: array
            for name, array in self.level._asdict().items()
            if self.dtype == "int8" or "table" not in name
        }
        return arrays | {"shape": np.array([self.n_columns, self.dense_width], np.int64)}

    @property
    def n_chunks(self) -> int:
        """Number of parents."""
        return len(self.level.shifts)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the level."""
        return len(self.level.bias)

    @property
    def nnz(self) -> int:
        """Weights kept: sparse ones, biases and the dense block."""
        return (
            len(self.level.values) + int(np.count_nonzero(self.level.bias)) + len(self.level.dense)
        )

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return sum(array.nbytes for array in self.to_arrays().values())

    @property
    def dtype(self) -> WeightType:
        """How weights are stored."""
        kinds: dict[int, WeightType] = {1: "int8", 2: "float16", 4: "float32"}
        return kinds[self.level.values.itemsize]

    def weights(
        self, node: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """Return the sparse columns of a node, the bias last as column n_columns; the weights
        there; the dense ones.
        """
        level = self.level
        chunk = int(np.searchsorted(level.offsets, node, side="right")) - 1
        sibling = node - level.offsets[chunk]
        width = level.offsets[chunk + 1] - level.offsets[chunk]
        columns, siblings, entries = _unpacked(level, chunk, self.n_columns)
        mine = siblings == sibling
        values = decoded(level.values[entries], level.table)[mine]
        at = level.offsets[chunk] * self.dense_width
        block = level.dense[at : at + width * self.dense_width].reshape(self.dense_width, width)
        dense = decoded(block[:, sibling], level.dense_table)
        bias = level.bias[node : node + 1]
        if not bias[0]:
            return columns[mine], values, dense
        return np.append(columns[mine], self.n_columns), np.append(values, bias), dense

    def astype(self, dtype: WeightType) -> Chunks:
        """Return the same weights stored in another way; int8 means the nearest of 256 values
        chosen for the level.
        """
        if dtype == self.dtype:
            return self
        level = self.level
        table, dense_table = (
            code_table(*pair, dtype)
            for pair in ((level.values, level.table), (level.dense, level.dense_table))
        )
        changed = level._replace(
            values=converted(level.values, level.table, table, dtype),
            table=table,
            dense=converted(level.dense, level.dense_table, dense_table, dtype),
            dense_table=dense_table,
        )
        return Chunks(frozen(changed), self.n_columns, self.dense_width)


class _Packing:
    """The arrays of a level as its parts come; bytes grow in place, so the level is never held
    twice.
    """

    def __init__(
        self, offsets: NDArray[np.int64], n_columns: int, dense_width: int, dtype: WeightType
    ) -> None:
        self._offsets = offsets
        self._n_columns = n_columns
        self._dense_width = dense_width
        self._dtype = dtype
        self._heads = np.zeros((len(offsets), 4), np.int64)
        self._shifts = bytearray()
        self._starts = bytearray()
        self._columns = bytearray()
        self._siblings = bytearray()
        self._values = bytearray()
        self._dense = bytearray()
        self._bias = np.zeros(int(offsets[-1]), np.float32)

    def add(self, part: Part) -> None:
        """Pack the next chunk."""
        chunk = len(self._shifts)
        first, end = self._offsets[chunk : chunk + 2]
        rows, ptr, siblings, values = self._without_bias(part, first)
        shift = _shift(len(rows), self._n_columns)
        self._shifts.append(shift)
        self._starts += _starts(rows, ptr, shift, self._n_columns)
        self._columns += _planes(rows & ((1 << shift) - 1), max(-(-shift // 8), 1))
        more = siblings >> SIBLING_BITS
        flagged = siblings & (LAST - 1)
        flagged[ptr[1:] - 1] |= LAST
        self._siblings += flagged.astype(np.uint8).tobytes() + _planes(
            more, _bytes_for(int(end - first - 1) >> SIBLING_BITS)
        )
        self._values += stored(values, self._dtype).tobytes()
        self._dense += stored(part.dense.T, self._dtype).tobytes()
        n_entries = self._heads[chunk, 2] + len(values)
        self._heads[chunk + 1] = (
            len(self._starts) // 2,
            len(self._columns),
            n_entries,
            len(self._siblings),
        )

    def _without_bias(self, part: Part, first: int) -> tuple[NDArray[Any], ...]:
        rows = np.asarray(part.rows, np.int64)
        ptr = np.asarray(part.ptr, np.int64)
        siblings = np.asarray(part.siblings, np.int64)
        values = part.values
        if len(rows) and rows[-1] == self._n_columns:
            self._bias[first + siblings[ptr[-2] :]] = values[ptr[-2] :]
            rows = rows[:-1]
            ptr = ptr[:-1]
        filled = np.diff(ptr) > 0
        ptr = np.append(ptr[:-1][filled], ptr[-1])
        return rows[filled], ptr, siblings[: ptr[-1]], values[: ptr[-1]]

    def finish(self) -> Chunks:
        """Return the level; every chunk must have come."""
        if len(self._shifts) != len(self._offsets) - 1:
            raise ValueError(f"{len(self._shifts)} parts for {len(self._offsets) - 1} chunks")
        kind = STORED[self._dtype]
        table = np.zeros(0, np.float32)
        if self._dtype == "float16":
            table = half_floats()
        level = Level(
            self._offsets,
            self._heads,
            np.frombuffer(self._shifts, np.uint8),
            np.frombuffer(self._starts, np.uint16),
            np.frombuffer(self._columns, np.uint8),
            np.frombuffer(self._siblings, np.uint8),
            np.frombuffer(self._values, kind),
            table,
            self._bias,
            np.frombuffer(self._dense, kind),
            table,
        )
        return Chunks(frozen(level), self._n_columns, self._dense_width)


def _appended(pointers: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return pointers that each begin at 0 as one array, each from the end of the one before on."""
    lasts = [batch[-1:] for batch in pointers]
    ends = np.cumsum([pointers[0][:1], *lasts], axis=0)[:, 0]
    moved = [batch[:-1] + end for batch, end in zip(pointers, ends[:-1], strict=True)]
    return np.concatenate([*moved, ends[-1:]])


def _shift(n_rows: int, n_columns: int) -> int:
    """Return the log2 of the columns of a bucket: few rows in each, and one byte a row where that
    is no larger.
    """
    shift = max(int(_BUCKET_ROWS * max(n_columns, 1) / max(n_rows, 1)).bit_length() - 1, 0)
    shift = min(shift, max(n_columns.bit_length(), 1), 24)
    size = {
        option: n_rows * max(-(-option // 8), 1) + 2 * (n_columns >> option)
        for option in {shift, min(shift, 8), min(shift, 16)}
    }
    return min(size, key=lambda option: (size[option], option))


def _starts(rows: NDArray[np.int64], ptr: NDArray[np.int64], shift: int, n_columns: int) -> bytes:
    """Return the first row of each bucket, then the first entry of each group; high halves after
    all in long chunks.
    """
    first_rows = np.searchsorted(rows, np.arange((n_columns >> shift) + 2) << shift)
    starts = np.concatenate([first_rows, ptr[:-1][:: 1 << GROUP_BITS]])
    return _planes(starts, _halves(int(ptr[-1])), np.uint16)


def _halves(n_entries: int) -> int:
    """Return the number of 16-bit halves of each start of a chunk."""
    return 2 if n_entries >= LONG else 1


def _planes(numbers: NDArray[np.int64], count: int, dtype: Any = np.uint8) -> bytes:
    """Return the lowest bits of all numbers, then the next ones of all, ``count`` times."""
    bits = 8 * np.dtype(dtype).itemsize
    return b"".join(
        (numbers >> bits * plane & (1 << bits) - 1).astype(dtype).tobytes()
        for plane in range(count)
    )


def _bytes_for(number: int) -> int:
    return -(-number.bit_length() // 8)


def _unpacked(
    level: Level, chunk: int, n_columns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], slice]:
    """Return the column and the sibling of each entry of a chunk, and where its values are."""
    begin = level.heads[chunk]
    end = level.heads[chunk + 1]
    n_entries = end[2] - begin[2]
    shift = int(level.shifts[chunk])
    if n_entries:
        planes = level.siblings[begin[3] : end[3]].reshape(-1, n_entries)
    else:
        planes = np.zeros((1, 0), np.uint8)
    siblings = planes[0].astype(np.int64) & (LAST - 1)
    for i, plane in enumerate(planes[1:]):
        siblings |= plane.astype(np.int64) << SIBLING_BITS + 8 * i
    lows = level.columns[begin[1] : end[1]].reshape(max(-(-shift // 8), 1), -1)
    rows = sum(
        (plane.astype(np.int64) << 8 * i for i, plane in enumerate(lows)),
        np.zeros(lows.shape[1], np.int64),
    )
    halves = level.starts[begin[0] : end[0]].reshape(_halves(n_entries), -1).astype(np.int64)
    starts = sum(half[: (n_columns >> shift) + 2] << 16 * i for i, half in enumerate(halves))
    rows += np.repeat(np.arange(len(starts) - 1) << shift, np.diff(starts))
    row_of_entry = np.cumsum(planes[0] >= LAST) - (planes[0] >= LAST)
    return rows[row_of_entry], siblings, slice(begin[2], end[2])


def frozen(level: Level) -> Level:
    """One type for arrays in memory and in files, so that kernels are compiled once."""
    return Level(*map(read_only, level))


def check_level(level: Level, n_columns: int, dense_width: int) -> None:
    """Refuse arrays that do not fit each other, or lead out of themselves: kernels read without
    looking at bounds.
    """
    if not (_typed(level, n_columns, dense_width) and _fit(level, dense_width)) or _unsound(
        level, n_columns
    ):
        raise ModelFolderError("weights: the arrays do not fit each other; train the model again")


def _typed(level: Level, n_columns: int, dense_width: int) -> bool:
    """Say whether every array has its type and shape: kernels are compiled for no others."""
    if any(array is None for array in level) or level.values.dtype not in map(
        np.dtype, STORED.values()
    ):
        return False
    dtypes: dict[str, Any] = dict.fromkeys(("offsets", "heads"), np.int64) | {"starts": np.uint16}
    dtypes |= dict.fromkeys(("shifts", "columns", "siblings"), np.uint8)
    dtypes |= dict.fromkeys(("values", "dense"), level.values.dtype)
    return (
        all(array.dtype == dtypes.get(name, np.float32) for name, array in level._asdict().items())
        and all(
            array.ndim == (2 if name == "heads" else 1) for name, array in level._asdict().items()
        )
        and 0 <= n_columns < 1 << 31
        and 0 <= dense_width < 1 << 31
    )


def _fit(level: Level, dense_width: int) -> bool:
    """Say whether pointers rise from 0 to the ends of what they point into, and every code has a
    meaning.
    """
    n_chunks = len(level.shifts)
    n_nodes = len(level.bias)
    n_codes = 1 << 8 * level.values.itemsize
    if level.heads.shape != (n_chunks + 1, 4) or level.offsets.shape != (n_chunks + 1,):
        return False
    ends = [len(level.starts), len(level.columns), len(level.values), len(level.siblings)]
    coded = level.values.dtype != np.float32
    return bool(
        level.heads[0].tolist() == [0, 0, 0, 0]
        and level.heads[-1].tolist() == ends
        and (level.heads[1:] >= level.heads[:-1]).all()
        and level.offsets[0] == 0
        and level.offsets[-1] == n_nodes
        and (level.offsets[1:] >= level.offsets[:-1]).all()
        and len(level.dense) == n_nodes * dense_width
        and np.isfinite(level.bias).all()
        and not (coded and _meaningless(level.values, level.table, n_codes))
        and not (coded and _meaningless(level.dense, level.dense_table, n_codes))
    )


def _meaningless(codes: NDArray[Any], table: NDArray[np.float32], n_codes: int) -> bool:
    """Say whether some code lies beyond its table, which may be short only where there are few
    codes to look at.
    """
    return len(table) < n_codes and int(codes.max(initial=0)) >= len(table) and len(codes) > 0


def _unsound(level: Level, n_columns: int) -> bool:
    """Return whether some chunk leads out of its own rows and siblings."""
    arrays = frozen(level)
    index = LevelIndex(*(getattr(arrays, name) for name in LevelIndex._fields))
    n_chunks = len(arrays.shifts)
    size = max(-(-n_chunks // (4 * pool.thread_count())), 1)
    blocks = pool.row_blocks(n_chunks, size)
    chunks = pool.run(lambda ends: first_unsound(*ends, index, n_columns), blocks)
    return any(chunk >= 0 for chunk in chunks)
