"""The label correlation graph: labels that random walks over shared documents lead to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import csr_of
from longtail.data.labels import Labels
from longtail.kernels import pool
from longtail.kernels.feature_rows import Incidence
from longtail.kernels.walks import WalkSettings, walk_counts
from longtail.reporting import advance, stage

__all__ = ["Neighbour", "label_graph", "neighbours", "normalised"]

Array = NDArray[Any]
_BLOCK = 2048  # labels a task


def label_graph(
    label_matrix: sparse.csr_array,
    *,
    seed: int,
    steps: int = 400,
    reset: float = 0.8,
    keep: int = 10,
    max_documents: int = 500,
) -> sparse.csr_array:
    """Return G, csr of shape (n_labels, n_labels): how often the walk from each label met which
    labels.

    ``steps`` steps, back at the start after each with probability ``reset``. A row has the ``keep``
    labels that were
    met most and, besides, always its own: with its count, or 1 where it was never met. Labels with
    more than ``max_documents`` documents (0: any number) take no part: no walk enters them, and
    they have only themselves."""
    pairs = sparse.csr_array(label_matrix.astype(bool))
    pairs.sum_duplicates()
    counts = np.bincount(pairs.indices[pairs.data], minlength=pairs.shape[1])
    pairs.data &= (counts <= (max_documents or pairs.shape[0]))[pairs.indices]
    pairs.eliminate_zeros()
    by_label = pairs.tocsc()
    sides = [
        (side.indptr.astype(np.int64), side.indices.astype(np.int32)) for side in (by_label, pairs)
    ]
    incidence = Incidence(*(array for side in sides for array in side))
    settings = WalkSettings(steps, reset, keep)

    def walk(block: tuple[int, int]) -> tuple[Array, Array, Array]:
        met: tuple[Array, Array, Array] = walk_counts(*block, incidence, settings, seed)
        return met

    n_labels = int(pairs.shape[1])
    ends = [np.zeros(1, np.int64)]
    columns = [np.empty(0, np.int32)]
    values = [np.empty(0, np.float32)]
    with stage("label graph", n_labels, "labels"):
        for block_ends, block_columns, block_values in pool.run(
            walk, pool.row_blocks(n_labels, _BLOCK)
        ):
            ends.append(block_ends[1:] + ends[-1][-1])
            columns.append(block_columns)
            values.append(block_values)
            advance(len(block_ends) - 1)
    return csr_of(np.concatenate(values), np.concatenate(columns), np.concatenate(ends), n_labels)


def normalised(graph: sparse.csr_array) -> sparse.csr_array:
    """Return D_r^-1/2 G D_c^-1/2, D_r and D_c being the sums of the rows and columns of G, all
    above 0.
    """
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    of_row = np.bincount(rows, graph.data, graph.shape[0])
    of_column = np.bincount(graph.indices, graph.data, graph.shape[1])
    values = graph.data / np.sqrt(of_row[rows] * of_column[graph.indices])
    return csr_of(values.astype(np.float32), graph.indices, graph.indptr, graph.shape[1])


class Neighbour(NamedTuple):
    """A label that walks from another one met."""

    id: str
    name: str
    value: float  # in the normalised graph, 0 to 1


def neighbours(graph: sparse.csr_array, labels: Labels, label: str, k: int = 10) -> list[Neighbour]:
    """Return the ``k`` nearest neighbours of a label, given by id or name, in the normalised graph;
    nearest first.
    """
    at = labels.find(label)
    row = slice(int(graph.indptr[at]), int(graph.indptr[at + 1]))
    columns = graph.indices[row]
    values = graph.data[row]
    columns, values = columns[columns != at], values[columns != at]
    order = np.lexsort((columns, -values))[:k]
    return [
        Neighbour(labels.ids[column], labels.name(column), float(value))
        for column, value in zip(columns[order].tolist(), values[order], strict=True)
    ]
