"""Sparse matrices as text: lines such as ``3:0.5 8:1`` under a header, scanned by a kernel."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import MAX_COLUMNS, csr_of
from longtail.data.lines import Block, blocks
from longtail.data.problems import Problems, quoted
from longtail.kernels.text import scan_lines

__all__ = ["SparseLines", "read_sparse_lines", "sparse_lines"]

_WRITE_ROWS = 4096  # rows formatted at a time

_NUMBER = re.compile(rb"\d{1,18}")
_VALUE = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class SparseLines(NamedTuple):
    """A file of sparse lines; rows of bad lines are there, empty, so that rows of several files line up."""

    header: tuple[int, ...]
    pairs: sparse.csr_array  # (rows, header[1]) float32, canonical
    listed: tuple[NDArray[np.int32], NDArray[np.int64]]  # labels before the pairs, and row ends (rows + 1,)
    bad: list[int]  # rows
    nbytes: int  # of the text


def read_sparse_lines(path: Path | str, problems: Problems, header: tuple[str, ...]) -> SparseLines:
    """Read lines below a header that counts rows and columns, and listed labels where it has three numbers.

    ``header`` names what is counted, e.g. ``("documents", "features", "labels")``. Indices in a line may stand in
    any order but not twice. Memory follows the lines, never what the header claims.
    """
    scanner: _Scanner | None = None
    for block in blocks(path, problems):
        if scanner is None:
            scanner = _Scanner(path, problems, header, block)
        else:
            scanner.take(block)
    if scanner is None:
        problems.fatal("an empty file", f"a header of {len(header)} numbers: {', '.join(header)}", file=path)
    return scanner.finish()


class _BadLine(Exception):
    """(found, expected) for a line that cannot be taken."""


class _Scanner:
    """Feeds blocks to the kernel, and the lines that it does not take to a slow parser that says why."""

    def __init__(self, path: Path | str, problems: Problems, names: tuple[str, ...], block: Block) -> None:
        self._path, self._problems, self._names = path, problems, names
        line, _, rest = block.data.partition(b"\n")
        self.counts = self._parse_header(line, block.first_line)
        self._columns, self._values, self._pair_ends = array("i"), array("f"), array("q", [0])
        self._listed, self._listed_ends = array("i"), array("q", [0])
        self._lists = len(names) == 3
        # relevances are above 0
        self._least = np.nextafter(np.float32(0), np.float32(1)) if names[1] == "labels" else np.float32(-np.inf)
        self._bad: list[int] = []
        self._room: tuple[NDArray[Any], ...] = (np.empty(0),) * 5
        self._nbytes = 0
        if rest:
            self.take(Block(2, rest))

    def _parse_header(self, line: bytes, number: int) -> tuple[int, ...]:
        tokens = line.split()
        expected = f"a header of {len(self._names)} numbers: {', '.join(self._names)}"
        if number != 1 or len(tokens) != len(self._names) or not all(map(_NUMBER.fullmatch, tokens)):
            self._problems.fatal(quoted(line), expected, 1, self._path)
        counts = tuple(map(int, tokens))
        for count, name in zip(counts[1:], self._names[1:], strict=True):
            if count > MAX_COLUMNS:
                self._problems.fatal(f"a header of {count} {name}", f"at most {MAX_COLUMNS}", 1, self._path)
        return counts

    @property
    def _rows(self) -> int:
        return len(self._pair_ends) - 1

    def take(self, block: Block) -> None:
        """Read whole lines; those above the header's count must be blank."""
        self._nbytes += len(block.data)
        while self._rows < min(block.first_line - 2, self.counts[0]):  # a line was too long to be held
            self._append_bad()
        data, at = np.frombuffer(block.data, np.uint8), 0
        room = self._scratch(block.data)
        n_labels = self.counts[-1] if self._lists else 0
        while at < len(data) and self._rows < self.counts[0]:
            most = min(self.counts[0] - self._rows, len(room[1]))
            rows, at = scan_lines(data, at, most, self._lists, n_labels, self.counts[1], self._least, *room)
            self._keep(rows, *room)
            if at < len(data) and rows < most:
                end = block.data.index(b"\n", at)
                self._take_slowly(block.data[at:end])
                at = end + 1
        if block.data[at:].strip():
            skipped = len(block.data[at:]) - len(block.data[at:].lstrip())
            line = block.first_line + block.data.count(b"\n", 0, at + skipped)
            found = f"a line after the {self.counts[0]} {self._names[0]} of the header"
            self._problems.fatal(found, "the end of the file", line, self._path)

    def _scratch(self, data: bytes) -> tuple[NDArray[Any], ...]:
        """Return arrays, used again and again, for all that lines can hold: `1,` is a label, `1:1 ` a pair."""
        labels, pairs, rows = len(data) // 2 + 1, len(data) // 4 + 1, data.count(b"\n")
        if labels > len(self._room[0]) or rows > len(self._room[1]):
            kinds = ((labels, np.int32), (rows, np.int64), (pairs, np.int32), (pairs, np.float32), (rows, np.int64))
            self._room = tuple(np.empty(size, kind) for size, kind in kinds)
        return self._room

    def _keep(self, rows: int, *room: NDArray[Any]) -> None:
        """Append what the kernel wrote for ``rows`` lines."""
        listed, listed_ends, columns, values, pair_ends = room
        if not rows:
            return
        self._listed_ends.frombytes((len(self._listed) + listed_ends[:rows]).tobytes())
        self._listed.frombytes(listed[: listed_ends[rows - 1]].tobytes())
        self._pair_ends.frombytes((len(self._columns) + pair_ends[:rows]).tobytes())
        self._columns.frombytes(columns[: pair_ends[rows - 1]].tobytes())
        self._values.frombytes(values[: pair_ends[rows - 1]].tobytes())

    def _take_slowly(self, line: bytes) -> None:
        try:
            listed, pairs = self._parse(line)
        except _BadLine as wrong:
            found, expected = wrong.args
            self._problems.add(self._rows + 2, found, expected, self._path)
            self._append_bad()
            return
        self._listed.extend(listed)
        self._listed_ends.append(len(self._listed))
        self._columns.extend(sorted(pairs))
        self._values.extend(pairs[column] for column in sorted(pairs))
        self._pair_ends.append(len(self._columns))

    def _append_bad(self) -> None:
        self._bad.append(self._rows)
        self._listed_ends.append(len(self._listed))
        self._pair_ends.append(len(self._columns))

    def _parse(self, line: bytes) -> tuple[list[int], dict[int, float]]:
        """Return (listed labels, column → value), or raise with what is wrong."""
        noun, tokens = self._names[1].removesuffix("s"), line.split()
        listed: list[int] = []
        if self._lists and tokens and not line[:1].isspace() and b":" not in tokens[0]:
            listed = [self._index(label, "label", self.counts[-1]) for label in tokens.pop(0).split(b",")]
        pairs: dict[int, float] = {}
        for token in tokens:
            number, colon, value = token.partition(b":")
            if not colon:
                raise _BadLine(quoted(token), f"{noun}:value")
            column = self._index(number, noun, self.counts[1])
            if column in pairs:
                raise _BadLine(f"{noun} {column} twice", f"each {noun} once a line")
            pairs[column] = self._value(value, column)
        return listed, pairs

    @staticmethod
    def _index(token: bytes, noun: str, count: int) -> int:
        if not token.isdigit():
            raise _BadLine(f"{noun} {quoted(token)}", "a whole number from 0")
        digits = token.lstrip(b"0") or b"0"
        if len(digits) > 18 or int(digits) >= count:
            raise _BadLine(f"{noun} {quoted(digits)[1:-1]}", f"a number below {count}, as the header says")
        return int(digits)

    def _value(self, token: bytes, column: int) -> float:
        with np.errstate(over="ignore"):
            value = np.float32(float(token)) if _VALUE.fullmatch(token) else np.float32(np.nan)
        if not np.isfinite(value):
            raise _BadLine(f"value {quoted(token)}", "a finite number")
        if value < self._least:
            raise _BadLine(f"relevance {quoted(token)} of label {column}", "a finite number above 0")
        return float(value)

    def finish(self) -> SparseLines:
        """Return the matrix once the file is read; the header must have told the number of lines."""
        if self._rows < self.counts[0]:
            found = f"{self._rows} lines after a header of {self.counts[0]} {self._names[0]}"
            self._problems.fatal(found, "as many lines as the header says", 1, self._path)
        columns, ends = np.frombuffer(self._columns, np.int32), np.frombuffer(self._pair_ends, np.int64)
        matrix = csr_of(np.frombuffer(self._values, np.float32), columns, ends, self.counts[1])
        listed = (np.frombuffer(self._listed, np.int32), np.frombuffer(self._listed_ends, np.int64))
        return SparseLines(self.counts, matrix, listed, self._bad, self._nbytes)


def sparse_lines(matrix: sparse.csr_array) -> Iterator[bytes]:
    """Yield each row as ``3:0.5 8:1.0``, values in the fewest digits that read back as the same float32."""
    for first in range(0, matrix.shape[0], _WRITE_ROWS):
        ends = matrix.indptr[first : first + _WRITE_ROWS + 1]
        block = slice(int(ends[0]), int(ends[-1]))
        tokens = zip(matrix.indices[block].tolist(), matrix.data[block].astype("S").tolist(), strict=True)
        pairs = list(map(b"%d:%b".__mod__, tokens))
        for start, end in zip((ends[:-1] - ends[0]).tolist(), (ends[1:] - ends[0]).tolist(), strict=True):
            yield b" ".join(pairs[start:end])
