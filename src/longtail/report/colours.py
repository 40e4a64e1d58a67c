"""Colours of all figures: on the white background of files, and on light and dark pages."""

from __future__ import annotations

__all__ = ["BLUE", "INK", "ON_PAGES", "ON_WHITE", "RED", "SHADES"]

BLUE = "#1f5f8b"  # the subject of a figure
RED = "#b04a2f"  # the reference it is compared with
INK = "#010203"  # replaced by the colour of the page's text, which is unknown when drawing
SHADES = ("#9cc4e4", "#4f93c8", BLUE, "#8a6fb0", RED)  # variants of one thing, such as several k

# Palettes of eight colours that can be distinguished, also with colour blindness. One palette does
# not serve both backgrounds: on a dark page (#14181b) the blue and the black of ON_WHITE have
# contrasts of 2.6 and 1.1, and on white the blue of ON_PAGES has a contrast of 3.5 instead of 6.8.
# Orange and light blue have less than 3 on white in both.
ON_WHITE = (BLUE, "#e08a00", "#009e73", RED, "#56b4e9", "#c05a99", "#222222", "#8c8c8c")
ON_PAGES = ("#3f8fd0", "#e08a00", "#12a37a", "#d0563a", "#a679c4", "#8c8c8c", "#d46aa8", "#4fb6d6")
