"""The page /docs: the OpenAPI document as plain HTML. It needs no scripts and nothing from other sites."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: the HTTP API</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/style.css">
<link rel="stylesheet" href="/static/docs.css">
</head>
<body class="docs">
"""

Schema = Mapping[str, Any]


def render_api_page(document: Schema) -> bytes:
    """The OpenAPI document as one HTML page.

    Args:
        document: As `FastAPI.openapi` gives it.
    """
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = escape(document["info"]["title"])
    parts = [
        HEAD.format(title=title),
        f"<h1>{title} {escape(document['info']['version'])}: the HTTP API</h1>",
        f"<p>{escape(document['info'].get('summary', ''))}. "
        'For machines: <a href="/openapi.json">/openapi.json</a>. <a href="/">To the page</a>.</p>',
    ]
    for tag in dict.fromkeys(tag for *_, operation in operations for tag in operation.get("tags", [""])):
        parts.append(f"<h2>{escape(tag)}</h2>")
        for path, method, operation in operations:
            if tag in operation.get("tags", [""]):
                parts.append(_render_operation(path, method, operation, document))
    parts.append("</body></html>\n")
    return "".join(parts).encode()


def _render_operation(path: str, method: str, operation: Schema, document: Schema) -> str:
    sentence = (operation.get("description") or "").split(". ")[0].split("\n")[0].rstrip(".")
    summary = f"<code>{method.upper()} {escape(path)}</code><span>{escape(sentence)}</span>"
    parts = [f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"]
    parameters = [
        (one["name"], f"{one['in']}{', required' if one.get('required') else ''}", one.get("description", ""))
        for one in operation.get("parameters", [])
    ]
    if parameters:
        parts.append(_render_table(("parameter", "where", "meaning"), parameters))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        parts += ["<h4>Body</h4>", _render_table(("field", "type", "meaning"), _fields(body, document))]
    responses = [
        (status, facts.get("description", ""), _response_example(facts, document))
        for status, facts in operation["responses"].items()
    ]
    parts += ["<h4>Responses</h4>", _render_table(("status", "meaning", "content"), responses)]
    return f"<details id='{escape(operation['operationId'])}'><summary>{summary}</summary>{''.join(parts)}</details>"


def _response_example(facts: Schema, document: Schema) -> str:
    schema = facts.get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return ""
    return json.dumps(_shape(schema, document), ensure_ascii=False)


def _render_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"


def _fields(schema: Schema, document: Schema) -> list[tuple[str, str, str]]:
    """Name, type and description of each field of an object, those of nested objects with a dot."""
    return list(_walk(schema, document, ""))


def _walk(schema: Schema, document: Schema, prefix: str) -> Iterator[tuple[str, str, str]]:
    schema = _resolve(schema, document)
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        found = _resolve(field, document)
        kind = _kind(found, document) + (", required" if name in required else "")
        yield f"{prefix}{name}", kind, field.get("description") or found.get("description", "")
        inner = _resolve(found.get("items", found), document)
        for one in (inner, *inner.get("oneOf", ())):
            if "properties" in _resolve(one, document):
                yield from _walk(one, document, f"{prefix}{name}.")


def _kind(schema: Schema, document: Schema) -> str:
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices and "type" not in schema:
        return " or ".join(_kind(_resolve(one, document), document) for one in choices)
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(_resolve(schema.get('items', {}), document), document)}"
    return str(schema.get("type", "any"))


def _shape(schema: Schema, document: Schema, depth: int = 0) -> Any:
    """A value of the shape of a schema, with the names of types for values."""
    schema = _resolve(schema, document)
    if "properties" in schema and depth < 4:
        return {name: _shape(field, document, depth + 1) for name, field in schema["properties"].items()}
    if schema.get("type") == "array" and depth < 4:
        return [_shape(schema.get("items", {}), document, depth + 1)]
    return _kind(schema, document)


def _resolve(schema: Schema, document: Schema) -> Schema:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema
