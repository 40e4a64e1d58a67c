"""CUDA graphs: many small kernels are recorded once and launched as one, as launching them one by
one takes longer than running them.

`RankGraphs` ranks small batches; `BatchReader` reads the batches of training through an encoder on
vectors of words, whose kernels run for microseconds each."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from longtail.features.text_encoder import TextEncoder
from longtail.methods.registry import encoder_kind
from longtail.networks.base import Ranked
from longtail.networks.encoders.word_encoder import WordEncoder

__all__ = ["LARGEST_BATCH", "BatchReader", "EncoderGraphs", "RankGraphs", "graph_length"]

LARGEST_BATCH = 32  # larger ones keep the device busy without
_MOST = 64  # graphs kept; the oldest goes first
_TOKENS = 16  # lengths are rounded up to a multiple of this
_WARM_UP = 3  # runs before recording: libraries choose their kernels, Triton compiles its own


def graph_length(tokens: int, max_tokens: int) -> int:
    """Return the number of tokens that the graph for documents of ``tokens`` reads; few lengths
    need few graphs.
    """
    return min(-(-tokens // _TOKENS) * _TOKENS, max(max_tokens, tokens))


class _Graph(NamedTuple):
    """A recorded ranking, with page-locked memory that it reads from and writes to."""

    graph: torch.cuda.CUDAGraph
    ids: NDArray[np.int64]  # (B, T)
    mask: NDArray[np.bool_]  # (B, T)
    result: NDArray[np.float32]  # (B, 2k + d): scores, nodes as the bits of int32, vectors


class RankGraphs:
    """One graph for each shape (documents, tokens, labels wanted) that has come up."""

    def __init__(
        self,
        rank: Callable[[Tensor, Tensor, int], Ranked],
        device: torch.device,
        max_tokens: int,
        pad_left: bool,
    ) -> None:
        self._rank = rank
        self._device = device
        self._max_tokens = max_tokens
        self._pad_left = pad_left
        self._graphs: dict[tuple[int, int, int], _Graph] = {}

    def __call__(
        self, ids: NDArray[np.int64], mask: NDArray[np.bool_], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
        """Return scores and nodes (B, k) and vectors (B, d) of documents (B, T), B ≤
        LARGEST_BATCH.
        """
        n, tokens = ids.shape
        width = graph_length(tokens, self._max_tokens)
        graph = self._graph(1 << (n - 1).bit_length(), width, k)
        columns = slice(tokens)
        token = 0
        if self._pad_left:
            columns = slice(width - tokens, width)
            token = -1
        graph.mask[:] = False
        graph.mask[:, token] = True  # attention of a row without tokens would be no number
        graph.ids[:n, columns] = ids
        graph.mask[:n, columns] = mask
        graph.graph.replay()
        torch.cuda.current_stream(self._device).synchronize()
        result = graph.result[:n].copy()
        return result[:, :k], result[:, k : 2 * k].view(np.int32), result[:, 2 * k :]

    def _graph(self, rows: int, width: int, k: int) -> _Graph:
        key = rows, width, k
        if key not in self._graphs:
            if len(self._graphs) == _MOST:
                del self._graphs[next(iter(self._graphs))]
            self._graphs[key] = self._recorded(rows, width, k)
        return self._graphs[key]

    def _recorded(self, rows: int, width: int, k: int) -> _Graph:
        ids = torch.zeros(rows, width, dtype=torch.int64, pin_memory=True)
        mask = torch.ones(rows, width, dtype=torch.bool, pin_memory=True)
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                packed = self._packed(ids, mask, k)
        torch.cuda.current_stream(self._device).wait_stream(side)
        result = torch.zeros(packed.shape, dtype=torch.float32, pin_memory=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result.copy_(self._packed(ids, mask, k), non_blocking=True)
        return _Graph(graph, ids.numpy(), mask.numpy(), result.numpy())

    def _packed(self, ids: Tensor, mask: Tensor, k: int) -> Tensor:
        """Rank from host memory, all results in one tensor: one copy back."""
        on_device = (
            ids.to(self._device, non_blocking=True),
            mask.to(self._device, non_blocking=True),
        )
        ranked = self._rank(*on_device, k)
        return torch.cat(
            [ranked.scores.float(), ranked.nodes.view(torch.float32), ranked.vectors.float()], 1
        )


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
        """Return whether a graph may take the place of the encoder: in training, on a GPU, for a
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
        if mask is not None:
            ids = ids.masked_fill(~mask, self._encoder.pad)
        length = graph_length(ids.shape[1], self._encoder.max_tokens)
        padded = pad(ids, (0, length - ids.shape[1]), value=self._encoder.pad)
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
        if encoder_kind(encoder.kind).reads_words:
            self._graphs = EncoderGraphs(cast(WordEncoder, encoder), batch_size)

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
