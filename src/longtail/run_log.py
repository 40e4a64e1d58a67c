"""The run log of a training run: ``MODEL.run.jsonl`` beside the model folder, a JSON object per
line for the forecast, each stage and, of networks, steps and epochs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from longtail.reporting import CompletedStage

__all__ = ["RunLog", "StageTime", "append_line", "read_stage_times", "run_log_path"]

log = logging.getLogger("longtail")


class StageTime(msgspec.Struct, frozen=True):
    """A stage of training: its seconds, the peak memory of the process until its end, and its
    results.
    """

    name: str
    seconds: float
    memory_mb: float
    facts: str = ""


class _StageEvent(StageTime, frozen=True, kw_only=True, tag_field="event", tag="stage"):
    """The line of a stage."""

    step: int = 0


class RunLog:
    """Listener that appends to a run log; it stops at the first line that cannot be written."""

    def __init__(self, file: Path) -> None:
        self._file: Path | None = file

    def settings(self, values: Mapping[str, Any]) -> None:
        """Write nothing: the settings are in the model folder."""

    def start_stage(self, name: str) -> None:
        """Write nothing."""

    def end_stage(self, name: str) -> None:
        """Write nothing."""

    def complete_stage(self, stage: CompletedStage) -> None:
        """Append a stage."""
        seconds = round(stage.seconds, 3)
        memory_mb = round(stage.memory_mb, 1)
        self._append(_StageEvent(stage.name, seconds, memory_mb, stage.facts))

    def numbers(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Append values at a step."""
        self._append({"event": event, "step": step, **values})

    def _append(self, event: object) -> None:
        if self._file is None:
            return
        try:
            with open(self._file, "a+b") as opened:
                append_line(opened, msgspec.json.encode(event))
        except OSError as error:
            log.warning(
                "%s: cannot be written (%s); the run goes on without it",
                self._file,
                error.strerror,
            )
            self._file = None


def append_line(file: IO[bytes], line: bytes) -> None:
    """Write a line to a file opened with ``a+b``; first end a line that a killed process left
    unfinished.
    """
    if file.tell():
        file.seek(-1, os.SEEK_END)
        file.write(b"" if file.read() == b"\n" else b"\n")
    file.write(line + b"\n")


def run_log_path(model_folder: Path) -> Path:
    """Return the run log of a model folder."""
    folder = model_folder.resolve()
    return folder.with_name(f"{folder.name}.run.jsonl")


def read_stage_times(file: Path) -> list[StageTime]:
    """Return the stages of a run log, in order; stages of the same name (trees, a resumed run) are
    added up.
    """
    if not file.is_file():
        return []
    stages: dict[str, StageTime] = {}
    for line in file.read_bytes().splitlines():
        try:
            event = msgspec.json.decode(line, type=_StageEvent)
        except msgspec.DecodeError:  # another event, or half a line
            continue
        seconds = event.seconds
        if event.name in stages:
            seconds += stages[event.name].seconds
        stages[event.name] = StageTime(event.name, seconds, event.memory_mb, event.facts)
    return list(stages.values())
