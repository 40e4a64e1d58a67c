"""`longtail train` in one process, with workers of Ray, or in processes that torchrun has started
and that train one network together (docs/several-gpus.md).

Vectors, scores and gradients go from device to device (NCCL, on a CPU gloo); what ranks have to
agree on, and rows on their way to a file, go through the memory of the machines (gloo); who waits
for the first rank asks torchrun's store."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail import reporting
from longtail.checks import check_settings
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.errors import LongtailError, UsageError
from longtail.features.encoder_search import search_encoders_in
from longtail.methods import network_of
from longtail.scale.ray import check_trainable, connected
from longtail.steps.process_group import ProcessGroup, run_of, use_group
from longtail.training_run import BEGUN, RunOptions, run_training, take_part

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "LostRanks",
    "TorchProcessGroup",
    "TrainingJob",
    "check_method",
    "check_sources",
    "joined",
    "training_job",
    "under_torchrun",
]

F = TypeVar("F", bound=Callable[..., Any])

_EXCHANGE = timedelta(minutes=30)  # no exchange of a step takes so long: another rank hangs
# for the first rank to write a checkpoint; if it fails, torchrun ends the others at once
_WAIT = timedelta(hours=24)
_LOOK = 0.2  # seconds between two looks into the store, in which signals are heeded
_PIECE = 1 << 26  # bytes that go from rank to rank at a time
_PLACE = re.compile(r"^\[\S*\] ?")  # where in gloo's source an error was seen


class TrainingJob(NamedTuple):
    """The part of this process in a training run.

    ``run`` trains and writes the model folder; in all but the first process it only takes part in
    the training of the network."""

    group: ProcessGroup
    device: str  # of this process
    ray: str | None  # address of the cluster, if there is one
    run: Callable[[Dataset, Path, Config, RunOptions], object]

    def check(self, config: Config) -> None:
        """Refuse settings that cannot be trained with, or not in this way, before documents are
        read.
        """
        if self.group.size > 1:
            check_method(config)
        if self.ray is not None:
            check_trainable(config)
        check_settings(config, self.device)

    @contextmanager
    def workers(self, threads: int = 0) -> Iterator[None]:
        """Use the workers of the Ray cluster in the body, if there is one.

        Args:
            threads: workers of a cluster that is started for the body; 0 for all cores.
        """
        # Ray reports lost workers on stdout
        with redirect_stdout(sys.stderr), connected(self.ray, threads):
            yield


@contextmanager
def training_job(
    device: str,
    *,
    sources: Sequence[str | None] = (),
    ray: str | None = None,
    encoder_folder: Path | None = None,
) -> Iterator[TrainingJob]:
    """Join the processes of torchrun, if it has started this one, and yield the part of this one.

    All but the first wait until that one has accepted settings and data.

    Args:
        device: where a network is trained; under torchrun each process has a GPU of its own.
        sources: of the documents; several processes cannot share standard input.
        ray: address of a Ray cluster; None for this machine.
        encoder_folder: where encoders are looked for by name.
    """
    with search_encoders_in(encoder_folder), joined(device) as (group, local_device):
        if not group.is_first:
            group.wait_for(BEGUN)
        elif group.size > 1:
            check_sources(*sources)
        run = run_training if group.is_first else take_part
        yield TrainingJob(group, local_device, ray, run)


class LostRanks(LongtailError):
    """Another rank has ended, so that an exchange with it failed."""


def under_torchrun() -> bool:
    """Return whether torchrun has started this process beside others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def check_method(config: Config) -> None:
    """Refuse a method whose training cannot be shared among ranks."""
    network = network_of(config)
    if network is None:
        problem = f"torchrun with {config.method}, which trains no network"
        raise UsageError(f"{problem}; leave torchrun out, or try --ray")
    network.check_processes(config)


def check_sources(*paths: str | None) -> None:
    """Refuse standard input, which only one process can read."""
    if "-" in paths:
        raise UsageError(
            "torchrun with -: found standard input; expected files, which every rank reads for "
            "itself"
        )


@contextmanager
def joined(device: str) -> Iterator[tuple[ProcessGroup, str]]:
    """Be one of torchrun's ranks in the body, with a device of its own; without torchrun, a process
    by itself.

    Only the first rank shows progress and logs; of the others, errors alone are seen.
    """
    if not under_torchrun():
        yield ProcessGroup(), device
        return
    device = _own_device(device)
    group = TorchProcessGroup.join(device)
    if not group.is_first:
        reporting.show_on(None)
        logging.getLogger("longtail").setLevel(logging.ERROR)
    with use_group(group):
        yield group, device
    group.leave()  # after an error there is nobody to take leave of: torchrun ends the others


def _own_device(device: str) -> str:
    """Return the device of this rank: each of a machine has its own GPU."""
    import torch

    local = int(os.environ["LOCAL_RANK"])
    on_machine = int(os.environ["LOCAL_WORLD_SIZE"])
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            f"--device {device} with torchrun; expected auto, cpu or cuda: each rank has a GPU of "
            "its own"
        )
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if on_machine > torch.cuda.device_count():
        devices = f"{torch.cuda.device_count()} CUDA devices"
        problem = f"torchrun --nproc-per-node {on_machine}: found {devices}"
        raise UsageError(f"{problem}; expected one a process, or --device cpu")
    torch.cuda.set_device(local)
    return f"cuda:{local}"


