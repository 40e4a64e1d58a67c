"""Request bodies as frozen Structs that msgspec checks while decoding; reading within limits."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from longtail.server.front import ClientLeft, Receive, Scope
from longtail.server.problem_details import Refusal, too_large
from longtail.server.settings import Limits

__all__ = [
    "FOUND",
    "LARGEST_BEAM",
    "LARGEST_K",
    "LONGEST_QUERY",
    "MOST_EXCLUDED",
    "MOST_FOUND",
    "Document",
    "ExplainRequest",
    "PathRequest",
    "PredictRequest",
    "decode",
    "read_json_body",
]

LARGEST_K = 100
LARGEST_BEAM = 200
_MOST_NODES = 50
MOST_EXCLUDED = 1000  # ids of labels per request
LONGEST_QUERY = 200  # characters of a search for labels
FOUND = 20  # labels that a search returns by default
MOST_FOUND = 100  # and at most

T = TypeVar("T")
Text = Annotated[str, Meta(description="any text")]
LabelName = Annotated[str, Meta(description="id or name of a label")]
_EXPECTED = {  # instead of msgspec's "`float` <= 100.0"
    "k": f"a whole number from 1 to {LARGEST_K}",
    "threshold": "a number from 0 to 1",
    "beam_size": f"a whole number from 1 to {LARGEST_BEAM}, or null",
    "exclude": f"a list of at most {MOST_EXCLUDED} ids of labels",
    "alternatives": f"a whole number from 1 to {_MOST_NODES}",
}


def _whole(least: int, most: int, description: str) -> Meta:
    """Return the bounds of a whole number, read as float.

    5.0 is a whole number in JSON Schema, but not in msgspec.
    """
    return Meta(ge=least, le=most, multiple_of=1, description=description)


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and its id in the response."""

    text: Text
    id: str | None = None


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Documents to label, and options."""

    documents: list[Document]
    k: Annotated[float, _whole(1, LARGEST_K, "largest number of labels per document")] = 5
    threshold: Annotated[
        float, Meta(ge=0, le=1, description="smallest score, a probability if calibrated")
    ] = 0.0
    exclude: Annotated[
        list[str],
        Meta(
            max_length=MOST_EXCLUDED,
            description="ids of labels that are not suggested; unknown ids are ignored",
        ),
    ] = []
    beam_size: Annotated[float, _whole(1, LARGEST_BEAM, "nodes kept per level")] | None = None

    def check(self, limits: Limits) -> None:
        """Refuse too many documents and documents that are too long."""
        if len(self.documents) > limits.documents:
            raise too_large(
                f"found {len(self.documents)} documents; "
                f"expected at most {limits.documents} per request"
            )
        for document in self.documents:
            _check_text(document.text, limits)


class ExplainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and the label to explain."""

    text: Text
    label: LabelName

    def check(self, limits: Limits) -> None:
        """Refuse a text that is too long."""
        _check_text(self.text, limits)


class PathRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and the label whose path through the label tree to return; null: the best label."""

    text: Text
    label: LabelName | None = None
    alternatives: Annotated[float, _whole(1, _MOST_NODES, "largest number of nodes per level")] = 5

    def check(self, limits: Limits) -> None:
        """Refuse a text that is too long."""
        _check_text(self.text, limits)


_EXAMPLES: dict[type, str] = {
    Document: '{"text": "..."}',
    PredictRequest: '{"documents": [{"text": "..."}]}',
    ExplainRequest: '{"text": "...", "label": "..."}',
    PathRequest: '{"text": "..."}',
}


def _check_text(text: str, limits: Limits) -> None:
    if len(text) > limits.text_characters:
        raise too_large(
            f"found a text of {len(text)} characters; expected at most {limits.text_characters}"
        )


def decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the decoded body; 400 for invalid JSON, 422 for wrong fields.

    Messages never quote a text.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise Refusal(422, "Wrong fields", _wrong_field(str(error), decoder.type)) from None
    except UnicodeError:
        raise Refusal(
            400, "Not UTF-8", "the body is not valid UTF-8; expected JSON as UTF-8"
        ) from None
    except RecursionError:
        raise Refusal(
            400, "Not JSON", "the JSON is nested too deeply; expected an object of a few levels"
        ) from None
    except msgspec.DecodeError as error:
        raise Refusal(400, "Not JSON", f"{error}; expected a JSON object") from None


def _wrong_field(message: str, body: type) -> str:
    """Return ``FIELD: expected RANGE`` for a field with bounds, else msgspec's message.

    The message about a wrong object ends with an example.
    """
    field = message.rpartition(" - at `$.")[2].removesuffix("`")
    if field in _EXPECTED:
        return f"{field}: expected {_EXPECTED[field]}"
    if not message.startswith("Object "):
        return message
    if "`$.documents[" in message:
        body = Document
    return f"{message}; expected {_described(body)}"


def _described(body: type) -> str:
    """Return an example with the required fields, and the names of the optional ones."""
    optional = [field.name for field in msgspec.structs.fields(body) if not field.required]
    return f"an object such as {_EXAMPLES[body]}; optional fields: {', '.join(optional) or 'none'}"


async def read_json_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Return the body; 408 if it is too slow, 413 if too large, 415 if its type is not JSON."""
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
            return await _read_whole(receive, limits)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.body_seconds:g} s"
        raise Refusal(408, "Too slow", detail, close=True) from None


async def _read_whole(receive: Receive, limits: Limits) -> bytes:
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
        detail = f"found a larger body; expected at most {limits.body_bytes} bytes"
        raise too_large(detail, close=True)
