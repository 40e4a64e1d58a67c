"""Arithmetic along all siblings of many rows, by tiles: loops over 8 or 16 numbers would be mostly checks.

A *tile* is ``TILE`` numbers, a whole number of rows of 8 or 16 siblings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["TILE", "add_multiples", "by_sibling", "dots", "folded", "list_marked", "list_places", "multiply", "tiled"]

TILE = 1024


@kernel
def tiled(numbers: Any, width: int) -> Any:
    """Repeat the numbers of siblings to a tile."""
    tile = np.empty(TILE, np.float32)
    for at in range(TILE):
        tile[at] = numbers[at % width]
    return tile


@kernel
def folded(tile: Any, width: int) -> Any:
    """Add up what belongs to the same sibling."""
    total = np.zeros(width)
    for at in range(TILE):
        total[at % width] += tile[at]
    return total


@kernel
def dots(a: Any, b: Any, width: int) -> Any:
    """Return the dot product of each sibling."""
    sums = np.zeros(TILE)
    for begin in range(0, len(a), TILE):
        left, right = a[begin : begin + TILE], b[begin : begin + TILE]
        for k in range(len(left)):
            sums[k] += np.float64(left[k]) * right[k]
    return folded(sums, width)


@kernel
def add_multiples(to: Any, by: Any, factors: Any, width: int) -> None:
    """Add ``by`` times a factor for each sibling."""
    tile = tiled(factors, width)
    for begin in range(0, len(to), TILE):
        left, right = to[begin : begin + TILE], by[begin : begin + TILE]
        for k in range(len(left)):
            left[k] += tile[k] * right[k]


@kernel
def multiply(array: Any, factors: Any, width: int) -> None:
    """Multiply by a factor for each sibling."""
    tile = tiled(factors, width)
    for begin in range(0, len(array), TILE):
        part = array[begin : begin + TILE]
        for k in range(len(part)):
            part[k] *= tile[k]


@kernel
def list_marked(marks: Any, count: int, first: int, width: int, docs: Any, n: int) -> int:
    """List the documents from ``first`` on with a mark (uint8) at any of their ``width`` places among ``count``."""
    words = marks.view(np.uint64)
    per = width // 8
    for i in range(count // width):
        if (words[i * per] | words[i * per + per - 1]) != 0:
            docs[n] = first + i
            n += 1
    return n


@kernel
def list_places(marks: Any, count: int, first: int, places: Any, n: int) -> int:
    """List the places with a mark (uint8, 0 or 1) among ``count``, a multiple of 8, counted from ``first`` on.

    They are written behind the ``n`` that ``places`` has; it needs room for one more than there are. Returns how many.
    """
    words = marks.view(np.uint64)
    for word in range(count // 8):
        if words[word] != 0:
            for k in range(word * 8, word * 8 + 8):  # no branch: which of the 8 has a mark is hard to foretell
                places[n] = first + k
                n += marks[k]
    return n


@kernel
def by_sibling(places: Any, width: int, out: Any) -> Any:
    """Write the places by sibling, rising in each; return where each sibling's begin, and the end (width + 1)."""
    begins = np.zeros(width + 1, np.int64)
    for place in places:
        begins[(place & (width - 1)) + 1] += 1
    for k in range(width):
        begins[k + 1] += begins[k]
    behind = begins.copy()
    for place in places:
        k = place & (width - 1)
        out[behind[k]] = place
        behind[k] += 1
    return begins
