"""What must hold for anything a parser returns, and slow second opinions that share no code with
Longtail.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from longtail.data import lines as lines_module
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.errors import DataError, LongtailError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "Outcome",
    "check_dataset",
    "check_labels",
    "check_matrix",
    "check_strings",
    "outcome",
    "reference_bow",
    "reference_headerless",
    "reference_jsonl",
    "reference_plain",
    "same",
    "same_matrix",
    "small_chunks",
    "without_lines",
]

Outcome = Any  # what a parser returned, or the LongtailError it raised
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BOM = b"\xef\xbb\xbf"
MOST_COLUMNS = 2**31 - 1


def outcome(parse: Callable[..., Any], *args: Any, **more: Any) -> Outcome:
    """Return the result or the refusal; any other exception is a defect and passes through."""
    try:
        return parse(*args, **more)
    except LongtailError as error:
        check_message(error)
        return error


def check_message(error: LongtailError) -> None:
    """A message can be printed, cannot steer a terminal, and is one line a problem."""
    message = str(error)
    message.encode()
    assert not _CONTROL.search(message), f"control characters in {message!r}"
    most = len(error.problems) + 1 if isinstance(error, DataError) else 1
    assert 0 < len(message.split("\n")) <= most, f"too many lines in {message!r}"
    assert len(message) <= 21 * 4000, "a message of more than some lines"


def check_strings(strings: Strings | None, count: int) -> None:
    """``count`` strings, each of them UTF-8."""
    if strings is None:
        return
    assert len(strings) == count == len(strings.offsets) - 1
    assert strings.offsets[0] >= 0
    assert strings.offsets[-1] <= len(strings.arena)
    assert (np.diff(strings.offsets) >= 0).all()
    assert len(list(strings)) == count


def check_labels(labels: Labels) -> None:
    """Columns of one length, and ids that are unique."""
    for column in (labels.ids, labels.names, labels.texts, labels.uris):
        check_strings(column, len(labels))
    if labels.aliases is not None:
        assert len(labels.aliases) == len(labels)
        "".join(alias for member in labels.aliases for alias in member).encode()
    assert len(labels.columns) == len(labels)


def check_matrix(
    matrix: Any, n_rows: int, n_columns: int, above: float = -np.inf, dtype: Any = np.float32
) -> None:
    """A canonical CSR matrix: columns rising in each row and in range, values finite and above
    ``above``.
    """
    assert matrix.format == "csr"
    assert matrix.dtype == dtype
    assert matrix.shape == (n_rows, n_columns)
    ends = matrix.indptr
    columns = matrix.indices
    values = matrix.data
    assert len(ends) == n_rows + 1
    assert ends[0] == 0
    assert (np.diff(ends) >= 0).all()
    assert ends[-1] == len(columns) == len(values)
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        assert (np.diff(columns[start:end]) > 0).all(), "columns of a row do not rise"
    assert not len(columns) or 0 <= columns.min() <= columns.max() < n_columns
    assert np.isfinite(values).all()
    assert (values > above).all()


def check_dataset(dataset: Dataset) -> None:
    """Everything that a reader promises of a dataset."""
    assert len(dataset) > 0
    check_labels(dataset.labels)
    check_matrix(dataset.label_matrix, len(dataset), len(dataset.labels), above=0)
    check_strings(dataset.texts, len(dataset))
    check_strings(dataset.ids, len(dataset))
    assert dataset.texts is not None or dataset.features is not None
    if dataset.features is not None:
        check_matrix(dataset.features, len(dataset), dataset.features.shape[1])
    if dataset.label_features is not None:
        check_matrix(dataset.label_features, len(dataset.labels), dataset.label_features.shape[1])
    assert min(dataset.merged_duplicates, dataset.dropped_unknown) >= 0


def same_matrix(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and all(
        np.array_equal(getattr(a, part), getattr(b, part)) for part in ("indptr", "indices", "data")
    )


def same(a: Dataset, b: Dataset, ids: bool = True) -> bool:
    """Tell whether two datasets hold the same documents, labels and pairs."""
    matrices = ("label_matrix", "features", "label_features")
    alike = a.labels == b.labels and a.texts == b.texts and (not ids or a.ids == b.ids)
    return alike and all(same_matrix(getattr(a, name), getattr(b, name)) for name in matrices)


@contextmanager
def small_chunks(size: int, **limits: int) -> Iterator[None]:
    """Read files ``size`` bytes (4 or more, to tell an archive) at a time, so that short inputs too
    are cut.
    """
    with mock.patch.multiple(lines_module, _CHUNK=size, _ARCHIVE_CHUNK=4, **limits):
        yield


def without_lines(plain: bytes, bad: set[int]) -> bytes:
    """Return the text without the lines counted from 1; the mark keeps what is left from looking
    like an archive.
    """
    kept = [
        line
        for number, line in enumerate(plain.removeprefix(BOM).split(b"\n"), 1)
        if number not in bad
    ]
    return BOM + b"\n".join(kept)


def reference_plain(data: bytes) -> bytes | None:
    """Return what the bytes hold, each member decompressed at once; None where one is damaged or
    cut short.
    """
    kind = next((kind for kind in _CODECS if data.startswith(kind)), None)
    if kind is None:
        return data
    out = b""
    while data:
        member = _CODECS[kind]()
        try:
            out += member.decompress(data)
        except (zlib.error, zstd.ZstdError):
            return None
        if not member.eof:
            return None
        data = member.unused_data.lstrip(b"\0")  # padding
    return out


_CODECS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\x28\xb5\x2f\xfd": zstd.ZstdDecompressor,
}


def reference_jsonl(line: bytes) -> tuple[str, str | None, dict[str, float]] | None:
    """Return (text, id, label → relevance) of a line; None where the standard library cannot read
    it.
    """
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    title = record.get("title")
    text = record.get("text")
    labels = record.get("labels") or []
    joined = "\n".join(part for part in (title, text) if part)
    relevance = record.get("relevance") or [1.0] * len(labels)
    graded: dict[str, float] = {}
    for label, value in zip(labels, relevance, strict=True):
        graded.setdefault(label, float(np.float32(value)))
    arguments = record.get("id")
    return joined, None if arguments is None else str(arguments), graded


_FLOAT = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Row = tuple[list[int], dict[int, float]]


def reference_bow(data: bytes) -> tuple[tuple[int, int, int], list[Row | None]] | None:
    """Return the header and each row's (labels, column → value), None for a bad row; None for a bad
    file.
    """
    header, *rows = data.removeprefix(BOM).split(b"\n")
    tokens = header.split()
    if len(tokens) != 3 or not all(re.fullmatch(rb"\d{1,18}", token) for token in tokens):
        return None
    n, d, n_labels = map(int, tokens)
    if rows and not rows[-1]:
        rows.pop()
    if n > len(rows) or max(d, n_labels) >= 2**31 or any(row.strip() for row in rows[n:]):
        return None
    return (n, d, n_labels), [_reference_row(row, d, n_labels) for row in rows[:n]]


def reference_headerless(data: bytes) -> list[Row | None]:
    """Return each row of svmlight lines, None for a bad one; comments alone and blank lines at the
    end are none.
    """
    rows: list[Row | None] = []
    content = 0  # rows up to the last line that is not blank
    for line in data.removeprefix(BOM).split(b"\n"):
        bare, mark, _ = line.partition(b"#")
        if not mark or bare.strip():
            tokens = bare.split()
            path = 0 if not tokens or bare[:1].isspace() or b":" in tokens[0] else 1
            if tokens[path : path + 1] and tokens[path].startswith(b"qid:"):
                bare = bare.replace(tokens[path], b" ", 1)
            rows.append(_reference_row(bare, MOST_COLUMNS, MOST_COLUMNS))
        if line.strip():
            content = len(rows)
    return rows[:content]


def _reference_row(line: bytes, d: int, n_labels: int) -> Row | None:
    tokens = line.split()
    labels: list[int] = []
    values: dict[int, float] = {}
    try:
        if tokens and line[:1] == tokens[0][:1] and b":" not in tokens[0]:
            labels = [_whole(part, n_labels) for part in tokens.pop(0).split(b",")]
        for token in tokens:
            column, value = token.split(b":")
            index = _whole(column, d)
            if not _FLOAT.fullmatch(value) or index in values:
                return None
            with np.errstate(over="ignore"):
                values[index] = float(np.float32(float(value)))
    except ValueError:
        return None
    return (sorted(set(labels)), values) if all(map(np.isfinite, values.values())) else None


def _whole(token: bytes, below: int) -> int:
    digits = token.lstrip(b"0") or token[-1:]
    if not re.fullmatch(rb"\d+", token) or len(digits) > 18 or int(digits) >= below:
        raise ValueError
    return int(digits)
