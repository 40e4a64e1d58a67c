"""Related labels and example documents of a label, and search for labels by parts of their ids,
names and aliases, with suggestions for misspellings.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.features.label_graph import neighbours
from longtail.models.ensemble_model import Ensemble
from longtail.models.model import Model
from longtail.server.answers import Example, FoundLabel, LabelsResponse, NeighbourLabel
from longtail.server.label_path import tree_of
from longtail.server.problem_details import Refusal

__all__ = ["LabelDocuments", "LabelSearch", "related", "shortened"]

_NEIGHBOURS = 12
_EXAMPLES = 5
_EXAMPLE_CHARACTERS = 300


@dataclass(frozen=True, eq=False)
class LabelDocuments:
    """Training documents, indexed by label."""

    texts: Strings | None
    ids: Strings | None
    label_matrix: sparse.csr_array  # (documents, labels of the model)
    documents: sparse.csr_array  # (labels of the model, documents)

    @classmethod
    def of(cls, documents: Dataset, labels: Labels) -> LabelDocuments:
        """Index :func:`shortened` documents by the labels of a model; drop other labels."""
        matrix = documents.with_labels(labels, unknown="drop").label_matrix
        return cls(documents.texts, documents.ids, matrix, sparse.csr_array(matrix.T.tocsr()))

    def examples(self, column: int) -> list[Example]:
        """Return the first documents of a label."""
        if self.texts is None:
            return []
        rows = self._rows(column)[:_EXAMPLES].tolist()
        if self.ids is None:
            return [Example(None, self.texts[row]) for row in rows]
        return [Example(self.ids[row], self.texts[row]) for row in rows]

    def neighbours(self, column: int) -> list[tuple[int, float]]:
        """Return labels that occur together with this one, and their cosine n_ab / √(n_a n_b)."""
        rows = self._rows(column)
        if not len(rows):
            return []
        together = np.bincount(
            self.label_matrix[rows].indices, minlength=self.label_matrix.shape[1]
        )
        together[column] = 0
        others = np.flatnonzero(together)
        cosines = together[others] / np.sqrt(len(rows) * np.diff(self.documents.indptr)[others])
        order = np.lexsort((others, -cosines))[:_NEIGHBOURS]
        return list(zip(others[order].tolist(), cosines[order].tolist(), strict=True))

    def _rows(self, column: int) -> np.ndarray:
        rows: np.ndarray = self.documents.indices[
            slice(*self.documents.indptr[column : column + 2])
        ]
        return rows


def shortened(documents: Dataset) -> Dataset:
    """Return the documents with only the beginnings of their texts, as shown on the page."""
    texts = documents.texts
    if texts is not None:
        texts = Strings.of([_beginning(text) for text in texts])
    return replace(documents, texts=texts, features=None, label_features=None, dense=None)


def related(
    model: Model | Ensemble, column: int, documents: LabelDocuments | None
) -> list[NeighbourLabel]:
    """Return the labels related to a label.

    They come from the model's label graph, from the documents, or are siblings in the label tree.
    """
    labels = model.labels
    if model.label_graph is not None:
        near = neighbours(model.label_graph, labels, labels.ids[column], _NEIGHBOURS)
        return [NeighbourLabel(label.id, label.name, label.value) for label in near]
    if documents is not None:
        return [
            NeighbourLabel(labels.ids[at], labels.name(at), cosine)
            for at, cosine in documents.neighbours(column)
        ]
    return [
        NeighbourLabel(sibling, labels.name(labels.column(sibling)), None)
        for sibling in _siblings(model, labels.ids[column])
    ]


def _siblings(model: Model | Ensemble, label: str) -> list[str]:
    """Return the most frequent labels below the same node."""
    match = tree_of(model, label)
    if match is None:
        return []
    owner, tree = match
    column = owner.labels.column(label)
    parent = tree.ancestors(column)[-2]
    below = tree.order[slice(*tree.offsets[-1][parent : parent + 2])]
    below = below[below != column]
    frequent = below[np.argsort(-owner.label_counts[below], kind="stable")[:_NEIGHBOURS]]
    return [owner.labels.ids[at] for at in frequent.tolist()]


def _beginning(text: str) -> str:
    if len(text) <= _EXAMPLE_CHARACTERS:
        return text
    return f"{text[: _EXAMPLE_CHARACTERS - 1]}…"


# Search

_BETWEEN = "\n"  # before and after every id, name and alias; no query contains it
_BLOCK = 1 << 16  # labels
_CANDIDATES = 500  # labels compared letter by letter with a misspelled one
_Columns = NDArray[np.int64]


class LabelSearch:
    """Searches all strings of all labels, joined to one case-folded string, with ``re``."""

    def __init__(self, labels: Labels, counts: NDArray[np.integer]) -> None:
        self._labels = labels
        self._counts = counts

    def find(self, query: str, limit: int) -> LabelsResponse:
        """Return labels that contain the query.

        Labels with a string that begins with it come first, then the more frequent ones.
        """
        if query.strip():
            columns = self._matching(query)
        else:
            columns = self._by_frequency
        matches = [self._match(int(column)) for column in columns[:limit]]
        return LabelsResponse(matches, len(columns))

    def resolve(self, label: str) -> str:
        """Return the id of a label given by id or name; 404 with the most similar label."""
        if label in self._labels:
            return label
        named = [column for column in self._whole(label) if self._labels.name(int(column)) == label]
        if len(named) == 1:
            return self._labels.ids[int(named[0])]
        if named:
            detail = f"{len(named)} labels have the name {label[:200]!r}; expected an id"
        else:
            detail = f"unknown label {label[:200]!r}"
            near = self._nearest(label)
            if near:
                detail += f"; did you mean {near!r}?"
        raise Refusal(404, "Unknown label", detail)

    def _match(self, column: int) -> FoundLabel:
        return FoundLabel(
            self._labels.ids[column], self._labels.name(column), int(self._counts[column])
        )

    def _matching(self, query: str) -> _Columns:
        """Return the columns of labels that contain the query, best first."""
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
        """Return the columns of labels with a string equal to this one, ignoring case."""
        pattern = re.escape(f"{_BETWEEN}{_folded(label)}{_BETWEEN}")
        hits = np.array([match.start() for match in re.finditer(pattern, self._text)], np.int64)
        return np.unique(np.searchsorted(self._starts, hits, "right") - 1)

    def _nearest(self, label: str) -> str | None:
        """Return the most similar id or name among those that contain its beginning."""
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
        # in blocks: ten million labels take a gigabyte as strings
        while block := list(islice(rows, _BLOCK)):
            label_texts = [
                _BETWEEN + _BETWEEN.join(map(_folded, filter(None, (at, name, *more))))
                for at, name, more in block
            ]
            texts.append("".join(label_texts))
            sizes.append(np.fromiter(map(len, label_texts), np.int64, len(label_texts)))
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
        return "".join([*texts, _BETWEEN]), ends[:-1]

    @property
    def _text(self) -> str:
        return self._parts[0]

    @property
    def _starts(self) -> _Columns:
        """Start of each label in the text: the separator before its first string."""
        return self._parts[1]


def _folded(text: str) -> str:
    return text.casefold().replace(_BETWEEN, " ")
