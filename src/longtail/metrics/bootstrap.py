"""Confidence intervals by resampling test documents with replacement."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError
from longtail.kernels.ranking import BLOCK, resample_sums

__all__ = ["Difference", "least_p", "paired_differences", "percentile_intervals", "resampled_sums"]

_MOST_RESAMPLES = 1_000_000  # all are held at once


class Difference(msgspec.Struct, frozen=True):
    """How much larger a metric is than another system's: the interval, and the p-value."""

    low: float
    high: float
    p: float


def resampled_sums(
    documents: NDArray[np.float64], n_resamples: int, seed: int
) -> NDArray[np.float64]:
    """Sum per-document statistics (n_docs, ...) over each of ``n_resamples`` draws of n_docs
    documents.

    Returns (n_resamples, ...). Draws are split over blocks of documents first (a multinomial draw)
    and made inside a block then, so nothing of size documents × resamples ever exists."""
    if not 1 <= n_resamples <= _MOST_RESAMPLES or seed < 0:
        raise UsageError(
            f"bootstrap: found {n_resamples} resamples, seed {seed}; "
            f"expected 1 to {_MOST_RESAMPLES} and a seed >= 0"
        )
    n_docs = len(documents)
    flat = documents.reshape(n_docs, -1)
    rng = np.random.default_rng(seed)
    sizes = np.full(-(-n_docs // BLOCK), BLOCK)
    sizes[-1] -= len(sizes) * BLOCK - n_docs
    draws = rng.multinomial(n_docs, sizes / n_docs, size=n_resamples)
    sums = np.zeros((n_resamples, flat.shape[1]))
    # the generator wraps around on purpose; seen only when run uncompiled
    with np.errstate(over="ignore"):
        resample_sums(flat, draws, rng.integers(2**64, dtype=np.uint64), sums)
    return sums.reshape(n_resamples, *documents.shape[1:])


def percentile_intervals(
    resamples: Mapping[str, NDArray[np.float64]], confidence: float
) -> dict[str, tuple[float, float]]:
    """Return the percentiles of each metric's resampled values that leave out 1 - ``confidence``,
    half of it on each side.
    """
    if not 0.0 < confidence < 1.0:
        raise UsageError(
            f"confidence: found {confidence}; expected a fraction between 0 and 1, such as 0.95"
        )
    tails = ((1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0)
    bounds = {name: np.quantile(values, tails) for name, values in resamples.items()}
    return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}


def paired_differences(
    first: Mapping[str, NDArray[np.float64]], other: Mapping[str, NDArray[np.float64]]
) -> dict[str, Difference]:
    """Return for each metric by how much ``other`` is above ``first``, both of the same resamples
    of documents.

    Intervals are of 95 %. p is two-sided: twice the share of resamples on the other side of 0, or
    at it, with one more counted there."""
    differences = {name: other[name] - values for name, values in first.items()}
    intervals = percentile_intervals(differences, 0.95)
    return {
        name: Difference(*intervals[name], _two_sided(values))
        for name, values in differences.items()
    }


def least_p(n_resamples: int) -> float:
    """Return the least p of :class:`Difference` that ``n_resamples`` can show: no resample is on
    the other side.
    """
    return 2 / (n_resamples + 1)


def _two_sided(values: NDArray[np.float64]) -> float:
    below = np.count_nonzero(values <= 0)
    above = np.count_nonzero(values >= 0)
    return float(min(1.0, (min(below, above) + 1) * least_p(len(values))))
