"""The files of a model folder that are shards of the labels' weights; opening a folder to read some
of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from longtail.errors import UsageError
from longtail.search.shards import checked_shards
from longtail.store import Folder, open_folder
from longtail.store.reading import Verify

__all__ = ["open_model_folder", "shard_file", "shard_files"]

_SHARD = re.compile(r"ranker-(\d+)-(\d+)-shard-(\d+)\.safetensors")


def shard_file(ranker: str, number: int) -> str:
    """Return the name of the file of a shard; ``ranker`` is that of the level without an ending."""
    return f"{ranker}-shard-{number}.safetensors"


def open_model_folder(
    path: str | Path, shards: Collection[int] | None = None, verify: Verify = True
) -> Folder:
    """Open a model folder to read these shards alone (None: all); the files of others may be
    missing.

    UsageError for a shard that the model does not have.
    """

    def held_elsewhere(name: str) -> bool:
        match = _SHARD.fullmatch(name)
        return shards is not None and match is not None and int(match[3]) not in shards

    folder = open_folder(path, verify, held_elsewhere)
    if shards is not None:
        numbers = {
            int(match[3]) for match in map(_SHARD.fullmatch, folder.files) if match is not None
        }
        if not numbers:
            way_out = "train a model with ranker.shard_labels, or leave them out"
            raise UsageError(f"{path}: is not in shards, as no ensemble is; {way_out}")
        checked_shards(shards, max(numbers) + 1)
    return folder


def shard_files(folder: Folder) -> dict[str, int]:
    """Return the number of labels of each shard that a folder holds, by the name of its file, in
    order.
    """
    matches = [
        match
        for match in map(_SHARD.fullmatch, folder.files)
        if match is not None and folder.holds(match[0])
    ]
    matches.sort(key=lambda match: [int(number) for number in match.groups()])
    return {match[0]: len(folder.arrays(match[0])["bias"]) for match in matches}
