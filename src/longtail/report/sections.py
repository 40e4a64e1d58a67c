"""The sections of a report on one model or one file of predictions."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from longtail.report.colours import SHADES
from longtail.report.page import Section, note, pair, paragraph, percent, table, text
from longtail.report.pictures import bands, bars, curves, drawn, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from longtail.metrics import Evaluation, FrequencyTable
    from longtail.metrics.analysis import PrecisionRecall
    from longtail.report.examination import Details, WorstDocument
    from longtail.report.speed import BeamPoint

__all__ = [
    "beam_section",
    "curve_section",
    "fact_section",
    "frequency_section",
    "left_out_section",
    "metric_section",
    "stage_section",
    "tree_section",
    "worst_section",
]

_SHOWN = 5  # worst documents that are seen at once


def metric_section(evaluation: Evaluation) -> Section:
    """Return every metric at every k, with its interval where there is one."""
    names = list(dict.fromkeys(name.rsplit("@", 1)[0] for name in evaluation.metrics))
    rows = [
        [text(name), *(_value(evaluation, f"{name}@{k}") for k in evaluation.ks)] for name in names
    ]
    numbers = table(["", *(f"@{k}" for k in evaluation.ks)], rows)
    if evaluation.intervals:
        draw = partial(bands, evaluations={"": evaluation})
        numbers = pair(
            numbers,
            drawn("bands", draw, "Marks with bars: P, nDCG and PSP at each k with their intervals"),
        )
    parts = [numbers, note(evaluation.footnote)]
    return Section("metrics", "Metrics", parts)


def _value(evaluation: Evaluation, name: str) -> str:
    value = percent(evaluation[name])
    if name not in evaluation.intervals:
        return value
    low, high = evaluation.intervals[name]
    return f"{value} <small>{100 * low:.2f}–{100 * high:.2f}</small>"


def frequency_section(found: FrequencyTable) -> Section:
    """Return precision and recall of labels by how frequent they are in training."""
    heads = [
        "in train",
        "labels",
        "positives",
        *(f"{name}@{k}" for name in ("P", "R") for k in found.ks),
    ]
    rows = [
        [
            text(part.name),
            f"{part.n_labels:,}",
            f"{part.n_positives:,}",
            *map(percent, part.precision + part.recall),
        ]
        for part in found.bins
    ]
    tested = [part for part in found.bins if part.n_positives]
    series = {f"R@{k}": [part.recall[at] for part in tested] for at, k in enumerate(found.ks)}
    draw = partial(bars, series=series, places=[part.name for part in tested], colours=False)
    parts = [
        paragraph(
            "Labels by how many training documents they have, from the tail to the head. P is a row's share of the "
            "whole P@k, R the share of these labels' occurrences that is found."
        ),
        pair(
            drawn(
                "frequency", draw, "Bars: recall of labels by how many training documents they have"
            ),
            table(heads, rows),
        ),
    ]
    return Section("frequencies", "Frequent and rare labels", parts)


def curve_section(curve: PrecisionRecall) -> Section:
    """Return precision and recall over thresholds, and some of them as numbers."""
    wanted = sorted({0, curve.best, *(at * (len(curve.thresholds) - 1) // 6 for at in range(1, 7))})
    rows = []
    for at in wanted:
        shares = curve.precision[at], curve.recall[at], curve.f1_at(at)
        cells = [f"{curve.thresholds[at]:.3g}", *map(percent, shares)]
        rows.append(
            [f'<span class="best">{cell}</span>' if at == curve.best else cell for cell in cells]
        )
    parts = [
        paragraph(
            f"What comes of giving all labels from a score on, over all pairs of a document and a label. F1 is best, "
            f"{100 * curve.f1:.2f} %, from {curve.threshold:.3g} on: the mark in the picture, and a "
            f"threshold for predict. Average precision {100 * curve.average_precision:.2f} %."
        ),
        pair(
            drawn(
                "curve",
                partial(curves, found={"": curve}),
                "Curve: precision over recall as the threshold falls",
            ),
            table(["threshold", "precision", "recall", "F1"], rows),
        ),
    ]
    return Section("thresholds", "Precision and recall by threshold", parts)


def worst_section(worst: tuple[WorstDocument, ...]) -> Section:
    """Return the worst documents, each with what was expected and what was said."""
    lead = paragraph(
        "Documents whose labels are least among the five best suggestions (nDCG@5), those first where a wrong "
        "suggestion was surest. Green: expected and said."
    )
    shown = worst[:_SHOWN]
    more = worst[_SHOWN:]
    rest = f"<details><summary>{len(more)} more</summary>{''.join(map(_document, more))}</details>"
    return Section(
        "worst", "Worst documents", [lead, *map(_document, shown), *([rest] if more else [])]
    )


def _document(found: WorstDocument) -> str:
    shown = "" if found.text is None else f"<p>{text(found.text)}</p>"
    expected = "".join(
        f"<li{_good(said)}>{text(name)}{'' if known else ' <small>(not in training)</small>'}</li>"
        for name, said, known in found.expected
    )
    said = "".join(
        f"<li{_good(right)}>{text(name)} <small>{score:.3f}</small></li>"
        for name, score, right in found.said
    )
    return (
        f'<div class="document"><p class="note">document {text(found.id)}</p>{shown}'
        f'<p class="note">expected</p><ul>{expected}</ul>'
        f'<p class="note">said</p><ul>{said or "<li>nothing</li>"}</ul></div>'
    )


def _good(right: bool) -> str:
    return ' class="good"' if right else ""


def beam_section(points: tuple[BeamPoint, ...], n_documents: int) -> Section:
    """Return precision over beam sizes, and time where it was measured."""
    timed = all(point.ms is not None for point in points)
    rows = []
    for point in points:
        cells = [f"{point.beam_size}", percent(point.p1), percent(point.p5)]
        cells += [] if point.ms is None else [f"{point.ms:.3f}"]
        rows.append([f'<span class="best">{cell}</span>' if point.own else cell for cell in cells])
    own = " The model's own beam size is in bold." if any(point.own for point in points) else ""
    where = ", all at once on this machine, from texts to labels" if timed else ""
    over = "milliseconds a document" if timed else "the beam size"
    parts = [
        paragraph(
            f"Nodes kept on each level of the label tree: more find better labels and take longer. Measured on "
            f"{n_documents:,} of the test documents{where}.{own}"
        ),
        pair(
            drawn("beams", partial(_beams, points=points), f"Curves: P@1 and P@5 over {over}"),
            table(["beam size", "P@1", "P@5", *(["ms a document"] if timed else [])], rows),
        ),
    ]
    return Section(
        "beams", "Beam size, accuracy and time" if timed else "Beam size and accuracy", parts
    )


def _beams(axes: Axes, points: tuple[BeamPoint, ...]) -> None:
    times = [point.ms for point in points if point.ms is not None]
    timed = len(times) == len(points)
    over = times if timed else [float(point.beam_size) for point in points]
    for at, (name, values) in enumerate(
        {"P@1": [p.p1 for p in points], "P@5": [p.p5 for p in points]}.items()
    ):
        axes.plot(over, [100 * value for value in values], label=name, **style(at))
        for point, at_x, value in zip(points, over, values, strict=True):
            axes.annotate(
                f"{point.beam_size}",
                (at_x, 100 * value),
                (0, 6),
                textcoords="offset points",
                fontsize=8,
            )
    axes.set(
        xlabel="milliseconds a document; at each mark: the beam size" if timed else "beam size",
        ylabel="%",
    )
    if max(over) > 10 * min(over):
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, 1.1 * max(over))
    axes.margins(y=0.15)
    # above, where no mark is
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def tree_section(details: Details) -> Section:
    """Return how evenly the label tree is grown."""
    last = len(details.levels)
    names = ["root", *(f"level {at}" for at in range(1, last))]
    rows = [
        [name, f"{level.nodes:,}", f"{level.least:,}", f"{level.median:,g}", f"{level.most:,}"]
        for name, level in zip(names, details.levels, strict=True)
    ]
    parts = [
        paragraph(
            f"{last} levels, that of the labels among them. Children of the nodes of each level; those of the last one "
            "are labels. Nodes of like size are searched in like time."
        ),
        pair(
            drawn(
                "leaves",
                partial(_leaves, sizes=details.leaf_sizes),
                "Bars: number of last inner nodes by labels",
            ),
            table(["", "nodes", "fewest children", "median", "most"], rows),
        ),
    ]
    return Section("tree", "Balance of the label tree", parts)


def _leaves(axes: Axes, sizes: tuple[int, ...]) -> None:
    distinct = Counter(sizes)
    if len(distinct) <= 30:
        axes.bar(list(distinct), list(distinct.values()), 0.8, color=SHADES[1])
    else:
        axes.hist(sizes, bins=30, color=SHADES[1])
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="labels of a node above them", ylabel="nodes")


def stage_section(details: Details) -> Section:
    """Return time and memory of each stage of training, as the run log has them."""
    total = sum(stage.seconds for stage in details.stages)
    rows = [
        [
            text(stage.name),
            f"{stage.seconds:,.1f}",
            f"{stage.seconds / max(total, 1e-9):.0%}".replace("%", "\xa0%"),
            f"{stage.memory_mb:,.0f}",
            f'<td class="text"><small>{text(stage.facts)}</small></td>',
        ]
        for stage in details.stages
    ]
    rows.append(
        [
            "in all",
            f"{total:,.1f}",
            "",
            f"{max(stage.memory_mb for stage in details.stages):,.0f}",
            "",
        ]
    )
    lead = paragraph(
        "Memory is the most that the process had used by the end of the stage, data included."
    )
    return Section(
        "training",
        "Time and memory of training",
        [lead, table(["stage", "s", "share", "MB", ""], rows)],
    )


def fact_section(facts: dict[str, str]) -> Section:
    """Return what the model is and what it was measured on."""
    rows = [[text(name), f'<td class="text">{text(value)}</td>'] for name, value in facts.items()]
    return Section("facts", "Model and data", [table(["", ""], rows)])


def left_out_section(left_out: dict[str, str]) -> Section:
    """Return what is not in this report, and why."""
    lines = "".join(f"<li>{text(name)}: {text(why)}</li>" for name, why in left_out.items())
    return Section("left-out", "Not in this report", [f'<ul class="note">{lines}</ul>'])
