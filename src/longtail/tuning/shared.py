"""Stages that trials share: features, label graphs and trees made with the same settings are made
once.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from longtail.config import Calibration, Config, Search
from longtail.data.dataset import Dataset
from longtail.methods import network_of, uses_encoder
from longtail.networks.fitting import encoder_hash, with_levels
from longtail.rankers.level_problems import uses_matcher
from longtail.steps.work import Work
from longtail.store import Folder, FolderWriter, Stages, content_hash

__all__ = ["SharedStages"]

_KEPT = 6  # stages of one name with different settings, the last used ones


class SharedStages(Stages):
    """The stages of one trial after another on the same documents.

    A stage that only some settings decide is kept under a name with their hash, for all trials; any
    other belongs to the trial that runs, so that it can be resumed, and the next one replaces it.
    """

    def __init__(self, path: str | Path, documents: Dataset, share: bool = True) -> None:
        super().__init__(path)
        self.reused: list[str] = []  # stages of this trial that another had made
        self._documents = documents
        self._share = share
        self._data = self.hash_with(None)
        self._config = Config()
        self._own: set[str] = set()

    def hash_with(self, other: Dataset | None) -> str:
        """Return a hash of the documents, and of others beside them."""
        return Work.begin(self, Config(), self._documents, other).input_hash

    def begin(self, config: Config) -> None:
        """Let the stages be those of a trial with these settings."""
        self._config = config
        self.reused = []
        self._own = set()

    def get(self, name: str, input_hash: str) -> Folder | None:
        """Return the stage if it was made with the same settings, as far as they matter to it."""
        place, key = self._keyed(name, input_hash)
        found = super().get(place, key)
        if found is not None and place not in self._own:
            self.reused += [name] if name not in self.reused else []
            os.utime(self.root / place)
        return found

    def write(self, name: str, input_hash: str) -> AbstractContextManager[FolderWriter]:
        """Return the ``write_folder`` of a stage; of those of this name that were not used for
        long, one goes.
        """
        place, key = self._keyed(name, input_hash)
        if place != name:
            old = sorted(self._like(name), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in old[_KEPT - 1 :]:
                shutil.rmtree(path)
        self._own.add(place)
        return super().write(place, key)

    def _like(self, name: str) -> list[Path]:
        pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}")
        return [path for path in self.root.iterdir() if pattern.fullmatch(path.name)]

    def _keyed(self, name: str, input_hash: str) -> tuple[str, str]:
        """Return the place of a stage, and the hash of all that it is made from."""
        if not self._share:
            return name, input_hash
        decide = next((own for pattern, own in _DECIDE if re.fullmatch(pattern, name)), None)
        parts = None if decide is None else decide(self._config, self._documents)
        if parts is not None:
            key = content_hash(self._data, name, parts)
            return f"{name}-{key[:16]}", key
        if uses_encoder(self._config):
            return name, input_hash
        return name, content_hash(self._data, _without_search(self._config))


def _without_search(config: Config) -> Config:
    """Return the settings that linear rankers are trained by: the search counts where it finds
    their negatives.
    """
    search = config.search if uses_matcher(config.ranker) else Search()
    return replace(config, search=search, calibration=Calibration())


def _points(config: Config) -> Any:
    """Return what decides which documents are trained on."""
    if config.gandalf.use:
        return [config.gandalf, _graph(config)]
    return None


def _graph(config: Config) -> Any:
    return [replace(config.label_features, kind="pifa", graph_features=1), config.seed]


def _features(config: Config, documents: Dataset) -> Any:
    return [config.tfidf, config.normalise_features, _points(config)]


def _label_graph(config: Config, documents: Dataset) -> Any:
    return _graph(config)


def _tree(config: Config, documents: Dataset) -> Any:
    if uses_encoder(config):  # its labels look like vectors that a network gives
        return None
    return [_features(config, documents), config.label_features, config.tree, config.seed]


def _network_tree(config: Config, documents: Dataset) -> Any:
    levels = with_levels(config, documents.n_labels).tree
    return [_features(config, documents), config.label_features, levels, config.seed]


def _tokens(config: Config, documents: Dataset) -> Any:
    read = replace(config.encoder, weight=1.0, width=1, pooling="auto")
    return [read, encoder_hash(config), _points(config)]


def _embeddings(config: Config, documents: Dataset) -> Any:
    if network_of(config) is not None:  # trained anew
        return None
    return [
        replace(config.encoder, weight=1.0),
        config.training.precision,
        encoder_hash(config),
        _points(config),
    ]


def _centroids(config: Config, documents: Dataset) -> Any:
    if uses_encoder(config):
        return None
    return _features(config, documents)


def _document_graph(config: Config, documents: Dataset) -> Any:
    return [config.neighbours.graph_neighbours, config.seed, _points(config)]


# which settings decide a stage, by its name; none of the function: all settings do
_DECIDE: tuple[tuple[str, Callable[[Config, Dataset], Any]], ...] = (
    ("features", _features),
    ("label-graph", _label_graph),
    (r"tree-\d+", _tree),
    ("tree-network", _network_tree),
    ("tokens", _tokens),
    ("embeddings", _embeddings),
    ("centroids", _centroids),
    ("document-graph", _document_graph),
)
