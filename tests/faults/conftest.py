"""Fixtures of the tests of model folders, and of trainings."""

from __future__ import annotations

import os

import pytest
from saved_folders import save
from trainings import training

from folder_contents import contents
from longtail.store import durable


@pytest.fixture
def no_waiting_for_the_disk(monkeypatch):
    """Whether fsync is called is tested; what it does is the disk's business, and slow."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def model(tmp_path, no_waiting_for_the_disk):
    save(tmp_path / "model", 1)
    return tmp_path / "model"


@pytest.fixture(params=["exchange", "aside"])
def renaming(request, monkeypatch):
    if request.param == "aside":
        monkeypatch.setattr(durable, "_exchange", lambda one, other: False)
    return request.param


@pytest.fixture(params=["xr-linear", "cascadexml"])
def trained(request, tmp_path, monkeypatch):
    """A training, and a model of it with the bytes that it must have."""
    if request.param == "cascadexml":
        pytest.importorskip("transformers")
        request.getfixturevalue("one_thread")
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    member = training(request.param, tmp_path / "data")
    member.whole(tmp_path / "whole")
    return member, contents(tmp_path / "whole")
