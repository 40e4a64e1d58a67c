"""The label vocabulary: ids ↔ names ↔ text. A label is a string as given, end to end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from longtail.data.strings import Strings

__all__ = ["Label", "LabelIndex", "Labels"]


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """One label as a label file holds it; only ``id`` is required."""

    id: str
    name: str = ""
    text: str = ""
    aliases: tuple[str, ...] = ()
    uri: str = ""


class LabelIndex(dict[str, int]):
    """Label id → column; an unknown id gets the next column."""

    def __missing__(self, label: str) -> int:
        column = self[label] = len(self)
        return column

    def strings(self) -> Strings:
        """Return the labels in the order of their columns."""
        return Strings.of(self)


@dataclass(frozen=True, eq=False)
class Labels:
    """L labels in the column order of the label matrix; columns that no file gave are None."""

    ids: Strings
    names: Strings | None = None
    texts: Strings | None = None
    aliases: tuple[tuple[str, ...], ...] | None = None
    uris: Strings | None = None

    @classmethod
    def of(cls, labels: Iterable[Label | str]) -> Labels:
        """Build the vocabulary from labels or bare ids; ids must be unique."""
        rows = [label if isinstance(label, Label) else Label(label) for label in labels]
        if len({row.id for row in rows}) != len(rows):
            raise ValueError("label ids must be unique")

        def column(field: str) -> Strings | None:
            values = [getattr(row, field) for row in rows]
            return Strings.of(values) if any(values) else None

        aliases = tuple(row.aliases for row in rows)
        Strings.of(alias for own in aliases for alias in own)  # refuses half a surrogate pair, as the columns do
        ids = Strings.of(row.id for row in rows)
        return cls(ids, column("name"), column("text"), aliases if any(aliases) else None, column("uri"))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: int) -> Label:
        return Label(
            self.ids[at],
            self.names[at] if self.names else "",
            self.texts[at] if self.texts else "",
            self.aliases[at] if self.aliases else (),
            self.uris[at] if self.uris else "",
        )

    def __iter__(self) -> Iterator[Label]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and all(
            getattr(self, field) == getattr(other, field) for field in ("ids", "names", "texts", "aliases", "uris")
        )

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, label: object) -> bool:
        return label in self.columns

    @cached_property
    def columns(self) -> dict[str, int]:
        """Label id → column."""
        return dict(zip(self.ids, range(len(self)), strict=True))

    @property
    def nbytes(self) -> int:
        """Memory of the string columns."""
        return sum(column.nbytes for column in (self.ids, self.names, self.texts, self.uris) if column is not None)

    def name(self, at: int) -> str:
        """Return what to show a person for column ``at``: the name, else the id."""
        return (self.names[at] if self.names else "") or self.ids[at]

    def described(self) -> list[str]:
        """Return what each label says of itself: its name and its text."""
        texts = self.texts if self.texts is not None else [""] * len(self)
        return [" ".join(filter(None, (self.name(at), text))) for at, text in enumerate(texts)]

    def extended(self, ids: Sequence[str]) -> Labels:
        """Return this vocabulary with bare labels appended for ``ids`` that it does not have."""
        new = [label for label in dict.fromkeys(ids) if label not in self]
        return Labels.of([*self, *new]) if new else self
