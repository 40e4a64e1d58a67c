"""The outermost ASGI layer: request ids, token, load shedding, response headers, counts and log.

It is plain ASGI without routing, so that refusing a request under overload costs little.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from itertools import count
from time import monotonic
from typing import Any

from longtail.errors import printable
from longtail.server.batching import Batcher
from longtail.server.problem_details import PROBLEM_TYPE, Refusal, overloaded, problem_bytes
from longtail.server.request_source import SourceCheck
from longtail.server.telemetry import Telemetry

__all__ = [
    "FAILED",
    "NOBODY",
    "PREDICT",
    "ClientLeft",
    "Front",
    "Receive",
    "Scope",
    "Send",
    "is_guarded",
    "send_refusal",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("longtail")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SECURITY = [
    (
        b"content-security-policy",
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_UNAUTHORISED = Refusal(
    401,
    "Unauthorised",
    "expected the header «Authorization: Bearer TOKEN»",
    {"www-authenticate": "Bearer"},
)
_BUSY = overloaded("too many documents wait; try again")
_BUSY_HEAD = b"HTTP/1.1 503 Service Unavailable\r\n" + b"".join(
    b"%b: %b\r\n" % header
    for header in [(b"content-type", PROBLEM_TYPE), (b"retry-after", b"1"), *_SECURITY]
)
PREDICT = "/v1/predict"  # answered here, without routing
NOBODY = 499  # nginx's status of a response whose client has left
FAILED = Refusal(500, "Internal error", "the server failed on this request; its log says where")


def is_guarded(path: str) -> bool:
    """Return whether a path needs the token, on a server that has one."""
    return path.startswith("/v1/") or path == "/metrics"


class ClientLeft(Exception):
    """The client disconnected before it was answered."""


class Front:
    """The outermost layer around the application.

    Args:
        app: the application with all routes.
        predict: answers POST /v1/predict.
        telemetry: counts requests.
        batcher: returns the batcher; None before the server has started.
        token: required in ``Authorization``; None: no request needs one.
        access_log: log a line per request.
        source: refuses requests from other sites.
    """

    def __init__(
        self,
        app: Application,
        predict: Callable[[Scope, Receive], Awaitable[bytes]],
        telemetry: Telemetry,
        batcher: Callable[[], Batcher[Any, Any] | None],
        token: str | None = None,
        access_log: bool = False,
        source: SourceCheck | None = None,
    ) -> None:
        self._app = app
        self._predict = predict
        self._telemetry = telemetry
        self._batcher = batcher
        self._access_log = access_log
        self._source = source
        self._token: bytes | None = None
        if token is not None:
            self._token = token.encode()
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begin = monotonic()
        status = 0
        request_id, authorization = _headers(scope["headers"])
        request_id = request_id or self._new_id()
        scope["request_id"] = request_id
        common_headers = [(b"x-request-id", request_id.encode()), *_SECURITY]

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *common_headers]
            await send(message)

        try:
            await self._answer(scope, receive, send_with_headers, authorization)
        except Exception as error:
            _log_failure(error, scope, request_id)
            if not status:
                await send_refusal(FAILED, scope, send_with_headers)
        finally:
            self._telemetry.request(scope["path"], status)
            if self._access_log:
                _log_request(scope, status, monotonic() - begin, request_id)

    def shed_early(self, headers: list[tuple[bytes, bytes]]) -> bytes | None:
        """Return the bytes of a 503 for a prediction whose headers have arrived.

        None if the request is to be answered as usual.
        """
        batcher = self._batcher()
        if batcher is None or self._access_log or not batcher.will_be_full:
            return None
        request_id, authorization = _headers(headers)
        if not self._is_authorised(authorization):
            return None
        request_id = request_id or self._new_id()
        self._telemetry.shed()
        self._telemetry.request(PREDICT, _BUSY.status)
        body = problem_bytes(_BUSY, PREDICT, request_id)
        return b"%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            _BUSY_HEAD,
            request_id.encode(),
            len(body),
            body,
        )

    def expect(self) -> None:
        """Count a prediction that has just begun; to be called after the start of its task."""
        if (batcher := self._batcher()) is not None:
            batcher.expect()

    def _new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers):x}"

    def _is_authorised(self, authorization: bytes) -> bool:
        """Return whether the header has the token, compared in constant time; true without one."""
        if self._token is None:
            return True
        scheme, _, value = authorization.partition(b" ")
        return hmac.compare_digest(value.strip(), self._token) and scheme.lower() == b"bearer"

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, authorization: bytes
    ) -> None:
        path: str = scope["path"]
        if self._source is not None:
            foreign = self._source.refusal(scope["method"], scope["headers"])
            if foreign is not None:
                return await send_refusal(foreign, scope, send)
        if is_guarded(path) and not self._is_authorised(authorization):
            return await send_refusal(_UNAUTHORISED, scope, send)
        try:
            if path == PREDICT and scope["method"] == "POST":
                await self._answer_prediction(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except Refusal as refusal:
            await send_refusal(refusal, scope, send)
        except ClientLeft:
            await _send(send, NOBODY, b"", [])

    async def _answer_prediction(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a prediction without routing; the body of a refused request is not read."""
        batcher = self._batcher()
        if batcher is not None and batcher.is_full:
            self._telemetry.shed()
            # not raised: a constant exception would collect tracebacks
            return await send_refusal(_BUSY, scope, send)
        body = await self._predict(scope, receive)
        await _send(send, 200, body, [(b"content-type", b"application/json")])


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_refusal(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Send a refusal as problem details."""
    body = problem_bytes(refusal, scope["path"], scope["request_id"])
    headers = [(b"content-type", PROBLEM_TYPE)]
    headers += [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    if refusal.close:
        headers.append((b"connection", b"close"))
    await _send(send, refusal.status, body, headers)


def _headers(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, bytes]:
    """Return the client's request id, if valid, and its Authorization header."""
    request_id = ""
    authorization = b""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            request_id = value.decode()
        elif name == b"authorization":
            authorization = value
    return request_id, authorization


def _log_request(scope: Scope, status: int, seconds: float, request_id: str) -> None:
    """Log method, path without the query, status, milliseconds and request id, but no text."""
    log.info(
        "%s %s %d %.1f ms %s", scope["method"], _path(scope), status, 1e3 * seconds, request_id
    )


def _log_failure(error: Exception, scope: Scope, request_id: str) -> None:
    """Log the traceback without the error message, which may quote a text."""
    frame = error.__traceback__
    lines = []
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename.rpartition("longtail/")[2]
        lines.append(f"{file}:{frame.tb_lineno}")
        frame = frame.tb_next
    log.error(
        "%s in %s, request %s: %s",
        type(error).__name__,
        _path(scope),
        request_id,
        " ".join(lines[-8:]),
    )


def _path(scope: Scope) -> str:
    return printable(scope["path"])[:200]
