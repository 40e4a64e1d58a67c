"""Files that appear whole or not at all, compressed by their suffix."""

from __future__ import annotations

import errno
import gzip
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from longtail.errors import UsageError, place_at
from longtail.store.durable import lock
from longtail.store.writing import check_outside

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["check_apart", "check_output", "open_output"]


def check_output(path: Path | str) -> None:
    """Refuse a place that no file can be written to; for long work, before it begins."""
    if str(path) == "-":
        if sys.stdout is None:  # closed by whoever started this process
            raise UsageError("-: standard output is closed; give a file")
        return
    path = Path(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist; make it first")
    if path.exists() and not path.is_file():  # a rename would put a file in place of /dev/null
        raise UsageError(f"{path}: a folder or device; expected a file, or - for standard output")
    # the file is put there by a rename, so its own mode is no matter
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    check_outside(path.parent)


def check_apart(path: Path | str, *read: Path | str | None) -> None:
    """Refuse to write over a file that is read."""
    if str(path) == "-" or not Path(path).is_file():
        return
    for file in read:
        if file is None or str(file) == "-" or not Path(file).exists():
            continue
        if Path(path).samefile(file):
            raise UsageError(
                f"{path}: is read, and would be written over; give another file to write"
            )


@contextmanager
def open_output(path: Path | str) -> Iterator[BinaryIO]:
    """Open ``path`` for writing; it is put in place, fsynced, only when the body ends without an
    error.
    """
    check_output(path)
    if str(path) == "-":
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            place_at(error, Path("standard output"), Path("-"))
            raise
        return
    path = Path(path)
    _clear_leftovers(path)
    temporary, claimed = _claim_temporary(path)
    try:
        with claimed as file:
            with _compressed(file, path.suffix) as out:
                yield out
            file.flush()
            os.fsync(file.fileno())
            # while the lock is held: whoever writes here next would remove the file
            if sys.platform != "win32":
                temporary.replace(path)
        if sys.platform == "win32":  # where there are no locks, and no open file is renamed
            temporary.replace(path)
    except OSError as error:
        place_at(error, path, temporary)
        raise
    finally:
        # which would hide the error before it; whoever writes here next removes the file
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _claim_temporary(path: Path) -> tuple[Path, BinaryIO]:
    """Make a temporary file beside ``path`` and lock it, so that others can tell it from one of a
    dead process.
    """
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            file = open(temporary, "xb")  # noqa: SIM115, closed by whoever opened the output
        except OSError as error:
            place_at(error, path, temporary)
            raise
        try:
            lock(file.fileno())
        except BlockingIOError:  # being cleared
            file.close()
            continue
        except OSError:  # there are no locks here
            return temporary, file
        if temporary.exists():  # else cleared before it was locked
            return temporary, file
        file.close()


def _clear_leftovers(path: Path) -> None:
    """Delete what processes left that died while they wrote ``path``; a live one holds the lock of
    its file.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.\d+-[0-9a-f]{{8}}\.tmp")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in [entry for entry in entries if pattern.fullmatch(entry.name)]:
            if entry.is_file(follow_symlinks=False):
                _remove_abandoned(Path(entry.path))


def _remove_abandoned(temporary: Path) -> None:
    with suppress(OSError), open(temporary, "rb") as file:
        lock(file.fileno())
        temporary.unlink()


@contextmanager
def _compressed(file: BinaryIO, suffix: str) -> Iterator[BinaryIO]:
    """Wrap ``file``; gzip without name and time, so that the same content gives the same bytes."""
    if suffix == ".gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as out:
            yield cast(BinaryIO, out)
    elif suffix == ".zst":
        with zstd.ZstdFile(file, "w") as out:
            out.write(b"")  # nothing at all would be no archive
            yield cast(BinaryIO, out)
    else:
        yield file
