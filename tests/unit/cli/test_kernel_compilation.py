"""Compilation before kernels are needed: all of those that the demo calls, shown as one stage."""

from __future__ import annotations

import json
import logging
import os
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
from longtail.kernels import compilation, pool
from longtail.kernels.compilation import CompilationRecord
from longtail.methods import METHODS, configure

KNOWN = """
import gc, json, sys
from pathlib import Path
from numba.core.registry import CPUDispatcher
from longtail.cli import kernel_compilation
from longtail.config import Config

def known():
    kernels = [thing for thing in gc.get_objects() if type(thing) is CPUDispatcher]
    return {
        (kernel.py_func.__module__, kernel.py_func.__name__, str(signature))
        for kernel in kernels
        for signature in kernel.signatures
        if kernel.py_func.__module__.startswith("longtail.")
    }
"""
# Compiles what the demo needs, then runs it: every type that a kernel is called with is known by
# then.
DEMO = f"""{KNOWN}
from longtail.cli.about_commands import demo
kernel_compilation.compile_kernels([Config()])
before = known()
demo(Path(sys.argv[1]))
print(json.dumps([len(before), sorted(known() - before)]))
"""
# Calls one of the functions that two processes compile by.
PARTS = f"""{KNOWN}
getattr(kernel_compilation, sys.argv[1])(Config())
print(json.dumps(sorted(known())))
"""
# Ends the second process when it has compiled some kernels and stored one.
BESIDE = """
import time
from pathlib import Path
import numba
from longtail.cli.kernel_compilation import _second_process, _Steps
from longtail.config import Config
from longtail.kernels import pool

if __name__ == "__main__":
    counted = []
    pool.cores = lambda: 2
    with _second_process([Config()], _Steps(counted.append, 100)) as is_shared:
        assert is_shared
        while len(counted) < 3 or not list(Path(numba.config.CACHE_DIR).rglob("*.nbc")):
            time.sleep(0.01)
    print(counted[:3])
"""


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Run a program in a process of its own, and return its last line."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_demo_calls_no_kernel_that_was_not_compiled(tmp_path):
    count, missed = json.loads(run_python(DEMO, str(tmp_path)))
    assert count > 20
    assert missed == []


def test_parts_compile_what_the_whole_calls():
    whole, *parts = (
        {tuple(kernel) for kernel in json.loads(run_python(PARTS, part))}
        for part in ("_use", "_use_training", "_use_text", "_use_search")
    )
    assert all(len(part) > 3 for part in parts)
    assert set.union(*parts) <= whole
    # little is left for the process that waits for both
    assert len(whole - set.union(*parts)) < len(whole) / 4


def test_a_second_process_compiles_and_is_counted(tmp_path):
    script = tmp_path / "beside.py"  # a file, which the second process can import
    script.write_text(BESIDE)
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    assert run_python(code, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "[1, 1, 1]"


@pytest.mark.parametrize("reason", ["one core", "no cache", "no label tree", "label graph"])
def test_no_second_process_where_it_would_not_help(reason, monkeypatch):
    config = Config()
    monkeypatch.setattr(pool, "cores", lambda: 2 - (reason == "one core"))
    if reason == "no cache":
        record = CompilationRecord(None, "a version")
        monkeypatch.setattr(kernel_compilation, "compilation_record", lambda: record)
    elif reason == "no label tree":
        config = configure("pfastrexml")
    elif reason == "label graph":
        config = configure("xr-linear", None, {"gandalf": {"use": True}})
    with kernel_compilation._second_process([config], kernel_compilation._Steps(print, 1)) as used:
        assert not used


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
    monkeypatch.setattr(pool, "cores", lambda: 1)  # without a second process
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
