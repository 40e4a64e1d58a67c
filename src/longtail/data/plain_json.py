"""The fast way through large files of plain JSON lines: compiled, and without a Python object a document or label."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.builder import Builder, PackedDocuments
from longtail.data.strings import Strings

__all__ = ["CompactIndex", "PlainLines"]

_PAYS_FROM = 96 << 20  # bytes: below, loading numba (a third of a second, 110 MB) costs more than it saves
_SOONER = 64  # times, in a process that has loaded it already
_MOST_FAILURES = 10  # blocks that were not plain, after which no more are tried


class CompactIndex:
    """Label id → column, as the dict it stands for; an unknown id gets the next column. 24 to 40 bytes a label."""

    def __init__(self, labels: Iterable[str] = ()) -> None:
        from longtail.kernels import interning  # numba

        self._kernels = interning
        given = Strings.of(labels)
        self.count, self.arena, self.offsets = len(given), given.arena, given.offsets
        self.table = np.zeros(0, np.uint64)
        self.make_room(0, 0)

    def make_room(self, n_bytes: int, n_labels: int) -> None:
        """See to it that so many more bytes and labels fit."""
        used = int(self.offsets[self.count])
        if len(self.arena) < used + n_bytes:
            self.arena = _grown(self.arena[:used], used + n_bytes)
        if len(self.offsets) < self.count + n_labels + 2:
            self.offsets = _grown(self.offsets[: self.count + 1], self.count + n_labels + 2)
        if len(self.table) < 2 * (self.count + n_labels + 1):
            del self.table
            self.table = np.zeros(1 << (2 * (self.count + n_labels + 1) - 1).bit_length(), np.uint64)
            self._kernels.fill_table(self.arena, self.offsets, self.count, self.table)

    def forget_after(self, count: int) -> None:
        """Take back the labels from column ``count`` on."""
        self.count = count
        self.table[:] = 0
        self._kernels.fill_table(self.arena, self.offsets, count, self.table)

    def __getitem__(self, label: str) -> int:
        raw = np.frombuffer(label.encode(), np.uint8)
        self.make_room(len(raw), 1)
        start = int(self.offsets[self.count])
        self.arena[start : start + len(raw)] = raw
        column: int = self._kernels.find_or_add(self.arena, self.offsets, self.count, start + len(raw), self.table)
        self.count += column == self.count
        return column

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        return iter(self.strings())

    def strings(self) -> Strings:
        """Return the labels in the order of their columns."""
        return Strings(self.arena[: self.offsets[self.count]], self.offsets[: self.count + 1])


def _grown(array: NDArray[Any], least: int) -> NDArray[Any]:
    """Return a writable copy with room for ``least`` and an eighth more; what is not used is never touched."""
    grown = np.empty(least + least // 8, array.dtype)
    grown[: len(array)] = array
    return grown


class PlainLines:
    """Takes the plain blocks of a large file for a :class:`Builder` with an open vocabulary."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._usable = builder.is_open
        # bytes until it begins
        self._waiting = _PAYS_FROM // _SOONER if "numba" in sys.modules else _PAYS_FROM
        self._index: CompactIndex | None = None
        self._failures = 0

    def take(self, data: bytes) -> bool:
        """Add the documents of a block; add none and return False where it is not plain, or it does not pay."""
        if not self._usable or self._waiting > 0:
            self._waiting -= len(data)
            return False
        if self._index is None:
            if _scan(data, CompactIndex()) is None:  # a look before the index is changed for good
                self._usable = False
                return False
            self._index = CompactIndex(self._builder.labels_so_far)
            self._builder.use_index(self._index)
        found = _scan(data, self._index)
        if found is None:
            self._failures += 1
            self._usable = self._failures < _MOST_FAILURES
            return False
        return self._builder.extend_packed(found)


def _scan(data: bytes, index: CompactIndex) -> PackedDocuments | None:
    """Return the documents of a block of lines, their labels added to the index; None if it is not plain."""
    from longtail.kernels.json_lines import NOT_PLAIN, scan_documents

    raw, before = np.frombuffer(data, np.uint8), index.count
    n_rows, n_quotes = (int(np.count_nonzero(raw == ord(byte))) for byte in '\n"')
    n_pairs = n_quotes // 2  # a label has two
    index.make_room(len(raw), n_pairs)
    texts, ids = np.empty(len(raw), np.uint8), np.empty(len(raw), np.uint8)
    text_ends, id_ends, row_ends = (np.empty(n_rows, np.int64) for _ in range(3))
    columns = np.empty(n_pairs, np.int32)
    rows, index.count = scan_documents(
        raw, texts, text_ends, ids, id_ends, columns, row_ends, index.arena, index.offsets, before, index.table
    )
    if rows == NOT_PLAIN:
        index.forget_after(before)
        return None
    has_ids = bool(rows and id_ends[0] >= 0)
    own_ids = (ids, id_ends) if has_ids else None
    return PackedDocuments((texts, text_ends), own_ids, columns[: row_ends[-1] if rows else 0], row_ends)
