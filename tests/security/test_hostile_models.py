"""Model folders that lie where every hash holds: each is refused in one line, or is a model; none
does harm.

``HOSTILE_STEP=1`` tries all mutants, as ``make soak`` does with a share of them; else few of each
model are tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from golden_models import NAMES, unpack

pytest.importorskip("torch")
pytest.importorskip("transformers")

STEP = int(os.environ.get("HOSTILE_STEP", "0"))
FIRST = int(os.environ.get("HOSTILE_FIRST", "5"))  # another one tries others
# Of a network fewer: libraries make the whole network before they find it wrong.
_STEPS = {"xr-linear": 41, "annexml": 61, "pfastrexml": 61, "parabel": 97}
RUNNER = Path(__file__).with_name("mutant_runner.py")
CRASHES = 3  # after which enough is seen


def tried(path: Path) -> tuple[Counter[str], list[str]]:
    """Return how often each outcome was seen, and what went wrong; a process that crashes is
    followed by another.
    """
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    left = {name: (FIRST, STEP or _STEPS.get(name, 499)) for name in NAMES}
    folders = {name: unpack(name, path / "models") for name in NAMES}
    for attempt in range(CRASHES):
        command = [sys.executable, str(RUNNER), str(path / f"scratch-{attempt}")]
        command += [f"{folders[name]}:{first}:{step}" for name, (first, step) in left.items()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path)
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        message = [
            (model, outcome, mutant) for model, _, outcome, mutant in lines if outcome != "trying"
        ]
        outcomes.update(outcome for _, outcome, _ in message)
        wrong += [": ".join(line) for line in message if line[1] not in ("refused", "answered")]
        if done.returncode == 0:
            break
        assert lines, done.stderr[-2000:]
        model, number, _, mutant = lines[-1]
        wrong.append(f"{model}: {mutant}: the process ended with {done.returncode}")
        left = {name: left[name] for name in NAMES[NAMES.index(model) :]}
        left[model] = int(number) + left[model][1], left[model][1]
    return outcomes, wrong


@pytest.mark.timeout(36_000 if STEP else 600)
def test_mutants(tmp_path, record_property):
    outcomes, wrong = tried(tmp_path)
    assert wrong == []
    assert outcomes.total() > 10 * len(NAMES)
    assert outcomes["refused"] > outcomes["answered"]
    for outcome, count in {"tried": outcomes.total(), **outcomes}.items():
        record_property(outcome, count)
    print(
        f"{outcomes.total()} folders tried, {outcomes['refused']} refused, {outcomes['answered']} are models"
    )
