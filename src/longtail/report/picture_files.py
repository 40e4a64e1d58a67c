"""Writing figures as PNG, SVG or PDF."""

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
    """Return the suffix of ``path``, or refuse an unknown one; to be called before long work."""
    suffix = Path(path).suffix
    if suffix not in _KINDS:
        kind = suffix or "file without suffix"
        raise UsageError(f"{path}: cannot draw a {kind}; expected {', '.join(_KINDS)}")
    check_output(path)
    return suffix


def save_picture(figure: Figure, path: Path | str) -> None:
    """Write a matplotlib figure; the same figure gives the same bytes."""
    from matplotlib import rc_context

    suffix = picture_suffix(path)
    # without dates, so that the bytes depend on the figure only
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    with rc_context({"svg.hashsalt": "longtail"}), open_output(path) as file:
        figure.savefig(file, format=suffix[1:], dpi=150, metadata=metadata)
