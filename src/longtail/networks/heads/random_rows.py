"""Random initial weights of classifiers: the same for a whole head and for one that is split among
processes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor

__all__ = ["draw_rows", "draw_xavier"]

# numbers at a time; of a multiple of 16, torch draws the same normal ones as all at once
_DRAWN = 1 << 22


def draw_xavier(weight: Tensor, nodes: slice, n_nodes: int, seed: int) -> None:
    """Draw ``weight``, the rows of ``nodes`` among ``n_nodes``, uniformly from ±√(6 / (n_nodes +
    width)).

    Glorot and Bengio 2010, for a matrix of all nodes. The numbers come from the CPU, so that they
    are the same on every device and for any number of ranks."""
    bound = sqrt(6 / (n_nodes + weight.shape[1]))
    draw_rows(
        weight,
        nodes,
        n_nodes,
        seed,
        lambda drawn, rng: drawn.uniform_(-bound, bound, generator=rng),
    )


def draw_rows(
    weight: Tensor,
    nodes: slice,
    n_nodes: int,
    seed: int,
    draw: Callable[[Tensor, torch.Generator], Tensor],
) -> None:
    """Draw some rows as one process on a CPU draws those of the whole level, a piece at a time.

    Args:
        weight: The rows that are written, (nodes, width).
        nodes: Which of the level's nodes these rows are.
        n_nodes: Nodes of the whole level.
        seed: Where the numbers come from.
        draw: Fills a flat piece in place by a generator.
    """
    generator = torch.Generator().manual_seed(seed)
    width = weight.shape[1]
    flat = weight.view(-1)
    first = nodes.start * width
    last = nodes.stop * width
    total = n_nodes * width
    at = 0
    while at < last:
        size = total - at
        if size >= 2 * _DRAWN:
            size = _DRAWN
        drawn = draw(torch.empty(size, dtype=weight.dtype), generator)
        start = max(first, at)
        stop = min(last, at + size)
        if start < stop:
            flat[start - first : stop - first] = drawn[start - at : stop - at].to(flat.device)
        at += size
