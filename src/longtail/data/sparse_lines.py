"""Sparse matrices as text: lines such as ``3:0.5 8:1``, mostly under a header."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.csr import MAX_COLUMNS, csr_of
from longtail.data.headers import FLOAT, TARGETS, is_headerless
from longtail.data.lines import BEGINNING, Block, blocks
from longtail.data.problems import Problems, quoted
from longtail.kernels.text import LineLimits, ScannedLines, scan_lines

__all__ = ["Headerless", "SparseLines", "read_sparse_lines", "sparse_lines"]

_WRITE_ROWS = 4096  # rows formatted at a time

_NUMBER = re.compile(rb"\d{1,18}")


class Headerless(NamedTuple):
    """How lines without a header are read, where they may come without one."""

    # rows expected: blank lines at the end count as rows up to this number
    n_rows: int | None = None
    # False: what stands before the pairs is passed over, whatever numbers these are
    labelled: bool = True


class SparseLines(NamedTuple):
    """A file of sparse lines; rows of bad lines are there, empty, so that rows of several files
    line up.
    """

    header: tuple[int, ...]
    pairs: sparse.csr_array  # (rows, header[1]) float32, canonical
    # labels before the pairs, and row ends (rows + 1,)
    listed: tuple[NDArray[np.int32], NDArray[np.int64]]
    bad: list[int]  # rows
    nbytes: int  # of the text
    has_header: bool = True  # else columns and labels are counted up to the largest that occurs


def read_sparse_lines(
    path: Path | str,
    problems: Problems,
    header: tuple[str, ...],
    headerless: Headerless | None = None,
) -> SparseLines:
    """Read lines below a header that counts rows and columns, and listed labels where it has three
    numbers.

    Indices in a line may stand in any order but not twice. They count from 0; a file that counts
    from 1 has an empty column 0. Memory follows the lines, never what the header claims.

    Args:
        path: The file.
        problems: The ledger for bad lines.
        header: What the header counts, such as ``("documents", "features", "labels")``.
        headerless: Given where the file may be svmlight lines without a header, which may end in a
    ``# comment``."""
    stream = blocks(path, problems)
    first: list[Block] = []
    while (
        sum(len(block.data) for block in first) < BEGINNING
        and (block := next(stream, None)) is not None
    ):
        first.append(block)
    if not first:
        problems.fatal(
            "an empty file", f"a header of {len(header)} numbers: {', '.join(header)}", file=path
        )
    if headerless is not None and not is_headerless(b"".join(block.data for block in first)):
        headerless = None
    scanner = _Scanner(path, problems, header, first[0], headerless)
    for block in chain(first[1:], stream):
        scanner.take(block)
    return scanner.finish()


class _BadLine(Exception):
    """(problem, expected) for a line that cannot be taken."""


