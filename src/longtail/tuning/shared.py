"""Stages that trials share: features, label graphs and trees made with the same settings are made
once.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from longtail import __version__
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.steps.work import dataset_content
from longtail.store import Folder, FolderWriter, Stages, content_hash

__all__ = ["SharedStages"]

_KEPT = 6  # versions of one stage, the last used ones


class SharedStages(Stages):
    """The stages of one trial after another on the same documents.

    A stage is reused where its key is the same: its inputs are what this trial has. Small stages
    are kept in several versions, under names with a part of their key. Of any other stage the next
    trial with another key replaces it.
    """

    def __init__(self, path: str | Path, documents: Dataset, share: bool = True) -> None:
        super().__init__(path)
        self.reused: list[str] = []  # stages of this trial that another had made
        self._documents = documents
        self._share = share
        self._config = Config()
        self._written = set[str]()  # stages of this trial

    def hash_with(self, other: Dataset | None) -> str:
        """Return a hash of the documents, and of others beside them."""
        datasets = [self._documents] if other is None else [self._documents, other]
        return content_hash(__version__, *map(dataset_content, datasets))

    def begin(self, config: Config) -> None:
        """Let the stages be those of a trial with these settings."""
        self._config = config
        self.reused = []
        self._written = set()

    def get(self, name: str, key: str, versions: bool = False) -> Folder | None:
        """Return the stage if it was made from the same inputs."""
        address, key = self._address(name, key, versions)
        folder = super().get(address, key)
        if folder is not None and address not in self._written:
            self.reused += [name] if name not in self.reused else []
            os.utime(self.root / address)
        return folder

    def write(
        self, name: str, key: str, versions: bool = False
    ) -> AbstractContextManager[FolderWriter]:
        """Return the ``write_folder`` of a stage; delete its version that was not used for longest
        if there are many.
        """
        address, key = self._address(name, key, versions)
        if address != name:
            old = sorted(self._versions(name), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in old[_KEPT - 1 :]:
                shutil.rmtree(path)
        self._written.add(address)
        return super().write(address, key)

    def _versions(self, name: str) -> list[Path]:
        pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}")
        return [path for path in self.root.iterdir() if pattern.fullmatch(path.name)]

    def _address(self, name: str, key: str, versions: bool) -> tuple[str, str]:
        """Return the name of the folder of a stage, and its key."""
        if not self._share:  # a stage belongs to all settings of its trial
            return name, content_hash(key, self._config)
        if versions:
            return f"{name}-{key[:16]}", key
        return name, key
