"""Dynamic shortlists: which nodes of a level are scored for each document (eq. 1–3 of CascadeXML),
on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from longtail.tree.tree import LabelTree

__all__ = ["Shortlist", "TreeTables", "best_nodes"]


class Shortlist(NamedTuple):
    """Nodes of one level for each document of a batch; None stands for all nodes of the level."""

    nodes: Tensor | None  # (B, S) int32, −1 in slots that are padding
    targets: Tensor  # (B, S) float32

    def counted(self, scores: Tensor) -> Tensor:
        """Return (B, S) bool: the slots that hold a node."""
        if self.nodes is None:
            return torch.ones_like(scores, dtype=torch.bool)
        return self.nodes >= 0


class TreeTables(nn.Module):
    """A label tree as tensors. Children of a node are a range, so «refine» is a start and a
    count.
    """

    def __init__(self, tree: LabelTree) -> None:
        super().__init__()
        self.widths = tree.widths
        self.most_children = [int((offsets[1:] - offsets[:-1]).max()) for offsets in tree.offsets]
        for level, offsets in enumerate(tree.offsets):
            self.register_buffer(
                f"starts_{level}", torch.tensor(offsets, dtype=torch.int32), persistent=False
            )
        # node of the level above each label's position
        above = torch.arange(tree.n_labels, dtype=torch.int32)
        for level in range(tree.n_levels - 1, 0, -1):
            above = torch.tensor(tree.parents(level))[above.long()]
            self.register_buffer(f"above_{level - 1}", above, persistent=False)

    def starts(self, level: int) -> Tensor:
        """Return where the children of each node of a level begin on the next, (K + 1,)."""
        starts: Tensor = getattr(self, f"starts_{level}")
        return starts

    def cover(self, level: int, positives: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return R^(t)(y): the nodes above the positive labels, each once, and the largest value
        below each.

        ``positives`` are (B, P) positions of labels, rising in each row, −1 after the last.
        """
        if level == len(self.widths) - 1:
            return positives, values
        above: Tensor = getattr(self, f"above_{level}")
        nodes = above[positives.clamp(min=0).long()].masked_fill(positives < 0, -1)
        new = torch.ones_like(nodes, dtype=torch.bool)
        new[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
        # labels of one node stand side by side: its slot is theirs
        slots = new.long().cumsum(1) - 1
        once = torch.full_like(nodes, -1).scatter_(1, slots, nodes)
        return once, torch.zeros_like(values).scatter_reduce_(1, slots, values, "amax")

    def all_nodes(self, level: int, positives: Tensor, values: Tensor) -> Shortlist:
        """Return the shortlist of the first level, S^(1) = C^(1), with its targets."""
        width = self.widths[level]
        # the last column takes what padding writes
        targets = values.new_zeros(len(values), width + 1)
        targets.scatter_(1, positives.masked_fill(positives < 0, width).long(), values)
        return Shortlist(None, targets[:, :width])

    def refine(self, level: int, nodes: Tensor) -> Tensor:
        """Return the children of (B, k) nodes of ``level`` as (B, k·most children), −1 in slots
        without a child.
        """
        starts = self.starts(level)
        most = self.most_children[level]
        known = nodes.clamp(min=0).long()
        first = starts[known]
        count = (starts[known + 1] - starts[known]).masked_fill(nodes < 0, 0)
        child = torch.arange(most, dtype=torch.int32, device=nodes.device)
        children = (first[..., None] + child).masked_fill(child >= count[..., None], -1)
        return children.flatten(1)

    def refine_with(self, level: int, top: Tensor, positives: Tensor, values: Tensor) -> Shortlist:
        """Return R↓(S_top) ∪ y on the level below ``level`` (eq. 3), with targets.

        A positive whose parent was kept is a slot among its siblings; any other one is put behind
        them, by itself."""
        children = self.refine(level, top)
        starts = self.starts(level)
        n_slots = children.shape[1]
        parents = torch.searchsorted(starts, positives, right=True, out_int32=True) - 1
        same = (parents[:, :, None] == top[:, None, :]) & (positives >= 0)[:, :, None]  # (B, P, k)
        is_child = same.any(2)
        slot = same.int().argmax(2)
        behind = torch.arange(n_slots, n_slots + positives.shape[1], device=top.device)
        among = slot * self.most_children[level] + (positives - starts[parents.clamp(min=0).long()])
        targets = values.new_zeros(len(values), n_slots + positives.shape[1])
        targets.scatter_(1, torch.where(is_child, among.long(), behind), values)
        return Shortlist(torch.cat([children, positives.masked_fill(is_child, -1)], 1), targets)


def best_nodes(
    scores: Tensor, nodes: Tensor | None, k: int, ordered: bool = False
) -> tuple[Tensor, Tensor]:
    """Return S_top: the ``k`` best (B, k) nodes, −1 where there are fewer, and their slots (eq.
    2).
    """
    if nodes is None:
        scores = scores.detach()
    else:
        scores = scores.detach().masked_fill(nodes < 0, -torch.inf)
    at = scores.topk(min(k, scores.shape[1]), sorted=ordered).indices
    if nodes is None:
        return at.int(), at
    return nodes.gather(1, at), at
