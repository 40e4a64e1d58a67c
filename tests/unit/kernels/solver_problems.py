"""Problems of primal solvers: a block of siblings over the same documents, as ``sibling_blocks.py`` lays it out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse


class Problem(NamedTuple):
    """Documents with a sparse and a dense block, and of each (document, sibling) y C."""

    rows: sparse.csr_array
    dense: np.ndarray
    targets: np.ndarray
    bias: float

    @property
    def x(self):
        """All columns: dense, sparse, and the constant."""
        constant = np.full((len(self.dense), 1), self.bias)
        return np.hstack([self.dense, self.rows.toarray(), constant]).astype(np.float64)

    @property
    def block(self):
        """What every kernel takes first: pointers, columns, values, dense."""
        columns = (self.rows.indices + self.dense.shape[1]).astype(np.uint32)
        return self.rows.indptr.astype(np.int64), columns, self.rows.data, self.dense

    @property
    def placed(self):
        """The same with dense rows that lie among others: pointers, columns, values, dense, dense rows."""
        return *self.block[:3], *among_others(self.dense)

    @property
    def width(self):
        """Siblings with padding."""
        return 8 if self.targets.shape[1] <= 8 else 16

    def only(self, *siblings):
        """Return the problem of some of the siblings."""
        return self._replace(targets=self.targets[:, list(siblings)])


def among_others(dense):
    """Return dense rows with rows between them that nobody may read, and where each of them is."""
    rows = np.arange(1, 2 * len(dense), 2, dtype=np.int32)
    everything = np.full((2 * len(dense) + 1, dense.shape[1]), np.nan, np.float32)
    everything[rows] = dense
    return everything, rows


def padded(numbers, width):
    """Return (rows, siblings) as a solver takes them, padded with zeros to ``width``."""
    return np.pad(numbers, ((0, 0), (0, width - numbers.shape[1]))).astype(np.float32).ravel()
