"""Squared hinge."""

from __future__ import annotations

from torch import Tensor

from longtail.networks.losses.base import PointwiseLoss

__all__ = ["SquaredHinge"]


class SquaredHinge(PointwiseLoss):
    """Squared hinge; a node is a positive, with weight y, or if y is 0 a negative."""

    name = "squared-hinge"

    def weights(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and [y = 0]."""
        return targets, (targets == 0).to(targets.dtype)

    def positive(self, scores: Tensor) -> Tensor:
        """Return max(0, 1 − p)²."""
        return (1 - scores).relu().square()

    def negative(self, scores: Tensor) -> Tensor:
        """Return max(0, 1 + p)²."""
        return (1 + scores).relu().square()

    def slopes(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return −2·max(0, 1 − p) and 2·max(0, 1 + p)."""
        return -2 * (1 - scores).relu(), 2 * (1 + scores).relu()
