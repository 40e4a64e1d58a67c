"""Random bits from numbers alone, by splitmix64 (Steele, Lea, Flood 2014): no order of execution
enters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels.jit import kernel

__all__ = ["GOLDEN", "draw", "finalised", "random_bits"]

Array = NDArray[Any]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of a counter
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_U1 = np.uint64(1)
_U27 = np.uint64(27)
_U30 = np.uint64(30)
_U31 = np.uint64(31)


@kernel
def finalised(counter: Any) -> Any:
    """Return 64 random bits for a value of the counter, which is a uint64 as they are."""
    bits = (counter ^ (counter >> _U30)) * _FIRST
    bits = (bits ^ (bits >> _U27)) * _SECOND
    return bits ^ (bits >> _U31)


@kernel
def random_bits(seed: int, first: int, second: int) -> Any:
    """Return 63 random bits, as an int64, that belong to a seed and two numbers, such as a level
    and a node.
    """
    state = np.uint64(0)
    for number in (seed, first, second):
        state = finalised((state ^ np.uint64(number)) + GOLDEN)
    return np.int64(state >> _U1)


@kernel
def draw(rows: Array, count: int, state: int) -> Array:
    """Return ``count`` different ones of ``rows`` in random order (the first steps of a
    Fisher-Yates shuffle).
    """
    pool = rows.copy()
    for at in range(min(count, len(pool))):
        other = at + random_bits(state, 1, at) % (len(pool) - at)
        pool[at], pool[other] = pool[other], pool[at]
    return pool[:count]
