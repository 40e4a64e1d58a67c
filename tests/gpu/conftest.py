"""Tests that run on the real device: without one they say so."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def device():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
