"""One classifier a label, without a tree above them: DiSMEC and ProXML are settings of it.

Labels are solved in batches, each pruned and packed before the next, so that no matrix of features × labels exists:
L[w_l] = ½‖w_l‖² + C Σ_i max(0, 1 − y_il w_l·x_i)² (eq. 7 of CascadeXML's appendix, C = 1/2λ) has nothing to do with
other labels. Negatives are all documents, or those that a label's centroid attracts (``hard_negatives``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import progress
from longtail.config import Ranker
from longtail.features.label_features import label_features
from longtail.features.matrix import Features
from longtail.kernels.node_training import GroupDocuments, Positives
from longtail.kernels.sibling_blocks import BLOCK
from longtail.linear.shared_documents import SharedDocuments
from longtail.linear.spans import Spans, positives_of, train_chunks
from longtail.search.beam import shortlist
from longtail.search.chunks import Chunks, Part, WeightType
from longtail.tree.tree import LabelTree

__all__ = ["BATCH", "LabelHints", "LabelProblems", "batch_offsets", "join_batches", "label_batches", "nearest_labels"]

BATCH = 1024  # labels that are solved, kept for resuming, and read in search as one
_SPAN = 128  # labels of one task, solved by frequency
_CENTROID_WEIGHT = 0.05  # of a centroid of length 1: smaller ones attract no document by themselves


class LabelHints(NamedTuple):
    """What another model knows of labels, in columns and rows of labels."""

    candidates: sparse.csr_array | None = None  # (n, L) has an entry where a document is a hard negative of a label
    start: NDArray[np.float32] | None = None  # (L, e) first weights of the dense block

    def ordered(self, tree: LabelTree) -> LabelHints:
        """Return the same in the order of the tree's labels."""
        candidates = None if self.candidates is None else tree.coarsen(self.candidates)[-1]
        return LabelHints(candidates, None if self.start is None else self.start[tree.order])


_NO_HINTS = LabelHints()


@dataclass(frozen=True)
class LabelProblems:
    """The problems of all labels: what is common to their batches."""

    features: Features
    positives: Positives
    documents: GroupDocuments  # of each block of 16 labels, or one group of all
    ranker: Ranker
    seed: int
    start: NDArray[np.float32] | None = None  # (L, e) first weights of the dense block
    shared: SharedDocuments = field(default_factory=partial(SharedDocuments, keep=True))  # by all batches

    @classmethod
    def of(
        cls,
        features: Features,
        label_matrix: sparse.csr_array,
        ranker: Ranker,
        seed: int,
        hints: LabelHints = _NO_HINTS,
    ) -> LabelProblems:
        """Take the label matrix, and hints, in the order of the (flat) tree.

        Where the settings ask for hard negatives and none are given, those nearest by centroid are taken.
        """
        candidates = hints.candidates
        if ranker.hard_negatives and candidates is None:
            candidates = nearest_labels(features, label_matrix, ranker.hard_negatives)
        n = len(features)
        documents = GroupDocuments(np.array([0, n], np.int64), np.arange(n, dtype=np.int32))
        if ranker.hard_negatives and candidates is not None:
            documents = _of_blocks(label_matrix, candidates, seed)
        return cls(features, positives_of(label_matrix, ranker), documents, ranker, seed, hints.start)

    @property
    def n_labels(self) -> int:
        """Labels to be solved."""
        return len(self.positives.pointers) - 1

    def solve(self, batch: tuple[int, int]) -> Chunks:
        """Return the weights of a batch of :func:`label_batches`: labels from the first to before the last."""
        first, last = batch
        offsets = np.array([0, last - first])
        with progress.stage(f"labels {first + 1:,} to {last:,}", total=last - first, unit="labels"):
            common = self.documents, self.positives, self.ranker, self.seed, self.start, self.shared
            parts = train_chunks(self.features, self._spans(first, last), *common)
            return Chunks.build(offsets, parts, *self.features.widths, _batch_type(self.ranker))

    def _spans(self, first: int, last: int) -> Spans:
        if len(self.documents.pointers) == 2:
            return Spans.of([(0, start, min(start + _SPAN, last), 0) for start in range(first, last, _SPAN)])
        return Spans.of([(start // BLOCK, start, min(start + BLOCK, last), 0) for start in range(first, last, BLOCK)])


def label_batches(n_labels: int) -> list[tuple[int, int]]:
    """Return the first and the last (exclusive) label of each batch; fixed by the number of labels alone."""
    return [(first, min(first + BATCH, n_labels)) for first in range(0, n_labels, BATCH)]


def batch_offsets(n_labels: int) -> NDArray[np.int64]:
    """Return the first label of each batch, and the end."""
    return np.array([0, *(last for _, last in label_batches(n_labels))], np.int64)


def join_batches(batches: Sequence[Chunks], ranker: Ranker) -> Chunks:
    """Return the weights of all labels, one chunk a batch."""
    return Chunks.joined(batches).astype(ranker.weights)


def _batch_type(ranker: Ranker) -> WeightType:
    return "float16" if ranker.weights == "int8" else ranker.weights  # codes are chosen for all labels together


def nearest_labels(features: Features, label_matrix: sparse.csr_array, count: int) -> sparse.csr_array:
    """Return (n, L) scores of the ``count`` labels of each document whose centroids (PIFA) are nearest."""
    centroids = label_features(features, label_matrix, "pifa")
    n_labels = label_matrix.shape[1]
    by_column = centroids.sparse.copy()
    by_column.data[np.abs(by_column.data) < _CENTROID_WEIGHT] = 0
    by_column.eliminate_zeros()
    batches = label_batches(n_labels)
    parts = (_part(by_column[first:last], centroids.dense[first:last]) for first, last in batches)
    weights = Chunks.build(batch_offsets(n_labels), parts, *features.widths, "float16")
    flat = LabelTree(np.arange(n_labels, dtype=np.int32), ())
    return shortlist(features, flat, [weights], beam_size=count, score="sigmoid", bias=0.0)


def _part(rows: sparse.csr_array, dense: NDArray[np.float32]) -> Part:
    columns = rows.tocsc()
    counts = np.diff(columns.indptr)
    filled = np.flatnonzero(counts)
    return Part(filled, np.concatenate([[0], np.cumsum(counts[filled])]), columns.indices, columns.data, dense)


def _of_blocks(label_matrix: sparse.csr_array, candidates: sparse.csr_array, seed: int) -> GroupDocuments:
    """Return the documents of each block of labels: those of its labels, their hard negatives, and as many by chance.

    Without the last, a label would know nothing of documents far from it, and could score anything there.
    """
    n_blocks = -(-label_matrix.shape[1] // BLOCK)
    own, hard = (matrix.tocoo() for matrix in (label_matrix, candidates))
    chance = np.random.default_rng(seed).integers(0, n_blocks, hard.nnz)
    rows, blocks = np.concatenate([own.row, hard.row, hard.row]), np.concatenate([own.col, hard.col, chance * BLOCK])
    blocks //= BLOCK
    shape = (label_matrix.shape[0], n_blocks)
    by_block = sparse.csc_array((np.ones(len(rows), np.float32), (rows, blocks)), shape=shape)
    by_block.sum_duplicates()
    return GroupDocuments(by_block.indptr.astype(np.int64), by_block.indices.astype(np.int32))
