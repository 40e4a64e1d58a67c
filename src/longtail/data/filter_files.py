"""Filter files of label-feature sets: which one counts for some test data, and its pairs by the
columns of these.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.data.source import Source
from longtail.data.xmc_bow import read_filter
from longtail.errors import UsageError

__all__ = ["AUTO", "filter_pairs", "find_filter"]

log = logging.getLogger("longtail")

AUTO = "auto"  # the filter file that lies beside the test data, if there is one
_NAMES = {
    "test": ("filter_labels_test.txt", "filter_labels.txt"),
    "train": ("filter_labels_train.txt",),
}


def find_filter(mask: Path | str | None, documents: Dataset) -> Path | None:
    """Return the filter file that predictions for ``documents`` are measured with.

    Args:
        mask: A filter file; "auto" for the one that lies beside the files of the documents; None
        for no filter.
        documents: What is measured on.
    """
    if mask is None:
        return None
    if not isinstance(mask, str | Path):
        raise UsageError(
            f"mask: found {type(mask).__name__}; "
            f"expected the path of a filter file, {AUTO!r}, or None"
        )
    if str(mask) != AUTO:
        return Path(mask)
    source = documents.source
    file = _file_beside(source)
    if source is None or file is None:
        return None
    if source.labels is None:
        reason = "this format has labels by name, and the filter by number"
    elif not source.whole:
        reason = f"these are not all documents of {source.path.name}, in its order"
    else:
        return file
    log.warning("%s: not used, as %s; give the file to use it", file, reason)
    return None


def _file_beside(source: Source | None) -> Path | None:
    if source is None:
        return None
    names = _NAMES.get(source.split, ())
    files = (source.folder / f"{name}{end}" for name in names for end in ("", ".gz", ".zst"))
    return next((file for file in files if file.is_file()), None)


def filter_pairs(path: Path | str, documents: Dataset, n_columns: int) -> NDArray[np.int64]:
    """Return the (document, column) pairs of a filter file, of shape (m, 2).

    A number of a label is its place in the files of the documents, where these number labels, else
    its column.

    Args:
        path: The filter file.
        documents: What is measured on; their labels are the first columns.
        n_columns: All columns of the predictions.
    """
    if documents.source is None or documents.source.labels is None:
        return read_filter(path, len(documents), n_columns)
    numbered = documents.source.labels
    pairs = read_filter(path, len(documents), len(numbered))
    if numbered is documents.labels:
        return pairs
    known = documents.labels.columns
    columns = np.fromiter((known.get(label, -1) for label in numbered.ids), np.int64, len(numbered))
    renumbered = np.stack([pairs[:, 0], columns[pairs[:, 1]]], axis=1)
    return renumbered[renumbered[:, 1] >= 0]
