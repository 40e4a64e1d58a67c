"""Optimisers of a head's rows, applied in place to the rows that a batch touched and to no other.

With g the gradient of a row, λ the weight decay and t the number of updates that this row has had
(lazy: not the number of the step):

    sgd        w ← w − lr (g + λw)
               no state
    row-adam   v ← β₂v + (1 − β₂) mean(g²)
               w ← w − lr (g / (√(v / (1 − β₂ᵗ)) + ε) + λw)
               state: one float per row
    adamw      m ← β₁m + (1 − β₁)g
               v ← β₂v + (1 − β₂)g²
               w ← w − lr (m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε) + λw)
               state: two floats per weight

Biases follow the same rule, each by itself (row-adam: with a v of its bias), and do not decay.
Arithmetic is float32; bfloat16 weights are written back with stochastic rounding, without which
small steps would be lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

__all__ = [
    "BETA1",
    "BETA2",
    "EPSILON",
    "HeadRows",
    "Optimiser",
    "block_elements",
    "new_state",
    "stochastic_bf16",
    "sum_dtype",
    "update_rows",
    "update_touched_rows",
    "whitened",
]

Optimiser = Literal["adamw", "row-adam", "sgd"]
Bits = TypeVar("Bits", int, Tensor)

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8
# of a temporary tensor: it stays in the cache, and in memory that malloc keeps
CPU_ELEMENTS = 1 << 19
# the same for a GPU: launching a kernel must not take longer than running it
GPU_ELEMENTS = 1 << 26
MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class HeadRows:
    """The rows that a step changes in place: weight (K, d), bias (K,) and the optimiser's state of
    each row.
    """

    weight: Tensor
    bias: Tensor
    state: dict[str, Tensor]
    optimiser: Optimiser
    weight_decay: float
    first: int = 0  # the number of the first of these nodes, where they are a part of a level's
    beta1: float = BETA1  # of adamw, which may be another one in each step
    epsilon: float = EPSILON


def new_state(optimiser: Optimiser, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """The state before the first step: zeros, by name; float32 unless the weights are float64."""
    if optimiser == "sgd":
        return {}
    if optimiser == "row-adam":
        of_rows = bias
    else:
        of_rows = torch.empty(weight.shape, dtype=bias.dtype, device=bias.device)
    state = {"square": torch.zeros_like(of_rows), "bias_square": torch.zeros_like(bias)}
    if optimiser == "adamw":
        state |= {"mean": torch.zeros_like(of_rows), "bias_mean": torch.zeros_like(bias)}
    return state | {"count": torch.zeros(len(bias), dtype=torch.int32, device=bias.device)}


def block_elements(tensor: Tensor) -> int:
    """The number of elements of a temporary tensor on this tensor's device, where work is done in
    blocks.
    """
    if tensor.is_cuda:
        return GPU_ELEMENTS
    return CPU_ELEMENTS


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of biases and sums for weights of a type: float64 for float64, else float32."""
    if dtype == torch.float64:
        return torch.float64
    return torch.float32


def update_rows(
    rows: HeadRows,
    index: Tensor | slice,
    gradient: Tensor,
    bias_gradient: Tensor,
    lr: float,
    seed: int,
) -> None:
    """One step for the rows of `index` (each once), given their gradient (rows, d) and (rows,)."""
    step, bias_step = _directions(rows, index, gradient, bias_gradient)
    old = rows.weight[index].to(gradient.dtype)
    new = old - lr * (step + rows.weight_decay * old)
    if rows.weight.dtype == torch.bfloat16:
        if isinstance(index, slice):
            nodes = torch.arange(index.start, index.stop, device=new.device)
        else:
            nodes = index
        new = stochastic_bf16(new, nodes + rows.first, seed)
    rows.weight[index] = new
    rows.bias[index] = rows.bias[index] - lr * bias_step


