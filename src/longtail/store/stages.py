"""Stages of training, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from longtail.errors import LongtailError, ModelFolderError, UsageError, place_at
from longtail.store import durable
from longtail.store.manifest import MANIFEST, decode
from longtail.store.reading import Folder, open_folder
from longtail.store.writing import FolderWriter, holds_a_model, remove_abandoned, write_folder

__all__ = ["RunFolder", "Stages", "looks", "stage_path"]

log = logging.getLogger("longtail")

_LOOKS = 120
_LOOK_SECONDS = 0.25
_LOCK = "longtail.lock"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_TEMPORARY = re.compile(r"\..+\.(tmp|old)-\d+-[0-9a-f]{8}")
_ARRAYS_END = ".safetensors"
_TRIES = 100  # to delete a folder into which another process still writes


def looks() -> Iterator[None]:
    """Yield again and again for half a minute: network storage may show late what another machine
    has written.
    """
    for left in reversed(range(_LOOKS)):
        yield
        if left:
            time.sleep(_LOOK_SECONDS)


@dataclass(frozen=True)
class RunFolder:
    """The work folder ``root`` during the run ``token``, as this run's processes on all machines
    write to it.

    The lock file holds the token of the run that has the folder. A process that outlives its run
    finds the token of another run there, or no lock file, and writes nothing."""

    root: Path
    token: str

    def check(self) -> None:
        """Raise LongtailError unless the folder is still that of the run."""
        try:
            lines = (self.root / _LOCK).read_bytes().split()
        except (FileNotFoundError, NotADirectoryError):
            lines = []
        if lines[1:] != [self.token.encode()]:
            raise LongtailError(
                f"{self.root}: found no lock of this training there, "
                "which has ended or was replaced by another, or its folder was removed; train again"
            )

    @contextmanager
    def write(self, name: str, input_hash: str) -> Iterator[FolderWriter]:
        """Write the stage ``name`` made from what ``input_hash`` stands for, while the folder is
        that of the run.
        """
        path = stage_path(self.root, name)
        self.check()
        try:
            with write_folder(
                path, config_hash=input_hash, parents=False, check=lambda _: self.check()
            ) as writer:
                yield writer
        except OSError:
            # a folder that was removed is the cause, and the failed call its consequence
            self.check()
            raise


class Stages:
    """The work folder of one training run: a folder a finished stage, and a lock while the run
    lives.

    A second run on the same work folder is refused with a UsageError that names the process.
    ``run`` is for the processes that write stages for this one."""

    def __init__(self, path: str | Path) -> None:
        self.root = Path(path).resolve()
        _check_work_folder(self.root)
        self.run = RunFolder(self.root, secrets.token_hex(8))
        self._lock = _lock_work_folder(self.run)
        self._unlock = weakref.finalize(self, os.close, self._lock)
        # now, not when the stage is written again: a full disk needs the room
        for path in self.root.iterdir():
            if _TEMPORARY.fullmatch(path.name) and ".tmp-" in path.name:
                remove_abandoned(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another run have the work folder; finished stages stay."""
        self._unlock()

    def get(self, name: str, input_hash: str) -> Folder | None:
        """Return the stage if it is complete, verifies, and was made from the same input; else
        discard it.
        """
        path = stage_path(self.root, name)
        try:
            folder = open_folder(path)
        except ModelFolderError as error:
            if path.exists():
                log.warning("stage %s is made again: %s", name, error)
        else:
            if folder.manifest.config_hash == input_hash:
                return folder
            log.info("stage %s is made again: its input has changed", name)
        _discard(path)
        return None

    def write(self, name: str, input_hash: str) -> AbstractContextManager[FolderWriter]:
        """Return the ``write_folder`` of a stage made from what ``input_hash`` stands for."""
        return self.run.write(name, input_hash)

    def clear(self) -> int:
        """Delete the stages, to begin anew; return how many were whole. Other files stay."""
        whole = 0
        for path in list(self.root.iterdir()):
            if holds_a_model(path) or _TEMPORARY.fullmatch(path.name):
                whole += not _TEMPORARY.fullmatch(path.name)
                _discard(path)
        return whole

    def remove(self) -> None:
        """Delete the stages and the lock when training has ended; what is not ours stays."""
        if self._unlock.alive:
            # a worker that still writes for this run no longer finds its token
            with suppress(OSError):
                os.ftruncate(self._lock, 0)
        self.clear()
        (self.root / _LOCK).unlink(missing_ok=True)
        # something of somebody else is in it, or another run has begun there
        with suppress(OSError):
            self.root.rmdir()
        self.close()


def stage_path(root: Path, name: str) -> Path:
    """Return where the stage ``name`` of a work folder is."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{name}' is no name for a stage: letters, digits, - and _ only")
    return root / name


def _check_work_folder(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise UsageError(
            f"{root}: is a file where the stages of training go; "
            "remove it or give another output folder"
        )
    if (
        root.exists()
        and not (root / _LOCK).is_file()
        and not all(map(_is_leftover, root.iterdir()))
    ):
        raise UsageError(
            f"{root}: is where the stages of training go, and holds something else; move it away"
        )
    root.mkdir(parents=True, exist_ok=True)


def _is_leftover(path: Path) -> bool:
    """Tell whether ``path`` is a stage of arrays, or a temporary folder of one; a model has other
    files, too.
    """
    if _TEMPORARY.fullmatch(path.name):
        return True
    if not holds_a_model(path):
        return False
    try:
        manifest = decode((path / MANIFEST).read_bytes(), path / MANIFEST)
    except (OSError, ModelFolderError):
        return False
    return all(entry.path.endswith(_ARRAYS_END) for entry in manifest.files)


def _lock_work_folder(run: RunFolder) -> int:
    root = run.root
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
            holder = (
                os.read(fd, 20).decode("ascii", "replace").partition("\n")[0].strip() or "unknown"
            )
            os.close(fd)
            raise UsageError(
                f"{root}: process {holder} is training into this folder; "
                "wait for it or give another output folder"
            ) from None
        except OSError as error:
            log.warning(
                "%s: cannot be locked (%s); make sure that no other training writes there",
                file,
                error,
            )
        # else removed by a run that just ended
        if file.exists() and os.path.samestat(file.stat(), os.fstat(fd)):
            try:
                os.ftruncate(fd, 0)
                os.write(fd, f"{os.getpid()}\n{run.token}\n".encode())
            except OSError as error:
                os.close(fd)
                place_at(error, file, file)
                raise
            return fd
        os.close(fd)


def _discard(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        # Renamed first: what is left of it, if this is killed, must be told from the files of
        # somebody else.
        named = _TEMPORARY.fullmatch(path.name) is not None
        with suppress(FileNotFoundError):  # gone since
            _delete(path if named else path.rename(durable.sibling(path, "tmp")))


def _delete(folder: Path) -> None:
    """Delete a folder; a process that has outlived its run may write into it or delete it at the
    same time.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(folder)
            return
        except OSError as error:
            if not folder.exists():
                return
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST) or tries_left == 0:
                raise
