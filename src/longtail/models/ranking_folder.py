"""What the folder of every trained model holds, be it one of a method or an ensemble: labels, and
what scores mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.data.fingerprints import Fingerprints
from longtail.data.label_files import read_labels, write_labels
from longtail.data.labels import Labels
from longtail.metrics import Evaluation
from longtail.models.ranking_model import Facts, RankingModel
from longtail.search.calibration import Calibration
from longtail.store import Folder, FolderWriter
from longtail.store.tensors import check_kinds

__all__ = ["RankingParts", "read_parts", "write_parts"]

_FACTS = "training.json"
_LABELS = "labels.jsonl"
_COUNTS = "label_counts.safetensors"
_CALIBRATION = "calibration.safetensors"
_METRICS = "metrics.json"
_FINGERPRINTS = "fingerprints.safetensors"


class RankingParts(NamedTuple):
    """The fields that all trained models share, but for the settings."""

    labels: Labels
    label_counts: NDArray[np.int64]
    facts: Facts
    calibration: Calibration | None
    metrics: Evaluation | None
    fingerprints: Fingerprints | None


def write_parts(model: RankingModel, folder: FolderWriter) -> None:
    """Write what every trained model has."""
    folder.write_json(_FACTS, model.facts)
    write_labels(model.labels, folder.path(_LABELS))
    folder.write_arrays(_COUNTS, {"counts": model.label_counts})
    if model.calibration is not None:
        folder.write_arrays(_CALIBRATION, model.calibration.to_arrays())
    if model.metrics is not None:
        folder.write_json(_METRICS, model.metrics)
    if model.fingerprints is not None:
        own = model.fingerprints
        folder.write_arrays(
            _FINGERPRINTS, {"hashes": own.hashes, "complete": np.array([own.complete], np.uint8)}
        )


def read_parts(folder: Folder) -> RankingParts:
    """Return what :func:`write_parts` wrote, checked."""
    folder.view(_LABELS)  # which says so where there is none
    labels = read_labels(folder.path(_LABELS))
    calibrated = _CALIBRATION in folder.files
    return RankingParts(
        labels,
        _label_counts(folder, len(labels)),
        folder.read_json(_FACTS, Facts),
        Calibration.from_arrays(folder.arrays(_CALIBRATION)) if calibrated else None,
        folder.read_json(_METRICS, Evaluation) if _METRICS in folder.files else None,
        _fingerprints(folder) if _FINGERPRINTS in folder.files else None,
    )


def _fingerprints(folder: Folder) -> Fingerprints:
    arrays = folder.arrays(_FINGERPRINTS)
    check_kinds(arrays, {"hashes": "u", "complete": "u"})
    hashes = arrays["hashes"]
    complete = arrays["complete"]
    if hashes.dtype != np.uint64 or len(complete) != 1:
        raise ValueError(
            f"fingerprints: found {hashes.dtype} and {len(complete)} marks; expected uint64 and 1 mark"
        )
    if (hashes[1:] <= hashes[:-1]).any():
        raise ValueError("fingerprints: found hashes in another order; expected rising ones")
    return Fingerprints(hashes, bool(complete[0]))


def _label_counts(folder: Folder, n_labels: int) -> NDArray[np.int64]:
    arrays = folder.arrays(_COUNTS)
    check_kinds(arrays, {"counts": "i"})
    if len(arrays["counts"]) != n_labels:
        raise ValueError(f"label counts of {len(arrays['counts'])} labels beside {n_labels} labels")
    if (arrays["counts"] < 0).any():
        raise ValueError("label counts below 0")
    return np.array(arrays["counts"], np.int64)
