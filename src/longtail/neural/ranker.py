"""A trained network behind the face of every ranker: texts in, ranked labels and vectors out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from longtail import progress
from longtail.data.csr import csr_of
from longtail.data.strings import Strings
from longtail.features.tokens import Tokeniser, Tokens
from longtail.neural.batches import Batch, Batches
from longtail.neural.cascade import CascadeXML
from longtail.neural.device import arithmetic, computes_in_half, own_threads
from longtail.neural.graphs import LARGEST_BATCH, RankGraphs
from longtail.tree.tree import LabelTree

__all__ = ["NeuralRanker"]

T = TypeVar("T")

_BATCH = {"cuda": 512, "cpu": 32}  # documents at a time


class NeuralRanker:
    """Tokeniser, network and label tree; scores are σ of labels, or products with σ of the nodes above."""

    def __init__(self, tokeniser: Tokeniser, network: CascadeXML, tree: LabelTree) -> None:
        self.tokeniser, self.network, self.tree = tokeniser, network, tree
        self._ranking = network  # what ranks: the network itself, or once it is frozen its copy in bfloat16
        self._graphs: RankGraphs | None = None

    def freeze(self) -> NeuralRanker:
        """Make the network ready for ranking alone: no optimiser, and on a GPU bfloat16 and recorded kernels."""
        self.network.eval()
        for head in self.network.heads:
            head.settle()
        if self.device.type == "cuda":
            if computes_in_half(self._precision, self.device):
                self._ranking = self.network.in_half()
            pad_left = self.tokeniser.pad_left
            self._graphs = RankGraphs(self._ranking.rank, self.device, self.tokeniser.max_tokens, pad_left)
        return self

    @property
    def n_parameters(self) -> int:
        """Numbers that were trained."""
        return sum(p.numel() for p in self.network.parameters()) + sum(h.weight.numel() for h in self.network.heads)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    @property
    def n_labels(self) -> int:
        """Labels of the tree."""
        return self.tree.n_labels

    @property
    def width(self) -> int:
        """Columns of the vectors of documents."""
        return self.network.encoder.width

    def search(
        self, texts: Strings | Iterable[str] | Tokens, k: int, exclude: sparse.csr_array | None = None
    ) -> tuple[sparse.csr_array, NDArray[np.float32]]:
        """Return (n, L) scores of the ``k`` best labels, best first, and (n, d) vectors of the documents."""
        tokens = texts if isinstance(texts, Tokens) else self.tokeniser(texts)
        spare = 0 if exclude is None else int(np.diff(exclude.indptr).max(initial=0))
        wanted = min(k + spare, self.network.slots[-1], self.tree.n_labels)
        if self._graphs is not None and 0 < len(tokens) <= LARGEST_BATCH:
            with torch.inference_mode():
                scores, nodes, vectors = self._graphs(*tokens.padded(np.arange(len(tokens))), wanted)
            return self._matrix(scores, nodes, k, exclude), vectors
        scores = np.zeros((len(tokens), wanted), np.float32)
        nodes = np.full((len(tokens), wanted), -1, np.int32)
        vectors = np.zeros((len(tokens), self.width), np.float32)
        for rows, ranked in self._each(tokens, lambda batch: self._ranking.rank(batch.ids, batch.mask, wanted)):
            scores[rows], nodes[rows] = ranked.scores.float().cpu(), ranked.nodes.cpu()
            vectors[rows] = ranked.vectors.float().cpu()
        return self._matrix(scores, nodes, k, exclude), vectors

    def label_weights(self) -> NDArray[np.float32]:
        """Return (L, d) the classifiers of the labels, without their biases."""
        weights: NDArray[np.float32] = self.network.heads[-1].weight.float().cpu().numpy()
        return weights[self.tree.positions]

    def embed(self, texts: Strings | Iterable[str] | Tokens) -> NDArray[np.float32]:
        """Return (n, d) vectors of the documents, those that the labels' classifiers read (Φ_dnn)."""
        return self.level_vectors(texts if isinstance(texts, Tokens) else self.tokeniser(texts))[-1]

    def level_vectors(self, tokens: Tokens, unit: str = "documents") -> list[NDArray[np.float32]]:
        """Return ϑ^(t) of each level, (n, d); ``unit`` is what progress calls the texts."""
        levels = [np.zeros((len(tokens), self.width), np.float32) for _ in self.network.heads]
        for rows, theta in self._each(tokens, lambda batch: self._ranking.vectors(batch.ids, batch.mask), unit):
            for level, vectors in zip(levels, theta, strict=True):
                level[rows] = vectors.float().cpu()
        return levels

    def shortlist_recall(self, tokens: Tokens, label_matrix: sparse.csr_array) -> list[float]:
        """Return the share of true labels that lie below the nodes kept on each level (table 11 of CascadeXML)."""
        truth = self.tree.coarsen(label_matrix.astype(bool).astype(np.float32))
        found = np.zeros(self.tree.n_levels - 1)
        for rows, ranked in self._each(tokens, lambda batch: self._ranking.rank(batch.ids, batch.mask, 1)):
            for level, kept in enumerate(ranked.kept):
                own, nodes = truth[level][rows], kept.cpu().numpy()
                known = nodes >= 0
                ends = np.concatenate([[0], np.cumsum(known.sum(1))])
                below = csr_of(np.ones(int(known.sum()), np.float32), nodes[known], ends, own.shape[1])
                found[level] += own.multiply(below).sum()
        recalls: list[float] = (found / max(label_matrix.nnz, 1)).tolist()
        return recalls

    def _each(
        self, tokens: Tokens, run: Callable[[Batch], T], unit: str = "documents"
    ) -> Iterator[tuple[NDArray[np.int64], T]]:
        """Yield the rows of each batch and what ``run`` gives for it, in the arithmetic and state of inference."""
        was_training, device = self.network.training, self.device
        size = _BATCH[device.type]
        self.network.eval()
        try:
            with progress.stage("vectors", len(tokens), unit), own_threads():
                for batch in Batches.in_order(tokens, size):
                    with torch.inference_mode(), self._arithmetic():
                        result = run(batch.to(device))
                    yield batch.rows, result
                    progress.advance(len(batch.rows))
        finally:
            self.network.train(was_training)

    @property
    def _precision(self) -> str:
        return self.network.training_settings.precision

    def _arithmetic(self) -> AbstractContextManager[object]:
        return arithmetic(self._precision, self.device) if self._ranking is self.network else nullcontext()

    def _matrix(
        self, scores: NDArray[np.float32], nodes: NDArray[np.int32], k: int, exclude: sparse.csr_array | None
    ) -> sparse.csr_array:
        """Return the (n, L) matrix of labels from (n, wanted) scores and positions, best first."""
        labels = self.tree.order[np.maximum(nodes, 0)]
        known = nodes >= 0
        if exclude is not None:
            rows = np.repeat(np.arange(len(nodes), dtype=np.int64), np.diff(exclude.indptr))
            banned = rows * self.tree.n_labels + exclude.indices
            known &= ~np.isin(np.arange(len(nodes))[:, None] * self.tree.n_labels + labels, banned)
            known &= np.cumsum(known, 1) <= k
        ends = np.concatenate([[0], np.cumsum(known.sum(1))])
        return csr_of(scores[known], labels[known], ends, self.tree.n_labels)
