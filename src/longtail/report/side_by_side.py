"""The report of a comparison: several models side by side, with the pictures and the style of every
report.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from longtail.metrics.bootstrap import least_p
from longtail.report.page import Section, note, pair, paragraph, percent, table, text, write_page
from longtail.report.pictures import bands, bars, curves, drawn

if TYPE_CHECKING:
    from longtail.comparison import ComparedModel, Comparison
    from longtail.metrics.bootstrap import Difference

__all__ = ["write_side_by_side"]

_SURE = 0.05  # a difference with a larger p may be luck
_GROUPS = (("P", "nDCG"), ("PSP", "PSnDCG"), ("R",), ("coverage", "macro-F1"))


def write_side_by_side(comparison: Comparison, path: Path | str, title: str) -> None:
    """Write the page; the same measurements give the same bytes."""
    found = [_metrics(comparison)]
    if any(model.differences for model in comparison.models):
        found.append(_differences(comparison))
    if all(model.curve is not None for model in comparison.models):
        found.append(_curves(comparison))
    found += [_recalls(comparison), _costs(comparison)]
    write_page(path, title, [note(line) for line in comparison.notes], found)


def _metrics(comparison: Comparison) -> Section:
    models = comparison.models
    draw = partial(bands, evaluations={model.name: model.measured.evaluation for model in models})
    parts = [
        drawn(
            "bands",
            draw,
            "Marks with bars: P, nDCG and PSP at each k with their intervals, a colour a model",
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
    """Return the cells of one metric, with intervals where there are any."""
    cells = []
    values = [model.measured.evaluation[name] for model in models]
    for model, shown in zip(models, _best_in_bold(values), strict=True):
        low, high = model.measured.evaluation.intervals.get(name, (None, None))
        cells.append(
            shown if low is None else f"{shown} <small>{percent(low)}–{percent(high)}</small>"
        )
    return cells


def _differences(comparison: Comparison) -> Section:
    first = comparison.models[0]
    evaluation = first.measured.evaluation
    parts = [
        paragraph(
            f"By how many percentage points each model is above {first.name} or below it, with the 95 % interval of "
            f"{evaluation.n_resamples:,} resamples of the test documents, the same for both (a paired bootstrap). "
            f"In colour: p below {_SURE:g}, so hardly luck."
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


def _difference(change: float, found: Difference, n_resamples: int) -> str:
    sure = found.p < _SURE
    if sure:
        kind = ' class="good"' if change > 0 else ' class="bad"'
    else:
        kind = ""
    span = f"{_points(found.low)} to {_points(found.high)}"
    p = text(_p(found.p, n_resamples))
    return f"<span{kind}>{_points(change)}</span> <small>{span}</small> <small>p\xa0{p}</small>"


def _points(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")


def _p(p: float, n_resamples: int) -> str:
    """Return a p-value; the least that so many resamples can show is a bound."""
    shown = f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
    if p <= least_p(n_resamples):
        return f"< {shown}"
    return f"= {shown}"


def _curves(comparison: Comparison) -> Section:
    found = {model.name: model.curve for model in comparison.models if model.curve is not None}
    rows = [
        [text(name), percent(curve.average_precision), percent(curve.f1), f"{curve.threshold:.3g}"]
        for name, curve in found.items()
    ]
    parts = [
        paragraph(
            "What comes of giving all labels from a score on, over all pairs of a document and a label; the "
            "mark is where F1 is best."
        ),
        pair(
            drawn(
                "curve",
                partial(curves, found=found),
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
            f"R@{k}: the share of these labels' occurrences among the {k} best suggestions, from the tail to the head."
        ),
        pair(
            drawn(
                "frequency",
                draw,
                "Bars: recall of labels by how many training documents they have, by model",
            ),
            table(
                ["in train", "labels", "positives", *(text(model.name) for model in models)], rows
            ),
        ),
    ]
    return Section("frequencies", "Frequent and rare labels", parts)


def _best_in_bold(values: Sequence[float | None]) -> list[str]:
    """Return the values in percent, the best of them in bold unless all are alike."""
    shown = [percent(value) for value in values]
    best = percent(max(value or 0.0 for value in values))
    differ = len(set(shown)) > 1
    return [
        f'<span class="best">{value}</span>' if differ and value == best else value
        for value in shown
    ]


def _costs(comparison: Comparison) -> Section:
    rows = [
        [
            text(model.name),
            f'<td class="text">{text(model.method)}</td>',
            "–" if model.ms is None else f"{model.ms:,.3f}",
            "–" if model.size is None else f"{model.size / 1e6:,.1f}",
        ]
        for model in comparison.models
    ]
    lead = paragraph(
        "Time from texts to labels on this machine, many documents at once; size of the model folder."
    )
    heads = ["model", '<th scope="col" class="text">method</th>', "ms a document", "MB"]
    return Section("costs", "Time and size", [lead, table(heads, rows)])
