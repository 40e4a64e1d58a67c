"""Breaks modules on purpose and counts how often their tests see it: ``make mutants``.

python scripts/mutants.py [MODULE …] [--sample N] [--seed S] [--results FILE]: a table of modules, and the survivors
with their diffs; exit code 1 where fewer than GOAL of the mutants are seen. MODULE is one of TESTS, e.g. search/beam.

Mutants are those of mutmut 3, also of decorated functions, which mutmut itself leaves alone. Each is written to a file
in a copy of the tree, never here, and tested in a fork of a process that has loaded what the tests need but nothing of
longtail. Kernels run as Python: compiling each anew would take longer than the tests. Tests that fail or take long
without a mutant are left out and counted. Mutants that make no difference are in scripts/equivalent_mutants.json.
"""

from __future__ import annotations

import argparse
import compileall
import difflib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Before anything of the tests is loaded; plugins that pytest finds by itself are most of a short test's time.
ENVIRONMENT = dict.fromkeys(
    (
        "NUMBA_DISABLE_JIT",
        "OMP_NUM_THREADS",
        "HF_HUB_OFFLINE",
        "PYTHONDONTWRITEBYTECODE",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    ),
    "1",
)
ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "scripts" / "equivalent_mutants.json"
GOAL = 0.85
SLOW = 5.0  # seconds: a test that takes longer is left out
MEMORY = 12 << 30  # bytes of addresses a mutant may take
# Loaded once, before the forks.
LOADED = (
    *("pytest", "pytest_timeout", "hypothesis.extra.numpy", "hypothesis.stateful", "numpy", "numba", "msgspec"),
    *(
        "scipy.sparse",
        "scipy.special",
        "scipy.optimize",
        "sklearn.isotonic",
        "sklearn.metrics",
        "sklearn.preprocessing",
    ),
)
STORE = ("store/test_store", "store/test_store_stages")
STORE_FAULTS = (*STORE, "../faults/test_store_faults")
# The test files of each module, below tests/unit where they say nothing else.
TESTS = {
    "kernels/chunk_check": ("../security/test_chunk_check",),
    "kernels/fusion": ("search/test_ensemble", "search/test_ensemble_weights"),
    "kernels/kmeans": ("kernels/test_kmeans", "tree/test_cluster"),
    "kernels/splitmix": ("kernels/test_splitmix",),
    "kernels/ranked_lists": ("search/test_shards",),
    "kernels/ranking": ("metrics/test_ranking_kernel", "metrics/test_ranking"),
    "kernels/string_order": ("kernels/test_ngrams",),
    "kernels/walks": ("kernels/test_walks",),
    "search/beam": ("search/test_beam", "search/test_exact", "search/test_shards"),
    "search/calibration": ("search/test_calibration",),
    "search/ensemble": ("search/test_ensemble", "search/test_ensemble_weights"),
    "search/ensemble_weights": ("search/test_ensemble_weights",),
    "search/predictions": ("search/test_predictions",),
    "search/shards": ("search/test_shards",),
    "search/weight_codes": ("search/test_chunk_storage", "kernels/test_dense_block"),
    "metrics/bootstrap": ("metrics/test_analysis", "metrics/test_closer_analysis"),
    "metrics/propensity": ("metrics/test_propensity",),
    "metrics/ranking": ("metrics/test_ranking", "metrics/test_closer_analysis"),
    "metrics/statistics": ("metrics/test_ranking", "metrics/test_analysis", "metrics/test_closer_analysis"),
    "store/durable": STORE_FAULTS,
    "store/hashing": STORE,
    "store/manifest": STORE,
    "store/reading": STORE_FAULTS,
    "store/stages": ("store/test_store_stages",),
    "store/writing": STORE_FAULTS,
}


class Mutant(NamedTuple):
    """A change of one place in one function."""

    source: str  # of the whole file
    lines: tuple[str, str]  # what was there and what is, without the space around them
    diff: str


