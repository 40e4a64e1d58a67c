"""Products of documents with the rows of their shortlists, without a (B, S, d) tensor of the whole
batch.

On CUDA the Triton kernels do it; elsewhere documents are taken a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from longtail.networks.heads import triton_launch
from longtail.networks.heads.updates import block_elements

__all__ = ["as_written", "gather_dot", "gather_sum", "product"]


def gather_dot(x: Tensor, weight: Tensor, bias: Tensor, candidates: Tensor) -> Tensor:
    """Logits w·x + b of the bias's type: x (B, d), candidates (B, S) int32 → (B, S); −1 is padding,
    with logit 0.
    """
    if triton_launch.serves(weight):
        return triton_launch.gather_dot(x.contiguous(), weight, bias, candidates)
    logits = bias[candidates.clamp(min=0)]
    for documents, rows in _gathered(weight, candidates, bias.dtype):
        # (b,S,d)·(b,d,1)
        logits[documents] += torch.bmm(rows, x[documents, :, None].to(rows.dtype)).squeeze(2)
    return logits.masked_fill_(candidates < 0, 0)


def gather_sum(gradients: Tensor, weight: Tensor, candidates: Tensor) -> Tensor:
    """Σ over slots of gradients (B, S) times the rows of candidates (B, S), padding left out → (B,
    d).
    """
    if triton_launch.serves(weight):
        return triton_launch.gather_sum(gradients.contiguous(), weight, candidates)
    real = gradients.masked_fill(candidates < 0, 0)
    total = real.new_zeros(len(candidates), weight.shape[1])
    for documents, rows in _gathered(weight, candidates, real.dtype):
        total[documents] = torch.bmm(real[documents, None], rows).squeeze(1)  # (b,1,S)·(b,S,d)
    return total


def _gathered(
    weight: Tensor, candidates: Tensor, dtype: torch.dtype
) -> Iterator[tuple[slice, Tensor]]:
    """The rows (b, S, d) of a few documents at a time."""
    size = max(block_elements(weight) // max(candidates.shape[1] * weight.shape[1], 1), 1)
    for start in range(0, len(candidates), size):
        nodes = candidates[start : start + size].clamp(min=0)
        yield slice(start, start + size), weight[nodes].to(dtype)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b summed and returned in float32 (or float64): multiplied in bf16 if one of the two is
    bf16.
    """
    if torch.bfloat16 not in (a.dtype, b.dtype):
        return a @ b
    a = a.to(torch.bfloat16)
    b = b.to(torch.bfloat16)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def as_written(tensor: Tensor) -> torch.autocast:
    """Products below are of the types they are written in: autocast was heeded when the operands
    were made.
    """
    return torch.autocast(tensor.device.type, enabled=False)
