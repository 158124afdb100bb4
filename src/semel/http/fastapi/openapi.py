"""What the OpenAPI schema says of a route that carries keys: the header, the problems, the policy. No I/O.

What always holds: it says what the running settings say, beside whatever the application says itself; said twice, it is
there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semel.http.policy_document import openapi
from semel.http.request import LONGEST
from semel.http.route import Route

_PROBLEM: Final = {
    "type": "object",
    "title": "Problem",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def operation(route: Route, said: Mapping[str, Any], *, has_header: bool) -> dict[str, Any]:
    """What a route adds to its operation.

    Args:
        route: the route.
        said: what the application adds itself.
        has_header: whether it declares the header with the key itself.
    """
    header = route.settings.key_header
    others = [known for known in said.get("parameters", ()) if not _is_header(known, header)]
    ours = [] if has_header else [_header(route)]
    responses = {**said.get("responses", {})}
    for status, description in _problems(route).items():
        responses[status] = _beside(responses.get(status, {}), description)
    return {**said, "parameters": [*others, *ours], "responses": responses, **openapi(route)}


def _is_header(parameter: Mapping[str, Any], name: str) -> bool:
    return parameter.get("in") == "header" and str(parameter.get("name", "")).lower() == name.lower()


def _header(route: Route) -> dict[str, Any]:
    settings = route.settings
    return {
        "name": settings.key_header,
        "in": "header",
        "required": settings.required and settings.key is None,
        "description": "Names this request: sent again with the same key it is not run again, and its answer is given.",
        "schema": {"type": "string", "minLength": settings.min_key_length, "maxLength": LONGEST},
    }


def _problems(route: Route) -> dict[str, str]:
    """By status; where two situations share one, both are told."""
    wording = route.settings.wording
    told: dict[str, list[str]] = {}
    for status, why in (
        (400, "the key is missing or cannot be read, or the body is ambiguous"),
        (409, "the outcome of this key is not known, or its response was not kept"),
        (route.settings.in_progress_status or wording.in_progress_status, "the first request with this key still runs"),
        (wording.reused, "the key stands for another request"),
        (422, "the request is not valid"),
        (503, "what is needed to run this once cannot be reached"),
    ):
        told.setdefault(str(status), []).append(why)
    return {status: f"Nothing ran: {'; or '.join(reasons)}." for status, reasons in told.items()}


def _beside(said: Mapping[str, Any], description: str) -> dict[str, Any]:
    content = {**said.get("content", {}), "application/problem+json": {"schema": _PROBLEM}}
    return {"description": description, **said, "content": content}
