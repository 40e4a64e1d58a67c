"""Compilation of the CPU kernels before they are needed, by training on a little data.

Training, prediction and evaluation call the same functions as for other data, so kernels are
compiled for the types that they will be called with, and no list of them is needed.

Numba compiles one kernel at a time. With a second core, a second process compiles what does not
need a trained model, the kernels of text, search and metrics, then the methods from the last to the
first; this process takes from the cache what it finds there.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy import sparse

from longtail.config import Config
from longtail.data.sample import sample
from longtail.estimator import Longtail, load
from longtail.evaluation import evaluate_predictions
from longtail.features.matrix import Features
from longtail.features.tfidf import TfIdf
from longtail.forecast import compilation_kernels, note_compiled
from longtail.kernels import pool
from longtail.kernels.compilation import observe, observer
from longtail.kernels.jit import compilation_record
from longtail.methods import METHODS, configure
from longtail.rankers import ranker_family
from longtail.rankers.tree import TreeRanker
from longtail.reporting import whole_stage
from longtail.search.chunks import Chunks, Part
from longtail.search.predictions import Predictions
from longtail.tree.tree import LabelTree

__all__ = ["compile_kernels", "compile_missing_kernels", "linear_trainings"]

_TRAINING_DOCUMENTS = 300
_TEST_DOCUMENTS = 50
_RANDOM_COLUMNS = 64  # of features and weights that are random

log = logging.getLogger("longtail")


class _Steps:
    """Calls a function per compiled kernel, up to the expected number."""

    def __init__(self, advance: Callable[[int], None], expected: int) -> None:
        self._advance = advance
        self._left = expected
        self._lock = threading.Lock()  # kernels of the second process are counted by a thread

    def start(self, kernel: str) -> None:
        """Ignore the start of a kernel."""

    def step(self) -> None:
        """Count a compiled kernel."""
        with self._lock:
            if self._left > 0:
                self._left -= 1
                self._advance(1)

    def finish(self) -> None:
        """Ignore the end of a kernel."""


class _SentSteps:
    """Sends a message per compiled kernel to the process that shows the progress."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def start(self, kernel: str) -> None:
        """Ignore the start of a kernel."""

    def step(self) -> None:
        """Send that a kernel is compiled."""
        self._connection.send_bytes(b"kernel")

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
    with whole_stage("compiling kernels", expected, "kernels") as advance:
        steps = _Steps(advance, expected)
        with _observed_by(steps), _warnings_only(), _second_process(configs, steps) as is_shared:
            if is_shared:
                _use_training(configs[0])
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


def _use_training(config: Config) -> None:
    """Train on random features: the kernels of training without those of text."""
    few = sample()[0].split(test=_TRAINING_DOCUMENTS)[1]
    trained = Longtail()
    trained.config = config
    trained.fit(replace(few, texts=None).with_features(_random_features(len(few)).sparse))


def _use_text(config: Config) -> None:
    """Make features of the texts of the bundled sample."""
    texts = sample()[0].document_texts()
    TfIdf.fit_transform(texts, config.tfidf)[0].transform(texts)


def _use_search(config: Config) -> None:
    """Search a label tree with random weights, and evaluate what it finds."""
    train, test = sample()
    half = test.n_labels // 2
    tree = LabelTree.from_borders(np.arange(test.n_labels), [np.array([0, half, test.n_labels])])
    levels = tuple(
        Chunks.build(
            offsets,
            [_random_part(int(width)) for width in np.diff(offsets)],
            _RANDOM_COLUMNS,
            dtype=config.ranker.weights,
        )
        for offsets in (np.array([0, 2]), tree.offsets[0])
    )
    ranker = TreeRanker(tree, levels, config.ranker.bias)
    scores = ranker.search(_random_features(len(test)), config.search, 5)
    evaluate_predictions(Predictions(scores, test.labels), test, train, bootstrap=10)


def _random_features(count: int) -> Features:
    random = np.random.default_rng(0)
    rows = sparse.random_array((count, _RANDOM_COLUMNS), density=0.2, dtype=np.float32, rng=random)
    return Features.of(sparse.csr_array(rows))


def _random_part(width: int) -> Part:
    """Return weights of all columns for so many siblings."""
    return Part(
        np.arange(_RANDOM_COLUMNS, dtype=np.int32),
        np.arange(_RANDOM_COLUMNS + 1, dtype=np.int64) * width,
        np.tile(np.arange(width, dtype=np.int32), _RANDOM_COLUMNS),
        np.random.default_rng(0).standard_normal(width * _RANDOM_COLUMNS).astype(np.float32),
        np.zeros((width, 0), np.float32),
    )


@contextmanager
def _second_process(configs: Sequence[Config], steps: _Steps) -> Iterator[bool]:
    """Compile in a second process during the body; False where it would not help.

    It ends with the body, whatever it has not compiled by then.
    """
    is_shared = pool.cores() > 1 and compilation_record().is_kept and _is_shareable(configs[0])
    if not is_shared:
        yield False
        return
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_compile_beside, args=(configs, sender), daemon=True)
    process.start()
    sender.close()
    counting = threading.Thread(target=_count, args=(receiver, steps), daemon=True)
    counting.start()
    try:
        yield True
    finally:
        process.terminate()
        process.join()
        counting.join()


def _is_shareable(config: Config) -> bool:
    """Return whether training can begin without kernels of text, and search without training."""
    return ranker_family(config).has_label_tree and not config.gandalf.use


def _compile_beside(configs: Sequence[Config], sender: Connection) -> None:
    """Compile in the second process, from what needs no training to the last of the methods."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    log.addFilter(lambda record: False)
    observe(_SentSteps(sender))
    with suppress(BrokenPipeError), pool.threads(1):
        _use_text(configs[0])
        _use_search(configs[0])
        for config in reversed(configs[1:]):
            _use(config)
            note_compiled(config)


def _count(receiver: Connection, steps: _Steps) -> None:
    """Count the kernels that the second process has compiled, until it ends."""
    with suppress(EOFError, OSError):
        while receiver.recv_bytes():
            steps.step()


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
