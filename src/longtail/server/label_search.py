"""Labels by parts of their ids, names and aliases, also by what is only nearly right."""

from __future__ import annotations

import difflib
import re
from functools import cached_property
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray

from longtail.data.labels import Labels
from longtail.server.answers import FoundLabel, LabelsResponse
from longtail.server.problem_details import Refusal

__all__ = ["LabelSearch"]

_BETWEEN = "\n"  # stands before and behind every id, name and alias; no query can hold it
_BLOCK = 1 << 16  # labels
_CANDIDATES = 500  # compared letter by letter for the nearest
_Columns = NDArray[np.int64]


class LabelSearch:
    """All strings of all labels as one string in folded case, which the search of ``re`` goes
    through in one go.
    """

    def __init__(self, labels: Labels, counts: NDArray[np.integer]) -> None:
        self._labels = labels
        self._counts = counts

    def find(self, query: str, limit: int) -> LabelsResponse:
        """Return labels that hold the query: first where a string begins with it, and among these
        by frequency.
        """
        columns = self._by_frequency if not query.strip() else self._matching(query)
        found = [self._found(int(column)) for column in columns[:limit]]
        return LabelsResponse(found, len(columns))

    def resolve(self, label: str) -> str:
        """Return the id of a label given by id or name; 404 with the nearest known one."""
        if label in self._labels:
            return label
        named = [column for column in self._whole(label) if self._labels.name(int(column)) == label]
        if len(named) == 1:
            return self._labels.ids[int(named[0])]
        if named:
            detail = f"{len(named)} labels have the name {label[:200]!r}; expected an id"
        else:
            near = self._nearest(label)
            detail = f"unknown label {label[:200]!r}" + (
                f"; did you mean {near!r}?" if near else ""
            )
        raise Refusal(404, "Unknown label", detail)

    def _found(self, column: int) -> FoundLabel:
        return FoundLabel(
            self._labels.ids[column], self._labels.name(column), int(self._counts[column])
        )

    def _matching(self, query: str) -> _Columns:
        """Return the columns of labels that hold the query, best first."""
        folded = _folded(query)
        hits = np.array(
            [match.start() for match in re.finditer(re.escape(folded), self._text)], np.int64
        )
        owners = np.searchsorted(self._starts, hits, "right") - 1
        begins = np.array([self._text[at - 1] == _BETWEEN for at in hits.tolist()], bool)
        columns, first = np.unique(owners, return_inverse=True)
        beginning = np.zeros(len(columns), bool)
        np.logical_or.at(beginning, first, begins)
        order: _Columns = columns[np.lexsort((columns, -self._counts[columns], ~beginning))]
        return order

    def _whole(self, label: str) -> _Columns:
        """Return the columns of labels that have a string equal to this one but for case."""
        pattern = re.escape(f"{_BETWEEN}{_folded(label)}{_BETWEEN}")
        hits = np.array([match.start() for match in re.finditer(pattern, self._text)], np.int64)
        return np.unique(np.searchsorted(self._starts, hits, "right") - 1)

    def _nearest(self, label: str) -> str | None:
        """Return the known id or name most like this one among those that share its beginning, or a
        part of it.
        """
        folded = _folded(label)[:100]
        for length in sorted(
            {len(folded) * part // 4 for part in (4, 3, 2, 1)} - {0}, reverse=True
        ):
            columns = self._matching(folded[:length])[:_CANDIDATES].tolist()
            if columns:
                names = {
                    _folded(name): name
                    for at in columns
                    for name in (self._labels.ids[at], self._labels.name(at))
                }
                near = difflib.get_close_matches(folded, names, 1, 0.4)
                if near:
                    return names[near[0]]
        return None

    @cached_property
    def _by_frequency(self) -> _Columns:
        order: _Columns = np.argsort(-self._counts, kind="stable")
        return order

    @cached_property
    def _parts(self) -> tuple[str, _Columns]:
        labels = self._labels
        texts = list[str]()
        sizes = list[NDArray[np.int64]]()
        rows = zip(
            labels.ids, labels.names or repeat(""), labels.aliases or repeat(()), strict=False
        )
        # in blocks: as strings, ten million labels take a gigabyte
        while block := list(islice(rows, _BLOCK)):
            own = [
                _BETWEEN + _BETWEEN.join(map(_folded, filter(None, (at, name, *more))))
                for at, name, more in block
            ]
            texts.append("".join(own))
            sizes.append(np.fromiter(map(len, own), np.int64, len(own)))
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
        return "".join([*texts, _BETWEEN]), ends[:-1]

    @property
    def _text(self) -> str:
        return self._parts[0]

    @property
    def _starts(self) -> _Columns:
        """Where each label begins: at the sign before its first string."""
        return self._parts[1]


def _folded(text: str) -> str:
    return text.casefold().replace(_BETWEEN, " ")
