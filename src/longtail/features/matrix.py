"""Features as two blocks side by side: what every stage after the text takes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from longtail.data.csr import shallow_copy
from longtail.kernels.sparse import unit_rows

__all__ = ["Features", "join_blocks", "prepared_rows", "unit_vectors"]


_ROWS = 4096  # that are scaled together


@dataclass(frozen=True, slots=True)
class Features:
    """Rows of numbers: a dense block, a sparse block beside it, or both (Φcat); never densified.

    Columns are counted through: those of the dense block first, then those of the sparse one. A
    block that is absent has no columns."""

    sparse: csr_array  # (n, d) float32, indices int32 and sorted in each row
    dense: NDArray[np.float32]  # (n, e) C-contiguous

    @classmethod
    def of(
        cls, block: csr_array | NDArray[np.floating], dense: NDArray[np.floating] | None = None
    ) -> Features:
        """Bring one block or (sparse, dense) into the layout that kernels read; nothing is copied
        that has it.
        """
        rows: Any = block
        if isinstance(block, np.ndarray):
            rows = csr_array((len(block), 0), dtype=np.float32)
            dense = block
        if not isinstance(rows, csr_array) or rows.dtype != np.float32:
            rows = csr_array(rows, dtype=np.float32)
        if not rows.has_canonical_format:  # columns out of order, or twice in a row
            rows = rows.copy()
            rows.sum_duplicates()
        if rows.indices.dtype != np.int32 or rows.indptr.dtype != np.int64:
            # the arrays stay: only the types of indices are those of kernels, not one as scipy
            # wants
            rows = shallow_copy(rows)
            rows.indices, rows.indptr = (
                rows.indices.astype(np.int32, copy=False),
                rows.indptr.astype(np.int64),
            )
        if dense is None:
            dense = np.zeros((rows.shape[0], 0), np.float32)
        return cls(rows, np.ascontiguousarray(dense, np.float32))

    def __len__(self) -> int:
        return int(self.sparse.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of both blocks."""
        return len(self), sum(self.widths)

    @property
    def widths(self) -> tuple[int, int]:
        """Columns of the sparse block, and of the dense one."""
        return int(self.sparse.shape[1]), int(self.dense.shape[1])

    @property
    def nbytes(self) -> int:
        """Memory of both blocks."""
        rows = self.sparse
        return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes + self.dense.nbytes)

    def take(self, rows: NDArray[np.integer] | slice) -> Features:
        """Return some of the rows."""
        return Features.of(self.sparse[rows], self.dense[rows])


def prepared_rows(rows: csr_array, normalise: bool) -> csr_array:
    """Return ready-made sparse features in the layout of kernels, each row scaled to length 1 if
    ``normalise``.

    A row of zeros stays one. ``rows`` are left as they are; of a matrix in canonical form only the
    values are copied."""
    block = Features.of(rows).sparse
    if not normalise:
        return block
    scaled = shallow_copy(block)  # indices are shared
    scaled.data = block.data.copy()
    unit_rows(scaled.indptr, scaled.data, np.zeros((scaled.shape[0], 0), np.float32))
    return scaled


def join_blocks(
    rows: csr_array,
    vectors: NDArray[np.float32] | None,
    weight: float = 1.0,
    *,
    in_place: bool = False,
) -> Features:
    """Return sparse rows as they are and, beside them, ``vectors`` with each row scaled to length
    ``weight``.

    Args:
        rows: the sparse block.
        vectors: the dense block; None: there is none.
        weight: the length of its rows.
        in_place: whether ``vectors`` may be overwritten, so that there is no second copy of them.
    """
    if vectors is None:
        return Features.of(rows)
    return Features.of(rows, unit_vectors(vectors, weight, in_place=in_place))


def unit_vectors(
    vectors: NDArray[np.float32], length: float = 1.0, *, in_place: bool = False
) -> NDArray[np.float32]:
    """Return the rows of a dense block scaled to ``length``; a row of zeros stays one.

    Some rows at a time, so that nothing else of the size of the block is in memory, and not even a
    result of that size where ``vectors`` may be overwritten."""
    unit = vectors if in_place and vectors.flags.writeable else np.empty_like(vectors)
    for first in range(0, len(vectors), _ROWS):
        block = vectors[first : first + _ROWS]
        scaled = unit[first : first + _ROWS]
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        np.divide(block, norms, out=scaled, where=norms > 0)
        scaled[~(norms[:, 0] > 0)] = 0
        if length != 1:
            scaled *= vectors.dtype.type(length)
    return unit
