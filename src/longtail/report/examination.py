"""Details of an evaluation: thresholds, labels, worst documents, label tree, stages of training."""

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
    """A row of the table of labels: frequencies, and metrics at the best threshold."""

    label: str
    in_train: int | None  # training documents; None: unknown
    in_test: int  # test documents
    predicted: int  # test documents for which it was predicted
    precision: float | None  # None: never predicted
    recall: float | None  # None: in no test document
    f1: float


class WorstDocument(NamedTuple):
    """A document with its expected and predicted labels."""

    id: str
    text: str | None
    expected: tuple[tuple[str, bool, bool], ...]  # label, whether predicted, whether known
    predicted: tuple[tuple[str, float, bool], ...]  # label, score, whether correct


class LevelBalance(NamedTuple):
    """The children of the nodes of one level of the label tree."""

    nodes: int
    least: int
    median: float
    most: int


@dataclass(frozen=True)
class Details:
    """Content of a report besides the metrics; ``left_out`` explains missing sections."""

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
    """Collect the details of predictions.

    Args:
        ranked: predictions (n, L) over the labels of ``test``.
        test: the test documents.
        counts: training documents per label (L,).
        known: number of labels that can be predicted, the first ones; None: all.
    """
    curve = precision_recall(ranked, test.label_matrix)
    left_out = {
        "Size, label tree, beam and training of the model": (
            "only predictions are known, not the model."
        )
    }
    labels: tuple[LabelRow, ...] = ()
    if curve is None:
        left_out["Thresholds and labels"] = "nothing was predicted for documents with labels."
    else:
        labels = tuple(_label_rows(at_least(ranked, curve.threshold), test, counts))
    facts = _data_facts(test, known)
    if known is None:
        known = test.n_labels
    rows = worst_documents(ranked, test.label_matrix, _WORST_K, _WORST)
    worst = tuple(_worst(row, ranked, test, known) for row in rows)
    return Details(curve, labels, worst, facts=facts, left_out=left_out)


def examine_model(
    model: RankingModel,
    ranked: sparse.csr_array,
    test: Dataset,
    folder: Path | None = None,
    seed: int = 0,
    timings: bool = False,
) -> Details:
    """Collect the details of a model and its predictions.

    Args:
        model: the model.
        ranked: its predictions (n, L) for ``test``.
        test: documents whose labels begin with the model's.
        folder: the model folder.
        seed: seed of the sample that is ranked with other beam sizes.
        timings: whether to measure the time of each beam size.
    """
    counts = np.zeros(test.n_labels, np.int64)
    counts[: len(model.label_counts)] = model.label_counts
    details = examine(ranked, test, counts, len(model.labels))
    left_out = {
        name: reason for name, reason in details.left_out.items() if name.startswith("Thresholds")
    }
    beams, n_timed = _beams(model, test, seed, timings, left_out)
    levels, leaf_sizes = _balance(model, left_out)
    stages: tuple[StageTime, ...] = ()
    if folder is not None:
        stages = tuple(read_stage_times(run_log_path(folder)))
    if not stages:
        left_out["Time and memory of training"] = (
            "there is no log of the training beside the model folder."
        )
    facts = {**_model_facts(model, folder), **details.facts}
    return Details(
        details.curve,
        details.labels,
        details.worst,
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
    predictions: sparse.csr_array, test: Dataset, counts: NDArray[np.int64] | None
) -> list[LabelRow]:
    """Return the labels that are true or predicted for a document, the most frequent ones first."""
    most = int(max(np.diff(predictions.indptr).max(initial=1), 1))
    frequencies = counts
    if frequencies is None:
        frequencies = np.zeros(test.n_labels, np.int64)
    values = per_label(predictions, test.label_matrix, most, frequencies)
    rows = np.flatnonzero(values.test_count + values.predicted_count)
    rows = rows[np.lexsort((rows, -values.predicted_count[rows], -values.test_count[rows]))]
    result = []
    for row in rows.tolist():
        in_train = precision = recall = None
        if counts is not None:
            in_train = int(counts[row])
        if values.predicted_count[row]:
            precision = float(values.precision[row])
        if values.test_count[row]:
            recall = float(values.recall[row])
        in_test = int(values.test_count[row])
        predicted = int(values.predicted_count[row])
        name = _name_and_id(test, row)
        f1 = float(values.f1[row])
        result.append(LabelRow(name, in_train, in_test, predicted, precision, recall, f1))
    return result


def _name_and_id(test: Dataset, column: int) -> str:
    name = test.labels.name(column)
    label = test.labels.ids[column]
    if name == label:
        return label
    return f"{name} ({label})"


def _worst(row: int, ranked: sparse.csr_array, test: Dataset, known: int) -> WorstDocument:
    start, end = ranked.indptr[row : row + 2]
    best = slice(start, min(end, start + _WORST_K))
    columns = ranked.indices[best].tolist()
    scores = ranked.data[best].tolist()
    true = test.label_matrix.indices[slice(*test.label_matrix.indptr[row : row + 2])].tolist()
    text = None
    if test.texts is not None:
        text = test.texts[row]
        if len(text) > _EXCERPT:
            text = f"{text[:_EXCERPT].rstrip()}…"
    expected = tuple(
        (_name_and_id(test, column), column in columns, column < known) for column in true
    )
    predicted = tuple(
        (_name_and_id(test, column), score, column in true)
        for column, score in zip(columns, scores, strict=True)
    )
    return WorstDocument(test.document_id(row), text, expected, predicted)


def _beams(
    model: RankingModel, test: Dataset, seed: int, timings: bool, left_out: dict[str, str]
) -> tuple[tuple[BeamPoint, ...], int]:
    if not beam_matters(model):
        left_out["Beam size"] = "the model has no linear classifiers on a label tree."
        return (), 0
    sample_documents = timing_sample if timings else beam_sample
    sample = sample_documents(model, test, seed)
    return tuple(beam_points(model, sample, timings)), len(sample)


def _balance(
    model: RankingModel, left_out: dict[str, str]
) -> tuple[tuple[LevelBalance, ...], tuple[int, ...]]:
    tree = model.tree
    if tree is None or tree.n_levels == 1:
        left_out["Label tree"] = "the model has no label tree."
        if model.single is None:
            left_out["Label tree"] = "each member has its own tree, or none."
        return (), ()
    children = [np.diff(offsets) for offsets in tree.offsets]
    children.insert(0, np.array([tree.widths[0]]))  # of the root
    levels = [
        LevelBalance(len(sizes), int(sizes.min()), float(np.median(sizes)), int(sizes.max()))
        for sizes in children
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
    labelled = np.count_nonzero(np.diff(matrix.indptr))
    per_document = matrix.nnz / max(len(test), 1)
    rows = {
        "test documents": f"{len(test):,}, {labelled:,} of them with labels",
        "test labels": f"{np.count_nonzero(counts):,}; {per_document:.2f} per document",
    }
    if known is not None and known < len(counts):
        new = counts[known:]
        rows["new to the model"] = (
            f"{np.count_nonzero(new):,} labels, {new.sum() / max(matrix.nnz, 1):.1%} of the pairs"
        )
    return rows
