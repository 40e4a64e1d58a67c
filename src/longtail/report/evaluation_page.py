"""The report of an evaluation: of a model, or of a file of predictions of any system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.filter_files import AUTO, filter_pairs, find_filter
from longtail.evaluation import Measured, evaluate_model, evaluate_predictions
from longtail.metrics.analysis import unmasked
from longtail.report import sections
from longtail.report.examination import Details, examine, examine_model
from longtail.report.label_table import label_section
from longtail.report.page import Section, check_report_path, percent, tiles, write_page
from longtail.report.reliability import reliability_section
from longtail.search.predictions import read_predictions

if TYPE_CHECKING:
    from scipy import sparse

    from longtail.models.ranking_model import RankingModel

__all__ = ["over_all", "report_on_model", "report_on_predictions", "wide_ranking", "write_report"]

_RANKED = 50  # labels of each document that thresholds look at, if there is room
_ENTRIES = 50_000_000  # predictions held at once, at most


def report_on_model(
    model: RankingModel,
    test: Dataset,
    path: Path | str,
    title: str,
    *,
    folder: Path | None = None,
    mask: Path | str | None = AUTO,
    timings: bool = False,
    **options: Any,
) -> Measured:
    """Measure a model and write its report; ``options`` are those of :func:`evaluate_model`,
    ``folder`` is the model's.

    Documents are ranked once for metrics and details; for some of them, again with other beam
    sizes. With ``timings`` the report says how long these take; without, the same model and data
    give the same bytes."""
    check_report_path(path)
    mask = find_filter(mask, test)
    ks = tuple(options.get("ks", (1, 3, 5)))
    seed = options.get("seed", 0)
    ranked = wide_ranking(model, test, ks, options.get("beam_size"))
    measured = evaluate_model(model, test, mask=mask, ranked=ranked, **options)
    test = test.with_labels(model.labels, unknown="add")
    details = examine_model(model, over_all(ranked, test, mask), test, folder, seed, timings)
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
    """Measure a file of predictions and write its report; ``options`` are those of
    :func:`evaluate_predictions`.
    """
    check_report_path(path)
    mask = find_filter(mask, test)
    found = read_predictions(predictions, test.labels, test.ids, len(test))
    measured = evaluate_predictions(found, test, train, mask=mask, **options)
    test = test.with_labels(found.labels, unknown="add")
    counts = None
    if train is not None:
        counts = train.with_labels(test.labels, unknown="drop").label_counts
    details = examine(over_all(found.matrix, test, mask), test, counts)
    write_report(measured, path, title, details)
    return measured


def wide_ranking(
    model: RankingModel, test: Dataset, ks: tuple[int, ...], beam_size: int | None = None
) -> sparse.csr_array:
    """Return more of the best labels of each document than metrics at ``ks`` need, for thresholds."""
    room = max(_ENTRIES // max(len(test), 1), 10)
    return model.predict(test, max(*ks, min(_RANKED, room)), beam_size=beam_size).matrix


def over_all(ranked: sparse.csr_array, test: Dataset, mask: Path | None) -> sparse.csr_array:
    """Return the predictions over all labels of the test data, without those of a filter file."""
    ranked = csr_of(ranked.data, ranked.indices, ranked.indptr, test.n_labels)
    if mask is None:
        return ranked
    return unmasked(ranked, filter_pairs(mask, test, test.n_labels))


def write_report(
    measured: Measured, path: Path | str, title: str, details: Details | None = None
) -> None:
    """Write the page; the same measurements give the same bytes. What is not known has no section."""
    evaluation = measured.evaluation
    found: list[Section] = [sections.metric_section(evaluation)]
    if details is not None and details.curve is not None:
        found.append(sections.curve_section(details.curve))
    if measured.by_frequency is not None:
        found.append(sections.frequency_section(measured.by_frequency))
    if measured.reliability:
        found.append(reliability_section(measured.reliability))
    if details is not None:
        found += _closer(details, measured)
    top = [] if details is None else [_tiles(measured)]
    write_page(path, title, top, found)


def _closer(details: Details, measured: Measured) -> list[Section]:
    """Return the sections beside the metrics, and what is left out."""
    left_out = dict(details.left_out)
    if measured.by_frequency is None:
        left_out["Frequent and rare labels"] = "the training data is not known; give --train."
    if not measured.reliability:
        left_out["What the probabilities mean"] = "the scores are not probabilities."
    found = []
    if details.curve is not None:
        found.append(label_section(details.labels, details.curve))
    if details.worst:
        found.append(sections.worst_section(details.worst))
    if details.beams:
        found.append(sections.beam_section(details.beams, details.n_timed))
    if details.levels:
        found.append(sections.tree_section(details))
    if details.stages:
        found.append(sections.stage_section(details))
    found.append(sections.fact_section(details.facts))
    return [*found, *([sections.left_out_section(left_out)] if left_out else [])]


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
