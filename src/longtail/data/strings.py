"""A column of strings as one UTF-8 arena: 8 bytes a string above the text itself, and what kernels
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from longtail.data.growing import ArrayBuilder

__all__ = ["Strings", "StringsBuilder", "blank", "count_blank"]

_BLOCK = 4096  # strings encoded or decoded at a time
_FEW = 4  # strings that are looked at one by one faster than by arrays


class Strings(Sequence[str]):
    """An immutable sequence of ``n`` strings: ``arena`` (uint8 of all bytes) and ``offsets``
    (int64, n + 1).
    """

    __slots__ = ("arena", "offsets")

    def __init__(self, arena: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.arena = arena
        self.offsets = offsets

    @classmethod
    def of(cls, strings: Iterable[str]) -> Strings:
        """Pack any strings; a :class:`Strings` is returned as it is."""
        if isinstance(strings, Strings):
            return strings
        # one document at a time is asked for by servers
        if isinstance(strings, list) and len(strings) == 1:
            raw = strings[0].encode()
            return cls(np.frombuffer(raw, np.uint8), np.array([0, len(raw)]))
        builder = StringsBuilder()
        remaining = iter(strings)
        while block := list(islice(remaining, _BLOCK)):
            builder.extend(block)
        return builder.finish()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Strings: ...
    def __getitem__(self, at: int | slice) -> str | Strings:
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"string {at} of {len(self)}")
        at %= len(self)
        return self.arena[self.offsets[at] : self.offsets[at + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _BLOCK):
            offsets = self.offsets[first : first + _BLOCK + 1]
            block = self.arena[offsets[0] : offsets[-1]].tobytes()
            ends = (offsets - offsets[0]).tolist()
            for start, end in pairwise(ends):
                yield block[start:end].decode()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Strings):
            return NotImplemented
        return np.array_equal(self.lengths, other.lengths) and np.array_equal(
            self.packed().arena, other.packed().arena
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Strings({len(self)} strings, {self.nbytes} bytes)"

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each string."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Memory of arena and offsets."""
        return int(self.arena.nbytes + self.offsets.nbytes)

    def take(self, rows: NDArray[np.integer]) -> Strings:
        """Return the strings at ``rows``, in that order, in an arena of their own."""
        # −1 is the last string, but the end of the last one in offsets
        rows = np.arange(len(self))[rows]
        starts = self.offsets[rows].tolist()
        ends = self.offsets[rows + 1].tolist()
        view = self.arena.data
        arena = b"".join([view[start:end] for start, end in zip(starts, ends, strict=True)])
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.lengths[rows], out=offsets[1:])
        return Strings(np.frombuffer(arena, np.uint8), offsets)

    def packed(self) -> Strings:
        """Return the same strings with an arena that starts at offset 0 and ends with the last."""
        start = int(self.offsets[0])
        end = int(self.offsets[-1])
        if start == 0 and end == len(self.arena):
            return self
        return Strings(self.arena[start:end], self.offsets - start)


def blank(strings: Strings) -> NDArray[np.bool_]:
    """Return (n,) whether each string is empty or nothing but white space."""
    lengths = strings.lengths
    are_blank: NDArray[np.bool_] = lengths == 0
    first = np.where(are_blank, 0, strings.offsets[:-1])
    if not len(strings.arena):
        return are_blank
    begins = strings.arena[np.minimum(first, len(strings.arena) - 1)]
    maybe = (begins <= 0x20) | (begins >= 0x80)  # any other character is not white space
    for row in np.flatnonzero(~are_blank & maybe).tolist():
        are_blank[row] = strings[row].isspace()
    return are_blank


def count_blank(strings: Strings) -> int:
    """Return how many strings are empty or nothing but white space."""
    if len(strings) <= _FEW:
        return sum(not string or string.isspace() for string in strings)
    return int(blank(strings).sum())


class StringsBuilder:
    """Grows a :class:`Strings`; memory never doubles, because the arena is grown in place."""

    def __init__(self) -> None:
        self._arena = ArrayBuilder("B")
        self._offsets = ArrayBuilder("q", [0])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def append(self, string: str) -> None:
        """Add one string."""
        self._arena.extend_bytes(string.encode())
        self._offsets.append(len(self._arena))

    def extend(self, strings: Iterable[str]) -> None:
        """Add many strings, faster than one by one."""
        encoded = [string.encode() for string in strings]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        self._offsets.extend_packed(len(self._arena) + np.cumsum(lengths))
        self._arena.extend_bytes(b"".join(encoded))

    def finish(self) -> Strings:
        """Hand over what was collected without a copy; the builder must not be used afterwards."""
        return Strings(self._arena.finish(), self._offsets.finish())
