"""How kernels are compiled: plain Python on request, uncached with one warning, one word to the user."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile
from numba.core.cpu import CPUTargetOptions

from longtail.kernels import compilation, jit

ROOT = Path(__file__).parents[3]
MEASURED = """
from scipy import sparse
from longtail import metrics
from longtail.kernels import ranking
scores = sparse.csr_array([[0.9, 0, 0, 0.2], [0, 0.5, 0.4, 0]])
truth = sparse.csr_array([[1.0, 0, 0, 0], [0, 0, 1.0, 1.0]])
compiled = hasattr(ranking.rank_documents, "signatures")
print(compiled, metrics.precision_at_k(scores, truth, 1), metrics.recall_at_k(scores, truth, 2))
"""

ANNOUNCED = (
    "compiling kernels, once on this machine: up to a minute or two for a method; "
    "`longtail doctor --compile` compiles those of all methods at once"
)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_compiling():
    done = python(MEASURED, NUMBA_DISABLE_JIT="1")
    assert done.stderr == ""
    assert done.stdout == "False 0.5 0.75\n"


@pytest.fixture
def fresh(monkeypatch):
    """Forget that the process has warned before."""
    jit._warn_uncached.cache_clear()
    yield monkeypatch
    jit._warn_uncached.cache_clear()


def unwritable(**options):
    """Stand in for numba.njit where no cache folder can be written."""
    if options.get("cache"):
        raise RuntimeError("cannot cache function: no locator available")
    assert options == {"nogil": True}
    return lambda function: function


@pytest.mark.parametrize("action", ["always", "default", "once"])
def test_unwritable_cache_warns_once(fresh, action):
    fresh.setattr(numba, "njit", unwritable)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        kernels = [jit.kernel(lambda x, n=n: x + n) for n in range(3)]
    assert [kernel(1) for kernel in kernels] == [1, 2, 3]
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert "set NUMBA_CACHE_DIR to a writable folder" in str(warning.message)


@pytest.mark.parametrize(
    "cached", [{}, {"_cache_file": object()}, {"_cache_file": SimpleNamespace(_source_stamp=1)}]
)
def test_a_cache_of_another_kind_is_not_used(fresh, cached):
    def njit(**options):
        """Stand in for a numba whose cache lacks what is set in it."""
        if options.get("cache"):
            return lambda function: SimpleNamespace(_cache=SimpleNamespace(**cached))
        return lambda function: function

    fresh.setattr(numba, "njit", njit)
    jit._warn_unknown_cache.cache_clear()
    with pytest.warns(
        RuntimeWarning, match=r"numba \S+ keeps .* anew in every process; install numba 0\.\d+"
    ) as caught:
        kernels = [jit.kernel(lambda x, n=n: x + n) for n in range(3)]
    assert [kernel(1) for kernel in kernels] == [1, 2, 3]
    assert len(caught) == 1
    jit._warn_unknown_cache.cache_clear()


@pytest.mark.skipif(not jit.compiles(), reason="nothing is compiled")
def test_numba_has_the_private_attributes_that_are_set():
    """A failure names what this version of numba lacks: kernels/jit.py has to be adapted."""
    files = jit._nothing._cache._cache_file
    assert [name for name in jit._CACHE_ATTRIBUTES if not hasattr(files, name)] == []
    assert hasattr(jit._nothing._cache, "save_overload")
    assert [name for name in jit._BORROWING if not hasattr(CPUTargetOptions, name)] == []
    assert "{number:d}" in files._data_name_pattern


def test_numba_is_bounded_by_the_newest_version_that_was_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    major, minor = map(int, jit._NEWEST_KNOWN.split("."))
    assert f"numba>=0.60,<{major}.{minor + 1}" in project["dependencies"]
    assert f"\nnumba=={jit._NEWEST_KNOWN}." in (ROOT / "constraints.txt").read_text("utf-8")


def test_other_errors_are_not_taken_for_it(fresh):
    def broken(**options):
        raise TypeError("something else")

    fresh.setattr(numba, "njit", broken)
    with pytest.raises(TypeError, match="something else"):
        jit.kernel(lambda x: x)


def test_compiles_on_the_first_call_without_the_gil():
    @jit.kernel
    def total(values):
        """Add up."""
        result = 0.0
        for value in values:
            result += value
        return result

    assert total.signatures == []
    assert total(np.arange(4.0)) == total.py_func(np.arange(4.0)) == 6
    assert len(total.signatures) == 1
    assert total.targetoptions["nogil"] is True
    assert total.targetoptions["nopython"] is True
    assert not total.targetoptions.get("parallel")
    assert total.__doc__ == "Add up."
    assert type(total._cache).__name__ == "FunctionCache"


class Steps:
    """Notes how an observer is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def start(self, kernel: str) -> None:
        self.calls.append(("start", kernel))

    def step(self) -> None:
        self.calls.append(("step",))

    def finish(self) -> None:
        self.calls.append(("finish",))


def test_an_observer_is_called_around_each_compilation(monkeypatch):
    # as if an earlier run of this test had left no compiled kernels
    monkeypatch.setattr(IndexDataCacheFile, "load", lambda *_: None)

    @jit.kernel
    def doubled(x):
        return 2 * x

    @jit.kernel
    def quadrupled(x):
        return doubled(doubled(x))

    steps = Steps()
    compilation.observe(steps)
    try:
        assert [quadrupled(1), quadrupled(1), doubled(1.0)] == [4, 4, 2]
    finally:
        compilation.observe(None)
    around = [("step",), ("finish",)]
    assert steps.calls == [
        ("start", "quadrupled"),
        ("step",),
        *around,
        ("start", "doubled"),
        *around,
    ]


