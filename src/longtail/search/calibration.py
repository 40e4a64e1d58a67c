"""From scores to probabilities: how often a label with such a score was right on documents held
out.

A higher score always gets a higher probability, if only in the last digits, so that a ranking by
probabilities is the ranking by scores: in metrics, in predictions, and where parts of predictions
are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse, special

from longtail.store.tensors import check_kinds

__all__ = ["Calibration", "ReliabilityBin", "hits", "reliability"]

_SMOOTHING = 1.0  # pairs of each outcome added to the whole: no score means 0 or 1 for certain
_SMALLEST = 1e-12
_STEP = 2.0**-52  # as a share of any float64, at least the distance to the next one
_INFINITY = 0x7F800000  # bits of the float32
_KNOTS = 257  # of a logistic map


class ReliabilityBin(NamedTuple):
    """Suggestions with a probability in [low, high): how many, their mean probability, and the
    share that is right.
    """

    low: float
    high: float
    count: int  # type: ignore[assignment]  # tuple.count, which nobody needs here
    probability: float
    right: float


@dataclass(frozen=True)
class Calibration:
    """A strictly rising map from float32 scores to probabilities: linear between knots, less a
    millionth at most.
    """

    scores: NDArray[np.float64]  # (m,) knots, rising
    probabilities: NDArray[np.float64]  # (m,) never falling

    @classmethod
    def fit(
        cls,
        scores: NDArray[np.floating],
        right: NDArray[np.bool_],
        method: Literal["isotonic", "logistic"],
    ) -> Calibration:
        """Fit to suggestions on held-out documents: their scores, and whether each was right."""
        x = scores.astype(np.float64)
        y = right.astype(np.float64)
        if method == "isotonic":
            return _isotonic(x, y)
        if x.min(initial=0) >= 0:
            return _logistic(x, y)
        return _logistic_of_margins(x, y)

    def __call__(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the probability of each score; scores beyond the ends get about that of the end.

        Where the map is flat, float64 numbers that float32 would round to one tell the scores
        apart."""
        known = np.asarray(scores, np.float32)
        at = self.scores.searchsorted(known)
        # interp may round above it
        ceiling = self.probabilities[np.minimum(at, len(self.probabilities) - 1)]
        flat = np.minimum(np.interp(known, self.scores, self.probabilities), ceiling)
        probabilities: NDArray[np.float64] = flat * (1 - _STEP * _float32s_above(known))
        return probabilities

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a model folder holds."""
        return {"scores": self.scores, "probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Calibration:
        """Return the checked map of :meth:`to_arrays`."""
        check_kinds(arrays, {"scores": "f", "probabilities": "f"})
        knots = arrays["scores"]
        values = arrays["probabilities"]
        fits = (
            len(knots) == len(values) > 0
            and np.isfinite(knots).all()
            and (np.diff(knots) > 0).all()
        )
        if not fits or not ((values >= 0) & (values <= 1)).all() or (np.diff(values) < 0).any():
            raise ValueError(
                "calibration: expected rising scores, each with a probability that does not fall"
            )
        return cls(knots, values)


def _float32s_above(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return how many float32 numbers lie above each value, up to infinity; at most 2³²."""
    bits = np.ascontiguousarray(values).view(np.int32).astype(np.int64)
    # the bits of numbers above 0 are in their order
    number = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return _INFINITY - number


def _isotonic(x: NDArray[np.float64], y: NDArray[np.float64]) -> Calibration:
    knots, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    shares = np.bincount(where, y) / counts
    fitted = optimize.isotonic_regression(shares, weights=counts)
    ends = fitted.blocks  # the first knot of each flat piece, and behind the last
    total = np.bincount(where, y)
    prior = (y.sum() + _SMOOTHING) / (len(y) + 2 * _SMOOTHING)
    steps = []
    for first, last in pairwise(ends):
        n = counts[first:last].sum()
        right = total[first:last].sum()
        middle = np.average(knots[first:last], weights=counts[first:last])
        steps.append((middle, (right + _SMOOTHING * prior) / (n + _SMOOTHING)))
    middles, values = (np.array(column) for column in zip(*steps, strict=True))
    return Calibration(middles, np.maximum.accumulate(values))


def _logistic(x: NDArray[np.float64], y: NDArray[np.float64]) -> Calibration:
    """Platt's σ(a ln s + b), as knots that are close enough for straight lines between."""
    a, b = _platt(np.log(np.maximum(x, _SMALLEST)), y)
    knots = np.logspace(
        np.log10(max(x.min(), _SMALLEST)), np.log10(max(x.max(), 2 * _SMALLEST)), _KNOTS
    )
    knots = np.unique(knots)  # scores may all be the same
    return Calibration(knots, special.expit(a * np.log(knots) + b))


def _logistic_of_margins(x: NDArray[np.float64], y: NDArray[np.float64]) -> Calibration:
    """Platt's σ(a v + b) of margins v, as knots."""
    a, b = _platt(x, y)
    knots = np.unique(np.linspace(x.min(), x.max(), _KNOTS))
    return Calibration(knots, special.expit(a * knots + b))


def _platt(values: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return a ≥ 0 and b of Platt's σ(a v + b), with his targets."""
    positives = y.sum()
    high = (positives + 1) / (positives + 2)
    low = 1 / (len(y) - positives + 2)
    targets = np.where(y > 0, high, low)

    def loss(parameters: NDArray[np.float64]) -> float:
        margins = parameters[0] * values + parameters[1]
        return float(np.mean(np.logaddexp(0, margins) - targets * margins))

    a, b = optimize.minimize(loss, np.array([1.0, 0.0]), bounds=[(0, None), (None, None)]).x
    return float(a), float(b)


def hits(predictions: sparse.csr_array, label_matrix: sparse.csr_array) -> NDArray[np.bool_]:
    """Return for each entry of ``predictions`` (n, L), in its order, whether ``label_matrix`` has
    it.
    """
    width = predictions.shape[1]
    truth = sparse.csr_array(label_matrix)

    def keys(matrix: sparse.csr_array) -> NDArray[np.int64]:
        return (
            np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * width + matrix.indices
        )

    return np.isin(keys(predictions), keys(truth))


def reliability(
    probabilities: NDArray[np.floating], right: NDArray[np.bool_], n_bins: int = 10
) -> list[ReliabilityBin]:
    """Return the suggestions by probability in bins of equal width, those without any left out."""
    bins = np.minimum((probabilities * n_bins).astype(np.int64), n_bins - 1)
    table = []
    for number in range(n_bins):
        mine = bins == number
        if mine.any():
            low = number / n_bins
            high = (number + 1) / n_bins
            table.append(
                ReliabilityBin(
                    low,
                    high,
                    int(mine.sum()),
                    float(probabilities[mine].mean()),
                    float(right[mine].mean()),
                )
            )
    return table
