"""How likely a label is to be assigned at all where it is right, estimated from its training frequency."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError

__all__ = ["inverse_propensities", "propensity_constants"]

# As in the Extreme Classification Repository's scripts and the published settings of the benchmarks.
# Wiki10-31K, the WikiSeeAlso family and AmazonCat-13K are «otherwise» there, whatever their names say.
_WIKIPEDIA = ("wikipedia", "wikilshtc", "wikititles", "wiki500k")


def propensity_constants(name: str) -> tuple[float, float]:
    """Return the constants (A, B) the field uses for the named benchmark; (0.55, 1.5) for all other data."""
    letters = "".join(filter(str.isalnum, name.lower()))
    if any(part in letters for part in _WIKIPEDIA):
        return 0.5, 0.4
    if "amazon" in letters and "amazoncat" not in letters:
        return 0.6, 2.6
    return 0.55, 1.5


def inverse_propensities(
    label_counts: NDArray[np.integer[Any]], n_train: int, a: float = 0.55, b: float = 1.5
) -> NDArray[np.float64]:
    """Return 1/p_l = 1 + C (N_l + B)^-A with C = (ln N - 1)(B + 1)^A for each label (Jain et al. 2016).

    ``label_counts`` holds N_l, the documents of each label among the N = ``n_train`` training documents.
    """
    counts = np.asarray(label_counts)
    if n_train < 3:  # below e documents C is negative and a label could weigh less than nothing
        raise UsageError(f"n_train: found {n_train}; propensities need at least 3 training documents")
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise UsageError(
            f"label_counts: found {counts.dtype} of shape {counts.shape}; expected one integer count per label"
        )
    if counts.size and (counts.min() < 0 or counts.max() > n_train):
        raise UsageError(
            f"label_counts: found counts from {counts.min()} to {counts.max()}; "
            f"expected 0 to n_train = {n_train}: count each label in the same training documents"
        )
    if a <= 0 or b <= 0:
        raise UsageError(f"propensity constants: found A={a}, B={b}; expected both above 0")
    with np.errstate(all="ignore"):  # what is not finite is refused below
        c = (math.log(n_train) - 1.0) * np.float64(b + 1.0) ** a
        weights = np.asarray(1.0 + c * (counts + float(b)) ** -a, dtype=np.float64)
    if not (np.isfinite(c) and np.isfinite(weights).all()):
        way_out = "expected smaller ones, such as 0.55 and 1.5"
        raise UsageError(f"propensity constants: found A={a}, B={b}, weights out of range; {way_out}")
    return weights
