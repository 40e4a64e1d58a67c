"""Focal loss."""

from __future__ import annotations

from torch import Tensor

from longtail.networks.losses.base import (
    PointwiseLoss,
    checked_gamma,
    focal_positive,
    focal_slope,
)

__all__ = ["Focal"]


class Focal(PointwiseLoss):
    """Focal loss: nodes that are scored well already count less, by (1 − σ)^γ and σ^γ; with γ = 0
    it is ``bce``.
    """

    name = "focal"

    def __init__(self, gamma: float = 2.0) -> None:
        self.gamma = checked_gamma("gamma", gamma)

    def positive(self, scores: Tensor) -> Tensor:
        """Return −(1 − σ)^γ·log σ."""
        return focal_positive(scores, self.gamma)

    def negative(self, scores: Tensor) -> Tensor:
        """Return −σ^γ·log(1 − σ)."""
        return focal_positive(-scores, self.gamma)

    def slopes(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives; that of negatives is that of positives, mirrored."""
        return focal_slope(scores, self.gamma), -focal_slope(-scores, self.gamma)
