"""The socket, and uvicorn with the signals of this server."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from longtail.errors import UsageError
from longtail.server.settings import ServerSettings

__all__ = ["SHARES_PORTS", "HttpServer", "bind", "say_where"]

SHARES_PORTS = sys.platform == "linux"  # the kernel deals connections out to all sockets of a port
_EXAMPLE = '{"documents": [{"text": "Offshore wind turbines in the Baltic Sea"}]}'


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """Return a socket bound to the address; ``shared`` with those of other worker processes."""
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
        taken = error.errno == errno.EADDRINUSE
        found = "another program listens there" if taken else error.strerror or str(error)
        raise UsageError(f"{host}:{port}: {found}; choose another with --host and --port") from None
    made.set_inheritable(True)
    return made


class HttpServer(uvicorn.Server):
    """uvicorn with signals of our own: it ends well, with requests in flight answered, however
    often it is told to.
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


def say_where(settings: ServerSettings, port: int) -> None:
    """Tell a person where the page is, and how to ask."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{port}"
    token = "" if settings.token is None else " -H 'Authorization: Bearer TOKEN'"
    print(f"page: {address}/", file=sys.stderr)
    print(
        f"curl {address}/v1/predict{token} -H 'Content-Type: application/json' -d '{_EXAMPLE}'",
        file=sys.stderr,
    )
    sys.stderr.flush()
