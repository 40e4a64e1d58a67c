"""The queue: what shares a batch, what is refused, and what is never run."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from longtail.server import batching as batching_module
from longtail.server.batching import Batcher
from longtail.server.problem_details import Refusal

_HANG = 200  # seconds, after which something has gone wrong


class Clock:
    """Stands in for ``monotonic`` of the batcher; time goes on when the test or its model says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(batching_module, "monotonic", clock)
    return clock


class Slow:
    """A model that doubles numbers, notes its batches, and waits to be let go; each number takes
    some seconds.
    """

    def __init__(self, seconds: float = 0.0, clock: Clock | None = None) -> None:
        self.batches: list[tuple[object, list[int]]] = []
        self.go = threading.Event()
        self.go.set()
        self.seconds = seconds
        self.clock = clock

    def __call__(self, key: object, items: list[int]) -> list[int]:
        self.batches.append((key, items))
        assert self.go.wait(_HANG)
        if self.clock is not None:
            self.clock.now += self.seconds * len(items)
        if -1 in items:
            raise ValueError("minus one")
        return [2 * item for item in items]


@asynccontextmanager
async def batching(
    model: Slow, batch_documents: int = 4, queue_seconds: float = 10.0, first_seconds: float = 0.001
):
    batcher: Batcher[int, int] = Batcher(
        model,
        batch_documents=batch_documents,
        queue_seconds=queue_seconds,
        first_seconds=first_seconds,
    )
    try:
        yield batcher
    finally:
        model.go.set()
        await asyncio.to_thread(batcher.close)


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def behind_a_held_batch(model: Slow, batcher, *jobs):
    """Begin the jobs while the model is held by another one, and return the tasks."""
    model.go.clear()
    first = asyncio.create_task(batcher.submit("held", [0], _HANG))
    await until(lambda: ("held", [0]) in model.batches)
    tasks = []
    for key, items in jobs:
        tasks.append(asyncio.create_task(batcher.submit(key, items, _HANG)))
        await asyncio.sleep(0)
    return first, tasks


def test_each_gets_its_own_results():
    async def main():
        async with batching(Slow()) as batcher:
            jobs = await asyncio.gather(
                *(batcher.submit("a", [n, n + 1], _HANG) for n in range(20))
            )
            assert [job.done.result() for job in jobs] == [[2 * n, 2 * n + 2] for n in range(20)]
            assert all(job.started == job.finished == 1000 for job in jobs)
            assert batcher.documents == 0

    asyncio.run(main())


def test_what_waits_goes_together_and_in_order():
    async def main():
        model = Slow()
        async with batching(model) as batcher:
            jobs = [("a", [n]) for n in range(1, 7)]
            first, tasks = await behind_a_held_batch(model, batcher, *jobs)
            assert batcher.documents == 6
            model.go.set()
            await asyncio.gather(first, *tasks)
        assert [items for _, items in model.batches] == [[0], [1, 2, 3, 4], [5, 6]]

    asyncio.run(main())


def test_only_jobs_of_one_key_share_a_batch():
    async def main():
        model = Slow()
        async with batching(model) as batcher:
            jobs = [("a", [1]), ("b", [2]), ("a", [3]), ("b", [4])]
            first, tasks = await behind_a_held_batch(model, batcher, *jobs)
            model.go.set()
            await asyncio.gather(first, *tasks)
        assert model.batches[1:] == [("a", [1, 3]), ("b", [2, 4])]

    asyncio.run(main())


def test_a_request_larger_than_a_batch_goes_in_pieces():
    async def main():
        model = Slow()
        async with batching(model) as batcher:
            job = await batcher.submit("a", list(range(9)), _HANG)
            assert job.done.result() == [2 * n for n in range(9)]
        assert [items for _, items in model.batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]

    asyncio.run(main())


def test_a_large_request_is_left_off_once_it_has_its_503():
    """Nothing is computed that nobody waits for, except for the piece under way."""

    async def main():
        model = Slow()
        model.go.clear()
        async with batching(model) as batcher:
            with pytest.raises(Refusal) as refused:
                await batcher.submit("a", list(range(400)), 0.05)
            assert refused.value.status == 503
            model.go.set()
            assert (await batcher.submit("b", [1], 10)).done.result() == [2]
        assert model.batches == [("a", [0, 1, 2, 3]), ("b", [1])]

    asyncio.run(main())


