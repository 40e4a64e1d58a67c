"""CSR matrices as arrays: put together and taken apart without checks or copies; and the check of
arrays of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = [
    "MAX_COLUMNS",
    "csr_arrays",
    "csr_of",
    "csr_of_arrays",
    "csr_of_nothing",
    "csr_of_slots",
    "csr_where",
    "joined_rows",
    "places_in_rows",
    "rows_fit",
    "shallow_copy",
]

MAX_COLUMNS = 2**31 - 1  # indices are 32 bits wide


def csr_of(
    values: NDArray[Any], columns: NDArray[np.int32], ends: NDArray[np.integer], n_columns: int
) -> sparse.csr_array:
    """Return the matrix over these very arrays, row ends as wide as columns where they fit: scipy
    wants one type.

    scipy's own way checks them, widens columns to the type of ends, and takes as long as a search
    for one document."""
    matrix: Any = shallow_copy(_empty((len(ends) - 1, int(n_columns))))
    if len(columns) <= MAX_COLUMNS:
        ends = ends.astype(np.int32, copy=False)
    matrix.data = values
    matrix.indices = columns
    matrix.indptr = ends
    filled: sparse.csr_array = matrix
    return filled


def shallow_copy(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return another matrix over the same arrays.

    ``copy.copy`` does the same, and takes a tenth of the time of a search for one document."""
    duplicate: sparse.csr_array = object.__new__(type(matrix))
    duplicate.__dict__.update(matrix.__dict__)
    return duplicate


def csr_of_nothing(n_rows: int, n_columns: int) -> sparse.csr_array:
    """Return rows without an entry, of float32: the label matrix of documents whose labels are not
    known.
    """
    return csr_of(
        np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(n_rows + 1, np.int64), n_columns
    )


def csr_of_slots(
    values: NDArray[Any], columns: NDArray[np.int32], n_columns: int
) -> sparse.csr_array:
    """Return the matrix of (n, k) values at (n, k) columns, in their order; a column of −1 is an
    empty slot.
    """
    known = columns >= 0
    ends = np.concatenate([[0], np.cumsum(known.sum(1))])
    return csr_of(values[known], columns[known], ends, n_columns)


def csr_where(matrix: sparse.csr_array, kept: NDArray[np.bool_]) -> sparse.csr_array:
    """Return the matrix with the entries that are ``kept`` (nnz,), in their order."""
    ends = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    return csr_of(matrix.data[kept], matrix.indices[kept], ends, matrix.shape[1])


def joined_rows(
    blocks: Iterable[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
    """Return the rows of one block or more, each (ends from 0 on, columns, values), as one."""
    ends, columns, values = zip(*blocks, strict=True)
    sizes = np.concatenate([np.diff(block) for block in ends])
    pointers = np.concatenate([[0], np.cumsum(sizes)])
    return pointers, np.concatenate(columns), np.concatenate(values)


def places_in_rows(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """Return the place of each entry in its row, from 0."""
    places: NDArray[np.int64] = np.arange(matrix.nnz) - np.repeat(
        matrix.indptr[:-1], np.diff(matrix.indptr)
    )
    return places


def rows_fit(ends: NDArray[Any], columns: NDArray[Any], n_columns: int) -> bool:
    """Tell whether rows follow each other through all of ``columns``, which are numbers from 0 to
    ``n_columns`` − 1.

    For arrays of a file: scipy and kernels go where they point without looking.
    """
    follow = (
        len(ends) > 0 and ends[0] == 0 and ends[-1] == len(columns) and (np.diff(ends) >= 0).all()
    )
    return bool(follow and (not len(columns) or 0 <= columns.min() <= columns.max() < n_columns))


def csr_arrays(matrix: sparse.csr_array) -> dict[str, NDArray[Any]]:
    """Return the arrays of a matrix by name, for a file."""
    return {"values": matrix.data, "columns": matrix.indices, "ends": matrix.indptr}


def csr_of_arrays(arrays: Mapping[str, NDArray[Any]], n_columns: int) -> sparse.csr_array:
    """Undo :func:`csr_arrays`."""
    return csr_of(arrays["values"], arrays["columns"], arrays["ends"], n_columns)


@lru_cache(maxsize=16)
def _empty(shape: tuple[int, int]) -> Any:
    return sparse.csr_array(shape)
