"""What the probabilities of a model mean, for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from longtail.report.colours import INK, SHADES
from longtail.report.page import Section, pair, table, text
from longtail.report.pictures import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from longtail.search.calibration import ReliabilityBin

__all__ = ["calibration_error", "reliability_in_words", "reliability_rows", "reliability_section"]


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the mean absolute gap between probability and share right, each bin by its size (ECE)."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.probability - part.right) for part in bins) / total


def reliability_rows(bins: Sequence[ReliabilityBin]) -> list[list[str]]:
    """Return range, suggestions, mean probability and share right of each bin, for people."""
    return [
        [_range(b), f"{b.count:,}", f"{100 * b.probability:.1f} %", f"{100 * b.right:.1f} %"]
        for b in bins
    ]


def reliability_in_words(bins: Sequence[ReliabilityBin]) -> tuple[str, str]:
    """Return two sentences on the probabilities: what the fullest bin that one would act on means,
    and the mean gap.
    """
    part = max([b for b in bins if b.low >= 0.5] or bins, key=lambda b: b.count)
    whom = f"the {part.count:,} suggestions with a probability of {_range(part)}"
    gap = f"Mean gap between probability and share right: {100 * calibration_error(bins):.1f} percentage points."
    return f"Of {whom}, {100 * part.right:.0f} % were right.", gap


def _range(part: ReliabilityBin) -> str:
    return f"{part.low:.1f}–{part.high:.1f}"


def reliability_section(bins: Sequence[ReliabilityBin]) -> Section:
    """Return the reliability diagram and its numbers."""
    parts = [
        f"<p>{text(' '.join(reliability_in_words(bins)))} On the dashed line they are right as often as they say; "
        "the area of a dot grows with its number of suggestions.</p>",
        pair(
            drawn(
                "reliability",
                partial(_dots, bins=bins),
                "Dots: share of suggestions right, by probability",
            ),
            table(
                ["probability", "suggestions", "mean", "right"],
                [[*map(text, row)] for row in reliability_rows(bins)],
            ),
        ),
    ]
    return Section("probabilities", "What the probabilities mean", parts)


def _dots(axes: Axes, bins: Sequence[ReliabilityBin]) -> None:
    probabilities = [100 * part.probability for part in bins]
    right = [100 * part.right for part in bins]
    most = max(part.count for part in bins)
    axes.plot([0, 100], [0, 100], color=INK, linewidth=1, linestyle="--", alpha=0.5)
    axes.plot(probabilities, right, color=SHADES[1], linewidth=1.5)
    axes.scatter(
        probabilities, right, s=[15 + 185 * part.count / most for part in bins], color=SHADES[1]
    )
    axes.set(xlabel="probability, %", ylabel="right, %", xlim=(0, 105), ylim=(0, 105))
