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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from longtail.networks.heads import full_head, triton_launch, updates
from longtail.networks.heads.full_head import Targets

__all__ = [
    "BETA1",
    "BETA2",
    "EPSILON",
    "HeadRows",
    "LossRecord",
    "Optimiser",
    "Record",
    "RowGradients",
    "block_elements",
    "new_state",
    "stochastic_bf16",
    "sum_dtype",
    "update_by",
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
