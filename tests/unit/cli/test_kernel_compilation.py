"""Compilation before kernels are needed: all of those that the demo calls, shown as one stage."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from longtail import reporting
from longtail.cli import kernel_compilation
from longtail.cli.kernel_compilation import (
    compile_kernels,
    compile_missing_kernels,
    linear_trainings,
)
from longtail.config import Config
from longtail.kernels import compilation
from longtail.methods import METHODS

# Compiles what the demo needs, then runs it: every type that a kernel is called with is known by
# then.
DEMO = """
import gc, json, sys
from pathlib import Path
from numba.core.registry import CPUDispatcher
from longtail.cli.about_commands import demo
from longtail.cli.kernel_compilation import compile_kernels
from longtail.config import Config

def known():
    kernels = [thing for thing in gc.get_objects() if type(thing) is CPUDispatcher]
    return {
        (kernel.py_func.__module__, kernel.py_func.__name__, str(signature))
        for kernel in kernels
        for signature in kernel.signatures
        if kernel.py_func.__module__.startswith("longtail.")
    }

compile_kernels([Config()])
before = known()
demo(Path(sys.argv[1]))
print(json.dumps([len(before), sorted(known() - before)]))
"""


def test_the_demo_calls_no_kernel_that_was_not_compiled(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", DEMO, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    count, missed = json.loads(done.stdout.splitlines()[-1])
    assert count > 20
    assert missed == []


class Noted:
    """A reporter that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def start(self, name, total, unit):
        self.calls.append(("start", name, total, unit))

    def advance(self, amount):
        self.calls.append(("advance", amount))

    def finish(self):
        self.calls.append(("finish",))


@pytest.fixture
def reporter():
    noted = Noted()
    reporting.show_on(noted)
    yield noted
    reporting.show_on(None)


@pytest.fixture
def record(monkeypatch):
    """Stand in for the training and for the record, and return the settings that were used."""
    used: list[Config] = []

    def use(config):
        with reporting.stage("hidden"):
            observer = compilation.observer()
            for kernel in ("a", "b", "c"):
                observer.start(kernel)
                observer.step()
                observer.finish()
            logging.getLogger("longtail").info("hidden")
        used.append(config)

    monkeypatch.setattr(kernel_compilation, "_use", use)
    monkeypatch.setattr(kernel_compilation, "note_compiled", lambda config: None)
    monkeypatch.setattr(kernel_compilation, "compilation_kernels", lambda *configs: 2)
    return used


def test_one_stage_for_all(reporter, record, caplog):
    caplog.set_level(logging.INFO, "longtail")
    compile_kernels([Config()])
    start, *advances, finish = reporter.calls
    assert start == ("start", "compiling kernels", 2, "kernels")
    assert advances == [("advance", 1)] * 2  # never more than were expected
    assert finish == ("finish",)
    first, last = (entry.getMessage() for entry in caplog.records)
    assert first == "compiling kernels, once on this machine: xr-linear"
    assert last.startswith("kernels compiled, ")
    assert compilation.observer() is None
    logging.getLogger("longtail").info("heard again")
    assert caplog.records[-1].getMessage() == "heard again"


def test_only_what_is_missing(record, monkeypatch):
    compile_missing_kernels(Config())
    assert record == [Config()]
    monkeypatch.setattr(kernel_compilation, "compilation_kernels", lambda *configs: 0)
    compile_missing_kernels(Config())
    assert record == [Config()]


def test_every_linear_method_is_among_the_trainings():
    trainings = linear_trainings()
    assert {config.method for config in trainings} == {
        name for name in METHODS if not METHODS[name].network
    }
    assert any(config.gandalf.use for config in trainings)
