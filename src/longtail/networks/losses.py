"""Losses of networks: values on shortlists, gradients with respect to the scores, and sums over all
labels in chunks.

With p the score of a node, σ the logistic function and y ∈ [0, 1] the node's target, the loss of a
document is

    bce                Σ −y·log σ(p) − (1 − y)·log(1 − σ(p))
    squared-hinge      Σ y·max(0, 1 − p)² + [y = 0]·max(0, 1 + p)²
    focal              Σ −y·(1 − σ(p))^γ·log σ(p) − (1 − y)·σ(p)^γ·log(1 − σ(p))
    asymmetric         Σ −y·(1 − σ(p))^γ₊·log σ(p) − (1 − y)·q^γ₋·log(1 − q),  q = max(σ(p) − m, 0)
    decoupled-softmax  Σ −y·log(eᵖ / (eᵖ + Z)),  Z = Σ eᵖ over the nodes with y = 0

over the nodes that are scored for it, padding left out. ``bce`` with 0 < y < 1 is the cross-entropy
with a soft target.

Focal: Lin et al. 2017, Focal Loss for Dense Object Detection. Asymmetric: Ridnik et al. 2021,
Asymmetric Loss for Multi-Label Classification. Decoupled softmax: Gupta et al. 2024, Dual-Encoders
for Extreme Multi-Label Classification.

On a shortlist torch differentiates :meth:`Loss.value`. Where all labels of a level are scored, no
tensor of documents by labels exists: :meth:`NodeLoss.chunk` gives the losses and the gradient of
one chunk of the labels after another."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from longtail.errors import UsageError

__all__ = [
    "Asymmetric",
    "BinaryCrossEntropy",
    "ChunkTargets",
    "DecoupledSoftmax",
    "Focal",
    "Loss",
    "NodeLoss",
    "PointwiseLoss",
    "SquaredHinge",
    "UserLoss",
    "loss_named",
    "loss_of",
]


class Loss(ABC):
    """The loss of documents by the scores of their nodes."""

    name: str

    def __call__(self, scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        """Return :meth:`value`: a loss is called as a function of the user is."""
        return self.value(scores, targets, counted)

    @abstractmethod
    def value(self, scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        """Return the loss of each document (B,), the sum over its nodes; torch differentiates it.

        Args:
            scores: p (B, S).
            targets: y (B, S), from 0 to 1.
            counted: Slots (B, S), bool, that hold a node; the others are padding.
        """


class ChunkTargets(NamedTuple):
    """Targets of one chunk of the labels; all columns that are not listed have target 0."""

    columns: Tensor  # (B, P) int64, columns of the chunk
    values: Tensor  # (B, P) targets; 0 for true labels of other chunks, which stand at column 0

    def dense(self, scores: Tensor) -> Tensor:
        """Return the targets of all columns (B, C)."""
        return torch.zeros_like(scores).scatter_add_(1, self.columns, self.values.to(scores.dtype))


class NodeLoss(Loss):
    """A loss in which each node has a weight as a positive and one as a negative of its
    document.
    """

    # whether a pass over all labels comes before their gradient
    has_normaliser: ClassVar[bool] = False

    @abstractmethod
    def weights(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of nodes as positives and as negatives, by their targets."""

    @abstractmethod
    def weighted(
        self, scores: Tensor, positive: Tensor, negative: Tensor, counted: Tensor
    ) -> Tensor:
        """Return the loss of each document (B,) with other weights than those of the targets.

        Args:
            scores: p (B, S).
            positive: Weights (B, S) of the nodes as positives.
            negative: Weights (B, S) of the nodes as negatives.
            counted: Slots (B, S), bool, that hold a node.
        """

    def value(self, scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        """Return the loss of each document (B,)."""
        positive, negative = self.weights(targets)
        return self.weighted(scores, positive, negative, counted)

    def normaliser(self, chunks: Iterable[tuple[Tensor, ChunkTargets]]) -> Tensor | None:
        """Return sums over all labels (B, n) for the gradient of a chunk; None if it needs none.

        Args:
            chunks: Scores (B, C) and targets of each chunk of the labels.
        """
        return None

    @abstractmethod
    def chunk(
        self, scores: Tensor, targets: ChunkTargets, normaliser: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the share of a chunk of labels in the losses (B,), and the gradient of the losses
        for its scores.

        Args:
            scores: p (B, C); they may be overwritten.
            targets: Targets of the chunk.
            normaliser: That of :meth:`normaliser` over all chunks.
        """


class PointwiseLoss(NodeLoss):
    """A loss that is a sum over nodes, each by its own score.

    A subclass defines :meth:`positive` and :meth:`negative`. Without :meth:`slopes` torch
    differentiates these."""

    @abstractmethod
    def positive(self, scores: Tensor) -> Tensor:
        """Return the loss of positives by their scores."""

    @abstractmethod
    def negative(self, scores: Tensor) -> Tensor:
        """Return the loss of negatives by their scores."""

    def slopes(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives of :meth:`positive` and :meth:`negative`."""
        with torch.enable_grad():
            p = scores.detach().requires_grad_()
            (of_positives,) = torch.autograd.grad(self.positive(p).sum(), p)
            (of_negatives,) = torch.autograd.grad(self.negative(p).sum(), p)
        return of_positives, of_negatives

    def weights(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and 1 − y."""
        return targets, 1 - targets

    def weighted(
        self, scores: Tensor, positive: Tensor, negative: Tensor, counted: Tensor
    ) -> Tensor:
        """Return Σ positive·L⁺(p) + negative·L⁻(p) of each document (B,)."""
        points = positive * self.positive(scores) + negative * self.negative(scores)
        return (points * counted).sum(1)

    def chunk(
        self, scores: Tensor, targets: ChunkTargets, normaliser: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return losses and gradient of a chunk, all of whose labels count."""
        positive, negative = self.weights(targets.dense(scores))
        losses = (positive * self.positive(scores) + negative * self.negative(scores)).sum(1)
        of_positives, of_negatives = self.slopes(scores)
        return losses, positive * of_positives + negative * of_negatives


class BinaryCrossEntropy(PointwiseLoss):
    """Binary cross-entropy with hard or soft targets."""

    name = "bce"

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


class Focal(PointwiseLoss):
    """Focal loss: nodes that are scored well already count less, by (1 − σ)^γ and σ^γ; with γ = 0
    it is ``bce``.
    """

    name = "focal"

    def __init__(self, gamma: float = 2.0) -> None:
        self.gamma = _checked_gamma("gamma", gamma)

    def positive(self, scores: Tensor) -> Tensor:
        """Return −(1 − σ)^γ·log σ."""
        return _focal_positive(scores, self.gamma)

    def negative(self, scores: Tensor) -> Tensor:
        """Return −σ^γ·log(1 − σ)."""
        return _focal_positive(-scores, self.gamma)

    def slopes(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives; that of negatives is that of positives, mirrored."""
        return _focal_slope(scores, self.gamma), -_focal_slope(-scores, self.gamma)


class Asymmetric(PointwiseLoss):
    """Asymmetric loss (ASL): a γ for positives and one for negatives, which count nothing with σ
    below the margin.
    """

    name = "asymmetric"

    def __init__(
        self, gamma_positive: float = 1.0, gamma_negative: float = 4.0, margin: float = 0.05
    ) -> None:
        self.gamma_positive = _checked_gamma("gamma_positive", gamma_positive)
        self.gamma_negative = _checked_gamma("gamma_negative", gamma_negative)
        if not 0 <= margin < 1:
            raise UsageError(f"margin: found {margin!r}; expected a number from 0 to below 1")
        self.margin = float(margin)
        self._log_margin = -math.inf
        if margin:
            self._log_margin = math.log(margin)

    def positive(self, scores: Tensor) -> Tensor:
        """Return −(1 − σ)^γ₊·log σ."""
        return _focal_positive(scores, self.gamma_positive)

    def negative(self, scores: Tensor) -> Tensor:
        """Return −q^γ₋·log(1 − q)."""
        shifted = self._shifted(scores)
        return -shifted.pow(self.gamma_negative) * self._log_complement(scores)

    def slopes(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives; that of negatives is 0 where σ is at most m."""
        gamma = self.gamma_negative
        shifted = self._shifted(scores)
        log_complement = self._log_complement(scores)
        sigma_slope = scores.sigmoid() * (-scores).sigmoid()
        of_power = torch.zeros_like(scores)
        if gamma:
            of_power = -gamma * shifted.pow(gamma - 1) * log_complement
        of_log = shifted.pow(gamma) * (-log_complement).exp()
        of_negatives = torch.where(shifted > 0, sigma_slope * (of_power + of_log), 0)
        return _focal_slope(scores, self.gamma_positive), of_negatives

    def _shifted(self, scores: Tensor) -> Tensor:
        """Return q = max(σ − m, 0)."""
        return (scores.sigmoid() - self.margin).relu()

    def _log_complement(self, scores: Tensor) -> Tensor:
        """Return log(1 − q) = log(1 − σ + m), at most 0; finite for every score."""
        log_margin = scores.new_full((), self._log_margin)
        return torch.logaddexp(functional.logsigmoid(-scores), log_margin).clamp(max=0)


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


class UserLoss(Loss):
    """A function of the user: ``function(scores, targets, counted)`` returns the losses (B,), as
    :meth:`Loss.value`.

    torch differentiates it. Where all labels are scored, it is given the scores of all (B, L) at
    once."""

    name = "custom"

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        self.function = function

    def value(self, scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        """Return the function's result; UsageError if that is no loss of each document."""
        losses = self.function(scores, targets, counted)
        if not isinstance(losses, Tensor) or losses.shape != scores.shape[:1]:
            value = (
                f"a tensor {tuple(losses.shape)}"
                if isinstance(losses, Tensor)
                else repr(losses)[:80]
            )
            expected = f"expected a tensor ({len(scores)},), the loss of each document"
            raise UsageError(f"loss: found {value} for scores {tuple(scores.shape)}; {expected}")
        return losses


_NAMED: dict[str, Callable[[], Loss]] = {
    "bce": BinaryCrossEntropy,
    "squared-hinge": SquaredHinge,
    "focal": Focal,
    "asymmetric": Asymmetric,
    "decoupled-softmax": DecoupledSoftmax,
}


def loss_named(name: str) -> Loss:
    """Return the loss of the setting ``training.loss``; of ``custom`` one that predicts, but cannot
    be trained by.
    """
    if name == "custom":
        return UserLoss(_missing)
    return _NAMED[name]()


def loss_of(loss: Loss | Callable[[Tensor, Tensor, Tensor], Tensor]) -> Loss:
    """Return a loss, or a function as one."""
    if isinstance(loss, Loss):
        return loss
    return UserLoss(loss)


def _missing(scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    raise UsageError(
        "training.loss: found custom without a loss; expected the one of training as loss="
    )


def _checked_gamma(name: str, gamma: float) -> float:
    """Return γ; below 1 its power would have no derivative where the score is certain."""
    if not (gamma == 0 or 1 <= gamma < math.inf):
        raise UsageError(f"{name}: found {gamma!r}; expected 0, or a number of at least 1")
    return float(gamma)


def _focal_positive(scores: Tensor, gamma: float) -> Tensor:
    """Return −(1 − σ)^γ·log σ."""
    return (-scores).sigmoid().pow(gamma) * functional.softplus(-scores)


def _focal_slope(scores: Tensor, gamma: float) -> Tensor:
    """Return the derivative of −(1 − σ)^γ·log σ: −(1 − σ)^γ·(1 − σ − γ·σ·log σ)."""
    complement = (-scores).sigmoid()
    return -complement.pow(gamma) * (
        complement + gamma * scores.sigmoid() * functional.softplus(-scores)
    )
