"""Longtail gives any text the right few of a million labels.

    import longtail as lt
    train, test = lt.read("books.jsonl").split(test=0.1, seed=0)
    model = lt.Longtail("xr-linear").fit(train)
    print(model.evaluate(test))

Names are imported when they are first used, so that ``import longtail`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longtail import errors, metrics, sklearn
    from longtail.comparison import Comparison, compare
    from longtail.data.dataset import Dataset
    from longtail.data.label_files import read_labels, write_labels
    from longtail.data.labels import Label, Labels
    from longtail.data.reading import read, write
    from longtail.data.sample import sample
    from longtail.ensembling import ensemble
    from longtail.estimator import Longtail, load
    from longtail.extending import extend
    from longtail.features.matrix import Features
    from longtail.features.tfidf import TfIdf
    from longtail.search.predictions import Predictions, read_predictions, write_predictions
    from longtail.tree.tree import LabelTree

_HOME = {
    "Comparison": "longtail.comparison",
    "Dataset": "longtail.data.dataset",
    "Features": "longtail.features.matrix",
    "Label": "longtail.data.labels",
    "LabelTree": "longtail.tree.tree",
    "Labels": "longtail.data.labels",
    "Longtail": "longtail.estimator",
    "Predictions": "longtail.search.predictions",
    "TfIdf": "longtail.features.tfidf",
    "compare": "longtail.comparison",
    "ensemble": "longtail.ensembling",
    "extend": "longtail.extending",
    "load": "longtail.estimator",
    "read": "longtail.data.reading",
    "read_labels": "longtail.data.label_files",
    "read_predictions": "longtail.search.predictions",
    "sample": "longtail.data.sample",
    "write": "longtail.data.reading",
    "write_labels": "longtail.data.label_files",
    "write_predictions": "longtail.search.predictions",
}
_MODULES = ("errors", "metrics", "sklearn")

__all__ = [
    "Comparison",
    "Dataset",
    "Features",
    "Label",
    "LabelTree",
    "Labels",
    "Longtail",
    "Predictions",
    "TfIdf",
    "__version__",
    "compare",
    "ensemble",
    "errors",
    "extend",
    "load",
    "metrics",
    "read",
    "read_labels",
    "read_predictions",
    "sample",
    "sklearn",
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
