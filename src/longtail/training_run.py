"""A training run with all that surrounds it: forecast, stages to resume by, and the model folder at
the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from longtail import __version__
from longtail.checks import check_trainable, warn_of_documents, warn_of_few_words
from longtail.config import Config, settings
from longtail.data.dataset import Dataset
from longtail.errors import LongtailError, UsageError, place_at
from longtail.forecast import Forecast, check_memory, forecast, note_compiled
from longtail.kernels import pool
from longtail.models.model import Model
from longtail.models.model_folder import load_model, save_model
from longtail.pipeline import follow, train
from longtail.reporting import listening, report, report_settings
from longtail.run_log import RunLog, run_log_path
from longtail.run_loggers import logging_to
from longtail.steps.process_group import FollowedStages, current_group
from longtail.store import Stages, check_replaceable, clear_leftovers, holds_a_model
from longtail.tree.given import read_parents

__all__ = ["BEGUN", "is_interrupted", "take_part", "train_to_folder", "work_folder"]

BEGUN = "begun"  # what the first rank announces when the others may read the data, too

log = logging.getLogger("longtail")


def train_to_folder(
    documents: Dataset,
    output: Path,
    config: Config,
    *,
    valid: Dataset | None = None,
    tree: Path | None = None,
    threads: int = 0,
    resume: bool = False,
    force: bool = False,
    ignore_memory: bool = False,
    device: str = "auto",
    log_to: Sequence[str] = (),
    loss: Callable[..., Any] | None = None,
) -> Model:
    """Train and write the model folder; until it is there, finished stages are kept beside it for
    ``resume``.

    Also beside it, in a file that ends in ``.run.jsonl``, stands how the training went: time and
    memory of each stage, and what the forecast said of them. ``log_to`` are loggers that are told
    of the run, such as ``mlflow:http://host:5000``. A model that is in ``output`` is replaced with
    ``force`` alone, or where ``resume`` finds stages of a run that was to replace it. ``loss`` is
    the loss of a network, where ``training.loss`` is ``custom``; a resumed run needs the same one
    again."""
    begin = time.perf_counter()
    stages_at = work_folder(output)
    log_file = run_log_path(output)
    run_log = RunLog(log_file)
    parents = None if tree is None else read_parents(tree)
    unfinished = resume and stages_at.is_dir()  # it was decided then that a model is replaced
    check_replaceable(output, force or unfinished)  # now, not after hours of training
    if resume and not is_interrupted(output):
        log.warning(
            "%s: found no finished stage of an interrupted run to resume; training begins anew",
            output,
        )
    check_trainable(documents, config, device, parents, loss)
    warn_of_documents(documents)
    warn_of_few_words(documents, config)
    with pool.threads(threads), logging_to(log_to, output.resolve().name):
        report_settings(_facts(documents, config))
        expected = forecast(documents, config, device)
        log.info("%s", expected)
        if not ignore_memory:
            check_memory(expected)
        with (
            _stages(stages_at, output) as stages,
            listening(run_log),
            _hint_to_resume(output),
        ):
            clear_leftovers(output)
            if not resume:
                if count := stages.clear():
                    log.warning(
                        "%d stages of an interrupted run are let go, as --resume was not given",
                        count,
                    )
                with suppress(OSError):  # a run log is worth less than the run
                    log_file.unlink()
            run_log.numbers("forecast", 0, _forecast_values(expected))
            current_group().announce(BEGUN)
            model = train(
                documents,
                config,
                valid=valid,
                parents=parents,
                stages=stages,
                device=device,
                loss=loss,
            )
            save_model(model, output, check=partial(_check_opens, output, documents))
            stages.remove()
        note_compiled(config)
        if model.metrics is not None:
            report("final", 0, model.metrics.metrics)
        report("seconds", 0, {"in all": time.perf_counter() - begin})
    log.info("%s: written, %.1f s", output, time.perf_counter() - begin)
    return model


def _check_opens(output: Path, documents: Dataset, folder: Path) -> None:
    """Refuse the folder of a trained model that does not open, or that labels no document.

    Args:
        output: Where the model is to be, for the message.
        documents: What it was trained on; one of them is labelled.
        folder: The folder as it is written so far, under a temporary name.
    """
    try:
        load_model(folder, "cpu").predict(documents.take(np.arange(1)), 1)
    except LongtailError as error:
        problem = str(error).replace(str(folder), output.name)
        raise LongtailError(
            f"{output}: the model was trained but cannot be opened ({problem}), so it was not put there; "
            "finished stages are kept"
        ) from error


def take_part(
    documents: Dataset,
    output: Path,
    config: Config,
    *,
    valid: Dataset | None = None,
    tree: Path | None = None,
    threads: int = 0,
    device: str = "auto",
) -> None:
    """Help to train the network of a run that the first rank leads into ``output``; return when it
    is trained.
    """
    parents = None if tree is None else read_parents(tree)
    stages = FollowedStages(work_folder(output))
    with pool.threads(threads):
        follow(documents, config, valid=valid, parents=parents, stages=stages, device=device)


def _stages(stages_at: Path, output: Path) -> Stages:
    """Return the work folder of a run; an error of the disk names the model folder that was asked
    for.
    """
    try:
        return Stages(stages_at)
    except OSError as error:
        place_at(error, output, stages_at)
        raise


@contextmanager
def _hint_to_resume(output: Path) -> Iterator[None]:
    """Say how to go on where the body ends by a signal or for want of disk or memory."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, SystemError, OSError, MemoryError):
        log.warning(
            "%s: training was interrupted; finished stages are kept: go on with --resume", output
        )
        raise


def _facts(documents: Dataset, config: Config) -> dict[str, Any]:
    """Return what decides the run: version, settings by dotted path, and the size of the data."""
    counts = {
        "documents": len(documents),
        "labels": documents.n_labels,
        "pairs": documents.label_matrix.nnz,
    }
    return {"longtail": __version__, **{own.path: own.value for own in settings(config)}, **counts}


def _forecast_values(expected: Forecast) -> dict[str, Any]:
    """Return the forecast for the run log, memory in MB as for stages."""
    low, high = expected.seconds
    return {
        "seconds": [round(low, 1), round(high, 1)],
        "compilation_seconds": [round(end, 1) for end in expected.compilation_seconds],
        "memory_mb": round(expected.peak_bytes / 1e6, 1),
        "gpu_memory_mb": round(expected.network_bytes / 1e6, 1) if expected.on_gpu else 0,
        "stages": {name: round(peak / 1e6, 1) for name, peak in expected.peaks().items()},
    }


def is_interrupted(output: Path) -> bool:
    """Tell whether a run into ``output`` left finished stages."""
    stages_at = work_folder(output)
    return stages_at.is_dir() and any(map(holds_a_model, stages_at.iterdir()))


def work_folder(output: Path) -> Path:
    """Return where the stages of a run go: beside the model folder, as it is replaced as a whole."""
    place = output.resolve()
    if not place.name:
        raise UsageError(f"{output}: is no place for a model; give the name of a folder")
    return place.with_name(f"{place.name}.stages")