def mutants(file: Path, sample: int, seed: int) -> tuple[dict[int, Mutant], int]:
    """Return a sample of a file's mutants by number, in the order of their places, and how many there are in all."""
    from libcst import MetadataWrapper, parse_module

    source = file.read_text()
    wrapper, visitor = MetadataWrapper(parse_module(source)), _visitor()
    wrapper.visit(visitor)
    every = [change for change in visitor.mutations if change.contained_by_top_level_function is not None]
    chosen = sorted(random.Random(seed).sample(range(len(every)), min(sample, len(every))))
    found = {}
    for number in chosen:
        changed: Any = wrapper.module.deep_replace(every[number].original_node, every[number].mutated_node)
        found[number] = _mutant(source, changed.code, file.name)
    return found, len(every)


def _visitor() -> Any:
    from libcst import CSTNode, FunctionDef
    from mutmut.mutation.file_mutation import MutationVisitor
    from mutmut.mutation.mutators import mutation_operators
    from mutmut.mutation.pragma_handling import IgnoredCode

    class Everywhere(MutationVisitor):
        """Kernels and properties too: a file with one mutant needs none of mutmut's care for decorators."""

        def _skip_node_and_children(self, node: CSTNode) -> bool:
            if isinstance(node, FunctionDef):  # what numba compiles in place of a function never runs here
                return any("overload" in name or "intrinsic" in name for name in map(_code, node.decorators))
            return super()._skip_node_and_children(node)

    return Everywhere(mutation_operators, IgnoredCode(set(), set(), set()))


def _code(node: Any) -> str:
    from libcst import Module

    return Module([]).code_for_node(node)


def _mutant(before: str, after: str, name: str) -> Mutant:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=2, lineterm=""))
    removed, added = (" ".join(line[1:].strip() for line in lines[2:] if line.startswith(sign)) for sign in ("-", "+"))
    return Mutant(after, (removed, added), "\n".join(lines[2:]))


