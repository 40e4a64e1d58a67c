"""What a server is told at its start: which model, where to listen, and how much it takes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Limits", "ServerSettings", "default_connections"]

_MOST_CONNECTIONS = 10_000  # also where more files may be open
_WITHOUT_RLIMIT = 400  # connections, where the system has no limit that can be read


def default_connections() -> int:
    """Return the largest number of connections of a process: three quarters of the files that it
    may open.
    """
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
    """How much one request may bring, and how long it may take."""

    body_bytes: int = 2_000_000
    documents: int = 256  # of one request
    text_characters: int = 100_000  # of one document
    body_seconds: float = 10.0  # for headers, and again for all of the body
    queue_seconds: float = 0.1  # of waiting that is still taken on
    request_seconds: float = 10.0  # from the last byte of the body to the answer
    header_bytes: int = 65_536
    headers: int = 100
    url_bytes: int = 16_384
    pipelined: int = 16  # requests behind the one of their connection that is being answered
    small_chunks: int = 1000  # of a body, beside one for every 64 bytes


@dataclass(frozen=True)
class ServerSettings:
    """All options of ``longtail serve``; it goes to every worker process as it is."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    workers: int = 1
    documents: str | None = None  # training documents, for examples and neighbours of labels
    threads: int = 0
    device: str = "auto"
    beam_size: int | None = None  # None: the model's own
    shards: tuple[int, ...] | None = None  # of the labels' weights that are loaded; None: all
    batch_documents: int = 64
    token: str | None = None
    grace_seconds: float = 10.0  # for requests in flight at the end
    drain_seconds: float = 0.0  # between «not ready» and the end
    watch_seconds: float = 0.0  # 0: the folder is not watched
    access_log: bool = False
    connections: int = field(default_factory=default_connections)  # of one process, at most
    allowed_hosts: tuple[str, ...] = ()  # names in the header Host, beside those of this machine
    limits: Limits = field(default_factory=Limits)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")
