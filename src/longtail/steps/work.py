"""Stages of one training run: made, or taken over from a run that was interrupted."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from longtail import __version__, reporting
from longtail.config import Config
from longtail.config.stage import Stage
from longtail.data.dataset import Dataset
from longtail.errors import ModelFolderError, UsageError
from longtail.kernels import pool
from longtail.steps.inputs import DOCUMENTS, EVERYTHING, Inputs
from longtail.steps.process_group import current_group, lookup_by_first
from longtail.store import RunFolder, StageAddress, Stages, content_hash
from longtail.store.stages import looks

__all__ = ["Work", "dataset_content"]

Arrays = dict[str, np.ndarray]
T = TypeVar("T")

log = logging.getLogger("longtail")

_FILE = "arrays.safetensors"
_ROUNDS = "rounds"  # those completed, beside the arrays of a stage that is made in rounds
_OF_EVERY_STAGE = frozenset({"method", DOCUMENTS})


@dataclass(frozen=True)
class Work:
    """The stages of one training run; without ``stages`` every result is made and none is kept.

    ``values`` are those of all inputs: settings by path, and hashes of data.
    """

    stages: Stages | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    # stages of this very run, and those that it has taken over
    made: set[str] = field(default_factory=set)
    # those in memory that several steps ask for
    held: dict[str, Arrays] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, stages: Stages | None, config: Config, data: Mapping[str, object] | None = None
    ) -> Work:
        """Return the work of a run with the settings ``config``.

        Args:
            stages: the folder of the stages, if they are kept.
            config: resolved settings.
            data: datasets, or what JSON can say, by the names in ``steps/inputs.py``.
        """
        if stages is None:
            return cls()
        values: dict[str, object] = {}
        for setting in Config.__struct_fields__:
            value = getattr(config, setting)
            if isinstance(value, Stage):
                values |= {
                    f"{setting}.{name}": getattr(value, name) for name in value.__struct_fields__
                }
            else:
                values[setting] = value
        for name, content in (data or {}).items():
            if isinstance(content, Dataset):
                content = dataset_content(content)
            values[name] = content_hash(content)
        return cls(stages, values)

    def key(self, inputs: Inputs) -> str:
        """Return the key of a stage: a hash of the values of its inputs."""
        if self.stages is None:
            return ""
        names = sorted(inputs | _OF_EVERY_STAGE)
        return content_hash(__version__, [[name, self.values.get(name)] for name in names])

    def arrays(
        self,
        name: str,
        make: Callable[[], Arrays],
        inputs: Inputs = EVERYTHING,
        *,
        hold: bool = False,
        versions: bool = False,
    ) -> Arrays:
        """Return the arrays of a stage, and keep them when they had to be made.

        Of several ranks the first one makes them; the others wait for it, and read them.

        Args:
            name: of the stage.
            make: makes the arrays.
            inputs: what they are made from.
            hold: for a stage that several steps ask for: it stays in memory, and is made once also
                where no stages are kept.
            versions: for a small stage: the trials of a study keep it with several values of its
                inputs.
        """
        if hold and name in self.held:
            return self.held[name]
        group = current_group()
        stage = StageAddress(name, self.key(inputs), versions)
        if not group.is_first:
            group.wait_for(name)
        stored = self._stored(stage)
        arrays = self._kept(stage, make()) if stored is None else stored
        if group.is_first:
            group.announce(name)
        if hold:
            self.held[name] = arrays
        return arrays

    def joint_stage(self, name: str, inputs: Inputs = EVERYTHING) -> Arrays | None:
        """Return the arrays of a stage that all ranks make at once; None if it is to be made.

        With several ranks they are memory-mapped, so that each can take what is its own.
        """
        group = current_group()
        stages = self.stages
        stage = StageAddress(name, self.key(inputs))
        if group.size == 1 or stages is None:
            return self._stored(stage)
        folder = lookup_by_first(group, partial(stages.get, *stage))
        if folder is None:
            return None
        return folder.arrays(_FILE)

    def keep_joint_stage(self, name: str, arrays: Arrays, inputs: Inputs = EVERYTHING) -> Arrays:
        """Keep the arrays of a stage that all ranks have made at once, whole at the first one, and
        return them as :meth:`joint_stage` does.
        """
        group = current_group()
        stage = StageAddress(name, self.key(inputs))
        if group.is_first:
            self._kept(stage, arrays)
        if group.size == 1 or self.stages is None:
            return arrays
        group.barrier()
        folder = self.stages.get(*stage)
        assert folder is not None  # it was made just now
        return folder.arrays(_FILE)

    def rounds(
        self,
        name: str,
        make: Callable[[Arrays | None, int], Arrays],
        count: int,
        inputs: Inputs = EVERYTHING,
    ) -> Arrays:
        """Return the arrays of a stage that is made in rounds, kept after each in the place of the
        round before.

        Args:
            name: of the stage.
            make: makes the arrays of a round from those of the one before (None: there is none),
                which it may change, and the number of the round, from 0.
            count: rounds.
            inputs: what the arrays are made from.
        """
        stage = StageAddress(name, self.key(inputs))
        arrays = self._stored(stage)
        completed = 0
        if arrays is not None:
            completed = int(arrays.pop(_ROUNDS)[0])
        for number in range(completed, count):
            arrays = make(arrays, number)
            self._kept(stage, {**arrays, _ROUNDS: np.array([number + 1])})
        assert arrays is not None  # count is at least 1
        return arrays

    def each(
        self,
        name: str,
        make: Callable[[T], Arrays],
        items: Iterable[T],
        unit: str,
        inputs: Inputs = EVERYTHING,
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
        key = self.key(inputs)
        numbered = {
            StageAddress(f"{name}-{number}", key): item for number, item in enumerate(items)
        }
        results = {stage: self._stored(stage, mapped) for stage in numbered}
        missing = {stage: numbered[stage] for stage, arrays in results.items() if arrays is None}
        with reporting.stage(name, len(missing), unit):
            for stage, arrays in self._made(make, missing, one_by_one, mapped):
                results[stage] = arrays
                reporting.advance(1)
        return [arrays for arrays in results.values() if arrays is not None]

    def _made(
        self,
        make: Callable[[T], Arrays],
        items: Mapping[StageAddress, T],
        one_by_one: bool,
        mapped: bool,
    ) -> Iterator[tuple[StageAddress, Arrays]]:
        """Yield the address and the arrays of each item, whose stage is written by then."""
        if pool.handed_over() and self.stages is not None:
            for stage in pool.spread(_write_stage, list(items.items()), make, self.stages.run):
                yield stage, self._arrived(stage, mapped)
        elif pool.handed_over():
            results = pool.spread(_call, list(items.values()), make)
            yield from zip(items, map(_writable, results), strict=True)
        else:
            run: Callable[..., Iterator[Arrays]] = map if one_by_one else pool.run
            for stage, arrays in zip(items, run(make, items.values()), strict=True):
                kept = self._kept(stage, arrays)
                yield stage, (self._stored(stage, mapped) if mapped else None) or kept

    def _arrived(self, stage: StageAddress, mapped: bool) -> Arrays:
        """Return the arrays of a stage that a worker has written to the storage that all machines
        share.
        """
        assert self.stages is not None
        path = self.stages.root / stage.name
        for _ in looks():
            if path.exists():
                break
        else:
            raise UsageError(
                f"{path}: a worker has written this stage, and it is not to be seen here; "
                "write the model to storage that all machines share"
            )
        self.made.add(stage.name)
        arrays = self._stored(stage, mapped)
        if arrays is None:
            raise ModelFolderError(
                f"{path}: is not what a worker has written; check the disk, then use --resume"
            )
        return arrays

    def _stored(self, stage: StageAddress, mapped: bool = False) -> Arrays | None:
        folder = None if self.stages is None else self.stages.get(*stage)
        if folder is None:
            return None
        if stage.name not in self.made:
            log.info("stage %s: taken over from the interrupted run", stage.name)
            self.made.add(stage.name)  # logged once, however often it is read
        if mapped:
            return folder.arrays(_FILE)
        return _writable(folder.arrays(_FILE))

    def _kept(self, stage: StageAddress, arrays: Arrays) -> Arrays:
        if self.stages is not None:
            with self.stages.write(*stage) as writer:
                writer.write_arrays(_FILE, arrays)
            self.made.add(stage.name)
        return arrays


def _write_stage(
    addressed: tuple[StageAddress, T], make: Callable[[T], Arrays], folder: RunFolder
) -> StageAddress:
    """Make an item and write its stage into the work folder of another process, which holds its
    lock.

    When that process has ended, and another run has begun or the folder was removed, nothing is
    made or written."""
    stage, item = addressed
    if not folder.root.is_dir():
        raise UsageError(
            f"{folder.root}: is not there on {socket.gethostname()}, which works for this run; "
            "write the model to storage that all machines share"
        )
    folder.check()  # now, not after minutes of work for a run that is over
    arrays = make(item)
    with folder.write(stage.name, stage.key) as writer:
        writer.write_arrays(_FILE, arrays)
    return stage


def _call(item: T, make: Callable[[T], Arrays]) -> Arrays:
    return make(item)


def _writable(arrays: Arrays) -> Arrays:
    """Return copies, as kernels want them."""
    return {key: np.array(array) for key, array in arrays.items()}


def dataset_content(documents: Dataset) -> Sequence[object]:
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
