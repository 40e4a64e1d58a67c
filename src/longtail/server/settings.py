"""Settings of a server: the model, the address and the limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Limits", "ServerSettings", "default_connections"]

_MOST_CONNECTIONS = 10_000  # even if more files may be open
_WITHOUT_RLIMIT = 400  # connections on systems without RLIMIT_NOFILE


def default_connections() -> int:
    """Return the largest number of connections: three quarters of the files a process may open."""
    try:
        import resource
    except ImportError:  # Windows
        return _WITHOUT_RLIMIT
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(1, min(_MOST_CONNECTIONS, 3 * files // 4))


@dataclass(frozen=True)
class Limits:
    """Limits of size and time of a request."""

    body_bytes: int = 2_000_000
    documents: int = 256  # per request
    text_characters: int = 100_000  # per document
    body_seconds: float = 10.0  # for the headers, and again for the whole body
    queue_seconds: float = 0.1  # longest expected wait of a request that is not refused
    request_seconds: float = 10.0  # from the last byte of the body to the answer
    header_bytes: int = 65_536
    headers: int = 100
    url_bytes: int = 16_384
    pipelined: int = 16  # requests of a connection that wait behind the one being answered
    small_chunks: int = 1000  # of a body, plus one per 64 bytes


@dataclass(frozen=True)
class ServerSettings:
    """All options of ``longtail serve``; passed to every worker process."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    workers: int = 1
    documents: str | None = None  # training documents, for examples and neighbours of labels
    threads: int = 0
    device: str = "auto"
    beam_size: int | None = None  # None: the model's own
    shards: tuple[int, ...] | None = None  # shards of the labels' weights to load; None: all
    batch_documents: int = 64
    token: str | None = None
    grace_seconds: float = 10.0  # for requests in flight when the server stops
    drain_seconds: float = 0.0  # between «not ready» and stopping
    watch_seconds: float = 0.0  # 0: the folder is not watched
    access_log: bool = False
    connections: int = field(default_factory=default_connections)  # largest number per process
    allowed_hosts: tuple[str, ...] = ()  # names in the header Host besides those of this machine
    limits: Limits = field(default_factory=Limits)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")
