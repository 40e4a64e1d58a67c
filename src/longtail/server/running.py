"""One process that serves: the model loaded, the endpoints behind uvicorn, signals."""

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
from longtail.server.listening import SHARES_PORTS, HttpServer, bind, say_where
from longtail.server.openapi import ENDPOINTS
from longtail.server.reloading import Reloader
from longtail.server.service import load_service
from longtail.server.settings import ServerSettings
from longtail.server.telemetry import Telemetry

__all__ = ["run_server"]

log = logging.getLogger("longtail")

# for which a thread may keep the others from Python; kernels give way by themselves
_SWITCH_SECONDS = 0.0001
_COLLECT_AFTER = 10_000, 20, 100  # new objects, and young and middle collections
_BACKLOG = 2048
_PAGES = {"/", "/docs", "/openapi.json"}


def run_server(
    settings: ServerSettings,
    listening: socket.socket | None = None,
    *,
    started: Callable[[], object] | None = None,
    tell_others: Callable[[], None] | None = None,
) -> None:
    """Load the model, listen, and serve until a signal says to stop; SIGHUP loads the folder again.

    A worker process has ``tell_others``: it shares the port, and lets those who started it handle
    Ctrl-C."""
    alone = tell_others is None
    if alone:
        # says now, not when a large model is loaded, that it is taken
        bind(settings.host, settings.port).close()
    if settings.documents is None:
        documents = None
    else:
        documents = shortened(read(settings.documents, skip_bad=None))
    own = settings.model, settings.device, settings.threads, settings.beam_size
    load = partial(load_service, *own, documents, settings.shards)
    service = load()
    _settle()
    show_on(None)  # bars are drawn by the main thread alone
    listening = listening or bind(settings.host, settings.port, shared=not alone and SHARES_PORTS)
    telemetry = Telemetry(
        frozenset(endpoint.path for endpoint in ENDPOINTS) | _PAGES, several=not alone
    )
    server = Server(settings, Reloader(settings.model, service, load, settings.shards), telemetry)
    del service
    if tell_others is not None:
        server.tell_others = tell_others
    started = started or partial(say_where, settings, listening.getsockname()[1])
    _serve(server, listening, started, alone)


def _settle() -> None:
    """Let the garbage collector never look again at what stays, some 100,000 objects, and threads
    take turns sooner.
    """
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
            log.info("stopping: no new requests, those in flight are answered")
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
    }
    handlers[signal.SIGINT] = stop if alone else lambda: None
    http = HttpServer(config, handlers, started)
    http.run(sockets=[listening])
    log.info("stopped")
