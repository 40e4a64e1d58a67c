"""What a dataset looks like: counts, the label-frequency curve, and what is wrong enough to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal
from unicodedata import is_normalized, normalize

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.data.fingerprints import string_hashes
from longtail.data.strings import Strings, blank
from longtail.data.word_boundaries import READ_CHARACTERS, are_many, hardly_split
from longtail.errors import printable

if TYPE_CHECKING:
    from longtail.data.dataset import Dataset

__all__ = ["Description", "Finding", "check", "check_before_training", "describe"]

_NO_LABEL = "no document has a label"
_OF_ONE = {
    "documents without a label": "document without a label",
    "labels without a document": "label without a document",
    "labels that every document has": "label that every document has",
    "document ids that stand more than once": "document id that stands more than once",
    "documents with empty text": "document with empty text",
    "texts that stand more than once": "text that stands more than once",
    "labels that stood twice in one record and were kept once": (
        "label that stood twice in one record, kept once"
    ),
    "unknown labels that were dropped": "unknown label that was dropped",
}

_LOOK_THE_SAME = (
    "labels that look like another one and differ in Unicode form (é as one or two code points); "
    "write all of them in the form NFC"
)
_DECOMPOSED = (
    "documents not in the Unicode form NFC (é as two code points), whose words differ from those "
    "in it; write all texts, also those to predict, in the form NFC"
)

Level = Literal["error", "warning", "note"]


class Description(msgspec.Struct, frozen=True):
    """Counts of a dataset; means are over all documents, and over the labels with at least one
    document.
    """

    documents: int
    labels: int
    labels_used: int  # with at least one document
    pairs: int  # (document, label)
    labels_per_document: float
    documents_per_label: float
    median_documents_per_label: float
    most_documents_per_label: int
    share_of_labels_with_1: float
    share_of_labels_with_at_most_5: float
    share_of_pairs_in_top_1_percent: float  # of labels, by frequency
    words_per_document: float | None  # split at white space; None without texts
    memory_mb: float
    # (rank of a label from 1, its documents) at log-spaced ranks
    frequency_curve: list[tuple[int, int]]
    feature_columns: int | None = None  # of ready-made sparse features; None without
    features_per_document: float | None = None


class Finding(msgspec.Struct, frozen=True):
    """One thing worth knowing, with up to five documents or labels as examples."""

    level: Level
    what: str
    count: int
    examples: list[str] = []

    @property
    def in_words(self) -> str:
        """The count with its noun, and the examples."""
        what = self.what
        if self.count == 1:
            what = _OF_ONE.get(what, what)
        counted = f"{self.count:,} {what}"
        if self.what == _NO_LABEL:
            counted = what
        if self.examples:
            return f"{counted}: {', '.join(map(printable, self.examples))}"
        return counted


def describe(dataset: Dataset) -> Description:
    """Count documents, labels and pairs, and take the label-frequency curve."""
    counts = np.sort(dataset.label_counts)[::-1]
    used = counts[counts > 0]
    top = max(1, round(len(used) * 0.01))
    some = max(1, len(used))
    median = 0.0
    most = 0
    if len(used):
        median = float(np.median(used))
        most = int(used[0])
    feature_columns = None
    features_per_document = None
    if dataset.features is not None:
        feature_columns = dataset.features.shape[1]
        features_per_document = dataset.features.nnz / max(1, len(dataset))
    return Description(
        documents=len(dataset),
        labels=dataset.n_labels,
        labels_used=len(used),
        pairs=int(used.sum()),
        labels_per_document=float(used.sum() / max(1, len(dataset))),
        documents_per_label=float(used.sum() / some),
        median_documents_per_label=median,
        most_documents_per_label=most,
        share_of_labels_with_1=float((used == 1).sum() / some),
        share_of_labels_with_at_most_5=float((used <= 5).sum() / some),
        share_of_pairs_in_top_1_percent=float(used[:top].sum() / max(1, used.sum())),
        words_per_document=_mean_words(dataset),
        memory_mb=dataset.nbytes / 1e6,
        frequency_curve=_curve(used),
        feature_columns=feature_columns,
        features_per_document=features_per_document,
    )


def _mean_words(dataset: Dataset) -> float | None:
    """Return the words per document; None without texts."""
    if dataset.texts is None:
        return None
    return sum(len(text.split()) for text in dataset.document_texts()) / max(1, len(dataset))


def _curve(falling: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (rank, documents) at no more than 50 ranks, evenly spaced on a log scale."""
    if not len(falling):
        return []
    ranks = np.unique(np.geomspace(1, len(falling), 50).round().astype(int))
    return [(int(rank), int(falling[rank - 1])) for rank in ranks]


