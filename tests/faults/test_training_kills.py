"""Killed with −9 or asked to stop at random moments, training goes on and gives the same bytes."""

from __future__ import annotations

import os
import signal

import pytest
from kill_training import run
from trainings import here, training

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="interrupts processes that it has forked"
)


def test_the_same_bytes_after_twenty_kills(tmp_path):
    done = run(tmp_path, training("xr-linear", tmp_path / "data"), 20, seed=0)
    assert done.interrupted == 20
    assert done.completed >= 1


def test_the_same_bytes_after_ctrl_c_and_sigterm(tmp_path):
    done = run(
        tmp_path,
        training("pfastrexml", tmp_path / "data"),
        8,
        seed=1,
        signals=[signal.SIGTERM, signal.SIGINT],
    )
    assert done.interrupted == 8
    assert done.completed >= 1


@pytest.mark.parametrize(("stop", "code"), [(SystemExit(143), 143), (KeyboardInterrupt(), 130)])
def test_a_signal_that_a_library_has_wrapped_is_still_one(tmp_path, monkeypatch, stop, code):
    """As numba's unpickling does: a SystemError, which says that there was an exception."""

    def wrapped(*_, **__):
        raise SystemError("returned a result with an exception set") from SystemError("once more")

    def stopped(*_, **__):
        try:
            wrapped()
        except SystemError as error:
            error.__cause__.__cause__ = stop
            raise

    monkeypatch.setattr("longtail.training_run.train", stopped)
    ended = here(
        training("xr-linear", tmp_path / "data").arguments(tmp_path / "model"), tmp_path / "said"
    )
    assert ended.code == code
    assert "go on with --resume" in ended.said
    monkeypatch.setattr("longtail.training_run.train", wrapped)
    with pytest.raises(SystemError):
        here(
            training("xr-linear", tmp_path / "data").arguments(tmp_path / "model"),
            tmp_path / "said",
        )
