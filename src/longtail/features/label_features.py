"""What labels look like: the documents that bear them (PIFA), also those of related labels, their
own text, the labels that they share documents with, or two of these.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of
from longtail.features.matrix import Features
from longtail.kernels import pool
from longtail.kernels.feature_rows import FeatureRows
from longtail.kernels.sparse import group_sums, unit_rows
from longtail.kernels.walks import WeightedMembers, keep_largest, weighted_sums

__all__ = ["label_features"]

Kind = Literal["pifa", "text", "pifa+text", "graph", "graph+text", "output", "joint"]
Array = NDArray[Any]
_Task = Callable[[tuple[int, int]], tuple[Array, Array, Array, Array]]
_WORK = 1 << 20  # numbers added up in one task


def label_features(
    features: Features,
    label_matrix: sparse.csr_array,
    kind: Kind,
    texts: Features | None = None,
    graph: sparse.csr_array | None = None,
    keep: int = 1000,
) -> Features:
    """Return a row for each label, l2-normalised, in the columns of the documents' ``features``
    unless another width is named.

    "pifa" (positive instance feature aggregation, PECOS; the input space of Bonsai): the sum of its
    documents' features, each times its relevance where that is below 1; a label without documents
    takes the features of its text, if ``texts`` has any. "graph" (CascadeXML): ``graph``, the
    normalised label graph of shape (n_labels, n_labels), times these, of which the ``keep`` largest
    of a row count, before and after. "text": the label's text alone. "pifa+text", "graph+text":
    both, each normalised, side by side, in twice the columns. "output" (Bonsai): its row of YᵀY for
    the label matrix Y, in a column per label. "joint" (Bonsai): "pifa" and "output", each
    normalised, side by side. A label without any of these has an empty row."""
    with_graph = kind.startswith("graph")
    with_text = kind.endswith("text")
    if with_text and texts is None:
        raise ValueError(f"label features {kind!r}: found no features of label texts")
    if with_graph and graph is None:
        raise ValueError(f"label features {kind!r}: found no label graph")
    if texts is not None and texts.shape[1] != features.shape[1]:
        raise ValueError(
            f"features of label texts: found {texts.shape[1]} columns; expected {features.shape[1]}"
        )
    of_texts = None
    if texts is not None:
        of_texts = _normalised(texts)
    if kind == "text" and of_texts is not None:
        return of_texts
    if kind == "output":
        return _shared_documents(label_matrix)
    sums = _sums(features, label_matrix, keep if with_graph else features.sparse.shape[1])
    if of_texts is not None and not with_text:
        sums = _filled(sums, of_texts)
    if with_graph and graph is not None:
        sums = _weighted(sums, graph, keep, keep)
    if with_text and of_texts is not None:
        return _beside(sums, of_texts)
    if kind == "joint":
        return _beside(sums, _shared_documents(label_matrix))
    return sums


def _shared_documents(label_matrix: sparse.csr_array) -> Features:
    """Return Yᵀ Y, rows normalised; a relevance above 1 counts as 1."""
    labels = label_matrix.astype(np.float32)
    labels.eliminate_zeros()
    labels.data = np.minimum(labels.data, 1)
    return _sums(Features.of(labels), label_matrix, labels.shape[1])


def _sums(features: Features, label_matrix: sparse.csr_array, keep: int) -> Features:
    """Return Yᵀ Φ, rows normalised, then the ``keep`` largest of each."""
    rows = features.sparse
    by_label = sparse.csc_array(label_matrix)
    by_label.eliminate_zeros()
    if (by_label.data < 1).any():
        by_label.data = np.minimum(by_label.data, 1)
        return _weighted(features, sparse.csr_array(by_label.T), rows.shape[1], keep)
    groups = by_label.indptr.astype(np.int64)
    members = by_label.indices.astype(np.int32)
    work = _work(groups, members, features)
    width = rows.shape[1]

    def task(block: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
        first, last = block
        ends = groups[first : last + 1]
        bound = int(np.minimum(np.diff(work[first : last + 1]), width).sum())
        sums = group_sums(
            ends, members, rows.indptr, rows.indices, rows.data, features.dense, width, bound
        )
        ptr, columns, values, dense = sums
        unit_rows(ptr, values, dense)
        filled = len(columns)
        if keep < width:
            filled = keep_largest(ptr, columns, values, keep)
        return ptr, columns[:filled], values[:filled], dense

    return _in_blocks(task, work, min(keep, width), features)


def _weighted(rows: Features, weights: sparse.csr_array, first: int, keep: int) -> Features:
    """Return weights @ rows: the ``first`` largest of each, normalised, and of these the ``keep``
    largest.

    The weights are a label graph, or relevances of documents that have a label by less than 1.
    """
    ptr = weights.indptr.astype(np.int64)
    members = weights.indices.astype(np.int32, copy=False)
    values = weights.data.astype(np.float32, copy=False)
    block = rows.sparse
    block_rows = FeatureRows(block.indptr, block.indices, block.data, rows.dense, block.shape[1])

    def task(part: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
        part_members = WeightedMembers(ptr[part[0] : part[1] + 1], members, values)
        out_ptr, columns, out, dense = weighted_sums(part_members, block_rows, first)
        unit_rows(out_ptr, out, dense)
        filled = len(columns)
        if keep < first:
            filled = keep_largest(out_ptr, columns, out, keep)
        return out_ptr, columns[:filled], out[:filled], dense

    return _in_blocks(task, _work(ptr, members, rows), min(keep, block.shape[1]), rows)


def _work(groups: Array, members: Array, features: Features) -> Array:
    """Return how many numbers are added up before each group and, last, in all."""
    of_row = np.diff(features.sparse.indptr) + features.dense.shape[1]
    total: Array = np.concatenate([[0], np.cumsum(of_row[members])])[groups]
    return total


def _in_blocks(task: _Task, work: Array, most: int, features: Features) -> Features:
    """Return what ``task`` makes of blocks of labels of about the same work: at most ``most``
    numbers a sparse row.
    """
    n_labels = len(work) - 1
    (width, dense_width) = features.widths
    cuts = np.unique([0, *np.searchsorted(work, np.arange(_WORK, work[-1], _WORK)), n_labels])
    bound = int(np.minimum(np.diff(work), most).sum())
    columns = np.empty(bound, np.int32)
    values = np.empty(bound, np.float32)
    ptr = np.zeros(n_labels + 1, np.int64)
    dense = np.zeros((n_labels, dense_width), np.float32)
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
    rows = features.sparse.copy()
    dense = features.dense.copy()
    copy = Features.of(rows, dense)
    unit_rows(copy.sparse.indptr, copy.sparse.data, copy.dense)
    return copy


def _filled(sums: Features, texts: Features) -> Features:
    """Return ``sums`` with the rows that are empty taken from ``texts``."""
    empty = (np.diff(sums.sparse.indptr) == 0) & ~sums.dense.any(axis=1)
    if not empty.any():
        return sums
    keep = sparse.dia_array((empty.astype(np.float32)[None], [0]), shape=(len(empty), len(empty)))
    return Features.of(sums.sparse + keep @ texts.sparse, sums.dense + texts.dense * empty[:, None])


def _beside(first: Features, second: Features) -> Features:
    both = Features.of(
        sparse.hstack([first.sparse, second.sparse], "csr"),
        np.hstack([first.dense, second.dense]),
    )
    return _normalised(both)
