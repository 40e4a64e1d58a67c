"""The OpenAPI document: every endpoint with its bodies, made from the same Structs that decode and
encode them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from longtail import __version__
from longtail.server import answers, requests
from longtail.server.front import PREDICT, is_guarded
from longtail.server.problem_details import ProblemDetails

__all__ = ["ENDPOINTS", "Endpoint", "openapi_document"]


class Endpoint(NamedTuple):
    """One endpoint; ``name`` is the method of the server that answers it."""

    name: str
    method: str
    path: str
    summary: str
    answer: type[msgspec.Struct] | None  # None: text
    body: type[msgspec.Struct] | None = None
    errors: tuple[int, ...] = ()
    parameters: tuple[dict[str, Any], ...] = ()


_WITH_BODY = (400, 408, 413, 415, 422, 503)
_QUERY = (
    {
        "name": "query",
        "in": "query",
        "description": "part of an id, name or alias; the most frequent labels where it is empty",
        "schema": {"type": "string", "maxLength": requests.LONGEST_QUERY, "default": ""},
    },
    {
        "name": "limit",
        "in": "query",
        "description": "labels returned, at most",
        "schema": {
            "type": "integer",
            "minimum": 1,
            "maximum": requests.MOST_FOUND,
            "default": requests.FOUND,
        },
    },
)
_ID = (
    {
        "name": "id",
        "in": "query",
        "required": True,
        "description": "id or name of a label",
        "schema": {"type": "string"},
    },
)

ENDPOINTS = (
    Endpoint(
        "predict",
        "POST",
        PREDICT,
        "Give each document its labels",
        answers.PredictResponse,
        requests.PredictRequest,
        _WITH_BODY,
    ),
    Endpoint(
        "explain",
        "POST",
        "/v1/explain",
        "Say why a label came out, and which words did it",
        answers.ExplainResponse,
        requests.ExplainRequest,
        (*_WITH_BODY, 404),
    ),
    Endpoint(
        "path",
        "POST",
        "/v1/path",
        "Show the way through the label tree to a label, with the beam's alternatives",
        answers.PathResponse,
        requests.PathRequest,
        (*_WITH_BODY, 404),
    ),
    Endpoint("model", "GET", "/v1/model", "Describe the model that is served", answers.ModelInfo),
    Endpoint(
        "labels",
        "GET",
        "/v1/labels",
        "Find labels",
        answers.LabelsResponse,
        errors=(422, 503),
        parameters=_QUERY,
    ),
    Endpoint(
        "label",
        "GET",
        "/v1/label",
        "Describe a label",
        answers.LabelResponse,
        errors=(404, 422, 503),
        parameters=_ID,
    ),
    Endpoint(
        "reload",
        "POST",
        "/v1/reload",
        "Load the model folder again",
        answers.ReloadResponse,
        errors=(409,),
    ),
    Endpoint("live", "GET", "/health/live", "Say whether the process runs", answers.StatusResponse),
    Endpoint(
        "ready",
        "GET",
        "/health/ready",
        "Say whether to send requests here",
        answers.StatusResponse,
        errors=(503,),
    ),
    Endpoint("metrics", "GET", "/metrics", "Metrics for Prometheus", None, errors=(503,)),
)

_MEANINGS = {
    400: "no JSON, or not UTF-8",
    401: "no token, or a wrong one",
    403: "a page of another site, or a reload that is not from this machine",
    404: "unknown label",
    408: "the body came too slowly",
    409: "the folder holds no model; the old one goes on",
    413: "a body, text, or number of documents above the limits of /v1/model",
    415: "a body of another type",
    421: "another host than the server has",
    422: "fields or parameters that are wrong",
    503: "too busy or not ready; try again after Retry-After seconds",
}


def openapi_document() -> dict[str, Any]:
    """Return the document, OpenAPI 3.1."""
    bodies = [
        own for endpoint in ENDPOINTS for own in (endpoint.body, endpoint.answer) if own is not None
    ]
    template = "#/components/schemas/{name}"
    _, schemas = msgspec.json.schema_components([*bodies, ProblemDetails], ref_template=template)
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Longtail",
            "version": __version__,
            "description": "Give any text the right few of a million labels.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answer = {"text/plain": {"schema": {"type": "string"}}}
    if endpoint.answer is not None:
        answer = {"application/json": {"schema": _reference(endpoint.answer)}}
    guarded = is_guarded(endpoint.path)
    everywhere = (
        {421} | ({401} if guarded else set()) | ({403} if endpoint.method == "POST" else set())
    )
    errors = sorted(everywhere.union(endpoint.errors))
    problem = {"application/problem+json": {"schema": _reference(ProblemDetails)}}
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "responses": {"200": {"description": "the answer", "content": answer}}
        | {
            str(status): {"description": _MEANINGS[status], "content": problem} for status in errors
        },
    }
    if guarded:
        operation["security"] = [{}, {"token": []}]  # where the server has one
    if endpoint.parameters:
        operation["parameters"] = list(endpoint.parameters)
    if endpoint.body is not None:
        content = {"application/json": {"schema": _reference(endpoint.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _reference(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}
