"""Settings: what they are (structs), and where they come from (sources)."""

from longtail.config.sources import Setting, merge, parse_assignment, read_toml, resolve, settings, to_toml
from longtail.config.structs import (
    Calibration,
    Cascade,
    Config,
    Encoder,
    Forest,
    LabelFeatures,
    Neighbours,
    Ranker,
    Search,
    Stage,
    TfIdf,
    Training,
    Tree,
)

__all__ = [
    "Calibration",
    "Cascade",
    "Config",
    "Encoder",
    "Forest",
    "LabelFeatures",
    "Neighbours",
    "Ranker",
    "Search",
    "Setting",
    "Stage",
    "TfIdf",
    "Training",
    "Tree",
    "merge",
    "parse_assignment",
    "read_toml",
    "resolve",
    "settings",
    "to_toml",
]
