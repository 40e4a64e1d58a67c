"""Figures of labels: the frequency curve, and the neighbours of a label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longtail.report.colours import BLUE, RED
from longtail.report.picture_files import picture_suffix, save_picture
from longtail.report.pictures import shown

__all__ = ["draw_frequency_curve", "draw_neighbours"]

_LONGEST = 40  # characters of a name; a file has more room than a page


def draw_frequency_curve(curve: Sequence[tuple[int, int]], path: Path | str) -> None:
    """Draw documents over label rank, both on a log scale; the suffix of ``path`` is the format."""
    picture_suffix(path)
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    ranks = [rank for rank, _ in curve]
    documents = [count for _, count in curve]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(ranks, documents, color=BLUE, linewidth=2, marker=".")
    axes.fill_between(ranks, documents, 0.8, color=BLUE, alpha=0.15)
    axes.axhline(5, color=RED, linewidth=1, linestyle="--")
    axes.text(1.05, 5.4, "5 documents", color=RED, fontsize=9)
    axes.set(
        xlabel="label, by falling frequency", ylabel="documents", ylim=(0.8, None), xlim=(1, None)
    )
    axes.set_title("Label frequency", loc="left")
    axes.grid(True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    save_picture(figure, path)


def draw_neighbours(label: str, values: Sequence[tuple[str, float]], path: Path | str) -> None:
    """Draw a bar per neighbour (name, value), like figure 4 of Gandalf's appendix."""
    picture_suffix(path)
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    figure = Figure(figsize=(7, 1.4 + 0.3 * max(len(values), 1)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(values))
    bars = axes.barh(places, [value for _, value in values], 0.7, color=BLUE)
    axes.bar_label(bars, [f"{value:.2f}" for _, value in values], padding=3, fontsize=9)
    axes.set_yticks(places, [shown(name, _LONGEST) for name, _ in values])
    axes.invert_yaxis()
    axes.set(
        xlabel="value in the label graph",
        xlim=(0, 1.15 * max([value for _, value in values], default=1.0)),
    )
    axes.set_title(f"Neighbours of {shown(label, _LONGEST)}", loc="left")
    axes.grid(True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    save_picture(figure, path)
