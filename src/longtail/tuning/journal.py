"""What a study knows so far, as files in its folder that a kill at any moment leaves whole."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec

from longtail.config import Config
from longtail.data.output import open_output
from longtail.errors import UsageError, printable
from longtail.run_log import append_line
from longtail.store.writing import holds_a_model
from longtail.tuning.space import Dimension

__all__ = ["BEST", "Journal", "Study", "Trial", "check_study_folder"]

BEST = "best.toml"  # the settings of the best trial so far
_TRIALS = "trials.jsonl"
_STUDY = "study.json"

State = Literal["started", "interrupted", "done", "failed"]


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One try: settings by path, what came of it, and the stages that an earlier one had made."""

    number: int  # from 1 on
    params: dict[str, Any]
    state: State
    value: float | None = None
    seconds: float = 0.0
    error: str = ""
    reused: tuple[str, ...] = ()

    @property
    def shown(self) -> dict[str, str]:
        """The settings for people, by path."""
        return {
            path: f"{v:g}" if isinstance(v, float) else printable(str(v))
            for path, v in self.params.items()
        }


class Study(msgspec.Struct, frozen=True):
    """What must be the same for trials to belong together."""

    metric: str
    seed: int
    config: Config
    space: tuple[Dimension, ...]
    data: str  # hash of training and validation documents


def check_study_folder(folder: Path, resume: bool) -> None:
    """Refuse a file, a model, which would not verify with more in it, a study that nobody asked to
    resume, and files of these names without one."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; give a folder that is new, or holds a study")
    if holds_a_model(folder):
        raise UsageError(
            f"{folder}: is a model folder, which a study would damage; give another folder"
        )
    study = folder / _STUDY
    if study.is_file() and not resume:
        raise UsageError(f"{study}: found a study; go on with --resume, or give another folder")
    for name in () if study.is_file() else (BEST, _TRIALS):
        if (folder / name).exists():
            way_out = "move it away, or give another folder"
            raise UsageError(f"{folder / name}: is there, but no {_STUDY} beside it; {way_out}")


def _is_of_the_system(error: str) -> bool:
    """Tell whether a trial failed by an error of the system, as earlier versions recorded it."""
    return (
        re.match(r"(OSError|PermissionError|FileNotFoundError): \[Errno \d+\]", error) is not None
    )


class Journal:
    """The file ``trials.jsonl``: a line where a trial starts, and one where it ends."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _TRIALS
        self._study = folder / _STUDY
        self.trials: dict[int, Trial] = {}
        self.attempts: dict[int, int] = {}  # starts of each trial that ended in no way at all
        for line in self._file.read_bytes().splitlines() if self._file.is_file() else ():
            try:
                self._take(msgspec.json.decode(line, type=Trial))
            except msgspec.DecodeError:  # half a line, where a run was killed
                continue
        for number, trial in self.trials.items():
            if trial.state == "failed" and _is_of_the_system(trial.error):
                self.trials[number] = msgspec.structs.replace(trial, state="interrupted", error="")
                self.attempts[number] = 0

    def open(self, study: Study) -> None:
        """Begin a study, or go on with one; refuse a folder that holds another."""
        if not self._study.is_file():
            with open_output(self._study) as file:
                file.write(msgspec.json.format(msgspec.json.encode(study), indent=1))
            return
        try:
            recorded = msgspec.json.decode(self._study.read_bytes(), type=dict[str, Any])
        except msgspec.DecodeError:
            raise UsageError(
                f"{self._study}: found no JSON of a study; give another folder"
            ) from None
        plain = msgspec.json.decode(msgspec.json.encode(study))
        other = [name for name, value in plain.items() if recorded.get(name) != value]
        if other:
            way_out = "go on with what it began with, or give another folder"
            raise UsageError(
                f"{self._study}: found a study with another {' and '.join(other)}; {way_out}"
            )

    def add(self, trial: Trial) -> None:
        """Write a line, for good."""
        with open(self._file, "a+b") as file:
            append_line(file, msgspec.json.encode(trial))
            file.flush()
            os.fsync(file.fileno())
        self._take(trial)

    def _take(self, trial: Trial) -> None:
        self.trials[trial.number] = trial
        before = 0 if trial.state == "interrupted" else self.attempts.get(trial.number, 0)
        self.attempts[trial.number] = before + (trial.state == "started")

    @property
    def next_number(self) -> int:
        """The first trial that has not ended."""
        ended = {trial.number for trial in self.ended}
        return next(number for number in count(1) if number not in ended)

    @property
    def ended(self) -> Sequence[Trial]:
        """Trials that are done or have failed, in their order."""
        return [
            trial for _, trial in sorted(self.trials.items()) if trial.state in ("done", "failed")
        ]

    @property
    def best(self) -> Trial | None:
        """The trial with the highest value, the first of those alike."""
        done = [trial for trial in self.ended if trial.value is not None]
        return max(done, key=lambda trial: (trial.value, -trial.number), default=None)
