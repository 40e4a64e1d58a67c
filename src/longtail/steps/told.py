"""What training tells of its stages: in the log, to loggers, and in the run log beside the model
folder.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import msgspec

from longtail import progress, run_loggers

__all__ = ["StageTime", "read_stage_times", "run_log", "stages_told_to", "told", "write_event"]

log = logging.getLogger("longtail")

_told_to: ContextVar[Path | None] = ContextVar("_told_to", default=None)


class StageTime(msgspec.Struct, frozen=True):
    """A stage of training: its seconds, the most memory of the process until its end, and what it
    gave.
    """

    name: str
    seconds: float
    memory_mb: float
    facts: str = ""


class _StageEvent(StageTime, frozen=True, kw_only=True, tag_field="event", tag="stage"):
    """The line of a stage in a run log, where networks write theirs, too."""

    step: int = 0


@contextmanager
def told(stage: str) -> Iterator[Callable[[str], None]]:
    """Log what a stage of training gave, with its seconds; inside of :func:`stages_told_to` in the
    run log as well.
    """
    begin = time.perf_counter()
    facts = list[str]()
    with run_loggers.part(stage):
        yield facts.append
    seconds = time.perf_counter() - begin
    run_loggers.tell("seconds", 0, {stage: seconds})
    log.info("%s: %s (%.1f s)", stage, "; ".join(facts), seconds)
    event = _StageEvent(
        stage, round(seconds, 3), round(progress.peak_memory_mb(), 1), "; ".join(facts)
    )
    write_event(msgspec.json.encode(event))


def write_event(line: bytes) -> None:
    """Add a line to the run log of :func:`stages_told_to`, if there is one; the first that fails is
    the last.
    """
    file = _told_to.get()
    if file is not None and not run_loggers.add_line(file, line):
        _told_to.set(None)


@contextmanager
def stages_told_to(file: Path) -> Iterator[None]:
    """Add a line to ``file`` for every stage that is told of in the body."""
    token = _told_to.set(file)
    try:
        yield
    finally:
        _told_to.reset(token)


def run_log(model_folder: Path) -> Path:
    """Return the file beside a model folder where its training tells of itself, a JSON object a
    line.
    """
    place = model_folder.resolve()
    return place.with_name(f"{place.name}.run.jsonl")


def read_stage_times(file: Path) -> list[StageTime]:
    """Return the stages of a run log, in order; those of one name (trees, a resumed run) as one
    with all seconds.
    """
    if not file.is_file():
        return []
    stages: dict[str, StageTime] = {}
    for line in file.read_bytes().splitlines():
        try:
            event = msgspec.json.decode(line, type=_StageEvent)
        except msgspec.DecodeError:  # another event, or half a line
            continue
        seconds = event.seconds + (stages[event.name].seconds if event.name in stages else 0)
        stages[event.name] = StageTime(event.name, seconds, event.memory_mb, event.facts)
    return list(stages.values())
