"""What labels look like: the documents that bear them (PIFA), their own text, or both."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.sparse import group_sums, unit_rows

__all__ = ["label_features"]

Kind = Literal["pifa", "text", "pifa+text"]
Array = NDArray[Any]
_WORK = 1 << 20  # numbers added up in one task


def label_features(
    features: Features, label_matrix: sparse.csr_array, kind: Kind, texts: Features | None = None
) -> Features:
    """Return a row for each label, l2-normalised, in the columns of the documents' ``features``.

    "pifa" (positive instance feature aggregation, PECOS): the sum of its documents' features; a label without
    documents takes the features of its text, if ``texts`` has any. "text": these alone. "pifa+text": both, each
    normalised, side by side, in twice the columns. A label without either has an empty row.
    """
    if kind != "pifa" and texts is None:
        raise ValueError(f"label features {kind!r}: found no features of label texts")
    if texts is not None and texts.shape[1] != features.shape[1]:
        raise ValueError(f"features of label texts: found {texts.shape[1]} columns; expected {features.shape[1]}")
    own = None if texts is None else _normalised(texts)
    if kind == "text" and own is not None:
        return own
    sums = _sums(features, label_matrix)
    if own is None:
        return sums
    return _beside(sums, own) if kind == "pifa+text" else _filled(sums, own)


def _sums(features: Features, label_matrix: sparse.csr_array) -> Features:
    """Return Yᵀ Φ, rows normalised, one task a block of labels that is about the same work."""
    rows, by_label = features.sparse, sparse.csc_array(label_matrix.astype(bool))
    by_label.eliminate_zeros()
    groups, members = by_label.indptr.astype(np.int64), by_label.indices.astype(np.int32)
    work = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[members] + features.dense.shape[1])])[groups]
    n_labels, width = len(groups) - 1, rows.shape[1]
    most = np.minimum(np.diff(work), width)
    cuts = np.unique([0, *np.searchsorted(work, np.arange(_WORK, work[-1], _WORK)), n_labels])

    def task(block: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
        first, last = block
        own = groups[first : last + 1]
        bound = int(most[first:last].sum())
        sums = group_sums(own, members, rows.indptr, rows.indices, rows.data, features.dense, width, bound)
        unit_rows(sums[0], sums[2], sums[3])
        ptr, columns, values, dense = sums
        return ptr, columns, values, dense

    columns, values = np.empty(int(most.sum()), np.int32), np.empty(int(most.sum()), np.float32)
    ptr, dense = np.zeros(n_labels + 1, np.int64), np.zeros((n_labels, features.dense.shape[1]), np.float32)
    filled = 0
    for (first, last), part in zip(pairwise(cuts), pool.run(task, pairwise(cuts)), strict=True):
        end = filled + len(part[1])
        ptr[first + 1 : last + 1] = part[0][1:] + filled
        columns[filled:end], values[filled:end], dense[first:last] = part[1:]
        filled = end
    # the bound was memory never touched; what is cut off was never paid for
    columns.resize(filled, refcheck=False)
    values.resize(filled, refcheck=False)
    return Features.of(csr_of(values, columns, ptr, width), dense)


def _normalised(features: Features) -> Features:
    rows, dense = features.sparse.copy(), features.dense.copy()
    copy = Features.of(rows, dense)
    unit_rows(copy.sparse.indptr, copy.sparse.data, copy.dense)
    return copy


def _filled(sums: Features, own: Features) -> Features:
    """Return ``sums`` with the rows that are empty taken from ``own``."""
    empty = (np.diff(sums.sparse.indptr) == 0) & ~sums.dense.any(axis=1)
    if not empty.any():
        return sums
    keep = sparse.dia_array((empty.astype(np.float32)[None], [0]), shape=(len(empty), len(empty)))
    return Features.of(sums.sparse + keep @ own.sparse, sums.dense + own.dense * empty[:, None])


def _beside(sums: Features, own: Features) -> Features:
    both = Features.of(sparse.hstack([sums.sparse, own.sparse], "csr"), np.hstack([sums.dense, own.dense]))
    return _normalised(both)
