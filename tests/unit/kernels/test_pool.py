from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from longtail.kernels import pool

_HANG = 200  # seconds, after which something has gone wrong


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 3, 1000])
def test_results_come_in_the_order_of_the_items(count, n):
    others = threading.Event()

    def task(item):
        if item == 0 and count > 1 and n > 1:
            assert others.wait(_HANG)  # the first ends after another one
        if item == 1:
            others.set()
        return item * item

    with pool.threads(count):
        assert list(pool.run(task, range(n))) == [item * item for item in range(n)]


def test_as_many_threads_as_wanted_work_at_once():
    meeting = threading.Barrier(3, timeout=_HANG)
    names = set()

    def task(_):
        names.add(threading.get_ident())
        return meeting.wait()

    with pool.threads(3):
        assert sorted(pool.run(task, range(3))) == [0, 1, 2]
    assert len(names) == 3


def test_one_thread_is_the_callers_own_and_works_only_when_asked():
    started = []

    def task(item):
        started.append((item, threading.get_ident()))
        return item

    with pool.threads(1):
        results = pool.run(task, range(5))
        assert [next(results), next(results)] == [0, 1]
        assert started == [(0, threading.get_ident()), (1, threading.get_ident())]
        results.close()
    assert len(started) == 2


def test_a_lone_task_is_the_callers_own():
    with pool.threads(3):
        assert list(pool.run(lambda _: threading.get_ident(), range(1))) == [threading.get_ident()]
        assert list(pool.run(lambda _: threading.get_ident(), {"a": 1}.values())) == [
            threading.get_ident()
        ]
        assert threading.get_ident() not in pool.run(lambda _: threading.get_ident(), range(2))


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_reaches_the_caller_and_drops_the_rest(count):
    started = []

    def task(item):
        started.append(item)
        time.sleep(0.001)
        if item == 4:
            raise ValueError("item 4")
        return item

    with pool.threads(count):
        results = pool.run(task, range(1000))
        assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="item 4"):
            next(results)
    assert len(started) < 500


def test_an_error_of_the_items_reaches_the_caller():
    def items():
        yield from range(3)
        raise OSError("no more")

    with pool.threads(2), pytest.raises(OSError, match="no more"):
        list(pool.run(str, items()))


def test_leaving_early_drops_what_has_not_begun_and_waits_for_what_has():
    begun = []
    ended = []

    def task(item):
        begun.append(item)
        time.sleep(0.002)
        ended.append(item)
        return item

    with pool.threads(2):
        for result in pool.run(task, range(1000)):
            if result == 3:
                break
    del result
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 500


def test_items_are_taken_as_they_are_needed():
    taken = []

    def items():
        for item in range(100_000):
            taken.append(item)
            yield item

    with pool.threads(2):
        results = pool.run(str, items())
        next(results)
        results.close()
    assert len(taken) < 1000


def test_thread_count(monkeypatch):
    everything = pool.thread_count()
    assert everything >= 1
    with pool.threads(7):
        assert pool.thread_count() == 7
        with pool.threads(2):
            assert pool.thread_count() == 2
        with pool.threads(0):
            assert pool.thread_count() == everything
        assert pool.thread_count() == 7
    with pytest.raises(KeyError), pool.threads(3):
        raise KeyError
    assert pool.thread_count() == everything
    monkeypatch.setattr(pool.os, "sched_getaffinity", lambda _: {1, 4, 6}, raising=False)
    assert pool.thread_count() == 3
    monkeypatch.delattr(pool.os, "sched_getaffinity")
    monkeypatch.setattr(pool.os, "cpu_count", lambda: None)
    assert pool.thread_count() == 1


def test_row_blocks_cover_all_rows_once():
    assert pool.row_blocks(0, 4) == []
    assert pool.row_blocks(3, 4) == [(0, 3)]
    assert pool.row_blocks(8, 4) == [(0, 4), (4, 8)]
    assert pool.row_blocks(9, 4) == [(0, 4), (4, 8), (8, 9)]


def test_outputs_side_by_side_are_the_same_for_any_number_of_threads():
    x = np.random.default_rng(0).random(1000)
    answers = []
    for count in (1, 4):
        out = np.zeros(1000)

        def task(ends, out=out):
            out[slice(*ends)] = np.cumsum(x[slice(*ends)])

        with pool.threads(count):
            list(pool.run(task, pool.row_blocks(1000, 64)))
        answers.append(out.tobytes())
    assert answers[0] == answers[1]
