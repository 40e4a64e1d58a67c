"""What the text features of a run will be: n-grams are extrapolated from a sample by Heaps' law,
V(n) ∝ n^β.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.config import Config, TfIdf
from longtail.data.strings import Strings
from longtail.errors import DataError
from longtail.features import tfidf
from longtail.forecast.sizes import DataSizes

__all__ = ["TextForecast", "text_forecast"]

_SAMPLE = 2000  # documents that are looked at
_SAMPLE_BYTES = 1 << 22  # of their text, at most
# measured as the constants of ``training.py`` were
_SECONDS = 25e-9  # of one core, a byte of text and length of n-grams
_SLOWING = 0.05  # β falls from the size of the sample to that of all documents by about this


class TextForecast(NamedTuple):
    """Features of all documents, as a sample lets one expect them."""

    documents: int
    all_columns: int  # before n-grams are chosen
    all_numbers: int  # entries of the documents' rows
    columns: int
    numbers: int
    dense_width: int
    seconds: float

    @property
    def each(self) -> float:
        """Numbers of one row."""
        return max(self.numbers / max(self.documents, 1), 1.0)

    def distinct(self, documents: NDArray[np.number] | float) -> NDArray[np.float64]:
        """Return the columns that this many documents have together: those of one, times
        documents^β.
        """
        power = math.log(max(self.columns / self.each, 1.0)) / math.log(max(self.documents, 2))
        return np.minimum(self.each * np.asarray(documents, np.float64) ** power, self.columns)


def text_forecast(sizes: DataSizes, config: Config) -> TextForecast:
    """Estimate the features of all documents by those of a sample; given ones are counted."""
    n = sizes.documents
    if sizes.features is not None:
        columns, numbers = sizes.features
        return TextForecast(n, 0, 0, columns, numbers, sizes.dense_width, 0.0)
    if sizes.texts is None or not n:
        return TextForecast(n, 0, 0, 0, 0, sizes.dense_width, 0.0)
    sample = _sample(sizes.texts)
    blocks = [_block(sample, n, settings) for settings in config.tfidf]
    all_columns, all_numbers, columns, numbers = (
        int(sum(column)) for column in zip(*blocks, strict=True)
    )
    lengths = sum(settings.ngram_max - settings.ngram_min + 1 for settings in config.tfidf)
    seconds = _SECONDS * sizes.text_bytes * lengths
    return TextForecast(n, all_columns, all_numbers, columns, numbers, sizes.dense_width, seconds)


def _sample(texts: Strings) -> Strings:
    """Return some of the texts, spread evenly over all."""
    n = len(texts)
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    fits = int(np.searchsorted(np.cumsum(texts.lengths[rows]), _SAMPLE_BYTES)) + 1
    return texts.take(
        rows[np.unique(np.linspace(0, len(rows) - 1, min(fits, len(rows))).astype(np.int64))]
    )


def _block(sample: Strings, n: int, settings: TfIdf) -> tuple[float, float, float, float]:
    """Return the columns and entries of one block for ``n`` documents, before and after n-grams are
    chosen.
    """
    everything = msgspec.structs.replace(settings, min_df=1, max_df=1.0, max_features=0)
    try:
        _, rows = tfidf.TfIdf.fit_transform(sample, [everything])
    except DataError:  # no words at all: training says so
        return 0.0, 0.0, 0.0, 0.0
    frequency = np.bincount(rows.indices)
    every_other = np.repeat(np.arange(len(sample)) % 2 == 0, np.diff(rows.indptr))
    half = len(np.unique(rows.indices[every_other]))
    growth = 1.0  # β of Heaps' law
    if half:
        growth = math.log2(len(frequency) / half)
    times = n / len(sample)
    columns = len(frequency) * times ** max(growth - _SLOWING, 0.0)
    entries = rows.nnz * times
    kept = entries - frequency[frequency > settings.max_df * len(sample)].sum() * times
    return columns, entries, *_chosen(columns, kept, growth, settings)


def _chosen(columns: float, entries: float, growth: float, settings: TfIdf) -> tuple[float, float]:
    """Return what ``min_df`` and ``max_features`` leave of n-grams and of entries.

    Where V(n) ∝ n^β, the share of n-grams in m documents or more is Γ(m−β) / (Γ(1−β) Γ(m))
    (Pitman's α being β), so a limit to the number of n-grams is a limit to their documents."""
    beta = min(max(growth, 0.05), 0.95)
    least = float(settings.min_df)
    if 0 < settings.max_features < columns:
        least = max(least, (settings.max_features / columns * math.gamma(1 - beta)) ** (-1 / beta))
    if least <= 1:
        return columns, entries
    kept = columns * math.exp(
        math.lgamma(least - beta) - math.lgamma(1 - beta) - math.lgamma(least)
    )
    lost = (
        columns
        * beta
        * math.exp(math.lgamma(least - beta) - math.lgamma(2 - beta) - math.lgamma(least - 1))
    )
    return min(kept, settings.max_features or kept), max(entries - lost, 0.1 * entries)
