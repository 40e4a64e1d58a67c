"""The listening socket, and uvicorn with this server's signal handlers."""

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

__all__ = ["SHARES_PORTS", "HttpServer", "bind", "print_address"]

SHARES_PORTS = sys.platform == "linux"  # the kernel distributes connections over a port's sockets
_EXAMPLE = '{"documents": [{"text": "Offshore wind turbines in the Baltic Sea"}]}'


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """Return a socket bound to the address; ``shared`` with other worker processes."""
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
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another program listens there"
        raise UsageError(
            f"{host}:{port}: {reason}; choose another with --host and --port"
        ) from None
    made.set_inheritable(True)
    return made


class HttpServer(uvicorn.Server):
    """uvicorn with this server's signal handlers.

    It always stops after it has answered the requests in flight, however many signals arrive.
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
        """Handle signals in the event loop; uvicorn would raise them again at the end."""
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in self._handlers:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and call ``started``."""
        await super().startup(sockets)
        if self.started:
            self._on_start()


def print_address(settings: ServerSettings, port: int) -> None:
    """Print the address of the page, and a curl command, to stderr."""
    host = settings.host
    if ":" in host:
        host = f"[{host}]"
    address = f"http://{host}:{port}"
    token = ""
    if settings.token is not None:
        token = " -H 'Authorization: Bearer TOKEN'"
    print(f"page: {address}/", file=sys.stderr)
    print(
        f"curl {address}/v1/predict{token} -H 'Content-Type: application/json' -d '{_EXAMPLE}'",
        file=sys.stderr,
    )
    sys.stderr.flush()
