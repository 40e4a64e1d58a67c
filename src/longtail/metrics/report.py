"""Pictures for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longtail.errors import UsageError

__all__ = ["draw_frequency_curve", "picture_suffix"]

_KINDS = (".png", ".svg", ".pdf")


def picture_suffix(path: Path | str) -> str:
    """Return the suffix of ``path``, or say which pictures can be drawn: to be asked before long work."""
    suffix = Path(path).suffix
    if suffix not in _KINDS:
        raise UsageError(f"{path}: cannot draw a {suffix or 'file without suffix'}; expected {', '.join(_KINDS)}")
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{path}: the folder {Path(path).parent} does not exist; make it first")
    return suffix


def draw_frequency_curve(curve: Sequence[tuple[int, int]], path: Path | str) -> None:
    """Draw documents over label rank, both on a log scale, as PNG, SVG or PDF by the suffix of ``path``."""
    suffix = picture_suffix(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    ranks, documents = zip(*curve, strict=True) if curve else ((), ())
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(ranks, documents, color="#1f5f8b", linewidth=2, marker=".")
    axes.fill_between(ranks, documents, 0.8, color="#1f5f8b", alpha=0.15)
    axes.axhline(5, color="#b04a2f", linewidth=1, linestyle="--")
    axes.text(1.05, 5.4, "5 documents", color="#b04a2f", fontsize=9)
    axes.set(xlabel="label, by falling frequency", ylabel="documents", ylim=(0.8, None), xlim=(1, None))
    axes.set_title("Label frequency", loc="left")
    axes.grid(True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    dates = {".svg": "Date", ".pdf": "CreationDate"}  # left out: the same curve gives the same bytes
    with rc_context({"svg.hashsalt": "longtail"}):
        figure.savefig(path, dpi=150, metadata={dates[suffix]: None} if suffix in dates else None)
