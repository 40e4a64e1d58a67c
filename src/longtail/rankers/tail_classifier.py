"""The generative classifiers of rare labels: a label is near where its centroid is (Jain et al.
2016, section 4.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.features.label_features import label_features
from longtail.features.matrix import Features
from longtail.kernels.sparse import unit_rows

__all__ = ["fit_tail", "no_tail"]

_SMALL = 0.01  # centroids have length one


def fit_tail(features: Features, label_matrix: sparse.csr_array) -> dict[str, NDArray[Any]]:
    """Return the mean direction of each label's documents, of length one before entries below 0.01
    are dropped.

    The arrays are those of a CSR matrix (n_labels, columns of both blocks), and the squared lengths
    of its rows."""
    values = features.sparse.data.copy()
    dense = features.dense.copy()
    # a document counts by its direction, as in a search
    unit_rows(features.sparse.indptr, values, dense)
    rows = features.sparse
    alike = Features.of(
        sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape), dense
    )
    means = label_features(alike, label_matrix, "pifa")
    block = sparse.csr_array(
        sparse.hstack([sparse.csr_array(means.dense), means.sparse], format="csr")
    )
    block.data[np.abs(block.data) < _SMALL] = 0
    block.eliminate_zeros()
    squares = block.multiply(block).sum(axis=1)
    return {
        "ptr": block.indptr.astype(np.int64),
        "columns": block.indices.astype(np.int32),
        "values": block.data.astype(np.float32),
        "squares": np.asarray(squares, np.float32).ravel(),
    }


def no_tail(n_labels: int) -> dict[str, NDArray[Any]]:
    """Return centroids without entries, for trees that rank by themselves."""
    return {
        "ptr": np.zeros(n_labels + 1, np.int64),
        "columns": np.zeros(0, np.int32),
        "values": np.zeros(0, np.float32),
        "squares": np.zeros(n_labels, np.float32),
    }
