"""The listening socket, uvicorn with this server's signal handlers, and worker processes that serve
one model on one port and share its memory-mapped weights.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import uvicorn

from longtail.errors import LongtailError, UsageError
from longtail.search.shard_files import open_model_folder
from longtail.server.settings import ServerSettings

__all__ = ["SHARES_PORTS", "HttpServer", "bind", "print_address", "run_workers"]

SHARES_PORTS = sys.platform == "linux"  # the kernel distributes connections over a port's sockets
_EXAMPLE = '{"documents": [{"text": "Offshore wind turbines in the Baltic Sea"}]}'


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """Return a socket bound to the address; ``shared`` with other worker processes."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(
            f"--host {host}: {error.strerror or error}; expected an address of this machine"
        ) from None
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another program listens there"
        raise UsageError(
            f"{host}:{port}: {reason}; choose another with --host and --port"
        ) from None
    made.set_inheritable(True)
    return made


class HttpServer(uvicorn.Server):
    """uvicorn with this server's signal handlers.

    It always stops after it has answered the requests in flight, however many signals arrive.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        handlers: dict[signal.Signals, Callable[[], object]],
        started: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._handlers = handlers
        self._on_start = started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals in the event loop; uvicorn would raise them again at the end."""
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in self._handlers:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and call ``started``."""
        await super().startup(sockets)
        if self.started:
            self._on_start()


def print_address(settings: ServerSettings, port: int) -> None:
    """Print the address of the page, and a curl command, to stderr."""
    host = settings.host
    if ":" in host:
        host = f"[{host}]"
    address = f"http://{host}:{port}"
    token = ""
    if settings.token is not None:
        token = " -H 'Authorization: Bearer TOKEN'"
    print(f"page: {address}/", file=sys.stderr)
    print(
        f"curl {address}/v1/predict{token} -H 'Content-Type: application/json' -d '{_EXAMPLE}'",
        file=sys.stderr,
    )
    sys.stderr.flush()


log = logging.getLogger("longtail")

_POLL_SECONDS = 0.2
_SPARE_SECONDS = 5  # after the grace period, before a worker is killed
_LONGEST_PAUSE = 15.0  # seconds between two attempts to start a worker


@dataclass
class _Worker:
    process: SpawnProcess
    # the worker sends True when it is ready, and stops when the supervisor closes its end
    pipe: Connection
    is_ready: bool = False
    misses_reload: bool = False  # a reload was requested before it was ready
    failures: int = 0  # consecutive failed attempts to replace it
    start_at: float | None = None  # monotonic time at which an ended worker is replaced


def run_workers(settings: ServerSettings) -> int:
    """Start the workers, replace dead ones, forward signals; return the exit code."""
    # a single refusal instead of one per worker
    open_model_folder(settings.model, settings.shards, verify="size")
    # refuses a port in use; binding a shared port does not
    bind(settings.host, settings.port).close()
    # reserves the port; where ports cannot be shared, all workers listen on this socket
    reserved = bind(settings.host, settings.port, shared=SHARES_PORTS)
    port = reserved.getsockname()[1]
    listening = None
    if not SHARES_PORTS:
        reserved.listen(2048)
        listening = reserved
    folder = tempfile.mkdtemp(prefix="longtail-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    try:
        return _Supervisor(replace(settings, port=port), listening).run()
    finally:
        reserved.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Supervisor:
    def __init__(self, settings: ServerSettings, listening: socket.socket | None) -> None:
        self._settings = settings
        self._listening = listening
        self._stopping = False
        self._has_served = False  # all workers were ready once
        self._workers: list[_Worker] = []

    def run(self) -> int:
        """Supervise the workers until a signal, or until one of the first fails to start."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGHUP, self._reload)
        self._workers = [self._started() for _ in range(self._settings.workers)]
        while not self._stopping:
            alive = [worker for worker in self._workers if worker.start_at is None]
            wait(
                [end for worker in alive for end in (worker.process.sentinel, worker.pipe)],
                _POLL_SECONDS,
            )
            for worker in alive:
                self._hear(worker)
            failed = [
                worker.process.exitcode
                for worker in alive
                if not worker.is_ready and _has_ended(worker)
            ]
            if failed and not self._has_served and not self._stopping:
                self._end_all()
                return failed[0] or 1
            self._replace_dead()
        return self._end_all()

    def _started(self, failures: int = 0) -> _Worker:
        mine, theirs = get_context("spawn").Pipe()
        level = logging.getLogger("longtail").level
        arguments = self._settings, self._listening, theirs, level
        process = get_context("spawn").Process(target=_work, args=arguments, name="longtail-worker")
        process.start()
        theirs.close()
        return _Worker(process, mine, failures=failures)

    def _hear(self, worker: _Worker) -> None:
        try:
            if not worker.is_ready and worker.pipe.poll():
                worker.is_ready = bool(worker.pipe.recv())
                if self._has_served:
                    log.warning("worker %s is ready", worker.process.pid)
                if worker.misses_reload:
                    _send_reload(worker)
        except (EOFError, OSError):
            time.sleep(_POLL_SECONDS)  # it has died; its exit code follows soon
        if not self._has_served and all(worker.is_ready for worker in self._workers):
            self._has_served = True
            print_address(self._settings, self._settings.port)

    def _replace_dead(self) -> None:
        """Replace ended workers; wait longer after each failure of one that was never ready."""
        now = time.monotonic()
        for at, worker in enumerate(self._workers):
            if self._stopping:
                return
            if worker.start_at is None and _has_ended(worker):
                self._schedule_replacement(worker, now)
            elif worker.start_at is not None and worker.start_at <= now:
                self._workers[at] = self._started(worker.failures)

    def _schedule_replacement(self, worker: _Worker, now: float) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        process = worker.process
        mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
        worker.pipe.close()
        if worker.is_ready:
            worker.failures = 0
            worker.start_at = now + _POLL_SECONDS
            log.warning("worker %s ended with %s; another starts", process.pid, process.exitcode)
            return
        worker.failures += 1
        pause = min(2.0 ** (worker.failures - 1), _LONGEST_PAUSE)
        worker.start_at = now + pause
        log.warning(
            "worker %s ended with %s before it was ready; the others continue, "
            "another starts in %g s",
            process.pid,
            process.exitcode,
            pause,
        )

    def _end_all(self) -> int:
        alive = [worker for worker in self._workers if worker.start_at is None]
        for worker in alive:
            if worker.process.is_alive():
                worker.process.terminate()
        seconds = self._settings.grace_seconds + self._settings.drain_seconds + _SPARE_SECONDS
        for worker in alive:
            worker.process.join(seconds)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        # without replacements that were still starting
        ended = [worker for worker in alive if worker.is_ready or not self._has_served]
        return max((abs(worker.process.exitcode or 0) for worker in ended), default=0)

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def _reload(self, number: int, frame: object) -> None:
        for worker in self._workers:
            if worker.is_ready:
                _send_reload(worker)
            else:
                worker.misses_reload = True


def _send_reload(worker: _Worker) -> None:
    if worker.start_at is None and worker.process.pid is not None and worker.process.is_alive():
        os.kill(worker.process.pid, signal.SIGHUP)


def _has_ended(worker: _Worker) -> bool:
    return worker.process.exitcode is not None


def _work(
    settings: ServerSettings, listening: socket.socket | None, pipe: Connection, level: int
) -> None:
    """Run a worker process."""
    from longtail.server.running import run_server  # here: the supervisor does not need the model

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logging.getLogger("longtail").setLevel(level)
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    try:
        run_server(
            settings,
            listening,
            started=lambda: pipe.send(True),
            notify_workers=lambda: os.kill(parent, signal.SIGHUP),
        )
    except LongtailError as error:
        print(f"longtail: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _end_with(pipe: Connection) -> None:
    """Stop this process when its supervisor has ended."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
