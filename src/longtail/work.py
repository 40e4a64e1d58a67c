"""Stages of one training run: made, or taken over from a run that was interrupted; and what they say of themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from longtail import __version__, progress
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.kernels import pool
from longtail.store import Stages, content_hash

__all__ = ["Work", "told"]

Arrays = dict[str, np.ndarray]
T = TypeVar("T")

log = logging.getLogger("longtail")

_FILE = "arrays.safetensors"
# settings of training that may change between a run and its resumption
_WITHOUT_EFFECT = {"micro_batch": 0, "checkpoint_steps": 0, "compile": False, "tensorboard": ""}


@dataclass(frozen=True)
class Work:
    """Where finished stages are kept, if anywhere; ``input_hash`` stands for all that they are made from."""

    stages: Stages | None
    input_hash: str
    made: set[str] = field(default_factory=set)  # stages of this very run

    @classmethod
    def begin(cls, stages: Stages | None, config: Config, *inputs: object) -> Work:
        """Return the work whose stages are made by ``config`` from ``inputs``: datasets, or what JSON can say."""
        if stages is None:
            return cls(None, "")
        neighbours = replace(config.neighbours, index="exact", voters=1)  # of use after training
        config = replace(config, training=replace(config.training, **_WITHOUT_EFFECT), neighbours=neighbours)
        contents = [_content(value) if isinstance(value, Dataset) else value for value in inputs]
        return cls(stages, content_hash(__version__, config, *contents))

    def arrays(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of the stage ``name``, and keep them when they had to be made."""
        stored = self._stored(name)
        return self._kept(name, make()) if stored is None else stored

    def each(self, name: str, make: Callable[[T], Arrays], items: Iterable[T], unit: str) -> list[Arrays]:
        """Return the arrays of one stage an item; those that are missing are made on threads."""
        numbered = {f"{name}-{number}": item for number, item in enumerate(items)}
        found = {own: self._stored(own) for own in numbered}
        missing = [own for own, arrays in found.items() if arrays is None]
        with progress.stage(name, len(missing), unit):
            for own, arrays in zip(missing, pool.run(lambda own: make(numbered[own]), missing), strict=True):
                found[own] = self._kept(own, arrays)
                progress.advance(1)
        return [arrays for arrays in found.values() if arrays is not None]

    def _stored(self, name: str) -> Arrays | None:
        folder = None if self.stages is None else self.stages.get(name, self.input_hash)
        if folder is None:
            return None
        if name not in self.made:
            log.info("stage %s: taken over from the interrupted run", name)
        return {key: np.array(array) for key, array in folder.arrays(_FILE).items()}  # kernels want them writable

    def _kept(self, name: str, arrays: Arrays) -> Arrays:
        if self.stages is not None:
            with self.stages.write(name, self.input_hash) as writer:
                writer.write_arrays(_FILE, arrays)
            self.made.add(name)
        return arrays


def _content(documents: Dataset) -> Sequence[object]:
    """Return all of a dataset that training depends on."""
    labels = documents.labels
    strings = [documents.texts, labels.ids, labels.names, labels.texts]
    matrices = [documents.label_matrix, documents.features, documents.label_features, documents.dense]
    packed = [None if column is None else [column.packed().arena, column.lengths] for column in strings]
    return packed, matrices


@contextmanager
def told(stage: str) -> Iterator[Callable[[str], None]]:
    """Log what a stage of training gave, with its seconds."""
    begin, facts = time.perf_counter(), list[str]()
    yield facts.append
    log.info("%s: %s (%.1f s)", stage, "; ".join(facts), time.perf_counter() - begin)
