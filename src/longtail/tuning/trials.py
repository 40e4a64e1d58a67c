"""Trials of a study: train with some settings, measure, and record the result.

Trials share stages: features, label graphs and trees made with the same settings are made once. The
journal of a study is files in its folder that a kill at any moment leaves whole.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec

from longtail import __version__
from longtail.checks import check_settings, check_trainable
from longtail.config import Config, nested
from longtail.data.dataset import Dataset
from longtail.data.output import open_output
from longtail.errors import LongtailError, UsageError, printable
from longtail.evaluation import evaluate_model
from longtail.forecast import check_memory, forecast
from longtail.methods import configure
from longtail.pipeline import train
from longtail.run_log import append_line
from longtail.steps.work import dataset_content
from longtail.store import Folder, FolderWriter, Stages, content_hash
from longtail.store.writing import holds_a_model
from longtail.tuning.space import Dimension

__all__ = [
    "BEST",
    "Journal",
    "OutOfTime",
    "SharedStages",
    "Study",
    "Trial",
    "TrialConfigs",
    "TrialRun",
    "check_study_folder",
]

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


log = logging.getLogger("longtail")

_ATTEMPTS = 2  # that a trial has where the process was killed
_KEPT = 6  # versions of one stage, the last used ones


class OutOfTime(LongtailError):
    """The trial ran far over the time of the study."""


class SharedStages(Stages):
    """The stages of one trial after another on the same documents.

    A stage is reused where its key is the same: its inputs are what this trial has. Small stages
    are kept in several versions, under names with a part of their key. Of any other stage the next
    trial with another key replaces it.
    """

    def __init__(self, path: str | Path, documents: Dataset, share: bool = True) -> None:
        super().__init__(path)
        self.reused: list[str] = []  # stages of this trial that another had made
        self._documents = documents
        self._share = share
        self._config = Config()
        self._written = set[str]()  # stages of this trial

    def hash_with(self, other: Dataset | None) -> str:
        """Return a hash of the documents, and of others beside them."""
        datasets = [self._documents] if other is None else [self._documents, other]
        return content_hash(__version__, *map(dataset_content, datasets))

    def begin(self, config: Config) -> None:
        """Let the stages be those of a trial with these settings."""
        self._config = config
        self.reused = []
        self._written = set()

    def get(self, name: str, key: str, versions: bool = False) -> Folder | None:
        """Return the stage if it was made from the same inputs."""
        address, key = self._address(name, key, versions)
        folder = super().get(address, key)
        if folder is not None and address not in self._written:
            self.reused += [name] if name not in self.reused else []
            os.utime(self.root / address)
        return folder

    def write(
        self, name: str, key: str, versions: bool = False
    ) -> AbstractContextManager[FolderWriter]:
        """Return the ``write_folder`` of a stage; delete its version that was not used for longest
        if there are many.
        """
        address, key = self._address(name, key, versions)
        if address != name:
            old = sorted(self._versions(name), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in old[_KEPT - 1 :]:
                shutil.rmtree(path)
        self._written.add(address)
        return super().write(address, key)

    def _versions(self, name: str) -> list[Path]:
        pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}")
        return [path for path in self.root.iterdir() if pattern.fullmatch(path.name)]

    def _address(self, name: str, key: str, versions: bool) -> tuple[str, str]:
        """Return the name of the folder of a stage, and its key."""
        if not self._share:  # a stage belongs to all settings of its trial
            return name, content_hash(key, self._config)
        if versions:
            return f"{name}-{key[:16]}", key
        return name, key


class TrialConfigs:
    """From settings by path to a whole config."""

    def __init__(
        self, method: str, preset: str | None, overrides: Sequence[Mapping[str, Any]]
    ) -> None:
        self._method = method
        self._preset = preset
        self._overrides = overrides

    def of(self, params: Mapping[str, Any]) -> Config:
        """Return the config with these settings of a trial."""
        return configure(self._method, self._preset, *self._overrides, nested(params))


class TrialRun(msgspec.Struct, frozen=True):
    """All that a trial needs beside its settings."""

    journal: Journal
    stages: SharedStages
    fitted: Dataset
    held_out: Dataset
    metric: str
    k: int
    device: str
    ignore_memory: bool

    def trial(
        self, number: int, params: dict[str, Any], configs: TrialConfigs, limit: float | None
    ) -> Trial:
        """Train, measure, and write down what came of it.

        The study ends with the process, and by an error of the system such as a full disk, which is
        not a property of
        the settings: the same trial comes first where the study goes on.
        """
        if self.journal.attempts.get(number, 0) >= _ATTEMPTS:
            killed = (
                "the process was killed each time it ran; it may need more memory than there is"
            )
            return self._ended(Trial(number, params, "failed", error=killed))
        self.journal.add(Trial(number, params, "started"))
        begin = time.perf_counter()
        try:
            with _quiet(), _stopped_after(limit):
                value = self._value(configs.of(params))
        except OSError:
            self._interrupted(number, params)
            raise
        except Exception as error:
            seconds = round(time.perf_counter() - begin, 3)
            what = printable(f"{type(error).__name__}: {error}".split("\n")[0])[:300]
            return self._ended(
                Trial(number, params, "failed", None, seconds, what, tuple(self.stages.reused))
            )
        except BaseException:  # Ctrl-C, SIGTERM
            self._interrupted(number, params)
            raise
        seconds = round(time.perf_counter() - begin, 3)
        return self._ended(
            Trial(number, params, "done", value, seconds, "", tuple(self.stages.reused))
        )

    def _interrupted(self, number: int, params: dict[str, Any]) -> None:
        # a full disk; then the trial has been started, which is written down already
        with suppress(OSError):
            self.journal.add(Trial(number, params, "interrupted"))
        log.warning(
            "trial %d was interrupted; those before it are kept: go on with --resume", number
        )

    def _value(self, config: Config) -> float:
        self.stages.begin(config)
        check_settings(config, self.device)
        check_trainable(self.fitted, config)
        if not self.ignore_memory:
            check_memory(forecast(self.fitted, config, self.device))
        model = train(
            self.fitted, config, valid=self.held_out, stages=self.stages, device=self.device
        )
        return evaluate_model(model, self.held_out, ks=(self.k,), mask=None).evaluation[self.metric]

    def _ended(self, trial: Trial) -> Trial:
        self.journal.add(trial)
        return trial


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what each stage of training tells, a line a trial is enough; progress within it
    goes on.
    """

    def is_warning(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    log.addFilter(is_warning)
    try:
        yield
    finally:
        log.removeFilter(is_warning)


@contextmanager
def _stopped_after(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTime in the body after so many seconds, where the system has an alarm for it."""
    main = threading.current_thread() is threading.main_thread()
    if seconds is None or not main or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise OutOfTime("stopped, far over the time of the study")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
