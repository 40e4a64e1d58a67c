"""Tries mutants of model folders in a process of its own, so that a crash is seen; prints a line
each.

python mutant_runner.py SCRATCH FOLDER:FIRST:STEP …: model, number, outcome and name of every STEPth
mutant of a folder from FIRST on.
"""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import math
import resource
import signal
import sys
import traceback
import warnings
from itertools import islice
from pathlib import Path

from hostile_models import Mutant, Scratch, mutants

import longtail as lt
from longtail.errors import DataError, MissingExtra, ModelFolderError, UsageError

SECONDS = 20  # a mutant
MEMORY = 3 << 30  # bytes above what the process has before the first one
TEXTS = [
    "perl module for a mail server with documentation",
    "",
    "library library library",
    "\u1e9e \U0001f4a9 x",
] * 8


def main(scratch: Path, folders: list[str]) -> None:
    """Try the mutants; each folder itself is used before, which compiles what is to be compiled."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    models = [
        (Path(folder), int(first), int(step))
        for folder, first, step in (text.split(":") for text in folders)
    ]
    for folder, _, _ in models:
        _use(folder)
    _limit_memory()
    for folder, first, step in models:
        path = scratch / folder.name
        base = Scratch(folder, path)
        for number, mutant in islice(enumerate(mutants(folder)), first, None, step):
            _tell(folder, number, "trying", mutant)
            base.become(mutant)
            signal.alarm(SECONDS)
            outcome = _outcome(path)
            signal.alarm(0)
            _tell(
                folder,
                number,
                "RAN CODE" if [*path.rglob("ran"), *Path.cwd().glob("ran")] else outcome,
                mutant,
            )
            base.recover(mutant)


def _tell(folder: Path, number: int, outcome: str, mutant: Mutant) -> None:
    print(folder.name, number, outcome, mutant.name, sep="\t", flush=True)


def _outcome(path: Path) -> str:
    try:
        return _use(path)
    except ModelFolderError as error:
        message = str(error)
        return (
            "refused" if message.isprintable() and len(message) < 2000 else f"BAD WORDS {message!r}"
        )
    except MissingExtra:
        return "refused"
    except (
        UsageError
    ) as error:  # without a vocabulary it is a model on features, which is a model as good as any
        return (
            "answered" if "trained on ready-made features" in str(error) else f"UsageError {error}"
        )
    except DataError as error:  # so is a member of an ensemble
        return "answered" if "give --features as then" in str(error) else f"DataError {error}"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} {str(error)[:150]!r} at {Path(where.filename).name}:{where.lineno}"


def _use(path: Path) -> str:
    """Load, predict and explain; every score must be a number that a score can be."""
    model = lt.load(path, device="cpu")
    for texts in (TEXTS, TEXTS[:1]):
        rows = model.predict(texts, 5)
        if not all(math.isfinite(label.score) for row in rows for label in row):
            return "NOT FINITE"
    model.explain(TEXTS[0], label=model.model.labels.ids[0])
    return "answered"


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
