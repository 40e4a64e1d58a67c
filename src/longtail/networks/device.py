"""The device of a network, and the arithmetic there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import nn

from longtail.errors import UsageError
from longtail.kernels import pool
from longtail.steps.process_group import ProcessGroup, use_group

__all__ = [
    "allow_tf32",
    "arithmetic",
    "choose_device",
    "computes_in_half",
    "in_one_process",
    "pool_threads",
]

T = TypeVar("T")

log = logging.getLogger("longtail")


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


def in_one_process(make: Callable[[], T], encoders: Sequence[nn.Module]) -> T:
    """Return a network with the rows of all processes: what follows training is done by one alone,
    on the CPU where they do not fit on its GPU.

    Args:
        make: makes the network on the device of its encoders.
        encoders: of the network.
    """
    with use_group(ProcessGroup()):
        try:
            return make()
        except torch.OutOfMemoryError:
            log.warning(
                "the classifiers of all ranks do not fit on one GPU: the rest is done on the CPU"
            )
        for encoder in encoders:
            encoder.cpu()
        return make()
