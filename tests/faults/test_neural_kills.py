"""Killed with −9 at random moments, the training of a network goes on from its checkpoint and gives the same bytes."""

from __future__ import annotations

import os
from functools import partial

import kill_training
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


import longtail as lt
from longtail.methods import configure
from longtail.training_run import train_to_folder
from tiny_encoder import write_encoder

KILLS = 6


def training(encoder, folder, method, resume):
    documents, valid = (part.take(np.arange(150)) for part in lt.sample())
    settings = {
        "encoder": {"name": str(encoder), "max_tokens": 24},
        "training": {"epochs": 2, "batch_size": 8, "checkpoint_steps": 6},
    }
    # one thread: those of torch would not be there after a fork
    train_to_folder(documents, folder, configure(method, None, settings), valid=valid, resume=resume, threads=1)
    folder.with_name(f"{folder.name}.run.jsonl").unlink()  # the log tells of times, which no two runs share


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it has forked")
@pytest.mark.parametrize("method", ["cascadexml", "xr-transformer"])
def test_the_same_bytes_after_kills(tmp_path, monkeypatch, one_thread, method):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # its threads would not be there after a fork
    encoder = write_encoder(tmp_path / "encoder", lt.sample()[0].texts.take(np.arange(150)), vocabulary=500)
    monkeypatch.setattr(kill_training, "training", partial(training, encoder))
    killed, completed = kill_training.run(tmp_path, kills=KILLS, seed=3, method=method)
    assert killed == KILLS
    assert completed >= 1
