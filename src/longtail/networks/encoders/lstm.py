"""A bidirectional LSTM over vectors of words: one state a token, as AttentionXML reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from longtail.networks.encoders.kinds import LSTM_HIDDEN
from longtail.networks.encoders.word_encoder import WordEncoder

__all__ = ["LstmEncoder", "mean_state"]

_DROPOUT = 0.2  # of the vectors of words


class LstmEncoder(WordEncoder):
    """Vectors of words, read from both sides: H (B, T, 2h); as one vector of a text the mean of its
    states.

    Texts begin in the first slot, padding is behind them.
    """

    kind: ClassVar[str] = "lstm"

    def __init__(self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int) -> None:
        super().__init__(vectors, idf, pad, max_tokens)
        self.width = 2 * LSTM_HIDDEN
        self.depth = 1
        self.forwards = nn.LSTM(self.dimensions, LSTM_HIDDEN, batch_first=True)
        self.backwards = nn.LSTM(self.dimensions, LSTM_HIDDEN, batch_first=True)

    def states(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return H (B, T, 2h), 0 at padding; ``ids`` (B, T) int64, ``mask`` (B, T) bool or None."""
        x = dropout(self.embedding(ids), _DROPOUT, self.training)  # (B, T, D)
        if mask is None:
            return torch.cat([self.forwards(x)[0], self.backwards(x.flip(1))[0].flip(1)], 2)
        back = _reversed_places(mask)[:, :, None]
        ahead = self.forwards(x)[0]
        behind = self.backwards(x.gather(1, back.expand_as(x)))[0]
        return torch.cat([ahead, behind.gather(1, back.expand_as(behind))], 2) * mask[:, :, None]

    def forward(
        self, ids: Tensor, mask: Tensor | None, layers: Sequence[int], detached: Sequence[int] = ()
    ) -> list[Tensor]:
        """Return the mean of the states, (B, 2h), for each of ``layers``, of which there is one."""
        mean = mean_state(self.states(ids, mask), mask)
        return [mean.detach() if layer in detached else mean for layer in layers]


def mean_state(H: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean (B, 2h) over the tokens of H (B, T, 2h), which is 0 at padding."""
    if mask is None:
        return H.float().mean(1)
    return H.float().sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def _reversed_places(mask: Tensor) -> Tensor:
    """Return (B, T): the place of each slot in the reversed text; padding stays behind, where no
    state comes from.

    A packed batch would need its lengths on the host, which would wait for the device.
    """
    places = torch.arange(mask.shape[1], device=mask.device)
    back = mask.sum(1, keepdim=True) - 1 - places
    return torch.where(back >= 0, back, places)
