"""Reads the body of a request within its limits of size and time."""

from __future__ import annotations

import asyncio

from longtail.server.front import ClientLeft, Receive, Scope
from longtail.server.problem_details import Refusal, too_large
from longtail.server.settings import Limits

__all__ = ["read_json_body"]


async def read_json_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Return the body; 408 where it comes too slowly, 413 where it is too large, 415 where it does
    not say JSON.
    """
    content_type = b""
    length = 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length" and value.isdigit():
            length = int(value)
    _check_type(content_type)
    _check_size(length, limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _all_of_it(receive, limits)
    except TimeoutError:
        detail = f"the body did not come within {limits.body_seconds:g} s"
        raise Refusal(408, "Too slow", detail, close=True) from None


async def _all_of_it(receive: Receive, limits: Limits) -> bytes:
    pieces = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        piece: bytes = message.get("body", b"")
        size += len(piece)
        _check_size(size, limits)
        pieces.append(piece)
        if not message.get("more_body", False):
            if len(pieces) == 1:
                return piece
            return b"".join(pieces)


def _check_type(content_type: bytes) -> None:
    kind = content_type.partition(b";")[0].strip().lower()
    if (
        kind
        and kind != b"application/json"
        and not (kind.startswith(b"application/") and kind.endswith(b"+json"))
    ):
        detail = "expected the header «Content-Type: application/json»"
        raise Refusal(415, "Not JSON", detail, close=True)


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.body_bytes:
        raise too_large(
            f"found a body of more than {limits.body_bytes} bytes; expected at most that",
            close=True,
        )
