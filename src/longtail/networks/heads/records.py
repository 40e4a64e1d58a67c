"""Records that backward passes leave with a head, and the optimiser step on its rows by the records
of a batch.

The records of one step are all of one kind, whose ``update`` takes the step:

    rows: weights, biases and optimiser state, updated in place
    records: of this kind, at least one
    lr: learning rate
    seed: seed of the stochastic rounding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from longtail.networks.heads import full_head, triton_launch, updates
from longtail.networks.heads.full_head import Targets
from longtail.networks.heads.updates import HeadRows

__all__ = ["CandidateScores", "FullLosses", "FullScores", "Record", "RowGradients"]


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
        update = updates.update_touched_rows
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
        for chunk in full_head.node_chunks(rows.weight, max(x.shape)):
            full_head.update_chunk(rows, chunk, x, gradients[:, chunk], lr, seed)


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
        for chunk in full_head.node_chunks(rows.weight, max(x.shape)):
            residuals, _ = full_head.residuals_and_losses(rows, x, targets, scale, chunk)
            full_head.update_chunk(rows, chunk, x, residuals, lr, seed)


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
        for block in full_head.node_chunks(gradient, gradient.shape[1]):
            updates.update_rows(rows, touched[block], gradient[block], no_gradient[block], lr, seed)
