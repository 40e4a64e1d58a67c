"""Related labels and example documents of a label."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.features.label_graph import neighbours
from longtail.models.ensemble_model import Ensemble
from longtail.models.model import Model
from longtail.server.answers import Example, NeighbourLabel
from longtail.server.label_path import tree_of

__all__ = ["LabelDocuments", "related", "shortened"]

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
