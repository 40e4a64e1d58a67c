"""`NeuralRanker`, a trained network that ranks: texts in, ranked labels and vectors out; and how
much the score of a label falls when a word is left out of the text.

Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks, section 4.2
(«occlusion»), with words in place of patches. A fall is exact, and is all that it is: what leaving
out this one word does. Words act together, so falls do not add up to the score, nor to what leaving
out several words does."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from unicodedata import category, normalize

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse, special
from torch import Tensor

from longtail.data.csr import csr_of, csr_of_slots
from longtail.data.strings import Strings
from longtail.features.tokens import Tokeniser, Tokens
from longtail.networks.base import Ranked, RankingNetwork
from longtail.networks.embedder import Embedder
from longtail.networks.graphs import LARGEST_BATCH
from longtail.rankers.explanation import Contribution, Step
from longtail.steps.process_group import ProcessGroup
from longtail.tree.tree import LabelTree

if TYPE_CHECKING:
    from longtail.networks.cascade_ranker import CascadeRanker
    from longtail.networks.heads.head import Head

__all__ = [
    "MOST_WORDS",
    "TREE",
    "DistributedRanking",
    "LabelScorer",
    "NeuralRanker",
    "Occlusions",
    "map_rows",
    "occlusions",
]

TREE = "tree-network.safetensors"  # of a model folder


class NeuralRanker(Embedder):
    """Tokeniser, network and label tree; scores are σ of labels, or products with σ of the nodes
    above.

    ``n_added`` labels, the last ones, were never trained on.
    """

    network: RankingNetwork
    tree: LabelTree
    n_added: int = 0

    def __init__(self, tokeniser: Tokeniser, network: RankingNetwork, tree: LabelTree) -> None:
        super().__init__(tokeniser, network, network.training_settings.precision)
        self.tree = tree

    @property
    def ranker(self) -> NeuralRanker:
        """This network, which ranks labels by itself."""
        return self

    @property
    def composer(self) -> CascadeRanker | None:
        """This network, if it composes classifiers of further labels from their words."""
        return None

    @property
    def n_labels(self) -> int:
        """Labels of the tree."""
        return self.tree.n_labels

    def search(
        self,
        texts: Strings | Iterable[str] | Tokens,
        k: int,
        exclude: sparse.csr_array | None = None,
    ) -> tuple[sparse.csr_array, NDArray[np.float32]]:
        """Return (n, L) scores of the ``k`` best labels, best first, and (n, d) vectors of the
        documents.
        """
        tokens = self._tokens(texts)
        spare = 0
        if exclude is not None:
            spare = int(np.diff(exclude.indptr).max(initial=0))
        wanted = min(k + spare, self.network.slots[-1], self.tree.n_labels)
        if self._graphs is not None and 0 < len(tokens) <= LARGEST_BATCH:
            with torch.inference_mode():
                scores, nodes, vectors = self._graphs(
                    *tokens.padded(np.arange(len(tokens))), wanted
                )
            return self._matrix(scores, nodes, k, exclude), vectors
        scores = np.zeros((len(tokens), wanted), np.float32)
        nodes = np.full((len(tokens), wanted), -1, np.int32)
        vectors = np.zeros((len(tokens), self.width), np.float32)
        for rows, ranked in self._each(
            tokens, lambda batch: self._running.rank(batch.ids, batch.mask, wanted)
        ):
            scores[rows], nodes[rows] = ranked.scores.float().cpu(), ranked.nodes.cpu()
            vectors[rows] = ranked.vectors.float().cpu()
        return self._matrix(scores, nodes, k, exclude), vectors

    @contextmanager
    def distributed(self, group: ProcessGroup) -> Iterator[None]:
        """Have each process of a group rank its part of the documents in the body; all of them have
        all results.
        """
        before = self._running
        if group.size > 1:
            self._running = DistributedRanking(before, group)
        try:
            yield
        finally:
            self._running = before

    def label_scores(
        self, texts: Strings | Iterable[str] | Tokens, label: int
    ) -> NDArray[np.float64]:
        """Return the (n,) scores of one label, as :meth:`search` has them, also where it is not
        among the best.
        """
        tokens = self._tokens(texts)
        path = self.tree.ancestors(label)
        scores = np.zeros(len(tokens))
        running = self._running
        for rows, batch_scores in self._each(
            tokens, lambda batch: running.path_scores(batch.ids, batch.mask, path), "texts"
        ):
            scores[rows] = batch_scores.cpu()
        return scores

    def label_weights(self) -> NDArray[np.float32]:
        """Return (L, d) the classifiers of the labels, without their biases."""
        weights: NDArray[np.float32] = self.network.heads[-1].weight.float().cpu().numpy()
        return weights[self.tree.positions]

    def shortlist_recall(self, tokens: Tokens, label_matrix: sparse.csr_array) -> list[float]:
        """Return the recall of the nodes kept on each level above the labels (table 11 of
        CascadeXML).

        A document's true nodes are those with one of its labels below. Recall is the share of them
        that is kept, as the mean over documents with labels."""
        truth = [_ones_at(matrix) for matrix in self.tree.coarsen(_ones_at(label_matrix))]
        recalls = np.zeros(self.tree.n_levels - 1)
        for rows, ranked in self._each(
            tokens, lambda batch: self._running.rank(batch.ids, batch.mask, 1)
        ):
            for level, kept in enumerate(ranked.kept):
                true = truth[level][rows]
                nodes = kept.cpu().numpy()
                shortlist = csr_of_slots(np.ones(nodes.shape, np.float32), nodes, true.shape[1])
                hits = np.asarray(true.multiply(shortlist).sum(axis=1), np.float64)
                recalls[level] += (hits / np.maximum(np.diff(true.indptr), 1)).sum()
        n_documents = int(np.count_nonzero(np.diff(label_matrix.indptr)))
        means: list[float] = (recalls / max(n_documents, 1)).tolist()
        return means

    def _ranked(self, ids: Tensor, mask: Tensor, k: int) -> Ranked:
        if not k:
            return super()._ranked(ids, mask, k)
        ranked: Ranked = self._running.rank(ids, mask, k)
        return ranked

    def _matrix(
        self,
        scores: NDArray[np.float32],
        nodes: NDArray[np.int32],
        k: int,
        exclude: sparse.csr_array | None,
    ) -> sparse.csr_array:
        """Return the (n, L) matrix of labels from (n, wanted) scores and positions, best first."""
        labels = np.where(nodes >= 0, self.tree.order[np.maximum(nodes, 0)], np.int32(-1))
        if exclude is not None:
            rows = np.repeat(np.arange(len(nodes), dtype=np.int64), np.diff(exclude.indptr))
            banned = rows * self.tree.n_labels + exclude.indices
            kept = (labels >= 0) & ~np.isin(
                np.arange(len(nodes))[:, None] * self.tree.n_labels + labels, banned
            )
            labels[~kept | (np.cumsum(kept, 1) > k)] = -1
        return csr_of_slots(scores, labels, self.tree.n_labels)


def _ones_at(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return a matrix with 1 in place of each value."""
    return csr_of(
        np.ones(len(matrix.indices), np.float32), matrix.indices, matrix.indptr, matrix.shape[1]
    )


