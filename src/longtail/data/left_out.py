"""Counts of what a format cannot hold, logged once for each file written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from longtail.data.dataset import Dataset

__all__ = ["IN_LABEL_FILE", "count_left_out", "log_left_out", "warn_left_out"]

# which is written apart
IN_LABEL_FILE = ("label names", "label texts", "label uris", "lists of label aliases")
log = logging.getLogger("longtail")


def log_left_out(path: Path | str, counts: Mapping[str, int]) -> None:
    """Log, once for a file, how many of each kind of thing the format could not hold."""
    lost = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if lost:
        log.warning("%s: changed or left out, as this format cannot hold it: %s", path, lost)


def warn_left_out(dataset: Dataset, path: Path | str, *held: str) -> None:
    """Warn, once, of what the dataset has and a format that holds only ``held`` has not."""
    log_left_out(path, count_left_out(dataset, *held))


def count_left_out(dataset: Dataset, *held: str) -> dict[str, int]:
    """Return how many there are of each kind of thing that is not ``held``."""
    labels = dataset.labels
    graded = int((dataset.label_matrix.data != 1).sum())
    counts = {
        name: len(part)
        for name, part in (("document ids", dataset.ids), ("texts", dataset.texts))
        if part
    }
    matrices = {
        "rows of features": dataset.features,
        "rows of label features": dataset.label_features,
    }
    counts |= {name: part.shape[0] for name, part in matrices.items() if part is not None}
    counts |= {
        f"label {field}": len(part)
        for field in ("names", "texts", "uris")
        if (part := getattr(labels, field))
    }
    counts |= {
        "lists of label aliases": len(labels.aliases or ()),
        "relevances other than 1": graded,
    }
    return {name: count for name, count in counts.items() if name not in held}
