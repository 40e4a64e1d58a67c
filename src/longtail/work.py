"""Stages of one training run: made, or taken over from a run that was interrupted; and what they say of themselves."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from longtail import __version__, progress, run_loggers
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.kernels import pool
from longtail.store import Stages, content_hash

__all__ = ["StageTime", "Work", "read_stage_times", "run_log", "stages_told_to", "told"]

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


class StageTime(msgspec.Struct, frozen=True):
    """A stage of training: its seconds, the most memory of the process until its end, and what it gave."""

    name: str
    seconds: float
    memory_mb: float
    facts: str = ""


class _StageEvent(StageTime, frozen=True, kw_only=True, tag_field="event", tag="stage"):
    """The line of a stage in a run log, where networks write theirs, too."""

    step: int = 0


_told_to: ContextVar[Path | None] = ContextVar("_told_to", default=None)


@contextmanager
def told(stage: str) -> Iterator[Callable[[str], None]]:
    """Log what a stage of training gave, with its seconds; inside of :func:`stages_told_to` in the run log as well."""
    begin, facts = time.perf_counter(), list[str]()
    with run_loggers.part(stage):
        yield facts.append
    seconds = time.perf_counter() - begin
    run_loggers.tell("seconds", 0, {stage: seconds})
    log.info("%s: %s (%.1f s)", stage, "; ".join(facts), seconds)
    if (file := _told_to.get()) is not None:
        _append(file, _StageEvent(stage, round(seconds, 3), round(progress.peak_memory_mb(), 1), "; ".join(facts)))


@contextmanager
def stages_told_to(file: Path) -> Iterator[None]:
    """Add a line to ``file`` for every stage that is told of in the body."""
    token = _told_to.set(file)
    try:
        yield
    finally:
        _told_to.reset(token)


def _append(file: Path, event: _StageEvent) -> None:
    """Add a line; one that was killed in the middle of a line ends there."""
    with open(file, "a+b") as opened:
        if opened.tell():
            opened.seek(-1, os.SEEK_END)
            opened.write(b"" if opened.read() == b"\n" else b"\n")
        opened.write(msgspec.json.encode(event) + b"\n")


def run_log(model_folder: Path) -> Path:
    """Return the file beside a model folder where its training tells of itself, a JSON object a line."""
    place = model_folder.resolve()
    return place.with_name(f"{place.name}.run.jsonl")


def read_stage_times(file: Path) -> list[StageTime]:
    """Return the stages of a run log, in order; those of one name (trees, a resumed run) as one with all seconds."""
    if not file.is_file():
        return []
    stages: dict[str, StageTime] = {}
    for line in file.read_bytes().splitlines():
        try:
            event = msgspec.json.decode(line, type=_StageEvent)
        except msgspec.DecodeError:  # another event, or half a line
            continue
        seconds = event.seconds + (stages[event.name].seconds if event.name in stages else 0)
        stages[event.name] = StageTime(event.name, seconds, event.memory_mb, event.facts)
    return list(stages.values())
