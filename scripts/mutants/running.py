"""Tests a mutant: written to a file in a copy of the tree, in a fork of a process that has loaded
what tests need.

Nothing of longtail is loaded before the fork, and nothing of the tree itself is touched.
"""

from __future__ import annotations

import compileall
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from mutants.modules import ROOT

__all__ = ["Copy", "load"]

SLOW = 5  # seconds: a test that takes longer is left out
KEPT = "seconds.json"
MEMORY = 12 << 30  # bytes of addresses a mutant may take
# Kernels run as Python: compiling each anew would take longer than the tests. Plugins that pytest
# finds by itself are most of a short test's time.
SWITCHES = (
    *("NUMBA_DISABLE_JIT", "OMP_NUM_THREADS", "HF_HUB_OFFLINE", "PYTHONDONTWRITEBYTECODE"),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
)
PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin")
LOADED = (
    *(
        "pytest",
        "pytest_timeout",
        "hypothesis.extra.numpy",
        "hypothesis.stateful",
        "numpy",
        "numba",
        "msgspec",
    ),
    *("scipy.sparse", "scipy.special", "scipy.optimize"),
    *("sklearn.isotonic", "sklearn.metrics", "sklearn.preprocessing"),
)
# Kernels count on unsigned numbers that wrap round, of which numpy warns; pytest warns of LOADED.
IGNORED = (
    "overflow encountered:RuntimeWarning",
    "Module already imported:pytest.PytestAssertRewriteWarning",
)


def load() -> None:
    """Load what the tests need, once, before the forks."""
    os.environ |= dict.fromkeys(SWITCHES, "1")
    for name in LOADED:
        importlib.import_module(name)


class _Chosen:
    """A plugin of pytest: only the tests of ``seconds``, the fastest first; without it all, whose
    times it keeps.
    """

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.chosen = seconds
        self.seconds = Counter[str]()
        self.failed = set[str]()

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)  # the smallest failure is not looked for
        settings.register_profile(
            "mutants", settings.default, derandomize=True, database=None, phases=phases
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if (chosen := self.chosen) is not None:
            items[:] = sorted(
                (item for item in items if item.nodeid in chosen),
                key=lambda item: chosen[item.nodeid],
            )

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


class Copy:
    """A copy of what git knows of the tree, and of what it would add, in which tests are run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._seconds = dict[str, tuple[dict[str, float], int]]()
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = (
            subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
            .stdout.decode()
            .split("\0")
        )
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, root / name)
                os.utime(
                    root / name, (0, 0)
                )  # bytecode of the copy is never taken for that of a mutant
        compileall.compile_dir(root / "src", quiet=1)
        os.environ["PYTHONPATH"] = str(root / "src")
        sys.path.insert(0, str(root / "src"))
        sys.dont_write_bytecode = True

    def good_tests(self, files: list[str]) -> tuple[dict[str, float], int]:
        """Return the seconds of tests that pass soon enough, and how many others there are."""
        good = dict[str, float]()
        left_out = 0
        for file in files:
            if file not in self._seconds:
                self._seconds[file] = self._timed(file)
            good |= self._seconds[file][0]
            left_out += self._seconds[file][1]
        return good, left_out

    def _timed(self, file: str) -> tuple[dict[str, float], int]:
        kept = self.root / KEPT
        kept.unlink(missing_ok=True)
        self._tested([file], None, 1800)
        seconds, failed = json.loads(kept.read_text())
        good = {name: took for name, took in seconds.items() if name not in failed}
        return good, len(seconds) - len(good)

    def outcome(self, file: str, source: str, files: list[str], tests: dict[str, float]) -> str:
        """Return what becomes of a file that says ``source``: «killed», «timeout» or «survived»."""
        whole = (self.root / file).read_text()
        (self.root / file).write_text(source)
        try:
            code = self._tested(files, tests, 20 + 4 * sum(tests.values()))
        finally:
            (self.root / file).write_text(whole)
        if code is None:
            return "timeout"
        return "killed" if code else "survived"

    def _tested(
        self, files: list[str], tests: dict[str, float] | None, seconds: float
    ) -> int | None:
        """Return pytest's exit code, or what ended it; None after ``seconds``."""
        child = os.fork()
        if not child:
            self._be_the_child(files, tests)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None

    def _be_the_child(self, files: list[str], tests: dict[str, float] | None) -> None:
        """Test, and end: never returns."""
        code = 1
        try:
            os.setsid()
            os.chdir(self.root)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            log = os.open("tests.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for stream in range(3):
                os.dup2(log, stream)
            code = _pytest(files, tests, self.root / KEPT)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)


def _pytest(files: list[str], tests: dict[str, float] | None, kept: Path) -> int:
    """Run ``tests`` up to the first that fails; without them all, and keep their seconds."""
    import pytest

    plugin = _Chosen(tests)
    options = [
        "-p",
        "no:cacheprovider",
        *(f"-p{name}" for name in PLUGINS),
        *(f"-Wignore:{what}" for what in IGNORED),
    ]
    if tests:
        options += ["--exitfirst", f"--timeout={4 * SLOW}"]
    else:
        options.append(f"--timeout={SLOW}")
    try:
        return int(pytest.main([*options, *files], [plugin]))
    finally:
        if tests is None:
            kept.write_text(json.dumps([plugin.seconds, sorted(plugin.failed)]))
