"""The form of the table of bad inputs: what is put in the files, and what must come of reading
them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Every one of these has a defined result in every format where it can occur …
KINDS = {
    "wrong JSON",
    "wrong types",
    "missing fields",
    "unknown label",
    "duplicate label",
    "header",  # that disagrees with the body
    "indices",  # that do not rise, or are out of range
    "NaN or Inf",
    "empty text",
    "empty file",
    "BOM",
    "CRLF",
    "NUL",
    "lone surrogate",
    "long line",
    "bomb",
    "truncated",
}
# … and so have these.
MORE_KINDS = {"encoding", "damaged", "malformed table", "missing file", "hostile"}


@dataclass(frozen=True)
class LongLine:
    """A file that is made while it is read: ``before``, ``size`` bytes without a line end, and
    ``after``.
    """

    before: bytes
    size: int
    after: bytes


Content = bytes | Callable[[], bytes] | LongLine


@dataclass(frozen=True)
class Case:
    """One row of the table; either ``documents`` are read, or ``problems`` are the lines of the
    error.
    """

    kind: str
    id: str
    format: str  # of longtail.data.formats, or labels, predictions, filter, features
    files: Mapping[str, Content]  # the first one is read, or the folder that it is in
    documents: list[Any] | None = None
    problems: tuple[str, ...] = ()
    rest: list[Any] | None = (
        None  # what is read once as many records as there are problems may be left out
    )
    exit_code: int = 3
    counts: tuple[int, int] = (0, 0)  # labels merged, labels dropped
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.format}-{self.kind}-{self.id}".replace(" ", "-")


# (kind, id, content, result) and further fields of the case; a result is a list of what is read, or
# what is refused
Row = tuple[Any, ...]


def whole(format: str, *rows: Row) -> list[Case]:
    """Return the cases of whole files, refused with all the lines of ``result``; bytes stand for
    one file.
    """
    return [_whole(format, *row) for row in rows]


def _whole(
    format: str,
    kind: str,
    id: str,
    content: Any,
    result: Any,
    more: Mapping[str, Any] | None = None,
) -> Case:
    files = content if isinstance(content, Mapping) else {f"bad.{format}": content}
    if isinstance(result, list):
        return Case(kind, id, format, files, documents=result, **(more or {}))
    return Case(kind, id, format, files, **{"problems": tuple(result.splitlines())} | (more or {}))


@dataclass(frozen=True)
class Frame:
    """Good records around the one that a case is about, so that its line and what is left are seen."""

    format: str
    file: str
    before: bytes
    after: bytes
    around: Sequence[Any]  # what the good record before and the good one after are read as
    beside: Mapping[str, Content] = field(default_factory=dict)
    skips: bool = True  # bad records may be left out

    def cases(self, *rows: Row) -> list[Case]:
        """Return the cases of a record each, refused with ``result`` after the place."""
        return [self._case(*row) for row in rows]

    def _case(
        self, kind: str, id: str, record: bytes, result: Any, more: Mapping[str, Any] | None = None
    ) -> Case:
        files = {self.file: self.before + record + b"\n" + self.after, **self.beside}
        first, last = self.around
        if isinstance(result, list):
            return Case(
                kind, id, self.format, files, documents=[first, *result, last], **(more or {})
            )
        path = f"{self.file}:{self.before.count(10) + 1}"
        others = [first, last] if self.skips else None
        output = {"problems": (f"{path}: {result}",), "rest": others} | (more or {})
        return Case(kind, id, self.format, files, **output)


def npz(**members: Any) -> bytes:
    """Return the archive of the 2 × 2 identity as scipy writes it, with some members replaced or,
    by None, left out.
    """
    parts = {"format": np.array(b"csr"), "shape": np.array([2, 2]), "indptr": np.array([0, 1, 2])}
    parts |= {"indices": np.array([0, 1]), "data": np.array([1.0, 1.0])} | members
    out = io.BytesIO()
    np.savez(out, **{name: part for name, part in parts.items() if part is not None})
    return out.getvalue()


def parquet(compression: str = "snappy", **columns: Any) -> bytes:
    """Return a Parquet file of these columns."""
    import pyarrow
    from pyarrow import parquet as files

    out = io.BytesIO()
    files.write_table(pyarrow.table(columns), out, compression=compression)
    return out.getvalue()
