"""Classifiers composed of the words of the labels, for labels with few or no documents.

A.3 of Kharbanda et al., Gandalf / InceptionXML-LF, whose names are kept: E the vectors of words,
z⁰_l the tf-idf weights of a label's words, G the label graph, Φ_l and Φ_g the encoders of labels, R
their residual map, 𝒜 the attention, w_l the free weights, and W_e the classifiers:

    z¹_l = E·z⁰_l        z²_l = E·(G z⁰)_l = Σ_m G_lm z¹_m        Φ(z) = α·R·GELU(z) + β·z
    W_e,l = α¹·Φ_l(z¹_l) + α²·Φ_g(z²_l) + α³·w_l

ECLARE (Mittal et al. 2021b) has the same three parts. DECAF (Mittal et al. 2021a) has Φ_l(z¹) +
w_l: all weights are 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from longtail.features.tokens import Tokens

__all__ = ["Combine", "LabelText", "Part", "label_words"]

Part = Literal["text", "graph", "free"]
Combine = Literal["attention", "sum"]

# the order of the equation, whatever that of the settings
_PARTS: tuple[Part, ...] = ("text", "graph", "free")


def label_words(tokens: Tokens, idf: NDArray[np.floating]) -> csr_array:
    """Return z⁰ (L, V): counts of the labels' tokens times ``idf`` (V,), rows l2-normalised.

    Padding and tokens whose idf is 0 are left out; a label without others has an empty row.
    """
    counts = np.ones(len(tokens.ids), np.float32)
    words = csr_array(
        (counts, tokens.ids.astype(np.int32), tokens.ends), shape=(len(tokens), len(idf))
    )
    words.sum_duplicates()
    weights = np.array(idf, np.float32)
    weights[tokens.pad] = 0
    words.data *= weights[words.indices]
    words.eliminate_zeros()
    lengths = np.sqrt(words.multiply(words).sum(1))
    words.data /= np.repeat(lengths, np.diff(words.indptr))
    return words


class LabelText(nn.Module):
    """W_e of all labels, or of some; rows of ``texts`` are labels in the order of the head's nodes.

    ``embedding`` is E, the encoder's own: it is used and trained, but is no part of this module's
    parameters. ``texts`` (L, V) are z⁰, ``graph`` (L, L) G, normalised; what is not given is drawn
    from ``seed``."""

    def __init__(
        self,
        embedding: nn.Embedding,
        texts: csr_array,
        graph: csr_array | None,
        parts: Sequence[Part],
        combine: Combine,
        seed: int,
    ) -> None:
        super().__init__()
        # in a tuple, where torch does not see it: the encoder keeps and saves it
        self._embedding = (embedding,)
        self.parts = tuple(part for part in _PARTS if part in parts)
        self._check(texts, graph)
        self.texts = _Bags(texts)
        self.graph: _Bags | None = None
        self.phi_l: _Phi | None = None
        self.phi_g: _Phi | None = None
        self.attention: nn.Linear | None = None
        count = len(self.parts)
        width = embedding.embedding_dim
        self.initial_scale = _initial_scale(embedding.weight)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if "text" in self.parts:
                self.phi_l = _Phi(width, self.initial_scale)
            if "graph" in self.parts and graph is not None:
                self.graph = _Bags(graph)
                self.phi_g = _Phi(width, self.initial_scale)
            if combine == "attention" and count > 1:
                self.attention = nn.Linear(count * width, count)
        self.to(embedding.weight)  # its type and device

    @property
    def embedding(self) -> nn.Embedding:
        """E, the vectors of words."""
        return self._embedding[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Labels, and columns of a word's vector."""
        return len(self.texts), self.embedding.embedding_dim

    def z1(self, labels: Tensor | None = None) -> Tensor:
        """Return z¹ (U, D) of labels (U,), of all if None: the sum of their words' vectors."""
        return self.texts(self.embedding.weight, labels)  # type: ignore[no-any-return]

    def forward(self, labels: Tensor | None, free: Tensor | None) -> Tensor:
        """Return W_e (U, D) of labels (U,) int64, of all if None; ``free`` (U, D) are their w_l, if
        a part.
        """
        if self.graph is None:
            return self._composed(self.z1(labels), None, free)
        z1 = self.z1()  # of all: labels have fewer neighbours than these have words
        z2 = self.graph(z1, labels)
        if labels is not None:
            z1 = z1.index_select(0, labels)
        return self._composed(z1, z2, free)

    @torch.no_grad()
    def new_rows(self, texts: csr_array) -> Tensor:
        """Return W_e (n, D) of labels that were never trained on, from their words (n, V) alone.

        w_l, which documents would have to teach, is 0; a label is its only neighbour.
        """
        E = self.embedding.weight
        z1 = _Bags(texts).to(E)(E, None)
        return self._composed(z1, z1, torch.zeros_like(z1))

    @torch.no_grad()
    def start_from(self, other: LabelText) -> None:
        """Take Φ_l and Φ_g of ``other`` where both have them, and 𝒜 if it is of the same parts
        (A.4, phase II).
        """
        pairs: list[tuple[nn.Module | None, nn.Module | None]] = [
            (self.phi_l, other.phi_l),
            (self.phi_g, other.phi_g),
        ]
        if self.parts == other.parts:
            pairs.append((self.attention, other.attention))
        for ours, theirs in pairs:
            if ours is not None and theirs is not None:
                ours.load_state_dict(theirs.state_dict())

    def _composed(self, z1: Tensor | None, z2: Tensor | None, free: Tensor | None) -> Tensor:
        """Return 𝒜(Φ_l(z¹), Φ_g(z²), w_l) of those that are parts."""
        parts: list[Tensor] = []
        if self.phi_l is not None and z1 is not None:
            parts.append(self.phi_l(z1))
        if self.phi_g is not None and z2 is not None:
            parts.append(self.phi_g(z2))
        if "free" in self.parts and free is not None:
            parts.append(free)
        if len(parts) != len(self.parts):
            raise ValueError(
                f"label text: found {len(parts)} parts; expected {', '.join(self.parts)}"
            )
        if self.attention is None:
            return reduce(torch.add, parts)
        # of each part: no copy side by side
        columns = torch.split(self.attention.weight, parts[0].shape[1], 1)
        of_parts = (part @ weight.T for part, weight in zip(parts, columns, strict=True))
        alpha = (reduce(torch.add, of_parts) + self.attention.bias).softmax(1)  # (U, parts)
        total: Tensor = alpha[:, :1] * parts[0]
        for at, part in enumerate(parts[1:], 1):
            total = torch.addcmul(total, alpha[:, at : at + 1], part)
        return total

    def _check(self, texts: csr_array, graph: csr_array | None) -> None:
        if not self.parts:
            raise ValueError(f"label text: found no part; expected some of {', '.join(_PARTS)}")
        if "graph" in self.parts and graph is None:
            raise ValueError("label text: found no label graph; expected it, as graph is a part")
        n = texts.shape[0]
        words = self.embedding.num_embeddings
        for name, rows, columns in (("words of labels", texts, words), ("label graph", graph, n)):
            if rows is not None and rows.shape != (n, columns):
                raise ValueError(f"{name}: found {rows.shape}; expected {(n, columns)}")


