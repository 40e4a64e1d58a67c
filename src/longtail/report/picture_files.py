"""Pictures as files: PNG, SVG or PDF by their suffix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from longtail.data.output import check_output, open_output
from longtail.errors import UsageError

__all__ = ["picture_suffix", "save_picture"]

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = (".png", ".svg", ".pdf")


def picture_suffix(path: Path | str) -> str:
    """Return the suffix of ``path``, or say which pictures can be drawn: to be asked before long
    work.
    """
    suffix = Path(path).suffix
    if suffix not in _KINDS:
        raise UsageError(
            f"{path}: cannot draw a {suffix or 'file without suffix'}; expected {', '.join(_KINDS)}"
        )
    check_output(path)
    return suffix


def save_picture(figure: Figure, path: Path | str) -> None:
    """Write a figure of matplotlib; the same one gives the same bytes."""
    from matplotlib import rc_context

    suffix = picture_suffix(path)
    # left out: the same numbers give the same bytes
    dates = {".svg": "Date", ".pdf": "CreationDate"}
    with rc_context({"svg.hashsalt": "longtail"}), open_output(path) as file:
        figure.savefig(
            file,
            format=suffix[1:],
            dpi=150,
            metadata={dates[suffix]: None} if suffix in dates else None,
        )
