"""Arrays that grow without being copied: in pages of their own, which the system moves."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from mmap import PAGESIZE, mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ArrayBuilder", "GrowingArray"]

_FEW = 4096  # numbers: up to here an array has no pages of its own


class GrowingArray:
    """An array that grows at its end in pages of its own: ``values``, of which ``used`` are set.

    The heap would move what grows, and keep the holes: up to the whole array once more. Pages are
    moved without a copy, and room that was never written to takes no memory. Room is all zeros."""

    def __init__(self, typecode: str) -> None:
        self._pages = _new_pages(PAGESIZE)
        self.values: NDArray[Any] = np.frombuffer(self._pages, typecode)
        self.used = 0

    def make_room(self, n: int) -> None:
        """See to it that ``n`` values more fit; ``values`` may be another array afterwards."""
        least = self.used + n
        if least <= len(self.values):
            return
        dtype = self.values.dtype
        n_bytes = (least + least // 8) * dtype.itemsize
        self.values = np.empty(0, dtype)  # pages that are looked at cannot be moved
        try:
            self._pages.resize(n_bytes)
        except (BufferError, OSError, SystemError):
            # somebody looks at them all the same, or not on this system
            old = self._pages
            self._pages = _new_pages(n_bytes)
            self._pages[: len(old)] = memoryview(old)
        self.values = np.frombuffer(self._pages, dtype)

    def extend(self, values: NDArray[Any]) -> None:
        """Add values at the end."""
        self.make_room(len(values))
        self.values[self.used : self.used + len(values)] = values
        self.used += len(values)


def _new_pages(n_bytes: int) -> mmap:
    try:
        if sys.platform == "win32":
            return mmap(-1, n_bytes)
        # the default is shared memory, which cannot be made larger
        from mmap import MAP_ANONYMOUS, MAP_PRIVATE

        return mmap(-1, n_bytes, MAP_PRIVATE | MAP_ANONYMOUS)
    except OSError:
        raise MemoryError(f"no memory for {n_bytes} bytes") from None


class ArrayBuilder:
    """Collects numbers, one by one or many at a time; many go to a :class:`GrowingArray`."""

    def __init__(self, typecode: str, values: Iterable[float] = ()) -> None:
        self._tail = array(typecode, values)  # the last few, or all if they are few
        self._large: GrowingArray | None = None
        self._settled = 0

    def __len__(self) -> int:
        return self._settled + len(self._tail)

    def append(self, value: float) -> None:
        """Add one number."""
        self._tail.append(value)
        if len(self._tail) >= _FEW:
            self._settle()

    def extend(self, values: Iterable[float]) -> None:
        """Add a few numbers."""
        self._tail.extend(values)
        if len(self._tail) >= _FEW:
            self._settle()

    def extend_bytes(self, values: bytes) -> None:
        """Add numbers given as their bytes in memory."""
        if len(values) >= 8 * _FEW:
            self._settle(np.frombuffer(values, self._tail.typecode))
            return
        self._tail.frombytes(values)
        if len(self._tail) >= _FEW:
            self._settle()

    def extend_packed(self, values: NDArray[Any]) -> None:
        """Add many numbers."""
        if len(values) < _FEW:
            self.extend_bytes(values.tobytes())
        else:
            self._settle(values)

    def _settle(self, values: NDArray[Any] | None = None) -> None:
        """Move the tail, and then ``values``, to the large array."""
        self._large = self._large or GrowingArray(self._tail.typecode)
        self._large.extend(np.frombuffer(self._tail, self._tail.typecode))
        if values is not None:
            self._large.extend(values)
        self._settled = self._large.used
        self._tail = array(self._tail.typecode)

    def finish(self) -> NDArray[Any]:
        """Hand over the numbers without a copy; the builder must not be used afterwards."""
        if self._large is None:
            return np.frombuffer(self._tail, self._tail.typecode)
        self._settle()
        return self._large.values[: self._large.used]
