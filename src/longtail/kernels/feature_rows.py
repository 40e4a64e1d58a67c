"""Features and labels of documents as kernels read them."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["FeatureRows", "Incidence"]


class FeatureRows(NamedTuple):
    """A sparse block in CSR and a dense block, with a row per document in each.

    Where kernels count columns through both blocks, those of the dense block come first.
    """

    pointers: Any  # (n + 1,) int64
    columns: Any  # int32, rising in each row, counted in the sparse block
    values: Any  # float32
    dense: Any  # (n, e) float32
    n_columns: int  # of the sparse block


class Incidence(NamedTuple):
    """The pairs of documents and labels, by label and by document."""

    label_pointers: Any  # (n_labels + 1,) int64
    label_documents: Any  # int32, the documents of each label
    document_pointers: Any  # (n + 1,) int64
    document_labels: Any  # int32, the labels of each document
