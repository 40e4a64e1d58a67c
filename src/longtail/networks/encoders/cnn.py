"""XML-CNN's encoder: convolutions over a document's words.

Liu et al. 2017, Deep Learning for Extreme Multi-label Text Classification: filters over 2, 4 and 8
words (section 3.1), the largest value of each in each of p chunks of the document (dynamic max
pooling, 3.2), and a bottleneck of 512 numbers between these and the labels (3.3)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool1d, dropout, pad

from longtail.networks.encoders.kinds import (
    CNN_BOTTLENECK,
    CNN_CHUNKS,
    CNN_FILTERS,
    CNN_WORDS,
)
from longtail.networks.encoders.word_encoder import WordEncoder

__all__ = ["ConvolutionEncoder", "dynamic_max_pool"]

_WORD_DROPOUT = 0.25
_DROPOUT = 0.5


class ConvolutionEncoder(WordEncoder):
    """Convolutions over words; ``width`` 512, ``depth`` 1. Documents are padded to ``max_tokens``
    words.
    """

    kind: ClassVar[str] = "cnn"

    def __init__(self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int) -> None:
        super().__init__(vectors, idf, pad, max_tokens)
        self.width = CNN_BOTTLENECK
        self.depth = 1
        self.chunks = min(CNN_CHUNKS, max_tokens)
        self.filters = nn.ModuleList(
            nn.Conv1d(self.dimensions, CNN_FILTERS, words) for words in CNN_WORDS
        )
        self.bottleneck = nn.Linear(len(CNN_WORDS) * CNN_FILTERS * self.chunks, CNN_BOTTLENECK)
        for module in (*self.filters, self.bottleneck):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    def read(self, ids: Tensor) -> Tensor:
        """Return the pooled maps of all filters, (B, 3 · 128 · p)."""
        padded = pad(ids, (0, max(CNN_WORDS) - 1), value=self.pad)
        # (B, D, T + 7)
        e = dropout(self.embedding(padded), _WORD_DROPOUT, self.training).transpose(1, 2)
        maps = [
            dynamic_max_pool(self._map(convolution, e, ids.shape[1]), self.chunks)
            for convolution in self.filters
        ]
        return torch.cat(maps, 1).relu().flatten(1)

    def _map(self, convolution: Any, e: Tensor, n: int) -> Tensor:
        """Return c (B, 128, max_tokens) of documents of ``n`` words or less; behind these it is the
        filters' bias.
        """
        c: Tensor = convolution(e)[..., :n]
        behind = convolution.bias.to(c.dtype)[:, None].expand(len(c), -1, self.max_tokens - n)
        return torch.cat([c, behind], 2)

    def layer(self, hidden: Tensor, number: int) -> Tensor:
        """Return the bottleneck, after ReLU and dropout."""
        return dropout(self.bottleneck(hidden).relu(), _DROPOUT, self.training)


def dynamic_max_pool(c: Tensor, p: int) -> Tensor:
    """Return the largest values (B, F, p) of p chunks of each feature map c (B, F, m).

    Chunk i is c_{⌊i·m/p⌋} … c_{⌈(i + 1)·m/p⌉ − 1}, which for p a divisor of m is the paper's P(c).
    """
    pooled: Tensor = adaptive_max_pool1d(c, p)
    return pooled
