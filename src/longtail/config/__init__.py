"""Settings: what they are (structs), and where they come from (sources)."""

from longtail.config.networks import Cascade, Encoder, LabelText, Recursive, Training
from longtail.config.sources import (
    Setting,
    expected_of,
    merge,
    nested,
    parse_assignment,
    read_toml,
    resolve,
    settings,
    to_toml,
    toml_value,
)
from longtail.config.stage import Stage
from longtail.config.structs import (
    Calibration,
    Config,
    Forest,
    Gandalf,
    LabelFeatures,
    Neighbours,
    Ranker,
    Search,
    TfIdf,
    Tree,
)

__all__ = [
    "Calibration",
    "Cascade",
    "Config",
    "Encoder",
    "Forest",
    "Gandalf",
    "LabelFeatures",
    "LabelText",
    "Neighbours",
    "Ranker",
    "Recursive",
    "Search",
    "Setting",
    "Stage",
    "TfIdf",
    "Training",
    "Tree",
    "expected_of",
    "merge",
    "nested",
    "parse_assignment",
    "read_toml",
    "resolve",
    "settings",
    "to_toml",
    "toml_value",
]
