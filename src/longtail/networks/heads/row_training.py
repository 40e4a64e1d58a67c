"""Training of a head's rows: losses over every node of a level, the records that backward passes
leave with the head, and the optimiser step by the records of a batch.

Losses over every node are computed a chunk of nodes at a time, so that no (documents, nodes) tensor
exists. Per chunk: logits, their gradient (for cross-entropy σ − y), and its contribution to the
gradient of x. The step computes the logits again and updates the chunk's rows in place. A loss with
a normaliser over all nodes needs one more pass before.

The records of one step are all of one kind, whose ``update`` takes the step:

    rows: weights, biases and optimiser state, updated in place
    records: of this kind, at least one
    lr: learning rate
    seed: seed of the stochastic rounding
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from longtail.networks.heads import triton_launch
from longtail.networks.heads.gathers import product
from longtail.networks.heads.updates import (
    HeadRows,
    block_elements,
    update_rows,
    update_touched_rows,
)
from longtail.networks.losses import ChunkTargets, NodeLoss

__all__ = [
    "CandidateScores",
    "FullLosses",
    "FullScores",
    "Record",
    "RowGradients",
    "Targets",
    "losses_and_gradient",
    "node_chunks",
    "residuals_and_losses",
    "update_chunk",
    "with_normaliser",
]


@dataclass(frozen=True)
class Targets:
    """True nodes (B, P) int32 with −1 for padding, their targets (B, P), and the loss; other nodes
    have target 0.
    """

    positives: Tensor
    values: Tensor
    loss: NodeLoss
    # of the loss over all nodes (B, n), once the first pass is done
    normaliser: Tensor | None = None

    @classmethod
    def joined(cls, parts: Sequence[Targets]) -> Targets:
        """Return the targets of several parts of a batch, one after the other; ValueError if their
        losses differ.
        """
        losses = {id(part.loss): part.loss for part in parts}
        if len(losses) > 1:
            names = " and ".join(loss.name for loss in losses.values())
            raise ValueError(
                f"records of one step: found the losses {names}; expected one loss in a batch"
            )
        widest = max(part.positives.shape[1] for part in parts)
        positives = torch.cat([_widened(part.positives, widest, -1) for part in parts])
        values = torch.cat([_widened(part.values, widest, 0) for part in parts])
        normalisers = [part.normaliser for part in parts if part.normaliser is not None]
        if not normalisers:
            return cls(positives, values, parts[0].loss)
        return cls(positives, values, parts[0].loss, torch.cat(normalisers))

    def of_chunk(self, chunk: slice) -> ChunkTargets:
        """Return the targets of the nodes of a chunk."""
        inside = (self.positives >= chunk.start) & (self.positives < chunk.stop)
        columns = torch.where(inside, self.positives - chunk.start, 0).long()
        return ChunkTargets(columns, torch.where(inside, self.values, 0))


def _widened(tensor: Tensor, width: int, fill: int) -> Tensor:
    return functional.pad(tensor, (0, width - tensor.shape[1]), value=fill)


def node_chunks(weight: Tensor, breadth: int) -> Iterator[slice]:
    """Yield ranges of nodes, each a tensor (nodes, breadth) of a size that suits the device."""
    size = max(block_elements(weight) // max(breadth, 1), 1)
    for start in range(0, len(weight), size):
        yield slice(start, min(start + size, len(weight)))


def with_normaliser(rows: HeadRows, x: Tensor, targets: Targets) -> Targets:
    """The targets after the first pass over all nodes, if the loss has one; rows must not change
    from here on.
    """
    if not targets.loss.has_normaliser:
        return targets
    chunks = node_chunks(rows.weight, len(x))
    normaliser = targets.loss.normaliser(
        (product(x, rows.weight[chunk].T).add_(rows.bias[chunk]), targets.of_chunk(chunk))
        for chunk in chunks
    )
    return replace(targets, normaliser=normaliser)


def losses_and_gradient(rows: HeadRows, x: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
    """The loss (B,) per document, and its gradient (B, d) with respect to the document's x (d,)."""
    losses = torch.zeros(len(x), dtype=rows.bias.dtype, device=x.device)
    gradient = torch.zeros(x.shape, dtype=rows.bias.dtype, device=x.device)
    scale = torch.ones_like(losses)
    for chunk in node_chunks(rows.weight, len(x)):
        residuals, more = residuals_and_losses(rows, x, targets, scale, chunk)
        losses += more
        gradient += product(residuals, rows.weight[chunk])
    return losses, gradient


def update_chunk(
    rows: HeadRows, chunk: slice, x: Tensor, residuals: Tensor, lr: float, seed: int
) -> None:
    """One step for a range of rows, given the gradient (B, nodes) of their logits."""
    gradient = product(residuals.T, x)  # (nodes, B) · (B, d)
    bias_gradient = residuals.sum(0, dtype=gradient.dtype)
    if triton_launch.serves(rows.weight):
        triton_launch.update_all_rows(rows, chunk, gradient, bias_gradient, lr, seed)
    else:
        update_rows(rows, chunk, gradient, bias_gradient, lr, seed)


