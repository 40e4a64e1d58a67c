"""The group of processes that train one network together, as each of them sees it.

With one process, the usual case, nothing is exchanged. `scale/training.py` joins those that
torchrun has started. torch is imported inside of functions, as stages of linear methods pass here,
too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from longtail.errors import LongtailError, ModelFolderError
from longtail.kernels import pool
from longtail.store import Folder, Stages, open_folder
from longtail.store.stages import looks, stage_path

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "FollowedStages",
    "ProcessGroup",
    "Shard",
    "all_reduce_gradients",
    "current_group",
    "lookup_by_first",
    "run_of",
    "shared_cores",
    "use_group",
]

T = TypeVar("T")


def run_of(lengths: Sequence[int], rank: int) -> slice:
    """Return where the things of a rank stand among those of all, of which each has as many as
    ``lengths`` tell.
    """
    start = sum(lengths[:rank])
    return slice(start, start + lengths[rank])


class ProcessGroup:
    """This process among ``count`` that train together; here the only one, with nobody to exchange
    anything with.

    Every method is called by all ranks in the same order, but for :meth:`announce` and
    :meth:`wait_for`."""

    rank = 0
    size = 1
    local_size = 1  # ranks of this machine, which share its cores

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def lengths(self, n: int) -> list[int]:
        """Return the number of each rank's things among ``n``: a run each, as even as can be."""
        return [n // self.size + (rank < n % self.size) for rank in range(self.size)]

    def part(self, n: int) -> slice:
        """Return which of ``n`` things are this rank's."""
        return run_of(self.lengths(n), self.rank)

    def all_gather_numbers(self, *values: int) -> list[list[int]]:
        """Return the numbers that each rank gives, as many of each."""
        return [list(values)]

    def broadcast(self, value: int) -> int:
        """Return the value of the first rank."""
        return value

    def all_reduce_max(self, value: int) -> int:
        """Return the largest of all ranks."""
        return value

    def barrier(self) -> None:
        """Go on when all ranks are here, however long the first has to write."""

    def all_gather(self, tensor: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the rows of all ranks one after the other, on the device; ``lengths`` tell how
        many each gives.
        """
        return tensor

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, float32 or float64; ``tensor`` may be overwritten."""
        return tensor

    def all_gather_array(self, array: NDArray[Any], lengths: Sequence[int]) -> NDArray[Any]:
        """Return the rows of all ranks one after the other, through the memory of the machines, in
        pieces.
        """
        return array

    def all_reduce_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over all ranks, through the memory of the machines."""
        return array

    def gather(self, tensor: Tensor, lengths: Sequence[int]) -> NDArray[Any]:
        """Return at the first rank the rows of all, through the memory of the machines; elsewhere
        nothing of use.
        """
        array: NDArray[Any] = tensor.numpy(force=True)
        return array

    def announce(self, name: str) -> None:
        """Release the processes that wait for ``name``."""

    def wait_for(self, name: str) -> None:
        """Wait until the first rank has announced ``name``."""

    def leave(self) -> None:
        """Part with the others, all at once: each goes on as the only one."""


# the default has no state that contexts could share
_current: ContextVar[ProcessGroup] = ContextVar("group", default=ProcessGroup())  # noqa: B039


def current_group() -> ProcessGroup:
    """Return the ranks that train together now."""
    return _current.get()


@contextmanager
def use_group(group: ProcessGroup) -> Iterator[ProcessGroup]:
    """Use a process group in the body; ``ProcessGroup()`` is that of one process."""
    token = _current.set(group)
    try:
        yield group
    finally:
        _current.reset(token)


@contextmanager
def shared_cores(group: ProcessGroup) -> Iterator[None]:
    """Use this rank's share of the machine's threads in the body."""
    if group.size == 1:
        yield
        return
    with pool.threads(max(1, pool.thread_count() // group.local_size)):
        yield


def lookup_by_first(group: ProcessGroup, find: Callable[[], T | None]) -> T | None:
    """Look something up on the first rank, then on the others; None on all where the first has no
    result.
    """
    result = find() if group.is_first else None
    if group.size > 1 and group.broadcast(result is not None) and not group.is_first:
        return find()
    return result


def all_reduce_gradients(
    group: ProcessGroup, parameters: Sequence[Tensor], losses: Tensor, learns: bool
) -> Tensor:
    """All-reduce the gradients of the parameters in one exchange; return the sum of ``losses``.

    A rank that had no document (``learns`` is False) is told by the others which parameters have a
    gradient at all: AdamW leaves those without one as they are."""
    import torch

    have = torch.tensor(
        [float(parameter.grad is not None) for parameter in parameters], device=losses.device
    )
    grads = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in parameters
    ]
    flat = group.all_reduce(
        torch.cat([part.reshape(-1).to(grads[0].dtype) for part in (*grads, have, losses)])
    )
    *sums, have, total = torch.split(
        flat, [*(parameter.numel() for parameter in parameters), len(have), len(losses)]
    )
    if not learns:
        known = have.tolist()
    else:
        known = [parameter.grad is not None for parameter in parameters]
    for parameter, part, is_known in zip(parameters, sums, known, strict=True):
        parameter.grad = part.view_as(parameter) if is_known else None
    return total.to(losses.dtype)


@dataclass(frozen=True)
class Shard:
    """The run of a level's ``n_nodes`` nodes that one rank owns."""

    group: ProcessGroup
    n_nodes: int

    @property
    def nodes(self) -> slice:
        """Nodes of this rank."""
        return self.group.part(self.n_nodes)

    def whole(self, tensor: Tensor) -> NDArray[Any]:
        """Return the rows of all nodes at the first rank, given those of this one."""
        return self.group.gather(tensor, self.group.lengths(self.n_nodes))

    def local_rows(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of this rank; of a memory map, only these are read."""
        return array[self.nodes]


class FollowedStages(Stages):
    """The work folder of the first rank as the others see it: without its lock, to be read and
    never written.
    """

    def __init__(self, path: str | Path) -> None:
        self.root = Path(path).resolve()

    def close(self) -> None:
        """Do nothing: the lock is the first rank's."""

    def get(self, name: str, key: str, versions: bool = False) -> Folder:
        """Return a stage that the first rank has found or made; its bytes were verified there."""
        path = stage_path(self.root, name)
        way_out = "all ranks must see the folder of the first one, and read the same data"
        problem = ""
        for _ in looks():
            try:
                folder = open_folder(path, verify="size")
                break
            except ModelFolderError as error:
                problem = str(error)
        else:
            raise LongtailError(f"{path}: found no stage that can be read ({problem}); {way_out}")
        if folder.manifest.config_hash != key:
            raise LongtailError(
                f"{path}: found the stage of another input than this rank's; {way_out}"
            )
        return folder
