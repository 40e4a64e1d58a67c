"""Check of a request's source: the host name it was sent to, and requests from other sites."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from longtail.server.problem_details import Refusal
from longtail.server.settings import ServerSettings

__all__ = ["SourceCheck"]

_LONGEST_HOST = 300  # bytes; a host name has at most 253
_KEPT_HOSTS = 64  # cached results
_OTHER_SITES = frozenset((b"cross-site", b"same-site"))  # "same-site": another port of this host
_READING = frozenset(("GET", "HEAD", "OPTIONS"))
_CROSS_SITE = Refusal(
    403,
    "Forbidden",
    "the request comes from a page of another site; expected a page of this server",
)


class SourceCheck:
    """Refuses requests that pages of other sites send through a user's browser.

    With DNS rebinding, a page whose name resolves to 127.0.0.1 could read the answers of a server
    without a token. Such a server therefore answers only to names of this machine and to the names
    in ``--allowed-host``.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._names = frozenset(map(_host_name, (settings.host, *settings.allowed_hosts)))
        self._allows = lru_cache(_KEPT_HOSTS)(self._is_allowed)
        self._checks_host = bool(settings.allowed_hosts) or (
            settings.token is None and settings.is_loopback
        )

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
        """Return the refusal of a request, or None."""
        for name, value in headers:
            if name == b"host" and self._checks_host and not self._allows(value):
                return _unknown_host(value)
            if (
                name == b"sec-fetch-site"
                and value.lower() in _OTHER_SITES
                and method not in _READING
            ):
                return _CROSS_SITE
        return None

    def _is_allowed(self, host: bytes) -> bool:
        if len(host) > _LONGEST_HOST:
            return False
        name = _host_name(host.decode("latin-1"))
        return name in self._names or _is_this_machine(name)


def _host_name(host: str) -> str:
    """Return a host in lower case without its port and brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return host.removesuffix(".")


def _is_this_machine(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _unknown_host(value: bytes) -> Refusal:
    host = value.decode("latin-1")[:100]
    detail = (
        f"found the host {host!r}; expected a name of this machine, "
        "or one that --allowed-host names"
    )
    return Refusal(421, "Misdirected request", detail)
