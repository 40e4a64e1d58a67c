"""How weights are stored: as float32, as float16, or as one of 256 values chosen for a level."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["STORED", "WeightType", "code_table", "converted", "decoded", "half_floats", "stored"]

WeightType = Literal["float32", "float16", "int8"]

STORED: dict[WeightType, Any] = {"float32": np.float32, "float16": np.uint16, "int8": np.uint8}
_CODES = 256
_SAMPLE = 1 << 18  # weights that a table of codes is made from
_BLOCK = 1 << 20  # weights coded at a time


@cache
def half_floats() -> NDArray[np.float32]:
    """Every float16 by its bits."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def decoded(values: NDArray[Any], table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights as float32, from their codes if they have some."""
    weights: NDArray[np.float32] = values
    if values.dtype != np.float32:
        weights = table[values]
    return weights


def stored(values: NDArray[np.float32], dtype: WeightType) -> NDArray[Any]:
    """Return numbers as they are stored; float16 as its bits, which kernels can read."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return values.astype(np.float32)


def code_table(
    values: NDArray[Any], table: NDArray[np.float32], dtype: WeightType
) -> NDArray[np.float32]:
    """Return the decoding table of a weight type; empty for float32."""
    if dtype == "float16":
        return half_floats()
    if dtype != "int8":
        return np.zeros(0, np.float32)
    weights = decoded(values, table)
    sample = weights[:: max(len(weights) // _SAMPLE, 1)]
    if len(weights):
        sample = np.append(sample, [weights.min(), weights.max()])
    return _codes(sample)


def _codes(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Choose 256 values of least squared error (Lloyd 1982): weights are heavy-tailed, so even
    steps waste codes.
    """
    ordered = np.sort(values).astype(np.float64)
    distinct = np.unique(ordered)
    if len(distinct) <= _CODES:
        return np.append(distinct, np.full(_CODES - len(distinct), distinct.max(initial=0))).astype(
            np.float32
        )
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    grid = np.quantile(ordered, np.linspace(0, 1, 4 * _CODES))
    # best codes lie as dense as density^(1/3)
    crowd = np.concatenate([[0.0], np.cumsum(np.diff(grid) ** (2 / 3))])
    codes = np.interp(np.linspace(0, crowd[-1], _CODES), crowd, grid)
    for _ in range(30):
        edges = np.searchsorted(ordered, (codes[1:] + codes[:-1]) / 2)
        edges = np.concatenate([[0], edges, [len(ordered)]])
        counts = np.diff(edges)
        codes = np.where(counts > 0, np.diff(sums[edges]) / np.maximum(counts, 1), codes)
    return np.sort(codes).astype(np.float32)


def converted(
    values: NDArray[Any], table: NDArray[np.float32], codes: NDArray[np.float32], dtype: WeightType
) -> NDArray[Any]:
    """Return stored weights in another type, to the nearest of ``codes`` if it is int8."""
    coded = np.empty(len(values), STORED[dtype])
    middles: NDArray[Any] = codes
    if dtype == "int8":
        middles = (codes[1:] + codes[:-1]) / 2
    for first in range(0, len(values), _BLOCK):
        block = decoded(values[first : first + _BLOCK], table)
        if dtype == "int8":
            coded[first : first + _BLOCK] = np.searchsorted(middles, block)
        else:
            coded[first : first + _BLOCK] = stored(block, dtype)
    return coded
