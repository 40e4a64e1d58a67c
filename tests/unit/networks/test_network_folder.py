"""Networks in model folders: the family that is stored, and errors of those that cannot be read."""

import json

import make_golden as golden
import pytest
import torch

import longtail as lt
from longtail.config import Config
from longtail.errors import ModelFolderError, UsageError
from longtail.networks import network_folder
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
    with pytest.raises(
        ModelFolderError, match=r"^network: not enough memory to load it; use a larger machine"
    ):
        network_folder.load_network(folder, Config(), "cpu")


def test_damage_is_called_so(folder, monkeypatch):
    def fail(*_):
        raise wrapped(RuntimeError("size mismatch"))

    monkeypatch.setattr(network_folder, "_load", fail)
    with pytest.raises(
        ModelFolderError, match="transformers cannot read it; train the model again, or get another"
    ):
        network_folder.load_network(folder, Config(), "cpu")


FAMILIES = {
    "cascadexml": ("cascade", True),
    "astec": ("cascade", True),
    "attentionxml": ("attention", True),
    "xr-transformer": ("encoder", False),
}


class TestFamilies:
    @pytest.mark.parametrize("method", FAMILIES)
    def test_are_told_by_the_files_of_earlier_folders_and_stored_in_those_of_now(
        self, method, tmp_path
    ):
        family, ranks = FAMILIES[method]
        before = golden.unpack(golden.MODELS, method, tmp_path)
        assert not (before / "network.json").exists()
        network = lt.load(before, device="cpu").model.network
        assert network.network.family == family
        assert (network.ranker is network) == ranks
        lt.load(before, device="cpu").save(tmp_path / "again")
        assert json.loads((tmp_path / "again" / "network.json").read_text()) == {"family": family}
        again = lt.load(tmp_path / "again", device="cpu").model.network
        assert (type(again), again.network.family) == (type(network), family)

    def test_an_unknown_family_is_refused_by_name(self, folder, tmp_path):
        with write_folder(tmp_path / "other") as writer:
            writer.path("encoder").mkdir()
            writer.write_bytes("encoder/config.json", b"{}")
            writer.write_json("network.json", {"family": "forest"})
        expected = r"^network.json: found the family 'forest'; expected one of encoder, label-vectors, cascade, "
        with pytest.raises(ModelFolderError, match=expected):
            network_folder.load_network(open_folder(tmp_path / "other"), Config(), "cpu")

    def test_the_name_counts_and_not_the_files(self, tmp_path):
        """Files of AttentionXML under the name of another family are no network of that family."""
        place = golden.unpack(golden.MODELS, "attentionxml", tmp_path)
        known = open_folder(place)
        with write_folder(tmp_path / "named") as writer:
            for name in known.files:
                writer.write_bytes(name, known.read_bytes(name))
            writer.write_json("network.json", {"family": "cascade"})
        with pytest.raises(ModelFolderError, match="head-0"):
            lt.load(tmp_path / "named", device="cpu")
