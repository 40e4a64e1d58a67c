"""A serving process: loads the model, runs the application in uvicorn, handles signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

import uvicorn

from longtail.data.reading import read
from longtail.reporting import show_on
from longtail.server.app import create_app
from longtail.server.endpoints import Server
from longtail.server.http_connection import connections_of
from longtail.server.label_neighbours import shortened
from longtail.server.listening import SHARES_PORTS, HttpServer, bind, print_address
from longtail.server.openapi import ENDPOINTS
from longtail.server.reloading import Reloader
from longtail.server.service import load_service
from longtail.server.settings import ServerSettings
from longtail.server.telemetry import Telemetry

__all__ = ["run_server"]

log = logging.getLogger("longtail")

_SWITCH_SECONDS = 0.0001  # a thread holds the GIL for so long; kernels release it
_COLLECT_AFTER = 10_000, 20, 100  # garbage collection: new objects, young and middle collections
_BACKLOG = 2048
_PAGES = {"/", "/docs", "/openapi.json"}


def run_server(
    settings: ServerSettings,
    listening: socket.socket | None = None,
    *,
    started: Callable[[], object] | None = None,
    notify_workers: Callable[[], None] | None = None,
) -> None:
    """Load the model, listen, and serve until a signal; SIGHUP loads the folder again.

    Args:
        settings: all options of the server.
        listening: the socket; None: a new one.
        started: called when the server listens; by default it prints the address.
        notify_workers: called after a reload. Only worker processes have it; they share the port
            and leave Ctrl-C to their supervisor.
    """
    alone = notify_workers is None
    if alone:
        # refuses a port in use before a large model is loaded
        bind(settings.host, settings.port).close()
    documents = None
    if settings.documents is not None:
        documents = shortened(read(settings.documents, skip_bad=None))
    load = partial(
        load_service,
        settings.model,
        settings.device,
        settings.threads,
        settings.beam_size,
        documents,
        settings.shards,
    )
    service = load()
    _settle()
    show_on(None)  # progress bars are drawn by the main thread only
    listening = listening or bind(settings.host, settings.port, shared=not alone and SHARES_PORTS)
    telemetry = Telemetry(
        frozenset(endpoint.path for endpoint in ENDPOINTS) | _PAGES, several=not alone
    )
    server = Server(settings, Reloader(settings.model, service, load, settings.shards), telemetry)
    del service
    if notify_workers is not None:
        server.notify_workers = notify_workers
    started = started or partial(print_address, settings, listening.getsockname()[1])
    _serve(server, listening, started, alone)


def _settle() -> None:
    """Exclude the objects so far, some 100,000, from garbage collection; switch threads sooner."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    sys.setswitchinterval(_SWITCH_SECONDS)


def _serve(
    server: Server, listening: socket.socket, started: Callable[[], object], alone: bool
) -> None:
    settings = server.settings
    app = create_app(server)
    config = uvicorn.Config(
        app,
        http=connections_of(settings.limits, settings.connections, app, server.telemetry),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
    )
    tasks: set[asyncio.Task[None]] = set()

    def stop() -> None:
        if server.is_ready:
            server.is_ready = False
            log.info("stopping: new requests are refused, requests in flight are answered")
            asyncio.get_running_loop().call_later(
                settings.drain_seconds, http.handle_exit, signal.SIGTERM, None
            )

    def reload() -> None:
        task = asyncio.create_task(server.reloader.reload_quietly())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    handlers: dict[signal.Signals, Callable[[], object]] = {
        signal.SIGTERM: stop,
        signal.SIGHUP: reload,
        signal.SIGINT: stop if alone else lambda: None,
    }
    http = HttpServer(config, handlers, started)
    http.run(sockets=[listening])
    log.info("stopped")
