"""Stages of training, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from longtail.errors import ModelFolderError, UsageError, place_at
from longtail.store import durable
from longtail.store.reading import Folder, open_folder
from longtail.store.writing import FolderWriter, holds_a_model, remove_abandoned, write_folder

__all__ = ["Stages", "looks"]

log = logging.getLogger("longtail")

_LOOKS, _LOOK_SECONDS = 120, 0.25
_LOCK = "longtail.lock"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_TEMPORARY = re.compile(r"\..+\.(tmp|old)-\d+-[0-9a-f]{8}")


def looks() -> Iterator[None]:
    """Yield again and again for half a minute: network storage may show late what another machine has written."""
    for left in reversed(range(_LOOKS)):
        yield
        if left:
            time.sleep(_LOOK_SECONDS)


class Stages:
    """The work folder of one training run: a folder a finished stage, and a lock while the run lives.

    A second run on the same work folder is refused with a UsageError that names the process.
    """

    def __init__(self, path: str | Path) -> None:
        self.root = Path(path).resolve()
        _check_work_folder(self.root)
        fd = _lock_work_folder(self.root)
        self._unlock = weakref.finalize(self, os.close, fd)
        for place in self.root.iterdir():  # now, not when the stage is written again: a full disk needs the room
            if _TEMPORARY.fullmatch(place.name) and ".tmp-" in place.name:
                remove_abandoned(place)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another run have the work folder; finished stages stay."""
        self._unlock()

    def get(self, name: str, input_hash: str) -> Folder | None:
        """Return the stage if it is complete, verifies, and was made from the same input; else discard it."""
        place = self._place(name)
        try:
            folder = open_folder(place)
        except ModelFolderError as error:
            if place.exists():
                log.warning("stage %s is made again: %s", name, error)
        else:
            if folder.manifest.config_hash == input_hash:
                return folder
            log.info("stage %s is made again: its input has changed", name)
        _discard(place)
        return None

    def write(self, name: str, input_hash: str) -> AbstractContextManager[FolderWriter]:
        """Return the ``write_folder`` of a stage made from what ``input_hash`` stands for."""
        return write_folder(self._place(name), config_hash=input_hash)

    def clear(self) -> int:
        """Delete the stages, to begin anew, and return how many were whole; what is not ours stays."""
        whole = 0
        for place in self.root.iterdir():
            if holds_a_model(place) or _TEMPORARY.fullmatch(place.name):
                whole += not _TEMPORARY.fullmatch(place.name)
                _discard(place)
        return whole

    def remove(self) -> None:
        """Delete the stages and the lock when training has ended; what is not ours stays."""
        self.clear()
        (self.root / _LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # something of somebody else is in it, or another run has begun there
            self.root.rmdir()
        self.close()

    def _place(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"'{name}' is no name for a stage: letters, digits, - and _ only")
        return self.root / name


def _check_work_folder(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file where the stages of training go; remove it or give another output folder")
    if root.exists() and any(root.iterdir()) and not (root / _LOCK).is_file():
        raise UsageError(f"{root}: is where the stages of training go, and holds something else; move it away")
    root.mkdir(parents=True, exist_ok=True)


def _lock_work_folder(root: Path) -> int:
    file = root / _LOCK
    while True:
        root.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the folder was removed by a run that just ended
            continue
        try:
            durable.lock(fd)
        except BlockingIOError:
            holder = os.read(fd, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise UsageError(
                f"{root}: process {holder} is training into this folder; wait for it or give another output folder"
            ) from None
        except OSError as error:
            log.warning("%s: cannot be locked (%s); make sure that no other training writes there", file, error)
        if file.exists() and os.path.samestat(file.stat(), os.fstat(fd)):  # else removed by a run that just ended
            try:
                os.ftruncate(fd, 0)
                os.write(fd, f"{os.getpid()}\n".encode())
            except OSError as error:
                os.close(fd)
                place_at(error, file, file)
                raise
            return fd
        os.close(fd)


def _discard(place: Path) -> None:
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.exists():
        # Renamed first: what is left of it, if this is killed, must be told from the files of somebody else.
        named = _TEMPORARY.fullmatch(place.name) is not None
        shutil.rmtree(place if named else place.rename(durable.sibling(place, "tmp")))
