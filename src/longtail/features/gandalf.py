"""Gandalf: a label's own text is one more training document, whose labels are its neighbours in the
label graph.

What a label is called says what documents it belongs to, and with which others it goes; a rare
label has little else to learn from. Nothing changes in the model itself, so that any method can be
trained this way."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Gandalf
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels, name_and_text
from longtail.data.strings import Strings
from longtail.errors import UsageError

__all__ = [
    "Extended",
    "check_gandalf",
    "chosen_labels",
    "label_points",
    "real_documents",
    "soft_rows",
    "spoken_texts",
]

_BINS = 10  # of labels by frequency, each with the same number of pairs


@dataclass(frozen=True, eq=False)
class Extended(Dataset):
    """Documents with label points behind them."""

    n_real: int = 0  # documents before the label points

    def take(self, rows: NDArray[np.integer]) -> Dataset:
        """Return some documents; which of them are label points is not known any more."""
        return _plain(self).take(rows)


def real_documents(documents: Dataset) -> Dataset:
    """Return the documents without label points: what counts, propensities and the label graph are
    made of.
    """
    if not isinstance(documents, Extended):
        return documents
    return documents.take(np.arange(documents.n_real))


def _plain(documents: Dataset) -> Dataset:
    return Dataset(**{field.name: getattr(documents, field.name) for field in fields(Dataset)})


def label_points(
    documents: Dataset, graph: sparse.csr_array, settings: Gandalf, seed: int
) -> Extended:
    """Return the documents followed by one document for each chosen label, in the order of labels.

    ``graph`` is the normalised label graph of the documents, csr of shape (n_labels, n_labels).
    Ready-made features of a label point are the label's own."""
    check_gandalf(documents)
    labels = chosen_labels(documents, settings, seed)
    texts = documents.texts
    features = documents.features
    ids = documents.ids
    if features is not None and documents.label_features is not None:
        features = _below(features, documents.label_features[labels])
    if texts is not None:
        texts = _followed(texts, spoken_texts(documents.labels), labels)
    if ids is not None:
        ids = _followed(ids, documents.labels.ids, labels)
    more = replace(
        documents,
        label_matrix=_below(documents.label_matrix, soft_rows(graph, labels, settings.threshold)),
        texts=texts,
        features=features,
        ids=ids,
    )
    return Extended(**vars(more), n_real=len(documents))


def check_gandalf(documents: Dataset) -> None:
    """Refuse documents whose labels cannot be read the way they are."""
    if documents.dense is not None:
        problem = "found dense features of documents, which labels have none of"
        raise UsageError(f"gandalf: {problem}; leave out one of them")
    if documents.features is not None and documents.label_features is None:
        problem = "found ready-made features of documents, but none of labels"
        way_out = "give both (lbl_X_Xf.txt), or documents with text and --no-features"
        raise UsageError(f"gandalf: {problem}; {way_out}")
    if not _usable(documents).any():
        problem = "found no label with a word in its text, name or id"
        raise UsageError(f"gandalf: {problem}; give label texts with --labels")


def chosen_labels(documents: Dataset, settings: Gandalf, seed: int) -> NDArray[np.int64]:
    """Return the labels that become documents, rising; those of a smaller share are among those of
    a larger one.

    «tail» (C.2): bins of rising label frequency, with like numbers of pairs, are filled one after
    the other."""
    usable = np.flatnonzero(_usable(documents))
    by_chance = np.random.default_rng(seed).permutation(len(usable))
    order = by_chance
    if settings.sample == "tail":
        counts = documents.label_counts[usable]
        order = by_chance[np.argsort(_bins(counts)[by_chance], kind="stable")]
    wanted = max(round(settings.share * len(usable)), 1)
    chosen: NDArray[np.int64] = np.sort(usable[order[:wanted]])
    return chosen


def soft_rows(
    graph: sparse.csr_array, labels: NDArray[np.integer], threshold: float
) -> sparse.csr_array:
    """Return the targets of label points, (len(labels), n_labels): their rows of the graph from
    ``threshold`` (δ) on.

    A label's own place is 1.
    """
    rows = sparse.csr_array(graph)[labels].tocoo()
    kept = (rows.data >= threshold) & (rows.col != labels[rows.row]) & (rows.data > 0)
    here = np.arange(len(labels))
    values = np.concatenate([np.minimum(rows.data[kept], 1), np.ones(len(labels))]).astype(
        np.float32
    )
    places = np.concatenate([rows.row[kept], here]), np.concatenate([rows.col[kept], labels])
    matrix = sparse.csr_array((values, places), shape=(len(labels), graph.shape[1]))
    matrix.sort_indices()
    return matrix


def spoken_texts(labels: Labels) -> Strings:
    """Return each label in words: its name and its text, or its id where it has neither."""
    if labels.texts is None and labels.names is None:
        return labels.ids
    names = labels.names or [""] * len(labels)
    texts = labels.texts or [""] * len(labels)
    spoken = (name_and_text(name, text) for name, text in zip(names, texts, strict=True))
    return Strings.of(text or label for text, label in zip(spoken, labels.ids, strict=True))


def _usable(documents: Dataset) -> NDArray[np.bool_]:
    """Return which labels have a word, and where features are ready-made, a feature."""
    if documents.features is not None and documents.label_features is not None:
        usable: NDArray[np.bool_] = np.diff(documents.label_features.indptr) > 0
        return usable
    words = (any(map(str.isalnum, text)) for text in spoken_texts(documents.labels))
    return np.fromiter(words, bool, documents.n_labels)


def _bins(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin of each label, the rarest labels' first; a bin has labels of about the same
    total count.
    """
    order = np.argsort(counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    bins = np.empty(len(counts), np.int64)
    bins[order] = before * _BINS // max(counts.sum(), 1)
    # labels of one frequency are one bin: chance, not their number, says which of them come first
    last = np.zeros(counts.max(initial=0) + 1, np.int64)
    np.maximum.at(last, counts, bins)
    return last[counts]


def _below(first: sparse.csr_array, second: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array(sparse.vstack([first, second], format="csr"))


def _followed(column: Strings, more: Strings, rows: NDArray[np.int64]) -> Strings:
    """Return the strings of a column and, behind them, some of another."""
    mine = column.packed()
    added = more.take(rows).packed()
    offsets = np.concatenate([mine.offsets, added.offsets[1:] + mine.offsets[-1]])
    return Strings(np.concatenate([mine.arena, added.arena]), offsets)
