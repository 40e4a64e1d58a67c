"""The report of an evaluation: of a model, or of a file of predictions from any system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.filter_files import AUTO, filter_pairs, find_filter
from longtail.evaluation import Measured, evaluate_model, evaluate_predictions
from longtail.metrics.analysis import unmasked
from longtail.pipeline import predict
from longtail.report import sections
from longtail.report.examination import Details, examine, examine_model
from longtail.report.page import Section, check_report_path, percent, tiles, write_page
from longtail.report.reliability import reliability_section
from longtail.search.predictions import read_predictions

if TYPE_CHECKING:
    from scipy import sparse

    from longtail.models.ranking_model import RankingModel

__all__ = ["over_all", "report_on_model", "report_on_predictions", "wide_ranking", "write_report"]

_RANKED = 50  # labels per document for the curve over thresholds, if they fit into _ENTRIES
_ENTRIES = 50_000_000  # predictions kept in memory, at most


def report_on_model(
    model: RankingModel,
    test: Dataset,
    path: Path | str,
    title: str,
    *,
    folder: Path | None = None,
    timings: bool = False,
    **options: Any,
) -> Measured:
    """Evaluate a model and write its report.

    Documents are ranked once for metrics and details, and a sample again with other beam sizes.

    Args:
        model: the model.
        test: test documents with labels.
        path: file of the report, NAME.html.
        title: title of the page.
        folder: the model folder, whose size and training log are shown.
        timings: measure the time of each beam size; without, the same model and data give the
            same bytes.
        options: those of :func:`evaluate_model`: ``ks``, ``beam_size``, ``mask``, ``seed`` and so
            on.
    """
    check_report_path(path)
    options["mask"] = mask = find_filter(options.get("mask", AUTO), test)
    ranked = wide_ranking(model, test, options.get("ks", (1, 3, 5)), options.get("beam_size"))
    measured = evaluate_model(model, test, ranked=ranked, **options)
    test = test.with_labels(model.labels, unknown="add")
    predictions = over_all(ranked, test, mask)
    seed = options.get("seed", 0)
    details = examine_model(model, predictions, test, folder, seed, timings)
    write_report(measured, path, title, details)
    return measured


def report_on_predictions(
    predictions: Path | str,
    test: Dataset,
    train: Dataset | None,
    path: Path | str,
    title: str,
    *,
    mask: Path | str | None = AUTO,
    **options: Any,
) -> Measured:
    """Evaluate a file of predictions and write its report.

    Args:
        predictions: file of predictions.
        test: test documents with labels.
        train: training documents, for label frequencies; None: unknown.
        path: file of the report, NAME.html.
        title: title of the page.
        mask: filter file of pairs that are not counted.
        options: those of :func:`evaluate_predictions`.
    """
    check_report_path(path)
    mask = find_filter(mask, test)
    ranked = read_predictions(predictions, test.labels, test.ids, len(test))
    measured = evaluate_predictions(ranked, test, train, mask=mask, **options)
    test = test.with_labels(ranked.labels, unknown="add")
    counts = None
    if train is not None:
        counts = train.with_labels(test.labels, unknown="drop").label_counts
    details = examine(over_all(ranked.matrix, test, mask), test, counts)
    write_report(measured, path, title, details)
    return measured


def wide_ranking(
    model: RankingModel, test: Dataset, ks: tuple[int, ...], beam_size: int | None = None
) -> sparse.csr_array:
    """Rank enough labels per document for the metrics at ``ks`` and the curve over thresholds."""
    room = max(_ENTRIES // max(len(test), 1), 10)
    k = max(*ks, min(_RANKED, room))
    return predict(model, test, k, beam_size=beam_size).matrix


def over_all(ranked: sparse.csr_array, test: Dataset, mask: Path | None) -> sparse.csr_array:
    """Return predictions over all labels of the test data, without the pairs of a filter file."""
    ranked = csr_of(ranked.data, ranked.indices, ranked.indptr, test.n_labels)
    if mask is None:
        return ranked
    return unmasked(ranked, filter_pairs(mask, test, test.n_labels))


def write_report(
    measured: Measured, path: Path | str, title: str, details: Details | None = None
) -> None:
    """Write the page, with a section per known measurement; the same ones give the same bytes."""
    page: list[Section] = [sections.metric_section(measured.evaluation)]
    if details is not None and details.curve is not None:
        page.append(sections.curve_section(details.curve))
    if measured.by_frequency is not None:
        page.append(sections.frequency_section(measured.by_frequency))
    if measured.reliability:
        page.append(reliability_section(measured.reliability))
    top = []
    if details is not None:
        page += _detail_sections(details, measured)
        top.append(_tiles(measured))
    write_page(path, title, top, page)


def _detail_sections(details: Details, measured: Measured) -> list[Section]:
    """Return the sections after the metrics, the last one with the reasons for missing sections."""
    left_out = dict(details.left_out)
    if measured.by_frequency is None:
        left_out["Frequent and rare labels"] = "the training data is not known; give --train."
    if not measured.reliability:
        left_out["Reliability of the probabilities"] = "the scores are not probabilities."
    result = []
    if details.curve is not None:
        result.append(sections.label_section(details.labels, details.curve))
    if details.worst:
        result.append(sections.worst_section(details.worst))
    if details.beams:
        result.append(sections.beam_section(details.beams, details.n_timed))
    if details.levels:
        result.append(sections.tree_section(details))
    if details.stages:
        result.append(sections.stage_section(details))
    result.append(sections.fact_section(details.facts))
    if left_out:
        result.append(sections.left_out_section(left_out))
    return result


def _tiles(measured: Measured) -> str:
    evaluation = measured.evaluation
    first = evaluation.ks[0]
    last = evaluation.ks[-1]
    names = dict.fromkeys([f"P@{first}", f"P@{last}", f"nDCG@{last}", f"PSP@{last}", f"R@{last}"])
    shown = [(name, percent(evaluation[name])) for name in names if name in evaluation.metrics]
    return tiles(
        [
            *shown,
            ("test documents", f"{evaluation.n_documents:,}"),
            ("labels", f"{evaluation.n_test_labels:,}"),
        ]
    )
