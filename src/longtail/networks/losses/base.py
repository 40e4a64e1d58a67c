"""The contract of losses of networks: values on shortlists, gradients with respect to the scores,
and sums over all labels in chunks.

On a shortlist torch differentiates :meth:`Loss.value`. Where all labels of a level are scored, no
tensor of documents by labels exists: :meth:`NodeLoss.chunk` gives the losses and the gradient of
one chunk of the labels after another."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from longtail.errors import UsageError

__all__ = [
    "ChunkTargets",
    "Loss",
    "NodeLoss",
    "PointwiseLoss",
    "UserLoss",
    "checked_gamma",
    "focal_positive",
    "focal_slope",
    "loss_named",
    "loss_of",
]


class Loss(ABC):
    """The loss of documents by the scores of their nodes."""

    name: str
    # whether a pass over all labels comes before their gradient
    has_normaliser: ClassVar[bool] = False

    @property
    def by_node(self) -> NodeLoss | None:
        """This loss if it knows the weights of nodes; None for functions of users."""
        return None

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

    # binary cross-entropy itself, which Triton kernels compute; not inherited, as a subclass is
    # another loss
    is_cross_entropy: ClassVar[bool] = False

    @property
    def by_node(self) -> NodeLoss:
        """This loss."""
        return self

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


def loss_named(name: str) -> Loss:
    """Return the loss of the setting ``training.loss``; of ``custom`` one that predicts, but cannot
    be trained by.
    """
    if name == "custom":
        return UserLoss(_missing)
    module = import_module(f"{__package__}.{name.replace('-', '_')}")
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, Loss) and vars(kind).get("name") == name:
            return kind()
    raise TypeError(f"{module.__name__}: found no loss with the name {name!r}; expected one")


def loss_of(loss: Loss | Callable[[Tensor, Tensor, Tensor], Tensor]) -> Loss:
    """Return a loss, or a function as one."""
    if isinstance(loss, Loss):
        return loss
    return UserLoss(loss)


def _missing(scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    raise UsageError(
        "training.loss: found custom without a loss; expected the one of training as loss="
    )


def checked_gamma(name: str, gamma: float) -> float:
    """Return γ; below 1 its power would have no derivative where the score is certain."""
    if not (gamma == 0 or 1 <= gamma < math.inf):
        raise UsageError(f"{name}: found {gamma!r}; expected 0, or a number of at least 1")
    return float(gamma)


def focal_positive(scores: Tensor, gamma: float) -> Tensor:
    """Return −(1 − σ)^γ·log σ."""
    return (-scores).sigmoid().pow(gamma) * functional.softplus(-scores)


def focal_slope(scores: Tensor, gamma: float) -> Tensor:
    """Return the derivative of −(1 − σ)^γ·log σ: −(1 − σ)^γ·(1 − σ − γ·σ·log σ)."""
    complement = (-scores).sigmoid()
    return -complement.pow(gamma) * (
        complement + gamma * scores.sigmoid() * functional.softplus(-scores)
    )
