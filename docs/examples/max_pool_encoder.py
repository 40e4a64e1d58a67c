"""An encoder on vectors of words: the largest value of each column over the words of a text."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from longtail.networks.encoders.word_encoder import WordEncoder


class MaxPoolEncoder(WordEncoder):
    """v_d = max_t ReLU(E_td) over the words t of a text; 0 for a text without words."""

    kind: ClassVar[str] = "max-pool"

    def __init__(self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int) -> None:
        super().__init__(vectors, idf, pad, max_tokens)
        self.width = self.dimensions
        self.depth = 1

    def read(self, ids: Tensor) -> Tensor:
        """Return v (B, D); padding has a vector of zeros."""
        return self.embedding(ids).relu().amax(1)

    def layer(self, hidden: Tensor, number: int) -> Tensor:
        """Return v, the output of the only layer."""
        return hidden
