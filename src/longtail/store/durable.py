"""Bytes that survive a power cut: files synced as they are written, and folders put in place in one
step.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

if sys.platform != "win32":
    import fcntl

__all__ = [
    "Buffer",
    "create_file",
    "identity",
    "lock",
    "put_in_place",
    "put_where_free",
    "sibling",
    "siblings",
    "sync_file",
    "sync_folder",
]

Buffer = bytes | memoryview

# bytes: small enough that what was hashed is still in the cache when it is written
_CHUNK = 1 << 20
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def create_file(path: Path, pieces: Iterable[Buffer]) -> tuple[int, str]:
    """Write ``pieces`` one after the other into a new file and sync it; return its size and
    SHA-256.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        size, sha256 = _write_all(fd, pieces)
        os.fsync(fd)
    except BaseException:
        # half a file must not be taken for one that something else wrote
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return size, sha256


def _write_all(fd: int, pieces: Iterable[Buffer]) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    for piece in filter(len, pieces):
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), _CHUNK):
            chunk = view[start : start + _CHUNK]
            digest.update(chunk)
            while len(chunk):
                chunk = chunk[os.write(fd, chunk) :]
        size += len(view)
    return size, digest.hexdigest()


def sync_file(path: Path) -> tuple[int, str]:
    """Sync a file that something else wrote; return its size and SHA-256."""
    with open(path, "rb", buffering=0) as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def sync_folder(path: Path) -> None:
    """Sync a folder's list of names."""
    if sys.platform == "win32":  # folders cannot be opened there, and their names are journalled
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what file systems answer that have nothing to sync here
            raise
    finally:
        os.close(fd)


def lock(fd: int) -> None:
    """Lock an open file or folder until it is closed or the process dies, however it dies.

    Raises BlockingIOError when somebody else holds it, another OSError where there are no locks.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "no file locks")
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def identity(path: Path) -> tuple[int, ...]:
    """Return what tells the folder at ``path`` from another one that has replaced it; nothing if
    none is there.
    """
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns


def sibling(path: Path, kind: Literal["tmp", "old"]) -> Path:
    """Return a fresh name beside ``path``; the process id in it is for the eyes of people."""
    return path.with_name(f".{path.name}.{kind}-{os.getpid()}-{secrets.token_hex(4)}")


def siblings(path: Path, kind: Literal["tmp", "old"]) -> list[Path]:
    """Return the folders beside ``path`` that ``sibling`` named, the one renamed last first."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{kind}-\d+-[0-9a-f]{{8}}")
    siblings_by_time = []
    # a missing parent, or one that may not be listed
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            with suppress(OSError):  # gone since
                if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    siblings_by_time.append(
                        (entry.stat(follow_symlinks=False).st_ctime_ns, Path(entry.path))
                    )
    return [target for _, target in sorted(siblings_by_time, reverse=True)]


def put_in_place(new: Path, target: Path) -> None:
    """Rename the folder ``new`` to ``target``; an older folder there is replaced, then deleted.

    Linux exchanges the two in one step. Elsewhere the older one is renamed aside first; dying
    between the two renames leaves it complete under a ``sibling`` name, where readers look when
    ``target`` is missing."""
    for _ in range(100):  # another writer may come between any two steps: the last one wins, wholly
        if _rename_to_free(new, target):
            return sync_folder(target.parent)
        if _exchange(new, target):
            return _finish(target, new)
        aside = sibling(target, "old")
        with suppress(FileNotFoundError):
            target.rename(aside)
            if _rename_or_restore(new, target, aside):
                return _finish(target, aside)
            shutil.rmtree(aside, ignore_errors=True)
    raise OSError(errno.EBUSY, "other processes keep replacing this folder", str(target))


def put_where_free(new: Path, target: Path) -> None:
    """Rename the folder ``new`` to ``target``, where nothing is, or an empty folder."""
    if not _rename_to_free(new, target):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
    sync_folder(target.parent)


def _finish(target: Path, older: Path) -> None:
    try:
        sync_folder(target.parent)
    finally:
        shutil.rmtree(older, ignore_errors=True)


def _rename_to_free(new: Path, target: Path) -> bool:
    # POSIX renames over nothing or an empty folder, never over a full one.
    try:
        new.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) or (
            sys.platform == "win32" and target.exists()
        ):
            return False
        raise
    return True


def _rename_or_restore(new: Path, target: Path, aside: Path) -> bool:
    try:
        return _rename_to_free(new, target)
    except BaseException:
        with suppress(OSError):
            aside.rename(target)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where that cannot be done, for whatever reason."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    return (
        renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
    )


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None), "renameat2", None)
    if function is not None:
        function.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        ]
    return function
