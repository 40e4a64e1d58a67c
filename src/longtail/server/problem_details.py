"""Errors as RFC 9457 problem details: the exception that ends a request, and its JSON body."""

from __future__ import annotations

import msgspec

__all__ = ["PROBLEM_TYPE", "ProblemDetails", "Refusal", "overloaded", "problem_bytes", "too_large"]

PROBLEM_TYPE = b"application/problem+json"


class ProblemDetails(msgspec.Struct, frozen=True):
    """The body of every error."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    request_id: str


class Refusal(Exception):
    """A request that ends with an error status.

    ``close`` if the body is not read to its end, so that the connection cannot be used again.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        headers: dict[str, str] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(f"{status} {title}")
        self.status = status
        self.title = title
        self.detail = detail
        self.close = close
        self.headers = headers or {}


def too_large(detail: str, close: bool = False) -> Refusal:
    """Return 413: the request exceeds a limit of the server."""
    return Refusal(413, "Too large", detail, close=close)


def overloaded(detail: str) -> Refusal:
    """Return 503: the client may try again."""
    return Refusal(503, "Overloaded", detail, {"retry-after": "1"})


def problem_bytes(refusal: Refusal, instance: str, request_id: str) -> bytes:
    """Return the JSON body of a refusal."""
    problem = ProblemDetails(
        "about:blank", refusal.title, refusal.status, refusal.detail, instance[:200], request_id
    )
    return msgspec.json.encode(problem)
