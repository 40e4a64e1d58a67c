"""Tables of text for people."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["in_columns"]


def in_columns(rows: Sequence[Sequence[str]], n_left: int = 0) -> str:
    """Return rows of equally many cells as lines: the first ``n_left`` columns aligned left, the
    others right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust] * n_left + [str.rjust] * (len(widths) - n_left)
    cells = (
        [set_to(cell, width) for set_to, cell, width in zip(sides, row, widths, strict=True)]
        for row in rows
    )
    return "\n".join("  ".join(row).rstrip() for row in cells)
