"""The endpoints: each decodes its request, calls the service and encodes the response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar, cast

import msgspec
from fastapi import Request, Response

from longtail.errors import LongtailError
from longtail.server.answers import (
    ModelInfo,
    Prediction,
    PredictResponse,
    ReloadResponse,
    StatusResponse,
    SuggestedLabel,
)
from longtail.server.batching import Batcher
from longtail.server.front import ClientLeft, Receive, Scope
from longtail.server.problem_details import Refusal, overloaded
from longtail.server.reloading import Reloader
from longtail.server.requests import (
    FOUND,
    LARGEST_BEAM,
    LARGEST_K,
    LONGEST_QUERY,
    MOST_EXCLUDED,
    MOST_FOUND,
    ExplainRequest,
    PathRequest,
    PredictRequest,
    decode,
    read_json_body,
)
from longtail.server.service import Asked, BatchKey
from longtail.server.settings import ServerSettings
from longtail.server.telemetry import Telemetry

__all__ = ["Server"]

T = TypeVar("T")

_WATCHED = 0.02  # expected wait in seconds from which on a disconnecting client is noticed
_LANES = 2  # threads for all requests except predictions
_WAIT_FOR_LANE = 16  # requests that may wait for them
# headers of a proxy, or of a web page
_FORWARDED = frozenset(("x-forwarded-for", "forwarded", "x-real-ip", "via", "origin"))

_predict_decoder = msgspec.json.Decoder(PredictRequest)
_explain_decoder = msgspec.json.Decoder(ExplainRequest)
_path_decoder = msgspec.json.Decoder(PathRequest)
_encoder = msgspec.json.Encoder()


class Server:
    """The endpoints of one process, and the state that they share."""

    def __init__(self, settings: ServerSettings, reloader: Reloader, telemetry: Telemetry) -> None:
        self.settings = settings
        self.reloader = reloader
        self.telemetry = telemetry
        self.is_ready = True
        self.notify_workers: Callable[[], None] = lambda: None  # that the folder was reloaded
        self.batcher: Batcher[Asked, list[SuggestedLabel]] | None = None
        self._lanes = ThreadPoolExecutor(_LANES, "longtail-lane")
        self._in_lanes = 0

    def start(self) -> None:
        """Start the batcher; to be called in the event loop."""
        service = self.reloader.current
        self.batcher = Batcher(
            _predict_batch,
            batch_documents=self.settings.batch_documents,
            queue_seconds=self.settings.limits.queue_seconds,
            threads=service.runners,
            first_seconds=service.warm_up(),
            observe=self.telemetry.batch,
        )
        self.reloader.on_change = lambda new: self.telemetry.serves(
            new.name, new.model.config.method
        )
        self.reloader.on_change(service)

    def stop(self) -> None:
        """Finish the waiting requests."""
        if self.batcher is not None:
            self.batcher.close()
        self._lanes.shutdown(cancel_futures=True)

    async def predict(self, request: Request) -> Response:
        """Return the labels of documents; :class:`Front` calls :meth:`predicted` directly."""
        return Response(
            await self.predicted(request.scope, request.receive), media_type="application/json"
        )

    async def predicted(self, scope: Scope, receive: Receive) -> bytes:
        """Return the JSON with the labels of documents, batched with other requests."""
        begin = monotonic()
        limits = self.settings.limits
        asked = decode(await read_json_body(scope, receive, limits), _predict_decoder)
        asked.check(limits)
        service = self.reloader.current
        batcher = self.batcher
        assert batcher is not None
        key = service.key(int(asked.k), _whole(asked.beam_size))
        items = _items(asked)
        results: list[list[SuggestedLabel]] = []
        submitted = finished = monotonic()
        model_seconds = 0.0
        if items:
            watched = batcher.waiting_seconds > _WATCHED
            work = batcher.submit(key, items, limits.request_seconds)
            job = await (_unless_gone(work, receive) if watched else work)
            results = job.done.result()
            model_seconds = job.finished - job.started
            finished = job.finished
        predictions = [
            Prediction(document.id, labels)
            for document, labels in zip(asked.documents, results, strict=True)
        ]
        body = _encoder.encode(PredictResponse(predictions, service.name))
        queue_seconds = finished - submitted - model_seconds
        self.telemetry.predicted(
            submitted - begin, queue_seconds, model_seconds, monotonic() - finished
        )
        return body

    async def explain(self, request: Request) -> Response:
        """Explain a label of a text."""
        asked = decode(
            await read_json_body(request.scope, request.receive, self.settings.limits),
            _explain_decoder,
        )
        asked.check(self.settings.limits)
        return _json(await self._in_lane(self.reloader.current.explain, asked.text, asked.label))

    async def path(self, request: Request) -> Response:
        """Return the path to a label through the label tree."""
        asked = decode(
            await read_json_body(request.scope, request.receive, self.settings.limits),
            _path_decoder,
        )
        asked.check(self.settings.limits)
        return _json(
            await self._in_lane(
                self.reloader.current.path, asked.text, asked.label, int(asked.alternatives)
            )
        )

    async def labels(self, request: Request) -> Response:
        """Return labels that contain the query."""
        query = request.query_params.get("query", "")
        limit = request.query_params.get("limit", str(FOUND))
        if len(query) > LONGEST_QUERY:
            detail = f"query: found {len(query)} characters; expected at most {LONGEST_QUERY}"
            raise Refusal(422, "Wrong parameter", detail)
        if not (
            limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MOST_FOUND
        ):
            raise Refusal(
                422, "Wrong parameter", f"limit: expected a whole number from 1 to {MOST_FOUND}"
            )
        service = self.reloader.current
        return _json(await self._in_lane(lambda: service.index.find(query, int(limit))))

    async def label(self, request: Request) -> Response:
        """Describe a label."""
        label = request.query_params.get("id")
        if label is None:
            raise Refusal(422, "Wrong parameter", "id: missing; expected the id or name of a label")
        return _json(await self._in_lane(self.reloader.current.label, label))

    async def model(self, request: Request) -> Response:
        """Describe the served model."""
        service = self.reloader.current
        limits = self.settings.limits
        trained = service.model
        metrics: dict[str, float] = {}
        measured_on = ""
        if trained.metrics is not None:
            metrics = trained.metrics.metrics
            measured_on = trained.metrics.measured_on
        shards = None
        if self.settings.shards is not None:
            shards = sorted(set(self.settings.shards))
        return _json(
            ModelInfo(
                name=service.name.name,
                version=service.name.version,
                method=trained.config.method,
                labels=len(trained.labels),
                documents=trained.facts.documents,
                metrics=metrics,
                measured_on=measured_on,
                calibrated=trained.calibration is not None,
                has_tree=service.has_tree,
                has_text=service.has_text,
                has_examples=service.documents is not None,
                card=service.card,
                latency=self.telemetry.latency.summary(),
                limits={
                    "body_bytes": limits.body_bytes,
                    "documents": limits.documents,
                    "text_characters": limits.text_characters,
                    "k": LARGEST_K,
                    "beam_size": LARGEST_BEAM,
                    "exclude": MOST_EXCLUDED,
                },
                shards=shards,
            )
        )

    async def reload(self, request: Request) -> Response:
        """Load the model folder again; other worker processes follow soon after."""
        self._check_reload(request)
        try:
            service = await self.reloader.reload()
        except (LongtailError, OSError) as error:
            detail = f"the previous model is still served: {error}"
            raise Refusal(409, "Not reloaded", detail) from None
        self.notify_workers()
        return _json(ReloadResponse(service.name.version))

    def _check_reload(self, request: Request) -> None:
        """Refuse a reload without a token, unless a program on this machine asks for it."""
        if self.settings.token is not None:
            return
        host = ""
        if request.client is not None:
            host = request.client.host
        is_forwarded = bool(_FORWARDED & set(request.headers))
        is_local = host.startswith("127.") or host == "::1"
        if is_forwarded or not is_local or not self.settings.is_loopback:
            detail = "expected a token, or a call from this machine to a server bound to it"
            raise Refusal(403, "Forbidden", detail)

    async def live(self, request: Request) -> Response:
        """Report that the process runs."""
        return _json(StatusResponse("live"))

    async def ready(self, request: Request) -> Response:
        """Report whether requests should be sent here; 503 if not."""
        if not self.is_ready:
            raise Refusal(503, "Not ready", "the server is about to stop", {"retry-after": "1"})
        return _json(StatusResponse("ready"))

    async def metrics(self, request: Request) -> Response:
        """Return the metrics for Prometheus."""
        if self.batcher is not None:
            self.telemetry.queue(self.batcher)
        text = await self._in_lane(self.telemetry.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _in_lane(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run on a thread beside predictions; 503 if too many requests wait for one."""
        if self._in_lanes >= _WAIT_FOR_LANE:
            self.telemetry.shed()
            raise overloaded("too many requests wait; try again")
        self._in_lanes += 1
        future = asyncio.get_running_loop().run_in_executor(self._lanes, work, *arguments)
        future.add_done_callback(self._left_lane)
        seconds = self.settings.limits.request_seconds
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise overloaded(
                f"no answer after {seconds:g} s; try again, or send a shorter text"
            ) from None

    def _left_lane(self, future: asyncio.Future[Any]) -> None:
        self._in_lanes -= 1
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio logs none for a client that has left


def _predict_batch(key: Any, asked: list[Asked]) -> list[list[SuggestedLabel]]:
    batch = cast("BatchKey", key)
    return batch.service.predict(batch, asked)


async def _unless_gone(work: Awaitable[T], receive: Receive) -> T:
    """Wait for work; cancel it when the client disconnects."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeft
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


def _items(asked: PredictRequest) -> list[Asked]:
    exclude = tuple(asked.exclude)
    return [
        Asked(document.text, int(asked.k), asked.threshold, exclude) for document in asked.documents
    ]


def _whole(number: float | None) -> int | None:
    """Return a whole number that JSON Schema allows to be written as 5.0."""
    if number is None:
        return None
    return int(number)


def _json(answer: msgspec.Struct) -> Response:
    return Response(_encoder.encode(answer), media_type="application/json")
