"""When an answer that is sent in chunks is stopped, as one table that all frameworks share."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from semel import Policy
from semel.http import Route
from semel.http.exchange import RunApp, StreamLimit
from semel.http.response import ResponseBuffer
from semel.http.route import RouteOptions

RUNTIME, AFTER = 900.0, 30.0
SETTINGS = RouteOptions(
    policy=Policy(max_runtime=timedelta(seconds=RUNTIME)), after_disconnect=timedelta(seconds=AFTER)
)


def limited(
    *, began: float = 10.0, size: int = 0, status: int = 200, joined: bool = False, **given: Any
) -> StreamLimit:
    """The limit of an answer that began at this instant, claimed at 0."""
    route = Route("/", **{**SETTINGS, "max_response": 100, **given})
    buffer = ResponseBuffer(route.settings.max_response)
    buffer.begin(status, [])
    buffer.add(b"x" * size)
    opened: Any = SimpleNamespace(
        claimed_at=0.0, is_joined=joined, request=SimpleNamespace(policy=route.settings.policy)
    )
    request: Any = None
    return StreamLimit(RunApp(opened, route, request), buffer, began)


@pytest.mark.parametrize(
    ("answer", "left", "stops"),
    [
        ({}, None, RUNTIME),
        ({"size": 101}, None, RUNTIME),
        ({}, 20.0, 20.0 + AFTER),
        ({}, RUNTIME - 1, RUNTIME),
        ({"size": 100}, 20.0, 20.0 + AFTER),
        ({"size": 101}, 20.0, 20.0),
        ({"keep_response": False}, 20.0, 20.0),
        ({"status": 422}, 20.0, 20.0),
        ({"status": 500}, 20.0, 20.0),
        ({"joined": True}, 20.0, RUNTIME),
        ({"joined": True, "size": 101}, 20.0, RUNTIME),
        ({"began": RUNTIME + 5}, None, RUNTIME + 5 + AFTER),
    ],
)
def test_an_answer_is_stopped_in_time_and_not_before(answer: dict[str, Any], left: float | None, stops: float) -> None:
    limit = limited(**answer)
    if left is not None:
        limit.client_left(left)
    assert limit.due() == stops
    assert limit.reason(stops - 0.001) is None
    assert limit.reason(stops) is not None


def test_a_client_leaves_once() -> None:
    limit = limited()
    limit.client_left(20.0)
    limit.client_left(40.0)
    assert limit.due() == 20.0 + AFTER
