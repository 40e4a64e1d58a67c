"""Fuzz every parser with atheris: ``python -m tests.fuzz [PARSER ...]``.

Each parser runs in a process of its own for FUZZ_RUNS executions (200,000) or FUZZ_SECONDS (240),
whichever ends first, from the seeds in ``corpus/PARSER``; another FUZZ_SEED (1) goes other ways.
One JSON line a parser goes to standard output. Each distinct defect is kept in ``crashes/PARSER``:
the input as it is, the traceback beside it. ``bow-python`` is the BoW parser with its kernel left
to Python, so that coverage guides the fuzzer into it too, with a tenth of the executions.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
PYTHON_KERNEL = "bow-python"
_MEMORY = (
    2 << 30
)  # bytes above what the imports take: a header that lies is found by what is allocated for it
_ONE_IN = 16  # inputs that get the costly second opinions
_INPUT_SECONDS = 20


def main(names: list[str]) -> int:
    """Fuzz the parsers called ``names``, else all; return 1 if any has a defect."""
    runs = int(os.environ.get("FUZZ_RUNS", 200_000))
    seconds = int(os.environ.get("FUZZ_SECONDS", 240))
    results = [_fuzz(name, runs, seconds) for name in names or _parsers()]
    defects = sum(result["crashes"] for result in results)
    print(
        f"{len(results)} parsers, {defects} defects; inputs of defects are in {HERE / 'crashes'}",
        file=sys.stderr,
    )
    return 1 if defects else 0


def _parsers() -> list[str]:
    return [*sorted(path.name for path in (HERE / "corpus").iterdir()), PYTHON_KERNEL]


def _fuzz(name: str, runs: int, seconds: int) -> dict[str, int]:
    """Run one parser in a process, and print and return what came of it."""
    crashes = HERE / "crashes" / name
    crashes.mkdir(parents=True, exist_ok=True)
    (crashes.parent / ".gitignore").write_text("*\n")
    began = time.time()
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as scratch:
        results = Path(scratch) / "corpus"
        results.mkdir()
        environment = {**os.environ, "FUZZ_FOLDER": scratch, "FUZZ_ONE": name}
        if name == PYTHON_KERNEL:
            runs, environment["NUMBA_DISABLE_JIT"] = runs // 10, "1"
        flags = [
            f"-runs={runs}",
            f"-max_total_time={seconds}",
            f"-timeout={_INPUT_SECONDS}",
            "-rss_limit_mb=4096",
        ]
        flags += [f"-artifact_prefix={crashes}/", "-print_final_stats=1", "-max_len=2048"]
        flags.append(f"-seed={os.environ.get('FUZZ_SEED', 1)}")
        command = [sys.executable, "-m", "tests.fuzz", *flags, str(results), str(_seeds(name))]
        process = subprocess.run(
            command, env=environment, cwd=HERE.parent.parent, stderr=subprocess.PIPE, check=False
        )
        corpus = len(list(results.iterdir()))
    output = process.stderr.decode(errors="replace")
    new = [
        path
        for path in crashes.iterdir()
        if path.stat().st_mtime >= began and path.suffix != ".traceback"
    ]
    if process.returncode and not new:  # died without leaving an input
        (crashes / "died").write_text(output)
        new = [crashes / "died"]
    done = re.findall(r"stat::number_of_executed_units: (\d+)", output)
    executions = int(done[-1]) if done else 0
    result = {"parser": name, "executions": executions, "seconds": round(time.time() - began)}
    result |= {"crashes": len(new), "corpus": corpus}
    print(json.dumps(result), flush=True)
    for path in sorted(new):
        print(f"  {path}", file=sys.stderr)
    return result


def _seeds(name: str) -> Path:
    return HERE / "corpus" / ("bow" if name == PYTHON_KERNEL else name)


def _fuzz_here(name: str, flags: list[str]) -> None:
    """Fuzz one parser in this process; atheris ends it."""
    import atheris

    # compiled kernels cannot be instrumented: numba reads their bytecode
    kernels = (
        []
        if "NUMBA_DISABLE_JIT" in os.environ
        else (HERE.parent.parent / "src/longtail/kernels").glob("*.py")
    )
    exclude = [f"longtail.kernels.{path.stem}" for path in kernels]
    with atheris.instrument_imports(include=["longtail"], exclude=exclude):
        import targets

    logging.getLogger("longtail").setLevel(logging.CRITICAL)
    warnings.simplefilter(
        "error"
    )  # as in the other tests, but for what compiled kernels are silent about
    warnings.filterwarnings("ignore", module="longtail.kernels")
    targets.set_up(_ONE_IN)
    target = targets.TARGETS[_seeds(name).name]
    for seed in sorted(_seeds(name).iterdir()):  # compiles kernels, loads libraries
        target(seed.read_bytes())
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    atheris.Setup([sys.argv[0], *flags], _kept(target, HERE / "crashes" / name))
    atheris.Fuzz()


def _kept(target: Callable[[bytes], None], crashes: Path) -> Callable[[bytes], None]:
    """Return the target with each distinct defect written down, so that fuzzing goes on past it."""
    seen: set[str] = set()

    def run(data: bytes) -> None:
        try:
            target(data)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            path = "".join(
                f"{frame.filename}:{frame.lineno}:"
                for frame in frames
                if "site-packages" not in frame.filename
            )
            kind = hashlib.sha256(f"{type(error).__name__}:{path}".encode()).hexdigest()[:16]
            if kind not in seen:
                seen.add(kind)
                (crashes / kind).write_bytes(data)
                (crashes / f"{kind}.traceback").write_text(
                    "".join(traceback.format_exception(error))
                )

    return run


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))  # where pytest, too, finds the modules beside this one
    if "FUZZ_ONE" in os.environ:
        _fuzz_here(os.environ["FUZZ_ONE"], sys.argv[1:])
    else:
        sys.exit(main(sys.argv[1:]))
