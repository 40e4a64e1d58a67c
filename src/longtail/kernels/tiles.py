"""Arithmetic along all siblings of many rows, by tiles.

Loops over 8 or 16 numbers would be mostly checks. A *tile* is ``TILE`` numbers, a whole number of
rows of 8 or 16 siblings."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

__all__ = ["TILE", "add_multiples", "by_sibling", "dots", "folded", "list_marked"]
__all__ += ["list_positions", "multiply", "tiled"]

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
    """Return the sum of each sibling."""
    total = np.zeros(width)
    for at in range(TILE):
        total[at % width] += tile[at]
    return total


@kernel
def dots(a: Any, b: Any, width: int) -> Any:
    """Return the dot product of each sibling."""
    sums = np.zeros(TILE)
    for begin in range(0, len(a), TILE):
        left = a[begin : begin + TILE]
        right = b[begin : begin + TILE]
        for k in range(len(left)):
            sums[k] += np.float64(left[k]) * right[k]
    return folded(sums, width)


@kernel
def add_multiples(to: Any, by: Any, factors: Any, width: int) -> None:
    """Add ``by`` times a factor for each sibling."""
    tile = tiled(factors, width)
    for begin in range(0, len(to), TILE):
        left = to[begin : begin + TILE]
        right = by[begin : begin + TILE]
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
def list_marked(
    marks: Any,  # IN  (TILE,) uint8
    count: int,  # IN  marks that count
    first: int,  # IN  the document of the first mark
    width: int,  # IN  marks per document
    documents: Any,  # OUT
    n: int,  # IN  documents that are listed already
) -> int:
    """List the documents that have any mark; return how many are listed."""
    words = marks.view(np.uint64)
    per_document = width // 8
    for i in range(count // width):
        if (words[i * per_document] | words[i * per_document + per_document - 1]) != 0:
            documents[n] = first + i
            n += 1
    return n


@kernel
def list_positions(
    marks: Any,  # IN  uint8, 0 or 1
    count: int,  # IN  marks that count, a multiple of 8
    first: int,  # IN  the position of the first mark
    positions: Any,  # OUT  with room for one more than there are
    n: int,  # IN  positions that are listed already
) -> int:
    """List the positions with a mark; return how many are listed."""
    words = marks.view(np.uint64)
    for word in range(count // 8):
        if words[word] != 0:
            for k in range(word * 8, word * 8 + 8):  # no branch: a mark is hard to predict
                positions[n] = first + k
                n += marks[k]
    return n


@kernel
def by_sibling(positions: Any, width: int, out: Any) -> Any:
    """Write the positions by sibling, rising in each; return where each begins, and the end (width
    + 1).
    """
    begins = np.zeros(width + 1, np.int64)
    for position in positions:
        begins[(position & (width - 1)) + 1] += 1
    for k in range(width):
        begins[k + 1] += begins[k]
    behind = begins.copy()
    for position in positions:
        k = position & (width - 1)
        out[behind[k]] = position
        behind[k] += 1
    return begins