class _Scanner:
    """Feeds blocks to the kernel, and the lines that it does not take to a slow parser that says
    why.
    """

    def __init__(
        self,
        path: Path | str,
        problems: Problems,
        names: tuple[str, ...],
        block: Block,
        headerless: Headerless | None,
    ) -> None:
        self._path = path
        self._problems = problems
        self._names = names
        self._headerless = headerless
        if headerless is None:
            line, _, content = block.data.partition(b"\n")
            self.counts = self._parse_header(line, block.first_line)
            self._first_line = 2  # of row 0, but for comments
            content_line = 2
        else:
            content = block.data
            content_line = block.first_line
            self.counts = (sys.maxsize, MAX_COLUMNS, MAX_COLUMNS)
            self._first_line = 1
        self._columns = array("i")
        self._values = array("f")
        self._pair_ends = array("q", [0])
        self._listed = array("i")
        self._listed_ends = array("q", [0])
        self._lists = len(names) == 3
        self._least = np.float32(-np.inf)
        if names[1] == "labels":  # relevances are above 0
            self._least = np.nextafter(np.float32(0), np.float32(1))
        self._bad: list[int] = []
        self._room: tuple[NDArray[Any], ...] = (np.empty(0),) * 5
        self._nbytes = 0
        self._rows_to_content = 0  # rows up to the last line that is not blank
        if content:
            self.take(Block(content_line, content))

    def _parse_header(self, line: bytes, number: int) -> tuple[int, ...]:
        tokens = line.split()
        expected = f"a header of {len(self._names)} numbers: {', '.join(self._names)}"
        if (
            number != 1
            or len(tokens) != len(self._names)
            or not all(map(_NUMBER.fullmatch, tokens))
        ):
            self._problems.fatal(quoted(line), expected, 1, self._path)
        counts = tuple(map(int, tokens))
        for count, name in zip(counts[1:], self._names[1:], strict=True):
            if count > MAX_COLUMNS:
                self._problems.fatal(
                    f"a header of {count} {name}", f"at most {MAX_COLUMNS}", 1, self._path
                )
        return counts

    @property
    def _rows(self) -> int:
        return len(self._pair_ends) - 1

    def take(self, block: Block) -> None:
        """Read whole lines; those above the header's count must be blank."""
        self._nbytes += len(block.data)
        # a line was too long to be held
        while self._rows < min(block.first_line - self._first_line, self.counts[0]):
            self._append_bad()
            self._rows_to_content = self._rows
        data = np.frombuffer(block.data, np.uint8)
        at = 0
        room = self._scratch(block.data)
        n_labels = self.counts[-1] if self._lists else 0
        limits = LineLimits(self._lists, n_labels, self.counts[1], self._least)
        while at < len(data) and self._rows < self.counts[0]:
            most = min(self.counts[0] - self._rows, len(room[1]))
            rows, at = scan_lines(data, at, most, limits, ScannedLines(*room))
            self._keep(rows, *room)
            if at < len(data) and rows < most:
                end = block.data.index(b"\n", at)
                self._take_slowly(block.data[at:end])
                at = end + 1
        if content := block.data.rstrip():
            self._rows_to_content = self._rows + 1 - block.data.count(b"\n", len(content))
        if block.data[at:].strip():
            skipped = len(block.data[at:]) - len(block.data[at:].lstrip())
            line = block.first_line + block.data.count(b"\n", 0, at + skipped)
            problem = f"a line after the {self.counts[0]} {self._names[0]} of the header"
            self._problems.fatal(problem, "the end of the file", line, self._path)

    def _scratch(self, data: bytes) -> tuple[NDArray[Any], ...]:
        """Return arrays, used again and again, for all that lines can hold: `1,` is a label, `1:1 `
        a pair.
        """
        labels = len(data) // 2 + 1
        pairs = len(data) // 4 + 1
        rows = data.count(b"\n")
        if labels > len(self._room[0]) or rows > len(self._room[1]):
            kinds = (
                (labels, np.int32),
                (rows, np.int64),
                (pairs, np.int32),
                (pairs, np.float32),
                (rows, np.int64),
            )
            self._room = tuple(np.empty(size, kind) for size, kind in kinds)
        return self._room

    def _keep(self, rows: int, *room: NDArray[Any]) -> None:
        """Append what the kernel wrote for ``rows`` lines."""
        listed, listed_ends, columns, values, pair_ends = room
        if not rows:
            return
        if self._headerless is not None and not self._headerless.labelled:
            listed_ends[:rows] = 0
        self._listed_ends.frombytes((len(self._listed) + listed_ends[:rows]).tobytes())
        self._listed.frombytes(listed[: listed_ends[rows - 1]].tobytes())
        self._pair_ends.frombytes((len(self._columns) + pair_ends[:rows]).tobytes())
        self._columns.frombytes(columns[: pair_ends[rows - 1]].tobytes())
        self._values.frombytes(values[: pair_ends[rows - 1]].tobytes())

    def _take_slowly(self, line: bytes) -> None:
        if self._headerless is not None and b"#" in line:
            line = line.partition(b"#")[0]
            if not line.strip():  # a comment alone is no row
                self._first_line += 1
                return
        try:
            listed, pairs = self._parse(line)
        except _BadLine as bad:
            problem, expected = bad.args
            self._problems.add(self._rows + self._first_line, problem, expected, self._path)
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
        noun = self._names[1].removesuffix("s")
        tokens = line.split()
        listed: list[int] = []
        if self._lists and tokens and not line[:1].isspace() and b":" not in tokens[0]:
            listed = self._parse_listed(tokens.pop(0))
        if self._headerless is not None and tokens and tokens[0].startswith(b"qid:"):
            tokens = tokens[1:]
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

    def _parse_listed(self, token: bytes) -> list[int]:
        """Return the labels before the pairs; none of a file that is read for its pairs alone."""
        if self._headerless is not None and not self._headerless.labelled:
            if not TARGETS.fullmatch(token):
                raise _BadLine(quoted(token), "numbers separated by commas, or feature:value")
            return []
        return [self._index(label, "label", self.counts[-1]) for label in token.split(b",")]

    def _index(self, token: bytes, noun: str, count: int) -> int:
        if not token.isdigit():
            raise _BadLine(f"{noun} {quoted(token)}", "a whole number from 0")
        digits = token.lstrip(b"0") or b"0"
        if len(digits) > 18 or int(digits) >= count:
            limit = str(count)
            if self._headerless is None:
                limit = f"{count}, as the header says"
            raise _BadLine(f"{noun} {quoted(digits)[1:-1]}", f"a number below {limit}")
        return int(digits)

    def _value(self, token: bytes, column: int) -> float:
        value = np.float32(np.nan)
        if FLOAT.fullmatch(token):
            with np.errstate(over="ignore"):
                value = np.float32(float(token))
        if not np.isfinite(value):
            raise _BadLine(f"value {quoted(token)}", "a finite number")
        if value < self._least:
            raise _BadLine(
                f"relevance {quoted(token)} of label {column}", "a finite number above 0"
            )
        return float(value)

    def finish(self) -> SparseLines:
        """Return the matrix once the file is read; a header must have counted the lines."""
        if self._headerless is None:
            n_rows, n_columns, *_ = counts = self.counts
            if self._rows < n_rows:
                problem = f"{self._rows} lines after a header of {n_rows} {self._names[0]}"
                self._problems.fatal(problem, "as many lines as the header says", 1, self._path)
        else:
            n_rows, n_columns, _ = counts = self._counted(self._headerless.n_rows)
        columns = np.frombuffer(self._columns, np.int32)
        ends = np.frombuffer(self._pair_ends, np.int64)[: n_rows + 1]
        matrix = csr_of(np.frombuffer(self._values, np.float32), columns, ends, n_columns)
        listed = np.frombuffer(self._listed, np.int32)
        listed_ends = np.frombuffer(self._listed_ends, np.int64)[: n_rows + 1]
        has_header = self._headerless is None
        return SparseLines(
            counts, matrix, (listed, listed_ends), self._bad, self._nbytes, has_header
        )

    def _counted(self, wanted: int | None) -> tuple[int, int, int]:
        """Return (rows, columns, labels) of lines without a header; blank lines at the end may be
        rows or not.
        """
        n_rows = self._rows_to_content
        if wanted is not None and n_rows < wanted <= self._rows:
            n_rows = wanted
        n_columns = 1 + int(np.frombuffer(self._columns, np.int32).max(initial=-1))
        n_labels = 1 + int(np.frombuffer(self._listed, np.int32).max(initial=-1))
        return n_rows, n_columns, n_labels


def sparse_lines(matrix: sparse.csr_array) -> Iterator[bytes]:
    """Yield each row as ``3:0.5 8:1.0``, values in the fewest digits that read back as the same
    float32.
    """
    for first in range(0, matrix.shape[0], _WRITE_ROWS):
        ends = matrix.indptr[first : first + _WRITE_ROWS + 1]
        block = slice(int(ends[0]), int(ends[-1]))
        tokens = zip(
            matrix.indices[block].tolist(), matrix.data[block].astype("S").tolist(), strict=True
        )
        pairs = list(map(b"%d:%b".__mod__, tokens))
        for start, end in zip(
            (ends[:-1] - ends[0]).tolist(), (ends[1:] - ends[0]).tolist(), strict=True
        ):
            yield b" ".join(pairs[start:end])
