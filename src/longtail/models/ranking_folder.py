"""Files in the folders of models and of ensembles alike: labels, calibration, metrics."""

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
    """The fields that all trained models have in common, except the settings."""

    labels: Labels
    label_counts: NDArray[np.int64]
    facts: Facts
    calibration: Calibration | None
    metrics: Evaluation | None
    fingerprints: Fingerprints | None


def write_parts(model: RankingModel, folder: FolderWriter) -> None:
    """Write the files that every trained model has."""
    folder.write_json(_FACTS, model.facts)
    write_labels(model.labels, folder.path(_LABELS))
    folder.write_arrays(_COUNTS, {"counts": model.label_counts})
    if model.calibration is not None:
        folder.write_arrays(_CALIBRATION, model.calibration.to_arrays())
    if model.metrics is not None:
        folder.write_json(_METRICS, model.metrics)
    if model.fingerprints is not None:
        hashes = model.fingerprints.hashes
        complete = np.array([model.fingerprints.complete], np.uint8)
        folder.write_arrays(_FINGERPRINTS, {"hashes": hashes, "complete": complete})


def read_parts(folder: Folder) -> RankingParts:
    """Return what :func:`write_parts` wrote, checked."""
    folder.view(_LABELS)  # refuses a folder without labels
    labels = read_labels(folder.path(_LABELS))
    return RankingParts(
        labels,
        _label_counts(folder, len(labels)),
        folder.read_json(_FACTS, Facts),
        _calibration(folder),
        _metrics(folder),
        _fingerprints(folder),
    )


def _calibration(folder: Folder) -> Calibration | None:
    if _CALIBRATION not in folder.files:
        return None
    return Calibration.from_arrays(folder.arrays(_CALIBRATION))


def _metrics(folder: Folder) -> Evaluation | None:
    if _METRICS not in folder.files:
        return None
    return folder.read_json(_METRICS, Evaluation)


def _fingerprints(folder: Folder) -> Fingerprints | None:
    if _FINGERPRINTS not in folder.files:
        return None
    arrays = folder.arrays(_FINGERPRINTS)
    check_kinds(arrays, {"hashes": "u", "complete": "u"})
    hashes = arrays["hashes"]
    complete = arrays["complete"]
    if hashes.dtype != np.uint64 or len(complete) != 1:
        raise ValueError(
            f"fingerprints: found {hashes.dtype} and {len(complete)} marks; "
            "expected uint64 and 1 mark"
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
