"""Checkpoints of a run: weights, optimiser state and position, by which it goes on to the same
bytes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from longtail.steps.process_group import current_group, lookup_by_first
from longtail.store import Folder, Stages

__all__ = [
    "Checkpoints",
    "Epoch",
    "History",
    "State",
    "StopRequest",
    "Weights",
    "adamw_arrays",
    "stop_requests",
]

Arrays = Mapping[str, NDArray[Any]]

_ARRAYS = "arrays.safetensors"
_STATE = "state.json"
_NETWORK = "network."
_AVERAGE = "average."
_MOMENTS = ("exp_avg", "exp_avg_sq")


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one epoch; ``number`` counts from 1, ``rate`` is the encoder's at its end."""

    number: int
    losses: dict[str, float]  # mean over documents, by level
    samples_per_s: float
    seconds: float  # of training alone, without validation and checkpoints
    rate: float
    peak_gib: float
    valid: dict[str, float | None] = {}


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a run; ``best`` is the number of the best epoch on validation data, 0 without
    such data.
    """

    epochs: tuple[Epoch, ...] = ()
    best: int = 0
    best_value: float = 0.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The place in a run, after ``step`` optimiser steps, and what was summed up in the epoch so
    far.
    """

    epoch: int = 0  # counted from 0
    batch: int = 0  # batches of it that are done
    step: int = 0
    micro_batch: int = 0
    losses: dict[str, float] = {}  # sums over documents
    documents: int = 0
    seconds: float = 0.0
    history: History = History()


class Weights(Protocol):
    """A network as arrays; ``state`` adds what its own optimisers keep. Arrays to be loaded are
    read-only.
    """

    def to_arrays(self, state: bool = False) -> dict[str, NDArray[Any]]:
        """Return everything that was learnt."""

    def load_arrays(self, arrays: Arrays) -> None:
        """Take over what ``to_arrays`` gave, with or without ``state``."""


class Checkpoints:
    """The stages ``checkpoint-N`` (where the run is) and ``best-N`` (weights of the best epoch) of
    network N.

    Without ``stages`` nothing is written, and the best weights are kept in memory. Of several ranks
    the first one writes, whole arrays, so that another number of ranks can go on from them; all
    call these methods together."""

    def __init__(self, stages: Stages | None = None, key: str = "", number: int = 0) -> None:
        self._stages = stages
        self._key = key
        self._group = current_group()
        self._last = f"checkpoint-{number}"
        self._best = f"best-{number}"
        self._kept: dict[str, NDArray[Any]] | None = None
        self._folder: Folder | None = None

    @property
    def enabled(self) -> bool:
        """Whether anything is written."""
        return self._stages is not None

    def exists(self) -> bool:
        """Return whether there is a checkpoint of this input to go on from."""
        if self._folder is None:
            self._folder = self._get(self._last)  # kept: verifying reads all of it
        return self._folder is not None

    def save(
        self,
        network: Weights,
        optimiser: torch.optim.Optimizer,
        state: State,
        average: Weights | None = None,
    ) -> None:
        """Replace the checkpoint in one step: a run killed meanwhile finds the one before."""
        if self._stages is None:
            return
        arrays = _prefixed(_NETWORK, network.to_arrays(state=True)) | adamw_arrays(optimiser)
        if average is not None:
            arrays |= _prefixed(_AVERAGE, average.to_arrays())
        if self._group.is_first:
            with self._stages.write(self._last, self._key) as folder:
                folder.write_arrays(_ARRAYS, arrays)
                folder.write_json(_STATE, state)
        self._group.barrier()

    def restore(
        self, network: Weights, optimiser: torch.optim.Optimizer, average: Weights | None = None
    ) -> State | None:
        """Put all of them where the checkpoint has them; None if there is no checkpoint of this
        input.
        """
        folder = self._folder or self._get(self._last)
        self._folder = None
        if folder is None:
            return None
        arrays = folder.arrays(_ARRAYS)
        network.load_arrays(_without(_NETWORK, arrays))
        _load_adamw(optimiser, arrays)
        if average is not None:
            average.load_arrays(_without(_AVERAGE, arrays))
        return folder.read_json(_STATE, State)

    def save_best(self, network: Weights) -> None:
        """Keep the weights as the best so far."""
        arrays = network.to_arrays(state=False)
        if self._stages is None:
            # they may be views of the weights
            self._kept = {name: np.array(array) for name, array in arrays.items()}
            return
        if self._group.is_first:
            with self._stages.write(self._best, self._key) as folder:
                folder.write_arrays(_ARRAYS, arrays)
        self._group.barrier()

    def restore_best(self, network: Weights) -> None:
        """Put the weights of the best epoch back into the network."""
        kept = self._kept
        if self._stages is not None:
            folder = self._get(self._best)
            kept = None if folder is None else folder.arrays(_ARRAYS)
        if kept is not None:
            network.load_arrays(kept)

    def _get(self, name: str) -> Folder | None:
        if self._stages is None:
            return None
        return lookup_by_first(self._group, partial(self._stages.get, name, self._key))


