"""Files that appear whole or not at all, compressed by their suffix."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from longtail.errors import UsageError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["open_output"]


@contextmanager
def open_output(path: Path | str) -> Iterator[BinaryIO]:
    """Open ``path`` for writing; it is put in place, fsynced, only when the body ends without an error."""
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist; make it first")
    if path.exists() and not path.is_file():  # a rename would put a file in place of /dev/null
        raise UsageError(f"{path}: a folder or device; expected a file, or - for standard output")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            with _compressed(file, path.suffix) as out:
                yield out
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
