"""/docs: the OpenAPI document as a plain page, without a script and without anything from
elsewhere.
"""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

__all__ = ["docs_page"]


def docs_page(document: dict[str, Any]) -> str:
    """Return HTML with every endpoint, its bodies and errors, and the schemas that these refer to."""
    operations = [
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f'<h3 id="{escape(name)}">{escape(name)}</h3>{_json(schema)}'
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    title = f"{escape(document['info']['title'])} {escape(document['info']['version'])}: REST"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="stylesheet" href="/static/page.css"></head><body class="docs"><main>'
        f'<h1>{title}</h1><p><a href="/">the page</a> · <a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(operations)}<h2>Schemas</h2>{''.join(schemas)}</main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>"
    ]
    for parameter in operation.get("parameters", ()):
        needed = ", required" if parameter.get("required") else ""
        parts.append(
            f"<p><code>?{escape(parameter['name'])}=</code> {escape(parameter['description'])}{needed}</p>"
        )
    if "requestBody" in operation:
        parts.append(f"<p>Body: {_link(operation['requestBody']['content'])}</p>")
    rows = [
        f"<tr><td>{status}</td><td>{_link(response['content'])}</td><td>{escape(response['description'])}</td></tr>"
        for status, response in operation["responses"].items()
    ]
    return f"<section>{''.join(parts)}<table>{''.join(rows)}</table></section>"


def _link(content: dict[str, Any]) -> str:
    """Return the name of a body's schema, as a link to it."""
    kind, described = next(iter(content.items()))
    name = described["schema"].get("$ref", "").rpartition("/")[2]
    if name:
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    return escape(kind)


def _json(schema: dict[str, Any]) -> str:
    return (
        f"<pre>{escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())}</pre>"
    )
