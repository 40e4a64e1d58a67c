"""A training run: checks, forecast, stages to resume by, and the model folder at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longtail import __version__
from longtail.checks import (
    check_settings,
    check_trainable,
    warn_of_documents,
    warn_of_few_words,
)
from longtail.config import Config, settings
from longtail.data.dataset import Dataset
from longtail.errors import LongtailError, UsageError, place_at
from longtail.forecast import Forecast, check_memory, forecast, note_compiled
from longtail.kernels import pool
from longtail.models.model import Model
from longtail.models.model_folder import load_model, save_model
from longtail.pipeline import follow, predict, train
from longtail.reporting import listening, report, report_settings
from longtail.run_log import RunLog, run_log_path
from longtail.run_loggers import logging_to
from longtail.steps.process_group import FollowedStages, current_group
from longtail.store import Stages, check_replaceable, clear_leftovers, holds_a_model
from longtail.tree.given import Parents, read_parents

__all__ = [
    "BEGUN",
    "RunOptions",
    "is_interrupted",
    "run_training",
    "take_part",
    "train_to_folder",
    "work_folder",
]

BEGUN = "begun"  # what the first rank announces when the others may read the data, too

log = logging.getLogger("longtail")


class RunOptions(NamedTuple):
    """Options of a training run, beside documents, settings and the model folder."""

    valid: Dataset | None = None  # for the calibration, and for the best epoch of a network
    tree: Path | None = None  # a hierarchy of the labels
    threads: int = 0  # 0: all cores
    resume: bool = False  # continue an interrupted run
    force: bool = False  # replace another model in the folder
    ignore_memory: bool = False  # train whatever the forecast says
    device: str = "auto"  # of a network
    log_to: Sequence[str] = ()  # loggers, such as ``mlflow:http://host:5000``
    loss: Callable[..., Any] | None = None  # of a network, where ``training.loss`` is ``custom``

    def read_parents(self) -> Parents | None:
        """Read the hierarchy of the labels, if there is one."""
        if self.tree is None:
            return None
        return read_parents(self.tree)


def train_to_folder(documents: Dataset, output: Path, config: Config, **options: Any) -> Model:
    """Check the settings, train, and write the model folder.

    Args:
        documents: to train on.
        output: the model folder.
        config: resolved settings.
        options: those of :class:`RunOptions`. A resumed run needs the same ``loss`` again.
    """
    run_options = RunOptions(**options)
    check_settings(config, run_options.device)
    return run_training(documents, output, config, run_options)


def run_training(documents: Dataset, output: Path, config: Config, options: RunOptions) -> Model:
    """Train with settings that are checked already, and write the model folder.

    Until the model folder is complete, finished stages are kept beside it for ``resume``. Also
    beside it, in a file that ends in ``.run.jsonl``, are the forecast, and the time and memory of
    each stage. A model in ``output`` is replaced with ``force`` only, or where ``resume`` finds
    stages of a run that was to replace it."""
    begin = time.perf_counter()
    folder = work_folder(output)
    parents = options.read_parents()
    unfinished = options.resume and folder.is_dir()  # that run was allowed to replace a model
    check_replaceable(output, options.force or unfinished)  # now, not after hours of training
    if options.resume and not is_interrupted(output):
        log.warning(
            "%s: found no finished stage of an interrupted run to resume; training begins anew",
            output,
        )
    check_trainable(documents, config, parents, options.loss)
    warn_of_documents(documents)
    warn_of_few_words(documents, config)
    with pool.threads(options.threads), logging_to(options.log_to, output.resolve().name):
        report_settings(_facts(documents, config))
        expected = forecast(documents, config, options.device)
        log.info("%s", expected)
        if not options.ignore_memory:
            check_memory(expected)
        run_log = RunLog(run_log_path(output))
        with _stages(folder, output) as stages, listening(run_log), _hint_to_resume(output):
            clear_leftovers(output)
            if not options.resume:
                _start_anew(stages, output)
            run_log.numbers("forecast", 0, _forecast_values(expected))
            current_group().announce(BEGUN)
            model = train(
                documents,
                config,
                valid=options.valid,
                parents=parents,
                stages=stages,
                device=options.device,
                loss=options.loss,
            )
            save_model(model, output, check=partial(_check_opens, output, documents))
            stages.remove()
        note_compiled(config)
        if model.metrics is not None:
            report("final", 0, model.metrics.metrics)
        report("seconds", 0, {"in all": time.perf_counter() - begin})
    log.info("%s: written, %.1f s", output, time.perf_counter() - begin)
    return model


def _start_anew(stages: Stages, output: Path) -> None:
    """Remove the stages and the run log of an interrupted run."""
    count = stages.clear()
    if count:
        log.warning("%d stages of an interrupted run are let go, as --resume was not given", count)
    with suppress(OSError):  # training goes on without
        run_log_path(output).unlink()


def _check_opens(output: Path, documents: Dataset, folder: Path) -> None:
    """Refuse the folder of a trained model that does not open, or that labels no document.

    Args:
        output: Where the model is to be, for the message.
        documents: What it was trained on; one of them is labelled.
        folder: The folder as it is written so far, under a temporary name.
    """
    try:
        predict(load_model(folder, "cpu"), documents.take(np.arange(1)), 1)
    except LongtailError as error:
        problem = str(error).replace(str(folder), output.name)
        raise LongtailError(
            f"{output}: the model was trained but cannot be opened ({problem}), "
            "so it was not put there; finished stages are kept"
        ) from error


def take_part(documents: Dataset, output: Path, config: Config, options: RunOptions) -> None:
    """Train the network together with the first process, which writes ``output``; return when it is
    trained.
    """
    parents = options.read_parents()
    stages = FollowedStages(work_folder(output))
    with pool.threads(options.threads):
        follow(
            documents,
            config,
            valid=options.valid,
            parents=parents,
            stages=stages,
            device=options.device,
        )


def _stages(folder: Path, output: Path) -> Stages:
    """Return the stages of a run; an error of the disk names the model folder."""
    try:
        return Stages(folder)
    except OSError as error:
        place_at(error, output, folder)
        raise


@contextmanager
def _hint_to_resume(output: Path) -> Iterator[None]:
    """Log how to resume where a signal, or too little disk or memory, ends the body."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, SystemError, OSError, MemoryError):
        log.warning(
            "%s: training was interrupted; finished stages are kept: go on with --resume", output
        )
        raise


