"""Folders in which train and test lie side by side: how a split's files are found, and strings one
a line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from longtail.data.labels import Labels
from longtail.data.lines import blocks, text_lines
from longtail.data.output import open_output
from longtail.data.problems import Problems, quoted
from longtail.data.strings import Strings
from longtail.errors import UsageError, unknown_name

__all__ = [
    "TRN_TST",
    "SplitFiles",
    "label_strings",
    "one_line",
    "read_names",
    "read_strings",
    "write_strings",
]

log = logging.getLogger("longtail")
TRN_TST = {"train": "trn", "test": "tst"}  # what a split is called in most folders of benchmarks
_NEWLINE = r"\r\n|\r|\n"


class SplitFiles:
    """The files of one split in a folder: ``{}`` in a name is the split, ``.gz`` or ``.zst`` may
    follow it.
    """

    def __init__(
        self, path: Path | str, split: str, parts: dict[str, str], names: Sequence[str]
    ) -> None:
        """Take the folder, or any of the files called as ``names``; ``parts`` is split → its word
        in a name.
        """
        if split not in parts:
            raise UsageError(unknown_name("split", split, parts))
        self.folder = Path(path)
        self.part = parts[split]
        self._others = [part for part in parts.values() if part != self.part]
        if not self.folder.is_dir():
            self.part = self._part_of(self.folder, names)
            self.folder = self.folder.parent

    @classmethod
    def to_write(cls, folder: Path | str, split: str, parts: dict[str, str]) -> SplitFiles:
        """Make the folder if it is not there."""
        try:
            Path(folder).mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be made a folder ({error.strerror})") from None
        return cls(folder, split, parts, ())

    @staticmethod
    def _part_of(path: Path, names: Sequence[str]) -> str:
        for name in names:
            pattern = re.escape(name).replace(r"\{\}", "(.+)") + r"(?:\.gz|\.zst)?"
            if match := re.fullmatch(pattern, path.name):
                return match[1]
        examples = ", ".join(name.format("…") for name in names)
        expected = f"expected a folder of this format, or a file in it called {examples}"
        raise UsageError(f"{path}: not a folder; {expected}")

    def at(self, name: str) -> Path:
        """Return where a file of this split is written."""
        return self.folder / name.format(self.part)

    def find(self, *names: str, required: bool = False) -> Path | None:
        """Return the first of the files that is there, compressed or not.

        Refuse a folder without them where one is ``required``.
        """
        if required:
            return self.need(*names)
        for name in names:
            there = [
                f
                for end in ("", ".gz", ".zst")
                if (f := self.folder / (name.format(self.part) + end)).exists()
            ]
            if len(there) > 1:
                both = f"{there[0].name} and {there[1].name}"
                raise UsageError(f"{self.folder}: found {both}; expected one of them")
            if there:
                return there[0]
        return None

    def need(self, *names: str) -> Path:
        """Return what :meth:`find` does, or refuse a folder without it."""
        file = self.find(*names)
        if file is None:
            raise UsageError(
                f"{self.folder}: no file {' or '.join(name.format(self.part) for name in names)}"
            )
        return file

    def refuse_other_labels(
        self, path: Path, there: Iterable[str], ours: Iterable[str], name: str
    ) -> None:
        """Raise if the file at ``path`` is needed as it is, by the other split's file ``name``."""
        taken = any((self.folder / name.format(part)).exists() for part in self._others)
        if taken and list(there) != list(ours):
            problem = (
                f"{path}: holds other labels than this dataset and belongs to the other split too"
            )
            expected = "the same labels: read with labels=…, or write to another folder"
            raise UsageError(f"{problem}; expected {expected}")


def read_strings(path: Path | str, count: int | None = None) -> Strings:
    """Read one string a line; all must be good, and ``count`` if that is given, for their positions
    mean something.
    """
    problems = Problems(path)
    strings = [text for _, text in text_lines(path, problems)]
    problems.close()
    if count not in (None, len(strings)):
        problems.fatal(f"{len(strings)} lines", f"{count}, one a label")
    return Strings.of(text or "" for text in strings)


def read_names(path: Path | str, count: int | None = None) -> Strings:
    """Read label names, one a line, as the Extreme Classification Repository has them in
    ``Yf.txt``.

    Such files are in UTF-8 or, some of them, in ISO 8859-1. Blank lines at the end are no names.

    Args:
        path: The file.
        count: Labels, if their number is known; another number of lines is refused.
    """
    problems = Problems(path)
    data = b"".join(block.data for block in blocks(path, problems))
    problems.close()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        log.info("%s: not UTF-8; read as ISO 8859-1", path)
        text = data.decode("iso-8859-1")
    lines = [line.removesuffix("\r") for line in text.split("\n")[:-1]]
    while lines and not lines[-1].strip() and len(lines) > (count or 0):
        lines.pop()
    if count not in (None, len(lines)):
        problems.fatal(f"{len(lines)} lines", f"{count}, one a label")
    return Strings.of(lines)


def write_strings(strings: Iterable[str], path: Path | str) -> None:
    """Write one string a line; a newline inside becomes a space."""
    with open_output(path) as out:
        for string in strings:
            out.write(one_line(string).encode() + b"\n")


def one_line(text: str, by: str = " ") -> str:
    """Return ``text`` with ``by`` in place of each newline."""
    if "\n" in text or "\r" in text:
        return re.sub(_NEWLINE, by, text)
    return text


def label_strings(
    labels: Labels, path: Path | str, pattern: str = _NEWLINE, by: str = " "
) -> list[str]:
    """Return the ids as a file of lines can hold them: ``pattern`` replaced, with one warning;
    never two the same.
    """
    strings = [re.sub(pattern, by, label) for label in labels.ids]
    first: dict[str, int] = {}
    for column, string in enumerate(strings):
        if first.setdefault(string, column) != column:
            two = f"{quoted(labels.ids[first[string]])} and {quoted(labels.ids[column])}"
            raise UsageError(
                f"{path}: labels {two} become one in this format; rename one, or write JSON lines"
            )
    changed = sum(string != label for string, label in zip(strings, labels.ids, strict=True))
    if changed:
        log.warning(
            "%s: %r stands for what this format cannot hold in %d label ids", path, by, changed
        )
    return strings
