"""Loggers of training runs: MLflow, Weights & Biases and TensorBoard.

A run opens them with :func:`logging_to`, and they listen to its reports
(:mod:`longtail.reporting`). One that fails logs a warning once, and the run goes on without it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from longtail.errors import MissingExtra, UsageError, printable, unknown_name
from longtail.reporting import CompletedStage, listening

__all__ = ["Guarded", "RunLogger", "TensorBoard", "check_targets", "flat", "logging_to"]

log = logging.getLogger("longtail")

_EXPERIMENT = "longtail"  # of MLflow, and the project of Weights & Biases
_BOARDS = "runs"  # folder of TensorBoard, with a folder per run
_BATCH = 100  # parameters that MLflow takes at a time
_LONGEST = 500  # characters of a setting that MLflow keeps


class RunLogger(Protocol):
    """A service that keeps the settings and curves of runs."""

    def settings(self, values: Mapping[str, Any]) -> None:
        """Keep the inputs of the run by dotted path."""

    def numbers(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Keep numbers at a step.

        Args:
            prefix: The stage, empty outside of stages; it precedes the names, and steps are counted
                per prefix.
            values: Numbers by name.
            step: The step.
        """

    def close(self, failed: bool) -> None:
        """End the run."""


class Guarded:
    """Listener that passes reports to a logger until the logger fails, which is logged once.

    Names of numbers begin with the stage, as steps are counted anew in each."""

    def __init__(self, name: str, make: Callable[[], RunLogger]) -> None:
        """Open the logger; only a missing package or an unknown target is an error."""
        self.name = name
        self._stages: list[str] = []
        self._logger = None
        self._logger = self._tried(make)

    def settings(self, values: Mapping[str, Any]) -> None:
        """Log the inputs of the run."""
        self._with(lambda logger: logger.settings(values))

    def start_stage(self, name: str) -> None:
        """Begin names with the stage."""
        self._stages.append(name)

    def end_stage(self, name: str) -> None:
        """Begin names as before the stage."""
        self._stages.pop()

    def complete_stage(self, stage: CompletedStage) -> None:
        """Log the seconds of a stage."""
        self.numbers("seconds", 0, {stage.name: stage.seconds})

    def numbers(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Log the numbers among ``values``, also those one mapping deep, as ``event/name``."""
        prefix = "/".join(self._stages)
        numbers = flat(event, values)
        self._with(lambda logger: logger.numbers(prefix, numbers, step))

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


@contextmanager
def logging_to(targets: Iterable[str], run: str) -> Iterator[None]:
    """Log the body as the run ``run`` to ``targets``, such as ``mlflow:http://host:5000``."""
    opened = [_opened(target, run) for target in targets]
    failed = True
    try:
        with listening(*opened):
            yield
        failed = False
    finally:
        for logger in opened:
            logger.close(failed)


def check_targets(targets: Iterable[str]) -> None:
    """Refuse a target of an unknown logger."""
    for target in targets:
        kind = target.partition(":")[0]
        if kind not in _KINDS:
            raise UsageError(f"--log-to: {unknown_name('logger', kind, _KINDS)}")


def flat(event: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among ``values`` and those one mapping deep, by ``event/name`` and
    ``event/name/part``.
    """
    numbers: dict[str, float] = {}
    for name, value in values.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        for part, number in parts.items():
            if isinstance(number, int | float):
                numbers[_joined(event, name, part)] = number
    return numbers


class TensorBoard:
    """Curves in a folder of event files."""

    def __init__(self, folder: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("TensorBoard", "tensorboard") from None
        self._writer = SummaryWriter(folder)

    def settings(self, values: Mapping[str, Any]) -> None:
        """Write a table, as TensorBoard has no single settings."""
        rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]))

    def numbers(self, prefix: str, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""
        for name, number in values.items():
            self._writer.add_scalar(_joined(prefix, name), number, step)

    def close(self, failed: bool = False) -> None:
        """Write the remaining events."""
        self._writer.close()


class _MLflow:
    """A run of the experiment "longtail" at a tracking URI; where ``uri`` is empty, at MLflow's
    default.
    """

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
        """Write metrics; characters that MLflow refuses in names are replaced or left out: P@1
        becomes P_at_1.
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
        """Set the final status of the run."""
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
        """Set the final status of the run."""
        self._run.finish(exit_code=int(failed))


def _new_board(folder: str, run: str) -> TensorBoard:
    return TensorBoard(f"{folder or _BOARDS}/{run}-{time.strftime('%Y%m%d-%H%M%S')}")


_KINDS: Mapping[str, Callable[[str, str], RunLogger]] = {  # of the address and the name of the run
    "mlflow": _MLflow,
    "wandb": _WeightsAndBiases,
    "tensorboard": _new_board,
}


def _opened(target: str, run: str) -> Guarded:
    check_targets([target])
    kind, _, address = target.partition(":")
    return Guarded(kind, lambda: _KINDS[kind](address, run))


def _joined(*parts: str) -> str:
    return "/".join(filter(None, parts))


def _cell(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)
