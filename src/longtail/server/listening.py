"""The socket, and connections that do not get on: uvicorn as the server wants it."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from longtail.errors import UsageError
from longtail.server.front import PREDICT, Front
from longtail.server.settings import ServerSettings

__all__ = ["SHARES_PORTS", "HttpServer", "bind", "http_protocol", "say_where"]

SHARES_PORTS = sys.platform == "linux"  # the kernel deals connections out to all sockets of a port
_EXAMPLE = '{"documents": [{"text": "Offshore wind turbines in the Baltic Sea"}]}'
_REFUSED_SECONDS = 0.05  # that a connection is not heard after a 503: who asks again at once takes time from others
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """Return a socket bound to the address; ``shared`` with those of other worker processes."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror or error}; expected an address of this machine") from None
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        taken = error.errno == errno.EADDRINUSE
        found = "another program listens there" if taken else error.strerror or str(error)
        raise UsageError(f"{host}:{port}: {found}; choose another with --host and --port") from None
    made.set_inheritable(True)
    return made


class HttpServer(uvicorn.Server):
    """uvicorn with signals of our own: it ends well, with requests in flight answered, however often it is told to."""

    def __init__(
        self,
        config: uvicorn.Config,
        handlers: dict[signal.Signals, Callable[[], object]],
        started: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._handlers, self._on_start = handlers, started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals in the event loop; uvicorn would raise them again at the end."""
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in self._handlers:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._on_start()


def http_protocol(seconds: float, front: Front) -> type[asyncio.Protocol] | str:
    """Return uvicorn's HTTP protocol with two things it lacks; without the package httptools it is as uvicorn has it.

    Connections whose headers take longer than ``seconds`` are closed, and predictions that are shed are answered as
    soon as their headers are there, without a task: under overload this is most of what a server does.
    """
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "auto"
    path = PREDICT.encode()

    class Protocol(HttpToolsProtocol):
        _late: asyncio.TimerHandle | None = None
        _in_headers = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, self._too_late)

        def on_message_begin(self) -> None:
            self._in_headers = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_headers = False
            if self.url != path:
                super().on_headers_complete()
            elif not self._shed():
                super().on_headers_complete()
                front.expect()

        def _shed(self) -> bool:
            """Answer at once where no other request of this connection is under way; its body is then passed over."""
            free = self.cycle is not None and self.cycle.response_complete and not self.flow.write_paused
            plain = self.parser.get_method() == b"POST" and self.parser.should_keep_alive()
            answer = front.shed_early(self.headers) if free and plain and not self.expect_100_continue else None
            if answer is None:
                return False
            self.transport.write(answer)
            self.on_response_complete()
            self.flow.pause_reading()
            self.loop.call_later(_REFUSED_SECONDS, self.flow.resume_reading)
            return True

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._in_headers and self._late is None:
                self._late = self.loop.call_later(seconds, self._too_late)
            elif not self._in_headers and self._late is not None:
                self._late.cancel()
                self._late = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._late is not None:
                self._late.cancel()
            super().connection_lost(exc)

        def _too_late(self) -> None:
            self._late = None
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
                self.transport.write(_TOO_SLOW)
                self.transport.close()

    return Protocol


def say_where(settings: ServerSettings, port: int) -> None:
    """Tell a person where the page is, and how to ask."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{port}"
    token = "" if settings.token is None else " -H 'Authorization: Bearer TOKEN'"
    print(f"page: {address}/", file=sys.stderr)
    print(f"curl {address}/v1/predict{token} -H 'Content-Type: application/json' -d '{_EXAMPLE}'", file=sys.stderr)
    sys.stderr.flush()