def _prefixed(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {prefix + name: array for name, array in arrays.items()}


def _without(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def adamw_arrays(optimiser: torch.optim.Optimizer) -> dict[str, NDArray[Any]]:
    """Return the state of AdamW, parameters by their position in its groups; ``adamw.step``
    (parameters,) float32.
    """
    states = _states(optimiser)
    moments = {
        f"adamw.{at}.{name}": state[name].detach().cpu().numpy()
        for at, state in enumerate(states)
        for name in _MOMENTS
    }
    return moments | {
        "adamw.step": np.array([float(state["step"]) for state in states], np.float32)
    }


def _load_adamw(optimiser: torch.optim.Optimizer, arrays: Arrays) -> None:
    for at, state in enumerate(_states(optimiser)):
        for name in _MOMENTS:
            state[name].copy_(torch.tensor(arrays[f"adamw.{at}.{name}"]))
        state["step"].fill_(float(arrays["adamw.step"][at]))


def _states(optimiser: torch.optim.Optimizer) -> list[dict[str, torch.Tensor]]:
    return [
        optimiser.state[parameter]
        for group in optimiser.param_groups
        for parameter in group["params"]
    ]


class StopRequest:
    """A signal that asked the run to stop, if one came; handlers of before the run are kept
    meanwhile.
    """

    number: int | None = None

    def __init__(self) -> None:
        self._group = current_group()
        self._before = dict[int, Any]()

    def came(self) -> bool:
        """Return whether one came, to this rank or another; all ask at once."""
        number = self._group.all_reduce_max(self.number or 0)
        if number:  # else one may come just now, to be heeded next time
            self.number = number
        return number > 0

    def obey(self) -> None:
        """Hand the signal to whoever handled it before the run: KeyboardInterrupt for Ctrl-C, an
        exit for SIGTERM.
        """
        if self.came() and self.number is not None:
            self.give_back()
            signal.raise_signal(self.number)
            raise KeyboardInterrupt

    def take_over(self) -> None:
        """Note Ctrl-C and SIGTERM from now on, where somebody in Python handles them."""
        for number in (signal.SIGINT, signal.SIGTERM):
            # as in the background; None: not Python's
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._note)

    def give_back(self) -> None:
        """Restore the signal handlers of before the run."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        if self._group.size == 1:
            self.give_back()


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note Ctrl-C and SIGTERM in place of acting on them at once; a second one is acted on.

    With several ranks it is not: the terminal and torchrun may both send one. Off the main thread
    signals cannot be handled, so there it does nothing."""
    request = StopRequest()
    if threading.current_thread() is threading.main_thread():
        request.take_over()
    try:
        yield request
    finally:
        request.give_back()
