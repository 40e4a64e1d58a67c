"""What a network reads documents with: a pretrained transformer, or a small encoder on vectors of
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from torch import Tensor
from torch.nn import Embedding, Module, Parameter

__all__ = ["TextEncoder"]


class TextEncoder(Module):
    """Turns token ids into vectors of ``width`` numbers, after any of its ``depth`` layers."""

    kind: ClassVar[str]  # the setting encoder.kind
    width: int
    depth: int

    def forward(
        self, ids: Tensor, mask: Tensor | None, layers: Sequence[int], detached: Sequence[int] = ()
    ) -> list[Tensor]:
        """Return (B, width) after each of ``layers``.

        Args:
            ids: Token ids (B, T) int64.
            mask: (B, T) bool, True at tokens; None says that nothing is padded.
            layers: Numbers of layers; 1 is the first.
            detached: Those of ``layers`` whose gradient stops before what they share with other
                layers: they train parameters of their own, if they have any, and no others.
        """
        raise NotImplementedError

    def token_vectors(self) -> Embedding:
        """Return the vectors of tokens."""
        raise NotImplementedError

    def decay_groups(self) -> tuple[list[Parameter], list[Parameter]]:
        """Return the parameters with weight decay, and those without."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors."""
        raise NotImplementedError
