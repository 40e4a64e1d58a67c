"""One classifier a label, without a tree above them: DiSMEC and ProXML are settings of it.

Labels are solved in batches, each pruned and packed before the next, so that no matrix of features
× labels exists: L[w_l] = ½‖w_l‖² + C Σ_i max(0, 1 − y_il w_l·x_i)² (eq. 7 of CascadeXML's appendix,
C = 1/2λ) has nothing to do with other labels. Negatives are all documents, or those that a label's
centroid attracts (``hard_negatives``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail import reporting
from longtail.config import Config, Ranker
from longtail.features.label_features import label_features
from longtail.features.matrix import Features
from longtail.kernels.node_training import GroupDocuments, Positives
from longtail.kernels.sibling_blocks import BLOCK
from longtail.rankers.base import LabelHints
from longtail.rankers.shared_documents import SharedDocuments
from longtail.rankers.spans import Spans, positives_of, train_chunks
from longtail.search.beam import shortlist
from longtail.search.chunks import Chunks, Part, WeightType
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.forecast.sizes import DataSizes
    from longtail.forecast.text import TextForecast

__all__ = [
    "BATCH",
    "LabelProblems",
    "batch_offsets",
    "join_batches",
    "label_batches",
    "nearest_labels",
    "one_vs_all_seconds",
    "one_vs_all_weights",
]

BATCH = 1024  # labels that are solved, kept for resuming, and read in search as one
_SPAN = 128  # labels of one task, solved by frequency
_NEWTON_SECONDS = 8e-9  # per label, document, and number of it with 10 more; a dense one is a tenth
_PROXIMAL_SECONDS_PER_LABEL = 1e-3
_PROXIMAL_SECONDS_PER_PAIR = 4e-4  # a pair of a label and a document
_PROXIMAL_WEIGHTS = 3.0  # per pair
_CENTROID_WEIGHT = 0.05  # of a centroid of length 1: smaller ones attract no document by themselves


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
    # by all batches
    shared: SharedDocuments = field(default_factory=partial(SharedDocuments, keep=True))

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

        Where the settings ask for hard negatives and none are given, those nearest by centroid are
        taken."""
        candidates = hints.candidates
        if ranker.hard_negatives and candidates is None:
            candidates = nearest_labels(features, label_matrix, ranker.hard_negatives)
        n = len(features)
        documents = GroupDocuments(np.array([0, n], np.int64), np.arange(n, dtype=np.int32))
        if ranker.hard_negatives and candidates is not None:
            documents = _of_blocks(label_matrix, candidates, seed)
        return cls(
            features, positives_of(label_matrix, ranker), documents, ranker, seed, hints.start
        )

    @property
    def n_labels(self) -> int:
        """Labels to be solved."""
        return len(self.positives.pointers) - 1

    def solve(self, batch: tuple[int, int]) -> Chunks:
        """Return the weights of a batch of :func:`label_batches`: labels from the first to before
        the last.
        """
        first, last = batch
        offsets = np.array([0, last - first])
        with reporting.stage(
            f"labels {first + 1:,} to {last:,}", total=last - first, unit="labels"
        ):
            common = self.documents, self.positives, self.ranker, self.seed, self.start, self.shared
            parts = train_chunks(self.features, self._spans(first, last), *common)
            return Chunks.build(offsets, parts, *self.features.widths, _batch_type(self.ranker))

    def _spans(self, first: int, last: int) -> Spans:
        if len(self.documents.pointers) == 2:
            return Spans.of(
                [(0, start, min(start + _SPAN, last), 0) for start in range(first, last, _SPAN)]
            )
        return Spans.of(
            [
                (start // BLOCK, start, min(start + BLOCK, last), 0)
                for start in range(first, last, BLOCK)
            ]
        )


def label_batches(n_labels: int) -> list[tuple[int, int]]:
    """Return the first and the last (exclusive) label of each batch; fixed by the number of labels
    alone.
    """
    return [(first, min(first + BATCH, n_labels)) for first in range(0, n_labels, BATCH)]


def batch_offsets(n_labels: int) -> NDArray[np.int64]:
    """Return the first label of each batch, and the end."""
    return np.array([0, *(last for _, last in label_batches(n_labels))], np.int64)


def join_batches(batches: Sequence[Chunks], ranker: Ranker) -> Chunks:
    """Return the weights of all labels, one chunk a batch."""
    return Chunks.joined(batches).astype(ranker.weights)


def _batch_type(ranker: Ranker) -> WeightType:
    # codes are chosen for all labels together
    if ranker.weights == "int8":
        return "float16"
    return ranker.weights


def nearest_labels(
    features: Features, label_matrix: sparse.csr_array, count: int
) -> sparse.csr_array:
    """Return (n, L) scores of the ``count`` labels of each document whose centroids (PIFA) are
    nearest.
    """
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
    return Part(
        filled,
        np.concatenate([[0], np.cumsum(counts[filled])]),
        columns.indices,
        columns.data,
        dense,
    )


def _of_blocks(
    label_matrix: sparse.csr_array, candidates: sparse.csr_array, seed: int
) -> GroupDocuments:
    """Return the documents of each block of labels: positives, hard negatives, and as many random
    negatives.

    Without the last, a label would see no documents far from it, and its scores there would be
    arbitrary."""
    n_blocks = -(-label_matrix.shape[1] // BLOCK)
    positive = label_matrix.tocoo()
    hard = candidates.tocoo()
    random_blocks = np.random.default_rng(seed).integers(0, n_blocks, hard.nnz)
    rows = np.concatenate([positive.row, hard.row, hard.row])
    blocks = np.concatenate([positive.col, hard.col, random_blocks * BLOCK])
    blocks //= BLOCK
    shape = (label_matrix.shape[0], n_blocks)
    by_block = sparse.csc_array((np.ones(len(rows), np.float32), (rows, blocks)), shape=shape)
    by_block.sum_duplicates()
    return GroupDocuments(by_block.indptr.astype(np.int64), by_block.indices.astype(np.int32))


def one_vs_all_seconds(
    sizes: DataSizes, text: TextForecast, config: Config, documents: float
) -> float | None:
    """Estimate the seconds of one core for one classifier per label, each on so many documents.

    None where the solver of label trees does it.
    """
    if config.ranker.solver == "newton":
        numbers = text.each + text.dense_width / 10 + 10
        return _NEWTON_SECONDS * documents * numbers * sizes.n_labels
    if config.ranker.solver == "proximal":
        return (
            _PROXIMAL_SECONDS_PER_LABEL * sizes.n_labels + _PROXIMAL_SECONDS_PER_PAIR * sizes.pairs
        )
    return None


def one_vs_all_weights(sizes: DataSizes, config: Config) -> float | None:
    """Estimate the weights that an L1 penalty leaves; None where pruning decides."""
    if config.ranker.solver == "proximal":
        return _PROXIMAL_WEIGHTS * sizes.pairs
    return None
