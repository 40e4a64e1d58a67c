"""The bodies that requests bring, as frozen Structs, which msgspec checks while it decodes; and
limits of numbers.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

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
]

LARGEST_K = 100
LARGEST_BEAM = 200
_MOST_NODES = 50
MOST_EXCLUDED = 1000  # ids of labels, of one request
LONGEST_QUERY = 200  # characters, where labels are searched
# labels that a search returns, where nothing is said, and at most
FOUND = 20
MOST_FOUND = 100

T = TypeVar("T")
Text = Annotated[str, Meta(description="any text")]
LabelName = Annotated[str, Meta(description="id or name of a label")]
_EXPECTED = {  # where msgspec would say "`float` <= 100.0"
    "k": f"a whole number from 1 to {LARGEST_K}",
    "threshold": "a number from 0 to 1",
    "beam_size": f"a whole number from 1 to {LARGEST_BEAM}, or null",
    "exclude": f"a list of at most {MOST_EXCLUDED} ids of labels",
    "alternatives": f"a whole number from 1 to {_MOST_NODES}",
}


def _whole(least: int, most: int, description: str) -> Meta:
    """Return the bounds of a whole number, read as float: to JSON Schema 5.0 is one, too, but not
    to msgspec.
    """
    return Meta(ge=least, le=most, multiple_of=1, description=description)


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and what to call it in the answer."""

    text: Text
    id: str | None = None


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Documents that labels are wanted for."""

    documents: list[Document]
    k: Annotated[float, _whole(1, LARGEST_K, "labels a document, at most")] = 5
    threshold: Annotated[
        float, Meta(ge=0, le=1, description="least score, a probability if calibrated")
    ] = 0.0
    exclude: Annotated[
        list[str],
        Meta(
            max_length=MOST_EXCLUDED,
            description="ids of labels that may not come out; those that the model lacks exclude nothing",
        ),
    ] = []
    beam_size: Annotated[float, _whole(1, LARGEST_BEAM, "nodes kept on each level")] | None = None

    def check(self, limits: Limits) -> None:
        """Refuse more documents, or a longer one, than the server takes at a time."""
        if len(self.documents) > limits.documents:
            raise too_large(
                f"found {len(self.documents)} documents; expected at most {limits.documents} a request"
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
    """A text, and the label, or the best one, whose way through the label tree is asked for."""

    text: Text
    label: LabelName | None = None
    alternatives: Annotated[float, _whole(1, _MOST_NODES, "nodes of each level, at most")] = 5

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
    """Return the body; 400 for what is no JSON, 422 for JSON of other fields. Messages never quote
    a text.
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
    """Return ``FIELD: expected WHAT`` for a field with bounds; else msgspec's message, and the
    fields of the body.
    """
    field = message.rpartition(" - at `$.")[2].removesuffix("`")
    if field in _EXPECTED:
        return f"{field}: expected {_EXPECTED[field]}"
    if not message.startswith("Object "):
        return message
    is_document = "`$.documents[" in message
    return f"{message}; expected {_described(Document if is_document else body)}"


def _described(body: type) -> str:
    """Return an example of an object with its required fields, and the names of the optional ones."""
    optional = [field.name for field in msgspec.structs.fields(body) if not field.required]
    return f"an object such as {_EXAMPLES[body]}; optional fields: {', '.join(optional) or 'none'}"