def test_announced_once_on_a_machine(caplog, monkeypatch, tmp_path):
    record = compilation.CompilationRecord(tmp_path, "numba")
    monkeypatch.setattr(jit, "compilation_record", lambda: record)
    caplog.set_level(logging.INFO, "longtail")
    for _ in range(2):  # as in two processes
        announcer = jit._Announcer()
        for _ in range(3):
            announcer._announce()
    assert [entry.getMessage() for entry in caplog.records] == [ANNOUNCED]


COMPILES = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
from longtail.kernels.ranking import _before

print("imported")
print(_before(1.0, 2, 0.5, 1))
print(_before(1, 2, 1, 3))
print(sum(_before.stats.cache_hits.values()), "from the cache")
"""


def test_compiling_is_announced_when_it_happens_and_not_for_a_cached_kernel(tmp_path):
    cold = python(COMPILES, NUMBA_CACHE_DIR=str(tmp_path))
    assert cold.stderr == ""
    assert cold.stdout.splitlines() == ["imported", ANNOUNCED, "True", "True", "0 from the cache"]
    warm = python(COMPILES, NUMBA_CACHE_DIR=str(tmp_path))
    assert warm.stdout.splitlines() == ["imported", "True", "True", "2 from the cache"]
    for kept in tmp_path.rglob("*.nbi"):
        kept.unlink()
    again = python(COMPILES, NUMBA_CACHE_DIR=str(tmp_path))
    assert again.stdout.splitlines() == ["imported", "True", "True", "0 from the cache"]


INNER = """
from longtail.kernels.jit import kernel

STEP = {step}
@kernel
def further(x):
    return x + STEP
"""
MIDDLE = """
from longtail.kernels.inner import further
from longtail.kernels.jit import kernel

@kernel
def twice(x):
    return further(further(x))
"""
OUTER = """
from longtail.kernels.jit import kernel
from longtail.kernels.middle import twice

@kernel
def four_times(x):
    return twice(twice(x))
"""
FOUR_TIMES = """
from longtail.kernels.outer import four_times

print(four_times(0), sum(four_times.stats.cache_hits.values()))
"""


def test_edit_of_a_called_kernel_is_seen(tmp_path):
    kernels = tmp_path / "longtail" / "kernels"
    kernels.mkdir(parents=True)
    shutil.copy(jit.__file__, kernels)
    shutil.copy(compilation.__file__, kernels)
    for package in (kernels, kernels.parent):
        (package / "__init__.py").touch()
    for name, source in (
        ("inner", INNER.format(step=1)),
        ("middle", MIDDLE),
        ("outer", OUTER),
        ("other", ""),
    ):
        (kernels / f"{name}.py").write_text(source)

    def answer():
        done = python(FOUR_TIMES, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        assert done.stderr == ""
        return done.stdout.split()

    assert answer() == ["4", "0"]
    assert answer() == ["4", "1"]
    (kernels / "inner.py").write_text(INNER.format(step=2))
    assert answer() == ["8", "0"]
    (kernels / "other.py").write_text("x = 1")
    assert answer() == ["8", "1"]
    assert (
        len(list((tmp_path / "cache").rglob("outer.four_times*.nbc"))) == 1
    )  # the stale one is written over


def test_source_of_a_frozen_program_is_not_looked_for(tmp_path):
    assert jit._sources(str(tmp_path / "library.zip" / "kernels.py")) == frozenset()


class TwoProcesses:
    """The cache files of one kernel as two processes see them."""

    def __init__(self, folder):
        self.first = self._files(folder)
        self.second = self._files(folder)

    @staticmethod
    def _files(folder):
        files = IndexDataCacheFile(str(folder), "solvers.solve-1.py311", "stamp")
        cached = SimpleNamespace(_cache_file=files, save_overload=lambda *arguments: None)
        assert jit._bind_cache(cached, test_two_processes_that_compile_at_once)
        return files


def test_two_processes_that_compile_at_once(tmp_path):
    both = TwoProcesses(tmp_path)
    index_of_second = both.second._load_index()  # read before the first process writes
    write_data = both.first._save_data

    def write_data_after_the_second(name, data):
        both.second._load_index = lambda: index_of_second
        both.second.save("float32", b"code for float32")
        write_data(name, data)

    both.first._save_data = write_data_after_the_second
    both.first.save("int64", b"code for int64")
    later = TwoProcesses(tmp_path).first
    assert later.load("float32") in (None, b"code for float32")
    assert later.load("int64") in (None, b"code for int64")
    for key in ("float32", "int64"):
        later.save(key, f"code for {key}".encode())
    assert later.load("float32") == b"code for float32"
    assert later.load("int64") == b"code for int64"


def test_an_index_that_is_there_before_its_data_was_written_is_no_other_code(tmp_path):
    files = TwoProcesses(tmp_path).first
    files.save("int64", b"code for int64")
    (data,) = tmp_path.glob("*.nbc")
    data.unlink()
    assert files.load("int64") is None
    files.save("float32", b"code for float32")
    assert files.load("float32") == b"code for float32"
    assert files.load("int64") is None
