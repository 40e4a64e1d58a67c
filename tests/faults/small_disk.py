"""A real disk that is soon full: a file system in memory, where this may be mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted file system of a few pages."""

    def __init__(self, path: Path) -> None:
        self.place = path

    @contextmanager
    def leaving(self, free: int) -> Iterator[None]:
        """Leave so many bytes free in the body."""
        ballast = self.place / "ballast"
        now = os.statvfs(self.place)
        with open(ballast, "wb") as file:
            if (size := now.f_bavail * now.f_frsize - free) > 0:
                os.posix_fallocate(file.fileno(), 0, size)
        try:
            yield
        finally:
            ballast.unlink()


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a disk of ``size`` bytes; where that may not be done, the test is skipped."""
    path.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", f"size={size}", "longtail-test", str(path)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", str(path)], check=True, capture_output=True)
