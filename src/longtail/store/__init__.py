"""Model folders, and the stages of training: written atomically, verified before they are trusted.

A model folder is a ``manifest.json`` (format version, producer, config hash, size and SHA-256 of
each file) and the files it lists, nothing else. This package knows files, arrays and JSON, never
what they mean.

    with store.write_folder("model", config_hash=store.content_hash(config)) as folder:
        folder.write_json("config.json", config)
        folder.write_arrays("tree.safetensors", {"parents": parents})
    folder = store.open_folder("model")
    parents = folder.arrays("tree.safetensors")["parents"]    # memory-mapped, read-only

At every instant a reader finds the older folder complete or the newer one complete, and what it has
opened stays readable when the folder is replaced."""

from __future__ import annotations

from longtail.store.hashing import content_hash
from longtail.store.manifest import FileEntry, Manifest
from longtail.store.reading import Folder, open_folder
from longtail.store.stages import RunFolder, StageAddress, Stages
from longtail.store.writing import (
    FolderWriter,
    check_replaceable,
    clear_leftovers,
    holds_a_model,
    write_folder,
)

__all__ = [
    "FileEntry",
    "Folder",
    "FolderWriter",
    "Manifest",
    "RunFolder",
    "StageAddress",
    "Stages",
    "check_replaceable",
    "clear_leftovers",
    "content_hash",
    "holds_a_model",
    "open_folder",
    "write_folder",
]
