"""Problems of primal solvers: a block of siblings over the same documents, as ``sibling_blocks.py``
lays it out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from longtail.kernels import sibling_blocks
from longtail.kernels.proximal import index_columns
from longtail.kernels.sibling_blocks import Documents, square_norms


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
    def documents(self):
        """The documents as a solver reads them."""
        return documents_of(self.rows, self.dense, self.bias)

    @property
    def width(self):
        """Siblings with padding."""
        return 8 if self.targets.shape[1] <= 8 else 16

    def only(self, *siblings):
        """Return the problem of some of the siblings."""
        return self._replace(targets=self.targets[:, list(siblings)])


def documents_of(rows, dense, bias, *, products=False):
    """Return documents as solvers read them; their dense rows lie among others."""
    return Documents(
        rows.indptr.astype(np.int64),
        (rows.indices + dense.shape[1]).astype(np.uint32),
        rows.data,
        *among_others(dense),
        float(bias),
        square_norms(rows.indptr, rows.data, dense, np.arange(len(dense)), np.float32(bias)),
        dense @ dense.T if products else np.zeros((0, 0), np.float32),
    )


def problem_of(documents, targets, siblings, *, index=None, start=None, seed=0):
    """Return the problem of a block; without ``index`` its index is of no documents."""
    if index is None:
        nothing = documents._replace(
            pointers=documents.pointers[:1],
            columns=documents.columns[:0],
            values=documents.values[:0],
        )
        index = index_columns(nothing, documents.dense[:0], documents.dense.shape[1])
    start = np.zeros((0, documents.dense.shape[1]), np.float32) if start is None else start
    return sibling_blocks.Problem(documents, index, targets, siblings, start, seed)


def among_others(dense):
    """Return dense rows with rows between them that nobody may read, and where each of them is."""
    rows = np.arange(1, 2 * len(dense), 2, dtype=np.int32)
    everything = np.full((2 * len(dense) + 1, dense.shape[1]), np.nan, np.float32)
    everything[rows] = dense
    return everything, rows


def padded(numbers, width):
    """Return (rows, siblings) as a solver takes them, padded with zeros to ``width``."""
    return np.pad(numbers, ((0, 0), (0, width - numbers.shape[1]))).astype(np.float32).ravel()
