"""How a model folder is refused: which file, what is wrong with it and the way out, on one line."""

from __future__ import annotations

from pathlib import Path

from longtail.errors import ModelFolderError, printable

__all__ = ["WAY_OUT", "refusal"]

WAY_OUT = "train again or restore the folder from a backup"
_LONGEST = 300  # characters: hostile content must not fill the terminal


def refusal(file: Path | str, problem: str, way_out: str = WAY_OUT) -> ModelFolderError:
    """Return the error to raise about ``file``."""
    if len(problem) > _LONGEST:
        problem = problem[:_LONGEST] + "…"
    return ModelFolderError(f"{printable(str(file))}: {printable(problem)}; {way_out}")
