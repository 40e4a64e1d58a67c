"""Client connections: limits of size and time before a request is complete and after its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any, NamedTuple, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from longtail.server.front import PREDICT, Front
from longtail.server.settings import Limits
from longtail.server.telemetry import Telemetry

__all__ = ["Connection", "RefusedConnections", "connections_of"]

log = logging.getLogger("longtail")

_SHED_SECONDS = 0.05  # pause of reading after a 503: immediate retries take time from others
_LINGER_SECONDS = 1.0  # between a refusal and closing, for the client to read the answer
_LINGER_BYTES = 1_000_000  # discarded in this time, at most
_SLOWEST_READER = 1000  # bytes per second of an answer that a client must read
_HEADER_OVERHEAD = 4  # bytes of a header besides its name and value
_LOG_SECONDS = 60.0  # between two log lines for the same reason of refusal
_CHUNK_BYTES = 64  # mean size of chunks below which their number is limited
_PREDICT_URL = PREDICT.encode()


class _Refusal(NamedTuple):
    """An answer to an invalid request: plain text, without a request id."""

    reason: str  # label of the metric
    status: HTTPStatus
    detail: str
    headers: str = ""

    def answer(self) -> bytes:
        """Return all bytes of the answer."""
        return (
            f"HTTP/1.1 {self.status} {self.status.phrase}\r\n{self.headers}"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(self.detail)}\r\nconnection: close\r\n\r\n{self.detail}"
        ).encode()


_NOT_HTTP = _Refusal("not_http", HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
_TOO_SLOW = _Refusal(
    "slow_headers", HTTPStatus.REQUEST_TIMEOUT, "The headers did not arrive in time."
)
_LONG_URL = _Refusal("long_url", HTTPStatus.REQUEST_URI_TOO_LONG, "The URL is too long.")
_LARGE_HEADERS = _Refusal(
    "large_headers",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "There are too many headers, or they are too large.",
)
_SMALL_CHUNKS = _Refusal(
    "small_chunks", HTTPStatus.BAD_REQUEST, "The body has too many small chunks."
)
_PIPELINED = _Refusal(
    "pipelined", HTTPStatus.TOO_MANY_REQUESTS, "There are too many requests without an answer."
)
_TOO_MANY = _Refusal(
    "too_many_connections",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "There are too many connections; try again.",
    "retry-after: 1\r\n",
)


class RefusedConnections:
    """Counts refusals outside of requests, and logs one line per minute and reason."""

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float] = monotonic) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def count(self, reason: str) -> None:
        """Count a refusal; log it unless another of the same reason was logged within a minute."""
        self._telemetry.refused_connection(reason)
        count = self._unlogged.get(reason, 0) + 1
        now = self._clock()
        if now - self._logged_at.get(reason, -_LOG_SECONDS) < _LOG_SECONDS:
            self._unlogged[reason] = count
            return
        self._logged_at[reason] = now
        self._unlogged[reason] = 0
        log.warning("refused: %s, %d since the last such line", reason, count)


class SharedByConnections(NamedTuple):
    """Limits and state shared by all connections of a process."""

    limits: Limits
    connections: int  # largest number of connections
    front: Front  # refuses predictions under overload
    refused: RefusedConnections
    # connections without a request that is being answered, the longest waiting first
    waiting: dict[Connection, None]


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits.

    The URL, the number and bytes of headers, the number of small chunks, of pipelined requests and
    of connections are limited. A timer runs whenever the client has to send something or to read
    an answer. Under overload, predictions are refused as soon as their headers have arrived,
    without a task.

    Args:
        config: uvicorn's settings.
        server_state: connections and tasks of the whole server.
        app_state: state for the application.
        _loop: the event loop.
        shared: limits and state shared by all connections of the process.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        shared: SharedByConnections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = shared.limits
        self._most_connections = shared.connections
        self._waiting = shared.waiting
        self._front = shared.front
        self._refused = shared.refused
        # of the headers, the remaining body, or the end of the connection
        self._deadline: asyncio.TimerHandle | None = None
        self._write_check: asyncio.TimerHandle | None = None
        self._unsent = 0  # bytes of answers that the client had not read at the last check
        self._unparsed = 0  # bytes since the last end of headers, of a chunk or of a message
        self._discarded = 0  # bytes after a refusal
        self._header_count = 0
        self._header_bytes = 0
        self._chunk_count = 0  # since the client last waited for an answer
        self._body_bytes = 0
        self._in_body = False  # between the end of the headers and the end of the body
        self._at_end = False  # the last data ended with a complete request
        self._is_refused = False
        self._refusal = _NOT_HTTP  # the answer when the parser stops
        # the request that is being answered; `cycle` is that of the last pipelined one
        self._running: RequestResponseCycle | None = None

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Wait for headers.

        Beyond the largest number of connections, the longest waiting one is closed; if none waits,
        this one is refused.
        """
        super().connection_made(transport)
        if len(self.connections) > self._most_connections:
            if not self._waiting:
                self._refuse(_TOO_MANY)
                return
            next(iter(self._waiting))._make_room()
        self._waiting[self] = None
        self._start_deadline(self._limits.body_seconds, self._headers_too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._disconnect()
        self._waiting.pop(self, None)
        self._stop_deadline()
        self._stop_write_check()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data within the limits of headers."""
        if self._is_refused:
            self._discard(data)
            return
        self._unset_keepalive_if_required()
        self._unparsed += len(data)
        self._at_end = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(self._refusal)
            return
        except httptools.HttpParserUpgrade:
            self._refused.count("upgrade")
        if self._unparsed > self._limits.header_bytes:
            self._refuse(_LARGE_HEADERS)
        elif not self._in_body and not self._at_end and self._deadline is None:
            self._start_deadline(self._limits.body_seconds, self._headers_too_late)

    def on_message_begin(self) -> None:
        """Begin to count headers."""
        self._at_end = False
        self._header_count = 0
        self._header_bytes = 0
        if not self._is_answering:
            self._chunk_count = 0
            self._body_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Check the length of the URL."""
        super().on_url(url)
        if len(self.url) > self._limits.url_bytes:
            self._stop_parsing(_LONG_URL)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header within the limits; trailers after a body are counted, but not kept."""
        self._header_count += 1
        self._header_bytes += len(name) + len(value) + _HEADER_OVERHEAD
        if (
            self._header_count > self._limits.headers
            or self._header_bytes > self._limits.header_bytes
        ):
            self._stop_parsing(_LARGE_HEADERS)
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request, or refuse it under overload."""
        if len(self.pipeline) >= self._limits.pipelined:
            self._stop_parsing(_PIPELINED)
        self._stop_deadline()
        self._waiting.pop(self, None)
        self._unparsed = 0
        self._in_body = True
        if self.url != _PREDICT_URL:
            super().on_headers_complete()
        elif not self._shed():
            super().on_headers_complete()
            self._front.expect()

    def on_chunk_header(self) -> None:
        """Check the number of small chunks."""
        self._unparsed = 0
        self._chunk_count += 1
        if self._chunk_count > self._limits.small_chunks + self._body_bytes // _CHUNK_BYTES:
            self._stop_parsing(_SMALL_CHUNKS)

    def on_body(self, body: bytes) -> None:
        """Count the bytes of the body."""
        self._unparsed = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._unparsed = 0
        self._in_body = False
        self._at_end = True
        self._stop_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait, with a deadline, for the next request, the remaining body, or the end."""
        super().on_response_complete()
        if not self._is_answering:
            self._waiting[self] = None
        if self.transport.is_closing():
            self._start_deadline(self._limits.body_seconds, self._abort)
        elif self._in_body and not self._is_answering:
            self._start_deadline(self._limits.body_seconds, self._body_too_late)

    def pause_writing(self) -> None:
        """Begin to check whether the client reads its answers."""
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._stop_write_check()
        self._write_check = self.loop.call_later(self._limits.body_seconds, self._check_writing)

    def resume_writing(self) -> None:
        """Stop checking whether the client reads."""
        self._stop_write_check()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without a request, even if its last answer was not read."""
        self._abort()

    def _shed(self) -> bool:
        """Refuse a prediction under overload without reading its body; return whether it was.

        Only while no other request of this connection is being answered.
        """
        free = (
            self.cycle is not None and self.cycle.response_complete and not self.flow.write_paused
        )
        plain = self.parser.get_method() == b"POST" and self.parser.should_keep_alive()
        if not free or not plain or self.expect_100_continue:
            return False
        answer = self._front.shed_early(self.headers)
        if answer is None:
            return False
        self.transport.write(answer)
        self.on_response_complete()
        self.flow.pause_reading()
        self.loop.call_later(_SHED_SECONDS, self.flow.resume_reading)
        return True

    def _stop_parsing(self, refusal: _Refusal) -> None:
        """Stop the parser, so that ``data_received`` refuses the request."""
        self._refusal = refusal
        raise ValueError(refusal.reason)

    def _refuse(self, refusal: _Refusal) -> None:
        """Send a refusal, unless another request is being answered, and close the connection soon.

        Data that still arrives is discarded: a socket closed with unread bytes may lose the answer.
        """
        self._refused.count(refusal.reason)
        self._is_refused = True
        self._stop_deadline()
        if self._is_answering or self.transport.is_closing():
            self._abort()
            return
        self.transport.write(refusal.answer())
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._start_deadline(_LINGER_SECONDS, self._abort)

    def _make_room(self) -> None:
        """Close this connection in favour of another client."""
        self._refused.count("made_room")
        del self._waiting[self]
        self._abort()

    def _abort(self) -> None:
        """End this connection now."""
        self._disconnect()
        self.transport.abort()

    def _disconnect(self) -> None:
        """Let the request that is being answered know that nobody takes its answer.

        uvicorn tells only the last of several pipelined requests, and writing to a connection that
        has ended is an error in uvloop.
        """
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > _LINGER_BYTES:
            self._abort()

    def _headers_too_late(self) -> None:
        self._deadline = None
        if self._is_answering:
            self._start_deadline(self._limits.body_seconds, self._headers_too_late)
        elif not self.transport.is_closing():
            self._refuse(_TOO_SLOW)

    def _body_too_late(self) -> None:
        self._deadline = None
        if not self._is_answering:  # else the endpoint limits the time of its body
            self._refused.count("slow_body")
            self._abort()

    def _check_writing(self) -> None:
        self._write_check = None
        unsent = self.transport.get_write_buffer_size()
        if self._unsent - unsent < _SLOWEST_READER * self._limits.body_seconds:
            self._refused.count("slow_reader")
            self._abort()
        else:
            self._unsent = unsent
            self._write_check = self.loop.call_later(self._limits.body_seconds, self._check_writing)

    def _start_deadline(self, seconds: float, action: Callable[[], object]) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, action)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_write_check(self) -> None:
        if self._write_check is not None:
            self._write_check.cancel()
            self._write_check = None


def connections_of(
    limits: Limits, connections: int, front: Front, telemetry: Telemetry
) -> type[asyncio.Protocol]:
    """Return the protocol factory that uvicorn calls for each connection."""
    shared = SharedByConnections(limits, connections, front, RefusedConnections(telemetry), {})
    return cast("type[asyncio.Protocol]", partial(Connection, shared=shared))
