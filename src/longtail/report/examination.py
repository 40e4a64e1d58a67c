"""A closer look than metrics give: by threshold, label by label, the worst documents, tree, stages
of training.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.data.dataset import Dataset
from longtail.methods import METHODS
from longtail.metrics import per_label
from longtail.metrics.analysis import PrecisionRecall, at_least, precision_recall, worst_documents
from longtail.models.model_card import card_rows
from longtail.report.speed import BeamPoint, beam_matters, beam_points, beam_sample, timing_sample
from longtail.run_log import StageTime, read_stage_times, run_log_path

if TYPE_CHECKING:
    from longtail.models.ranking_model import RankingModel

__all__ = [
    "Details",
    "LabelRow",
    "LevelBalance",
    "WorstDocument",
    "examine",
    "examine_model",
    "folder_bytes",
]

_WORST = 20
_WORST_K = 5
_EXCERPT = 400  # characters of a text


class LabelRow(NamedTuple):
    """A label: documents in training (None: not known) and in the test data, how often it was said,
    and how well.
    """

    label: str
    in_train: int | None
    in_test: int
    said: int
    precision: float | None  # None: it was never said
    recall: float | None  # None: it is in no test document
    f1: float


class WorstDocument(NamedTuple):
    """What was expected, with whether it was said and known; what was said, with its score and
    whether it is right.
    """

    id: str
    text: str | None
    expected: tuple[tuple[str, bool, bool], ...]
    said: tuple[tuple[str, float, bool], ...]


class LevelBalance(NamedTuple):
    """The children of the nodes of one level of the label tree."""

    nodes: int
    least: int
    median: float
    most: int


@dataclass(frozen=True)
class Details:
    """What a report shows beside the metrics; ``left_out`` says why the rest of it is not there."""

    curve: PrecisionRecall | None = None
    labels: tuple[LabelRow, ...] = ()
    worst: tuple[WorstDocument, ...] = ()
    beams: tuple[BeamPoint, ...] = ()
    n_timed: int = 0
    levels: tuple[LevelBalance, ...] = ()
    leaf_sizes: tuple[int, ...] = ()  # labels of each node of the last level but one
    stages: tuple[StageTime, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def examine(
    ranked: sparse.csr_array,
    test: Dataset,
    counts: NDArray[np.int64] | None = None,
    known: int | None = None,
) -> Details:
    """Look closely at the predictions (n, L) for ``test``, over whose labels they are.

    ``counts`` are the training documents of each label; the first ``known`` labels are those that
    can be said."""
    curve = precision_recall(ranked, test.label_matrix)
    left_out = {
        "How large the model is, its tree, beam and training": "only predictions are known, not the model.",
    }
    labels: tuple[LabelRow, ...] = ()
    if curve is None:
        left_out["Thresholds and labels"] = "nothing was predicted for documents with labels."
    else:
        labels = tuple(_label_rows(at_least(ranked, curve.threshold), test, counts))
    worst = tuple(
        _worst(row, ranked, test, test.n_labels if known is None else known)
        for row in worst_documents(ranked, test.label_matrix, _WORST_K, _WORST)
    )
    return Details(curve, labels, worst, facts=_data_facts(test, known), left_out=left_out)


def examine_model(
    model: RankingModel,
    ranked: sparse.csr_array,
    test: Dataset,
    folder: Path | None = None,
    seed: int = 0,
    timings: bool = False,
) -> Details:
    """Look closely at a model and its predictions.

    Args:
        model: The model.
        ranked: Its predictions (n, L) for ``test``.
        test: Documents whose labels begin with the model's.
        folder: The model's folder.
        seed: Of the documents that are ranked with other beam sizes.
        timings: Whether to measure how long that takes, which differs each time.
    """
    counts = np.zeros(test.n_labels, np.int64)
    counts[: len(model.label_counts)] = model.label_counts
    seen = examine(ranked, test, counts, len(model.labels))
    left_out = {name: why for name, why in seen.left_out.items() if name.startswith("Thresholds")}
    beams, n_timed = _beams(model, test, seed, timings, left_out)
    levels, leaf_sizes = _balance(model, left_out)
    stages = () if folder is None else tuple(read_stage_times(run_log_path(folder)))
    if not stages:
        left_out["Time and memory of training"] = (
            "there is no log of the training beside the model folder."
        )
    facts = {**_model_facts(model, folder), **seen.facts}
    return Details(
        seen.curve,
        seen.labels,
        seen.worst,
        beams,
        n_timed,
        levels,
        leaf_sizes,
        stages,
        facts,
        left_out,
    )


def folder_bytes(folder: Path) -> int:
    """Return the size of all files of a model folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _label_rows(
    given: sparse.csr_array, test: Dataset, counts: NDArray[np.int64] | None
) -> list[LabelRow]:
    """Return the labels that are true or were said somewhere, those of most test documents first."""
    most = int(max(np.diff(given.indptr).max(initial=1), 1))
    known = np.zeros(test.n_labels, np.int64) if counts is None else counts
    found = per_label(given, test.label_matrix, most, known)
    rows = np.flatnonzero(found.test_count + found.predicted_count)
    rows = rows[np.lexsort((rows, -found.predicted_count[rows], -found.test_count[rows]))]
    return [
        LabelRow(
            _shown(test, int(row)),
            None if counts is None else int(counts[row]),
            int(found.test_count[row]),
            int(found.predicted_count[row]),
            float(found.precision[row]) if found.predicted_count[row] else None,
            float(found.recall[row]) if found.test_count[row] else None,
            float(found.f1[row]),
        )
        for row in rows
    ]


