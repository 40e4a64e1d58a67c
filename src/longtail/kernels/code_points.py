"""Units of UTF-8 text, words or characters, exactly as Python's ``str.lower`` and ``re`` find
them.

A block of documents becomes one buffer of lower-case text in which every n-gram is one range of
bytes: words stand end to end with one space behind each, characters with runs of white space shrunk
to one space. Unit ``u`` is ``buffer[starts[u]:starts[u + 1] - gap]``, where gap is 1 for words and
0 for characters."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["code_point_table", "decode", "hash_bytes", "mix", "split_characters", "split_words"]

# An entry of the table: the lower-case code point in the low 21 bits, what is known of it above.
_CODE_POINT = (1 << 21) - 1
_WORD = 1 << 24  # \w, of the lower-case form
_SPACE = 1 << 25  # \s, of the lower-case form
# has upper or lower case, and is not skipped when looking for it (Unicode 3.13, Final_Sigma)
_CASED = 1 << 26
_IGNORABLE = 1 << 27  # is skipped
_DOTTED = 1 << 28  # U+0130, the one code point whose lower-case form is two: i and U+0307

_SIGMA = 0x3A3
_SMALL_SIGMA = 0x3C3
_FINAL_SIGMA = 0x3C2
_DOTTED_I = 0x130
_DOT_ABOVE = 0x307
_ASCII = 0x80
_BLANK = 32
# All that has a case or is a letter, digit or space lies below 0x40000; tags and variation
# selectors are ignorable.
_ASSIGNED = ((0, 0xD800), (0xE000, 0x40000), (0xE0000, 0xE1000))
_N_CODE_POINTS = 0x110000

_SEED = np.uint64(0x51ED270B0A1F39C1)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_U8 = np.uint64(8)
_U32 = np.uint64(32)


@cache
def code_point_table() -> NDArray[np.uint32]:
    """Return the entry of each code point, (0x110000,), as this Python's Unicode version has it;
    built once.
    """
    table = np.arange(_N_CODE_POINTS, dtype=np.uint32)
    for first, last in _ASSIGNED:
        known = table[first:last].copy()
        known[known == _DOTTED_I] = ord("i")
        known[known == _SIGMA] = _SMALL_SIGMA
        lowered = known.tobytes().decode("utf-32").lower()
        # behind the byte order mark
        entries = np.frombuffer(lowered.encode("utf-32")[4:], np.uint32).copy()
        for pattern, flag in ((r"\w+", _WORD), (r"\s+", _SPACE)):
            for run in re.finditer(pattern, lowered):
                entries[run.start() : run.end()] |= flag
        cased = _makes_sigma_final(" ", known)
        entries[cased] |= _CASED
        entries[_makes_sigma_final("a", known) & ~cased] |= _IGNORABLE
        table[first:last] = entries
    table[_DOTTED_I] |= _DOTTED
    table.flags.writeable = False
    return table


def _makes_sigma_final(before: str, known: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return for each code point whether a capital sigma behind ``before`` and it is at the end of
    a word.
    """
    around = np.array([[ord(" "), ord(before), 0, _SIGMA]], np.uint32).repeat(len(known), axis=0)
    around[:, 2] = known
    lowered = around.tobytes().decode("utf-32").lower()
    final: NDArray[np.bool_] = (
        np.frombuffer(lowered.encode("utf-32")[4:], np.uint32)[3::4] == _FINAL_SIGMA
    )
    return final


@kernel
def mix(h: Any) -> Any:
    """Spread the bits of a number; different numbers stay different."""
    h = h * _MULTIPLIER
    return h ^ (h >> _U32)


@kernel
def hash_bytes(data: Any, start: int, end: int) -> Any:
    """Hash eight bytes at a time: words of up to eight bytes never share a hash, longer ones with a
    probability of 2^-64 per pair.
    """
    h = _SEED
    packed = np.uint64(0)
    for i in range(start, end):
        packed = (packed << _U8) | np.uint64(data[i])
        if (i - start) & 7 == 7:
            h = mix(h ^ packed)
            packed = np.uint64(0)
    return mix(h ^ packed)


@kernel
def decode(data: Any, at: Any) -> tuple[Any, Any]:
    """Return the code point of well-formed UTF-8 at ``at``, and where the next begins."""
    lead = np.int64(data[at])
    if lead < _ASCII:
        return lead, at + 1
    second = np.int64(data[at + 1]) & 63
    if lead < 0xE0:
        return (lead & 31) << 6 | second, at + 2
    third = np.int64(data[at + 2]) & 63
    if lead < 0xF0:
        return (lead & 15) << 12 | second << 6 | third, at + 3
    return (lead & 7) << 18 | second << 12 | third << 6 | np.int64(data[at + 3]) & 63, at + 4


@kernel
def _encode(code_point: Any, out: Any, end: Any) -> Any:
    """Append a code point to ``out``; return the new end."""
    if code_point < _ASCII:
        out[end] = code_point
        return end + 1
    if code_point < 0x800:
        out[end] = 0xC0 | code_point >> 6
        out[end + 1] = _ASCII | code_point & 63
        return end + 2
    if code_point < 0x10000:
        out[end] = 0xE0 | code_point >> 12
        out[end + 1] = _ASCII | code_point >> 6 & 63
        out[end + 2] = _ASCII | code_point & 63
        return end + 3
    out[end] = 0xF0 | code_point >> 18
    out[end + 1] = _ASCII | code_point >> 12 & 63
    out[end + 2] = _ASCII | code_point >> 6 & 63
    out[end + 3] = _ASCII | code_point & 63
    return end + 4


@kernel
def _ends_word(arena: Any, first: Any, at: Any, last: Any, table: Any) -> bool:
    """Return whether the capital sigma at ``at`` is a final one: behind a cased character and
    before none.
    """
    entry = 0
    i = at
    while i > first:
        i -= 1
        while arena[i] & 0xC0 == _ASCII:  # inside a character
            i -= 1
        entry = table[decode(arena, i)[0]]
        if not entry & _IGNORABLE:
            break
    if not entry & _CASED:
        return False
    entry = 0
    i = at + 2
    while i < last:
        code_point, i = decode(arena, i)
        entry = table[code_point]
        if not entry & _IGNORABLE:
            break
    return not entry & _CASED


@kernel
def _lower(arena: Any, first: Any, at: Any, last: Any, table: Any) -> tuple[Any, Any]:
    """Return the table's entry of the character at ``at``, which may be a final sigma, and where
    the next begins.
    """
    code_point, following = decode(arena, at)
    entry = np.int64(table[code_point])
    if code_point == _SIGMA and _ends_word(arena, first, at, last, table):
        entry += _FINAL_SIGMA - _SMALL_SIGMA
    return entry, following


@kernel
def split_words(
    arena: NDArray[np.uint8],  # IN  UTF-8
    offsets: NDArray[np.int64],  # IN  documents in the arena
    first: int,  # IN  document
    last: int,  # IN  behind the last document
    table: NDArray[np.uint32],  # IN  code_point_table()
) -> tuple[Any, Any, Any, Any]:
    """Return (buffer, starts, hashes, ends of documents in units) of ``(?u)\\b\\w\\w+\\b`` on
    lower-case text.
    """
    size = offsets[last] - offsets[first] + last - first
    out = np.empty(size + size // 2 + 4, np.uint8)  # a lower-case form is longer by half at most
    starts = np.empty(size // 2 + 2, np.uint32)
    hashes = np.empty(size // 2 + 1, np.uint64)
    units = np.zeros(last - first + 1, np.int64)
    end = 0
    unit = 0
    starts[0] = 0
    for document in range(first, last):
        at = offsets[document]
        begin = offsets[document]
        stop = offsets[document + 1]
        letters = 0
        token = end
        while at <= stop:
            # most of most texts
            while at < stop and arena[at] < _ASCII and table[arena[at]] & _WORD:
                out[end] = table[arena[at]] & 127
                end += 1
                letters += 1
                at += 1
            entry: Any = np.int64(0)
            if at < stop and arena[at] >= _ASCII:
                entry, at = _lower(arena, begin, at, stop, table)
            else:
                at += 1
            if entry & _WORD:
                end = _encode(entry & _CODE_POINT, out, end)
                letters += 1
                if not entry & _DOTTED:
                    continue
            if letters > 1:
                hashes[unit] = hash_bytes(out, token, end)
                out[end] = _BLANK
                end += 1
                unit += 1
                starts[unit] = end
                token = end
            letters = 0
            end = token
        units[document - first + 1] = unit
    return out[:end].copy(), starts[: unit + 1], hashes[:unit], units


@kernel
def split_characters(
    arena: NDArray[np.uint8],  # IN  UTF-8
    offsets: NDArray[np.int64],  # IN  documents in the arena
    first: int,  # IN  document
    last: int,  # IN  behind the last document
    table: NDArray[np.uint32],  # IN  code_point_table()
) -> tuple[Any, Any, Any, Any]:
    """Return (buffer, starts, hashes, ends of documents in units) of lower-case text, ``\\s\\s+``
    made one space.
    """
    size = offsets[last] - offsets[first]
    out = np.empty(size + size // 2 + 4, np.uint8)
    starts = np.empty(size + 2, np.uint32)
    hashes = np.empty(size + 1, np.uint64)
    units = np.zeros(last - first + 1, np.int64)
    end = 0
    unit = 0
    starts[0] = 0
    for document in range(first, last):
        at = offsets[document]
        begin = offsets[document]
        stop = offsets[document + 1]
        spaces = 0
        while at < stop:
            entry: Any = np.int64(table[arena[at] & 127])
            if arena[at] < _ASCII:
                at += 1
            else:
                entry, at = _lower(arena, begin, at, stop, table)
            spaces += 1
            if not entry & _SPACE:
                spaces = 0
            if spaces > 2:
                continue
            code_point = entry & _CODE_POINT
            if spaces == 2:
                code_point = _BLANK
                unit -= 1
                end = starts[unit]
            end = _encode(code_point, out, end)
            hashes[unit] = mix(np.uint64(code_point))
            unit += 1
            starts[unit] = end
            if entry & _DOTTED:
                end = _encode(_DOT_ABOVE, out, end)
                hashes[unit] = mix(np.uint64(_DOT_ABOVE))
                unit += 1
                starts[unit] = end
        units[document - first + 1] = unit
    return out[:end].copy(), starts[: unit + 1], hashes[:unit], units
