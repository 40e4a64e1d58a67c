"""Protocols of trained networks: `VectorNetwork` embeds documents, `RankingNetwork` also ranks
labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from longtail.config import Training
from longtail.features.text_encoder import TextEncoder

__all__ = ["Ranked", "RankingNetwork", "VectorNetwork"]


class VectorNetwork(Protocol):
    """An encoder, and the classifiers that read its vectors, if any."""

    family: ClassVar[str]  # its name in a model folder (network_folder.py)
    training: bool

    @property
    def encoder(self) -> TextEncoder:
        """The encoder; of several, the first."""

    @property
    def heads(self) -> Sequence[Any]:
        """The :class:`~longtail.networks.heads.head.Head` of each level."""

    @property
    def widths(self) -> Sequence[int]:
        """Columns of the vectors of each level."""

    def vectors(self, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the (B, d) vectors that each level reads, those of the labels last."""

    def in_half(self) -> Any:
        """Return a copy for inference in bfloat16."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that AdamW trains."""

    def train(self, mode: bool = True) -> Any:
        """Switch dropout on or off."""

    def to(self, device: torch.device) -> Any:
        """Move it to a device."""


class Ranked(NamedTuple):
    """The best labels of a batch, and the vectors that scored them."""

    scores: Tensor  # (B, k) float32, best first; 0 where there are fewer labels
    nodes: Tensor  # (B, k) int32 positions of labels in the tree's order, −1 where there are fewer
    vectors: Tensor  # (B, d) ϑ of the last level
    kept: tuple[Tensor, ...]  # S_top of each level above the labels, (B, k_t) int32


class RankingNetwork(VectorNetwork, Protocol):
    """A network that ranks labels by itself, on the way down a label tree."""

    training_settings: Training

    @property
    def slots(self) -> Sequence[int]:
        """Nodes that are scored on each level."""

    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` best labels of documents (B, T)."""

    def path_scores(self, ids: Tensor, mask: Tensor | None, path: Sequence[int]) -> Tensor:
        """Return (B,) float64 the score of the label with this path of nodes, one a level, whether
        ranked or not.
        """
