"""Every exception Longtail raises on purpose, and the exit code the command line gives it.

    LongtailError            1  something failed
    ├── UsageError           2  a command, option or argument that cannot be meant
    │   ├── ConfigError      2  a setting: unknown key, wrong type, value out of range
    │   └── MissingExtra     2  an optional package is not installed
    ├── DataError            3  a data file: which line, what was found, what was expected
    └── ModelFolderError     4  a model folder that does not verify

The command line prints them as they are, without a traceback, so each message says
what was found, what was expected, and the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "ConfigError",
    "DataError",
    "LongtailError",
    "MissingExtra",
    "ModelFolderError",
    "Problem",
    "UsageError",
    "interruption",
    "place_at",
    "printable",
    "unknown_name",
]


class LongtailError(Exception):
    """The root: catch this to catch everything below."""

    exit_code = 1


class UsageError(LongtailError):
    """A command, option or argument that cannot be meant."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting with an unknown key, a wrong type, or a value out of range."""


class MissingExtra(UsageError):
    """A feature needs a package that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs an optional package; install it with: pip install 'longtail[{extra}]'"
        )
        self.feature = feature
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingExtra, (self.feature, self.extra)


class Problem(NamedTuple):
    """One thing wrong in a data file; line 0 means the file as a whole."""

    file: str
    line: int
    found: str
    expected: str

    def __str__(self) -> str:
        location = self.file
        if self.line:
            location = f"{self.file}:{self.line}"
        return printable(f"{location}: {self.found}; expected {self.expected}")


class DataError(LongtailError):
    """One or more problems in a data file, one a line."""

    exit_code = 3

    def __init__(self, problems: Sequence[Problem], way_out: str = "") -> None:
        self.problems = list(problems)
        self.way_out = way_out
        lines = [*map(str, self.problems), way_out]
        super().__init__("\n".join(filter(None, lines)))

    def __reduce__(self) -> tuple[Any, ...]:  # so that it comes back whole from another process
        return DataError, (self.problems, self.way_out)


class ModelFolderError(LongtailError):
    """A model folder that is incomplete, altered, or from a newer version."""

    exit_code = 4


def interruption(error: BaseException | None) -> KeyboardInterrupt | SystemExit | None:
    """Return the exception of a signal that compiled code of another library has wrapped in a
    SystemError.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__cause__
    return error


def place_at(error: OSError, path: Path, temporary: Path) -> None:
    """Replace a missing or temporary file in an error of the disk by the path asked for."""
    if error.filename is None or Path(str(error.filename)).is_relative_to(temporary):
        error.filename = str(path)
        error.filename2 = None


def printable(text: str) -> str:
    """Return ``text`` on one line, with what a terminal could act on written as escapes."""
    if text.isprintable():
        return text
    characters = []
    for character in text:
        if not character.isprintable():
            character = character.encode("unicode_escape").decode()
        characters.append(character)
    return "".join(characters)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return «unknown KIND 'NAME'; did you mean …?», or with the list of the known names.

    Python callers may give anything in place of a name: an object that is no text is shown as such.
    """
    known = sorted(known)
    names = ", ".join(map(printable, known))
    if not isinstance(name, str):
        return f"{kind}: found {repr(name)[:200]}; expected a name, one of: {names}"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:  # a dotted key whose last part alone is right, e.g. branching for tree.branching
        near = [k for k in known if k.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1]][:1]
    hint = f"known: {names}"
    if near:
        hint = f"did you mean {near[0]!r}?"
    return f"unknown {kind} {name[:200]!r}; {hint}"
