"""CSR matrices over arrays that are known to be right."""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["csr_of"]


def csr_of(
    values: NDArray[Any], columns: NDArray[np.int32], ends: NDArray[np.integer], n_columns: int
) -> sparse.csr_array:
    """Return the matrix over these very arrays.

    scipy's own way checks them, widens columns to the type of ends, and takes as long as a search for one document.
    """
    matrix: Any = copy(_empty((len(ends) - 1, int(n_columns))))
    matrix.data, matrix.indices, matrix.indptr = values, columns, ends
    found: sparse.csr_array = matrix
    return found


@lru_cache(maxsize=16)
def _empty(shape: tuple[int, int]) -> Any:
    return sparse.csr_array(shape)
