"""The colours of all figures: on the white paper of files, and on pages in light and dark."""

from __future__ import annotations

__all__ = ["BLUE", "INK", "ON_PAGES", "ON_WHITE", "RED", "SHADES"]

BLUE = "#1f5f8b"  # what a figure is about
RED = "#b04a2f"  # what that is held against
# stands for the colour of a page's text, which is not known when a picture is drawn
INK = "#010203"
SHADES = ("#9cc4e4", "#4f93c8", BLUE, "#8a6fb0", RED)  # of one thing, such as several k

# Eight things told apart. One palette does not serve both papers: on the dark one of a page
# (#14181b) the blue and the black of ON_WHITE have a contrast of 2.6 and 1.1, and on white the blue
# of ON_PAGES has half that of the other, 3.5 for 6.8. Orange and light blue have less than 3 on
# white in both.
# also by who sees few colours
ON_WHITE = (BLUE, "#e08a00", "#009e73", RED, "#56b4e9", "#c05a99", "#222222", "#8c8c8c")
# light or dark
ON_PAGES = ("#3f8fd0", "#e08a00", "#12a37a", "#d0563a", "#a679c4", "#8c8c8c", "#d46aa8", "#4fb6d6")
