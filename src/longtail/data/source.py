"""Where documents were read from, as far as a measurement has to know it.

The name of a benchmark decides the constants of the propensities, and filter files lie beside the
data. Such a file gives documents and labels by number, so that it needs documents in the order of
their file, and the numbers of labels."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from longtail.data.labels import Labels
from longtail.data.lines import uncompressed

__all__ = ["Source"]

# words in the names of files
_SPLITS = {"train": "train", "trn": "train", "test": "test", "tst": "test"}


@dataclass(frozen=True, eq=False)
class Source:
    """The file or folder that documents were read from.

    ``labels`` are those of the files, in the order in which these number them, or None where the
    files have labels by name. ``whole`` says whether the documents are all of the file's, in its
    order."""

    path: Path
    split: str = ""  # "train" or "test"; empty where no name tells
    labels: Labels | None = None
    whole: bool = True

    @classmethod
    def of(
        cls, path: Path | str, split: str, labels: Labels | None = None, whole: bool = True
    ) -> Source:
        """Return the source for ``path``; the ``split`` that was asked for counts where it is a
        folder of both.
        """
        absolute = Path(path).absolute()  # a link keeps its own name
        if ".." in absolute.parts:
            absolute = absolute.resolve()
        if not absolute.is_dir():
            split = _split_of(absolute)
        return cls(absolute, split, labels, whole)

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        if self.path.is_dir():
            return self.path
        return self.path.parent

    @property
    def names(self) -> tuple[str, ...]:
        """Names that may be that of a benchmark: of the file and of its folder, or of the folder
        read.
        """
        return tuple(path.name for path in dict.fromkeys((self.path, self.folder)))

    def part(self) -> Source:
        """Return the source of some of the documents, or of all in another order."""
        return replace(self, whole=False)


def _split_of(file: Path) -> str:
    words = re.split(r"[^a-z]+", uncompressed(file.name).stem.lower())
    splits = {_SPLITS[word] for word in words if word in _SPLITS}
    if len(splits) != 1:
        return ""
    return splits.pop()
