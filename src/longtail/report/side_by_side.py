"""The report of a comparison of models, and its figure and CSV file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.output import check_output
from longtail.errors import UsageError
from longtail.metrics.bootstrap import least_p
from longtail.report.analysis_figures import Table, prepare_folder, tidy, write_csv
from longtail.report.colours import ON_WHITE
from longtail.report.page import Section, note, pair, paragraph, percent, table, text, write_page
from longtail.report.picture_files import save_picture
from longtail.report.pictures import bands, bars, curves, drawn, shown, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longtail.comparison import ComparedModel, Comparison
    from longtail.metrics.bootstrap import Difference

__all__ = ["comparison_files", "write_comparison", "write_side_by_side"]

_FILES = (".png", ".svg", ".pdf", ".csv")
_SIZE = (10.0, 5.0)  # inches
_SIGNIFICANT = 0.05  # largest p of a difference that is coloured
_GROUPS = (("P", "nDCG"), ("PSP", "PSnDCG"), ("R",), ("coverage", "macro-F1"))


def write_side_by_side(comparison: Comparison, path: Path | str, title: str) -> None:
    """Write the page; the same measurements give the same bytes."""
    sections = [_metrics(comparison)]
    if any(model.differences for model in comparison.models):
        sections.append(_differences(comparison))
    if all(model.curve is not None for model in comparison.models):
        sections.append(_curves(comparison))
    sections += [_recalls(comparison), _costs(comparison)]
    write_page(path, title, [note(line) for line in comparison.notes], sections)


def _metrics(comparison: Comparison) -> Section:
    models = comparison.models
    draw = partial(bands, evaluations={model.name: model.measured.evaluation for model in models})
    parts = [
        drawn(
            "bands",
            draw,
            "Marks with bars: P, nDCG and PSP at each k with their intervals, a colour per model",
        )
    ]
    for group in _GROUPS:
        names = [f"{metric}@{k}" for metric in group for k in comparison.ks]
        columns = [_column(models, name) for name in names]
        rows = [
            [text(model.name), *(column[at] for column in columns)]
            for at, model in enumerate(models)
        ]
        parts.append(table(["model", *names], rows, "wide stacked"))
    footnote = f"{models[0].measured.evaluation.footnote}; in bold: the best"
    return Section("metrics", "Metrics", [*parts, note(footnote)])


def _column(models: Sequence[ComparedModel], name: str) -> list[str]:
    """Return the cells of one metric, with intervals if there are any."""
    cells = []
    values = [model.measured.evaluation[name] for model in models]
    for model, cell in zip(models, _best_in_bold(values), strict=True):
        low, high = model.measured.evaluation.intervals.get(name, (None, None))
        if low is not None:
            cell += f" <small>{percent(low)}–{percent(high)}</small>"
        cells.append(cell)
    return cells


def _differences(comparison: Comparison) -> Section:
    first = comparison.models[0]
    evaluation = first.measured.evaluation
    parts = [
        paragraph(
            f"Difference of each model from {first.name} in percentage points, with the 95 % "
            f"interval of a paired bootstrap over {evaluation.n_resamples:,} resamples of the "
            f"test documents. In colour: p below {_SIGNIFICANT:g}."
        ),
        *(_difference_table(comparison, group) for group in _GROUPS[:2]),
    ]
    return Section("differences", f"Against {first.name}", parts)


def _difference_table(comparison: Comparison, group: tuple[str, ...]) -> str:
    first, *others = comparison.models
    names = [f"{metric}@{k}" for metric in group for k in comparison.ks]
    rows = [
        [
            text(model.name),
            *(
                _difference(
                    _change(first, model, name),
                    model.differences[name],
                    first.measured.evaluation.n_resamples,
                )
                for name in names
            ),
        ]
        for model in others
    ]
    return table(["model", *names], rows, "wide stacked")


def _change(first: ComparedModel, model: ComparedModel, name: str) -> float:
    return model.measured.evaluation[name] - first.measured.evaluation[name]


def _difference(change: float, difference: Difference, n_resamples: int) -> str:
    kind = ""
    if difference.p < _SIGNIFICANT:
        kind = ' class="good"' if change > 0 else ' class="bad"'
    span = f"{_points(difference.low)} to {_points(difference.high)}"
    p = text(_p(difference.p, n_resamples))
    return f"<span{kind}>{_points(change)}</span> <small>{span}</small> <small>p\xa0{p}</small>"


def _points(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")


def _p(p: float, n_resamples: int) -> str:
    """Return a p-value; the smallest value that the resamples can show is an upper bound."""
    number = f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
    if p <= least_p(n_resamples):
        return f"< {number}"
    return f"= {number}"


def _curves(comparison: Comparison) -> Section:
    by_name = {model.name: model.curve for model in comparison.models if model.curve is not None}
    rows = [
        [text(name), percent(curve.average_precision), percent(curve.f1), f"{curve.threshold:.3g}"]
        for name, curve in by_name.items()
    ]
    parts = [
        paragraph(
            "Each document is assigned all labels with a score of at least the threshold; "
            "precision and recall are over all pairs of a document and a label. The mark is at "
            "the best F1."
        ),
        pair(
            drawn(
                "curve",
                partial(curves, by_name=by_name),
                "Curves: precision over recall as the threshold falls",
            ),
            table(["model", "average precision", "best F1", "at threshold"], rows),
        ),
    ]
    return Section("thresholds", "Precision and recall by threshold", parts)


def _recalls(comparison: Comparison) -> Section:
    models = comparison.models
    k = comparison.ks[-1]
    bins = models[0].by_frequency.bins
    tested = [at for at, part in enumerate(bins) if part.n_positives]
    series = {
        model.name: [model.by_frequency.bins[at].recall[-1] for at in tested] for model in models
    }
    draw = partial(bars, series=series, places=[bins[at].name for at in tested], colours=True)
    rows = [
        [
            text(bins[at].name),
            f"{bins[at].n_labels:,}",
            f"{bins[at].n_positives:,}",
            *_best_in_bold(recalls),
        ]
        for at, recalls in zip(tested, zip(*series.values(), strict=True), strict=True)
    ]
    parts = [
        paragraph(
            f"R@{k}: the share of these labels' occurrences that is among the {k} best "
            "suggestions, from rare to frequent labels."
        ),
        pair(
            drawn(
                "frequency",
                draw,
                "Bars: recall of labels by their number of training documents, per model",
            ),
            table(
                ["in train", "labels", "positives", *(text(model.name) for model in models)], rows
            ),
        ),
    ]
    return Section("frequencies", "Frequent and rare labels", parts)


def _best_in_bold(values: Sequence[float | None]) -> list[str]:
    """Return the values in percent, the best in bold unless all are equal."""
    cells = [percent(value) for value in values]
    best = percent(max(value or 0.0 for value in values))
    if len(set(cells)) == 1:
        return cells
    return [f'<span class="best">{cell}</span>' if cell == best else cell for cell in cells]


def _costs(comparison: Comparison) -> Section:
    rows = [
        [
            text(model.name),
            f'<td class="text">{text(model.method)}</td>',
            _number_or_dash(model.ms, 3),
            _number_or_dash(model.size and model.size / 1e6, 1),
        ]
        for model in comparison.models
    ]
    lead = paragraph(
        "Time from texts to labels on this machine, for many documents at once, and size of the "
        "model folder."
    )
    heads = ["model", '<th scope="col" class="text">method</th>', "ms per document", "MB"]
    return Section("costs", "Time and size", [lead, table(heads, rows)])


def _number_or_dash(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return f"{value:,.{digits}f}"


# The picture


def comparison_files(output: Path) -> list[Path]:
    """Return the files to write for ``output``, a folder to create or a file.

    Refuses an output that cannot be written; to be called before long work.
    """
    if output.suffix in _FILES and not output.is_dir():
        check_output(output)
        return [output]
    if re.fullmatch(r"\.[a-z]{2,4}", output.suffix) and not output.is_dir():
        known = ", ".join(_FILES)
        raise UsageError(
            f"{output}: found {output.suffix}; "
            f"expected a folder, or a file that ends in one of {known}"
        )
    prepare_folder(output)
    return [output / "compare.png", output / "compare.csv"]


def write_comparison(comparison: Comparison, output: Path) -> list[Path]:
    """Write compare.png and compare.csv into the folder ``output``, or the file of that name."""
    files = comparison_files(output)
    for file in files:
        if file.suffix == ".csv":
            rows = [list(row) for row in comparison.rows]
            write_csv(Table(["model", "metric", "bin", "value"], rows), file)
        else:
            _write_picture(comparison, file)
    return files


def _write_picture(comparison: Comparison, path: Path) -> None:
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    figure = Figure(figsize=_SIZE, layout="constrained")
    _draw(figure, comparison)
    save_picture(figure, path)


def _draw(figure: Figure, comparison: Comparison) -> None:
    panels = figure.subplot_mosaic([["P", "R"], ["PSP", "R"]], width_ratios=[4, 5])
    _draw_metric(panels["P"], comparison, "P", "precision, P@k")
    _draw_metric(panels["PSP"], comparison, "PSP", "propensity-scored precision, PSP@k")
    _draw_recall(panels["R"], comparison)
    tidy(panels.values())
    handles, names = panels["R"].get_legend_handles_labels()
    figure.legend(
        handles, names, frameon=False, loc="outside lower center", ncols=min(len(names), 4)
    )


def _mark_style(at: int) -> dict[str, Any]:
    # not clipped: a mark at 0 is drawn whole
    return {**style(at, ON_WHITE, "white"), "markersize": 6, "clip_on": False}


def _draw_metric(axes: Axes, comparison: Comparison, metric: str, title: str) -> None:
    """Draw a mark per model, side by side at each k."""
    n_models = len(comparison.models)
    ks = comparison.ks
    step = min(0.16, 0.8 / n_models)
    for at, model in enumerate(comparison.models):
        places = [x + (at - (n_models - 1) / 2) * step for x in range(len(ks))]
        values = [100 * model.measured.evaluation[f"{metric}@{k}"] for k in ks]
        axes.plot(places, values, **{**_mark_style(at), "linestyle": "none"})
    axes.set_xticks(range(len(ks)), [f"{metric}@{k}" for k in ks])
    axes.set(ylabel="%", xlim=(-0.5, len(ks) - 0.5))
    axes.margins(y=0.12)
    axes.set_title(title, loc="left", fontsize=10)


def _draw_recall(axes: Axes, comparison: Comparison) -> None:
    """Draw a line per model over the bins with labels in the test data."""
    bins = comparison.models[0].by_frequency.bins
    tested = [at for at, part in enumerate(bins) if part.n_positives]
    for at, model in enumerate(comparison.models):
        axes.plot(
            range(len(tested)),
            _recall_values(model, tested),
            label=shown(model.name),
            linewidth=1.6,
            **_mark_style(at),
        )
    axes.set_xticks(
        range(len(tested)), [f"{bins[at].name}\n{bins[at].n_positives:,}" for at in tested]
    )
    axes.set(ylabel="recall, %", ylim=(0, None), xlim=(-0.3, max(len(tested) - 0.7, 0.3)))
    axes.set_xlabel("training documents of a label; below: their pairs in the test data")
    axes.set_title(f"recall by label frequency, R@{comparison.ks[-1]}", loc="left", fontsize=10)


def _recall_values(model: ComparedModel, tested: list[int]) -> list[float]:
    return [100 * (model.by_frequency.bins[at].recall[-1] or 0.0) for at in tested]
