"""Kernels that run uncompiled (NUMBA_DISABLE_JIT=1) wrap around silently, as compiled ones do."""

import numpy as np
import pytest
from numba import config


@pytest.fixture(autouse=True)
def wrapping_numbers():
    """Let hashes and random bits wrap around on purpose: numpy warns of it in scalars, numba does
    not.
    """
    with np.errstate(over="ignore" if config.DISABLE_JIT else "warn"):
        yield