def _exchange(method: F) -> F:
    """Say in one line that another rank is gone, whose own message tells why."""

    @wraps(method)
    def exchange(self: TorchProcessGroup, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except RuntimeError as error:
            # torch's, of the device: this rank's own
            if type(error).__name__ == "OutOfMemoryError":
                raise
            why = _PLACE.sub("", str(error)).split(". ")[0].splitlines()[:1]
            raise LostRanks(
                f"rank {self.rank}: ends, as another rank is gone ({''.join(why)[:200]})"
            ) from error

    return exchange  # type: ignore[return-value]


class TorchProcessGroup(ProcessGroup):
    """The ranks of a torch.distributed world."""

    def __init__(self, rank: int, count: int, on_machine: int, store: Any, control: Any) -> None:
        self.rank = rank
        self.size = count
        self.local_size = on_machine
        self._store = store
        self._control = control

    @classmethod
    def join(cls, device: str) -> TorchProcessGroup:
        """Meet the others where MASTER_ADDR and MASTER_PORT say."""
        from torch import distributed
        from torch.distributed.rendezvous import rendezvous

        backend = "nccl"
        if device == "cpu":
            backend = "gloo"
        store, rank, count = next(rendezvous("env://"))
        distributed.init_process_group(
            backend, store=store, rank=rank, world_size=count, timeout=_EXCHANGE
        )
        control = distributed.new_group(backend="gloo", timeout=_WAIT)
        return cls(rank, count, int(os.environ.get("LOCAL_WORLD_SIZE", count)), store, control)

    @_exchange
    def leave(self) -> None:
        """Part with the others, all at once: each goes on as the only one."""
        from torch import distributed

        if self.size > 1:
            self.barrier()
            distributed.destroy_process_group()
            self.size = self.local_size = 1

    @_exchange
    def all_gather_numbers(self, *numbers: int) -> list[list[int]]:
        """Return the numbers that each rank gives, as many of each."""
        import torch
        from torch import distributed

        local = torch.tensor(numbers, dtype=torch.int64)
        gathered = [torch.empty_like(local) for _ in range(self.size)]
        distributed.all_gather(gathered, local, group=self._control)
        return [of_rank.tolist() for of_rank in gathered]

    def broadcast(self, value: int) -> int:
        """Return the value of the first rank."""
        return self.all_gather_numbers(value)[0][0]

    def all_reduce_max(self, value: int) -> int:
        """Return the largest of all ranks."""
        return max(number for (number,) in self.all_gather_numbers(value))

    @_exchange
    def barrier(self) -> None:
        """Go on when all ranks are here, however long the first has to write."""
        from torch import distributed

        distributed.barrier(group=self._control)

    @_exchange
    def all_gather(self, tensor: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the rows of all ranks one after the other, on the device."""
        import torch
        from torch import distributed

        local = tensor.new_zeros(max(lengths), *tensor.shape[1:])
        local[: len(tensor)] = tensor
        if not local.numel():
            return tensor.new_zeros(sum(lengths), *tensor.shape[1:])
        gathered = [torch.empty_like(local) for _ in lengths]
        distributed.all_gather([_bytes(rows) for rows in gathered], _bytes(local))
        return torch.cat([rows[:length] for rows, length in zip(gathered, lengths, strict=True)])

    @_exchange
    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, float32 or float64, in the memory of ``tensor``."""
        from torch import distributed

        if tensor.numel():
            distributed.all_reduce(tensor)
        return tensor

    @_exchange
    def all_gather_array(self, array: NDArray[Any], lengths: Sequence[int]) -> NDArray[Any]:
        """Return the rows of all ranks one after the other, through the memory of the machines, in
        pieces.
        """
        from torch import distributed

        whole = np.empty((sum(lengths), *array.shape[1:]), array.dtype)
        whole[run_of(lengths, self.rank)] = array
        for rank in range(self.size):
            for piece in _pieces(whole[run_of(lengths, rank)]):
                distributed.broadcast(piece, src=rank, group=self._control)
        return whole

    @_exchange
    def all_reduce_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over all ranks, through the memory of the machines."""
        import torch
        from torch import distributed

        total = np.array(array)
        distributed.all_reduce(torch.from_numpy(total), group=self._control)
        return total

    @_exchange
    def gather(self, tensor: Tensor, lengths: Sequence[int]) -> NDArray[Any]:
        """Return at the first rank the rows of all, through the memory of the machines, in pieces;
        elsewhere none.
        """
        from torch import distributed

        local = tensor.numpy(force=True)
        if not self.is_first:
            for piece in _pieces(np.ascontiguousarray(local)):
                distributed.send(piece, dst=0, group=self._control)
            return local[:0]
        whole = np.empty((sum(lengths), *local.shape[1:]), local.dtype)
        whole[: lengths[0]] = local
        for rank in range(1, self.size):
            for piece in _pieces(whole[run_of(lengths, rank)]):
                distributed.recv(piece, src=rank, group=self._control)
        return whole

    @_exchange
    def announce(self, name: str) -> None:
        """Let those go on who wait for ``name``."""
        if self.size > 1:
            self._store.set(name, "done")

    @_exchange
    def wait_for(self, name: str) -> None:
        """Wait until the first rank has announced ``name``, with an ear for signals."""
        while not self._store.check([name]):
            time.sleep(_LOOK)


def _bytes(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor, of any type: gloo does not know them all."""
    import torch

    return tensor.view(-1).view(torch.uint8)


def _pieces(rows: NDArray[Any]) -> Iterator[torch.Tensor]:
    """Yield the memory of a contiguous array, a piece at a time."""
    import torch

    memory = rows.reshape(-1).view(np.uint8)
    for start in range(0, len(memory), _PIECE):
        yield torch.from_numpy(memory[start : start + _PIECE])
