"""The long version of these tests: ``python -m tests.faults.soak [--part PART ...] [--seed N]``,
some 25 minutes.

One JSON line a part goes to standard output: how often training was interrupted or a disk failed,
and what came of it. Another seed interrupts at other moments. The exit code is 1 if anything was
not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent),
    str(HERE.parent / "fuzz"),
]  # where pytest, too, finds modules

NETWORKS = {"cascadexml": 50, "xr-transformer": 5, "lightxml": 5}  # times each is killed
NETWORKS |= {"inceptionxml": 5, "inceptionxml-lf": 5, "astec": 5, "attentionxml": 5}
N_LINEAR = 200  # kills, over all methods
N_STOPS = {"xr-linear": 20, "dismec": 10, "cascadexml": 20, "inceptionxml-lf": 6}
N_INPUTS = 5000  # a parser
STOPS = (signal.SIGTERM, signal.SIGINT)
ON_FAILING_DISKS = ("test_save_faults.py", "test_training_faults.py", "test_output_faults.py")
Lines = Iterator[dict[str, Any]]


def linear(seed: int) -> Lines:
    """Kill -9 of every kind of linear training."""
    from trainings import LINEAR

    left = N_LINEAR
    for number, method in enumerate(LINEAR):
        times = left // (len(LINEAR) - number)
        left -= times
        yield _interrupted(method, times, seed + number, (signal.SIGKILL,))


def networks(seed: int) -> Lines:
    """Kill -9 of networks, those on vectors of words among them."""
    for number, (method, times) in enumerate(NETWORKS.items()):
        yield _interrupted(method, times, seed + number, (signal.SIGKILL,))


def stops(seed: int) -> Lines:
    """SIGTERM and Ctrl-C, in turn."""
    for number, (method, times) in enumerate(N_STOPS.items()):
        yield _interrupted(method, times, seed + number, STOPS)


def _interrupted(method: str, times: int, seed: int, signals: tuple[int, ...]) -> dict[str, Any]:
    import torch
    from kill_training import run
    from trainings import training

    torch.set_num_threads(1)  # the others would not be there after a fork
    with tempfile.TemporaryDirectory() as folder:
        done = run(Path(folder), training(method, Path(folder) / "data"), times, seed, signals)
    facts = {
        "method": method,
        "interrupted": done.interrupted,
        "models": done.completed,
        "same bytes": done.completed,
    }
    return facts | {"seconds": round(done.seconds)}


def disks(seed: int) -> Lines:
    """Faults at every call of a save and of most outputs, at many of training; disks that are
    really full.
    """
    for name in ON_FAILING_DISKS:
        begin = time.perf_counter()
        with tempfile.NamedTemporaryFile() as file:
            environment = {
                **os.environ,
                "LONGTAIL_SOAK": file.name,
                "LONGTAIL_SOAK_SEED": str(seed),
            }
            command = [sys.executable, "-m", "pytest", "-q", "-o", "timeout=0", str(HERE / name)]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            faults = Path(file.name).stat().st_size
        if done.returncode:
            raise AssertionError(done.stdout[-3000:])
        yield {
            "test": name,
            "faults": faults,
            "withstood": faults,
            "seconds": round(time.perf_counter() - begin),
        }


def inputs(seed: int) -> Lines:
    """Malformed inputs for every parser: each is refused cleanly or read, never more."""
    import logging

    import oracles
    import targets
    from test_fuzz_corpus import mutant, seeds

    from longtail.errors import LongtailError

    logging.getLogger("longtail").setLevel(logging.CRITICAL)
    warnings.simplefilter(
        "error"
    )  # as in the other tests, but for what compiled kernels are silent about
    warnings.filterwarnings("ignore", module="longtail.kernels")
    targets.set_up(16)
    real = oracles.outcome
    refusals = [0]

    def counted(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        refusals[0] += isinstance(result, LongtailError)
        return result

    oracles.outcome = counted
    for name in sorted(targets.TARGETS):
        begin = time.perf_counter()
        generator = random.Random(zlib.crc32(f"{name} {seed}".encode()))
        member = seeds(name)
        refused = 0
        for _ in range(N_INPUTS):
            refusals[0] = 0
            targets.TARGETS[name](mutant(generator, generator.choice(member)))
            refused += refusals[0] > 0
        yield {
            "parser": name,
            "tried": N_INPUTS,
            "refused cleanly": refused,
            "seconds": round(time.perf_counter() - begin),
        }


PARTS = {"linear": linear, "networks": networks, "stops": stops, "disks": disks, "inputs": inputs}


def main() -> int:
    """Run the parts; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; repeatable")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not be there after a fork
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    failed = False
    for part in options.part or PARTS:
        totals: dict[str, float] = {}
        try:
            for line in PARTS[part](options.seed):
                print(json.dumps({"part": part, **line}), flush=True)
                for name, value in line.items():
                    totals[name] = totals.get(name, 0) + value if not isinstance(value, str) else 0
        except Exception as error:
            failed = True
            print(
                json.dumps({"part": part, "failed": f"{type(error).__name__}: {error}"}), flush=True
            )
            traceback.print_exc()
        print(
            json.dumps(
                {"part": part, "in all": {name: value for name, value in totals.items() if value}}
            ),
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