def _directions(
    rows: HeadRows, index: Tensor | slice, gradient: Tensor, bias_gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """The steps of weights and biases, before the learning rate; updates the optimiser's state."""
    if rows.optimiser == "sgd":
        return gradient, bias_gradient
    state = rows.state
    times = state["count"][index] + 1
    state["count"][index] = times
    squares = gradient.square()
    if rows.optimiser == "row-adam":
        squares = squares.mean(1)
    scale = 1 / (_averaged(state["square"], index, squares, times, BETA2).sqrt() + rows.epsilon)
    bias_squares = _averaged(state["bias_square"], index, bias_gradient.square(), times, BETA2)
    bias_scale = 1 / (bias_squares.sqrt() + rows.epsilon)
    if rows.optimiser == "row-adam":
        return gradient * scale[:, None], bias_gradient * bias_scale
    mean = _averaged(state["mean"], index, gradient, times, rows.beta1)
    bias_mean = _averaged(state["bias_mean"], index, bias_gradient, times, rows.beta1)
    return mean * scale, bias_mean * bias_scale


def _averaged(
    state: Tensor, index: Tensor | slice, values: Tensor, times: Tensor, beta: float
) -> Tensor:
    """Update the exponential moving average of the rows; return it with bias correction."""
    average = beta * state[index] + (1 - beta) * values
    state[index] = average
    bias_correction = -torch.expm1(times.to(average.dtype) * math.log(beta))
    if average.ndim == 2:
        bias_correction = bias_correction[:, None]
    return average / bias_correction


def update_touched_rows(
    rows: HeadRows,
    x: Tensor,
    nodes: Tensor,
    documents: Tensor,
    gradients: Tensor,
    lr: float,
    seed: int,
) -> None:
    """One step for the nodes of (node, document, gradient) pairs, sorted by node; nodes = K are
    padding.

    x: (B, d). Done in blocks of whole runs, so that neither all pairs' rows nor a gradient of all
    nodes exists."""
    real = int(torch.searchsorted(nodes, len(rows.weight)))
    touched, run, lengths = torch.unique_consecutive(
        nodes[:real].long(), return_inverse=True, return_counts=True
    )
    ends = lengths.cumsum(0)
    for first, last, start, stop in _run_blocks(ends, max(block_elements(x) // x.shape[1], 1)):
        share = gradients[start:stop]
        shares = share[:, None] * x[documents[start:stop].long()].to(share.dtype)
        gradient = shares.new_zeros(last - first, x.shape[1]).index_add_(
            0, run[start:stop] - first, shares
        )
        bias_gradient = share.new_zeros(last - first).index_add_(0, run[start:stop] - first, share)
        update_rows(rows, touched[first:last], gradient, bias_gradient, lr, seed)


def _run_blocks(ends: Tensor, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Runs first..last and their pairs start..stop, about `size` pairs at a time."""
    first = start = 0
    while first < len(ends):
        last = max(int(torch.searchsorted(ends, start + size, right=True)), first + 1)
        stop = int(ends[last - 1])
        yield first, last, start, stop
        first = last
        start = stop


def whitened(seed: int) -> int:
    """A seed of any size hashed to 32 bits, for `stochastic_bf16` and the kernels."""
    return _mixed((seed ^ (seed >> 32)) & MASK)


def stochastic_bf16(values: Tensor, nodes: Tensor, seed: int) -> Tensor:
    """Round float32 (rows, d) to bfloat16, up or down with a probability by the distance; Inf and
    NaN are kept.

    The 16 random bits are a hash of (seed, node, column), the same on every device.
    """
    columns = torch.arange(values.shape[1], device=values.device)
    key = _mixed(nodes.long() ^ whitened(seed))
    random = _mixed((key[:, None] + columns * 0x9E3779B9) & MASK) & 0xFFFF
    bits = values.contiguous().view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    # a NaN stays one when its low bits go
    quiet = torch.where(magnitude > 0x7F800000, bits | 0x400000, bits)
    bits = torch.where(magnitude >= 0x7F800000, quiet, bits + random.to(torch.int32))
    return (bits >> 16).to(torch.int16).view(torch.bfloat16)


def _mixed(x: Bits) -> Bits:
    """A bijection of uint32, held in int64 or Python's int (Wellons, lowbias32)."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & MASK
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & MASK
    return x ^ (x >> 16)
