"""One learner of AnnexML (Tagami 2017): documents in parts, and in each part an embedding learned
from their labels.

Neighbours are documents with like sets of labels. A linear classifier a part is learned so that
neighbours share a part, then, in each part, a linear embedding in which neighbours have a high
cosine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Neighbours as Settings
from longtail.data.csr import csr_of, rows_fit
from longtail.errors import MissingExtra, ModelFolderError
from longtail.features.matrix import Features, unit_vectors
from longtail.kernels import pool
from longtail.kernels.feature_rows import Incidence
from longtail.kernels.neighbours import (
    EmbeddingSettings,
    PartSettings,
    SparseRows,
    label_neighbours,
    learn_embedding,
    learn_parts,
    nearest_rows,
)
from longtail.kernels.splitmix import random_bits

__all__ = ["IndexType", "Learner", "check_index", "document_graph", "fit_learner", "unit_block"]

IndexType = Literal["exact", "faiss"]
# entries of the inverted index that a document reads: AnnexML's published code has the same in the
# mean
_BUDGET = 5000
_SHRINK = 4.0  # L1 norm of the part classifiers, as published
_BLOCK = 4096  # documents of one task
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("part_ptr", "column_ptr", "document_ptr"), np.int64),
    **dict.fromkeys(("part_columns", "columns", "documents"), np.int32),
    **{"part_values": np.float32, "weights": np.float16, "embeddings": np.float16},
}


@dataclass(frozen=True, eq=False)
class Learner:
    """Arrays of K parts; what belongs to part p lies between p and p + 1 of the pointers. Part 0 is
    the largest.
    """

    part_ptr: NDArray[np.int64]  # (K + 1,)
    part_columns: NDArray[np.int32]  # the classifier of each part, sparse: columns, rising
    part_values: NDArray[np.float32]
    column_ptr: NDArray[np.int64]  # (K + 1,)
    columns: NDArray[np.int32]  # (M,) columns that a part's embedding knows, rising
    weights: NDArray[np.float16]  # (M, dimensions) V'
    document_ptr: NDArray[np.int64]  # (K + 1,)
    documents: NDArray[np.int32]  # (N,) rows in training, rising in each part
    embeddings: NDArray[np.float16]  # (N, dimensions) of length one

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], n_columns: int, n_documents: int
    ) -> Learner:
        """Take what ``fit_learner`` gave, checked; nothing is copied."""
        learner = cls(**{field.name: arrays[field.name] for field in fields(cls)})
        _check(learner, n_columns, n_documents)
        return learner

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def n_parts(self) -> int:
        """Parts that have documents, at least one."""
        return len(self.part_ptr) - 1

    def parts(self, rows: sparse.csr_array) -> NDArray[np.int64]:
        """Return the part with the highest score for each row; of equal ones, the larger part."""
        classifiers = csr_of(self.part_values, self.part_columns, self.part_ptr, rows.shape[1])
        chosen: NDArray[np.int64] = (rows @ classifiers.T).toarray().argmax(axis=1)
        return chosen

    def vectors(self, rows: sparse.csr_array, part: int) -> NDArray[np.float32]:
        """Return (n, dimensions) embeddings, of length one or, where no column is known, zero."""
        used, places = np.unique(rows.indices, return_inverse=True)
        vectors = csr_of(
            rows.data, places.astype(np.int32), rows.indptr, len(used)
        ) @ self.column_weights(used, part)
        return unit_vectors(vectors)

    def column_weights(self, columns: NDArray[np.int32], part: int) -> NDArray[np.float32]:
        """Return V' at these columns, zeros where the part does not know them."""
        first, last = self.column_ptr[part : part + 2]
        places = np.searchsorted(self.columns[first:last], columns) + first
        known = places < last
        known[known] = self.columns[places[known]] == columns[known]
        weights = np.zeros((len(columns), self.weights.shape[1]), np.float32)
        weights[known] = self.weights[places[known]]
        return weights

    def voters(
        self, rows: sparse.csr_array, count: int, index: IndexType
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the ``count`` nearest documents of each row in its part, −1 where there are no
        more; and cosines.
        """
        documents = np.full((rows.shape[0], count), -1, np.int32)
        cosines = np.zeros((rows.shape[0], count), np.float32)
        chosen = self.parts(rows)
        for part in np.unique(chosen).tolist():
            first, last = self.document_ptr[part : part + 2]
            members = np.flatnonzero(chosen == part)
            vectors = self.vectors(rows[members], part)
            members = members[vectors.any(axis=1)]
            vectors = vectors[vectors.any(axis=1)]
            most = min(count, int(last - first))
            near, products = _nearest(vectors, self.embeddings[first:last], most, index)
            documents[members, :most] = self.documents[first:last][near]
            cosines[members, :most] = products
        return documents, cosines


def document_graph(label_matrix: sparse.csr_array, keep: int, seed: int) -> NDArray[np.int32]:
    """Return the ``keep`` documents with the most similar sets of labels for each document, (n,
    keep); −1: no more.
    """
    by_label = label_matrix.tocsc()
    by_label.sort_indices()
    incidence = Incidence(*_pairs(by_label), *_pairs(label_matrix))

    def search(block: tuple[int, int]) -> NDArray[np.int32]:
        return label_neighbours(*block, incidence, keep, _BUDGET, seed)

    blocks = pool.row_blocks(label_matrix.shape[0], _BLOCK)
    return np.concatenate([np.empty((0, keep), np.int32), *pool.run(search, blocks)])


def _pairs(matrix: Any) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def unit_block(features: Features) -> sparse.csr_array:
    """Return both blocks as one sparse matrix, dense columns first, rows of length one, in arrays
    of its own.
    """
    rows: Any = features.sparse
    if features.dense.shape[1]:
        rows = sparse.hstack([sparse.csr_array(features.dense), features.sparse], format="csr")
    squares = np.add.reduceat(np.append(rows.data.astype(np.float64) ** 2, 0), rows.indptr[:-1])
    squares[np.diff(rows.indptr) == 0] = 1
    lengths = np.repeat(np.sqrt(squares), np.diff(rows.indptr))
    values = np.divide(rows.data, lengths, out=np.zeros(len(lengths)), where=lengths > 0).astype(
        np.float32
    )
    return csr_of(
        values, rows.indices.astype(np.int32), rows.indptr.astype(np.int64), rows.shape[1]
    )


def fit_learner(
    features: Features,
    label_matrix: sparse.csr_array,
    label_neighbours: NDArray[np.int32],
    settings: Settings,
    seed: int,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a :class:`Learner`, trained on one thread; ``label_neighbours`` is a
    ``document_graph``.
    """
    rows = unit_block(features)
    usable = (np.diff(rows.indptr) > 0) & (np.diff(label_matrix.indptr) > 0)
    classifiers = _classifiers(rows, usable, np.array(label_neighbours, np.int32), settings, seed)
    parts = (rows @ classifiers).argmax(axis=1)
    members = [np.flatnonzero((parts == part) & usable) for part in range(classifiers.shape[1])]
    trained = [
        _embedding(rows, label_matrix, part, settings, int(random_bits(seed, 2, at)))
        for at, part in enumerate(members)
    ]
    columns, weights, embeddings = (list(arrays) for arrays in zip(*trained, strict=True))
    by_part = sparse.csr_array(classifiers.T)
    learner = Learner(
        *(by_part.indptr.astype(np.int64), by_part.indices.astype(np.int32), by_part.data),
        *(_ends(columns), np.concatenate(columns), np.concatenate(weights)),
        *(_ends(members), np.concatenate(members).astype(np.int32), np.concatenate(embeddings)),
    )
    return learner.to_arrays()


def _classifiers(
    rows: sparse.csr_array,
    usable: NDArray[np.bool_],
    neighbours: NDArray[np.int32],
    settings: Settings,
    seed: int,
) -> NDArray[np.float32]:
    """Return (d, K) weights of the parts that documents go to, the largest first; K ≤ n /
    part_size, at least 1.
    """
    n_parts = max(rows.shape[0] // settings.part_size, 1)
    if n_parts == 1:
        return np.zeros((rows.shape[1], 1), np.float32)
    documents = SparseRows(rows.indptr.astype(np.int64), rows.indices, rows.data, rows.shape[1])
    part_settings = PartSettings(
        n_parts, settings.epochs, np.float32(settings.rate), np.float32(_SHRINK)
    )
    weights = learn_parts(documents, neighbours, part_settings, int(random_bits(seed, 1, 0)))
    counts = np.bincount((rows @ weights).argmax(axis=1)[usable], minlength=n_parts)
    by_size = np.argsort(-counts, kind="stable")
    return np.ascontiguousarray(weights[:, by_size[: max(np.count_nonzero(counts), 1)]])


def _embedding(
    rows: sparse.csr_array,
    label_matrix: sparse.csr_array,
    members: NDArray[np.int64],
    settings: Settings,
    seed: int,
) -> tuple[NDArray[np.int32], NDArray[np.float16], NDArray[np.float16]]:
    """Return the columns of a part, V' at them, and the embeddings of its documents."""
    member_rows = rows[members]
    columns, inverse = np.unique(member_rows.indices, return_inverse=True)
    positions = inverse.astype(np.int32)
    with pool.threads(1):  # this is a thread already
        graph = document_graph(label_matrix[members], settings.graph_neighbours, seed)
    embedding_settings = EmbeddingSettings(
        settings.dimensions,
        settings.negatives,
        settings.epochs,
        np.float32(settings.rate),
        float(settings.gamma),
    )
    documents = SparseRows(
        member_rows.indptr.astype(np.int64), positions, member_rows.data, len(columns)
    )
    weights = learn_embedding(documents, graph, embedding_settings, seed).astype(np.float16)
    known = csr_of(member_rows.data, positions, member_rows.indptr, len(columns))
    vectors = known @ weights.astype(np.float32)
    return columns.astype(np.int32), weights, unit_vectors(vectors).astype(np.float16)


def _ends(pieces: list[NDArray[Any]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, pieces)], dtype=np.int64)


def _nearest(
    vectors: NDArray[np.float32], embeddings: NDArray[np.float16], count: int, index: IndexType
) -> tuple[NDArray[np.integer], NDArray[np.float32]]:
    """Return the ``count`` nearest embeddings of each vector, best first, ties by number, and the
    products.
    """
    if index == "faiss" and len(vectors) and count:
        flat = _faiss().IndexFlatIP(embeddings.shape[1])
        flat.add(embeddings.astype(np.float32))
        products, rows = flat.search(vectors, count)
        order = np.lexsort((rows, -products), axis=1)
        rows = np.take_along_axis(rows, order, 1)
        products = np.take_along_axis(products, order, 1)
    else:  # on parts of this size also the faster one, and answers are the same everywhere
        # in two steps: both at once take far longer
        across = np.ascontiguousarray(embeddings.astype(np.float32).T)
        rows, products = nearest_rows(vectors, across, count)
    return rows, np.clip(products, -1, 1)


def check_index(index: IndexType) -> None:
    """Refuse an index that is not installed now, not after training."""
    if index == "faiss":
        _faiss()


def _faiss() -> Any:
    try:
        import faiss  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise MissingExtra("index = 'faiss'", "faiss") from None
    return faiss


def _check(learner: Learner, n_columns: int, n_documents: int) -> None:
    """Raise where an array does not fit the others: nothing that is read later may lie outside."""
    for name, array in learner.to_arrays().items():
        is_matrix = name in ("weights", "embeddings")
        if array.dtype != _TYPES[name] or array.ndim != 1 + is_matrix:
            raise ModelFolderError(
                f"neighbours: found {name} as {array.dtype}; expected {np.dtype(_TYPES[name])}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFolderError(f"neighbours: found {name} that are not finite; train again")
    for ptr, numbers, rows, limit in (
        (learner.part_ptr, learner.part_columns, learner.part_values, n_columns),
        (learner.column_ptr, learner.columns, learner.weights, n_columns),
        (learner.document_ptr, learner.documents, learner.embeddings, n_documents),
    ):
        fits = (
            len(ptr) == len(learner.part_ptr) >= 2
            and len(numbers) == len(rows)
            and rows_fit(ptr, numbers, limit)
        )
        if not fits or not _rising(ptr, numbers):
            raise ModelFolderError(
                f"neighbours: expected parts of rising numbers from 0 to {limit - 1}; train again"
            )
    if learner.weights.ndim != 2 or learner.weights.shape[1:] != learner.embeddings.shape[1:]:
        raise ModelFolderError(
            "neighbours: weights and embeddings differ in dimensions; train again"
        )


def _rising(ptr: NDArray[np.int64], numbers: NDArray[np.int32]) -> bool:
    """Return whether numbers rise within each part."""
    steps = np.diff(numbers.astype(np.int64)) > 0
    borders = ptr[1:-1]
    steps[borders[(borders > 0) & (borders < len(numbers))] - 1] = True
    return bool(steps.all())
