"""The arrays of a packed level as kernels take them: of one type wherever they lie, and sound
before they are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import ModelFolderError
from longtail.kernels import pool
from longtail.kernels.chunk_check import LevelIndex, first_unsound
from longtail.kernels.chunks import Level
from longtail.kernels.jit import read_only
from longtail.search.weight_codes import STORED

__all__ = ["check_level", "frozen"]


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
