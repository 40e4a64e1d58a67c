"""Training interrupted at random moments, again and again, then resumed: the model must be the
uninterrupted one.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trainings import Ended, Training, left_behind

from folder_contents import contents


class Outcome(NamedTuple):
    """Runs interrupted before their end, models completed after that, all of the same bytes, and
    seconds.
    """

    method: str
    interrupted: int
    completed: int
    seconds: float


def run(
    folder: Path,
    training: Training,
    times: int,
    seed: int,
    signals: Sequence[int] = (signal.SIGKILL,),
) -> Outcome:
    """Interrupt a training so many times, by ``signals`` in turn; AssertionError if anything is not
    as it should be.
    """
    begin = time.perf_counter()
    training.whole(folder / "whole")
    expected = contents(folder / "whole")
    usual = training.whole(folder / "again")
    assert contents(folder / "again") == expected, "two runs without interruption differ"
    generator = random.Random(seed)
    interrupted = 0
    completed = 0
    while interrupted < times:
        model = folder / f"model-{completed}"
        ended = False
        while interrupted < times and not ended:
            number = signals[interrupted % len(signals)]
            start = time.perf_counter()
            run_of_it = training.child(model, generator.random() * usual, number)
            if run_of_it.code == 0:  # the machine was busier when the usual time was measured
                usual = min(usual, time.perf_counter() - start)
            else:
                interrupted += 1
            _check_end(run_of_it, number, model)
            if model.exists():  # written whole, and perhaps interrupted before the stages were gone
                assert contents(model) == expected, f"other bytes after {interrupted} interruptions"
                ended = not left_behind(model)  # then there is nothing to resume
        if not ended:
            last = training.child(model)
            assert last.code == 0, last
        completed += 1
        assert contents(model) == expected, f"other bytes after {interrupted} interruptions"
        assert left_behind(model) == [], f"left behind after {interrupted} interruptions"
    return Outcome(training.method, interrupted, completed, time.perf_counter() - begin)


def _check_end(ended: Ended, number: int, model: Path) -> None:
    """Check that a process ended by its work or by the signal, and that it said how to go on where
    it could.
    """
    assert "Traceback" not in ended.said, ended.said
    assert ended.code in (0, -number if number == signal.SIGKILL else 128 + number), ended
    in_the_middle = (
        re.search(r" \(\d+\.\d s\)$", ended.said, re.MULTILINE) and not model.exists()
    )  # of the stages
    if ended.code > 0 and in_the_middle:
        assert "go on with --resume" in ended.said, ended.said
