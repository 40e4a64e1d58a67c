"""Stages of one training run: made, or taken over from a run that was interrupted."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from longtail import __version__, reporting
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.errors import ModelFolderError, UsageError
from longtail.kernels import pool
from longtail.steps.process_group import current_group, lookup_by_first
from longtail.store import RunFolder, Stages, content_hash
from longtail.store.stages import looks

__all__ = ["WITHOUT_EFFECT", "Work"]

Arrays = dict[str, np.ndarray]
T = TypeVar("T")

log = logging.getLogger("longtail")

_FILE = "arrays.safetensors"
# settings of training that may change between a run and its resumption
WITHOUT_EFFECT = {"micro_batch": 0, "checkpoint_steps": 0, "compile": False}


@dataclass(frozen=True)
class Work:
    """Where finished stages are kept, if anywhere; ``input_hash`` stands for all that they are made
    from.
    """

    stages: Stages | None
    input_hash: str
    # stages of this very run, and those that it has taken over
    made: set[str] = field(default_factory=set)
    # those in memory that several steps ask for
    held: dict[str, Arrays] = field(default_factory=dict)

    @classmethod
    def begin(cls, stages: Stages | None, config: Config, *inputs: object) -> Work:
        """Return the work whose stages are made by ``config`` from ``inputs``: datasets, or what
        JSON can say.
        """
        if stages is None:
            return cls(None, "")
        neighbours = replace(config.neighbours, index="exact", voters=1)  # of use after training
        config = replace(
            config, training=replace(config.training, **WITHOUT_EFFECT), neighbours=neighbours
        )
        contents = [_content(value) if isinstance(value, Dataset) else value for value in inputs]
        return cls(stages, content_hash(__version__, config, *contents))

    def arrays(self, name: str, make: Callable[[], Arrays], *, hold: bool = False) -> Arrays:
        """Return the arrays of the stage ``name``, and keep them when they had to be made.

        Of several ranks the first one makes them; the others wait for it, and read them. ``hold``
        is for a stage that
        several steps ask for: it stays in memory, and is made once also where no stages are kept.
        """
        if hold and name in self.held:
            return self.held[name]
        group = current_group()
        if not group.is_first:
            group.wait_for(name)
        stored = self._stored(name)
        arrays = self._kept(name, make()) if stored is None else stored
        if group.is_first:
            group.announce(name)
        if hold:
            self.held[name] = arrays
        return arrays

    def together(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of a stage that all ranks make at once, whole at the first one, which
        keeps them.

        With several ranks they are memory-mapped, so that each can take what is its own.
        """
        group = current_group()
        stages = self.stages
        if group.size == 1 or stages is None:
            return self.arrays(name, make)
        folder = lookup_by_first(group, lambda: stages.get(name, self.input_hash))
        if folder is None:
            arrays = make()
            if group.is_first:
                self._kept(name, arrays)
            group.barrier()
            folder = stages.get(name, self.input_hash)
        assert folder is not None  # it was made just now
        return folder.arrays(_FILE)

    def each(
        self,
        name: str,
        make: Callable[[T], Arrays],
        items: Iterable[T],
        unit: str,
        *,
        one_by_one: bool = False,
        mapped: bool = False,
    ) -> list[Arrays]:
        """Return the arrays of one stage an item; those that are missing are made, each on a thread
        of its own.

        ``one_by_one`` is for a ``make`` that uses all threads by itself. Where work is handed over,
        to what ``pool.handed_to`` says, each item is made, and its stage written, on one thread
        elsewhere. ``mapped`` leaves arrays in the files of their stages, read-only, so that not all
        are in memory at once."""
        numbered = {f"{name}-{number}": item for number, item in enumerate(items)}
        found = {own: self._stored(own, mapped) for own in numbered}
        missing = {own: numbered[own] for own, arrays in found.items() if arrays is None}
        with reporting.stage(name, len(missing), unit):
            for own, arrays in self._made(make, missing, one_by_one, mapped):
                found[own] = arrays
                reporting.advance(1)
        return [arrays for arrays in found.values() if arrays is not None]

    def _made(
        self, make: Callable[[T], Arrays], items: Mapping[str, T], one_by_one: bool, mapped: bool
    ) -> Iterator[tuple[str, Arrays]]:
        """Yield the name and the arrays of each item, whose stage is written by then."""
        if pool.handed_over() and self.stages is not None:
            for own in pool.spread(
                _write_stage, list(items.items()), make, self.stages.run, self.input_hash
            ):
                yield own, self._arrived(own, mapped)
        elif pool.handed_over():
            results = pool.spread(_call, list(items.values()), make)
            yield from zip(items, map(_writable, results), strict=True)
        else:
            run: Callable[..., Iterator[Arrays]] = map if one_by_one else pool.run
            for own, arrays in zip(items, run(make, items.values()), strict=True):
                kept = self._kept(own, arrays)
                yield own, (self._stored(own, mapped) if mapped else None) or kept

    def _arrived(self, name: str, mapped: bool) -> Arrays:
        """Return the arrays of a stage that a worker has written to the storage that all machines
        share.
        """
        assert self.stages is not None
        place = self.stages.root / name
        for _ in looks():
            if place.exists():
                break
        else:
            raise UsageError(
                f"{place}: a worker has written this stage, and it is not to be seen here; "
                "write the model to storage that all machines share"
            )
        self.made.add(name)
        arrays = self._stored(name, mapped)
        if arrays is None:
            raise ModelFolderError(
                f"{place}: is not what a worker has written; check the disk, then use --resume"
            )
        return arrays

    def _stored(self, name: str, mapped: bool = False) -> Arrays | None:
        folder = None if self.stages is None else self.stages.get(name, self.input_hash)
        if folder is None:
            return None
        if name not in self.made:
            log.info("stage %s: taken over from the interrupted run", name)
            self.made.add(name)  # said once, however often it is read
        if mapped:
            return folder.arrays(_FILE)
        return _writable(folder.arrays(_FILE))

    def _kept(self, name: str, arrays: Arrays) -> Arrays:
        if self.stages is not None:
            with self.stages.write(name, self.input_hash) as writer:
                writer.write_arrays(_FILE, arrays)
            self.made.add(name)
        return arrays


def _write_stage(
    named: tuple[str, T], make: Callable[[T], Arrays], folder: RunFolder, input_hash: str
) -> str:
    """Make an item and write its stage into the work folder of another process, which holds its
    lock.

    When that process has ended, and another run has begun or the folder was removed, nothing is
    made or written."""
    name, item = named
    if not folder.root.is_dir():
        raise UsageError(
            f"{folder.root}: is not there on {socket.gethostname()}, which works for this run; "
            "write the model to storage that all machines share"
        )
    folder.check()  # now, not after minutes of work for a run that is over
    arrays = make(item)
    with folder.write(name, input_hash) as writer:
        writer.write_arrays(_FILE, arrays)
    return name


def _call(item: T, make: Callable[[T], Arrays]) -> Arrays:
    return make(item)


def _writable(arrays: Arrays) -> Arrays:
    """Return copies, as kernels want them."""
    return {key: np.array(array) for key, array in arrays.items()}


def _content(documents: Dataset) -> Sequence[object]:
    """Return all of a dataset that training depends on."""
    labels = documents.labels
    strings = [documents.texts, labels.ids, labels.names, labels.texts]
    matrices = [
        documents.label_matrix,
        documents.features,
        documents.label_features,
        documents.dense,
    ]
    packed = [
        None if column is None else [column.packed().arena, column.lengths] for column in strings
    ]
    return packed, matrices
