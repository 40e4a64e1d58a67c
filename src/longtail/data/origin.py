"""What was read of a dataset and from which files: one line of the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from scipy import sparse

from longtail.data.dataset import Dataset

__all__ = ["features_note", "log_origin"]

log = logging.getLogger("longtail")


def features_note(name: str, features: sparse.csr_array, headerless: bool = False) -> str:
    """Return a note on features of a file; without a header, also which numbers occur."""
    note = f"features of {name}: {features.shape[1]:,} columns"
    if not headerless or not features.nnz:
        return note
    return f"{note}, numbers from {features.indices.min():,} to {features.indices.max():,}"


def log_origin(
    path: Path | str,
    format_name: str,
    dataset: Dataset,
    notes: Sequence[str],
    others: Sequence[str] = (),
) -> None:
    """Log what was read of a folder of several files.

    Args:
        path: The folder or file.
        format_name: The format that it was read as.
        dataset: What was read.
        notes: What the reader says of the files that it chose.
        others: Formats of which the folder holds files too, which were not read.
    """
    noted_features = any(note.startswith("features ") for note in notes)
    facts = []
    if dataset.texts is not None:
        facts.append("texts")
    if dataset.label_matrix.shape[1]:
        facts.append("labels")
    if dataset.features is not None and not noted_features:
        facts.append(f"features: {dataset.features.shape[1]:,} columns")
    if dataset.label_features is not None:
        facts.append("label features")
    name = Path(path).resolve().name
    log.info("%s: read as %s: %s", name, format_name, ", ".join([*facts, *notes]))
    if others:
        listed = ", ".join(others)
        log.info(
            "%s: files of %s are there too and were not read; choose with --format", name, listed
        )
