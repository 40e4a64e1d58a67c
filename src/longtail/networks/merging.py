"""Layers between the encoder and a level's classifiers: several vectors of a text become one.

CascadeXML maps them back to the encoder's width; LightXML puts them side by side, and narrows them
for the labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longtail.config import Cascade as Settings
from longtail.networks.cascade_family import has_bottleneck

__all__ = ["merged", "merging_layers"]

# between layers and the map back to the encoder's width (CascadeXML, section 4)
_MEAN_DROPOUT = 0.2


def merging_layers(
    layers: Sequence[Sequence[int]],
    width: int,
    settings: Settings,
    rates: Sequence[float],
    seed: int,
) -> tuple[nn.ModuleList, nn.ModuleList]:
    """Return the layers that merge the vectors of each level, and the dropout of each before its
    classifiers.

    ``layers`` are those that each level reads, ``width`` is the encoder's, ``rates`` are the
    levels' dropouts. With ``label_rows`` "xavier" the maps of several layers to one start at Xavier
    uniform, as the classifiers do."""
    sizes = [len(read) for read in layers]
    rates = list(rates)
    xavier = settings.label_rows == "xavier"
    merges = [
        _mean(size, width, seed + level if xavier else None)
        if settings.merge == "mean"
        else nn.Identity()
        for level, size in enumerate(sizes)
    ]
    # it reads what the level above does, dropout included
    if has_bottleneck(len(layers), settings.bottleneck):
        merges[-1] = _bottleneck(sizes[-1] * width, settings.bottleneck, rates[-1], seed)
        rates[-1] = 0.0
    return nn.ModuleList(merges), nn.ModuleList(nn.Dropout(rate) for rate in rates)


def merged(merge: nn.Module, parts: Sequence[Tensor]) -> Tensor:
    """Return the vector of a level; a mean of tokens is float32 even where all weights are
    bfloat16.
    """
    side_by_side = parts[0]
    if len(parts) > 1:
        side_by_side = torch.cat(list(parts), 1)
    kinds = {parameter.dtype for parameter in merge.parameters()}
    if kinds:
        side_by_side = side_by_side.to(kinds.pop())
    vector: Tensor = merge(side_by_side)
    return vector


def _mean(n_layers: int, width: int, seed: int | None) -> nn.Module:
    """Return dropout and a linear map to one vector of the same width; nothing for one layer.

    The map starts as the mean, or with a ``seed`` at Xavier uniform weights and the biases of
    ``nn.Linear``."""
    if n_layers == 1:
        return nn.Identity()
    if seed is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            linear = nn.Linear(n_layers * width, width)
            nn.init.xavier_uniform_(linear.weight)
        return nn.Sequential(nn.Dropout(_MEAN_DROPOUT), linear)
    linear = nn.Linear(n_layers * width, width)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(width).repeat(1, n_layers) / n_layers)
        linear.bias.zero_()
    return nn.Sequential(nn.Dropout(_MEAN_DROPOUT), linear)


def _bottleneck(width: int, narrow: int, dropout: float, seed: int) -> nn.Module:
    """Return dropout and a linear map at random, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Dropout(dropout), nn.Linear(width, narrow))
