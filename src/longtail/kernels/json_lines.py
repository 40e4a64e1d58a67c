"""Documents out of plain JSON lines, without making a Python object of any of them.

Plain is ``{"id"?: string, "text": string, "labels": [string, …]}`` in any order and spacing.
Whatever else a line holds, the whole block is left to a complete parser, which also finds the words
for what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.interning import find_or_add
from longtail.kernels.jit import kernel

__all__ = ["NOT_PLAIN", "scan_documents"]

NOT_PLAIN = -1
_TEXT, _LABELS, _ID = (np.frombuffer(key, np.uint8) for key in (b'text"', b'labels"', b'id"'))
_TAB = 9
_NEWLINE = 10
_RETURN = 13
_SPACE = 32
_QUOTE = 34
_COMMA = 44
_COLON = 58
_OPEN_LIST = 91
_BACKSLASH = 92
_CLOSE_LIST = 93
_U = 117
_OPEN = 123
_CLOSE = 125
_ESCAPES = np.zeros(128, np.uint8)  # what \n and its like stand for
for _letter, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[_letter] = _meaning

_ORDINARY = np.zeros(256, np.bool_)  # what stands for itself in a string
_ORDINARY[0x20:0x80] = True
_ORDINARY[[_QUOTE, _BACKSLASH]] = False

# Nothing below looks past the end of the data: its last byte is a newline, which ends whatever is
# being read.


@kernel
def _skip_space(data: Any, at: int) -> int:
    while data[at] == _SPACE or data[at] == _TAB or data[at] == _RETURN:
        at += 1
    return at


@kernel
def _after_key(data: Any, at: int, key: Any) -> int:
    """Return where the value of ``key`` begins if that is the key at ``at``, else NOT_PLAIN."""
    for i in range(key.shape[0]):
        if data[at + i] != key[i]:
            return NOT_PLAIN
    at = _skip_space(data, at + key.shape[0])
    return _skip_space(data, at + 1) if data[at] == _COLON else NOT_PLAIN


@kernel
def _character_size(data: Any, at: int) -> int:
    """Return the bytes of the character that begins with a byte above 0x7F, 0 where it is not
    UTF-8.
    """
    first = data[at]
    # of the second byte: no overlong forms, no surrogates, nothing above U+10FFFF
    low = 0x80
    high = 0xBF
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if data[at + 1] < low or data[at + 1] > high:
        return 0
    for i in range(2, size):
        if data[at + i] & 0xC0 != 0x80:
            return 0
    return size


@kernel
def _hexadecimal(data: Any, at: int) -> int:
    """Return the number of four digits, NOT_PLAIN where they are not digits."""
    value = 0
    for i in range(4):
        byte = int(data[at + i])
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte | 32 <= 102:
            digit = (byte | 32) - 87
        else:
            return NOT_PLAIN
        value = value * 16 + digit
    return value


@kernel
def _put_character(point: int, out: Any, end: int) -> int:
    """Write a code point as UTF-8; return where it ends."""
    if point < 0x80:
        out[end] = point
        return end + 1
    size = 2 if point < 0x800 else 3 if point < 0x10000 else 4
    for i in range(size - 1, 0, -1):
        out[end + i] = 0x80 | (point & 0x3F)
        point >>= 6
    out[end] = (0xF00 >> size & 0xFF) | point
    return end + size


@kernel
def _unescape(data: Any, at: int, out: Any, end: int) -> tuple[int, int]:
    """Write what stands behind a backslash at ``at``; return the places after it, or NOT_PLAIN."""
    byte = data[at]
    if byte != _U:
        if byte >= 128 or _ESCAPES[byte] == 0:
            return NOT_PLAIN, end
        out[end] = _ESCAPES[byte]
        return at + 1, end + 1
    point = _hexadecimal(data, at + 1)
    at += 5
    if 0xD800 <= point <= 0xDFFF:  # the first half of a pair must be followed by a second
        if point > 0xDBFF or data[at] != _BACKSLASH or data[at + 1] != _U:
            return NOT_PLAIN, end
        second = _hexadecimal(data, at + 2)
        if second < 0xDC00 or second > 0xDFFF:
            return NOT_PLAIN, end
        point = 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00)
        at += 6
    return (at, _put_character(point, out, end)) if point >= 0 else (NOT_PLAIN, end)


@kernel
def _string(data: Any, at: int, out: Any, end: int) -> tuple[int, int]:
    """Write the string whose opening quote is at ``at``; return the places after it, or NOT_PLAIN."""
    if data[at] != _QUOTE:
        return NOT_PLAIN, end
    at += 1
    while True:
        while _ORDINARY[data[at]]:
            out[end] = data[at]
            at = at + 1
            end = end + 1
        byte = data[at]
        if byte == _QUOTE:
            return at + 1, end
        if byte == _BACKSLASH:
            at, end = _unescape(data, at + 1, out, end)
            if at == NOT_PLAIN:
                return at, end
        elif byte < 0x20:
            return NOT_PLAIN, end
        else:
            size = _character_size(data, at)
            if size == 0:
                return NOT_PLAIN, end
            for i in range(size):
                out[end + i] = data[at + i]
            at = at + size
            end = end + size


@kernel
def _label_list(
    data: Any,
    at: int,
    columns: Any,
    pairs: int,
    arena: Any,
    offsets: Any,
    n_labels: int,
    table: Any,
) -> tuple[int, int, int]:
    """Write the columns of the labels in the list at ``at``; return (place after it or NOT_PLAIN,
    pairs, labels).
    """
    if data[at] != _OPEN_LIST:
        return NOT_PLAIN, pairs, n_labels
    at = _skip_space(data, at + 1)
    if data[at] == _CLOSE_LIST:
        return at + 1, pairs, n_labels
    while True:
        at, end = _string(data, at, arena, offsets[n_labels])
        if at == NOT_PLAIN:
            return NOT_PLAIN, pairs, n_labels
        columns[pairs] = find_or_add(arena, offsets, n_labels, end, table)
        n_labels += columns[pairs] == n_labels
        pairs += 1
        at = _skip_space(data, at)
        if data[at] == _CLOSE_LIST:
            return at + 1, pairs, n_labels
        if data[at] != _COMMA:
            return NOT_PLAIN, pairs, n_labels
        at = _skip_space(data, at + 1)


@kernel
def scan_documents(
    data: NDArray[np.uint8],  # IN  whole lines, the last byte a newline
    texts: NDArray[np.uint8],  # OUT (>= len(data),) end to end
    text_ends: NDArray[np.int64],  # OUT (>= lines,)
    ids: NDArray[np.uint8],  # OUT (>= len(data),)
    # OUT (>= lines,) -1 where documents have no id: all of them, or none
    id_ends: NDArray[np.int64],
    columns: NDArray[np.int32],  # OUT (>= quotes / 2,) of the labels
    row_ends: NDArray[np.int64],  # OUT (>= lines,)
    arena: NDArray[np.uint8],  # IN/OUT label ids end to end, room for len(data) more
    offsets: NDArray[np.int64],  # IN/OUT room for quotes / 2 more, and one
    n_labels: int,  # IN
    table: NDArray[np.uint64],  # IN/OUT of kernels.interning
) -> tuple[int, int]:
    """Return (rows, labels), or (NOT_PLAIN, labels); labels that were new until then are in the
    table.
    """
    at = 0
    rows = 0
    pairs = 0
    text_end = 0
    id_end = 0
    while at < data.shape[0]:
        at = _skip_space(data, at)
        if data[at] != _OPEN:
            return NOT_PLAIN, n_labels
        has_text = False
        has_labels = False
        has_id = False
        more = True
        while more:
            key = _skip_space(data, at + 1)  # behind { or ,
            text = NOT_PLAIN
            labels = NOT_PLAIN
            own_id = NOT_PLAIN
            if data[key] == _QUOTE:
                text = _after_key(data, key + 1, _TEXT)
                labels = _after_key(data, key + 1, _LABELS)
                own_id = _after_key(data, key + 1, _ID)
            at = NOT_PLAIN
            if text != NOT_PLAIN and not has_text:
                has_text = True
                at, text_end = _string(data, text, texts, text_end)
            elif labels != NOT_PLAIN and not has_labels:
                has_labels = True
                at, pairs, n_labels = _label_list(
                    data, labels, columns, pairs, arena, offsets, n_labels, table
                )
            elif own_id != NOT_PLAIN and not has_id:
                has_id = True
                at, id_end = _string(data, own_id, ids, id_end)
            if at == NOT_PLAIN:
                return NOT_PLAIN, n_labels
            at = _skip_space(data, at)
            more = data[at] == _COMMA
        complete = (
            has_text
            and has_labels
            and data[at] == _CLOSE
            and (rows == 0 or has_id == (id_ends[0] >= 0))
        )
        if not complete:
            return NOT_PLAIN, n_labels
        at = _skip_space(data, at + 1)
        if data[at] != _NEWLINE:
            return NOT_PLAIN, n_labels
        text_ends[rows], row_ends[rows], id_ends[rows] = text_end, pairs, id_end if has_id else -1
        at = at + 1
        rows = rows + 1
    return rows, n_labels
