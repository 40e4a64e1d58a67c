"""Compilation of the CPU kernels before they are needed, by training on a little data.

Training, prediction and evaluation call the same functions as for other data, so kernels are
compiled for the types that they will be called with, and no list of them is needed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from longtail.config import Config
from longtail.data.sample import sample
from longtail.estimator import Longtail, load
from longtail.forecast import compilation_kernels, note_compiled
from longtail.kernels.compilation import observe, observer
from longtail.methods import METHODS, configure
from longtail.reporting import whole_stage

__all__ = ["compile_kernels", "compile_missing_kernels", "linear_trainings"]

_TRAINING_DOCUMENTS = 300
_TEST_DOCUMENTS = 50

log = logging.getLogger("longtail")


class _Steps:
    """Calls a function per compiled kernel, up to the expected number."""

    def __init__(self, advance: Callable[[int], None], expected: int) -> None:
        self._advance = advance
        self._left = expected

    def start(self, kernel: str) -> None:
        """Ignore the start of a kernel."""

    def step(self) -> None:
        """Count a compiled kernel."""
        if self._left > 0:
            self._left -= 1
            self._advance(1)

    def finish(self) -> None:
        """Ignore the end of a kernel."""


def linear_trainings() -> list[Config]:
    """Return the settings of all linear methods and of Gandalf: they need no optional package."""
    linear = [configure(name) for name, entry in METHODS.items() if not entry.network]
    return [*linear, configure("xr-linear", None, {"gandalf": {"use": True}})]


def compile_missing_kernels(config: Config) -> None:
    """Compile the kernels for these settings, unless this machine has compiled them."""
    if compilation_kernels(config):
        compile_kernels([config])


def compile_kernels(configs: Sequence[Config]) -> None:
    """Compile the kernels for all of these settings, with a single progress bar."""
    begin = time.perf_counter()
    names = ", ".join(dict.fromkeys(config.method for config in configs))
    log.info("compiling kernels, once on this machine: %s", names)
    expected = compilation_kernels(*configs)
    with (
        whole_stage("compiling kernels", expected, "kernels") as advance,
        _observed_by(_Steps(advance, expected)),
        _warnings_only(),
    ):
        for config in configs:
            _use(config)
            note_compiled(config)
    log.info("kernels compiled, %.1f s", time.perf_counter() - begin)


def _use(config: Config) -> None:
    """Train a model on a part of the bundled sample, save, load, predict and evaluate."""
    train, test = sample()
    few = train.split(test=_TRAINING_DOCUMENTS)[1]
    unseen = test.split(test=_TEST_DOCUMENTS)[1]
    with TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        trained = Longtail()
        trained.config = config
        trained.fit(few).save(model)
        loaded = load(model)
        loaded.predict(train)  # enough documents for several blocks of text
        loaded.evaluate(unseen, bootstrap=10)


@contextmanager
def _observed_by(steps: _Steps) -> Iterator[None]:
    before = observer()
    observe(steps)
    try:
        yield
    finally:
        observe(before)


@contextmanager
def _warnings_only() -> Iterator[None]:
    """Suppress the log lines of the trainings."""

    def is_warning(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    log.addFilter(is_warning)
    try:
        yield
    finally:
        log.removeFilter(is_warning)