@torch.no_grad()
def _initial_scale(E: Tensor) -> float:
    """Return the factor that makes long vectors of words, as GloVe's, 1 long: else initial scores
    would be huge.
    """
    return 1 / max(float(E.norm(dim=1).square().mean().sqrt()), 1.0)


class _Phi(nn.Module):
    """Φ(z) = α·R·GELU(z) + β·z, R spectrally normed, at first the identity; then ‖Φ(z)‖ ≤
    ``scale``·‖z‖.
    """

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.alpha, self.beta = (nn.Parameter(torch.tensor(scale / 2)) for _ in range(2))
        R = nn.Linear(width, width, bias=False)
        nn.init.eye_(R.weight)
        self.R = spectral_norm(R)

    def forward(self, z: Tensor) -> Tensor:
        R = cast(Tensor, self.R.weight)
        alpha_R = self.alpha * R  # of the matrix, which has fewer numbers than what it gives
        return torch.addcmul(functional.linear(functional.gelu(z), alpha_R), z, self.beta)


class _Bags(nn.Module):
    """A sparse matrix (L, V) of weights of vectors, on the device; not saved, as it is made of
    texts, or the graph.
    """

    ends: Tensor
    words: Tensor
    weights: Tensor

    def __init__(self, rows: csr_array) -> None:
        super().__init__()
        arrays: dict[str, NDArray[Any]] = {
            "ends": rows.indptr.astype(np.int64),
            "words": rows.indices.astype(np.int32),  # of all labels they are many
            "weights": rows.data.astype(np.float32),
        }
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def forward(self, vectors: Tensor, labels: Tensor | None) -> Tensor:
        """Return the weighted sums (U, D) of vectors (V, D) of the rows of labels (U,); 0 of an
        empty row.
        """
        if labels is None:
            starts = self.ends[:-1]
            words = self.words
            weights = self.weights
        else:
            first = self.ends[labels]
            counts = self.ends[labels + 1] - first
            starts = counts.cumsum(0) - counts
            places = torch.repeat_interleave(first - starts, counts)
            places += torch.arange(len(places), device=places.device)
            words = self.words[places]
            weights = self.weights[places]
        return functional.embedding_bag(
            words, vectors, starts, mode="sum", per_sample_weights=weights.to(vectors)
        )
