"""Training and prediction on a Ray cluster, to the same bytes as on one machine.

Inside of :func:`connected`, Ray's workers do what ``kernels.pool`` spreads: runs of tree nodes,
batches of labels, shards, trees over documents, blocks of documents to be labelled. A task is a
function of this package, an item, and arguments that are in Ray's object store once; it runs on one
CPU, and is done again elsewhere when its worker is lost."""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from longtail import __version__, reporting
from longtail.config import Config
from longtail.data.csr import csr_of, csr_of_nothing
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.errors import LongtailError, MissingExtra, ModelFolderError, UsageError
from longtail.kernels import pool
from longtail.methods import network_of
from longtail.models.ensemble_model import Ensemble
from longtail.models.model import Model
from longtail.models.model_folder import load_model
from longtail.pipeline import predict
from longtail.search.predictions import Predictions
from longtail.store import content_hash, open_folder

__all__ = ["check_trainable", "connected", "predict_folder"]

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("longtail")

_ADDRESSES = "expected local, auto, HOST:PORT or ray://HOST:PORT"
_REACH_SECONDS = 5.0
_PATIENCE = 30  # seconds without a worker, after which a person is told
_RETRIES = 10  # of a task whose worker is lost; what kills its worker each time must end one day
_AHEAD = 16  # tasks a CPU that wait
_ROUNDS = 16  # tasks a CPU at least, before items are joined to larger ones
_SMALL = 1 << 16  # bytes of an array that travels with each task
_PLAIN = (int, float, str, bytes, type(None), np.generic, Path)  # travel with each task, too
_DOCUMENTS = 2048  # of one task of a prediction


def check_trainable(config: Config) -> None:
    """Refuse what is not trained in tasks on CPUs."""
    if network_of(config) is not None:
        raise UsageError(
            f"--ray: {config.method} trains a network, which Ray's workers do not; "
            "start it with torchrun on several GPUs, or leave out --ray"
        )


@contextmanager
def connected(address: str | None, threads: int = 0) -> Iterator[None]:
    """Let the workers of a Ray cluster do what can be spread in the body; with None, this process.

    ``address`` is that of a running cluster (``HOST:PORT``, ``ray://HOST:PORT``, or ``auto`` for
    one of this machine), or ``local``, which starts one of ``threads`` workers (0: all cores) for
    the time of the body. Where this process is already connected, that stays as it is."""
    if address is None:
        yield
        return
    ray = _ray()
    is_new = not ray.is_initialized()
    try:
        if is_new:
            _start(ray, address, threads)
        _check_workers(ray, address)
        with pool.handed_to(_Cluster(ray)):
            yield
    finally:
        if is_new:
            ray.shutdown()


def _ray() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is told to anybody
    try:
        import ray
    except ImportError:
        raise MissingExtra("--ray", "ray") from None
    return ray


def _start(ray: Any, address: str, threads: int) -> None:
    options: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "logging_level": "error",
    }
    if address == "local":
        options |= {"num_cpus": threads or pool.thread_count(), "include_dashboard": False}
    else:
        _check_reachable(address)
    # takes seconds
    action = "joining"
    if address == "local":
        action = "starting"
    log.info("--ray %s: %s a cluster", address, action)
    logging.getLogger("ray").setLevel(logging.ERROR)
    with _own_signals():
        try:
            ray.init(address, **options)
        except ConnectionError as error:
            raise _nobody(address, error) from None
        except (OSError, RuntimeError, ValueError) as error:
            # another version of Ray or Python, say
            raise UsageError(
                f"--ray {address}: {_one_line(error)}; {_ADDRESSES} of a cluster"
            ) from None


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody listens, which Ray itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise UsageError(f"--ray {address}: is no address; {_ADDRESSES}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except OSError as error:
        raise _nobody(address, error) from None


def _nobody(address: str, error: OSError) -> UsageError:
    return UsageError(
        f"--ray {address}: no cluster answers ({error.strerror or _one_line(error)}); "
        "check the address and the token (RAY_AUTH_TOKEN, RAY_AUTH_MODE=token), start one with "
        "`ray start --head`, "
        "or use --ray local"
    )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces by one that ends the process on the spot."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


def _check_workers(ray: Any, address: str) -> None:
    """Refuse a cluster whose workers have not this very package."""
    asked = ray.remote(num_cpus=1)(_version).remote()
    if not ray.wait([asked], timeout=_PATIENCE)[0]:
        log.warning(
            "--ray %s: waiting for a worker; all CPUs of the cluster are in use, or it has none",
            address,
        )
    try:
        package = f"longtail {ray.get(asked)}"
    except ray.exceptions.RayError as error:
        package = f"no longtail ({_one_line(error)})"
    if package != f"longtail {__version__}":
        raise UsageError(
            f"--ray {address}: workers have {package}, and this process {__version__}; "
            "install the same on all machines"
        )


def _version() -> str:
    return __version__


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".")


