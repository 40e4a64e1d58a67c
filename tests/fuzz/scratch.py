"""Where fuzzed bytes become files: a folder in memory, used again for every input."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["SEPARATOR", "file", "files", "folder", "parts"]

SEPARATOR = b"\n%%\n"  # between the files that are packed into one input


@cache
def folder() -> Path:
    """Return a folder in memory where there is one; whoever sets FUZZ_FOLDER cleans up."""
    arguments = os.environ.get("FUZZ_FOLDER")
    if arguments:
        return Path(arguments)
    shared = Path("/dev/shm")
    made = tempfile.mkdtemp(
        prefix="longtail-fuzz-", dir=shared if os.access(shared, os.W_OK) else None
    )
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def file(name: str, data: bytes) -> Path:
    """Return a file that holds ``data``."""
    path = folder() / name
    path.write_bytes(data)
    return path


def files(name: str, contents: dict[str, bytes | None]) -> Path:
    """Return a folder that holds these files and no others."""
    path = folder() / name
    path.mkdir(exist_ok=True)
    for there in path.iterdir():
        there.unlink()
    for member, data in contents.items():
        if data is not None:
            (path / member).write_bytes(data)
    return path


def parts(data: bytes, count: int) -> list[bytes | None]:
    """Return ``count`` files' contents; None for those that the input does not reach."""
    packed: list[bytes | None] = [*data.split(SEPARATOR, count - 1)]
    return [*packed, *[None] * (count - len(packed))]
