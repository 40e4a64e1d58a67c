"""Scans lines of sparse text, ``3,17 0:0.25 8:1e-3``: numbers straight from bytes, without a Python
object each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["LineLimits", "ScannedLines", "scan_lines"]

_SPACE = 32
_TAB = 9
_NEWLINE = 10
_RETURN = 13
_PLUS = 43
_COMMA = 44
_MINUS = 45
_POINT = 46
_ZERO = 48
_COLON = 58
_CAPITAL_E = 69
_SMALL_E = 101

_INDEX_DIGITS = 10  # enough for 2^31 - 1
_MANTISSA_DIGITS = 18  # always fit an int64
_EXACT = 1 << 53  # integers below are exact in float64
_EXACT_POWER = 22  # 10^22 is the last power of ten that is
_FAR = 60  # beyond 10^±60 no float32 is left that needs more than Python's own parser
_POWERS = np.array([float(f"1e{power}") for power in range(-_FAR, _FAR + 1)])
_DOUBT = 2e-15  # relative; four times the worst error of mantissa × power, each rounded once
_LARGEST = float(np.finfo(np.float32).max)


class LineLimits(NamedTuple):
    """What lines may hold."""

    with_labels: bool  # lines may begin with ``3,17``
    n_labels: int
    n_columns: int
    least: Any  # float32, the smallest valid value


class ScannedLines(NamedTuple):
    """Room for the content of lines of ``n`` bytes."""

    labels: NDArray[np.int32]  # (>= n / 2,) labels at the start of the lines
    label_ends: NDArray[np.int64]  # (>= lines,) where the labels of each line end
    columns: NDArray[np.int32]  # (>= n / 4,) rising in each line
    values: NDArray[np.float32]  # (>= n / 4,) each float32(float64(token))
    pair_ends: NDArray[np.int64]  # (>= lines,)


@kernel
def _is_digit(byte: Any) -> Any:
    return _ZERO <= byte <= _ZERO + 9


@kernel
def _digit(byte: Any) -> Any:
    return np.int64(byte) - _ZERO  # without the compiler, the difference of bytes would be a byte


@kernel
def _is_gap(byte: Any) -> Any:
    """White space inside a line, as ``bytes.split`` sees it."""
    return byte == _SPACE or (_TAB <= byte <= _RETURN and byte != _NEWLINE)


@kernel
def _scan_index(data: Any, at: int) -> tuple[int, int]:
    """Return (number, where it ends); number −1 where there is none or it is too long to be an
    index.
    """
    first = at
    number = 0
    while _is_digit(data[at]):
        if at - first < _INDEX_DIGITS:
            number = number * 10 + _digit(data[at])
        at += 1
    if at == first or at - first > _INDEX_DIGITS:
        return -1, at
    return number, at


@kernel
def _scan_exponent(data: Any, at: int) -> tuple[bool, int, int]:
    """Return (well formed, power of ten, where it ends) of the part after ``e``."""
    negative = data[at] == _MINUS
    if negative or data[at] == _PLUS:
        at += 1
    first = at
    power = 0
    while _is_digit(data[at]):
        power = min(power * 10 + _digit(data[at]), 10_000)
        at += 1
    return at > first, -power if negative else power, at


@kernel
def _to_float32(mantissa: int, power: int, cut: bool) -> tuple[bool, Any]:
    """Return (certain, float32(float64(mantissa × 10^power))); ``cut``: further digits were left
    out.

    Clinger's fast path (How to read floating point numbers accurately, 1990) gives the float64
    exactly. Else the product is off by a few units in the last place, which matters only if a
    float32 boundary lies that near."""
    if mantissa == 0:
        return True, np.float32(0.0)
    if power < -_FAR or power > _FAR:
        return False, np.float32(0.0)
    if mantissa < _EXACT and not cut and -_EXACT_POWER <= power <= _EXACT_POWER:
        wide = mantissa / _POWERS[_FAR - power] if power < 0 else mantissa * _POWERS[_FAR + power]
        return wide <= _LARGEST, np.float32(wide)
    wide = mantissa * _POWERS[_FAR + power]
    value = np.float32(wide * (1.0 - _DOUBT))
    return wide <= _LARGEST and value == np.float32(wide * (1.0 + _DOUBT)), value


@kernel
def _scan_value(data: Any, at: int) -> tuple[bool, Any, int]:
    """Return (certain, value, where it ends); not certain: malformed, too large, or for the exact
    parser.
    """
    negative = data[at] == _MINUS
    if negative or data[at] == _PLUS:
        at += 1
    mantissa = 0
    digits = 0
    kept = 0
    power = 0
    in_fraction = False
    cut = False
    while True:
        byte = data[at]
        if _is_digit(byte):
            digits += 1
            if kept < _MANTISSA_DIGITS:
                mantissa = mantissa * 10 + _digit(byte)
                kept += mantissa > 0  # leading zeros are free
                power -= in_fraction
            else:
                cut = True
                power += not in_fraction
        elif byte == _POINT and not in_fraction:
            in_fraction = True
        else:
            break
        at += 1
    well_formed = digits > 0
    if data[at] == _SMALL_E or data[at] == _CAPITAL_E:
        fine, exponent, at = _scan_exponent(data, at + 1)
        well_formed = well_formed and fine
        power += exponent
    certain, value = _to_float32(mantissa, power, cut)
    return well_formed and certain, -value if negative else value, at


@kernel
def _scan_labels(
    data: Any,  # IN
    at: int,  # IN  start of a line
    n_labels: int,  # IN
    labels: Any,  # OUT from ``count`` on
    count: int,  # IN
) -> tuple[bool, int, int]:
    """Read ``3,17`` at the start of a line; return (fine, count, where it ends). ``3:…`` is no
    label but a pair.
    """
    first = at
    before = count
    if _is_gap(data[at]) or data[at] == _NEWLINE:
        return True, count, at
    while True:
        label, at = _scan_index(data, at)
        if data[at] == _COLON:
            return True, before, first
        if label < 0 or label >= n_labels:
            return False, count, at
        labels[count] = label
        count += 1
        if data[at] != _COMMA:
            return _is_gap(data[at]) or data[at] == _NEWLINE, count, at
        at += 1


@kernel
def _sort_pairs(columns: Any, values: Any) -> bool:
    """Sort one row by column, in place; False if a column stands twice.

    A heapsort: never quadratic, and numpy's own sorts would triple the time to compile.
    """
    size = columns.shape[0]
    unheaped = size // 2
    end = size
    while end > 1:
        if unheaped > 0:
            unheaped -= 1
        else:
            end -= 1
            columns[0], columns[end] = columns[end], columns[0]
            values[0], values[end] = values[end], values[0]
        parent = unheaped
        while 2 * parent + 1 < end:
            child = 2 * parent + 1
            if child + 1 < end and columns[child + 1] > columns[child]:
                child += 1
            if columns[parent] >= columns[child]:
                break
            columns[parent], columns[child] = columns[child], columns[parent]
            values[parent], values[child] = values[child], values[parent]
            parent = child
    repeats = 0
    for j in range(1, size):
        repeats += columns[j] == columns[j - 1]
    return repeats == 0


@kernel
def _scan_pairs(
    data: Any,  # IN
    at: int,  # IN  after the labels of a line
    n_columns: int,  # IN
    least: Any,  # IN  float32, values below are wrong
    columns: Any,  # OUT from ``begin`` on
    values: Any,  # OUT
    begin: int,  # IN
) -> tuple[bool, int, int]:
    """Read ``0:0.25 8:1e-3`` up to the end of a line; return (fine, count, where the line ends)."""
    count = begin
    last = -1
    rising = True
    while True:
        while _is_gap(data[at]):
            at += 1
        if data[at] == _NEWLINE:
            return rising or _sort_pairs(columns[begin:count], values[begin:count]), count, at
        column, at = _scan_index(data, at)
        if column < 0 or column >= n_columns or data[at] != _COLON:
            return False, count, at
        certain, value, at = _scan_value(data, at + 1)
        if not certain or value < least or not (_is_gap(data[at]) or data[at] == _NEWLINE):
            return False, count, at
        rising = rising and column > last
        last = column
        columns[count] = column
        values[count] = value
        count += 1


@kernel
def scan_lines(
    data: NDArray[np.uint8],  # IN  whole lines: the last byte is a newline
    start: int,  # IN  where to begin: the start of a line
    most_rows: int,  # IN  stop after as many lines
    limits: LineLimits,  # IN
    lines: ScannedLines,  # OUT
) -> tuple[int, int]:
    """Read lines until the end or one that is wrong or unusual; return (lines read, start of the
    next line).
    """
    with_labels, n_labels, n_columns, least = limits
    labels, label_ends, columns, values, pair_ends = lines
    at = start
    row = 0
    label_count = 0
    pair_count = 0
    while at < data.shape[0] and row < most_rows:
        begin = at
        fine = True
        if with_labels:
            fine, label_count, at = _scan_labels(data, at, n_labels, labels, label_count)
        if fine:
            fine, pair_count, at = _scan_pairs(
                data, at, n_columns, least, columns, values, pair_count
            )
        if not fine:
            return row, begin
        label_ends[row] = label_count
        pair_ends[row] = pair_count
        row += 1
        at += 1
    return row, at
