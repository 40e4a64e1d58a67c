"""A trained network behind the face of every ranker: texts in, ranked labels and vectors out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from longtail.config import Cascade
from longtail.data.csr import csr_of, csr_of_slots
from longtail.data.strings import Strings
from longtail.features.tokens import Tokeniser, Tokens
from longtail.neural.cascade import CascadeXML
from longtail.neural.embedder import Embedder
from longtail.neural.graphs import LARGEST_BATCH, Ranked
from longtail.neural.heads import Head
from longtail.neural.initial_rows import Rows
from longtail.neural.label_text import Combine, LabelText
from longtail.neural.text_head import TextHead
from longtail.tree.tree import LabelTree

__all__ = ["NeuralRanker", "no_words"]


class NeuralRanker(Embedder):
    """Tokeniser, network and label tree; scores are σ of labels, or products with σ of the nodes above.

    ``label_text`` has no labels: it composes classifiers of further ones, where words make those of labels.
    ``n_added`` labels, the last ones, are such.
    """

    network: CascadeXML
    tree: LabelTree
    label_text: LabelText | None = None
    n_added: int = 0

    def __init__(self, tokeniser: Tokeniser, network: CascadeXML, tree: LabelTree) -> None:
        super().__init__(tokeniser, network, network.training_settings.precision)
        self.tree = tree

    @property
    def n_labels(self) -> int:
        """Labels of the tree."""
        return self.tree.n_labels

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
        for rows, ranked in self._each(tokens, lambda batch: self._running.rank(batch.ids, batch.mask, wanted)):
            scores[rows], nodes[rows] = ranked.scores.float().cpu(), ranked.nodes.cpu()
            vectors[rows] = ranked.vectors.float().cpu()
        return self._matrix(scores, nodes, k, exclude), vectors

    def label_scores(self, texts: Strings | Iterable[str] | Tokens, label: int) -> NDArray[np.float64]:
        """Return the (n,) scores of one label, as :meth:`search` has them, also where it is not among the best."""
        tokens = texts if isinstance(texts, Tokens) else self.tokeniser(texts)
        path = self.tree.ancestors(label)
        scores = np.zeros(len(tokens))
        running = self._running
        for rows, own in self._each(tokens, lambda batch: running.path_scores(batch.ids, batch.mask, path), "texts"):
            scores[rows] = own.cpu()
        return scores

    def label_weights(self) -> NDArray[np.float32]:
        """Return (L, d) the classifiers of the labels, without their biases."""
        weights: NDArray[np.float32] = self.network.heads[-1].weight.float().cpu().numpy()
        return weights[self.tree.positions]

    def settle_label_text(self) -> None:
        """Turn classifiers that label words make into plain ones, and keep what makes them for labels to come."""
        own = self.network.heads[-1]
        if isinstance(own, TextHead):
            self.network.heads[-1] = own.as_head()  # type: ignore[index]
            self.label_text = _same_weights(own.text, no_words(own.text.embedding))

    def composed(self, words: sparse.csr_array) -> NDArray[np.float32]:
        """Return classifiers (n, d) of labels that were never trained on, made of their words (n, V)."""
        if self.label_text is None:
            raise ValueError("classifiers of new labels: found none that words make")
        rows: NDArray[np.float32] = self.label_text.new_rows(words).numpy(force=True)
        return rows

    def extended(self, tree: LabelTree, rows: Mapping[int, Rows], settings: Cascade) -> NeuralRanker:
        """Return a ranker of a tree with n labels more, the last ones; what does not change is shared with this one.

        ``rows`` are the new classifiers (n, d) and biases (n,) of each level that has a node a label.
        """
        old = self.network
        training = replace(old.training_settings, head_optimiser="sgd")  # no optimiser's state in memory
        network = CascadeXML(old.encoder, tree, settings, training, seed=0, device=self.device, std=0)
        network.merges = old.merges
        for level, head in enumerate(old.heads):
            own = _joined(head, rows[level], self.tree, tree) if level in rows else head
            network.heads[level] = own  # type: ignore[index]
        ranker = NeuralRanker(self.tokeniser, network, tree)
        ranker.label_text = self.label_text
        ranker.n_added = self.n_added + tree.n_labels - self.tree.n_labels
        return ranker.freeze()

    def shortlist_recall(self, tokens: Tokens, label_matrix: sparse.csr_array) -> list[float]:
        """Return the share of true labels that lie below the nodes kept on each level (table 11 of CascadeXML)."""
        truth = self.tree.coarsen(label_matrix.astype(bool).astype(np.float32))
        found = np.zeros(self.tree.n_levels - 1)
        for rows, ranked in self._each(tokens, lambda batch: self._running.rank(batch.ids, batch.mask, 1)):
            for level, kept in enumerate(ranked.kept):
                own, nodes = truth[level][rows], kept.cpu().numpy()
                below = csr_of_slots(np.ones(nodes.shape, np.float32), nodes, own.shape[1])
                found[level] += own.multiply(below).sum()
        recalls: list[float] = (found / max(label_matrix.nnz, 1)).tolist()
        return recalls

    def _ranked(self, ids: Tensor, mask: Tensor, k: int) -> Ranked:
        ranked: Ranked = self._running.rank(ids, mask, k) if k else super()._ranked(ids, mask, k)
        return ranked

    def _matrix(
        self, scores: NDArray[np.float32], nodes: NDArray[np.int32], k: int, exclude: sparse.csr_array | None
    ) -> sparse.csr_array:
        """Return the (n, L) matrix of labels from (n, wanted) scores and positions, best first."""
        labels = np.where(nodes >= 0, self.tree.order[np.maximum(nodes, 0)], np.int32(-1))
        if exclude is not None:
            rows = np.repeat(np.arange(len(nodes), dtype=np.int64), np.diff(exclude.indptr))
            banned = rows * self.tree.n_labels + exclude.indices
            kept = (labels >= 0) & ~np.isin(np.arange(len(nodes))[:, None] * self.tree.n_labels + labels, banned)
            labels[~kept | (np.cumsum(kept, 1) > k)] = -1
        return csr_of_slots(scores, labels, self.tree.n_labels)


def no_words(embedding: nn.Embedding) -> sparse.csr_array:
    """Return (0, V) words of no labels."""
    return csr_of(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(1, np.int64), embedding.num_embeddings)


def _same_weights(text: LabelText, words: sparse.csr_array) -> LabelText:
    """Return Φ_l, Φ_g and 𝒜 of ``text`` for the labels of other words (n, V)."""
    combine: Combine = "sum" if text.attention is None else "attention"
    alone = sparse.csr_array(sparse.eye_array(words.shape[0], dtype=np.float32))  # each its only neighbour
    same = LabelText(text.embedding, words, alone, text.parts, combine, seed=0).eval()
    same.start_from(text)
    return same


def _joined(head: Head | TextHead, new: Rows, before: LabelTree, after: LabelTree) -> Head:
    """Return a head of the nodes of ``after``, one a label: those of ``before`` and new ones."""
    known = np.minimum(after.order, before.n_labels - 1)
    source = torch.from_numpy(np.where(after.order == known, before.positions[known], after.order)).to(head.bias.device)
    weight = torch.cat([head.weight, torch.from_numpy(new.weights).to(head.weight)])
    bias = torch.cat([head.bias, torch.from_numpy(new.bias).to(head.bias)])
    joined = Head(*weight.shape, optimiser="sgd", dtype=weight.dtype, std=0, device=weight.device)
    joined.set_rows(weight[source], bias[source])
    return joined
