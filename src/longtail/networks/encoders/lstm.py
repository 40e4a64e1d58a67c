"""A bidirectional LSTM over vectors of words: one state a token, as AttentionXML reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from longtail.errors import UsageError
from longtail.networks.encoders.word_encoder import WordEncoder

__all__ = ["LstmEncoder", "mean_state"]

_HIDDEN = 256  # h of encoders whose folder does not name it
_MOST_HIDDEN = 8192  # what a folder may ask for, as the setting attention.hidden


class LstmEncoder(WordEncoder):
    """Vectors of words, read from both sides: H (B, T, 2h); as one vector of a text the mean of its
    states.

    Texts begin in the first slot, padding is behind them.
    """

    kind: ClassVar[str] = "lstm"

    def __init__(
        self,
        vectors: Tensor,
        idf: Tensor,
        pad: int,
        max_tokens: int,
        hidden: int = _HIDDEN,
        word_dropout: float = 0.0,
    ) -> None:
        """Make an encoder that starts at ``vectors``.

        Args:
            vectors: of the words (V, D), taken as they are.
            idf: weights of the words (V,), not read.
            pad: id of padding.
            max_tokens: longest text.
            hidden: numbers of a state in each direction, h.
            word_dropout: share of the numbers of word vectors that are dropped in training.
        """
        super().__init__(vectors, idf, pad, max_tokens)
        self.hidden = hidden
        self.word_dropout = word_dropout
        self.width = 2 * hidden
        self.depth = 1
        self.forwards = nn.LSTM(self.dimensions, hidden, batch_first=True)
        self.backwards = nn.LSTM(self.dimensions, hidden, batch_first=True)

    def options(self) -> dict[str, int]:
        """Return h."""
        return {"hidden": self.hidden}

    @classmethod
    def from_config(cls, about: Mapping[str, Any], vectors: Tensor, idf: Tensor) -> LstmEncoder:
        """Return an encoder as config.json describes it; folders that do not name h have 256."""
        hidden = about.get("hidden", _HIDDEN)
        if type(hidden) is not int or not 1 <= hidden <= _MOST_HIDDEN:
            problem = f"{str(hidden)[:60]!r} as hidden"
            raise UsageError(
                f"encoder 'lstm': config.json: found {problem}; expected 1 to {_MOST_HIDDEN}"
            )
        return cls(vectors, idf, about["pad"], about["max_tokens"], hidden)

    def states(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return H (B, T, 2h), 0 at padding; ``ids`` (B, T) int64, ``mask`` (B, T) bool or None."""
        x = dropout(self.embedding(ids), self.word_dropout, self.training)  # (B, T, D)
        if not len(ids):  # one of several processes may have no document of a batch
            return x @ x.new_zeros(self.dimensions, self.width)
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
