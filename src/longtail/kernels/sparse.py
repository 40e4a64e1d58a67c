"""Sums of sparse rows by group: the product of a 0/1 matrix and a sparse one, with sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["emptied", "group_sums", "unit_rows", "with_room"]

Array = NDArray[Any]
# the last set bit of a word, found by a product (Leiserson, Prokop and Randall 1998, «Using de
# Bruijn sequences»)
_DE_BRUIJN = 0x03F79D71B4CB0A89
_LAST_BIT = np.zeros(64, np.int64)
for _bit in range(64):
    _LAST_BIT[((_DE_BRUIJN << _bit) & (2**64 - 1)) >> 58] = _bit
_FACTOR = np.uint64(_DE_BRUIJN)
_ONE = np.uint64(1)
_SHIFT = np.uint64(58)
_LOW = np.uint64(63)


@kernel
def group_sums(
    groups: Array,
    members: Array,
    ptr: Array,
    columns: Array,
    values: Array,
    dense: Array,
    width: int,
    most: int,
) -> Any:
    """Return the sum of the rows of each group: (ptr, sorted columns, values, dense), as float32.

    The members of group g are the rows ``members[groups[g]:groups[g + 1]]`` of a sparse block with
    ``width`` columns and of the dense block beside it. ``most`` bounds the numbers of the result.
    After Gustavson 1978, with a bit for each column in use, and for each word of such bits, in
    place of a sort."""
    count = len(groups) - 1
    sums = np.zeros(width, np.float32)
    words = np.zeros(width // 64 + 1, np.uint64)
    pages = np.zeros(len(words) // 64 + 1, np.uint64)
    out_ptr = np.zeros(count + 1, np.int64)
    out_dense = np.zeros((count, dense.shape[1]), np.float32)
    out_columns = np.empty(most, np.int32)
    out_values = np.empty(most, np.float32)
    filled = 0
    for group in range(count):
        for member in members[groups[group] : groups[group + 1]]:
            for column in range(dense.shape[1]):
                out_dense[group, column] += dense[member, column]
            for at in range(ptr[member], ptr[member + 1]):
                column = columns[at]
                if sums[column] == 0:
                    words[column >> 6] |= _ONE << (np.uint64(column) & _LOW)
                    pages[column >> 12] |= _ONE << (np.uint64(column >> 6) & _LOW)
                sums[column] += values[at]
        filled = emptied(sums, words, pages, out_columns, out_values, filled)
        out_ptr[group + 1] = filled
    return out_ptr, out_columns[:filled], out_values[:filled], out_dense


@kernel
def emptied(
    sums: Array, words: Array, pages: Array, columns: Array, values: Array, filled: int
) -> int:
    """Move the sums that are in use to the end of ``columns`` and ``values``, in order; all is zero
    afterwards.
    """
    for page in range(len(pages)):
        bits_of_page = pages[page]
        pages[page] = 0
        while bits_of_page != 0:
            word = (
                page * 64 + _LAST_BIT[((bits_of_page & (~bits_of_page + _ONE)) * _FACTOR) >> _SHIFT]
            )
            bits_of_page &= bits_of_page - _ONE
            bits = words[word]
            words[word] = 0
            while bits != 0:
                column = word * 64 + _LAST_BIT[((bits & (~bits + _ONE)) * _FACTOR) >> _SHIFT]
                bits &= bits - _ONE
                columns[filled] = column
                values[filled] = sums[column]
                sums[column] = 0
                filled += 1
    return filled


@kernel
def unit_rows(ptr: Array, values: Array, dense: Array) -> None:
    """Divide each row, sparse and dense block together, by its l2 norm, in place; a row of zeros
    stays.
    """
    for row in range(len(ptr) - 1):
        square = 0.0
        for at in range(ptr[row], ptr[row + 1]):
            square += np.float64(values[at]) ** 2
        for column in range(dense.shape[1]):
            square += np.float64(dense[row, column]) ** 2
        if square > 0:
            scale = 1 / np.sqrt(square)
            for at in range(ptr[row], ptr[row + 1]):
                values[at] *= scale
            for column in range(dense.shape[1]):
                dense[row, column] *= scale


@kernel
def with_room(array: Any, size: int) -> Any:
    """Return ``array``, or a longer one that begins with it when it is shorter than ``size``."""
    if size <= len(array):
        return array
    longer = np.empty(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer
