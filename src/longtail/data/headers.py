"""Whether lines of sparse features, ``3,17 8:0.5 9:1``, stand under a header or not, told by the
first bytes.
"""

from __future__ import annotations

import re

from longtail.data.lines import BEGINNING

__all__ = ["FLOAT", "TARGETS", "has_header", "is_headerless"]

_FLOAT = rb"[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+"
FLOAT = re.compile(_FLOAT)
TARGETS = re.compile(_FLOAT + rb"(?:," + _FLOAT + rb")*+")  # what svmlight has before the pairs
_END = rb"(?:[ \t\r]++|$)"
_LINE = re.compile(
    rb"(?:"
    + TARGETS.pattern
    + _END
    + rb")?(?:qid:\d++"
    + _END
    + rb")?+(?:\d++:"
    + _FLOAT
    + _END
    + rb")*+"
)


def has_header(start: bytes) -> bool:
    """Tell whether a file begins with three numbers: documents, features and labels."""
    first = start.lstrip(b"\r\n").partition(b"\n")[0].strip()
    return re.fullmatch(rb"\d+[ \t]\d+[ \t]\d+", first) is not None


def is_headerless(start: bytes) -> bool:
    """Tell whether the first bytes of a file are svmlight lines, ``3,17 8:0.5 9:1``, without a
    header above.

    The first line that has a pair decides; lines of labels alone, comments and blank lines may
    stand before it."""
    lines = start[:BEGINNING].split(b"\n")
    if len(start) >= BEGINNING and b":" in lines[-1]:
        lines[-1] = lines[-1].rpartition(b" ")[0]  # the end of the last number may be missing
    for line in lines:
        content = line.partition(b"#")[0].strip()
        if b":" in content or not _LINE.fullmatch(content):
            return _LINE.fullmatch(content) is not None
    return False
