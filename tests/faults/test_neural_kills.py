"""Killed with −9 or asked to stop at random moments, a network goes on from its checkpoint and
gives the same bytes.
"""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from kill_training import run
from trainings import training

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="interrupts processes that it has forked"
)
STOPS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize(
    ("method", "times", "signals"),
    [
        ("cascadexml", 6, [signal.SIGKILL]),
        ("xr-transformer", 5, [signal.SIGKILL]),
        ("inceptionxml-lf", 4, [signal.SIGKILL]),
        ("cascadexml", 4, STOPS),
    ],
)
def test_the_same_bytes_after_interruptions(
    tmp_path, monkeypatch, one_thread, method, times, signals
):
    monkeypatch.setenv(
        "TOKENIZERS_PARALLELISM", "false"
    )  # its threads would not be there after a fork
    done = run(tmp_path, training(method, tmp_path / "data"), times, seed=3, signals=signals)
    assert done.interrupted == times
    assert done.completed >= 1
