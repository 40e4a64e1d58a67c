"""Stages of one training run: made, or taken over from a run that was interrupted; and what they say of themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from longtail import __version__
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.store import Stages, content_hash

__all__ = ["Work", "told"]

log = logging.getLogger("longtail")

_FILE = "arrays.safetensors"
# settings of training that may change between a run and its resumption
_WITHOUT_EFFECT = {"micro_batch": 0, "checkpoint_steps": 0, "compile": False, "tensorboard": ""}


@dataclass(frozen=True)
class Work:
    """Where finished stages are kept, if anywhere; ``input_hash`` stands for all that they are made from."""

    stages: Stages | None
    input_hash: str

    @classmethod
    def begin(cls, stages: Stages | None, config: Config, *inputs: object) -> Work:
        """Return the work whose stages are made by ``config`` from ``inputs``: datasets, or what JSON can say."""
        if stages is None:
            return cls(None, "")
        config = replace(config, training=replace(config.training, **_WITHOUT_EFFECT))
        contents = [_content(value) if isinstance(value, Dataset) else value for value in inputs]
        return cls(stages, content_hash(__version__, config, *contents))

    def arrays(self, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the arrays of the stage ``name``, and keep them when they had to be made."""
        if self.stages is None:
            return make()
        folder = self.stages.get(name, self.input_hash)
        if folder is not None:
            log.info("stage %s: taken over from the interrupted run", name)
            return {key: np.array(array) for key, array in folder.arrays(_FILE).items()}  # kernels want them writable
        arrays = make()
        with self.stages.write(name, self.input_hash) as writer:
            writer.write_arrays(_FILE, arrays)
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
