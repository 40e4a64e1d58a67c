"""The label vocabulary: ids ↔ names ↔ text. A label is a string as given, end to end."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.data.strings import Strings
from longtail.errors import UsageError

__all__ = ["Label", "LabelIndex", "Labels", "name_and_text"]

_MANY = 1 << 21  # labels of which a dict takes too much memory for a look-up now and then


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """One label as a label file holds it; only ``id`` is required."""

    id: str
    name: str = ""
    text: str = ""
    aliases: tuple[str, ...] = ()
    uri: str = ""


class LabelIndex(defaultdict[str, int]):
    """Label id → column; an unknown id gets the next column."""

    def __init__(self, columns: Mapping[str, int] | None = None) -> None:
        super().__init__(None, columns or {})
        self.default_factory = count(len(self)).__next__

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

    def __post_init__(self) -> None:
        empty = np.flatnonzero(Strings.of(self.ids).lengths == 0)
        if len(empty):
            raise UsageError(f"label {empty[0] + 1}: an empty id; expected one character or more")

    @classmethod
    def of(cls, labels: Iterable[Label | str]) -> Labels:
        """Build the vocabulary from labels or bare ids; ids must be unique."""
        rows = [label if isinstance(label, Label) else Label(label) for label in labels]
        if len({row.id for row in rows}) != len(rows):
            raise ValueError("label ids must be unique")

        def column(field: str) -> Strings | None:
            values = [getattr(row, field) for row in rows]
            if any(values):
                return Strings.of(values)
            return None

        aliases: tuple[tuple[str, ...], ...] | None = tuple(row.aliases for row in rows)
        # refuses half a surrogate pair, as the columns do
        Strings.of(alias for row in rows for alias in row.aliases)
        if not any(row.aliases for row in rows):
            aliases = None
        ids = Strings.of(row.id for row in rows)
        return cls(ids, column("name"), column("text"), aliases, column("uri"))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: int) -> Label:
        aliases = self.aliases[at] if self.aliases else ()
        return Label(
            self.ids[at],
            _string_at(self.names, at),
            _string_at(self.texts, at),
            aliases,
            _string_at(self.uris, at),
        )

    def __iter__(self) -> Iterator[Label]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and all(
            getattr(self, field) == getattr(other, field)
            for field in ("ids", "names", "texts", "aliases", "uris")
        )

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, label: object) -> bool:
        return isinstance(label, str) and self._column_or_none(label) is not None

    def column(self, label: str) -> int:
        """Return the column of an id, or raise KeyError; of very many labels without the memory of
        ``columns``.
        """
        column = self._column_or_none(label)
        if column is None:
            raise KeyError(label)
        return column

    def find(self, label: str) -> int:
        """Return the column of a label given by id, or by a name of its own; UsageError says which
        one is near.
        """
        if label in self:
            return self.column(label)
        named = [at for at, name in enumerate(self.names or ()) if name == label]
        if len(named) == 1:
            return named[0]
        if named:
            ids = ", ".join(repr(self.ids[at]) for at in named[:3])
            problem = f"found {len(named)} labels of this name"
            raise UsageError(f"label {label!r}: {problem}; give an id, such as {ids}")
        known = {text.casefold(): text for text in (*self.ids, *(self.names or ())) if text}
        near = difflib.get_close_matches(label.casefold(), known, 1, 0.6)
        hint = "expected the id or name of a label"
        if near:
            hint = f"did you mean {known[near[0]]!r}?"
        raise UsageError(f"unknown label {label[:200]!r}; {hint}")

    def named(self, name: str) -> list[str]:
        """Return the ids of the labels of a name."""
        return [self.ids[column] for column in self._columns_of_names.get(name, ())]

    @cached_property
    def _columns_of_names(self) -> dict[str, list[int]]:
        columns: dict[str, list[int]] = {}
        for column, name in enumerate(self.names or ()):
            if name:
                columns.setdefault(name, []).append(column)
        return columns

    def _column_or_none(self, label: str) -> int | None:
        if len(self) < _MANY or "columns" in self.__dict__:
            return self.columns.get(label)
        raw = label.encode("utf-8", "surrogatepass")
        at = bisect_left(self._order, raw, key=self._raw)
        if at < len(self) and self._raw(self._order[at]) == raw:
            return int(self._order[at])
        return None

    def _raw(self, column: np.integer) -> bytes:
        offsets = self.ids.offsets
        return self.ids.arena[offsets[column] : offsets[column + 1]].tobytes()

    @cached_property
    def _order(self) -> NDArray[np.uint32]:
        """Columns sorted by the bytes of their ids: 4 bytes per label, far below a dict."""
        from longtail.kernels.string_order import sort_strings  # labels alone need no compiler

        # shuffled first: ids often come in order, which this quicksort is slow on
        order = np.random.default_rng(0).permutation(np.arange(len(self), dtype=np.uint32))
        sort_strings(self.ids.arena, self.ids.offsets, order)
        return order

    @cached_property
    def columns(self) -> dict[str, int]:
        """Label id → column."""
        return dict(zip(self.ids, range(len(self)), strict=True))

    @property
    def nbytes(self) -> int:
        """Memory of the string columns."""
        return sum(
            column.nbytes
            for column in (self.ids, self.names, self.texts, self.uris)
            if column is not None
        )

    def name(self, at: int) -> str:
        """Return what to show a person for column ``at``: the name, else the id."""
        return _string_at(self.names, at) or self.ids[at]

    def described(self) -> list[str]:
        """Return what each label says of itself: its name and its text, but no name that the text
        begins with.
        """
        texts: Sequence[str] = [""] * len(self)
        if self.texts is not None:
            texts = self.texts
        return [name_and_text(self.name(at), text) for at, text in enumerate(texts)]

    def extended(self, ids: Sequence[str]) -> Labels:
        """Return this vocabulary with bare labels appended for ``ids`` that it does not have."""
        new = [label for label in dict.fromkeys(ids) if label not in self]
        if not new:
            return self
        return Labels.of([*self, *new])


def _string_at(column: Strings | None, at: int) -> str:
    """Return a string of a column, "" where there is none."""
    if not column:
        return ""
    return column[at]


def name_and_text(name: str, text: str) -> str:
    """Return a label's name and text joined by a space; the text alone where it begins with the
    name.
    """
    if not name or not text:
        return name or text
    begins = text[: len(name)].lower() == name.lower()
    if begins and not text[len(name) : len(name) + 1].isalnum():
        return text
    return f"{name} {text}"
