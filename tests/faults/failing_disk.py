"""A disk that fails at a chosen call: what stands between Python and every call that changes it."""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from longtail.store import durable

EVERY = "LONGTAIL_SOAK" in os.environ  # a file: count faults in it, and try very many
CODES = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)
CLEANING = (
    "unlink",
    "rmdir",
)  # a failure of theirs leaves something behind, and is no failure of the work
_BY_NAME = ("rename", "replace", "mkdir", "link", "symlink", "chmod", *CLEANING)
_LOOKS = ("scandir", "lstat")  # which change nothing, and fail only where asked to


class FailingDisk:
    """Lets the ``nth`` call fail that changes something below the folder ``under``, or all from it
    on; 0 is none.

    ``calls`` are those seen so far, each with its path; ``only`` has the names of those that count,
    all by default. Nothing waits for a real disk to sync.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        under: Path,
        nth: int = 0,
        code: int = errno.EIO,
        *,
        sticky: bool = False,
        only: Sequence[str] = (),
    ) -> None:
        self.under = under.resolve()
        self.nth = nth
        self.code = code
        self.sticky = sticky
        self.only = only
        self.calls: list[tuple[str, Path]] = []
        for name in (*_BY_NAME, *(name for name in _LOOKS if name in only)):
            patch.setattr(os, name, self._by_name(name, getattr(os, name)))
        if "close" in only:
            patch.setattr(os, "close", self._by_number("close", os.close))
        patch.setattr(os, "write", self._by_number("write", os.write))
        patch.setattr(os, "fsync", self._by_number("fsync", lambda fd: None))
        patch.setattr(os, "open", self._os_open(os.open))
        patch.setattr(durable, "_exchange", self._exchange(durable._exchange))
        for module in (builtins, io):
            patch.setattr(module, "open", self._file_open(io.open))

    @property
    def failed(self) -> str:
        """The call that failed first."""
        return self.calls[self.nth - 1][0] if 0 < self.nth <= len(self.calls) else ""

    def strike(self, call: str, path: Path) -> bool:
        """Count a call, and tell whether it has to fail."""
        if not path.is_relative_to(self.under) or (self.only and call not in self.only):
            return False
        self.calls.append((call, path))
        if len(self.calls) == self.nth:
            tally()
        return len(self.calls) == self.nth or (self.sticky and len(self.calls) > self.nth > 0)

    def fail(self, path: Path | None = None) -> None:
        """Do what a call does that fails."""
        raise OSError(self.code, os.strerror(self.code), *([] if path is None else [str(path)]))

    def _by_name(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *more: Any, **options: Any) -> Any:
            folder = _absolute(path, options.get("dir_fd"))
            return self.fail(folder) if self.strike(name, folder) else real(path, *more, **options)

        return call

    def _by_number(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *more: Any) -> Any:
            return self.fail() if self.strike(name, _opened_as(fd)) else real(fd, *more)

        return call

    def _os_open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *more: Any, **options: Any) -> int:
            folder = _absolute(path, options.get("dir_fd"))
            makes = flags & os.O_CREAT and self.strike("open", folder)
            return self.fail(folder) if makes else real(path, flags, *more, **options)  # type: ignore[return-value]

        return call

    def _exchange(self, real: Callable[[Path, Path], bool]) -> Callable[[Path, Path], bool]:
        def call(one: Path, other: Path) -> bool:
            if not self.strike("exchange", one):
                return real(one, other)
            with suppress(OSError):  # where it cannot be done there is another way
                self.fail()
            return False

        return call

    def _file_open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(
            file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any
        ) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return real(file, mode, buffering, *more, **options)
            if self.strike("open", path := _absolute(file, None)):
                self.fail(path)
            raw_mode = mode.translate({ord("b"): None, ord("t"): None})
            raw = _File(file, raw_mode, opener=options.get("opener"))
            raw.disk = self
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *more, **options)

        return call


def chance(name: str) -> random.Random:
    """Return what chooses the faults of the test ``name``: the same always, or those of the seed of
    a long run.
    """
    return random.Random(f"{name} {os.environ.get('LONGTAIL_SOAK_SEED', '')}")


def tally() -> None:
    """Count a fault, where somebody wants to know how many there were."""
    if EVERY:
        with open(os.environ["LONGTAIL_SOAK"], "ab") as file:
            file.write(b".")


class DeadlyDisk(FailingDisk):
    """Kills the process at the ``nth`` call that changes the disk, before it does."""

    def fail(self, path: Path | None = None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class _File(io.FileIO):
    disk: FailingDisk

    def write(self, data: Any) -> Any:
        return (
            self.disk.fail()
            if self.disk.strike("write", _absolute(self.name, None))
            else super().write(data)
        )


def _absolute(path: Any, folder: int | None) -> Path:
    if isinstance(path, int):
        return _opened_as(path)
    base = Path.cwd() if folder is None else _opened_as(folder)
    return base / os.fsdecode(path)


def _opened_as(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


def told_in_one_line(ended: Any, code: int, path: Path) -> None:
    """Check what a person reads where a disk has answered ``code``: the place, the answer, and the
    way out.
    """
    assert ended.code == 1, ended
    assert "Traceback" not in ended.said, ended.said
    last = ended.said.splitlines()[-1]
    assert last.startswith(f"longtail: {path}"), last
    assert f": {os.strerror(code)}; " in last, last
