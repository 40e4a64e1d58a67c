"""Compilations of this process, and those that this machine has done before.

Whoever shows progress sets an :class:`Observer`; this module imports nothing that takes time. A
record beside the compiled kernels lists the groups of kernels that are all there, so that a first
compilation is announced once for a machine and a version, and a forecast can add its seconds."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

__all__ = ["CompilationRecord", "Observer", "observe", "observer"]

_SOURCES = Path(__file__).parent
_FILE_NAME = "longtail-compiled.json"


class Observer(Protocol):
    """Called around every compilation, by the thread that needs the kernel; one at a time."""

    def start(self, kernel: str) -> None:
        """Begin to compile ``kernel``, and the kernels that it calls."""

    def step(self) -> None:
        """Note that one of these kernels is compiled."""

    def finish(self) -> None:
        """End, also after an error."""


_observer: Observer | None = None


def observe(observer: Observer | None) -> None:
    """Call ``observer`` around every compilation of this process; None calls nothing."""
    global _observer
    _observer = observer


def observer() -> Observer | None:
    """Return what :func:`observe` was called with last."""
    return _observer


class CompilationRecord:
    """What is compiled on this machine, as a JSON file in the folder of compiled kernels.

    It holds for one version of the kernels, of numba and of the processor: another one begins anew.
    A record that cannot be read is empty, and one that cannot be written is left out, as neither
    may stop a run.

    Args:
        folder: where numba keeps the kernels; None where it can write nowhere.
        compiler: version of numba and name of the processor.
    """

    def __init__(self, folder: Path | None, compiler: str) -> None:
        self._file: Path | None = None
        if folder is not None:
            self._file = folder / _FILE_NAME
        self._version = f"{compiler} {_digest()}"

    @property
    def is_kept(self) -> bool:
        """Whether compiled kernels are kept for other processes."""
        return self._file is not None

    def announced(self) -> bool:
        """Return whether a compilation was announced before."""
        return bool(self._read())

    def groups(self) -> frozenset[str]:
        """Return the groups of kernels that are compiled."""
        return frozenset(self._read().get("groups", ()))

    def add(self, *groups: str) -> None:
        """Note an announcement, and ``groups`` whose kernels are all compiled."""
        known = self._read()
        together = sorted({*known.get("groups", ()), *groups})
        if self._file is None or (known and together == known.get("groups")):
            return
        content = json.dumps({"version": self._version, "groups": together})
        temporary = self._file.with_name(f"{_FILE_NAME}.{os.getpid()}")
        with suppress(OSError):
            temporary.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(content, "utf-8")
            temporary.replace(self._file)

    def _read(self) -> dict[str, list[str]]:
        """Return the record of this version; nothing where there is none."""
        if self._file is None:
            return {}
        try:
            content = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict) or content.get("version") != self._version:
            return {}
        groups: Any = content.get("groups")
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            return {}
        return {"groups": groups}


@cache
def _digest() -> str:
    """Return a digest of the sources of all kernels; of a frozen program, which has none, always
    the same.
    """
    digest = hashlib.sha256()
    for file in sorted(_SOURCES.glob("*.py")):
        with suppress(OSError):
            digest.update(file.read_bytes())
    return digest.hexdigest()
