"""A serving process: loads the model, runs the application in uvicorn, handles signals.

The application has all endpoints, the page and its documentation, and answers errors as problem
details.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from longtail.data.reading import read
from longtail.reporting import show_on
from longtail.server.endpoints import Server
from longtail.server.front import FAILED, NOBODY, ClientLeft, Front
from longtail.server.http_connection import connections_of
from longtail.server.label_neighbours import shortened
from longtail.server.listening import SHARES_PORTS, HttpServer, bind, print_address
from longtail.server.openapi import ENDPOINTS, docs_page, openapi_document
from longtail.server.problem_details import PROBLEM_TYPE, Refusal, problem_bytes
from longtail.server.reloading import Reloader
from longtail.server.request_source import SourceCheck
from longtail.server.service import load_service
from longtail.server.settings import ServerSettings
from longtail.server.telemetry import Telemetry

__all__ = ["create_app", "run_server"]

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


# The application

_HERE = Path(__file__).parent
_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}


async def _file(path: Path) -> Response:
    """Return a file of the page; the files are few and small."""
    headers = {"cache-control": "no-cache"}
    return Response(
        path.read_bytes(), headers=headers, media_type=f"{_TYPES[path.suffix]}; charset=utf-8"
    )


def create_app(server: Server) -> Front:
    """Return the application: all endpoints, the page and its documentation, behind a Front."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        server.start()
        watching = None
        if server.settings.watch_seconds:
            watching = asyncio.create_task(server.reloader.watch(server.settings.watch_seconds))
        yield
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        server.stop()

    document = openapi_document()
    app = FastAPI(
        title="Longtail", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    for endpoint in ENDPOINTS:
        app.add_route(endpoint.path, getattr(server, endpoint.name), methods=[endpoint.method])
    _add_pages(app, document)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _not_routed)
    app.add_exception_handler(ClientLeft, _nobody)
    app.add_exception_handler(Exception, _failed)
    settings = server.settings
    return Front(
        app,
        server.predicted,
        server.telemetry,
        lambda: server.batcher,
        settings.token,
        settings.access_log,
        SourceCheck(settings),
    )


def _add_pages(app: FastAPI, document: dict[str, Any]) -> None:
    files = {file.name: file for file in (_HERE / "static").iterdir() if file.suffix in _TYPES}
    openapi_json = msgspec.json.encode(document)
    documentation = docs_page(document).encode()

    async def page(request: Request) -> Response:
        return await _file(_HERE / "page.html")

    async def static(request: Request) -> Response:
        file = files.get(request.path_params["name"])  # not a path: only known files are read
        if file is None:
            raise HTTPException(404)
        return await _file(file)

    async def openapi(request: Request) -> Response:
        return Response(openapi_json, media_type="application/json")

    async def docs(request: Request) -> Response:
        return Response(documentation, media_type="text/html; charset=utf-8")

    for path, endpoint in (
        ("/", page),
        ("/static/{name}", static),
        ("/openapi.json", openapi),
        ("/docs", docs),
    ):
        app.add_route(path, endpoint, methods=["GET"])


async def _refused(request: Request, error: Exception) -> Response:
    refusal = cast("Refusal", error)
    body = problem_bytes(refusal, request.url.path, request.scope["request_id"])
    headers = dict(refusal.headers)
    if refusal.close:
        headers["connection"] = "close"
    return Response(body, refusal.status, headers, PROBLEM_TYPE.decode())


async def _not_routed(request: Request, error: Exception) -> Response:
    exception = cast("HTTPException", error)
    titles = {404: "Not found", 405: "Method not allowed"}
    details = {
        404: "unknown path; /docs lists all paths",
        405: f"{request.method} is not allowed for this path",
    }
    status = exception.status_code
    title = titles.get(status, exception.detail)
    detail = details.get(status, exception.detail)
    headers = dict(exception.headers or {})
    return await _refused(request, Refusal(status, title, detail, headers))


async def _failed(request: Request, error: Exception) -> Response:
    """Return 500; the error is raised again in :class:`Front`, which logs it."""
    return await _refused(request, FAILED)


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(b"", NOBODY)
