"""What a dataset holds, as plain Python values that can be compared."""

from __future__ import annotations

import numpy as np

from longtail.errors import DataError


def content(dataset):
    """Everything a dataset read from records holds, as plain Python values."""
    matrix = dataset.label_matrix
    assert matrix.shape == (len(dataset), dataset.n_labels)
    assert matrix.dtype == np.float32
    return {
        "texts": list(dataset.texts),
        "ids": None if dataset.ids is None else list(dataset.ids),
        "labels": list(dataset.labels),
        "rows": [list(zip(*row, strict=True)) for row in zip(*halves(matrix), strict=True)],
        "merged": dataset.merged_duplicates,
        "dropped": dataset.dropped_unknown,
    }


def halves(matrix):
    cuts = matrix.indptr[1:-1]
    return (
        [part.tolist() for part in np.split(matrix.indices, cuts)],
        [part.tolist() for part in np.split(matrix.data, cuts)],
    )


def outcome(call):
    """What ``call`` gives, or the text of its DataError."""
    try:
        return content(call())
    except DataError as error:
        return str(error)
