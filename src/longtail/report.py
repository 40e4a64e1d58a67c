"""The report of an evaluation: one page of HTML that holds everything it shows."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.output import open_output
from longtail.errors import UsageError, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longtail.evaluation import Measured
    from longtail.metrics import Evaluation, FrequencyTable
    from longtail.search.calibration import ReliabilityBin

__all__ = ["calibration_error", "check_report_path", "reliability_in_words", "reliability_rows", "write_report"]

_INK = "#010203"  # stands for the colour of the page's text, which is not known when a picture is drawn
_BLUES = ("#9cc4e4", "#4f93c8", "#1f5f8b", "#8a6fb0", "#b04a2f")
_SIZE = (4.8, 3.0)  # inches: small, so that letters stay legible where a phone shrinks it
_RC: Any = {"svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif"}
_RC |= dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], _INK)

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1c2226; --paper: #fff; --line: #d5dbe0; --soft: #5a6670; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e4e8eb; --paper: #14181b; --line: #3a444c; --soft: #9aa7b1; }}
}}
body {{ color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif;
  max-width: 46rem; margin: 0 auto; padding: 1rem; }}
h1 {{ font-size: 1.4rem; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.1rem; margin-top: 2.2rem; }}
p {{ max-width: 40rem; }}
.note {{ color: var(--soft); font-size: .9rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th {{ font-weight: 600; }}
th:first-child {{ text-align: left; padding-left: 0; }}
td small {{ color: var(--soft); }}
@media (max-width: 40rem) {{ td small {{ display: block; }} }}
svg {{ display: block; width: 100%; max-width: 40rem; height: auto; margin: 1rem 0; }}
svg text {{ font-family: system-ui, sans-serif !important; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def check_report_path(path: Path | str) -> None:
    """Refuse a report that could not be written: to be asked before long work."""
    path = Path(path)
    if path.suffix != ".html":
        raise UsageError(f"{path}: cannot write a {path.suffix or 'file without suffix'}; expected .html")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist; make it first")


def write_report(measured: Measured, path: Path | str, title: str) -> None:
    """Write the page; the same measurements give the same bytes."""
    check_report_path(path)
    parts = _metrics(measured.evaluation)
    if measured.by_frequency is not None:
        parts += _frequencies(measured.by_frequency)
    if measured.reliability:
        parts += _reliability(measured.reliability)
    page = _PAGE.format(title=_text(title), body="\n".join(parts))
    with open_output(path) as file:
        file.write(page.encode())


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the mean absolute gap between probability and share right, each bin by its size (ECE)."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.probability - part.right) for part in bins) / total


def reliability_rows(bins: Sequence[ReliabilityBin]) -> list[list[str]]:
    """Return range, suggestions, mean probability and share right of each bin, for people."""
    return [[_range(b), f"{b.count:,}", f"{100 * b.probability:.1f} %", f"{100 * b.right:.1f} %"] for b in bins]


def reliability_in_words(bins: Sequence[ReliabilityBin]) -> tuple[str, str]:
    """Return two sentences on the probabilities: what the fullest bin that one would act on means, and the mean gap."""
    part = max([b for b in bins if b.low >= 0.5] or bins, key=lambda b: b.count)
    whom = f"the {part.count:,} suggestions with a probability of {_range(part)}"
    gap = f"Mean gap between probability and share right: {100 * calibration_error(bins):.1f} percentage points."
    return f"Of {whom}, {100 * part.right:.0f} % were right.", gap


def _range(part: ReliabilityBin) -> str:
    return f"{part.low:.1f}–{part.high:.1f}"


def _metrics(evaluation: Evaluation) -> list[str]:
    note = str(evaluation).rpartition("\n")[2]
    names = list(dict.fromkeys(name.rsplit("@", 1)[0] for name in evaluation.metrics))
    rows = [[_text(name), *(_value(evaluation, f"{name}@{k}") for k in evaluation.ks)] for name in names]
    return ["<h2>Metrics</h2>", _table(["", *(f"@{k}" for k in evaluation.ks)], rows), _note(note)]


def _value(evaluation: Evaluation, name: str) -> str:
    value = _percent(evaluation[name])
    if name not in evaluation.intervals:
        return value
    low, high = evaluation.intervals[name]
    return f"{value} <small>{100 * low:.2f}–{100 * high:.2f}</small>"


def _frequencies(table: FrequencyTable) -> list[str]:
    heads = ["in train", "labels", "positives", *(f"{name}@{k}" for name in ("P", "R") for k in table.ks)]
    rows = [
        [_text(part.name), f"{part.n_labels:,}", f"{part.n_positives:,}", *map(_percent, part.precision + part.recall)]
        for part in table.bins
    ]
    return [
        "<h2>Frequent and rare labels</h2>",
        "<p>Labels by how many training documents they have. P is a row's share of the whole P@k, R the share of "
        "these labels' occurrences that is found.</p>",
        _drawn("frequency", _recall_bars, table, "Bars: recall of labels by how many training documents they have"),
        _table(heads, rows),
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _recall_bars(axes: Axes, table: FrequencyTable) -> None:
    shown = [part for part in table.bins if part.n_positives]
    width = 0.8 / len(table.ks)
    for at, k in enumerate(table.ks):
        places = [x + (at - (len(table.ks) - 1) / 2) * width for x in range(len(shown))]
        heights = [100 * (part.recall[at] or 0) for part in shown]
        axes.bar(places, heights, width, color=_BLUES[at % len(_BLUES)], label=f"R@{k}")
    axes.set_xticks(range(len(shown)), [part.name for part in shown])
    axes.set(xlabel="training documents of a label", ylabel="found, %", ylim=(0, 100))
    axes.legend(frameon=False, loc="upper left")


def _reliability(bins: Sequence[ReliabilityBin]) -> list[str]:
    return [
        "<h2>What the probabilities mean</h2>",
        f"<p>{_text(' '.join(reliability_in_words(bins)))} On the dashed line they are right as often as they say; "
        "the area of a dot grows with its number of suggestions.</p>",
        _drawn("reliability", _reliability_dots, bins, "Dots: share of suggestions that were right by probability"),
        _table(["probability", "suggestions", "mean", "right"], [[*map(_text, row)] for row in reliability_rows(bins)]),
    ]


def _reliability_dots(axes: Axes, bins: Sequence[ReliabilityBin]) -> None:
    probabilities, right = [100 * part.probability for part in bins], [100 * part.right for part in bins]
    most = max(part.count for part in bins)
    axes.plot([0, 100], [0, 100], color=_INK, linewidth=1, linestyle="--", alpha=0.5)
    axes.plot(probabilities, right, color=_BLUES[1], linewidth=1.5)
    axes.scatter(probabilities, right, s=[15 + 185 * part.count / most for part in bins], color=_BLUES[1])
    axes.set(xlabel="probability, %", ylabel="right, %", xlim=(0, 105), ylim=(0, 105))


def _drawn(name: str, draw: Any, what: Any, alt: str) -> str:
    """Return the picture as an inline SVG that takes the colour of the page's text."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    with rc_context({**_RC, "svg.hashsalt": f"longtail {name}"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        draw(axes, what)
        axes.grid(True, axis="y", color=_INK, alpha=0.15)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        return _inline(figure, name, alt)


def _inline(figure: Figure, name: str, alt: str) -> str:
    file = io.StringIO()
    unsaid = dict.fromkeys(["Date", "Creator", "Format", "Type"])
    figure.savefig(file, format="svg", transparent=True, metadata=unsaid)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor").strip()
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)  # ids of two pictures on one page
    head = rf'<svg \1 role="img" aria-label="{_text(alt)}">'
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', head, svg, count=1)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are escaped already; the first column names the row."""
    top = "".join(f'<th scope="col">{head}</th>' for head in heads)
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{c}</td>" for c in row[1:])}</tr>' for row in rows
    )
    return f'<div class="wide"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _text(text: str) -> str:
    return escape(printable(text)).replace(" %", "\xa0%")  # a line never ends between the two
