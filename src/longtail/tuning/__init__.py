"""The search for better settings: which ones (space), the trials and their journal (trials), the
search.
"""

from __future__ import annotations

from longtail.tuning.search import Tuning, tune
from longtail.tuning.space import (
    Choice,
    Dimension,
    Range,
    default_space,
    parse_dimension,
    read_space,
)
from longtail.tuning.trials import BEST, Trial, check_study_folder

__all__ = [
    "BEST",
    "Choice",
    "Dimension",
    "Range",
    "Trial",
    "Tuning",
    "check_study_folder",
    "default_space",
    "parse_dimension",
    "read_space",
    "tune",
]