class _Chosen:
    """A plugin of pytest: only the tests of ``seconds``, the fastest first; without it all, whose times it keeps."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.chosen, self.seconds, self.failed = seconds, Counter[str](), set[str]()

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)  # the smallest failure is not looked for
        settings.register_profile("mutants", settings.default, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.chosen is not None:
            items[:] = sorted((item for item in items if item.nodeid in self.chosen), key=self._seconds)

    def _seconds(self, item: Any) -> float:
        assert self.chosen is not None
        return self.chosen[item.nodeid]

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


class Copy:
    """A copy of what git knows of the tree, and of what it would add, in which tests are run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, place / name)
                os.utime(place / name, (0, 0))  # bytecode of the copy is never taken for that of a mutant
        compileall.compile_dir(place / "src", quiet=1)
        os.environ["PYTHONPATH"] = str(place / "src")
        sys.path.insert(0, str(place / "src"))
        sys.dont_write_bytecode = True

    def good_tests(self, files: list[str]) -> tuple[dict[str, float], int]:
        """Return the seconds of tests that pass soon enough, and how many others there are."""
        kept = self.place / "seconds.json"
        kept.unlink(missing_ok=True)
        self._tested(files, None, 1800, kept)
        seconds, failed = json.loads(kept.read_text())
        good = {name: took for name, took in seconds.items() if name not in failed and took <= SLOW}
        return good, len(seconds) - len(good)

    def outcome(self, file: str, source: str, files: list[str], tests: dict[str, float]) -> str:
        """Return what becomes of a file that says ``source``: «killed», «timeout» or «survived»."""
        whole = (self.place / file).read_text()
        (self.place / file).write_text(source)
        try:
            code = self._tested(files, tests, 20 + 4 * sum(tests.values()), None)
        finally:
            (self.place / file).write_text(whole)
        return "timeout" if code is None else "killed" if code else "survived"

    def _tested(
        self, files: list[str], tests: dict[str, float] | None, seconds: float, kept: Path | None
    ) -> int | None:
        """Return pytest's exit code, or what ended it; None after ``seconds``."""
        child = os.fork()
        if not child:
            self._test(files, tests, kept)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None

    def _test(self, files: list[str], tests: dict[str, float] | None, kept: Path | None) -> None:
        """Be the child: never returns."""
        code = 1
        try:
            os.setsid()
            os.chdir(self.place)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            log = os.open("tests.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for stream in range(3):
                os.dup2(log, stream)
            import pytest

            plugin = _Chosen(tests)
            # Kernels count on unsigned numbers that wrap round, of which numpy warns; pytest warns of LOADED
            ignored = (
                "overflow encountered:RuntimeWarning",
                "Module already imported:pytest.PytestAssertRewriteWarning",
            )
            options = [
                "-p",
                "no:cacheprovider",
                "-p",
                "pytest_timeout",
                "-p",
                "_hypothesis_pytestplugin",
                *(f"-Wignore:{warning}" for warning in ignored),
            ]
            code = pytest.main([*options, *(["--exitfirst"] if tests else []), *files], [plugin])
            if kept:
                kept.write_text(json.dumps([plugin.seconds, sorted(plugin.failed)]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(int(code))


def measure(copy: Copy, module: str, sample: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield what became of each mutant of a module's sample."""
    file, files = f"src/longtail/{module}.py", [os.path.normpath(f"tests/unit/{name}.py") for name in TESTS[module]]
    chosen, of = mutants(ROOT / file, sample, seed)
    tests, left_out = copy.good_tests(files)
    if not tests or copy.outcome(file, (ROOT / file).read_text(), files, tests) != "survived":
        raise RuntimeError(f"the tests of {module} fail without a mutant")
    print(f"{module}: {len(chosen)} of {of} mutants, {len(tests)} tests ({left_out} left out)", flush=True)
    reasons = {tuple(known["lines"]): known["reason"] for known in _equivalent() if known["module"] == module}
    for number, mutant in chosen.items():
        outcome = copy.outcome(file, mutant.source, files, tests)
        if outcome == "survived" and mutant.lines in reasons:
            outcome = "equivalent"
        result = {"module": module, "of": of, "number": number, "outcome": outcome}
        yield result | {"lines": mutant.lines, "diff": mutant.diff}


def _equivalent() -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = json.loads(EQUIVALENT.read_text())
    return known


def table(results: list[dict[str, Any]]) -> tuple[str, float]:
    """Return the rows of a table in Markdown, and the share of mutants that tests see."""
    rows = ["| module | tried | of | killed | timeout | equivalent | survived | score |", "|---|" + "--:|" * 7]
    modules = dict.fromkeys(result["module"] for result in results)
    score = 0.0
    for module in [*modules, "all"]:
        own = [result for result in results if module in ("all", result["module"])]
        number = Counter(result["outcome"] for result in own)
        of = sum({result["module"]: result["of"] for result in own}.values())
        seen = number["killed"] + number["timeout"]
        score = seen / max(1, seen + number["survived"])
        counts = [number[outcome] for outcome in ("killed", "timeout", "equivalent", "survived")]
        rows.append("| " + " | ".join(map(str, [module, len(own), of, *counts, f"{score:.0%}"])) + " |")
    return "\n".join(rows), score


def main() -> int:
    """Measure modules; return the exit code."""
    parser = argparse.ArgumentParser(description="Share of mutants that tests see")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(TESTS))
    parser.add_argument("--sample", type=int, default=20, help="mutants a module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="a file of JSON lines, one a mutant, written as they come")
    asked = parser.parse_args()
    if unknown := set(asked.modules) - set(TESTS):
        parser.error(f"no module with tests: {', '.join(sorted(unknown))}")
    os.environ |= ENVIRONMENT
    for name in LOADED:
        importlib.import_module(name)
    results = []
    with tempfile.TemporaryDirectory() as place:
        copy = Copy(Path(place))
        for module in asked.modules or TESTS:
            for result in measure(copy, module, asked.sample, asked.seed):
                results.append(result)
                if asked.results:
                    with asked.results.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                if result["outcome"] == "survived":
                    print(f"{module} {result['number']} survived\n{result['diff']}\n", flush=True)
    rows, score = table(results)
    print(f"{rows}\nseed {asked.seed}")
    return int(score < GOAL)


if __name__ == "__main__":
    sys.exit(main())
