"""Trials of a study: train with some settings, measure, and record the result.

Trials share stages: features, label graphs and trees made with the same settings are made once.
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
from pathlib import Path
from typing import Any

import msgspec

from longtail import __version__
from longtail.checks import check_settings, check_trainable
from longtail.config import Config, nested
from longtail.data.dataset import Dataset
from longtail.errors import LongtailError, printable
from longtail.evaluation import evaluate_model
from longtail.forecast import check_memory, forecast
from longtail.methods import configure
from longtail.pipeline import train
from longtail.steps.work import dataset_content
from longtail.store import Folder, FolderWriter, Stages, content_hash
from longtail.tuning.journal import Journal, Trial

__all__ = ["OutOfTime", "SharedStages", "TrialConfigs", "TrialRun"]

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
