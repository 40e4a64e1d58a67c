"""A small trained model, and the application around it as tests call it: without a socket."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
from server_model import training_documents

import longtail as lt

pytest.importorskip("fastapi", reason="needs longtail[server]")
httpx = pytest.importorskip("httpx")

from longtail.server.app import create_app  # noqa: E402
from longtail.server.endpoints import Server  # noqa: E402
from longtail.server.front import Front  # noqa: E402
from longtail.server.openapi import ENDPOINTS  # noqa: E402
from longtail.server.reloading import Reloader  # noqa: E402
from longtail.server.service import Service, load_service  # noqa: E402
from longtail.server.settings import Limits, ServerSettings  # noqa: E402
from longtail.server.telemetry import Telemetry  # noqa: E402

PATIENT = Limits(
    body_seconds=200, queue_seconds=200, request_seconds=200
)  # sheds nothing, however busy the machine


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server") / "energy"
    settings = {"tree": {"branching": 3, "leaf_size": 3}, "calibration": {"share": 0.2}}
    lt.Longtail("xr-linear", seed=0, **settings).fit(training_documents()).save(folder)
    return folder


@pytest.fixture(scope="session")
def service(model_folder) -> Service:
    return load_service(model_folder, "cpu", 1, None, training_documents())


class Served(NamedTuple):
    """A server under test, and a client of it."""

    client: httpx.AsyncClient
    server: Server
    app: Front

    async def predict(self, *texts: str, **settings):
        """Ask for labels, and return the response."""
        documents = [{"text": text} for text in texts]
        return await self.client.post("/v1/predict", json={"documents": documents, **settings})


@pytest.fixture
def serving(model_folder, service):
    """Return a context that serves; ``limits`` and settings as wanted, those of a very patient
    server otherwise.
    """

    @asynccontextmanager
    async def serving(
        current: Service = service, limits: Limits | None = None, load=None, **settings
    ):
        known = frozenset(endpoint.path for endpoint in ENDPOINTS)
        wanted = replace(ServerSettings(model_folder, limits=limits or PATIENT), **settings)
        reloader = Reloader(wanted.model, current, load or (lambda: current))
        server = Server(wanted, reloader, Telemetry(known))
        app = create_app(server)
        server.start()
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield Served(client, server, app)
        await asyncio.to_thread(server.stop)

    return serving
