"""Sparse matrices in files: text lines such as ``3:0.5 8:1`` under a header, and ``.npz`` as scipy writes it."""

from __future__ import annotations

import re
import zipfile
from array import array
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.lines import MAX_EXPANSION, Block, blocks
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.errors import LongtailError, UsageError
from longtail.kernels.text import scan_lines

__all__ = ["MAX_COLUMNS", "SparseLines", "read_csr_npz", "read_sparse_lines", "sparse_lines", "write_csr_npz"]

MAX_COLUMNS = 2**31 - 1  # indices are 32 bits wide
_EXPANSION_FREE = 64 << 20  # bytes that are never a bomb
_CHUNK = 1 << 20  # bytes read from an archive at a time
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
        matrix = _csr(np.frombuffer(self._values, np.float32), columns, ends, self.counts[1])
        listed = (np.frombuffer(self._listed, np.int32), np.frombuffer(self._listed_ends, np.int64))
        return SparseLines(self.counts, matrix, listed, self._bad, self._nbytes)


def _csr(
    values: NDArray[np.float32], columns: NDArray[np.int32], ends: NDArray[np.int64], n_columns: int
) -> sparse.csr_array:
    """Return the matrix over these very arrays; scipy would widen 32-bit columns to the type of the row ends."""
    narrow = ends.astype(np.int32) if len(columns) <= MAX_COLUMNS else ends
    return sparse.csr_array((values, columns, narrow), shape=(len(ends) - 1, n_columns))


def sparse_lines(matrix: sparse.csr_array) -> Iterator[bytes]:
    """Yield each row as ``3:0.5 8:1.0``, values in the fewest digits that read back as the same float32."""
    for first in range(0, matrix.shape[0], _WRITE_ROWS):
        ends = matrix.indptr[first : first + _WRITE_ROWS + 1]
        block = slice(int(ends[0]), int(ends[-1]))
        tokens = zip(matrix.indices[block].tolist(), matrix.data[block].astype("S").tolist(), strict=True)
        pairs = list(map(b"%d:%b".__mod__, tokens))
        for start, end in zip((ends[:-1] - ends[0]).tolist(), (ends[1:] - ends[0]).tolist(), strict=True):
            yield b" ".join(pairs[start:end])


def write_csr_npz(matrix: sparse.csr_array, path: Path | str) -> None:
    """Write a matrix as ``scipy.sparse.save_npz`` does; the same matrix gives the same bytes."""
    with open_output(path) as out:
        sparse.save_npz(out, matrix)


def read_csr_npz(path: Path | str) -> sparse.csr_array:
    """Read a CSR matrix from ``.npz`` as canonical float32; sizes and indices are checked before they are used."""
    problems = Problems(path)
    try:
        with open(path, "rb") as file:
            arrays = _read_members(file, problems)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    return _checked_csr(arrays, problems)


_MEMBERS = ("format", "shape", "indptr", "indices", "data")


def _read_members(file: BinaryIO, problems: Problems) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            _check_members(members, file.seek(0, 2), problems)
            return {name: _read_array(archive, members[name], problems) for name in _MEMBERS}
    except LongtailError:
        raise
    except Exception as error:  # zipfile and numpy raise a dozen kinds for damaged bytes
        problems.fatal(f"a damaged archive ({quoted(str(error))})", "a matrix of scipy.sparse.save_npz")


def _check_members(members: dict[str, zipfile.ZipInfo], nbytes: int, problems: Problems) -> None:
    """Refuse an archive of something else, and one that claims more than ``nbytes`` of archive can hold."""
    missing = [name for name in _MEMBERS if name not in members]
    if missing:
        problems.fatal(f"an archive without {missing[0]}.npy", "a matrix of scipy.sparse.save_npz")
    if sum(members[name].file_size for name in _MEMBERS) > max(_EXPANSION_FREE, MAX_EXPANSION * nbytes):
        found = f"an archive that grows more than {MAX_EXPANSION} times"
        problems.fatal(found, "a matrix; if it is meant, save it with compressed=False")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, problems: Problems) -> NDArray[Any]:
    """Return one array; its header must claim just the bytes that the archive holds, and no objects."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(member)
        if dtype.kind not in "iufbSU" or len(shape) > 1:
            problems.fatal(f"{info.filename} of type {dtype} and shape {shape}", "a list of plain numbers")
        size, held = prod(shape) * dtype.itemsize, info.file_size - member.tell()
        if size != held:
            problems.fatal(f"{info.filename} that claims {size} bytes and holds {held}", "as many")
        content = bytearray(size)
        for at in range(0, size, _CHUNK):  # ZipExtFile.readinto would hold all of it twice
            content[at : at + _CHUNK] = member.read(_CHUNK)
        return np.frombuffer(content, dtype).reshape(shape)


def _checked_csr(arrays: dict[str, NDArray[Any]], problems: Problems) -> sparse.csr_array:
    """Return the matrix, or say what is wrong with it."""
    shape, indptr, indices = (_integers(arrays, name, problems) for name in ("shape", "indptr", "indices"))
    kind, data = arrays["format"].tobytes().replace(b"\0", b""), arrays["data"]
    if kind != b"csr":
        problems.fatal(f"a matrix in the format {quoted(kind)}", "csr; convert it with matrix.tocsr()")
    if data.dtype.kind not in "iufb" or data.ndim != 1:
        problems.fatal(f"data of type {data.dtype} and shape {data.shape}", "a list of numbers")
    if len(shape) != 2 or shape[0] != len(indptr) - 1 or not 0 <= shape[1] <= MAX_COLUMNS:
        found = f"the shape {tuple(shape.tolist())} with {len(indptr) - 1} rows"
        problems.fatal(found, f"(rows, columns) and at most {MAX_COLUMNS} columns")
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any() or not indptr[-1] == len(indices) == len(data):
        problems.fatal("row ends that do not rise from 0 to the number of entries", "a CSR matrix")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        problems.fatal(f"column {_outside(indices, shape[1])}", f"a number below {shape[1]}")
    with np.errstate(over="ignore"):
        values = data.astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        problems.fatal(f"value {data[~np.isfinite(values)][0]}", "finite numbers")
    return _canonical(values, indices.astype(np.int32, copy=False), indptr, int(shape[1]), problems)


def _integers(arrays: dict[str, NDArray[Any]], name: str, problems: Problems) -> NDArray[Any]:
    found = arrays[name]
    if found.dtype.kind not in "iu" or found.ndim != 1 or (name == "indptr" and not len(found)):
        problems.fatal(f"{name} of type {found.dtype} and shape {found.shape}", "a list of whole numbers")
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def _outside(indices: NDArray[Any], n_columns: int) -> int:
    return int(indices.min() if indices.min() < 0 else indices[indices >= n_columns][0])


def _canonical(
    values: NDArray[np.float32],
    columns: NDArray[np.int32],
    ends: NDArray[Any],
    n_columns: int,
    problems: Problems,
) -> sparse.csr_array:
    """Return the matrix with rising columns in each row; the same column twice is refused."""
    matrix = _csr(values, columns, ends.astype(np.int64, copy=False), n_columns)
    matrix.sort_indices()
    if not matrix.has_canonical_format:
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        twice = (matrix.indices[1:] == matrix.indices[:-1]) & (rows[1:] == rows[:-1])
        at = int(np.flatnonzero(twice)[0])
        problems.fatal(f"column {matrix.indices[at]} twice in row {rows[at]}", "each column once a row")
    return matrix
