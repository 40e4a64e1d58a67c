"""CUDA graphs of an encoder in training: its many small kernels, forward and backward, are launched
as one.

A word encoder's kernels run for microseconds each, so that launching them one by one takes longer
than running them."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from longtail.features.text_encoder import TextEncoder
from longtail.networks.encoders.word_encoder import WordEncoder
from longtail.networks.graphs import graph_length

__all__ = ["BatchReader", "EncoderGraphs"]


class EncoderGraphs:
    """Graphs of an encoder for batches of ``documents``, one a length.

    A graph writes gradients always to the same memory, so a batch must be all that an optimiser
    step sees."""

    def __init__(self, encoder: WordEncoder, documents: int) -> None:
        self._encoder = encoder
        self._documents = documents
        self._graphed: dict[int, _Reading] = {}
        # layers of the graphs, and those detached
        self._read: tuple[tuple[int, ...], tuple[int, ...]] = (), ()

    def serve(self, ids: Tensor) -> bool:
        """Tell whether a graph may take the place of the encoder: in training, on a GPU, for a
        whole batch.
        """
        return (
            ids.is_cuda
            and self._encoder.training
            and torch.is_grad_enabled()
            and len(ids) == self._documents
        )

    def __call__(
        self, ids: Tensor, mask: Tensor | None, layers: Sequence[int], detached: Sequence[int] = ()
    ) -> list[Tensor]:
        """Return (B, width) after each of ``layers``, as the encoder does.

        Graphs are of the same layers until others are asked for: an epoch that detaches no more has
        graphs of its own."""
        if (tuple(layers), tuple(detached)) != self._read:
            self.forget()
            self._read = tuple(layers), tuple(detached)
        padded = ids if mask is None else ids.masked_fill(~mask, self._encoder.pad)
        length = graph_length(ids.shape[1], self._encoder.max_tokens)
        padded = pad(padded, (0, length - ids.shape[1]), value=self._encoder.pad)
        if length not in self._graphed:
            self._graphed[length] = _recorded(_Reading(self._encoder, *self._read), padded)
        return list(self._graphed[length](padded))

    def forget(self) -> None:
        """Let go of the graphs and their memory; the next batch would be recorded anew."""
        if self._graphed:
            self._graphed.clear()
            gc.collect()  # torch's recordings hold each other


class _Reading(nn.Module):
    """An encoder for some layers, as torch records it."""

    def __init__(
        self, encoder: WordEncoder, layers: tuple[int, ...], detached: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = layers
        self.detached = detached

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.encoder(ids, None, self.layers, self.detached))


def _expect_other_streams() -> None:
    """Have torch not warn that gradients come from the stream of the recording: they are waited for
    all the same.
    """
    # not in torch 2.8
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:
        warn(False)


def _recorded(reading: _Reading, ids: Tensor) -> _Reading:
    """Record both passes; what the runs before it change, norms and chance, is put back."""
    buffers = [(buffer, buffer.clone()) for buffer in reading.buffers()]
    rng = torch.cuda.get_rng_state(ids.device)
    half = torch.is_autocast_enabled("cuda")
    _expect_other_streams()
    # casts are part of the graph
    with torch.autocast("cuda", torch.bfloat16, enabled=half, cache_enabled=False):
        # a layer that is not read has weights without a gradient
        graphed = torch.cuda.make_graphed_callables(
            reading, (ids.clone(),), allow_unused_input=True
        )
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    torch.cuda.set_rng_state(rng, ids.device)
    return cast(_Reading, graphed)


class BatchReader:
    """Calls an encoder for batches of documents: by CUDA graphs in training where these serve."""

    def __init__(self, encoder: TextEncoder, batch_size: int) -> None:
        self._graphs: EncoderGraphs | None = None
        if isinstance(encoder, WordEncoder):
            self._graphs = EncoderGraphs(encoder, batch_size)

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