def _shown(test: Dataset, column: int) -> str:
    name = test.labels.name(column)
    own = test.labels.ids[column]
    return own if name == own else f"{name} ({own})"


def _worst(row: int, ranked: sparse.csr_array, test: Dataset, known: int) -> WorstDocument:
    start, end = ranked.indptr[row : row + 2]
    best = slice(start, min(end, start + _WORST_K))
    said = ranked.indices[best].tolist()
    scores = ranked.data[best].tolist()
    true = test.label_matrix.indices[slice(*test.label_matrix.indptr[row : row + 2])].tolist()
    text = None if test.texts is None else test.texts[row]
    if text is not None and len(text) > _EXCERPT:
        text = f"{text[:_EXCERPT].rstrip()}…"
    return WorstDocument(
        test.document_id(row),
        text,
        tuple((_shown(test, column), column in said, column < known) for column in true),
        tuple((_shown(test, c), score, c in true) for c, score in zip(said, scores, strict=True)),
    )


def _beams(
    model: RankingModel, test: Dataset, seed: int, timings: bool, left_out: dict[str, str]
) -> tuple[tuple[BeamPoint, ...], int]:
    if not beam_matters(model):
        left_out["Beam size"] = "no linear classifiers on a label tree take part in the ranking."
        return (), 0
    sample = timing_sample(model, test, seed) if timings else beam_sample(model, test, seed)
    return tuple(beam_points(model, sample, timings)), len(sample)


def _balance(
    model: RankingModel, left_out: dict[str, str]
) -> tuple[tuple[LevelBalance, ...], tuple[int, ...]]:
    tree = model.tree
    if tree is None or tree.n_levels == 1:
        left_out["Label tree"] = "the model has no label tree."
        if model.single is None:
            left_out["Label tree"] = "each member has its own, or none."
        return (), ()
    children = [np.diff(offsets) for offsets in tree.offsets]
    children.insert(0, np.array([tree.widths[0]]))  # of the root
    levels = [
        LevelBalance(len(own), int(own.min()), float(np.median(own)), int(own.max()))
        for own in children
    ]
    return tuple(levels), tuple(children[-1].tolist())


def _model_facts(model: RankingModel, folder: Path | None) -> dict[str, str]:
    method = model.config.method
    rows = {"method": method}
    if method in METHODS:
        rows["method"] = f"{method}: {METHODS[method].what}"
    if model.single is not None:
        for name, value in card_rows(model.single).items():
            rows["training documents" if name == "documents" else name] = value
    else:
        members = [member.config.method for member, _ in model.weighted_members()]
        rows["members"] = ", ".join(members)
        rows["labels"] = f"{len(model.labels):,}"
    if folder is not None:
        rows["size of the folder"] = f"{folder_bytes(folder) / 1e6:,.1f} MB"
    return rows


def _data_facts(test: Dataset, known: int | None) -> dict[str, str]:
    matrix = test.label_matrix
    counts = test.label_counts
    rows = {
        "test documents": f"{len(test):,}, {np.count_nonzero(np.diff(matrix.indptr)):,} of them with labels",
        "test labels": f"{np.count_nonzero(counts):,}; {matrix.nnz / max(len(test), 1):.2f} a document",
    }
    if known is not None and known < len(counts):
        new = counts[known:]
        rows["new to the model"] = (
            f"{np.count_nonzero(new):,} labels, {new.sum() / max(matrix.nnz, 1):.1%} of the pairs"
        )
    return rows
