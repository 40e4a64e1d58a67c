"""Sections of the report on a model or a file of predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from longtail.errors import printable
from longtail.report.colours import SHADES
from longtail.report.page import Section, note, pair, paragraph, percent, table, text
from longtail.report.pictures import bands, bars, curves, drawn, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from longtail.metrics import Evaluation, FrequencyTable
    from longtail.metrics.analysis import PrecisionRecall
    from longtail.report.examination import Details, LabelRow, WorstDocument
    from longtail.report.speed import BeamPoint

__all__ = [
    "beam_section",
    "curve_section",
    "fact_section",
    "frequency_section",
    "label_section",
    "left_out_section",
    "metric_section",
    "stage_section",
    "tree_section",
    "worst_section",
]

_MOST = 2000  # rows in a page
_HEADS = ("label", "in train", "in test", "predicted", "precision", "recall", "F1")
_SCRIPT = """
"use strict";
(() => {
  const rows = JSON.parse(document.getElementById("label-data").textContent);
  const body = document.querySelector("#label-table tbody");
  const box = document.getElementById("label-filter");
  const heads = [...document.querySelectorAll("#label-table thead th")];
  let by = 2, rising = false;
  const shown = (value, at) => value === null ? "–" : at === 0 ? value
    : at > 3 ? (100 * value).toFixed(1) : value.toLocaleString("en");
  const order = (one, two) => {
    const a = one[by], b = two[by];
    if (a === null || b === null) return (a === null) - (b === null);
    const way = typeof a === "string" ? a.localeCompare(b) : a - b;
    return rising ? way : -way;
  };
  const draw = () => {
    const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
    const matches = row => words.every(word => row[0].toLowerCase().includes(word));
    const selected = rows.filter(matches).sort(order);
    body.replaceChildren(...selected.map(row => {
      const line = document.createElement("tr");
      row.forEach((value, at) => {
        const cell = document.createElement(at ? "td" : "th");
        if (!at) cell.scope = "row";
        cell.textContent = shown(value, at);
        line.append(cell);
      });
      return line;
    }));
    heads.forEach((head, at) => head.setAttribute("aria-sort",
      at === by ? (rising ? "ascending" : "descending") : "none"));
    document.getElementById("label-count").textContent =
      `${selected.length.toLocaleString("en")} labels shown`;
  };
  heads.forEach((head, at) => head.querySelector("button").addEventListener("click", () => {
    rising = at === by ? !rising : at === 0;
    by = at;
    draw();
  }));
  box.addEventListener("input", draw);
  draw();
})();
"""
_SHOWN = 5  # worst documents shown without a click


def metric_section(evaluation: Evaluation) -> Section:
    """Return every metric at every k, with its interval if there is one."""
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


def frequency_section(frequencies: FrequencyTable) -> Section:
    """Return precision and recall of labels by their frequency in training."""
    heads = [
        "in train",
        "labels",
        "positives",
        *(f"{name}@{k}" for name in ("P", "R") for k in frequencies.ks),
    ]
    rows = [
        [
            text(part.name),
            f"{part.n_labels:,}",
            f"{part.n_positives:,}",
            *map(percent, part.precision + part.recall),
        ]
        for part in frequencies.bins
    ]
    tested = [part for part in frequencies.bins if part.n_positives]
    series = {f"R@{k}": [part.recall[at] for part in tested] for at, k in enumerate(frequencies.ks)}
    draw = partial(bars, series=series, places=[part.name for part in tested], colours=False)
    parts = [
        paragraph(
            "Labels by number of training documents, from rare to frequent. P is the row's part "
            "of the total P@k, R the share of these labels' occurrences that is among the k best "
            "suggestions."
        ),
        pair(
            drawn(
                "frequency", draw, "Bars: recall of labels by their number of training documents"
            ),
            table(heads, rows),
        ),
    ]
    return Section("frequencies", "Frequent and rare labels", parts)


def curve_section(curve: PrecisionRecall) -> Section:
    """Return the curve of precision over recall, and a table of some thresholds."""
    wanted = sorted({0, curve.best, *(at * (len(curve.thresholds) - 1) // 6 for at in range(1, 7))})
    rows = []
    for at in wanted:
        shares = curve.precision[at], curve.recall[at], curve.f1_at(at)
        cells = [f"{curve.thresholds[at]:.3g}", *map(percent, shares)]
        if at == curve.best:
            cells = _in_bold(cells)
        rows.append(cells)
    parts = [
        paragraph(
            "Each document is assigned all labels with a score of at least the threshold; "
            "precision and recall are over all pairs of a document and a label. The best F1 is "
            f"{100 * curve.f1:.2f} % at {curve.threshold:.3g}, the mark in the picture; predict "
            "accepts this value as a threshold. Average precision: "
            f"{100 * curve.average_precision:.2f} %."
        ),
        pair(
            drawn(
                "curve",
                partial(curves, by_name={"": curve}),
                "Curve: precision over recall as the threshold falls",
            ),
            table(["threshold", "precision", "recall", "F1"], rows),
        ),
    ]
    return Section("thresholds", "Precision and recall by threshold", parts)


def label_section(rows: Sequence[LabelRow], curve: PrecisionRecall) -> Section:
    """Return the table of the up to 2,000 labels with most test documents.

    A script of the page draws, sorts and filters the table as text.
    """
    data = [[printable(row[0]), *(_rounded(value) for value in row[1:])] for row in rows[:_MOST]]
    # without </script> and <!--
    encoded = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    heads = "".join(
        f'<th scope="col"><button type="button">{head}</button></th>' for head in _HEADS
    )
    parts = [
        paragraph(
            "Each document is assigned the labels with a score of at least "
            f"{curve.threshold:.3g}, where F1 over all pairs is best on these documents. In "
            "percent: precision is the share of a label's suggestions that are correct, recall "
            "the share of its documents for which it was suggested."
        ),
        '<p><input id="label-filter" type="search" placeholder="Find labels" '
        'aria-label="Find labels"> <span class="note" id="label-count" role="status"></span></p>',
        f'<div class="tall"><table id="label-table"><thead><tr>{heads}</tr></thead>'
        "<tbody></tbody></table></div>",
        "<noscript><p>This table needs JavaScript.</p></noscript>",
        f'<script type="application/json" id="label-data">{encoded}</script>',
    ]
    if len(rows) > _MOST:
        others = f"{len(rows) - _MOST:,} others are left out."
        parts.append(note(f"The {_MOST:,} labels with most test documents; {others}"))
    return Section("labels", "Label by label", parts, _SCRIPT)


def _rounded(value: float | str | None) -> float | str | None:
    if isinstance(value, float):
        return round(value, 4)
    return value


def worst_section(worst: tuple[WorstDocument, ...]) -> Section:
    """Return the worst documents, each with its expected and predicted labels."""
    parts = [
        paragraph(
            "Documents with the lowest nDCG@5, those with the highest score of a wrong suggestion "
            "first. Green: expected and predicted."
        )
    ]
    parts += map(_document, worst[:_SHOWN])
    more = "".join(map(_document, worst[_SHOWN:]))
    if more:
        number = len(worst) - _SHOWN
        parts.append(f"<details><summary>{number} more</summary>{more}</details>")
    return Section("worst", "Worst documents", parts)


def _document(document: WorstDocument) -> str:
    content = ""
    if document.text is not None:
        content = f"<p>{text(document.text)}</p>"
    expected = "".join(
        _item(predicted, name, "" if known else "(not in training)")
        for name, predicted, known in document.expected
    )
    predicted = "".join(
        _item(correct, name, f"{score:.3f}") for name, score, correct in document.predicted
    )
    return (
        f'<div class="document"><p class="note">document {text(document.id)}</p>{content}'
        f'<p class="note">expected</p><ul>{expected}</ul>'
        f'<p class="note">predicted</p><ul>{predicted or "<li>nothing</li>"}</ul></div>'
    )


def _item(good: bool, name: str, small: str) -> str:
    start = '<li class="good">' if good else "<li>"
    end = f" <small>{small}</small></li>" if small else "</li>"
    return f"{start}{text(name)}{end}"


def _in_bold(cells: Sequence[str]) -> list[str]:
    return [f'<span class="best">{cell}</span>' for cell in cells]


def beam_section(points: tuple[BeamPoint, ...], n_documents: int) -> Section:
    """Return precision over beam sizes, and time if it was measured."""
    timed = all(point.ms is not None for point in points)
    rows = []
    for point in points:
        cells = [f"{point.beam_size}", percent(point.p1), percent(point.p5)]
        if point.ms is not None:
            cells.append(f"{point.ms:.3f}")
        if point.is_default:
            cells = _in_bold(cells)
        rows.append(cells)
    lead = (
        "The beam size is the number of nodes kept per level of the label tree: larger beams find "
        f"better labels and take longer. Measured on {n_documents:,} of the test documents"
    )
    title = "Beam size and accuracy"
    over = "the beam size"
    heads = ["beam size", "P@1", "P@5"]
    if timed:
        lead += ", all at once on this machine, from texts to labels"
        title = "Beam size, accuracy and time"
        over = "milliseconds per document"
        heads.append("ms per document")
    lead += "."
    if any(point.is_default for point in points):
        lead += " The model's beam size is in bold."
    picture = drawn("beams", partial(_beams, points=points), f"Curves: P@1 and P@5 over {over}")
    return Section("beams", title, [paragraph(lead), pair(picture, table(heads, rows))])


def _beams(axes: Axes, points: tuple[BeamPoint, ...]) -> None:
    times = [point.ms for point in points if point.ms is not None]
    over = [float(point.beam_size) for point in points]
    xlabel = "beam size"
    if len(times) == len(points):
        over = times
        xlabel = "milliseconds per document; at each mark: the beam size"
    series = {"P@1": [p.p1 for p in points], "P@5": [p.p5 for p in points]}
    for at, (name, values) in enumerate(series.items()):
        axes.plot(over, [100 * value for value in values], label=name, **style(at))
        for point, at_x, value in zip(points, over, values, strict=True):
            axes.annotate(
                f"{point.beam_size}",
                (at_x, 100 * value),
                (0, 6),
                textcoords="offset points",
                fontsize=8,
            )
    axes.set(xlabel=xlabel, ylabel="%")
    if max(over) > 10 * min(over):
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, 1.1 * max(over))
    axes.margins(y=0.15)
    # above the axes, where no mark is
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def tree_section(details: Details) -> Section:
    """Return the numbers of children per level of the label tree."""
    last = len(details.levels)
    names = ["root", *(f"level {at}" for at in range(1, last))]
    rows = [
        [name, f"{level.nodes:,}", f"{level.least:,}", f"{level.median:,g}", f"{level.most:,}"]
        for name, level in zip(names, details.levels, strict=True)
    ]
    parts = [
        paragraph(
            f"{last} levels, including the labels. The table has the number of children per node "
            "of each level; those of the last row are labels. Nodes of similar size take similar "
            "time to search."
        ),
        pair(
            drawn(
                "leaves",
                partial(_leaves, sizes=details.leaf_sizes),
                "Bars: number of nodes on the lowest inner level, by number of labels",
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
    axes.set(xlabel="labels of a node of the lowest inner level", ylabel="nodes")


def stage_section(details: Details) -> Section:
    """Return time and memory of each stage of training from the run log."""
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
            "total",
            f"{total:,.1f}",
            "",
            f"{max(stage.memory_mb for stage in details.stages):,.0f}",
            "",
        ]
    )
    lead = paragraph("Memory is the peak of the process up to the end of the stage, data included.")
    return Section(
        "training",
        "Time and memory of training",
        [lead, table(["stage", "s", "share", "MB", ""], rows)],
    )


def fact_section(facts: dict[str, str]) -> Section:
    """Return facts about the model and the test data."""
    rows = [[text(name), f'<td class="text">{text(value)}</td>'] for name, value in facts.items()]
    return Section("facts", "Model and data", [table(["", ""], rows)])


def left_out_section(left_out: dict[str, str]) -> Section:
    """Return the list of missing sections with their reasons."""
    lines = "".join(f"<li>{text(name)}: {text(reason)}</li>" for name, reason in left_out.items())
    return Section("left-out", "Not in this report", [f'<ul class="note">{lines}</ul>'])