def test_refused_once_the_wait_is_too_long_and_taken_again_after(clock):
    async def main():
        model = Slow()
        async with batching(model, queue_seconds=0.05, first_seconds=0.02) as batcher:
            first, tasks = await behind_a_held_batch(model, batcher, ("a", [1]), ("a", [2]))
            assert batcher.is_full
            clock.now += 0.02
            assert not batcher.is_full  # 2 documents of 20 ms, as the first should be done
            last = asyncio.create_task(batcher.submit("a", [3], _HANG))
            await until(lambda: batcher.documents == 3)
            assert batcher.is_full
            assert batcher.waiting_seconds > 0.05
            with pytest.raises(Refusal) as refused:
                await batcher.submit("a", [4], _HANG)
            assert refused.value.status == 503
            assert refused.value.headers == {"retry-after": "1"}
            model.go.set()
            await asyncio.gather(first, last, *tasks)
            assert not batcher.is_full
            await batcher.submit("a", [5], _HANG)

    asyncio.run(main())


def test_those_expected_count_until_their_turn():
    async def main():
        async with batching(Slow(), queue_seconds=0.05, first_seconds=0.02) as batcher:
            for _ in range(3):
                assert not batcher.will_be_full
                batcher.expect()
            assert batcher.will_be_full
            assert not batcher.is_full
            await asyncio.sleep(0)
            assert not batcher.will_be_full

    asyncio.run(main())


def test_an_idle_server_takes_what_takes_long():
    async def main():
        async with batching(Slow(), queue_seconds=0.001, first_seconds=10.0) as batcher:
            assert (await batcher.submit("a", [1], _HANG)).done.result() == [2]

    asyncio.run(main())


def test_the_average_follows_the_model(clock):
    async def main():
        model = Slow(seconds=0.005, clock=clock)
        async with batching(model, first_seconds=0.0) as batcher:
            for n in range(60):
                await batcher.submit("a", [n], _HANG)
            first, tasks = await behind_a_held_batch(model, batcher, ("a", [1, 2]))
            assert batcher.waiting_seconds == pytest.approx(
                3 * 0.005, rel=0.01
            )  # of the one held, and those behind
            model.go.set()
            await asyncio.gather(first, *tasks)

    asyncio.run(main())


@pytest.mark.parametrize(("seconds", "largest"), [(0.01, 25), (0.0001, 40)])
def test_a_batch_takes_a_quarter_of_the_bound(seconds, largest):
    async def main():
        model = Slow()
        async with batching(
            model, batch_documents=64, queue_seconds=1.0, first_seconds=seconds
        ) as batcher:
            first, tasks = await behind_a_held_batch(
                model, batcher, *[("a", [n]) for n in range(40)]
            )
            model.go.set()
            await asyncio.gather(first, *tasks)
        assert max(len(items) for _, items in model.batches) == largest

    asyncio.run(main())


def test_a_batch_that_is_late_says_that_others_will_be(clock):
    async def main():
        model = Slow()
        async with batching(model, queue_seconds=0.05, first_seconds=1e-6) as batcher:
            first, tasks = await behind_a_held_batch(model, batcher, ("a", [1]))
            assert not batcher.is_full
            clock.now += 1  # as long as 16 documents of 60 ms
            assert batcher.is_full
            model.go.set()
            await asyncio.gather(first, *tasks)
            assert not batcher.is_full

    asyncio.run(main())


def test_too_late_is_503_and_never_run():
    async def main():
        model = Slow()
        async with batching(model) as batcher:
            first, _ = await behind_a_held_batch(model, batcher)
            with pytest.raises(Refusal) as refused:
                await batcher.submit("a", [7], 0.05)
            assert refused.value.status == 503
            model.go.set()
            await first
            await batcher.submit("a", [8], _HANG)
        assert [7] not in [items for _, items in model.batches]

    asyncio.run(main())


def test_who_left_is_not_computed():
    async def main():
        model = Slow()
        async with batching(model) as batcher:
            first, (gone, stays) = await behind_a_held_batch(model, batcher, ("a", [1]), ("a", [2]))
            assert batcher.documents == 2
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            assert batcher.documents == 1  # before the thread of the model looks at the queue
            model.go.set()
            await asyncio.gather(first, stays)
            assert batcher.documents == 0
        assert model.batches[1:] == [("a", [2])]

    asyncio.run(main())


def test_an_error_reaches_all_of_its_batch_and_no_other():
    async def main():
        model = Slow()
        async with batching(model) as batcher:
            first, tasks = await behind_a_held_batch(
                model, batcher, ("a", [-1]), ("a", [1]), ("b", [2])
            )
            model.go.set()
            await first
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results[:2]] == [ValueError, ValueError]
            assert results[2].done.result() == [4]

    asyncio.run(main())


def test_closing_finishes_what_waits_and_takes_no_more():
    async def main():
        model = Slow()
        async with batching(model) as batcher:
            first, tasks = await behind_a_held_batch(model, batcher, ("a", [1]))
            closing = asyncio.create_task(asyncio.to_thread(batcher.close))
            await until(lambda: batcher._closed)
            with pytest.raises(Refusal, match="503"):
                await batcher.submit("a", [2], _HANG)
            model.go.set()
            await asyncio.gather(first, *tasks, closing)
            assert tasks[0].result().done.result() == [2]

    asyncio.run(main())
