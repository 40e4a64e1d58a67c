"""Rows of tf-idf from counts of n-grams: columns sorted, values weighted by idf, of length one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import borrowing, kernel
from longtail.kernels.ngrams import find, follow
from longtail.kernels.simd import prefetch

__all__ = ["place_rows", "weigh_counts", "weigh_ngrams"]

_AHEAD = 16  # n-grams whose entries in the vocabulary are prefetched
_FEW = 40  # keys that are sorted by insertion
_DIGIT = 8  # bits per pass
_COLUMN = np.uint64(32)  # a key: column above, occurrences below
_LOW = np.uint64(0xFFFFFFFF)


@kernel
def _sort(keys: Any, spare: Any, histogram: Any, count: int, bits: int) -> None:
    """Sort the first ``count`` keys by column, which has ``bits`` bits: a radix sort from the
    lowest digit.
    """
    if count <= _FEW:
        for i in range(1, count):
            key = keys[i]
            j = i
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                j -= 1
            keys[j] = key
        return
    source = keys
    target = spare
    for low in range(0, bits, _DIGIT):
        shift = _COLUMN + np.uint64(low)
        for digit in range(histogram.shape[0]):
            histogram[digit] = 0
        for i in range(count):
            histogram[(source[i] >> shift) & np.uint64(255)] += 1
        begin = 0
        for digit in range(histogram.shape[0]):
            size = histogram[digit]
            histogram[digit] = begin
            begin += size
        for i in range(count):
            digit = (source[i] >> shift) & np.uint64(255)
            target[histogram[digit]] = source[i]
            histogram[digit] += 1
        source, target = target, source
    if (bits + _DIGIT - 1) // _DIGIT % 2:
        for i in range(count):
            keys[i] = spare[i]


@kernel
def _weigh(
    keys: Any,  # IN  sorted
    count: int,  # IN
    idf: Any,  # IN
    sublinear: bool,  # IN  1 + ln tf in place of tf
    columns: Any,  # OUT from ``end`` on
    values: Any,  # OUT
    end: int,  # IN
) -> int:
    """Append one row; occurrences of a repeated column are added up. Return the new end."""
    begin = end
    square = 0.0
    i = 0
    while i < count:
        column = np.int64(keys[i] >> _COLUMN)
        tf = np.uint64(0)
        while i < count and np.int64(keys[i] >> _COLUMN) == column:
            tf += keys[i] & _LOW
            i += 1
        weight = np.float64(tf)
        if sublinear and tf > 1:
            weight = 1.0 + np.log(weight)
        columns[end] = column
        values[end] = weight * idf[column]
        square += (weight * idf[column]) ** 2
        end += 1
    for j in range(begin, end):
        values[j] /= np.sqrt(square)
    return end


@kernel
def weigh_counts(
    rows: NDArray[np.int64],  # IN  (documents + 1,)
    numbers: NDArray[np.uint32],  # IN  n-grams of the rows
    tfs: NDArray[np.uint32],  # IN  and how often each occurs there
    column_of: NDArray[np.int32],  # IN  column of each n-gram, −1: left out
    idf: NDArray[np.float64],  # IN  (columns,)
    sublinear: bool,  # IN
) -> tuple[Any, Any, Any]:
    """Return (ends of rows from 0 on, columns, values) of documents whose n-grams are counted."""
    columns = np.empty(numbers.shape[0], np.int32)
    values = np.empty(numbers.shape[0], np.float64)
    ends = np.zeros(rows.shape[0], np.int64)
    longest = 0
    for row in range(rows.shape[0] - 1):
        longest = max(longest, rows[row + 1] - rows[row])
    keys = np.empty(longest, np.uint64)
    spare = np.empty(longest, np.uint64)
    histogram = np.empty(256, np.int64)
    bits = _bits(idf.shape[0])
    end = 0
    for row in range(rows.shape[0] - 1):
        count = 0
        for i in range(rows[row], rows[row + 1]):
            column = np.int64(column_of[numbers[i]])
            if column >= 0:
                keys[count] = np.uint64(column) << _COLUMN | np.uint64(tfs[i])
                count += 1
        _sort(keys, spare, histogram, count, bits)
        end = _weigh(keys, count, idf, sublinear, columns, values, end)
        ends[row + 1] = end
    return ends, columns[:end].copy(), values[:end].astype(np.float32)


@kernel
def _bits(columns: int) -> int:
    bits = 1
    while columns >> bits:
        bits += 1
    return bits


@borrowing
def _hash(hashes: Any, unit: int, last: int, shortest: int, longest: int, out: Any) -> int:
    """Write the hashes of all n-grams of a document and return how many there are."""
    count = 0
    for first in range(unit, last):
        h = hashes[first]
        for n in range(1, min(longest, last - first) + 1):
            if n > 1:
                h = follow(h, hashes[first + n - 1])
            if n >= shortest:
                out[count] = h
                count += 1
    return count


@borrowing
def _look_up(
    table: Any,  # IN  hash → column
    mask: int,  # IN
    idf: Any,  # IN  (columns,) only prefetched
    n_hashes: int,  # IN
    keys: Any,  # IN/OUT hashes in, a key for each that is known out
) -> int:
    """Replace hashes by keys and return how many are known; the table is larger than the cache, so
    its entries are prefetched.
    """
    count = 0
    for i in range(-_AHEAD, n_hashes):
        if i + _AHEAD < n_hashes:
            prefetch(table, 2 * np.int64(keys[i + _AHEAD] & np.uint64(mask)))
        if i < 0:
            continue
        number = table[find(table, mask, keys[i]), 1]
        if number:
            prefetch(idf, np.int64(number) - 1)
            keys[count] = (number - np.uint64(1)) << _COLUMN | np.uint64(1)
            count += 1
    return count


@kernel
def weigh_ngrams(
    hashes: NDArray[np.uint64],  # IN  of units
    units: NDArray[np.int64],  # IN  (documents + 1,) units of each document
    shortest: int,  # IN  n-gram
    longest: int,  # IN
    table: NDArray[np.uint64],  # IN  hash → column
    idf: NDArray[np.float64],  # IN  (columns,)
    sublinear: bool,  # IN
) -> tuple[Any, Any, Any]:
    """Return (ends of rows from 0 on, columns, values) of new documents; n-grams that are not known
    are left out.
    """
    most = 0
    total = 0
    for document in range(units.shape[0] - 1):
        size = units[document + 1] - units[document]
        count = 0
        for n in range(shortest, min(longest, size) + 1):
            count += size - n + 1
        most = max(most, count)
        total = total + count
    columns = np.empty(total, np.int32)
    values = np.empty(total, np.float64)
    ends = np.zeros(units.shape[0], np.int64)
    keys = np.empty(most, np.uint64)
    spare = np.empty(most, np.uint64)
    histogram = np.empty(256, np.int64)
    bits = _bits(idf.shape[0])
    mask = table.shape[0] - 1
    end = 0
    for document in range(units.shape[0] - 1):
        count = _hash(hashes, units[document], units[document + 1], shortest, longest, keys)
        count = _look_up(table, mask, idf, count, keys)
        _sort(keys, spare, histogram, count, bits)
        end = _weigh(keys, count, idf, sublinear, columns, values, end)
        ends[document + 1] = end
    return ends, columns[:end].copy(), values[:end].astype(np.float32)


@kernel
def place_rows(
    rows: NDArray[np.int64],  # IN  (documents + 1,)
    columns: NDArray[np.int32],  # IN  of the rows
    values: NDArray[np.float32],  # IN
    first_column: int,  # IN  added to all columns
    scales: NDArray[np.float64],  # IN  (documents,) all values of a row are multiplied by
    begins: NDArray[np.int64],  # IN  (documents,) where each row begins in the whole
    all_columns: NDArray[np.int32],  # OUT
    all_values: NDArray[np.float32],  # OUT
) -> None:
    """Copy rows of one block of columns into the whole matrix."""
    for row in range(rows.shape[0] - 1):
        shift = begins[row] - rows[row]
        for i in range(rows[row], rows[row + 1]):
            all_columns[shift + i] = columns[i] + first_column
            all_values[shift + i] = values[i] * scales[row]
