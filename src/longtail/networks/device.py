"""The device of a network, and the arithmetic there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from longtail.errors import UsageError
from longtail.kernels import pool

__all__ = ["allow_tf32", "arithmetic", "choose_device", "computes_in_half", "pool_threads"]


def choose_device(name: str = "auto") -> torch.device:
    """Return the device: cuda where there is one, unless it is named."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device {name!r}; expected auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device {name!r}; expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (
        not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()
    ):
        raise UsageError(
            f"device {name!r}: found {torch.cuda.device_count()} CUDA devices; expected cpu or auto"
        )
    return device


def arithmetic(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which an encoder runs: bfloat16 on a GPU unless ``precision`` says
    otherwise.
    """
    if computes_in_half(precision, device):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def computes_in_half(precision: str, device: torch.device) -> bool:
    """Return whether an encoder runs in bfloat16."""
    return precision == "bfloat16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )


@contextmanager
def allow_tf32(precision: str, device: torch.device) -> Iterator[None]:
    """Allow TF32 products, forward and backward, on a GPU whose encoder runs in bfloat16, which is
    coarser.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda" and computes_in_half(precision, device):
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def pool_threads() -> Iterator[None]:
    """Give torch as many threads as the kernels of this library use."""
    before = torch.get_num_threads()
    torch.set_num_threads(pool.thread_count())
    try:
        yield
    finally:
        torch.set_num_threads(before)
