"""The search for better settings: which ones (space), the trials so far (journal), one trial
(trials), the search.
"""

from __future__ import annotations

from longtail.tuning.journal import BEST, Trial, check_study_folder
from longtail.tuning.search import Tuning, tune
from longtail.tuning.space import (
    Choice,
    Dimension,
    Range,
    default_space,
    parse_dimension,
    read_space,
)

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
