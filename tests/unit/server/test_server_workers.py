"""What the first of several processes does with its workers, without processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("prometheus_client", reason="needs longtail[server]")

import itertools

from longtail.server import listening
from longtail.server.listening import _Supervisor, _Worker
from longtail.server.settings import ServerSettings


class Pipe:
    """The end of a worker that has said so many times that it is ready."""

    def __init__(self, *messages):
        self.messages = list(messages)

    def poll(self):
        return bool(self.messages)

    def recv(self):
        return self.messages.pop()

    def close(self):
        pass


def worker(pid, *messages, exitcode=None):
    process = SimpleNamespace(pid=pid, exitcode=exitcode, is_alive=lambda: exitcode is None)
    return _Worker(process, Pipe(*messages))


@pytest.fixture
def supervisor(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(listening, "print_address", lambda settings, port: None)
    return _Supervisor(ServerSettings(Path("model"), workers=2), None)


def test_a_reload_reaches_a_worker_that_was_starting(supervisor, monkeypatch):
    """It may have opened the old model; a signal before it is ready would end it."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    ready = worker(1, True)
    starting = worker(2)
    supervisor._workers = [ready, starting]
    supervisor._hear(ready)
    supervisor._reload(signal.SIGHUP, None)
    assert sent == [(1, signal.SIGHUP)]
    starting.pipe.messages.append(True)
    supervisor._hear(starting)
    assert sent == [(1, signal.SIGHUP), (2, signal.SIGHUP)]
    supervisor._hear(starting)
    assert len(sent) == 2


def test_pauses_grow_until_a_worker_is_ready(supervisor, monkeypatch):
    now = 0.0
    monkeypatch.setattr(listening.time, "monotonic", lambda: now)
    started = []

    def start(failures=0):
        made = worker(len(started) + 2, exitcode=4)
        made.failures = failures
        started.append(now)
        return made

    monkeypatch.setattr(supervisor, "_started", start)
    dead = worker(1, True, exitcode=-9)
    supervisor._workers = [dead]
    supervisor._hear(dead)
    while len(started) < 10:
        supervisor._replace_dead()
        now += 0.25
    pauses = [round(later - earlier) for earlier, later in itertools.pairwise(started)]
    assert pauses == [1, 2, 4, 8, 15, 15, 15, 15, 15]
    supervisor._workers[0].is_ready = True
    before = now
    while len(started) < 11:
        supervisor._replace_dead()
        now += 0.25
    assert started[-1] - before < 1
