"""How the lists of several models become one, as the papers' published code does it.

mean      the mean of the scores, 0 where a list does not have a label: CascadeXML, LightXML,
          AttentionXML
sigmoid   the same of σ(score): X-Transformer, and XR-Transformer on Wiki-500K
softmax   the same of the softmax over each list: XR-Transformer on Eurlex-4K, AmazonCat-13K and
          Amazon-670K
rank      the same of n for the first label of a list, n - 1 for the second, and so on, n being the
          length of the longest list: XR-Transformer on Wiki10-31K and Amazon-3M
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from longtail.data.csr import csr_of, places_in_rows
from longtail.errors import UsageError
from longtail.reproduction.experiments import Fusion
from longtail.search.ensemble import mean_scores

__all__ = ["fused"]

Values = NDArray[np.float64]


def fused(lists: Sequence[sparse.csr_array], fusion: Fusion, k: int) -> sparse.csr_array:
    """Return the ``k`` best labels of each document by several (n, L) lists, each best first."""
    longest = max(int(np.diff(own.indptr).max(initial=0)) for own in lists)
    convert = _CONVERSIONS[fusion]
    converted = [
        csr_of(values.astype(np.float32), own.indices, own.indptr, own.shape[1])
        for own, values in ((own, convert(own, longest)) for own in lists)
    ]
    return mean_scores(converted, k)


def _scores(ranked: sparse.csr_array, longest: int) -> Values:
    values = ranked.data.astype(np.float64)
    if values.min(initial=0.0) < 0:
        found = (
            f"a score of {values.min():.3g} with the fusion mean, which counts 0 for other labels"
        )
        raise UsageError(f"found {found}; expected scores of at least 0: search.last_level=path")
    return values


def _sigmoids(ranked: sparse.csr_array, longest: int) -> Values:
    return np.asarray(special.expit(ranked.data.astype(np.float64)))


def _softmaxes(ranked: sparse.csr_array, longest: int) -> Values:
    values = ranked.data.astype(np.float64)
    lengths = np.diff(ranked.indptr)
    starts = ranked.indptr[:-1][lengths > 0]
    lengths = lengths[lengths > 0]
    if not len(starts):
        return values
    powers = np.exp(values - np.repeat(np.maximum.reduceat(values, starts), lengths))
    sums = np.add.reduceat(powers, starts)
    return np.asarray(powers / np.repeat(sums, lengths))


def _ranks(ranked: sparse.csr_array, longest: int) -> Values:
    return np.asarray(longest - places_in_rows(ranked), dtype=np.float64)


_CONVERSIONS: dict[Fusion, Callable[[sparse.csr_array, int], Values]] = {
    "mean": _scores,
    "sigmoid": _sigmoids,
    "softmax": _softmaxes,
    "rank": _ranks,
}
