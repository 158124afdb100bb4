"""The OpenAPI document, made of the same table as the routes."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from semel.server.api.endpoints import ENDPOINTS, Endpoint
from semel.server.api.routes import PREFIX, PROBLEM
from semel.server.api.views import Health, Problem

_TEMPLATE: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)(?::(\w+))?}")
_PROBLEMS: Final = {
    "401": "Nobody who is known.",
    "403": "The user's roles do not permit it, or another site sent it.",
    "404": "There is no such thing in the scopes of the user.",
    "409": "It is in no state for it; `because` says which.",
    "413": "The body is too large.",
    "415": "The body is no JSON.",
    "422": "What was sent cannot be used.",
    "429": "Too many unknown secrets from this address.",
    "503": "The store did not answer.",
}


def openapi_document(version: str = "1") -> dict[str, Any]:
    """The document of all endpoints, of `/health` and of `/metrics`."""
    shapes = [Problem, Health, *(endpoint.gives for endpoint in ENDPOINTS)]
    shapes += [endpoint.preview for endpoint in ENDPOINTS if endpoint.preview is not None]
    shapes += [endpoint.body for endpoint in ENDPOINTS if endpoint.body is not None]
    unique = list(dict.fromkeys(shapes))
    _, components = msgspec.json.schema_components(unique, ref_template=_TEMPLATE)
    paths: dict[str, Any] = {
        "/health": {"get": _open("health", "Whether the server and its store answer.", _json(Health), "503")},
        "/metrics": {
            "get": {
                **_open("metrics", "Metrics for Prometheus.", {"text/plain": {"schema": {"type": "string"}}}, "401"),
                "security": [{"token": []}],
            }
        },
    }
    for endpoint in ENDPOINTS:
        place = paths.setdefault(_PARAMETER.sub(r"{\1}", PREFIX + endpoint.path), {})
        place[endpoint.method.lower()] = _describe(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "semel admin API",
            "version": version,
            "description": "Everything that an operator can do, with the permission names of the command line.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _describe(endpoint: Endpoint) -> dict[str, Any]:
    responses = {str(endpoint.status): {"description": endpoint.summary, "content": _json(endpoint.gives)}}
    if endpoint.preview is not None:
        responses["200"] = {"description": "What would be done.", "content": _json(endpoint.preview)}
    for status, text in _PROBLEMS.items():
        if endpoint.body is not None or status not in ("413", "415"):
            responses[status] = {"description": text, "content": {PROBLEM: {"schema": _reference(Problem)}}}
    told: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint.query)],
        "responses": responses,
    }
    if endpoint.permission is not None:
        told["x-permission"] = str(endpoint.permission)
    if endpoint.body is not None:
        told["requestBody"] = {"required": True, "content": _json(endpoint.body)}
    return told


def _open(name: str, summary: str, content: dict[str, Any], otherwise: str) -> dict[str, Any]:
    problem = {"description": _PROBLEMS[otherwise], "content": {PROBLEM: {"schema": _reference(Problem)}}}
    return {
        "operationId": name,
        "summary": summary,
        "security": [],
        "responses": {"200": {"description": summary, "content": content}, otherwise: problem},
    }


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": found[1],
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if found[2] == "int" else "string"},
        }
        for found in _PARAMETER.finditer(path)
    ]


def _query_parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    (schema,), components = msgspec.json.schema_components([query], ref_template=_TEMPLATE)
    named = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return [
        {"name": name, "in": "query", "required": False, "schema": shape}
        for name, shape in named.get("properties", {}).items()
    ]


def _json(shape: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(shape)}}


def _reference(shape: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _TEMPLATE.format(name=shape.__name__)}
