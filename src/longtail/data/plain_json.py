"""The fast way through large files of plain JSON lines: compiled, and without a Python object a
document or label.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from longtail.data.builder import Builder, PackedDocuments
from longtail.data.growing import GrowingArray
from longtail.data.strings import Strings

__all__ = ["CompactIndex", "PlainLines"]

# bytes: below, loading numba (a third of a second, 110 MB) costs more than it saves
_PAYS_FROM = 96 << 20
_SOONER = 64  # times, in a process that has loaded numba already,
_AT_ONCE = 1024  # and in one that has loaded these kernels
_MOST_FAILURES = 10  # blocks that were not plain, after which no more are tried


class CompactIndex:
    """Label id → column, as the dict it stands for; an unknown id gets the next column. 19 to 30
    bytes a label.
    """

    def __init__(self, labels: Iterable[str] = ()) -> None:
        from longtail.kernels import interning  # numba

        self._kernels = interning
        given = Strings.of(labels)
        self._arena = GrowingArray("B")
        self._offsets = GrowingArray("q")
        self._arena.extend(given.arena)
        self._offsets.extend(given.offsets)
        self.count = len(given)
        self.table = np.zeros(0, np.uint64)
        self.make_room(0, 0)

    @property
    def arena(self) -> NDArray[np.uint8]:
        """The labels end to end, with room behind them."""
        return self._arena.values

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each label begins and the last one ends, with room behind."""
        return self._offsets.values

    def make_room(self, n_bytes: int, n_labels: int) -> None:
        """See to it that so many more bytes and labels fit."""
        self._offsets.used = self.count + 1
        self._arena.used = int(self.offsets[self.count])
        self._arena.make_room(n_bytes)
        self._offsets.make_room(n_labels + 1)
        least = (self.count + n_labels + 1) * 4 // 3 + 1  # of slots: three of four may be taken
        if len(self.table) < least:
            self.table = np.empty(0, np.uint64)  # given back before the next one takes its memory
            self.table = _zeros(1 << (least - 1).bit_length())
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
        column: int = self._kernels.find_or_add(
            self.arena, self.offsets, self.count, start + len(raw), self.table
        )
        self.count += column == self.count
        return column

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        return iter(self.strings())

    def strings(self) -> Strings:
        """Return the labels in the order of their columns."""
        return Strings(self.arena[: self.offsets[self.count]], self.offsets[: self.count + 1])


def _zeros(size: int) -> NDArray[np.uint64]:
    """Return a table in pages of its own: in the heap those that it outgrew would stay as holes."""
    table = GrowingArray("Q")
    table.make_room(size)
    return table.values[:size]


class PlainLines:
    """Takes the plain blocks of a large file for a :class:`Builder` with an open vocabulary."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._usable = builder.is_open
        self._waiting = _pays_from()  # bytes until it begins
        self._index: CompactIndex | None = None
        self._failures = 0

    def take(self, data: bytes) -> bool:
        """Add the documents of a block; add none and return False where it is not plain, or it does
        not pay.
        """
        self._waiting -= len(data)
        if not self._usable or self._waiting > 0:
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


def _pays_from() -> int:
    """Return how many bytes of a file are read before the compiled way is worth what it still has
    to load.
    """
    if "longtail.kernels.json_lines" in sys.modules:
        return _PAYS_FROM // _AT_ONCE
    if "numba" in sys.modules:
        return _PAYS_FROM // _SOONER
    return _PAYS_FROM


def _scan(data: bytes, index: CompactIndex) -> PackedDocuments | None:
    """Return the documents of a block of lines, their labels added to the index; None if it is not
    plain.
    """
    from longtail.kernels.json_lines import NOT_PLAIN, scan_documents

    raw = np.frombuffer(data, np.uint8)
    before = index.count
    n_rows, n_quotes = (int(np.count_nonzero(raw == ord(byte))) for byte in '\n"')
    n_pairs = n_quotes // 2  # a label has two
    index.make_room(len(raw), n_pairs)
    texts = np.empty(len(raw), np.uint8)
    ids = np.empty(len(raw), np.uint8)
    text_ends, id_ends, row_ends = (np.empty(n_rows, np.int64) for _ in range(3))
    columns = np.empty(n_pairs, np.int32)
    rows, index.count = scan_documents(
        raw,
        texts,
        text_ends,
        ids,
        id_ends,
        columns,
        row_ends,
        index.arena,
        index.offsets,
        before,
        index.table,
    )
    new = index.offsets[before : index.count + 1]
    # an empty label, whose line the slow way names
    if rows == NOT_PLAIN or (np.diff(new) == 0).any():
        index.forget_after(before)
        return None
    has_ids = bool(rows and id_ends[0] >= 0)
    own_ids = (ids, id_ends) if has_ids else None
    return PackedDocuments(
        (texts, text_ends), own_ids, columns[: row_ends[-1] if rows else 0], row_ends
    )
