"""The search: settings that the last trials make likely to be good (TPE of optuna), trained and
measured one by one.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from longtail import __version__
from longtail.checks import check_settings, check_trainable, warn_of_few_words
from longtail.config import Config, nested
from longtail.data.dataset import Dataset
from longtail.data.output import open_output
from longtail.errors import LongtailError, MissingExtra, UsageError, printable, unknown_name
from longtail.evaluation import evaluate_model
from longtail.forecast import check_memory, forecast
from longtail.kernels import pool
from longtail.methods import configure, method_toml
from longtail.metrics.evaluation import NAMES
from longtail.pipeline import train
from longtail.tuning.journal import BEST, Journal, Study, Trial, check_study_folder
from longtail.tuning.shared import SharedStages
from longtail.tuning.space import Dimension, check_space, default_space
from longtail.tuning.suggestions import Asker

__all__ = ["Tuning", "tune"]

log = logging.getLogger("longtail")

_FAR_OVER = 1.5  # times the budget, when also the trial that runs is stopped
# trials of a study that may fail before one is done; then its settings cannot be meant
_SAME_FAULT = 3
_ATTEMPTS = 2  # that a trial has where the process was killed


class OutOfTime(LongtailError):
    """The trial ran far over the time of the study."""


class Tuning(msgspec.Struct, frozen=True):
    """The result: the metric, all trials, the best of them, and its settings."""

    metric: str
    trials: tuple[Trial, ...]
    best: Trial | None
    config: Config | None


def tune(
    documents: Dataset,
    output: Path,
    *,
    method: str = "xr-linear",
    preset: str | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
    space: Sequence[Dimension] | None = None,
    valid: Dataset | None = None,
    metric: str = "nDCG@5",
    trials: int = 20,
    seconds: float | None = None,
    seed: int | None = None,
    resume: bool = False,
    share: bool = True,
    threads: int = 0,
    device: str = "auto",
    ignore_memory: bool = False,
    say: Callable[[str], None] = log.info,
) -> Tuning:
    """Search for settings of a method that make ``metric`` high on ``valid``, or on a tenth of the
    documents held out.

    ``trials`` are those of the whole study, also of the runs before that it goes on with;
    ``seconds`` is the time of this run; ``seed`` is of the settings, the split and the search.
    ``output`` gets the trials, the best so far as best.toml, and while it runs the stages that they
    ``share``."""
    _check_optuna()
    k = _cutoff(metric)
    overrides = [*overrides, *([] if seed is None else [{"seed": seed}])]
    base = configure(method, preset, *overrides)
    seed = base.seed
    space = check_space(
        default_space(base, documents.texts is not None) if space is None else space, base
    )
    fitted, held_out = _held_out(documents, seed) if valid is None else (documents, valid)
    check_settings(base, device)
    check_trainable(fitted, base)
    warn_of_few_words(fitted, base)
    check_study_folder(output, resume)
    output.mkdir(parents=True, exist_ok=True)
    with SharedStages(output / "stages", fitted, share) as stages, pool.threads(threads):
        journal = Journal(output)
        journal.open(Study(metric, seed, base, tuple(space), stages.hash_with(held_out)))
        run = _Run(journal, stages, fitted, held_out, metric, k, device, ignore_memory)
        configs = _Configs(method, preset, overrides)
        kept = None
        for _ in _search(run, configs, space, base, trials, seconds, say):
            if journal.best is not None and journal.best != kept:
                kept = journal.best
                _write_best(output / BEST, kept, configs.of(kept.params), metric, len(held_out))
        if len(journal.ended) >= trials:
            stages.remove()
    best = journal.best
    if best is None and journal.ended:
        raise LongtailError(
            f"all {len(journal.ended)} trials have failed, "
            f"the last one so: {journal.ended[-1].error}; give other settings or another --search"
        )
    return Tuning(
        metric, tuple(journal.ended), best, None if best is None else configs.of(best.params)
    )


def _held_out(documents: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Return the documents to train on, and a tenth of them to measure on."""
    try:
        return documents.split(0.1, seed)
    except UsageError as error:
        raise UsageError(f"{error}; or give documents to measure on, with --valid") from None


def _search(
    run: _Run,
    configs: _Configs,
    space: Sequence[Dimension],
    base: Config,
    trials: int,
    seconds: float | None,
    say: Callable[[str], None],
) -> Iterator[None]:
    """Do the trials that are still to do; yield once at first, and after each."""
    begin = time.monotonic()
    journal = run.journal
    asker = Asker(space, base, journal)
    yield
    while len(journal.ended) < trials:
        if seconds is not None and time.monotonic() - begin >= seconds:
            say(f"the time is over after {len(journal.ended)} of {trials} trials")
            return
        number = journal.next_number
        pending = journal.trials.get(number)
        params = asker.ask(number) if pending is None else pending.params
        limit = None if seconds is None else _FAR_OVER * seconds - (time.monotonic() - begin)
        trial = run.trial(number, params, configs, limit)
        yield
        say(_line(trial, trials, run.metric, journal.best))
        if len(journal.ended) == _SAME_FAULT and journal.best is None:
            raise UsageError(
                f"the first {_SAME_FAULT} trials have failed, the last one so: {trial.error}"
            )


class _Configs:
    """From settings by path to a whole config."""

    def __init__(
        self, method: str, preset: str | None, overrides: Sequence[Mapping[str, Any]]
    ) -> None:
        self._method = method
        self._preset = preset
        self._overrides = overrides

    def of(self, params: Mapping[str, Any]) -> Config:
        return configure(self._method, self._preset, *self._overrides, nested(params))


class _Run(msgspec.Struct, frozen=True):
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
        self, number: int, params: dict[str, Any], configs: _Configs, limit: float | None
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


def _write_best(path: Path, best: Trial, config: Config, metric: str, n_documents: int) -> None:
    value = 0.0 if best.value is None else best.value
    head = (
        f"# {metric} {100 * value:.2f} % on {n_documents:,} documents, "
        f"trial {best.number}; longtail {__version__}\n"
    )
    use = f"# longtail train TRAIN -o MODEL -c {path.name}\n\n"
    with open_output(path) as file:
        file.write((head + use + method_toml(config)).encode())


def _line(trial: Trial, trials: int, metric: str, best: Trial | None) -> str:
    what = trial.error if trial.value is None else f"{metric} {100 * trial.value:.2f} %"
    if best is None or best.value is None:
        leader = ""
    else:
        leader = f"; best {100 * best.value:.2f} %, trial {best.number}"
    params = ", ".join(f"{path}={value}" for path, value in trial.shown.items())
    return f"trial {trial.number} of {trials}: {what} ({trial.seconds:.1f} s{leader}) {params}"


def _cutoff(metric: str) -> int:
    """Return the k of a metric such as nDCG@5, or name the nearest one."""
    parts = re.fullmatch(r"(.+)@([1-9]\d{0,5})", metric)
    if parts is None:
        raise UsageError(f"--metric {metric!r}; expected one such as P@1, nDCG@5 or PSP@5")
    if parts[1] not in NAMES:
        raise UsageError(unknown_name("metric", parts[1], NAMES))
    return int(parts[2])


def _check_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise MissingExtra("tune", "tune") from None
