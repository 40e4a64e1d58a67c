"""Losses over every node of a level, a chunk of nodes at a time, so that no (documents, nodes)
tensor exists.

Per chunk: logits, their gradient (for cross-entropy σ − y), and its contribution to the gradient of
x. The step of `records.py` computes the logits again and updates the chunk's rows in place. A loss
with a normaliser over all nodes needs one more pass before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from longtail.networks.heads import triton_launch
from longtail.networks.heads.gathers import product
from longtail.networks.heads.updates import HeadRows, block_elements, update_rows
from longtail.networks.losses import BinaryCrossEntropy, ChunkTargets, NodeLoss

__all__ = [
    "Targets",
    "best",
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
        (_logits(rows, x, chunk), targets.of_chunk(chunk)) for chunk in chunks
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


def best(rows: HeadRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best logits of all nodes and the nodes themselves (int32), (B, k) each, best first."""
    top = torch.empty(len(x), 0, dtype=rows.bias.dtype, device=x.device)
    nodes = torch.empty(len(x), 0, dtype=torch.int64, device=x.device)
    for chunk in node_chunks(rows.weight, len(x)):
        logits = _logits(rows, x, chunk)
        best_logits, columns = logits.topk(min(k, logits.shape[1]), 1)
        top = torch.cat([top, best_logits], 1)
        nodes = torch.cat([nodes, columns + chunk.start], 1)
        top, order = top.topk(min(k, top.shape[1]), 1)
        nodes = nodes.gather(1, order)
    return top, nodes.to(torch.int32)


def _logits(rows: HeadRows, x: Tensor, chunk: slice) -> Tensor:
    return product(x, rows.weight[chunk].T).add_(rows.bias[chunk])


def residuals_and_losses(
    rows: HeadRows, x: Tensor, targets: Targets, scale: Tensor, chunk: slice
) -> tuple[Tensor, Tensor]:
    """Gradient of the losses for the chunk's logits · scale (B, nodes), and the chunk's share of
    the losses (B,).

    Triton kernels compute the cross-entropy where they serve; other losses are computed by torch on
    every device."""
    logits = product(x, rows.weight[chunk].T)
    bias = rows.bias[chunk]
    if type(targets.loss) is BinaryCrossEntropy and triton_launch.serves(rows.weight):
        return triton_launch.residuals_and_losses(
            logits, bias, targets.positives, targets.values, scale, chunk.start, x.dtype
        )
    losses, gradient = targets.loss.chunk(
        logits.add_(bias), targets.of_chunk(chunk), targets.normaliser
    )
    return gradient.mul_(scale[:, None]), losses
