"""Launches the GPU kernels of heads on torch tensors, with block sizes that fit the width."""

from __future__ import annotations

import importlib.util
import math
import os
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from longtail.networks.heads.updates import BETA2, HeadRows, whitened

__all__ = [
    "gather_dot",
    "gather_sum",
    "residuals_and_losses",
    "serves",
    "update_all_rows",
    "update_touched_rows",
]

TILE = 4096  # elements of the weight that a program holds at a time
SPLIT = 1024  # slots that one program of gather_sum adds up
PAIRS = 32  # (node, document) pairs a program of the update goes through
AHEAD = 4  # of them read at once
COLUMNS = 1024  # logits a program of the cross-entropy reads
ADAM = {"BETA2": BETA2, "LOG_BETA2": math.log(BETA2)}


def serves(weight: Tensor) -> bool:
    """Whether the kernels take this weight: on CUDA with Triton installed, or anywhere under
    TRITON_INTERPRET=1.
    """
    if weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    return (weight.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and _installed()


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def _kernels() -> ModuleType:
    """Imported late: importing Triton takes a second, and a CPU never needs it."""
    from longtail.kernels import triton_heads

    return triton_heads


def gather_dot(x: Tensor, weight: Tensor, bias: Tensor, candidates: Tensor) -> Tensor:
    """Logits (B, S) float32 of x (B, d) and the rows of candidates (B, S) int32; 0 at padding."""
    documents, slots = candidates.shape
    logits = torch.empty(documents, slots, dtype=torch.float32, device=x.device)
    block = _block(x.shape[1])
    slot_block = TILE // block
    if logits.numel():
        _kernels().gather_dot[(documents, _blocks(slots, slot_block))](
            x, weight, bias, candidates, logits, slots,
            WIDTH=x.shape[1], BLOCK_D=block, BLOCK_S=slot_block,
        )  # fmt: skip
    return logits


def gather_sum(gradients: Tensor, weight: Tensor, candidates: Tensor) -> Tensor:
    """Sums gradients (B, S) times the rows of candidates (B, S) to (B, d) float32."""
    (documents, slots) = candidates.shape
    width = weight.shape[1]
    splits = _blocks(slots, SPLIT)
    block = _block(width)
    partial = torch.empty(splits, documents, width, dtype=torch.float32, device=weight.device)
    if partial.numel():
        _kernels().gather_sum[(documents, splits, _blocks(width, block))](
            gradients, weight, candidates, partial, slots, documents,
            WIDTH=width, BLOCK_D=block, BLOCK_S=min(TILE // block, SPLIT), SPLIT=SPLIT,
        )  # fmt: skip
    # of splits in their order: atomic adds would give other bytes at each run
    return partial.sum(0)


def residuals_and_losses(
    logits: Tensor,
    bias: Tensor,
    positives: Tensor,
    values: Tensor,
    scale: Tensor,
    first: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """(σ(z) − y) · scale of `dtype` (B, nodes) and cross-entropy (B,), for z = logits (B, nodes) +
    bias (nodes,).

    positives: (B, P) int32 nodes, of which `first` is the first column; those of other columns
    count for nothing."""
    documents, columns = logits.shape
    blocks = _blocks(columns, COLUMNS)
    n_positives = positives.shape[1]
    residuals = torch.empty(logits.shape, dtype=dtype, device=logits.device)
    losses = torch.empty(documents, blocks + 1, dtype=torch.float32, device=logits.device)
    _kernels().negative_residuals[(documents, blocks)](
        logits, bias, scale, residuals, losses, columns, BLOCK=COLUMNS
    )
    _kernels().positive_residuals[(documents,)](
        logits, bias, scale, positives, values, residuals, losses,
        columns, n_positives, blocks + 1, first,
        BLOCK=_power(max(n_positives, 1)),
    )  # fmt: skip
    return residuals, losses.sum(1)


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

    Waits for nothing: the number of distinct nodes is never known to the host.
    """
    width = x.shape[1]
    _kernels().update_touched_rows[(_blocks(len(nodes), PAIRS),)](
        *_in_place(rows), x, nodes, documents, gradients,
        len(nodes), len(rows.weight), float(lr), rows.weight_decay,
        _signed(whitened(seed)), *_first_moment(rows),
        WIDTH=width, BLOCK_D=_power(width), BLOCK_N=PAIRS, AHEAD=AHEAD,
        OPTIMISER=_code(rows), EPSILON=rows.epsilon, **ADAM,
    )  # fmt: skip


def update_all_rows(
    rows: HeadRows, index: slice, gradient: Tensor, bias_gradient: Tensor, lr: float, seed: int
) -> None:
    """One step for the rows of `index`, by float32 gradients (rows, d) and (rows,)."""
    width = gradient.shape[1]
    _kernels().update_all_rows[(len(gradient),)](
        *_in_place(rows), gradient, bias_gradient,
        index.start, float(lr), rows.weight_decay, _signed(whitened(seed)), *_first_moment(rows),
        WIDTH=width, BLOCK_D=_power(width), OPTIMISER=_code(rows), EPSILON=rows.epsilon, **ADAM,
    )  # fmt: skip


def _in_place(rows: HeadRows) -> tuple[Tensor, ...]:
    """Weight, bias and state in the kernels' order; where there is no such state the bias stands
    in, unread.
    """
    names = ("mean", "square", "bias_mean", "bias_square", "count")
    return (rows.weight, rows.bias, *(rows.state.get(name, rows.bias) for name in names))


def _first_moment(rows: HeadRows) -> tuple[float, float, float]:
    """β₁, 1 − β₁ and ln β₁, as the kernels take them: no constants, so that no value is compiled
    for by itself.
    """
    return rows.beta1, 1.0 - rows.beta1, math.log(rows.beta1)


def _code(rows: HeadRows) -> int:
    kernels = _kernels()
    codes: dict[str, int] = {
        "sgd": kernels.SGD,
        "row-adam": kernels.ROW_ADAM,
        "adamw": kernels.ADAMW,
    }
    return codes[rows.optimiser]


def _block(width: int) -> int:
    """Columns a tile: the largest power of two up to 256 that divides the width, so that no lane
    idles, else 128.
    """
    divisor = math.gcd(width, 256)
    if divisor >= 64:
        return divisor
    return min(_power(width), 128)


def _power(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _blocks(n: int, size: int) -> int:
    return -(-n // size)


def _signed(bits: int) -> int:
    """32 bits as a signed number, so that the kernel's argument always has one type."""
    if bits >= 1 << 31:
        return bits - (1 << 32)
    return bits
