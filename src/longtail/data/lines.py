"""Bytes from a file or standard input, decompressed and cut into blocks of whole lines, within
limits.

Compression is told by content, not by name. A truncated archive, a decompression bomb and a line
without end are found while streaming, so that no input can fill the memory.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from longtail.data.problems import Problems, not_utf8
from longtail.errors import UsageError
from longtail.reporting import advance

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "BEGINNING",
    "MAX_EXPANSION",
    "MAX_LINE",
    "Block",
    "beginning",
    "blocks",
    "chunks",
    "text_lines",
    "uncompressed",
]

MAX_LINE = 64 << 20  # bytes of one line: far above any document
BEGINNING = 1 << 16  # bytes by which the format of a file is told
MAX_EXPANSION = 200  # times the compressed size; real text stays below 50
# bytes of output that are never a bomb; they may be two million empty lines
_EXPANSION_FREE = 2 << 20
_CHUNK = 1 << 18  # bytes read, and bytes decompressed, at a time
# bytes read of an archive at a time: few, so that a bomb is seen before it has grown
_ARCHIVE_CHUNK = 1 << 14
_NEWLINE = 10
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class Block(NamedTuple):
    """Whole lines, each ended by a newline; ``first_line`` counts from 1."""

    first_line: int
    data: bytes


def uncompressed(path: Path | str) -> Path:
    """Return a name without the ending that tells of compression: what is left says what the
    content is.
    """
    return Path(re.sub(r"\.(gz|zst)$", "", str(path)))


def beginning(path: Path | str) -> bytes:
    """Return the first bytes of a file, decompressed, at most BEGINNING of them, without a byte
    order mark.
    """
    start = bytearray()
    with closing(chunks(path, Problems(path))) as stream:
        for chunk in stream:
            start += chunk
            if len(start) >= BEGINNING:
                break
    return bytes(start[:BEGINNING]).removeprefix(b"\xef\xbb\xbf")


def text_lines(path: Path | str, problems: Problems) -> Iterator[tuple[int, str | None]]:
    """Yield (line number, text) for every line; None for one that is bad, which is reported."""
    next_line = 1
    for block in blocks(path, problems):
        for overlong in range(next_line, block.first_line):
            yield overlong, None
        next_line = block.first_line + block.data.count(b"\n")
        for number, line in enumerate(block.data.split(b"\n")[:-1], block.first_line):
            try:
                yield number, line.removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                problems.add(number, *not_utf8(error), path)
                yield number, None


def blocks(path: Path | str, problems: Problems) -> Iterator[Block]:
    """Yield blocks of about 256 KiB; a line above MAX_LINE is reported to ``problems`` and left
    out.

    A last block without data has the number of the line after such a line, so that it counts also
    at the end."""
    open_line: list[bytes] = []  # the chunks of a line whose end is not read yet
    line = 1
    held = 0
    overlong = False
    lost = False
    for chunk in _without_mark(chunks(path, problems), path, problems):
        end = chunk.find(b"\n") + 1
        to_newline = end - 1 if end else len(chunk)
        if not overlong and held + to_newline > MAX_LINE:
            size = f"a line of more than {MAX_LINE >> 20} MiB"
            problems.add(line, size, "one document a line", path)
            open_line = []
            held = 0
            overlong = True
            lost = True
        if overlong and end:
            line = line + 1
            overlong = False
            chunk = chunk[end:]
        end = chunk.rfind(b"\n") + 1
        if end:
            data = b"".join([*open_line, memoryview(chunk)[:end]])
            yield Block(line, data)
            # faster than bytes.count
            line += int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE))
            open_line = []
            held = 0
            lost = False
        if not overlong:
            open_line.append(chunk[end:])
            held += len(chunk) - end
    if held:
        yield Block(line, b"".join([*open_line, b"\n"]))
    elif lost:
        yield Block(line + overlong, b"")


def _without_mark(stream: Iterator[bytes], path: Path | str, problems: Problems) -> Iterator[bytes]:
    """Drop a UTF-8 byte order mark; refuse the other encodings that announce themselves."""
    first = b""
    # an archive may begin with an empty member
    while len(first) < 3 and (more := next(stream, None)) is not None:
        first += more
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.fatal("UTF-16 text", "UTF-8; convert it with: iconv -f UTF-16 -t UTF-8", 1, path)
    yield first.removeprefix(b"\xef\xbb\xbf")
    yield from stream


def chunks(path: Path | str, problems: Problems) -> Generator[bytes, None, None]:
    """Yield the decompressed bytes of ``path`` (``-`` is standard input), at most 256 KiB at a
    time.
    """
    with _opened(path) as stream:
        few = min(_ARCHIVE_CHUNK, _CHUNK)
        head = _more(stream, few)
        # a pipe may give one byte at a time
        while 0 < len(head) < len(_ZSTD) and (more := _more(stream, few)):
            head += more
        if head.startswith((_GZIP, _ZSTD)):
            yield from _decompressed(stream, head, path, problems)
            return
        head += _more(stream, _CHUNK - few)
        while head:
            yield head
            head = _more(stream, _CHUNK)


def _more(stream: BufferedIOBase, most: int) -> bytes:
    # what is there: a slow pipe is not waited for, and a signal is acted on
    data = stream.read1(most)
    advance(len(data))
    return data


def _opened(path: Path | str) -> AbstractContextManager[BufferedIOBase]:
    if str(path) == "-":
        return nullcontext(cast(BufferedIOBase, sys.stdin.buffer))
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: cannot be read, as it is a folder; expected a file") from None
    except OSError as error:
        way_out = ""
        if isinstance(error, PermissionError):
            way_out = "; check its permissions"
        raise UsageError(f"{path}: cannot be read ({error.strerror}){way_out}") from None


def _decompressed(
    stream: BufferedIOBase, data: bytes, path: Path | str, problems: Problems
) -> Iterator[bytes]:
    """Yield the bytes of an archive of one or more members, each whole and none a bomb."""
    kind = "gzip" if data.startswith(_GZIP) else "zstd"
    bytes_in = 0
    bytes_out = 0
    member = _Member(kind)
    while data or not member.idle:
        bytes_in += len(data)
        try:
            out = member.decompress(data)
        except (zlib.error, zstd.ZstdError) as error:
            problems.fatal(f"damaged {kind} data ({error})", f"a whole {kind} file", file=path)
        bytes_out += len(out)
        if bytes_out > max(_EXPANSION_FREE, MAX_EXPANSION * bytes_in):
            times = f"{kind} data that grows more than {MAX_EXPANSION} times"
            problems.fatal(times, "text; if it is meant, decompress it first", file=path)
        yield out
        data = b""
        if member.ended:
            bytes_in -= len(member.unused)
            data = member.unused.lstrip(b"\0")
            more = b"."
            while not data and more:  # zeros between members and at the end are tape padding
                more = _more(stream, _ARCHIVE_CHUNK)
                data = more.lstrip(b"\0")
            member = _Member(kind)
        elif member.hungry:
            data = _more(stream, _ARCHIVE_CHUNK)
            if not data:
                problems.fatal(
                    f"{kind} data that ends too early",
                    f"a whole {kind} file; copy it again",
                    file=path,
                )


class _Member:
    """One gzip member or zstd frame: the two libraries' decompressors under one face, output
    bounded by _CHUNK.
    """

    def __init__(self, kind: str) -> None:
        self._gzip = kind == "gzip"
        self._codec: Any
        if self._gzip:
            self._codec = zlib.decompressobj(wbits=31)
        else:
            self._codec = zstd.ZstdDecompressor()
        self.idle = True  # nothing fed yet

    def decompress(self, data: bytes) -> bytes:
        self.idle = False
        if self._gzip:
            data = self._codec.unconsumed_tail + data
        out: bytes = self._codec.decompress(data, _CHUNK)
        return out

    @property
    def ended(self) -> bool:
        return bool(self._codec.eof)

    @property
    def hungry(self) -> bool:
        if self._gzip:
            return not self._codec.unconsumed_tail
        return bool(self._codec.needs_input)

    @property
    def unused(self) -> bytes:
        data: bytes = self._codec.unused_data
        return data
