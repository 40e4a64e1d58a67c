"""Where a training run is told of: MLflow, Weights & Biases, TensorBoard.

Work says ``tell("epoch", step, numbers)`` without knowing who listens, as with
:mod:`longtail.progress`; a run opens those who do with :func:`logging_to`. One that fails says so
once, and the run goes on without it; so does the run log, a file of lines beside the model."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from longtail.errors import MissingExtra, UsageError, printable, unknown_name

__all__ = [
    "Guarded",
    "RunLogger",
    "TensorBoard",
    "add_line",
    "append_line",
    "check_targets",
    "flat",
    "logging_to",
    "part",
    "tell",
    "tell_settings",
]

log = logging.getLogger("longtail")

_EXPERIMENT = "longtail"  # of MLflow, and the project of Weights & Biases
_BOARDS = "runs"  # folder of TensorBoard, a folder a run in it
_BATCH = 100  # parameters that MLflow takes at a time
_LONGEST = 500  # characters of a setting that MLflow keeps


class RunLogger(Protocol):
    """Who listens to a run."""

    def settings(self, values: Mapping[str, Any]) -> None:
        """Take what decides the run, by dotted path."""

    def numbers(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Take numbers at a step; steps of one ``prefix`` are counted together, and names begin
        with it.
        """

    def close(self, failed: bool) -> None:
        """End the run."""


