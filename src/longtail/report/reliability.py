"""Reliability of probabilities: table, diagram, and calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from longtail.report.colours import INK, SHADES
from longtail.report.page import Section, pair, paragraph, table, text
from longtail.report.pictures import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from longtail.search.calibration import ReliabilityBin

__all__ = ["calibration_error", "reliability_in_words", "reliability_rows", "reliability_section"]


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the expected calibration error: the bins' weighted mean |probability − correct|."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.probability - part.right) for part in bins) / total


def reliability_rows(bins: Sequence[ReliabilityBin]) -> list[list[str]]:
    """Return range, suggestions, mean probability and share correct of each bin as text."""
    return [
        [_range(b), f"{b.count:,}", f"{100 * b.probability:.1f} %", f"{100 * b.right:.1f} %"]
        for b in bins
    ]


def reliability_in_words(bins: Sequence[ReliabilityBin]) -> tuple[str, str]:
    """Return two sentences: the share correct of the largest bin from 0.5 on, and the mean gap."""
    part = max([b for b in bins if b.low >= 0.5] or bins, key=lambda b: b.count)
    suggestions = f"the {part.count:,} suggestions with a probability of {_range(part)}"
    error = 100 * calibration_error(bins)
    gap = f"Mean gap between probability and share correct: {error:.1f} percentage points."
    return f"Of {suggestions}, {100 * part.right:.0f} % were correct.", gap


def _range(part: ReliabilityBin) -> str:
    return f"{part.low:.1f}–{part.high:.1f}"


def reliability_section(bins: Sequence[ReliabilityBin]) -> Section:
    """Return the reliability diagram and its numbers."""
    parts = [
        paragraph(
            f"{' '.join(reliability_in_words(bins))} On the dashed line, the share correct equals "
            "the probability; the area of a dot grows with its number of suggestions."
        ),
        pair(
            drawn(
                "reliability",
                partial(_dots, bins=bins),
                "Dots: share of suggestions correct, by probability",
            ),
            table(
                ["probability", "suggestions", "mean", "correct"],
                [[*map(text, row)] for row in reliability_rows(bins)],
            ),
        ),
    ]
    return Section("probabilities", "Reliability of the probabilities", parts)


def _dots(axes: Axes, bins: Sequence[ReliabilityBin]) -> None:
    probabilities = [100 * part.probability for part in bins]
    right = [100 * part.right for part in bins]
    most = max(part.count for part in bins)
    axes.plot([0, 100], [0, 100], color=INK, linewidth=1, linestyle="--", alpha=0.5)
    axes.plot(probabilities, right, color=SHADES[1], linewidth=1.5)
    axes.scatter(
        probabilities, right, s=[15 + 185 * part.count / most for part in bins], color=SHADES[1]
    )
    axes.set(xlabel="probability, %", ylabel="correct, %", xlim=(0, 105), ylim=(0, 105))
