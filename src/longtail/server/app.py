"""The application: all endpoints, the page and its documentation, and errors as problem details."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from longtail.server.endpoints import Server
from longtail.server.front import FAILED, NOBODY, ClientLeft, Front
from longtail.server.openapi import ENDPOINTS, docs_page, openapi_document
from longtail.server.problem_details import PROBLEM_TYPE, Refusal, problem_bytes
from longtail.server.request_source import SourceCheck

__all__ = ["create_app"]

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
