"""One-vs-all over every node of a level, a chunk of nodes at a time, so that no (documents, nodes) tensor exists.

For each chunk: logits, σ − y, and its share of the gradient of x; `update` does it again and updates the chunk's rows
in place. The loss of a document is the sum over all nodes of softplus(z) − y z.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from longtail.neural.heads import triton_launch
from longtail.neural.heads.gathers import product
from longtail.neural.heads.updates import HeadRows, block_elements, update_rows

__all__ = ["Targets", "best", "losses_and_gradient", "node_chunks", "residuals_and_losses", "update", "update_chunk"]


@dataclass(frozen=True)
class Targets:
    """True nodes (B, P) int32 with −1 for padding, and their targets (B, P); all other nodes have target 0."""

    positives: Tensor
    values: Tensor


def node_chunks(weight: Tensor, breadth: int) -> Iterator[slice]:
    """Ranges of nodes of which a tensor (nodes, breadth) is of a good size for the weight's device."""
    size = max(block_elements(weight) // max(breadth, 1), 1)
    for start in range(0, len(weight), size):
        yield slice(start, min(start + size, len(weight)))


def losses_and_gradient(rows: HeadRows, x: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
    """The loss (B,) of each document, and the gradient (B, d) of each for its own row of x (B, d)."""
    losses = torch.zeros(len(x), dtype=rows.bias.dtype, device=x.device)
    gradient = torch.zeros(x.shape, dtype=rows.bias.dtype, device=x.device)
    scale = torch.ones_like(losses)
    for chunk in node_chunks(rows.weight, len(x)):
        residuals, more = residuals_and_losses(rows, x, targets, scale, chunk)
        losses += more
        gradient += product(residuals, rows.weight[chunk])
    return losses, gradient


def update(rows: HeadRows, x: Tensor, targets: Targets, scale: Tensor, lr: float, seed: int) -> None:
    """One step on the losses of x (B, d) weighted by scale (B,), each chunk of rows from its own logits."""
    for chunk in node_chunks(rows.weight, max(x.shape)):
        residuals, _ = residuals_and_losses(rows, x, targets, scale, chunk)
        update_chunk(rows, chunk, x, residuals, lr, seed)


def update_chunk(rows: HeadRows, chunk: slice, x: Tensor, residuals: Tensor, lr: float, seed: int) -> None:
    """One step for a range of rows, given the gradient (B, nodes) of their logits."""
    gradient = product(residuals.T, x)  # (nodes, B) · (B, d)
    move = triton_launch.update_all_rows if triton_launch.serves(rows.weight) else update_rows
    move(rows, chunk, gradient, residuals.sum(0, dtype=gradient.dtype), lr, seed)


def best(rows: HeadRows, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best logits of all nodes and the nodes themselves (int32), (B, k) each, best first."""
    top = torch.empty(len(x), 0, dtype=rows.bias.dtype, device=x.device)
    nodes = torch.empty(len(x), 0, dtype=torch.int64, device=x.device)
    for chunk in node_chunks(rows.weight, len(x)):
        logits = _logits(rows, x, chunk)
        found, places = logits.topk(min(k, logits.shape[1]), 1)
        top, nodes = torch.cat([top, found], 1), torch.cat([nodes, places + chunk.start], 1)
        top, order = top.topk(min(k, top.shape[1]), 1)
        nodes = nodes.gather(1, order)
    return top, nodes.to(torch.int32)


def _logits(rows: HeadRows, x: Tensor, chunk: slice) -> Tensor:
    return product(x, rows.weight[chunk].T).add_(rows.bias[chunk])


def residuals_and_losses(
    rows: HeadRows, x: Tensor, targets: Targets, scale: Tensor, chunk: slice
) -> tuple[Tensor, Tensor]:
    """(σ(z) − y) · scale (B, nodes of the chunk), and the chunk's share of the losses (B,)."""
    if triton_launch.serves(rows.weight):
        logits, bias = product(x, rows.weight[chunk].T), rows.bias[chunk]
        positives, values = targets.positives, targets.values
        return triton_launch.residuals_and_losses(logits, bias, positives, values, scale, chunk.start, x.dtype)
    logits = _logits(rows, x, chunk)
    inside = (targets.positives >= chunk.start) & (targets.positives < chunk.stop)
    columns = torch.where(inside, targets.positives - chunk.start, 0).long()
    values = torch.where(inside, targets.values, 0)  # those of other chunks are column 0 with target 0
    losses = functional.softplus(logits).sum(1) - (values * logits.gather(1, columns)).sum(1)
    return logits.sigmoid_().scatter_add_(1, columns, -values).mul_(scale[:, None]), losses