class _Cluster:
    """The runner of :mod:`longtail.kernels.pool` whose tasks are Ray's."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._do = ray.remote(num_cpus=1, max_retries=_RETRIES)(_do)
        # those in the object store, while they live here
        self._arrays: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def __call__(
        self, task: Callable[..., R], items: Sequence[T], shared: Sequence[Any], together: int
    ) -> Iterator[R]:
        """Yield ``task(item, *shared)`` of each item in their order; leaving early cancels the
        rest.
        """
        cpus = max(int(self._ray.cluster_resources().get("CPU", 1)), 1)
        size = max(min(together, len(items) // (_ROUNDS * cpus)), 1)
        arguments = [self._argument(value) for value in shared]
        groups = (items[first : first + size] for first in range(0, len(items), size))
        tasks = (self._do.remote(task, group, *arguments) for group in groups)
        waiting = deque(islice(tasks, _AHEAD * cpus))
        try:
            while waiting:
                done = self._result(waiting[0])
                waiting.popleft()
                waiting.extend(islice(tasks, 1))
                yield from done
        finally:
            for left in waiting:
                self._ray.cancel(left, force=True)

    def _argument(self, value: Any) -> Any:
        """Return what travels with each task: small values, and references to those in the object
        store.
        """
        if isinstance(value, _PLAIN):
            return value
        if not isinstance(value, np.ndarray):
            return self._ray.put(value)
        if value.nbytes <= _SMALL:
            return value
        if id(value) not in self._arrays:  # the features, say, of all levels and trees: once
            gone = weakref.ref(value, functools.partial(self._forget, id(value)))
            self._arrays[id(value)] = gone, self._ray.put(value)
        return self._arrays[id(value)][1]

    def _forget(self, key: int, _: object) -> None:
        self._arrays.pop(key, None)

    def _result(self, task: Any) -> Any:
        errors = self._ray.exceptions
        try:
            # ray.get would turn the SystemExit of a SIGTERM into one of its own
            return task.future().result()
        except errors.RayTaskError as error:
            if isinstance(error.cause, LongtailError | OSError | MemoryError):
                raise error.cause from None
            raise
        except errors.RayError as error:
            lost = isinstance(
                error,
                errors.WorkerCrashedError | errors.NodeDiedError | errors.LocalRayletDiedError,
            )
            if lost:
                problem = f"Ray gave up a task after {_RETRIES} tries"
            else:
                problem = "Ray could not do a task"
            raise LongtailError(
                f"{problem} ({_one_line(error) or type(error).__name__}); "
                "look at the cluster, then start again, a training with --resume: its finished "
                "stages are kept"
            ) from error


def _do(task: Callable[..., R], items: Sequence[T], *shared: Any) -> list[R]:
    """Do a task in a worker, for which Ray has set one CPU aside."""
    with pool.threads(1):
        return [task(item, *shared) for item in items]


def predict_folder(
    model: Path,
    documents: Dataset,
    k: int = 5,
    *,
    threshold: float = 0.0,
    beam_size: int | None = None,
) -> Predictions:
    """Return what :func:`longtail.pipeline.predict` gives, computed by the workers of
    :func:`connected`, each with the model folder open.

    Documents go through the object store once; ``model`` must be on storage that all machines
    share."""
    folder = open_folder(model)
    labels = load_model(folder, "cpu").labels
    nothing = csr_of_nothing(len(documents), 0)
    # only what is read needs to travel
    bare = replace(documents, labels=Labels.of([]), label_matrix=nothing)
    sealed = str(folder.root), content_hash(folder.manifest)
    blocks: list[sparse.csr_array] = []
    with reporting.stage("predicting", len(documents), "documents"):
        for block in pool.spread(
            _predict_block,
            pool.row_blocks(len(documents), _DOCUMENTS),
            bare,
            *sealed,
            k,
            threshold,
            beam_size,
        ):
            blocks.append(block)
            reporting.advance(block.shape[0])
    return Predictions(_stacked(blocks, len(labels)), labels, documents.ids)


def _predict_block(
    ends: tuple[int, int],
    documents: Dataset,
    path: str,
    sealed: str,
    k: int,
    threshold: float,
    beam_size: int | None,
) -> sparse.csr_array:
    block = documents.take(np.arange(*ends))
    model = _opened(path, sealed)
    return predict(model, block, k, threshold=threshold, beam_size=beam_size).matrix


@functools.lru_cache(maxsize=1)
def _opened(path: str, sealed: str) -> Model | Ensemble:
    """Return the model, once a worker; whoever sent ``sealed``, the hash of its manifest, has
    verified its bytes.
    """
    try:
        folder = open_folder(path, verify="size")
    except ModelFolderError as error:
        raise ModelFolderError(
            f"on {socket.gethostname()}, which works for this run: {error}"
        ) from None
    if content_hash(folder.manifest) != sealed:
        raise ModelFolderError(
            f"{path}: is another model on {socket.gethostname()}, which works for this run; "
            "put the model on storage that all machines share"
        )
    return load_model(folder, "cpu")


def _stacked(blocks: Sequence[sparse.csr_array], n_labels: int) -> sparse.csr_array:
    """Put rows together as they are, the entries of each from best to worst."""
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(block.indptr) for block in blocks)])
    values = np.concatenate([np.zeros(0, np.float32), *(block.data for block in blocks)])
    columns = np.concatenate([np.zeros(0, np.int32), *(block.indices for block in blocks)])
    return csr_of(values, columns, np.cumsum(lengths), n_labels)
