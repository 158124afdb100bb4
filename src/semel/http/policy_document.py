"""The policy document: what a service promises about keys, for clients to read. No I/O.

What always holds: it says what the running settings say, and nothing about any key.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec

from semel.core.policy import Policy
from semel.http.request import LONGEST
from semel.http.response import Response
from semel.http.route import Route, Routes

_STATUSES: Final = tuple(map(int, HTTPStatus))


def described(route: Route) -> dict[str, Any]:
    """One route."""
    settings = route.settings
    policy = settings.policy or Policy()
    wording = settings.wording
    return {
        "path": route.path,
        "methods": sorted(settings.methods),
        "header": settings.key_header,
        "required": settings.required,
        "profile": settings.profile,
        "key": {
            "minimumLength": settings.min_key_length,
            "maximumLength": LONGEST,
            "format": "structured-field string or bare",
        },
        "retentionSeconds": int(policy.keep_for.total_seconds()),
        "waitsSeconds": policy.wait_for.total_seconds() if policy.when_running == "wait" else 0,
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


def document(routes: Routes) -> Response:
    """The document as it is served."""
    body = msgspec.json.encode({"version": 1, "routes": [described(route) for route in routes.every]})
    headers = (("Content-Type", "application/json"), ("Cache-Control", "public, max-age=300"))
    return Response(200, headers, body)


def openapi(route: Route) -> dict[str, Any]:
    """What an OpenAPI operation says of it, as the extension `x-idempotency`."""
    return {"x-idempotency": described(route)}
