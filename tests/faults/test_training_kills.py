"""Killed with −9 at random moments, training goes on and gives the same bytes."""

from __future__ import annotations

import os

import pytest
from kill_training import run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it has forked")
def test_the_same_bytes_after_twenty_kills(tmp_path):
    killed, completed = run(tmp_path, kills=20, seed=0)
    assert killed == 20
    assert completed >= 1
