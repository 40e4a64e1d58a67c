"""Binary cross-entropy."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from longtail.networks.losses.base import ChunkTargets, PointwiseLoss

__all__ = ["BinaryCrossEntropy"]


class BinaryCrossEntropy(PointwiseLoss):
    """Binary cross-entropy with hard or soft targets."""

    name = "bce"
    is_cross_entropy = True

    def positive(self, scores: Tensor) -> Tensor:
        """Return −log σ(p)."""
        return functional.softplus(-scores)

    def negative(self, scores: Tensor) -> Tensor:
        """Return −log(1 − σ(p))."""
        return functional.softplus(scores)

    def slopes(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return σ(p) − 1 and σ(p)."""
        return -(-scores).sigmoid(), scores.sigmoid()

    def value(self, scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        """Return the cross-entropy of each document (B,)."""
        points = functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
        return (points * counted).sum(1)

    def chunk(
        self, scores: Tensor, targets: ChunkTargets, normaliser: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return Σ softplus(p) − Σ y·p, and σ(p) − y, without targets of all columns."""
        columns, values = targets
        losses = functional.softplus(scores).sum(1) - (values * scores.gather(1, columns)).sum(1)
        return losses, scores.sigmoid_().scatter_add_(1, columns, -values)