def check(dataset: Dataset) -> list[Finding]:
    """Look for what spoils training or evaluation."""
    counts = dataset.label_counts
    sizes = np.diff(dataset.label_matrix.indptr)
    document = dataset.document_id
    label = dataset.labels.ids.__getitem__
    findings = [
        _finding("error", _NO_LABEL, [] if counts.any() else [0], document),
        _finding("warning", "documents without a label", _where(sizes == 0), document),
        _finding("warning", "labels without a document", _where(counts == 0), label),
        _finding("note", "labels that every document has", _where(counts == len(dataset)), label),
        _finding("warning", _LOOK_THE_SAME, _looking_the_same(dataset.labels.ids), str),
        _finding("warning", "document ids that stand more than once", _repeated(dataset.ids), str),
    ]
    if dataset.texts is not None:
        findings.append(
            _finding("warning", "documents with empty text", _where(blank(dataset.texts)), document)
        )
        findings += _hardly_split(dataset.texts)
        decomposed = [
            row for row, text in enumerate(dataset.texts) if not is_normalized("NFC", text)
        ]
        findings.append(_finding("warning", _DECOMPOSED, decomposed, document))
        findings.append(
            _finding("warning", "texts that stand more than once", _repeated(dataset.texts), _short)
        )
    kept_once = "labels that stood twice in one record and were kept once"
    findings.append(Finding("note", kept_once, dataset.merged_duplicates))
    findings.append(Finding("note", "unknown labels that were dropped", dataset.dropped_unknown))
    order = ("error", "warning", "note")
    return sorted((f for f in findings if f.count), key=lambda f: order.index(f.level))


def check_before_training(dataset: Dataset) -> list[Finding]:
    """Return the warnings of :func:`check` that are cheap to find also of millions of documents."""
    sizes = np.diff(dataset.label_matrix.indptr)
    document = dataset.document_id
    findings = [_finding("warning", "documents without a label", _where(sizes == 0), document)]
    if dataset.ids is not None and len(np.unique(string_hashes(dataset.ids))) < len(dataset):
        findings.append(
            _finding(
                "warning", "document ids that stand more than once", _repeated(dataset.ids), str
            )
        )
    if dataset.texts is not None and dataset.features is None:
        findings.append(
            _finding("warning", "documents with empty text", _where(blank(dataset.texts)), document)
        )
    return [finding for finding in findings if finding.count]


def _looking_the_same(ids: Strings) -> list[str]:
    """Return the labels whose composed Unicode form is that of an earlier label."""
    first: dict[str, str] = {}
    return [label for label in ids if first.setdefault(normalize("NFC", label), label) != label]


def _hardly_split(texts: Strings) -> list[Finding]:
    """Return the warning for texts of which the words that features are made of are too few."""
    rows = hardly_split(texts)
    if not are_many(len(rows), len(texts)):
        return []
    what = "documents with one word or none, or without spaces; read characters instead: "
    what += READ_CHARACTERS
    return [_finding("warning", what, rows, lambda row: _short(texts[row]))]


def _finding(
    level: Level, what: str, positions: Sequence[Any], show: Callable[[Any], str]
) -> Finding:
    return Finding(level, what, len(positions), [show(at) for at in positions[:5]])


def _where(mask: NDArray[np.bool_]) -> list[int]:
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions


def _repeated(strings: Strings | None) -> list[str]:
    """Return each string that stands more than once, the most frequent first."""
    times = Counter(strings or ())
    return [string for string, count in times.most_common() if count > 1]


def _short(text: str) -> str:
    if len(text) <= 60:
        return text
    return f"{text[:59]}…"
