"""Pictures of a report, as inline SVG in the colour of the page's text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from longtail.errors import printable
from longtail.report.colours import INK, ON_PAGES, SHADES
from longtail.report.page import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longtail.metrics import Evaluation
    from longtail.metrics.analysis import PrecisionRecall

__all__ = ["bands", "bars", "curves", "drawn", "shown", "style"]

_MARKS = "osD^vPX*"  # filled for the first eight series, open for the next
_SIZE = (4.8, 3.0)  # inches: small, so that letters stay legible on a phone
_LONGEST = 26  # characters of a name
_RC: Any = {"svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif"}
_RC |= dict.fromkeys(
    ["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], INK
)


def drawn(name: str, draw: Callable[[Axes], None], alt: str) -> str:
    """Return the picture of ``draw`` as inline SVG with the text alternative ``alt``."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    with rc_context({**_RC, "svg.hashsalt": f"longtail {name}"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(True, axis="y", color=INK, alpha=0.15)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        return _inline(figure, name, alt)


def _inline(figure: Figure, name: str, alt: str) -> str:
    file = io.StringIO()
    no_metadata = dict.fromkeys(["Date", "Creator", "Format", "Type"])
    figure.savefig(file, format="svg", transparent=True, metadata=no_metadata)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor").strip()
    # ids are unique among the pictures of a page
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    head = rf'<svg \1 role="img" aria-label="{text(alt)}">'
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', head, svg, count=1)


def style(at: int, colours: Sequence[str] = ON_PAGES, paper: str = "none") -> dict[str, Any]:
    """Return colour, mark and line of series ``at``; open marks are filled with ``paper``."""
    colour = colours[at % len(colours)]
    face = colour
    line = "-"
    if at >= len(colours):
        face = paper
        line = "--"
    return {
        "color": colour,
        "marker": _MARKS[at % len(_MARKS)],
        "markerfacecolor": face,
        "linestyle": line,
    }


def shown(name: str, longest: int = _LONGEST) -> str:
    """Return a name, shortened in the middle, without characters special to matplotlib."""
    half = longest // 2
    if len(name) > longest:
        name = f"{name[:half]}…{name[-half + 1 :]}"
    name = printable(name).replace("$", r"\$")  # no formula
    if name.startswith("_"):  # omitted from legends
        return f" {name}"
    return name


def bars(
    axes: Axes, series: Mapping[str, Sequence[float | None]], places: Sequence[str], colours: bool
) -> None:
    """Draw a bar per place and series, in percent.

    With ``colours`` the series are different things; without, shades of one.
    """
    width = 0.8 / len(series)
    for at, (name, values) in enumerate(series.items()):
        left = [x + (at - (len(series) - 1) / 2) * width for x in range(len(places))]
        colour = style(at)["color"] if colours else SHADES[at % len(SHADES)]
        axes.bar(
            left, [100 * (value or 0) for value in values], width, color=colour, label=shown(name)
        )
    axes.set_xticks(range(len(places)), places)
    axes.set(xlabel="training documents of a label", ylabel="recall, %", ylim=(0, 100))
    axes.legend(frameon=False, loc="upper left")


def bands(axes: Axes, evaluations: Mapping[str, Evaluation]) -> None:
    """Draw P, nDCG and PSP at each k as marks with their intervals, a colour per model."""
    first = next(iter(evaluations.values()))
    names = [
        f"{metric}@{k}"
        for metric in ("P", "nDCG", "PSP")
        for k in first.ks
        if f"{metric}@{k}" in first.metrics
    ]
    step = min(0.16, 0.8 / len(evaluations))
    for at, (model, evaluation) in enumerate(evaluations.items()):
        places = [x + (at - (len(evaluations) - 1) / 2) * step for x in range(len(names))]
        values = [100 * evaluation[name] for name in names]
        known = [evaluation.intervals.get(name, (evaluation[name],) * 2) for name in names]
        errors = [[v - 100 * low for v, (low, _) in zip(values, known, strict=True)]]
        errors += [[100 * high - v for v, (_, high) in zip(values, known, strict=True)]]
        errors = [[max(error, 0.0) for error in side] for side in errors]  # rounding
        axes.errorbar(
            places,
            values,
            errors,
            **{**style(at), "linestyle": "none"},
            capsize=3,
            ms=4,
            label=shown(model),
        )
    axes.set_xticks(range(len(names)), names, rotation=0 if len(names) < 8 else 35)
    axes.set(ylabel="%", xlim=(-0.5, len(names) - 0.5))
    axes.margins(y=0.12)
    if len(evaluations) > 1:
        axes.legend(frameon=False, fontsize=9)


def curves(axes: Axes, by_name: Mapping[str, PrecisionRecall]) -> None:
    """Draw precision over recall with a mark at the best F1, and faint lines of equal F1."""
    for f1 in (0.2, 0.4, 0.6, 0.8):
        recall = [f1 / 2 + (1 - f1 / 2) * step / 100 for step in range(1, 101)]
        axes.plot(
            [100 * r for r in recall],
            [100 * f1 * r / (2 * r - f1) for r in recall],
            color=INK,
            alpha=0.15,
            lw=1,
        )
        axes.annotate(
            f"F1 {f1:g}",
            (100, 100 * f1 / (2 - f1)),
            color=INK,
            alpha=0.6,
            fontsize=8,
            va="bottom",
            ha="right",
        )
    for at, (name, curve) in enumerate(by_name.items()):
        look = style(at)
        recall = [100 * r for r in curve.recall]
        precision = [100 * p for p in curve.precision]
        axes.plot(
            recall,
            precision,
            color=look["color"],
            linestyle=look["linestyle"],
            linewidth=1.8,
            label=shown(name),
        )
        best = curve.best
        axes.plot(
            [recall[best]],
            [precision[best]],
            **{**look, "linestyle": "none"},
            markersize=8,
            clip_on=False,
        )
    axes.set(xlabel="recall, %", ylabel="precision, %", xlim=(0, 100), ylim=(0, 102))
    if len(by_name) > 1:
        axes.legend(frameon=False, fontsize=9)
