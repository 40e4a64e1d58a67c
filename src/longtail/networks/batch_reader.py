"""Batches through an encoder: by CUDA graphs in training where these serve, and without any
document where a process of several has none of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from longtail.features.text_encoder import TextEncoder
from longtail.networks.encoders.encoder_graphs import EncoderGraphs
from longtail.networks.encoders.word_encoder import WordEncoder

__all__ = ["BatchReader"]


class BatchReader:
    """Calls an encoder for batches of documents."""

    def __init__(self, encoder: TextEncoder, batch_size: int) -> None:
        self._graphs = (
            EncoderGraphs(encoder, batch_size) if isinstance(encoder, WordEncoder) else None
        )

    def __call__(
        self,
        encoder: Any,
        ids: Tensor,
        mask: Tensor | None,
        layers: Sequence[int],
        detached: Sequence[int] = (),
    ) -> list[Tensor]:
        """Return the vectors (B, width) after each of ``layers``, as the encoder does.

        A process without documents takes part in the exchanges of the heads all the same: its
        vectors want a gradient."""
        if not len(ids):
            learns = torch.is_grad_enabled()
            return [
                torch.zeros(0, encoder.width, device=ids.device, requires_grad=learns)
                for _ in layers
            ]
        if self._graphs is not None and self._graphs.serve(ids):
            return self._graphs(ids, mask, layers, detached)
        vectors: list[Tensor] = encoder(ids, mask, layers, detached)
        return vectors

    def forget_graphs(self) -> None:
        """Let go of the CUDA graphs of training and their memory."""
        if self._graphs is not None:
            self._graphs.forget()
