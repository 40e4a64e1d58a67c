"""CUDA graphs: the kernels of a small batch are recorded once and replayed, as launching them takes
longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.networks.base import Ranked

__all__ = ["LARGEST_BATCH", "RankGraphs", "graph_length"]

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
        """Return scores and nodes (B, k) and vectors (B, d) of documents (B, T), B ≤ LARGEST_BATCH."""
        n, tokens = ids.shape
        width = graph_length(tokens, self._max_tokens)
        graph = self._graph(1 << (n - 1).bit_length(), width, k)
        columns = slice(width - tokens, width) if self._pad_left else slice(tokens)
        graph.mask[:] = False
        # attention of a row without tokens would be no number
        graph.mask[:, -1 if self._pad_left else 0] = True
        graph.ids[:n, columns], graph.mask[:n, columns] = ids, mask
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
