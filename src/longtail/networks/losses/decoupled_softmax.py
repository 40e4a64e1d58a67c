"""Decoupled softmax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from longtail.networks.losses.base import ChunkTargets, NodeLoss

__all__ = ["DecoupledSoftmax"]


class DecoupledSoftmax(NodeLoss):
    """Decoupled softmax: each positive stands against all negatives of its document, and against no
    other positive.

    As a negative, a node weighs in Z.
    """

    name = "decoupled-softmax"
    has_normaliser = True

    def weights(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and [y = 0]."""
        return targets, (targets == 0).to(targets.dtype)

    def weighted(
        self, scores: Tensor, positive: Tensor, negative: Tensor, counted: Tensor
    ) -> Tensor:
        """Return Σ positive·log(1 + Z/eᵖ) of each document (B,), Z = Σ negative·eᵖ."""
        weights = positive * counted, negative * counted
        losses: Tensor = _DecoupledSoftmax.apply(scores, *weights)  # type: ignore[no-untyped-call]
        return losses

    def normaliser(self, chunks: Iterable[tuple[Tensor, ChunkTargets]]) -> Tensor | None:
        """Return log Z, and Σ y·σ(log Z − p) over the positives, by which negatives are pushed
        down: (B, 2).
        """
        log_z: Tensor | None = None
        of_positives: Tensor | None = None
        targets: Tensor | None = None
        for scores, own_targets in chunks:
            columns, values = own_targets
            negatives = scores.masked_fill(own_targets.dense(scores) > 0, -torch.inf)
            log_sum = negatives.logsumexp(1)
            gathered = torch.where(values > 0, scores.gather(1, columns), 0)
            if log_z is None or of_positives is None or targets is None:
                log_z = log_sum
                of_positives = gathered
                targets = values
            else:
                log_z = torch.logaddexp(log_z, log_sum)
                of_positives = of_positives + gathered  # a positive is in one chunk
                targets = targets + values
        if log_z is None or of_positives is None or targets is None:
            return None
        push = (targets * (log_z[:, None] - of_positives).sigmoid()).sum(1)
        return torch.stack([log_z, push], 1)

    def chunk(
        self, scores: Tensor, targets: ChunkTargets, normaliser: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return losses and gradient of a chunk, given log Z of all labels."""
        if normaliser is None:
            raise ValueError(
                "decoupled softmax: found a chunk without normaliser; expected the first pass "
                "before"
            )
        log_z = normaliser[:, :1]
        push = normaliser[:, 1:]
        dense = targets.dense(scores)
        losses = (dense * functional.softplus(log_z - scores)).sum(1)
        of_positives = -dense * (log_z - scores).sigmoid()
        of_negatives = push * (scores - log_z).exp()
        return losses, torch.where(dense > 0, of_positives, of_negatives)


class _DecoupledSoftmax(torch.autograd.Function):
    """The decoupled softmax of shortlists, by weights that are 0 at padding; documents may have no
    negatives.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        log_terms = torch.where(negative > 0, scores + negative.clamp(min=1e-30).log(), -torch.inf)
        log_z = log_terms.logsumexp(1, keepdim=True)
        ctx.save_for_backward(scores, positive, log_terms, log_z)
        return (positive * functional.softplus(log_z - scores)).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        scores, positive, log_terms, log_z = ctx.saved_tensors
        pull = positive * (log_z - scores).sigmoid()
        share = torch.where(log_terms.isfinite(), (log_terms - log_z).exp(), 0)
        return gradients[:, None] * (share * pull.sum(1, keepdim=True) - pull), None, None
