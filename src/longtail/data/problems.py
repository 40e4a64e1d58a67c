"""The ledger of what is wrong in a file: up to 20 problems are shown, up to ``skip_bad`` records
are left out.
"""

from __future__ import annotations

import logging
from typing import NoReturn

from longtail.errors import DataError, Problem

__all__ = ["EMPTY_LABEL", "MAX_SHOWN", "Problems", "not_utf8", "quoted"]

EMPTY_LABEL = "an empty label", "labels of one character or more"  # found, and expected
MAX_SHOWN = 20
log = logging.getLogger("longtail")


class Problems:
    """Collects the problems of one reading; one ledger may span the several files of a dataset."""

    def __init__(self, file: object, skip_bad: int | None = None) -> None:
        """``skip_bad`` records may be left out; None where a file is of use only as a whole."""
        self.file = str(file)
        self.skip_bad = skip_bad or 0
        self._whole = skip_bad is None
        self.skipped = 0  # records left out so far
        self._shown: list[Problem] = []

    def add(self, line: int, problem: str, expected: str, file: object = None) -> None:
        """Note that the record on ``line`` is bad; raises once there are more than may be shown or
        skipped.
        """
        if len(self._shown) < MAX_SHOWN:
            self._shown.append(Problem(self._name_of(file), line, problem, expected))
        self.skipped += 1
        if self.skipped > max(self.skip_bad, MAX_SHOWN):
            self._fail(f"more than {self.skipped - 1} bad records", "N")

    def fatal(self, problem: str, expected: str, line: int = 0, file: object = None) -> NoReturn:
        """Stop at once: nothing after this point of the file can be read."""
        last = Problem(self._name_of(file), line, problem, expected)
        raise DataError([*self._shown[: MAX_SHOWN - 1], last])

    def _name_of(self, file: object) -> str:
        if file is None:
            return self.file
        return str(file)

    def close(self) -> None:
        """Raise if more records were bad than may be skipped; else log which were left out."""
        count = f"{self.skipped} bad record{'s' if self.skipped > 1 else ''}"
        if self.skipped > self.skip_bad:
            self._fail(count, str(self.skipped))
        if self.skipped:
            log.warning("%s left out, the first: %s", count, self._shown[0])

    def _fail(self, count: str, needed: str) -> NoReturn:
        if self._whole:
            way_out = ": it is read whole or not at all"
        else:
            way_out = f", or go on with --skip-bad {needed}"
        raise DataError(self._shown, f"{count}; correct the file{way_out}")


def not_utf8(error: UnicodeDecodeError) -> tuple[str, str]:
    """Return (problem, expected) for bytes that cannot be decoded."""
    shown = "".join(f"\\x{byte:02x}" for byte in error.object[error.start : error.end])
    return (
        f"a byte that is not UTF-8 ('{shown}')",
        "UTF-8; text in Latin-1 is converted with: iconv -f LATIN1 -t UTF-8",
    )


def quoted(value: object, most: int = 60) -> str:
    """Return ``value`` as it may stand in a one-line message: escaped and cut."""
    if isinstance(value, bytes):
        value = value[: 4 * most].decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        value = value[:most]  # before repr, which makes a copy of four times the size
    text = repr(value)
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…"
