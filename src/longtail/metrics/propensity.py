"""Propensities: how likely a label is to be assigned where it is right, estimated from its
training frequency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UsageError, unknown_name

__all__ = [
    "FAMILIES",
    "Constants",
    "Propensity",
    "choose_constants",
    "inverse_propensities",
    "propensity_constants",
]


class Constants(NamedTuple):
    """A and B of the propensities, and what decided them."""

    a: float
    b: float
    source: str


# (A, B), the name of a family, what was chosen before, or None: by the data
Propensity: TypeAlias = tuple[float, float] | str | Constants | None

# As in the Extreme Classification Repository's scripts and the published settings of the
# benchmarks.
FAMILIES = {"wikipedia": (0.5, 0.4), "amazon": (0.6, 2.6), "default": (0.55, 1.5)}

# Parts of the names of benchmarks, without what is no letter or digit; the first that a name has
# decides. Wiki10-31K, the WikiSeeAlso family and AmazonCat-13K are not of the families that their
# names begin with.
_BY_NAME = {
    "amazoncat": "default",
    "wiki10": "default",
    "wikiseealso": "default",
    "eurlex": "default",
    "delicious": "default",
    "mediamill": "default",
    "bibtex": "default",
    "amazon": "amazon",
    "wikipedia": "wikipedia",
    "wikilshtc": "wikipedia",
    "wikititles": "wikipedia",
    "wiki500k": "wikipedia",
}


def propensity_constants(name: str) -> tuple[float, float]:
    """Return the constants (A, B) the field uses for the named benchmark; (0.55, 1.5) for all other
    data.
    """
    return FAMILIES[_family_of(name) or "default"]


def choose_constants(
    propensity: Propensity, names: Iterable[str] = (), preset: str = ""
) -> Constants:
    """Return A and B: those asked for, else by the name of the data, else by the preset, else 0.55
    and 1.5.

    Args:
        propensity: (A, B), the name of a family, what was chosen before, or None.
        names: Names of the test data that may be that of a benchmark; the first one that is
        decides.
        preset: The recipe that a model was trained with, which is called by its benchmark.
    """
    if isinstance(propensity, Constants):
        return propensity
    if isinstance(propensity, str):
        if propensity not in FAMILIES:
            raise UsageError(unknown_name("propensity", propensity, FAMILIES))
        return Constants(*FAMILIES[propensity], f"family {propensity}")
    if propensity is not None:
        return Constants(*_numbers(propensity), "as given")
    for kind, name in [*(("name", name) for name in names), ("preset", preset)]:
        if _family_of(name) is not None:
            return Constants(*propensity_constants(name), f"by the {kind} {name}")
    return Constants(*FAMILIES["default"], "default")


def _numbers(propensity: object) -> tuple[float, float]:
    """Return A and B of a caller, or refuse what is no pair of numbers."""
    pair: tuple[Any, ...] = ()
    if isinstance(propensity, list | tuple):
        pair = tuple(propensity)
    if len(pair) != 2 or not all(isinstance(number, int | float | np.number) for number in pair):
        known = ", ".join(FAMILIES)
        raise UsageError(
            f"propensity: found {propensity!r}; "
            f"expected (A, B) such as (0.55, 1.5), or one of {known}"
        )
    return float(pair[0]), float(pair[1])


def _family_of(name: str) -> str | None:
    letters = "".join(filter(str.isalnum, name.lower()))
    return next((family for part, family in _BY_NAME.items() if part in letters), None)


def inverse_propensities(
    label_counts: NDArray[np.integer[Any]], n_train: int, a: float = 0.55, b: float = 1.5
) -> NDArray[np.float64]:
    """Return 1/p_l = 1 + C (N_l + B)^-A with C = (ln N - 1)(B + 1)^A for each label (Jain et al.
    2016).

    ``label_counts`` holds N_l, the documents of each label among the N = ``n_train`` training
    documents."""
    counts = np.asarray(label_counts)
    if n_train < 3:  # below e documents C is negative and a label could weigh less than nothing
        raise UsageError(
            f"n_train: found {n_train}; propensities need at least 3 training documents"
        )
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise UsageError(
            f"label_counts: found {counts.dtype} of shape {counts.shape}; "
            "expected one integer count per label"
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
        raise UsageError(
            f"propensity constants: found A={a}, B={b}, weights out of range; "
            "expected smaller ones, such as 0.55 and 1.5"
        )
    return weights
