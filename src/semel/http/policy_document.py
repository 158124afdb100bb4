"""The policy document: what a service promises about keys, for clients to read. No I/O.

What always holds: it says what the running settings say, and nothing about any key.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from semel.core.policy import Policy
from semel.errors import UsageError
from semel.http.request import LONGEST
from semel.http.response import Response
from semel.http.route import Route, Routes

_STATUSES: Final = tuple(map(int, HTTPStatus))


def described(route: Route, methods: Sequence[str]) -> dict[str, Any]:
    """Methods of one route; of several that differ, the shortest times are told."""
    settings = route.settings
    policies = [_policy(route, method) for method in methods]
    waits = [policy.wait_for.total_seconds() if policy.when_running == "wait" else 0 for policy in policies]
    wording = settings.wording
    return {
        "path": route.path,
        "methods": list(methods),
        "header": settings.key_header,
        "required": settings.required,
        "profile": settings.profile,
        "key": {
            "minimumLength": settings.min_key_length,
            "maximumLength": LONGEST,
            "format": "structured-field string or bare",
        },
        "retentionSeconds": int(min(policy.keep_for for policy in policies).total_seconds()),
        "waitsSeconds": min(waits),
        "comparedBy": "bytes" if settings.compare == "bytes" else "canonical JSON, parts of a form, else bytes",
        "notCompared": list(settings.ignore_fields),
        "statuses": {
            "running": settings.in_progress_status or wording.in_progress_status,
            "otherRequest": wording.reused,
            "missing": 400,
            "malformed": 400,
            "unavailable": 503,
        },
        "notStored": [status for status in _STATUSES if settings.meaning(status) == "retry"],
        "doubtful": [status for status in _STATUSES if settings.meaning(status) == "unknown"],
        "replayHeader": wording.replayed[0],
        "responseKept": settings.keep_response,
    }


def _policy(route: Route, method: str) -> Policy:
    """The policy of a method; that of the code where a strict settings file refuses the method."""
    try:
        return route.declared_policy(method)
    except UsageError:
        return route.settings.policy or Policy()


def _groups(route: Route) -> list[list[str]]:
    """The methods of a route, together where they have the same policy."""
    groups: list[list[str]] = []
    for method in sorted(route.settings.methods):
        policy = _policy(route, method)
        group = next((group for group in groups if _policy(route, group[0]) == policy), None)
        if group is None:
            groups.append([method])
        else:
            group.append(method)
    return groups


def document(routes: Routes) -> Response:
    """The document as it is served."""
    listed = [described(route, methods) for route in routes.every for methods in _groups(route)]
    body = msgspec.json.encode({"version": 1, "routes": listed})
    headers = (("Content-Type", "application/json"), ("Cache-Control", "public, max-age=300"))
    return Response(200, headers, body)


def openapi(route: Route) -> dict[str, Any]:
    """What an OpenAPI operation says of it, as the extension `x-idempotency`."""
    return {"x-idempotency": described(route, sorted(route.settings.methods))}
