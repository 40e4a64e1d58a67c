"""A small model folder whose every file says its version, and how one is refused."""

from __future__ import annotations

import numpy as np
import pytest

from longtail import store
from longtail.errors import ModelFolderError

FILES = [
    "config.json",
    "ranker.safetensors",
    "encoder/config.json",
    "encoder/vocab.txt",
    "manifest.json",
]


def save(path, version, rows=64):
    with store.write_folder(path, config_hash=str(version)) as folder:
        folder.write_json("config.json", {"version": version})
        folder.write_arrays(
            "ranker.safetensors", {"weights": np.full((rows, 8), version, np.float32)}
        )
        folder.write_bytes("encoder/config.json", b'{"version": %d}' % version)
        folder.path("encoder/vocab.txt").write_text(f"{version}\n")
        folder.write_bytes("empty", b"")


def version_of(path):
    """The one version that all files of the folder are of."""
    folder = store.open_folder(path)
    versions = {
        int(folder.manifest.config_hash),
        folder.read_json("config.json", dict[str, int])["version"],
    }
    versions |= set(folder.arrays("ranker.safetensors")["weights"].ravel().astype(int).tolist())
    versions |= {int(folder.read_bytes("encoder/vocab.txt"))}
    assert len(versions) == 1, versions
    return versions.pop()


def leftovers(path):
    return [folder.name for folder in path.parent.iterdir() if folder != path]


def refused(model, file, reason="."):
    with pytest.raises(ModelFolderError, match=reason) as caught:
        store.open_folder(model)
    assert caught.value.exit_code == 4
    message = str(caught.value)
    assert message.startswith(f"{model / file}: "), message
    assert "\n" not in message
    assert message.count("; ") >= 1, "no way out"
