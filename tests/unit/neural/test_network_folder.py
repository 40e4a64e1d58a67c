"""What is said of a network that cannot be read."""

import pytest
import torch

from longtail.config import Config
from longtail.errors import ModelFolderError, UsageError
from longtail.neural import network_folder
from longtail.store import open_folder, write_folder


def wrapped(cause):
    error = UsageError("encoder 'x': transformers cannot read it")
    error.__cause__ = cause
    return error


@pytest.fixture
def folder(tmp_path):
    with write_folder(tmp_path / "model") as writer:
        writer.path("encoder").mkdir()
        writer.write_bytes("encoder/config.json", b"{}")
    return open_folder(tmp_path / "model")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
        wrapped(RuntimeError("DefaultCPUAllocator: can't allocate memory")),
    ],
)
def test_want_of_memory_is_no_damage(folder, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(network_folder, "_load", fail)
    with pytest.raises(ModelFolderError, match=r"^network: not enough memory to load it; use a larger machine"):
        network_folder.load_network(folder, Config(), "cpu")


def test_damage_is_called_so(folder, monkeypatch):
    def fail(*_):
        raise wrapped(RuntimeError("size mismatch"))

    monkeypatch.setattr(network_folder, "_load", fail)
    with pytest.raises(ModelFolderError, match="transformers cannot read it; train the model again, or get another"):
        network_folder.load_network(folder, Config(), "cpu")