def _facts(documents: Dataset, config: Config) -> dict[str, Any]:
    """Return the version, the settings by dotted path, and the size of the data."""
    counts = {
        "documents": len(documents),
        "labels": documents.n_labels,
        "pairs": documents.label_matrix.nnz,
    }
    values = {setting.path: setting.value for setting in settings(config)}
    return {"longtail": __version__, **values, **counts}


def _forecast_values(expected: Forecast) -> dict[str, Any]:
    """Return the forecast for the run log, memory in MB as for stages."""
    low, high = expected.seconds
    gpu_bytes = expected.network_bytes if expected.on_gpu else 0
    return {
        "seconds": [round(low, 1), round(high, 1)],
        "compilation_seconds": [round(end, 1) for end in expected.compilation_seconds],
        "memory_mb": round(expected.peak_bytes / 1e6, 1),
        "gpu_memory_mb": round(gpu_bytes / 1e6, 1),
        "stages": {name: round(peak / 1e6, 1) for name, peak in expected.peaks().items()},
    }


def is_interrupted(output: Path) -> bool:
    """Return whether a run into ``output`` left finished stages."""
    folder = work_folder(output)
    return folder.is_dir() and any(map(holds_a_model, folder.iterdir()))


def work_folder(output: Path) -> Path:
    """Return the folder of a run's stages, beside the model folder."""
    path = output.resolve()
    if not path.name:
        raise UsageError(f"{output}: is no place for a model; give the name of a folder")
    return path.with_name(f"{path.name}.stages")