def residuals_and_losses(
    rows: HeadRows, x: Tensor, targets: Targets, scale: Tensor, chunk: slice
) -> tuple[Tensor, Tensor]:
    """Gradient of the losses for the chunk's logits · scale (B, nodes), and the chunk's share of
    the losses (B,).

    Triton kernels compute the cross-entropy where they serve; other losses are computed by torch on
    every device."""
    logits = product(x, rows.weight[chunk].T)
    bias = rows.bias[chunk]
    is_cross_entropy = vars(type(targets.loss)).get("is_cross_entropy", False)
    if is_cross_entropy and triton_launch.serves(rows.weight):
        return triton_launch.residuals_and_losses(
            logits, bias, targets.positives, targets.values, scale, chunk.start, x.dtype
        )
    losses, gradient = targets.loss.chunk(
        logits.add_(bias), targets.of_chunk(chunk), targets.normaliser
    )
    return gradient.mul_(scale[:, None]), losses


class Record(Protocol):
    """The record of one backward pass."""

    kind: ClassVar[str]

    @staticmethod
    def update(rows: HeadRows, records: Sequence[Any], lr: float, seed: int) -> None:
        """Take one step by all records of a batch; the module documents the parameters."""


@dataclass(frozen=True)
class CandidateScores:
    """The record of the scores of candidates."""

    x: Tensor  # (B, d)
    candidates: Tensor  # (B, S) int32
    gradients: Tensor  # of the logits (B, S)
    kind: ClassVar[str] = "scores of candidates"

    @staticmethod
    def update(rows: HeadRows, records: Sequence[CandidateScores], lr: float, seed: int) -> None:
        """Sort all (node, document) pairs by node: each node's gradient is then a sum over one
        run.
        """
        x = torch.cat([record.x for record in records])
        parts = [record.candidates for record in records]
        nodes = torch.cat([part.flatten() for part in parts])
        if not len(nodes):
            return
        ids = torch.arange(len(x), dtype=torch.int32, device=x.device)[:, None]
        ids_of_parts = torch.split(ids, [len(part) for part in parts])
        documents = torch.cat(
            [
                part.expand(like.shape).flatten()
                for part, like in zip(ids_of_parts, parts, strict=True)
            ]
        )
        gradients = torch.cat([record.gradients.flatten() for record in records])
        nodes, order = torch.where(nodes < 0, len(rows.weight), nodes).sort(stable=True)
        update = update_touched_rows
        if triton_launch.serves(rows.weight):
            update = triton_launch.update_touched_rows
        update(rows, x, nodes, documents[order], gradients[order], lr, seed)


@dataclass(frozen=True)
class FullScores:
    """The record of the scores of all nodes."""

    x: Tensor  # (B, d)
    gradients: Tensor  # of the logits (B, K)
    kind: ClassVar[str] = "scores of all nodes"

    @staticmethod
    def update(rows: HeadRows, records: Sequence[FullScores], lr: float, seed: int) -> None:
        """Update a chunk of the rows after another."""
        x = torch.cat([record.x for record in records])
        gradients = torch.cat([record.gradients for record in records])
        for chunk in node_chunks(rows.weight, max(x.shape)):
            update_chunk(rows, chunk, x, gradients[:, chunk], lr, seed)


@dataclass(frozen=True)
class FullLosses:
    """The record of a loss over all nodes, with the very targets and loss of the pass."""

    x: Tensor  # (B, d)
    targets: Targets
    scale: Tensor  # (B,) gradients of the documents' losses
    kind: ClassVar[str] = "full_loss"

    @staticmethod
    def update(rows: HeadRows, records: Sequence[FullLosses], lr: float, seed: int) -> None:
        """Update a chunk of the rows after another, each by its logits of before."""
        x = torch.cat([record.x for record in records])
        scale = torch.cat([record.scale for record in records])
        targets = Targets.joined([record.targets for record in records])
        for chunk in node_chunks(rows.weight, max(x.shape)):
            residuals, _ = residuals_and_losses(rows, x, targets, scale, chunk)
            update_chunk(rows, chunk, x, residuals, lr, seed)


@dataclass(frozen=True)
class RowGradients:
    """The record of gathered rows."""

    nodes: Tensor  # (U,) int64, each once
    gradients: Tensor  # (U, d)
    kind: ClassVar[str] = "gathered rows"

    @staticmethod
    def update(rows: HeadRows, records: Sequence[RowGradients], lr: float, seed: int) -> None:
        """Update the gathered rows by the sums of their gradients."""
        touched = records[0].nodes
        gradient = records[0].gradients
        if len(records) > 1:
            touched, positions = torch.unique(
                torch.cat([record.nodes for record in records]), return_inverse=True
            )
            gradient = rows.bias.new_zeros(len(touched), rows.weight.shape[1])
            parts = positions.split([len(record.nodes) for record in records])
            for part, record in zip(parts, records, strict=True):
                # each node once, so that the sum is the same bytes on every device
                gradient[part] += record.gradients
        no_gradient = torch.zeros_like(gradient[:, 0])  # of biases, which are not part of the rows
        for block in node_chunks(gradient, gradient.shape[1]):
            update_rows(rows, touched[block], gradient[block], no_gradient[block], lr, seed)
