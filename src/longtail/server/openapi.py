"""The OpenAPI document, made from the Structs that decode and encode bodies, and the page /docs."""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple

import msgspec

from longtail import __version__
from longtail.server import answers, requests
from longtail.server.front import PREDICT, is_guarded
from longtail.server.problem_details import ProblemDetails

__all__ = ["ENDPOINTS", "Endpoint", "docs_page", "openapi_document"]


class Endpoint(NamedTuple):
    """An endpoint; ``name`` is the method of :class:`Server` that answers it."""

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
        "description": "part of an id, name or alias; empty for the most frequent labels",
        "schema": {"type": "string", "maxLength": requests.LONGEST_QUERY, "default": ""},
    },
    {
        "name": "limit",
        "in": "query",
        "description": "largest number of labels returned",
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
        "Suggest labels for documents",
        answers.PredictResponse,
        requests.PredictRequest,
        _WITH_BODY,
    ),
    Endpoint(
        "explain",
        "POST",
        "/v1/explain",
        "Explain why a label was suggested, and by which words",
        answers.ExplainResponse,
        requests.ExplainRequest,
        (*_WITH_BODY, 404),
    ),
    Endpoint(
        "path",
        "POST",
        "/v1/path",
        "Show the path through the label tree to a label, and the beam's alternatives",
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
    Endpoint("live", "GET", "/health/live", "Report that the process runs", answers.StatusResponse),
    Endpoint(
        "ready",
        "GET",
        "/health/ready",
        "Report whether requests should be sent here",
        answers.StatusResponse,
        errors=(503,),
    ),
    Endpoint("metrics", "GET", "/metrics", "Return metrics for Prometheus", None, errors=(503,)),
)

_MEANINGS = {
    400: "the body is not JSON, or not UTF-8",
    401: "the token is missing or wrong",
    403: "a request from a page of another site, or a reload from another machine",
    404: "unknown label",
    408: "the body arrived too slowly",
    409: "the folder holds no valid model; the previous model is still served",
    413: "the body, a text or the number of documents exceeds the limits of /v1/model",
    415: "the body has another content type",
    421: "the header Host names another host",
    422: "a field or parameter is wrong",
    503: "too busy or not ready; try again after Retry-After seconds",
}


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    structs = [struct for endpoint in ENDPOINTS for struct in (endpoint.body, endpoint.answer)]
    bodies = [struct for struct in structs if struct is not None]
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
    errors = {421, *endpoint.errors}
    if guarded:
        errors.add(401)
    if endpoint.method == "POST":
        errors.add(403)
    problem = {"application/problem+json": {"schema": _reference(ProblemDetails)}}
    responses = {"200": {"description": "the answer", "content": answer}}
    for status in sorted(errors):
        responses[str(status)] = {"description": _MEANINGS[status], "content": problem}
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "responses": responses,
    }
    if guarded:
        operation["security"] = [{}, {"token": []}]  # required only by a server with a token
    if endpoint.parameters:
        operation["parameters"] = list(endpoint.parameters)
    if endpoint.body is not None:
        content = {"application/json": {"schema": _reference(endpoint.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _reference(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


# The page /docs


def docs_page(document: dict[str, Any]) -> str:
    """Return the page /docs: all endpoints with bodies, errors and schemas, without a script."""
    operations = [
        _operation_html(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f'<h3 id="{escape(name)}">{escape(name)}</h3>{_schema_html(schema)}'
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    title = f"{escape(document['info']['title'])} {escape(document['info']['version'])}: REST"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="stylesheet" href="/static/page.css"></head>'
        f'<body class="docs"><main><h1>{title}</h1>'
        '<p><a href="/">the page</a> · <a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(operations)}<h2>Schemas</h2>{''.join(schemas)}</main></body></html>"
    )


def _operation_html(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>",
        f"<p>{escape(operation['summary'])}.</p>",
    ]
    for parameter in operation.get("parameters", ()):
        description = escape(parameter["description"])
        if parameter.get("required"):
            description += ", required"
        parts.append(f"<p><code>?{escape(parameter['name'])}=</code> {description}</p>")
    if "requestBody" in operation:
        parts.append(f"<p>Body: {_schema_link(operation['requestBody']['content'])}</p>")
    rows = [
        f"<tr><td>{status}</td><td>{_schema_link(response['content'])}</td>"
        f"<td>{escape(response['description'])}</td></tr>"
        for status, response in operation["responses"].items()
    ]
    return f"<section>{''.join(parts)}<table>{''.join(rows)}</table></section>"


def _schema_link(content: dict[str, Any]) -> str:
    """Return the name of a body's schema, as a link to it."""
    kind, described = next(iter(content.items()))
    name = described["schema"].get("$ref", "").rpartition("/")[2]
    if name:
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    return escape(kind)


def _schema_html(schema: dict[str, Any]) -> str:
    return (
        f"<pre>{escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())}</pre>"
    )
