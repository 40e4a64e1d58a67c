"""Ranking by several processes, each of which ranks its part of the documents."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from longtail.networks.base import Ranked
from longtail.steps.process_group import ProcessGroup

__all__ = ["DistributedRanking"]


class DistributedRanking:
    """A network in the processes that train it together; all of them are given the same documents."""

    def __init__(self, network: Any, group: ProcessGroup) -> None:
        self._network = network
        self._group = group

    @torch.no_grad()
    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` best labels of all documents, of which this process ranks its part."""
        part = self._group.part(len(ids))
        lengths = self._group.lengths(len(ids))
        ranked = self._network.rank(ids[part], None if mask is None else mask[part], k)
        tensors = ranked.scores.float(), ranked.nodes, ranked.vectors.float(), *ranked.kept
        scores, nodes, vectors, *kept = (
            self._group.all_gather(tensor, lengths) for tensor in tensors
        )
        return Ranked(scores, nodes, vectors, tuple(kept))
