"""Training killed at random moments, again and again, then resumed: the model must be the uninterrupted one.

``python -m tests.faults.kill_training --kills 200`` does it for longer than the test.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import longtail as lt
from longtail.methods import configure
from longtail.training_run import train_to_folder

SETTINGS = {"tree": {"branching": 4, "leaf_size": 8}}  # several levels, so that there are stages to lose


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def training(folder: Path, method: str, resume: bool) -> None:
    documents = lt.sample()[0].take(np.arange(400))
    train_to_folder(documents, folder, configure(method, None, SETTINGS), resume=resume)
    folder.with_name(f"{folder.name}.run.jsonl").unlink()  # the log tells of times, which no two runs share


def child(folder: Path, method: str, seconds: float | None) -> bool:
    """Train in a process of its own and kill it after ``seconds``; return whether it came to its end."""
    process = os.fork()
    if process == 0:  # the kernels are compiled in the parent, which has no threads at this moment
        code = 1
        try:
            training(folder, method, resume=True)
            code = 0
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError(f"training into {folder} failed")
    return os.WIFEXITED(status)


def run(folder: Path, kills: int, seed: int, method: str = "xr-linear") -> tuple[int, int]:
    """Return how many runs were killed before their end, and how many models were completed; all were the same."""
    training(folder / "whole", method, resume=False)
    expected = contents(folder / "whole")
    begin = time.perf_counter()
    training(folder / "again", method, resume=False)
    usual = time.perf_counter() - begin
    chance, killed, completed = random.Random(seed), 0, 0
    while killed < kills:
        model = folder / f"model-{completed}"
        while killed < kills and not child(model, method, chance.random() * 1.2 * usual):
            killed += 1
            if model.exists():  # written whole, and killed before the stages were gone
                assert contents(model) == expected, f"other bytes after {killed} kills"
        child(model, method, None)
        completed += 1
        assert contents(model) == expected, f"other bytes after {killed} kills"
        left = [path.name for path in folder.iterdir() if path.name.startswith((f"{model.name}.", f".{model.name}"))]
        assert left == [], f"left behind after {killed} kills: {left}"
    return killed, completed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="xr-linear")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killed, completed = run(Path(folder), options.kills, options.seed, options.method)
    print(f"{killed} runs killed, {completed} models completed after them: all of the same bytes")


if __name__ == "__main__":
    sys.exit(main())
