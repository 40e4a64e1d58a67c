"""Micro-batches: documents of waiting requests are predicted together; the wait is bounded.

One thread runs the model, or a few do. Each takes the waiting documents, up to the size of a batch,
and never waits for more. A larger request is predicted in pieces, and stopped when its client no
longer waits.

A request is refused when its expected wait exceeds the bound. The expected wait is the number of
waiting documents times the moving average of seconds per document, plus the remaining time of
running batches, plus the lag of the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from longtail.server.problem_details import overloaded

__all__ = ["BatchObserver", "Batcher", "Job"]

T = TypeVar("T")  # item of a request: a document with its options
R = TypeVar("R")  # result of an item

_REST_SECONDS = 1.0  # a single thread runs the model for this long after the queue was full
_MANY = 16  # documents of a batch from which on it counts as large
_SHARE = 0.1  # weight of the newest batch in moving averages
_LEAST_SECONDS = 1e-6  # lower bound of the time per document
_OF_BOUND = 0.25  # largest part of the bound that one batch may take: each job waits for all of it
_TURNS = 2  # turns of the event loop between a result and the last byte of its response
_MOST_LAG = 0.75  # largest part of the bound counted as lag, so that a busy loop refuses no request

BatchObserver = Callable[[int], None]  # documents of a batch


@dataclass(eq=False, slots=True)
class Job(Generic[T, R]):
    """The documents of one request. Only jobs of the same ``key`` share a batch."""

    key: Hashable
    items: Sequence[T]
    deadline: float  # of the monotonic clock
    done: asyncio.Future[list[R]]
    started: float = 0.0
    finished: float = 0.0
    is_waiting: bool = False  # in the queue, and counted there
    abandoned: bool = False  # nobody waits for it any more


class Batcher(Generic[T, R]):
    """Runs ``run(key, items)`` on its own threads, one batch at a time per thread.

    All methods are called from one event loop.
    """

    def __init__(
        self,
        run: Callable[[Hashable, list[T]], list[R]],
        *,
        batch_documents: int,
        queue_seconds: float,
        threads: int = 1,
        first_seconds: float = 0.001,
        observe: BatchObserver = lambda documents: None,
    ) -> None:
        self._run = run
        self._observe = observe
        self._batch_documents = batch_documents
        self._queue_seconds = queue_seconds
        self._waiting: deque[Job[T, R]] = deque()
        self._changed = threading.Condition()
        self._documents = 0  # waiting documents
        self._coming = 0  # requests whose headers are read and whose documents will soon wait
        # start time and size of the batch that each thread runs
        self._running: list[tuple[float, int] | None] = [None] * threads
        # moving averages per document: of all batches, and of large ones
        self._seconds = first_seconds
        self._many_seconds = first_seconds
        self._lag = 0.0  # moving average of seconds between a result and its delivery
        self._full_at = -_REST_SECONDS  # when the queue was last full
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._threads = [
            threading.Thread(
                target=self._work, args=(number,), name="longtail-batches", daemon=True
            )
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def documents(self) -> int:
        """Number of waiting documents."""
        return self._documents

    @property
    def waiting_seconds(self) -> float:
        """Expected wait of a document that arrives now."""
        return self._wait(self._documents)

    @property
    def is_full(self) -> bool:
        """Whether a request should be refused; false if no document waits."""
        return self._refuses(self._documents)

    @property
    def will_be_full(self) -> bool:
        """Whether the queue is full, or will be with the expected requests."""
        return self._refuses(self._documents + self._coming)

    def _refuses(self, ahead: int) -> bool:
        lag = min(_TURNS * self._lag, _MOST_LAG * self._queue_seconds)
        full = ahead > 0 and self._wait(ahead) + lag > self._queue_seconds
        if full:
            self._full_at = monotonic()
        return full

    def _wait(self, ahead: int) -> float:
        """Return the expected seconds until ``ahead`` documents and running batches are done.

        A batch that takes longer than expected raises the time per document.
        """
        running = list(self._running)
        now = monotonic()
        seconds = self._seconds
        if ahead >= _MANY:  # a long queue forms large batches, which take less time per document
            seconds = self._many_seconds
        working = len(running)
        if self._was_full(now):
            working = 1
        busy = [batch for batch in running if batch is not None]
        remaining = 0.0
        late = 0.0
        if len(busy) >= working:
            remaining = max(0.0, min(count * seconds - (now - begin) for begin, count in busy))
            late = min((now - begin) / max(count, _MANY) for begin, count in busy)
        return ahead * max(seconds, late) / working + remaining

    def _was_full(self, now: float) -> bool:
        return now - self._full_at < _REST_SECONDS

    def expect(self) -> None:
        """Count a request as waiting until the next turn of the event loop.

        Many requests may arrive in one turn.
        """
        self._coming += 1
        self._loop.call_soon(self._came)

    def _came(self) -> None:
        self._coming -= 1

    async def submit(self, key: Hashable, items: Sequence[T], seconds: float) -> Job[T, R]:
        """Return the finished job.

        Raises 503 if the queue is full, or if the job is not done after ``seconds``. The job of a
        cancelled caller is not run.
        """
        if self.is_full:
            raise overloaded("too many documents wait; try again")
        job: Job[T, R] = Job(key, items, monotonic() + seconds, self._loop.create_future())
        with self._changed:
            if self._closed:
                raise overloaded("the server is about to stop")
            job.is_waiting = True
            self._waiting.append(job)
            self._documents += len(items)
            self._changed.notify_all()
        late = self._loop.call_later(seconds, _give_up, job, seconds)
        try:
            await job.done
        finally:
            self._abandon(job)
            late.cancel()
        return job

    def _abandon(self, job: Job[T, R]) -> None:
        """Mark a job that nobody waits for; if it is still in the queue, it no longer counts."""
        job.abandoned = True
        if not job.is_waiting:
            return
        with self._changed:
            if job.is_waiting:  # not taken in the meantime
                job.is_waiting = False
                self._documents -= len(job.items)

    def close(self) -> None:
        """Run all waiting jobs, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, thread: int) -> None:
        while batch := self._next(thread):
            begin = monotonic()
            results = self._answer(batch)
            end = monotonic()
            for job in batch:
                job.started = begin
                job.finished = end
            try:
                self._loop.call_soon_threadsafe(self._deliver, batch, results)
            except RuntimeError:  # the loop is closed: nobody waits for anything
                return

    def _learn(self, count: int, seconds: float) -> None:
        self._seconds += _SHARE * (seconds / count - self._seconds)
        if count >= _MANY:
            self._many_seconds += _SHARE * (seconds / count - self._many_seconds)

    def _next(self, thread: int) -> list[Job[T, R]]:
        """Return the first waiting job and others of its key; empty after :meth:`close`.

        Under overload only the first thread runs: the event loop needs a core to refuse requests
        quickly.
        """
        with self._changed:
            while True:
                rests = thread > 0 and self._was_full(monotonic())
                if not rests and (batch := self._take()):
                    self._running[thread] = (
                        monotonic(),
                        max(1, sum(len(job.items) for job in batch)),
                    )
                    return batch
                self._running[thread] = None
                if self._closed:
                    return []
                if rests:
                    self._changed.wait(_REST_SECONDS)
                else:
                    self._changed.wait()

    def _take(self) -> list[Job[T, R]]:
        """Remove a batch from the queue, and all jobs whose clients no longer wait."""
        now = monotonic()
        quick = int(_OF_BOUND * self._queue_seconds / max(self._many_seconds, _LEAST_SECONDS))
        room = min(self._batch_documents, max(quick, _MANY))
        batch: list[Job[T, R]] = []
        left: deque[Job[T, R]] = deque()
        for job in self._waiting:
            if job.abandoned or job.deadline < now:
                job.is_waiting = False
            elif not batch or (job.key == batch[0].key and len(job.items) <= room):
                job.is_waiting = False
                batch.append(job)
                room -= len(job.items)
            else:
                left.append(job)
        self._waiting = left
        self._documents = sum(len(job.items) for job in left)
        return batch

    def _answer(self, batch: list[Job[T, R]]) -> list[R] | Exception:
        items = [item for job in batch for item in job.items]
        results: list[R] = []
        while True:
            piece = items[len(results) : len(results) + self._batch_documents]
            begin = monotonic()
            try:
                results += self._run(batch[0].key, piece)
            except Exception as error:
                return error
            finally:
                self._learn(max(len(piece), 1), monotonic() - begin)
                self._observe(len(piece))
            if len(results) >= len(items):
                return results
            if all(job.abandoned or job.deadline < monotonic() for job in batch):
                return overloaded("no answer in time")

    def _deliver(self, batch: Sequence[Job[T, R]], results: list[R] | Exception) -> None:
        """Give each job its own results, or the error, in the event loop."""
        self._lag += _SHARE * (monotonic() - batch[0].finished - self._lag)
        first = 0
        for job in batch:
            last = first + len(job.items)
            if job.done.done():
                pass  # the client has left
            elif isinstance(results, Exception):
                job.done.set_exception(results)
            else:
                job.done.set_result(results[first:last])
            first = last


def _give_up(job: Job[T, R], seconds: float) -> None:
    if not job.done.done():
        job.done.set_exception(
            overloaded(f"no answer after {seconds:g} s; try again, or send fewer documents")
        )
