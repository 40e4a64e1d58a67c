"""Astec's encoder: the tf-idf-weighted sum of a document's word vectors.

Dahiya et al. 2021, DeepXML: A Deep Extreme Multi-Label Learning Framework Applied to Short Text
Documents. The first layer is what its phase I learns, v = ReLU(E·x); the second adds phase III's
map R, v + ReLU(R·v), which starts at identity and has no singular value above 1."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from longtail.networks.encoders.word_encoder import SpectralResidual, WordEncoder

__all__ = ["BagEncoder"]

_DROPOUT = 0.5  # of v; R reads it as it then is


class BagEncoder(WordEncoder):
    """Sum of word vectors, which knows nothing of their order: ``width`` is that of the vectors,
    ``depth`` 2.
    """

    kind: ClassVar[str] = "bag"

    def __init__(self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int) -> None:
        super().__init__(vectors, idf, pad, max_tokens)
        self.width = self.dimensions
        self.depth = 2
        self.residual = SpectralResidual(self.width, self.width, nn.ReLU(), 0.0, identity=True)

    def read(self, ids: Tensor) -> Tensor:
        """Return v (B, D) = ReLU(Σ_t idf_t E_t / ‖idf‖): x of length 1, and 0 where there is no
        word.
        """
        idf = self.idf[ids]  # (B, T), 0 at padding
        x = idf / torch.linalg.vector_norm(idf, dim=1, keepdim=True).clamp(min=1e-6)
        # (B, 1, T) x (B, T, D) -> (B, 1, D)
        v = (x[:, None] @ self.embedding(ids)).squeeze(1).relu()
        return dropout(v, _DROPOUT, self.training)

    def layer(self, hidden: Tensor, number: int) -> Tensor:
        """Return v, or v + ReLU(R·v)."""
        if number == 1:
            return hidden
        v: Tensor = self.residual(hidden)
        return v