class Guarded:
    """A logger whose first failure is its last: one warning, and silence."""

    def __init__(self, name: str, make: Callable[[], RunLogger]) -> None:
        """Open the logger; only that a package is missing, or a target without meaning, is an
        error.
        """
        self.name = name
        self._logger = None
        self._logger = self._tried(make)

    def settings(self, values: Mapping[str, Any]) -> None:
        """Take what decides the run."""
        self._with(lambda logger: logger.settings(values))

    def numbers(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Take numbers at a step."""
        self._with(lambda logger: logger.numbers(prefix, values, step))

    def close(self, failed: bool = False) -> None:
        """End the run."""
        self._with(lambda logger: logger.close(failed))

    def _with(self, act: Callable[[RunLogger], None]) -> None:
        logger = self._logger
        if logger is not None:
            self._tried(lambda: act(logger))

    def _tried(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except UsageError:
            raise
        except Exception as error:  # of another library, over a network: anything
            self._logger = None
            reason = printable(str(error).strip().partition("\n")[0])[:300]
            log.warning(
                "--log-to %s: %s: %s; the run goes on without it",
                self.name,
                type(error).__name__,
                reason,
            )
            return None


_listening: list[Guarded] = []
_parts: list[str] = []


@contextmanager
def logging_to(targets: Iterable[str], run: str) -> Iterator[None]:
    """Tell of all that happens in the body to ``targets``, such as ``mlflow:http://host:5000``, as
    the run ``run``.
    """
    opened = [_opened(target, run) for target in targets]
    failed = True
    _listening.extend(opened)
    try:
        yield
        failed = False
    finally:
        for logger in opened:
            _listening.remove(logger)
            logger.close(failed)


def check_targets(targets: Iterable[str]) -> None:
    """Refuse a target that no logger is for."""
    for target in targets:
        kind = target.partition(":")[0]
        if kind not in _KINDS:
            raise UsageError(f"--log-to: {unknown_name('logger', kind, _KINDS)}")


@contextmanager
def part(name: str) -> Iterator[None]:
    """Let the names of numbers told in the body begin with ``name``, as steps are counted anew in
    it.
    """
    _parts.append(name)
    try:
        yield
    finally:
        _parts.pop()


def tell(event: str, step: int, values: Mapping[str, Any]) -> None:
    """Tell the numbers among ``values``, also those one mapping deep, as ``event/name``."""
    if _listening:
        numbers = flat(event, values)
        for logger in _listening:
            logger.numbers("/".join(_parts), numbers, step)


def add_line(file: Path, line: bytes) -> bool:
    """Add a line to a run log; False, and a warning, if it cannot be.

    A run is worth more than what it tells of itself.
    """
    try:
        with open(file, "a+b") as opened:
            append_line(opened, line)
    except OSError as error:
        log.warning("%s: cannot be written (%s); the run goes on without it", file, error.strerror)
        return False
    return True


def append_line(file: IO[bytes], line: bytes) -> None:
    """Write a line to a file opened with ``a+b``, ending one in whose middle a process was killed."""
    if file.tell():
        file.seek(-1, os.SEEK_END)
        file.write(b"" if file.read() == b"\n" else b"\n")
    file.write(line + b"\n")


def tell_settings(values: Mapping[str, Any]) -> None:
    """Tell what decides the run."""
    for logger in _listening:
        logger.settings(values)


def flat(event: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among ``values`` and those one mapping deep, by ``event/name`` and
    ``event/name/part``.
    """
    numbers: dict[str, float] = {}
    for name, value in values.items():
        for inner, number in value.items() if isinstance(value, Mapping) else [("", value)]:
            if isinstance(number, int | float):
                numbers["/".join(filter(None, (event, name, inner)))] = number
    return numbers


class TensorBoard:
    """Curves in a folder of event files; those of an interrupted run after ``step`` are taken back."""

    def __init__(self, folder: str, step: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("TensorBoard", "tensorboard") from None
        self._writer = SummaryWriter(folder, purge_step=step)

    def settings(self, values: Mapping[str, Any]) -> None:
        """Write a table, as TensorBoard has no place for single settings."""
        rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]))

    def numbers(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""
        for name, number in values.items():
            self._writer.add_scalar(_joined(prefix, name), number, step)

    def close(self, failed: bool = False) -> None:
        """Write what is left."""
        self._writer.close()


class _MLflow:
    """A run of the experiment «longtail» at a tracking URI, MLflow's own where ``uri`` is empty."""

    def __init__(self, uri: str, run: str) -> None:
        try:
            from mlflow import MlflowClient, entities
        except ImportError:
            raise MissingExtra("MLflow", "mlflow") from None
        self._client = MlflowClient(tracking_uri=uri or None)
        self._entities = entities
        known = self._client.get_experiment_by_name(_EXPERIMENT)
        if known is None:
            experiment = self._client.create_experiment(_EXPERIMENT)
        else:
            experiment = known.experiment_id
        self._run: str = self._client.create_run(experiment, run_name=run).info.run_id

    def settings(self, values: Mapping[str, Any]) -> None:
        """Write parameters, a hundred at a time."""
        params = [
            self._entities.Param(name, _cell(value)[:_LONGEST]) for name, value in values.items()
        ]
        for start in range(0, len(params), _BATCH):
            self._client.log_batch(self._run, params=params[start : start + _BATCH])

    def numbers(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Write metrics; what MLflow does not take in names is written out or left out: P@1 is
        P_at_1.
        """
        now = int(1000 * time.time())
        names = {
            name: re.sub(r"[^\w\-. :/]", "", _joined(prefix, name).replace("@", "_at_"))
            for name in values
        }
        metrics = [
            self._entities.Metric(names[name], number, now, step) for name, number in values.items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, failed: bool) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class _WeightsAndBiases:
    """A run of a project of Weights & Biases."""

    def __init__(self, project: str, run: str) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtra("Weights & Biases", "wandb") from None
        entity, _, name = project.rpartition("/")
        self._run: Any = wandb.init(project=name or _EXPERIMENT, entity=entity or None, name=run)
        self._prefixes: set[str] = set()

    def settings(self, values: Mapping[str, Any]) -> None:
        """Write the config."""
        self._run.config.update(dict(values))

    def numbers(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Write metrics, each against the steps of its prefix: steps of a run may only rise."""
        steps = _joined(prefix, "step")
        if prefix not in self._prefixes:
            self._prefixes.add(prefix)
            self._run.define_metric(_joined(prefix, "*"), step_metric=steps)
        self._run.log(
            {**{_joined(prefix, name): number for name, number in values.items()}, steps: step}
        )

    def close(self, failed: bool) -> None:
        """Say how the run ended."""
        self._run.finish(exit_code=int(failed))


def _new_board(place: str, run: str) -> TensorBoard:
    return TensorBoard(f"{place or _BOARDS}/{run}-{time.strftime('%Y%m%d-%H%M%S')}")


_KINDS: Mapping[str, Callable[[str, str], RunLogger]] = {  # of the place and the name of the run
    "mlflow": _MLflow,
    "wandb": _WeightsAndBiases,
    "tensorboard": _new_board,
}


def _opened(target: str, run: str) -> Guarded:
    check_targets([target])
    kind, _, place = target.partition(":")
    return Guarded(kind, lambda: _KINDS[kind](place, run))


def _joined(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _cell(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)
