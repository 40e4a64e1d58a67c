"""The GPU that networks will be trained on, without torch: what ``nvidia-smi`` tells of it, and how
fast it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import NamedTuple

import msgspec

__all__ = ["Gpu", "find_gpu", "gpu_for", "nominal_flops"]

_PATIENCE = 10.0  # seconds for nvidia-smi, which is slow where a driver is being started
_MIB = 1 << 20


class Gpu(NamedTuple):
    """A device by the name that its driver gives it; memory in bytes, 0 where it is not known."""

    name: str
    memory: int


def gpu_for(device: str) -> Gpu | None:
    """Return the GPU that ``device`` (auto, cpu, cuda or cuda:N) stands for, or None where it is
    the CPU.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu" or _torch_is_without_cuda():
        return None
    position = 0
    if number.isdecimal():
        position = int(number)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return find_gpu(position)
    names = [name.strip() for name in visible.split(",")]
    if position >= len(names) or names[position] in ("", "-1"):
        return None
    if names[position].isdecimal():
        return find_gpu(int(names[position]))
    return find_gpu(position)


def _torch_is_without_cuda() -> bool:
    """Return whether torch was built for the CPU alone; where torch is missing, training says
    so.
    """
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False


@cache
def find_gpu(number: int = 0) -> Gpu | None:
    """Return a device of this machine, or None where there is no such one, or no driver that
    knows it.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if number < len(lines):
        return parse_gpu(lines[number])
    return None


def parse_gpu(line: str) -> Gpu:
    """Return the device of a line such as ``NVIDIA H200, 143771 MiB``."""
    name, _, memory = line.rpartition(",")
    size = re.fullmatch(r"\s*(\d+)\s*MiB\s*", memory)
    if size is None:
        return Gpu((name or memory).strip(), 0)
    return Gpu(name.strip(), int(size[1]) * _MIB)


def nominal_flops(gpu: Gpu, precision: str) -> float | None:
    """Return the operations a second of a device in ``precision`` (bfloat16 or float32); None if it
    is not known.
    """
    words = set(re.split(r"[\s-]+", gpu.name))
    for entry in _table():
        if words.issuperset(entry.words):
            by_precision = {"bfloat16": entry.bfloat16, "float32": entry.float32}
            return 1e12 * by_precision[precision]
    return None


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device of ``gpus.toml``."""

    words: tuple[str, ...]
    bfloat16: float
    float32: float


@cache
def _table() -> tuple[_Entry, ...]:
    content = tomllib.loads((files("longtail.forecast") / "gpus.toml").read_text("utf-8"))
    return msgspec.convert(content["gpu"], tuple[_Entry, ...])
