"""CSR matrices over arrays that are known to be right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["csr_of"]


def csr_of(
    values: NDArray[Any], columns: NDArray[np.int32], ends: NDArray[np.integer], n_columns: int
) -> sparse.csr_array:
    """Return the matrix over these very arrays; scipy's own way checks them, and widens columns to the type of ends."""
    matrix: Any = sparse.csr_array((len(ends) - 1, n_columns), dtype=values.dtype)
    matrix.data, matrix.indices, matrix.indptr = values, columns, ends
    found: sparse.csr_array = matrix
    return found
