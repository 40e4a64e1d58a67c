"""What the rankers without a label tree will take: seconds of one core, bytes stored, bytes at work.

Each grows in its own way; constants were measured on sets of 23,000 to 62,000 documents, so that a forecast is right
within a factor of two or so.
"""

from __future__ import annotations

import math
from typing import NamedTuple, assert_never

from longtail.config import Config, Forest, Neighbours
from longtail.forecast.sizes import DataSizes
from longtail.forecast.text import TextForecast
from longtail.methods import METHODS

__all__ = ["RankerForecast", "one_vs_all_seconds", "one_vs_all_weights", "ranker_forecast"]

_NEWTON = 8e-9  # seconds a label, document, and number of it with 10 more; a dense one is a tenth
_PROXIMAL_LABEL, _PROXIMAL_PAIR = 1e-3, 4e-4  # seconds a label, and a document of it
_PROXIMAL_WEIGHTS = 3.0  # a document of a label
_SPLIT = 3e-7  # seconds a document, level of a tree, and number of the document with 5 more
_SPLIT_BYTES = 4.0  # stored, a tree and number of the documents
_STEP = 1.4e-9  # seconds a dimension, epoch, document and number of it with 5 more, times its neighbours and negatives
_EMBEDDED_BYTES = 2.0  # a dimension of a column in a part, or of a document


class RankerForecast(NamedTuple):
    """Of a whole ranker: seconds of one core, bytes stored, and bytes of one thread."""

    seconds: float
    stored: float
    thread_bytes: float


def ranker_forecast(sizes: DataSizes, text: TextForecast, config: Config) -> RankerForecast | None:
    """Estimate trees over documents, or learners of neighbours; None for methods with label trees."""
    kind = METHODS[config.method].ranker
    if kind == "forest":
        return _forest(sizes, text, config.forest)
    if kind == "neighbours":
        return _neighbours(sizes, text, config.neighbours)
    return None if kind == "tree" else assert_never(kind)


def one_vs_all_seconds(sizes: DataSizes, text: TextForecast, config: Config, documents: float) -> float | None:
    """Return the seconds of one classifier a label, each on so many documents.

    None where the solver of label trees does it.
    """
    if config.ranker.solver == "newton":
        each = text.each + text.dense_width / 10 + 10
        return _NEWTON * documents * each * sizes.n_labels
    if config.ranker.solver == "proximal":
        return _PROXIMAL_LABEL * sizes.n_labels + _PROXIMAL_PAIR * sizes.pairs
    return None


def one_vs_all_weights(sizes: DataSizes, config: Config) -> float | None:
    """Return the weights that an L1 penalty leaves, or None where pruning decides."""
    return _PROXIMAL_WEIGHTS * sizes.pairs if config.ranker.solver == "proximal" else None


def _forest(sizes: DataSizes, text: TextForecast, settings: Forest) -> RankerForecast:
    levels = math.log2(max(sizes.documents / settings.leaf_size, 2))
    each = text.each + text.dense_width + 5
    seconds = _SPLIT * sizes.documents * each * levels * settings.trees
    numbers = text.numbers + text.dense_width * sizes.documents
    stored = _SPLIT_BYTES * numbers * settings.trees + (8.0 * numbers if settings.tail_share else 0.0)  # centroids
    return RankerForecast(seconds, stored, 12.0 * numbers)


def _neighbours(sizes: DataSizes, text: TextForecast, settings: Neighbours) -> RankerForecast:
    each = text.each + text.dense_width + 5
    pairs = settings.graph_neighbours + settings.negatives
    steps = settings.dimensions * settings.epochs * sizes.documents * each * pairs
    n_parts = max(sizes.documents // settings.part_size, 1)
    columns = n_parts * float(text.distinct(sizes.documents / n_parts))
    stored = _EMBEDDED_BYTES * settings.dimensions * (columns + sizes.documents) * settings.learners
    parts = 12.0 * n_parts * text.columns
    return RankerForecast(_STEP * steps * settings.learners, stored, parts + 8.0 * settings.dimensions * text.columns)
