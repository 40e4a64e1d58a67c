"""The search: settings that the last trials make likely to be good (TPE of optuna), trained and
measured one by one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

from longtail import __version__
from longtail.checks import check_settings, check_trainable, warn_of_few_words
from longtail.config import Config, settings
from longtail.data.dataset import Dataset
from longtail.data.output import open_output
from longtail.errors import LongtailError, MissingExtra, UsageError, unknown_name
from longtail.kernels import pool
from longtail.methods import method_toml
from longtail.metrics.evaluation import NAMES
from longtail.tuning.space import Dimension, Range, check_space, default_space
from longtail.tuning.trials import (
    BEST,
    Journal,
    SharedStages,
    Study,
    Trial,
    TrialConfigs,
    TrialRun,
    check_study_folder,
)

__all__ = ["TuneKeywords", "TuneOptions", "Tuning", "tune"]

log = logging.getLogger("longtail")

_FAR_OVER = 1.5  # times the budget, when also the trial that runs is stopped
# trials of a study that may fail before one is done; then its settings cannot be meant
_SAME_FAULT = 3


class Tuning(msgspec.Struct, frozen=True):
    """The result: the metric, all trials, the best of them, and its settings."""

    metric: str
    trials: tuple[Trial, ...]
    best: Trial | None
    config: Config | None


@dataclass(frozen=True)
class TuneOptions:
    """The options of :func:`tune`, which documents them."""

    method: str = "xr-linear"
    preset: str | None = None
    overrides: Sequence[Mapping[str, Any]] = ()
    space: Sequence[Dimension] | None = None
    valid: Dataset | None = None
    metric: str = "nDCG@5"
    trials: int = 20
    seconds: float | None = None
    seed: int | None = None
    resume: bool = False
    share: bool = True
    threads: int = 0
    device: str = "auto"
    ignore_memory: bool = False
    report: Callable[[str], None] = log.info

    @property
    def configs(self) -> TrialConfigs:
        """The settings that all trials begin with."""
        overrides = list(self.overrides)
        if self.seed is not None:
            overrides.append({"seed": self.seed})
        return TrialConfigs(self.method, self.preset, overrides)


class TuneKeywords(TypedDict, total=False):
    """The fields of :class:`TuneOptions` as keyword arguments."""

    method: str
    preset: str | None
    overrides: Sequence[Mapping[str, Any]]
    space: Sequence[Dimension] | None
    valid: Dataset | None
    metric: str
    trials: int
    seconds: float | None
    seed: int | None
    resume: bool
    share: bool
    threads: int
    device: str
    ignore_memory: bool
    report: Callable[[str], None]


def tune(documents: Dataset, output: Path, **options: Unpack[TuneKeywords]) -> Tuning:
    """Search for settings of a method that make ``metric`` high on ``valid``, or on a tenth of the
    documents held out.

    Args:
        documents: To train on.
        output: Folder of the study: the trials, the best so far as best.toml, and while it runs the
            stages that the trials share.
        **options: Fields of ``TuneOptions``, below.

    Keyword Args:
        method: Name of the method.
        preset: Recipe of a paper that the settings begin with.
        overrides: Settings of all trials.
        space: Settings to search for; None for those that matter most to the method.
        valid: Documents to measure on.
        metric: Name of a metric with its cut-off.
        trials: Trials of the whole study, those of earlier runs included.
        seconds: Time of this run.
        seed: Seed of the settings, the split and the search.
        resume: Whether to go on with the study in ``output``.
        share: Whether trials share stages.
        threads: 0 for all cores.
        device: Where networks run.
        ignore_memory: Train whatever the forecast says.
        report: Called with a line of text after each trial.
    """
    asked = TuneOptions(**options)
    _check_optuna()
    k = _cutoff(asked.metric)
    configs = asked.configs
    base = configs.of({})
    space = asked.space
    if space is None:
        space = default_space(base, documents.texts is not None)
    space = check_space(space, base)
    if asked.valid is None:
        fitted, held_out = _held_out(documents, base.seed)
    else:
        fitted = documents
        held_out = asked.valid
    check_settings(base, asked.device)
    check_trainable(fitted, base)
    warn_of_few_words(fitted, base)
    check_study_folder(output, asked.resume)
    output.mkdir(parents=True, exist_ok=True)
    stages = SharedStages(output / "stages", fitted, asked.share)
    with stages, pool.threads(asked.threads):
        content = stages.hash_with(held_out)
        journal = Journal(output)
        journal.open(Study(asked.metric, base.seed, base, tuple(space), content))
        run = TrialRun(
            journal, stages, fitted, held_out, asked.metric, k, asked.device, asked.ignore_memory
        )
        _run_trials(run, configs, Asker(space, base, journal), output / BEST, asked)
    return _tuning(journal, configs, asked.metric)


def _run_trials(
    run: TrialRun, configs: TrialConfigs, asker: Asker, best_path: Path, asked: TuneOptions
) -> None:
    """Do the trials that are still to do, and keep the settings of the best so far in a file."""
    journal = run.journal
    kept = None
    for _ in _search(run, configs, asker, asked):
        if journal.best is not None and journal.best != kept:
            kept = journal.best
            config = configs.of(kept.params)
            _write_best(best_path, kept, config, run.metric, len(run.held_out))
    if len(journal.ended) >= asked.trials:
        run.stages.remove()


def _tuning(journal: Journal, configs: TrialConfigs, metric: str) -> Tuning:
    """Return the result of the trials that have ended; refuse a study of failed ones alone."""
    best = journal.best
    ended = tuple(journal.ended)
    if best is not None:
        return Tuning(metric, ended, best, configs.of(best.params))
    if ended:
        raise LongtailError(
            f"all {len(ended)} trials have failed, the last one so: {ended[-1].error}; "
            "give other settings or another --search"
        )
    return Tuning(metric, ended, None, None)


def _held_out(documents: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Return the documents to train on, and a tenth of them to measure on."""
    try:
        return documents.split(0.1, seed)
    except UsageError as error:
        raise UsageError(f"{error}; or give documents to measure on, with --valid") from None


