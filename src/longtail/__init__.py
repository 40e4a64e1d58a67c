"""Longtail gives any text the right few of a million labels.

    import longtail as lt
    train, test = lt.read("books.jsonl").split(test=0.1, seed=0)

Names are imported when they are first used, so that ``import longtail`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longtail import errors, metrics
    from longtail.data.dataset import Dataset
    from longtail.data.formats import read, write
    from longtail.data.label_files import read_labels, write_labels
    from longtail.data.labels import Label, Labels
    from longtail.data.sample import sample
    from longtail.search.predictions import Predictions, read_predictions, write_predictions

_HOME = {
    "Dataset": "longtail.data.dataset",
    "Label": "longtail.data.labels",
    "Labels": "longtail.data.labels",
    "Predictions": "longtail.search.predictions",
    "read": "longtail.data.formats",
    "read_labels": "longtail.data.label_files",
    "read_predictions": "longtail.search.predictions",
    "sample": "longtail.data.sample",
    "write": "longtail.data.formats",
    "write_labels": "longtail.data.label_files",
    "write_predictions": "longtail.search.predictions",
}
_MODULES = ("errors", "metrics")

__all__ = [
    "Dataset",
    "Label",
    "Labels",
    "Predictions",
    "__version__",
    "errors",
    "metrics",
    "read",
    "read_labels",
    "read_predictions",
    "sample",
    "write",
    "write_labels",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"longtail.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'longtail' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
