"""Records that backward passes leave with a head, and the optimiser step on its rows by the records
of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longtail.networks.heads import full_head, triton_launch, updates
from longtail.networks.heads.full_head import Targets
from longtail.networks.heads.updates import HeadRows

__all__ = ["LossRecord", "Record", "RowGradients", "update_by"]


@dataclass(frozen=True)
class Record:
    """The record of the backward pass of scores."""

    x: Tensor  # (B, d)
    candidates: Tensor | None  # (B, S) int32; None: all nodes
    gradients: Tensor  # of the logits (B, S or K)

    @property
    def kind(self) -> str:
        """The nodes that were scored; the records of one step are all of one kind."""
        if self.candidates is None:
            return "scores of all nodes"
        return "scores of candidates"


@dataclass(frozen=True)
class LossRecord:
    """The record of the backward pass of a loss over all nodes, with the very targets and loss of
    the pass.
    """

    x: Tensor  # (B, d)
    targets: Targets
    scale: Tensor  # (B,) gradients of the documents' losses
    kind: ClassVar[str] = "full_loss"


@dataclass(frozen=True)
class RowGradients:
    """The record of the backward pass of gathered rows."""

    nodes: Tensor  # (U,) int64, each once
    gradients: Tensor  # (U, d)
    kind: ClassVar[str] = "gathered rows"


def update_by(
    rows: HeadRows, records: Sequence[Record | LossRecord | RowGradients], lr: float, seed: int
) -> None:
    """Take one step by all records of a batch, of which there is at least one.

    Args:
        rows: Weights, biases and optimiser state, updated in place.
        records: Of one kind.
        lr: Learning rate.
        seed: Seed of the stochastic rounding.
    """
    kinds = {record.kind for record in records}
    if len(kinds) > 1:
        raise ValueError(
            f"records of one step: found {' and '.join(sorted(kinds))}; "
            "expected one kind in a batch"
        )
    of_rows = [record for record in records if isinstance(record, RowGradients)]
    of_losses = [record for record in records if isinstance(record, LossRecord)]
    of_logits = [record for record in records if isinstance(record, Record)]
    if of_rows:
        _update_gathered(rows, of_rows, lr, seed)
    elif of_losses:
        _update_by_losses(rows, of_losses, lr, seed)
    elif of_logits[0].candidates is None:
        _update_all(rows, of_logits, lr, seed)
    else:
        _update_touched(rows, of_logits, lr, seed)


def _update_gathered(rows: HeadRows, records: list[RowGradients], lr: float, seed: int) -> None:
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


def _update_touched(rows: HeadRows, records: list[Record], lr: float, seed: int) -> None:
    """Sort all (node, document) pairs by node: each node's gradient is then a sum over one run."""
    x = torch.cat([record.x for record in records])
    parts = [record.candidates for record in records if record.candidates is not None]
    nodes = torch.cat([part.flatten() for part in parts])
    if not len(nodes):
        return
    ids = torch.arange(len(x), dtype=torch.int32, device=x.device)[:, None]
    ids_of_parts = torch.split(ids, [len(part) for part in parts])
    documents = torch.cat(
        [part.expand(like.shape).flatten() for part, like in zip(ids_of_parts, parts, strict=True)]
    )
    gradients = torch.cat([record.gradients.flatten() for record in records])
    nodes, order = torch.where(nodes < 0, len(rows.weight), nodes).sort(stable=True)
    update = updates.update_touched_rows
    if triton_launch.serves(rows.weight):
        update = triton_launch.update_touched_rows
    update(rows, x, nodes, documents[order], gradients[order], lr, seed)


def _update_all(rows: HeadRows, records: list[Record], lr: float, seed: int) -> None:
    x = torch.cat([record.x for record in records])
    gradients = torch.cat([record.gradients for record in records])
    for chunk in full_head.node_chunks(rows.weight, max(x.shape)):
        full_head.update_chunk(rows, chunk, x, gradients[:, chunk], lr, seed)


def _update_by_losses(rows: HeadRows, records: list[LossRecord], lr: float, seed: int) -> None:
    x = torch.cat([record.x for record in records])
    scale = torch.cat([record.scale for record in records])
    full_head.update(
        rows, x, Targets.joined([record.targets for record in records]), scale, lr, seed
    )