def _search(
    run: TrialRun,
    configs: TrialConfigs,
    asker: Asker,
    asked: TuneOptions,
) -> Iterator[None]:
    """Do the trials that are still to do; yield once at first, and after each."""
    begin = time.monotonic()
    journal = run.journal
    seconds = asked.seconds
    trials = asked.trials
    yield
    while len(journal.ended) < trials:
        if seconds is not None and time.monotonic() - begin >= seconds:
            asked.report(f"the time is over after {len(journal.ended)} of {trials} trials")
            return
        number = journal.next_number
        pending = journal.trials.get(number)
        params = asker.ask(number) if pending is None else pending.params
        limit = None if seconds is None else _FAR_OVER * seconds - (time.monotonic() - begin)
        trial = run.trial(number, params, configs, limit)
        yield
        asked.report(_line(trial, trials, run.metric, journal.best))
        if len(journal.ended) == _SAME_FAULT and journal.best is None:
            raise UsageError(
                f"the first {_SAME_FAULT} trials have failed, the last one so: {trial.error}"
            )


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


class Asker:
    """Suggestions of optuna's TPE; they depend on the seed and the trials before alone."""

    def __init__(self, space: Sequence[Dimension], base: Config, journal: Journal) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._space = space
        self._journal = journal
        self._seed = base.seed
        self._distributions = {
            dimension.path: _distribution(optuna, dimension) for dimension in space
        }
        values = {setting.path: setting.value for setting in settings(base)}
        self._first = {
            dimension.path: _encoded(dimension, values[dimension.path])
            for dimension in space
            if dimension.holds(values[dimension.path])
        }

    def ask(self, number: int) -> dict[str, Any]:
        """Return the settings of a trial: the method's own in the first one, as far as they are in
        the space.
        """
        optuna = self._optuna
        sampler = optuna.samplers.TPESampler(seed=(1_000_003 * self._seed + number) % 2**32)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in self._journal.ended:
            if trial.number < number:
                study.add_trial(self._frozen(trial))
        if number == 1:
            study.enqueue_trial(self._first)
        params = study.ask(self._distributions).params
        return {
            dimension.path: _decoded(dimension, params[dimension.path]) for dimension in self._space
        }

    def _frozen(self, trial: Trial) -> Any:
        params = {d.path: _encoded(d, trial.params[d.path]) for d in self._space}
        states = self._optuna.trial.TrialState
        state = states.COMPLETE if trial.value is not None else states.FAIL
        return self._optuna.trial.create_trial(
            params=params, distributions=self._distributions, value=trial.value, state=state
        )


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    if not isinstance(dimension, Range):
        return optuna.distributions.CategoricalDistribution(
            [_encoded(dimension, v) for v in dimension.values]
        )
    if dimension.whole:
        return optuna.distributions.IntDistribution(
            int(dimension.low), int(dimension.high), log=dimension.log
        )
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _encoded(dimension: Dimension, value: Any) -> Any:
    """Return the value as optuna knows it: a choice, which may be a list, as JSON."""
    if isinstance(dimension, Range):
        return value
    return msgspec.json.encode(dimension.values[dimension.position(value)]).decode()


def _decoded(dimension: Dimension, value: Any) -> Any:
    if isinstance(dimension, Range):
        if dimension.whole:
            return int(value)
        return min(max(float(f"{value:.4g}"), dimension.low), dimension.high)
    return msgspec.json.decode(value)