class DistributedRanking:
    """A network in the processes that train it together; all of them are given the same
    documents.
    """

    def __init__(self, network: Any, group: ProcessGroup) -> None:
        self._network = network
        self._group = group

    @torch.no_grad()
    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` best labels of all documents, of which this process ranks its part."""
        part = self._group.part(len(ids))
        lengths = self._group.lengths(len(ids))
        if mask is not None:
            mask = mask[part]
        ranked = self._network.rank(ids[part], mask, k)
        tensors = ranked.scores.float(), ranked.nodes, ranked.vectors.float(), *ranked.kept
        scores, nodes, vectors, *kept = (
            self._group.all_gather(tensor, lengths) for tensor in tensors
        )
        return Ranked(scores, nodes, vectors, tuple(kept))


def map_rows(head: Head, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Map the classifiers from the file's pages, without a copy."""
    for name in ("weight", "bias"):
        known = getattr(head, name)
        array = arrays[name]
        if array.shape != tuple(known.shape):
            raise ValueError(f"a head of {array.shape} for a level of {tuple(known.shape)}")
        if array.dtype not in (np.float32, np.uint16):  # uint16: the bits of bfloat16
            raise ValueError(f"a head of {array.dtype}; expected float32, or bfloat16 as uint16")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the pages cannot be written to
            tensor = torch.from_numpy(array)
        if array.dtype == np.uint16:
            tensor = tensor.view(torch.bfloat16)
        setattr(head, name, tensor)


MOST_WORDS = 256  # different ones, the first of the text: as many passes through the network

_CHUNK = re.compile(r"\S+")
# in a word: apostrophes, the soft hyphen, and what joins or parts letters of one word
_INSIDE = "'’\u00ad\u200c\u200d"
_WORD = re.compile(rf"[^\s{_INSIDE}]+(?:[{_INSIDE}]+[^\s{_INSIDE}]+)*")
_LARGEST = 1 - 2**-53  # the score next to 1, whose logit is a number


class LabelScorer(Protocol):
    """The network to explain: one that ranks, as :class:`~longtail.networks.ranker.NeuralRanker`
    does.
    """

    tokeniser: Tokeniser

    def label_scores(
        self, texts: Strings | Iterable[str] | Tokens, label: int
    ) -> NDArray[np.float64]:
        """Return the (n,) scores of one label, between 0 and 1."""


@dataclass(frozen=True)
class Occlusions:
    """Changes of the logit of a label's score, log(s / (1 − s)), by leaving out each word of a
    text.
    """

    score: float  # of the text as it is
    words: tuple[str, ...]  # as each first stands there; the largest fall, by absolute value, first
    counts: tuple[int, ...]  # how often each stands there
    falls: tuple[float, ...]  # of the logit; below 0: it rises

    def step(self) -> Step:
        """Return it as the step of an explanation."""
        parts = zip(self.words, self.counts, self.falls, strict=True)
        contributions = tuple(
            Contribution(word, count, fall / count, fall) for word, count, fall in parts
        )
        name = "the network, with one word at a time left out"
        margin = float(_logits(np.array(self.score)))
        return Step(0, 0, name, margin, self.score, 0.0, 0.0, contributions, "left-out")


def occlusions(ranker: LabelScorer, text: str, label: int) -> Occlusions:
    """Return the change by leaving out each word: all its occurrences, in upper and lower case, of
    the first 256 words.

    Words whose absence changes no token, as those behind the last one that is read, are not listed.
    """
    text, places = _readable_part(text, ranker.tokeniser.max_tokens)
    left_out = list(places.values())[:MOST_WORDS]
    keep_lines = ranker.tokeniser.cleaning != "none"  # where a line break is a token
    texts = [text, *(_without(text, spans, keep_lines) for spans in left_out)]
    tokens = ranker.tokeniser(texts)
    whole, *others = np.split(tokens.ids, tokens.ends[1:-1])
    read = [at for at, row in enumerate(others) if not np.array_equal(row, whole)]
    scores = ranker.label_scores([text, *(texts[1 + at] for at in read)], label)
    logits = _logits(scores)
    falls = logits[0] - logits[1:]
    order = np.argsort(-np.abs(falls), kind="stable").tolist()
    spans = [left_out[read[at]] for at in order]
    words = tuple(text[slice(*occurrences[0])] for occurrences in spans)
    return Occlusions(float(scores[0]), words, tuple(map(len, spans)), tuple(falls[order].tolist()))


def _logits(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    logits: NDArray[np.float64] = special.logit(
        np.clip(scores, np.finfo(np.float64).tiny, _LARGEST)
    )
    return logits


def _readable_part(text: str, max_tokens: int) -> tuple[str, dict[str, list[tuple[int, int]]]]:
    """Return as much of a text as can be read whichever word is left out, and the places of its
    words, folded.

    A word is a token at least: where ``max_tokens`` words are left without the most frequent one, a
    book costs no more than a page."""
    places: dict[str, list[tuple[int, int]]] = {}
    most = 0
    for number, (start, end) in enumerate(_words(text), 1):
        occurrences = places.setdefault(normalize("NFC", text[start:end]).casefold(), [])
        occurrences.append((start, end))
        most = max(most, len(occurrences))
        if number - most > max_tokens:
            return text[:end], places
    return text, places


def _words(text: str) -> Iterator[tuple[int, int]]:
    """Yield where words begin and end: letters, marks on them and digits, between white space or
    punctuation.
    """
    for chunk in _CHUNK.finditer(text):
        letters = "".join(
            char if char in _INSIDE or category(char)[0] in "LMN" else " " for char in chunk[0]
        )
        for word in _WORD.finditer(letters):
            if any(map(str.isalnum, word[0])):  # not a mark alone, as beside some pictograms
                yield chunk.start() + word.start(), chunk.start() + word.end()


def _without(text: str, spans: list[tuple[int, int]], keep_lines: bool = False) -> str:
    """Return the text without these places, and of the white space around each without what stands
    behind.

    With ``keep_lines`` line breaks stay.
    """
    parts = []
    at = 0
    for start, end in spans:
        parts.append(text[at:start])
        at = end
        if start == 0 or text[start - 1].isspace():
            while at < len(text) and text[at].isspace() and not (keep_lines and text[at] == "\n"):
                at += 1
    return "".join([*parts, text[at:]])
