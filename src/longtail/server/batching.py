"""Micro-batches: documents of all waiting requests go through the model together, in a queue
bounded by time.

One thread runs the model, or a few do. Each takes what waits, up to some number of documents, and
never waits for more. A request of more documents goes through the model in pieces, and is left off
where nobody waits for it any more. A request is refused when those before it would keep it waiting
for longer than the bound: documents that wait, times the moving average of seconds a document, what
is left of batches under way, and how late the event loop is."""

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

T = TypeVar("T")  # what is asked for a document
R = TypeVar("R")  # what a document is given

_REST_SECONDS = 1.0  # after the queue was full, in which one thread alone runs the model
_MANY = 16  # documents of a batch
_SHARE = 0.1  # of the newest batch in the moving average
_LEAST_SECONDS = 1e-6  # that a document takes
_OF_BOUND = 0.25  # of the bound that one batch may take: who is in it waits for all of it
_TURNS = 2  # of the event loop, from a result to the last byte of its answer
# of the bound that these may be counted as, so that a very busy loop does not refuse everything
_MOST_LAG = 0.75

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
    abandoned: bool = False  # nobody waits for it any more


class Batcher(Generic[T, R]):
    """``run(key, items)`` on threads of its own, one batch after another on each; to be used from
    one event loop.
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
        self._documents = 0  # that wait
        self._coming = 0  # requests whose headers are there, and who are about to wait
        # when batches under way began, and their sizes
        self._running: list[tuple[float, int] | None] = [None] * threads
        # a document, of any batch and of those of many
        self._seconds = self._many_seconds = first_seconds
        self._lag = 0.0  # between a result and its delivery by a busy event loop, moving average
        self._full_at = -_REST_SECONDS  # when the queue was last found full
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
        """Documents that wait."""
        return self._documents

    @property
    def waiting_seconds(self) -> float:
        """How long a document that came now would wait for those before it."""
        return self._wait(self._documents)

    @property
    def is_full(self) -> bool:
        """Whether a request is to be refused; never where nothing waits."""
        return self._refuses(self._documents)

    @property
    def will_be_full(self) -> bool:
        """Whether it is full, or will be with those that are expected."""
        return self._refuses(self._documents + self._coming)

    def _refuses(self, ahead: int) -> bool:
        lag = min(_TURNS * self._lag, _MOST_LAG * self._queue_seconds)
        full = ahead > 0 and self._wait(ahead) + lag > self._queue_seconds
        if full:
            self._full_at = monotonic()
        return full

    def _wait(self, ahead: int) -> float:
        """Return the seconds that so many documents take; a batch that is late says more."""
        running = list(self._running)
        now = monotonic()
        # A long queue becomes large batches, whose documents cost less: those of small ones would
        # keep it short.
        seconds = self._many_seconds if ahead >= _MANY else self._seconds
        left = late = 0.0
        busy = [batch for batch in running if batch is not None]
        working = 1 if now - self._full_at < _REST_SECONDS else len(running)
        if len(busy) >= working:
            left = max(0.0, min(count * seconds - (now - begin) for begin, count in busy))
            late = min((now - begin) / max(count, _MANY) for begin, count in busy)
        return ahead * max(seconds, late) / working + left

    def expect(self) -> None:
        """Count a request as waiting until the event loop has come round to it: many may come in
        one turn of it.
        """
        self._coming += 1
        self._loop.call_soon(self._came)

    def _came(self) -> None:
        self._coming -= 1

    async def submit(self, key: Hashable, items: Sequence[T], seconds: float) -> Job[T, R]:
        """Return the finished job; 503 where the queue is full, or it is not done after
        ``seconds``.

        A caller that is cancelled leaves a job that is not run.
        """
        if self.is_full:
            raise overloaded("too many documents wait; try again")
        job: Job[T, R] = Job(key, items, monotonic() + seconds, self._loop.create_future())
        with self._changed:
            if self._closed:
                raise overloaded("the server is about to stop")
            self._waiting.append(job)
            self._documents += len(items)
            self._changed.notify_all()
        late = self._loop.call_later(seconds, _give_up, job, seconds)
        try:
            await job.done
        finally:
            job.abandoned = True
            late.cancel()
        return job

    def close(self) -> None:
        """Finish what waits, then end the thread."""
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
        """Return the first job that waits and others of its key; empty at the end.

        Where more comes than can be done, all but the first thread rest: the event loop, which
        refuses it, needs a core to be quick."""
        with self._changed:
            while True:
                rests = thread > 0 and monotonic() - self._full_at < _REST_SECONDS
                if not rests and (batch := self._take()):
                    self._running[thread] = (
                        monotonic(),
                        max(1, sum(len(job.items) for job in batch)),
                    )
                    return batch
                self._running[thread] = None
                if self._closed:
                    return []
                self._changed.wait(_REST_SECONDS if rests else None)

    def _take(self) -> list[Job[T, R]]:
        """Take a batch out of the queue, and with it all that nobody waits for any more."""
        now = monotonic()
        quick = int(_OF_BOUND * self._queue_seconds / max(self._many_seconds, _LEAST_SECONDS))
        room = min(self._batch_documents, max(quick, _MANY))
        batch: list[Job[T, R]] = []
        left: deque[Job[T, R]] = deque()
        for job in self._waiting:
            if job.abandoned or job.deadline < now:
                continue
            if not batch or (job.key == batch[0].key and len(job.items) <= room):
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
                pass  # whoever waited has left
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
