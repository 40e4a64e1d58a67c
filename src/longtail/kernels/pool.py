"""Kernels over nodes or row blocks on threads: each task writes what is its own, so bytes never depend on threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import TypeVar

__all__ = ["row_blocks", "run", "thread_count", "threads"]

T = TypeVar("T")
R = TypeVar("R")

_wanted: ContextVar[int] = ContextVar("threads", default=0)
_AHEAD = 64  # tasks a thread that wait: one long task at the head must not make the others idle


def thread_count() -> int:
    """Return how many threads ``run`` uses: what ``threads`` says, else the cores that this process may use."""
    return _wanted.get() or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use ``count`` threads in the body; 0 stands for all cores."""
    token = _wanted.set(count)
    try:
        yield
    finally:
        _wanted.reset(token)


def run(task: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield ``task(item)`` of each item in their order; tasks are GIL-free kernels with disjoint outputs.

    An error in a task, or the caller's leaving, drops the tasks that have not begun.
    """
    count = thread_count()
    if count == 1:
        yield from map(task, items)
        return
    rest, waiting = iter(items), deque[Future[R]]()
    with ThreadPoolExecutor(count) as executor:
        try:
            for item in islice(rest, _AHEAD * count):
                waiting.append(executor.submit(task, item))
            while waiting:
                done = waiting.popleft().result()
                for item in islice(rest, 1):
                    waiting.append(executor.submit(task, item))
                yield done
        finally:
            for future in waiting:
                future.cancel()


def row_blocks(rows: int, size: int) -> list[tuple[int, int]]:
    """Return the (first, last) of blocks of ``size`` rows; fixed by the data, never by the number of threads."""
    return [(first, min(first + size, rows)) for first in range(0, rows, size)]
