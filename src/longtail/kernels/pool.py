"""Kernels over nodes or row blocks on threads: tasks write disjoint outputs, so bytes never depend
on threads.

Work whose results are values, not writes into shared arrays, may leave this process: :func:`spread`
hands it to the runner that :func:`handed_to` has set, and to threads where there is none."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, Protocol, TypeVar

__all__ = [
    "Runner",
    "cores",
    "handed_over",
    "handed_to",
    "row_blocks",
    "run",
    "spread",
    "thread_count",
    "threads",
]

T = TypeVar("T")
R = TypeVar("R")


class Runner(Protocol):
    """Runs tasks elsewhere: in other processes, perhaps on other machines."""

    def __call__(
        self, task: Callable[..., R], items: Sequence[T], shared: Sequence[Any], together: int
    ) -> Iterator[R]:
        """Yield ``task(item, *shared)`` of each item in their order, each done on one thread."""


_wanted: ContextVar[int] = ContextVar("threads", default=0)
_runner: ContextVar[Runner | None] = ContextVar("runner", default=None)
_AHEAD = 64  # waiting tasks per thread, so that no thread idles behind one long task


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """Return how many threads ``run`` uses: those of ``threads``, else all cores."""
    return _wanted.get() or cores()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use ``count`` threads in the body; 0 stands for all cores."""
    token = _wanted.set(count)
    try:
        yield
    finally:
        _wanted.reset(token)


def run(task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``task(item)`` of each item in their order; tasks are GIL-free kernels with disjoint
    outputs.

    Where a task fails, or the caller stops early, tasks that have not begun are dropped. A single
    task runs on the caller's thread: to start another takes as long as to rank a document."""
    count = thread_count()
    if count == 1 or (isinstance(items, Sized) and len(items) <= 1):
        yield from map(task, items)
        return
    remaining = iter(items)
    waiting = deque[Future[R]]()
    with ThreadPoolExecutor(count) as executor:
        try:
            for item in islice(remaining, _AHEAD * count):
                waiting.append(executor.submit(task, item))
            while waiting:
                done = waiting.popleft().result()
                for item in islice(remaining, 1):
                    waiting.append(executor.submit(task, item))
                yield done
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def handed_to(runner: Runner) -> Iterator[None]:
    """Let ``runner`` do what is spread in the body."""
    token = _runner.set(runner)
    try:
        yield
    finally:
        _runner.reset(token)


def handed_over() -> bool:
    """Return whether what is spread is done elsewhere, where nothing of this process can be written
    to.
    """
    return _runner.get() is not None


def spread(
    task: Callable[..., R], items: Sequence[T], *shared: Any, together: int = 1
) -> Iterator[R]:
    """Yield ``task(item, *shared)`` of each item in their order, by the runner if there is one,
    else on threads.

    ``task`` returns all that it makes, and does not write to its arguments: elsewhere arrays are
    read-only. Up to ``together`` neighbouring items are sent as one remote task."""
    runner = _runner.get()
    if runner is None:
        return run(lambda item: task(item, *shared), items)
    return runner(task, items, shared, together)


def row_blocks(rows: int, size: int) -> list[tuple[int, int]]:
    """Return the (first, last) of blocks of ``size`` rows; fixed by the data, never by the number
    of threads.
    """
    return [(first, min(first + size, rows)) for first in range(0, rows, size)]
