"""The ASGI middleware and its settings: scopes, keys, routes, mounts, and what is said to whoever set it up wrongly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount
from starlette.routing import Route as Path

from semel import SHARED, AsyncSemel, Policy, Semel
from semel.errors import UsageError
from semel.http import Route
from semel.http.asgi import IdempotencyMiddleware
from semel.http.request import below
from tests.unit.http.driver import BODY, START, App, Driver, asked, keyed, part, scope_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def semel() -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel("memory://") as semel:
        yield semel


async def test_the_scope_may_be_awaited(semel: AsyncSemel) -> None:
    async def who(request: Any) -> str:
        return str(request.state.user)

    front = IdempotencyMiddleware(App(), semel=semel, scope=who)
    driver = Driver()
    await front(scope_of(state={"user": "alice"}), driver.receive, driver.send)
    assert await semel.read(("/orders", "k-1"), operation="POST /**", scope="alice") is not None


async def test_put_is_taken_where_it_was_chosen(semel: AsyncSemel) -> None:
    app = App()
    front = keyed(app, semel, routes=[Route("/orders", methods={"PUT"})])
    for _ in range(2):
        await asked(front, method="PUT")
    assert len(app.calls) == 1


async def test_a_key_can_be_computed(semel: AsyncSemel) -> None:
    app = App()
    front = keyed(app, semel, routes=[Route("/hooks/*", key=lambda request: request.headers.get("x-event-id"))])
    for event in (b"1", b"1", b"2"):
        scope = scope_of("/hooks/a", key=None)
        scope["headers"].append((b"x-event-id", event))
        driver = Driver()
        await front(scope, driver.receive, driver.send)
    assert len(app.calls) == 2


async def test_a_computed_key_of_none_passes_with_its_body(semel: AsyncSemel) -> None:
    app = App()
    await asked(keyed(app, semel, routes=[Route("/**", key=lambda request: None)]), key=None)
    assert app.bodies == [BODY]


def test_an_engine_of_the_other_colour_is_refused() -> None:
    with pytest.raises(UsageError, match="AsyncSemel"):
        IdempotencyMiddleware(App(), semel=Semel("memory://"), scope=SHARED)  # type: ignore[arg-type]


def test_a_scope_must_be_given_on_purpose() -> None:
    with pytest.raises(UsageError, match="SHARED"):
        IdempotencyMiddleware(App(), semel=AsyncSemel("memory://"), scope=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("who", [7, ("acme", 7)], ids=["number", "tuple"])
async def test_a_scope_may_be_a_number_or_a_tuple(semel: AsyncSemel, who: Any) -> None:
    app = App()
    front = IdempotencyMiddleware(app, semel=semel, scope=lambda request: who)
    for _ in range(2):
        assert (await asked(front)).status == 201
    assert len(app.calls) == 1


@pytest.mark.parametrize("who", ["", object()], ids=["empty", "object"])
async def test_a_scope_that_cannot_be_one_is_told_to_whoever_runs_the_site(semel: AsyncSemel, who: Any) -> None:
    app = App()
    with pytest.raises(UsageError, match="scope"):
        await asked(IdempotencyMiddleware(app, semel=semel, scope=lambda request: who))
    assert app.calls == []


async def test_a_computed_key_that_cannot_be_one_is_400(semel: AsyncSemel) -> None:
    app = App()
    front = keyed(app, semel, routes=[Route("/**", key=lambda request: "\ud800")])
    assert (await asked(front, key=None)).status == 400
    assert app.calls == []


@pytest.mark.parametrize("path", ["/orders\n", "/orders\x00" + "x" * 300, "/elsewhere\x7f", "/\x85"], ids=ascii)
@pytest.mark.parametrize("key", ["k-1", None])
async def test_a_path_with_control_characters_is_refused(semel: AsyncSemel, path: str, key: str | None) -> None:
    app = App()
    front = keyed(app, semel, routes=[Route("/orders", required=True)])
    assert (await asked(front, path=path, key=key)).status == 400
    assert app.calls == [], "the application was called"


async def test_a_request_that_carries_no_keys_may_have_any_path(semel: AsyncSemel) -> None:
    app = App()
    await asked(keyed(app, semel), path="/orders\n", method="GET", key=None)
    assert len(app.calls) == 1


@pytest.mark.parametrize("method", ["post", "Post", "pOST"])
async def test_a_method_in_small_letters_needs_its_key_too(semel: AsyncSemel, method: str) -> None:
    app = App()
    front = keyed(app, semel, routes=[Route("/orders", required=True)])
    assert (await asked(front, method=method, key=None)).status == 400
    told = [(await asked(front, method=given)).status for given in ("POST", method)]
    assert (told, len(app.calls)) == ([201, 201], 1)


@pytest.mark.parametrize("route", ["/orders", "/**"])
async def test_a_key_runs_once_however_many_slashes_are_in_front(semel: AsyncSemel, route: str) -> None:
    app = App()
    front = keyed(app, semel, routes=[Route(route)])
    told = [(await asked(front, path=path)).status for path in ("/orders", "//orders", "///orders")]
    assert (told, len(app.calls)) == ([201, 422, 422], 1)


async def test_a_connection_that_cannot_be_joined_is_told_to_whoever_runs_the_site(semel: AsyncSemel) -> None:
    @asynccontextmanager
    async def wrong(request: Any) -> AsyncIterator[object]:
        yield object()

    with pytest.raises(UsageError, match="has no transaction"):
        await asked(keyed(App(), semel, transaction=wrong))


async def test_a_mark_of_the_profile_is_on_the_answer_of_a_stream_too(semel: AsyncSemel) -> None:
    more = {"type": "http.response.body", "body": b"one", "more_body": True}
    front = keyed(App(START, more, {"type": "http.response.body"}), semel, profile="oasis")
    scope = scope_of(key=None)
    scope["headers"] += [
        (b"repeatability-request-id", b"k-1"),
        (b"repeatability-first-sent", formatdate(usegmt=True).encode()),
    ]
    driver = Driver()
    await front(scope, driver.receive, driver.send)
    assert driver.header("repeatability-result") == "accepted"


@pytest.mark.parametrize("version", ["2.0", "2.3", "2.4", "3.0"])
async def test_a_stream_of_starlette_is_whole_under_every_version_of_asgi(semel: AsyncSemel, version: str) -> None:
    """Starlette listens for a disconnect in its own way before 2.4, and takes an OSError for one after."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await StreamingResponse(_three())(scope, receive, send)

    front = keyed(app, semel)
    for _ in range(2):
        driver = await asked(front, asgi={"version": "3.0", "spec_version": version})
        assert driver.body == b"onetwothree"


async def _three() -> AsyncIterator[bytes]:
    for chunk in (b"one", b"two", b"three"):
        yield chunk


@pytest.mark.parametrize("path", ["/orders", "/orders/", "//orders", "/orders//"])
async def test_no_spelling_of_a_path_leads_around_its_route(semel: AsyncSemel, path: str) -> None:
    app = App()
    front = keyed(app, semel, routes=[Route("/orders", required=True)])
    assert (await asked(front, path=path, key=None)).status == 400
    assert app.calls == []


async def test_another_spelling_of_a_path_is_another_operation(semel: AsyncSemel) -> None:
    """A framework may send the client from one to the other, which then comes with the same key."""
    app = App()
    front = keyed(app, semel, routes=[Route("/orders")])
    assert [(await asked(front, path=path)).status for path in ("/orders/", "/orders")] == [201, 201]
    assert len(app.calls) == 2


async def mounted(semel: AsyncSemel, path: str, key: str | None = None) -> Driver:
    async def view(request: Any) -> PlainTextResponse:
        return PlainTextResponse("ran")

    inner = Starlette(routes=[Path("/orders", view, methods=["POST", "GET"])])
    front = keyed(inner, semel, routes=[Route("/orders", required=True)])
    app = Starlette(routes=[Mount("/api", front)])
    driver = Driver()
    await app(
        scope_of(path, key=key, method="POST" if "well-known" not in path else "GET"), driver.receive, driver.send
    )
    return driver


async def test_routes_are_those_of_the_application_wherever_it_is_mounted(semel: AsyncSemel) -> None:
    driver = await mounted(semel, "/api/orders")
    assert driver.status == 400
    assert driver.header("link") == '</api/.well-known/idempotency-policy>; rel="describedby"'


async def test_the_policy_is_served_below_the_mount(semel: AsyncSemel) -> None:
    assert (await mounted(semel, "/api/.well-known/idempotency-policy")).status == 200


@pytest.mark.parametrize("status", [204, 304])
async def test_what_ends_with_its_head_is_held_until_it_is_recorded(semel: AsyncSemel, status: int) -> None:
    statuses: list[str] = []

    async def look(message: Any) -> None:
        record = await semel.read(("/orders", "k-1"), operation="POST /**")
        statuses.append("none" if record is None else record.status.value)

    more = {"type": "http.response.body", "body": b"", "more_body": True}
    app = App({**START, "status": status}, more, {"type": "http.response.body"})
    driver = Driver(on_send=look)
    await keyed(app, semel)(scope_of(), driver.receive, driver.send)
    assert set(statuses) == {"completed"}


async def test_an_answer_that_cannot_be_read_leaves_no_key_claimed(semel: AsyncSemel) -> None:
    front = keyed(App({**START, "status": None}, {"type": "http.response.body"}), semel)
    with pytest.raises(TypeError):
        await asked(front)
    record = await semel.read(("/orders", "k-1"), operation="POST /**")
    assert record is not None
    assert record.status.value == "in_doubt"


async def test_a_packed_body_counts_by_its_bytes(semel: AsyncSemel) -> None:
    front = keyed(App(), semel)
    headers = [(b"idempotency-key", b"k"), (b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
    bodies = (b"\x1f\x8b one", b"\x1f\x8b one", b"\x1f\x8b two")
    assert [(await asked(front, part(body), headers=headers)).status for body in bodies] == [201, 201, 422]


async def test_a_scope_with_nobody_in_it_is_401(semel: AsyncSemel) -> None:
    driver = await asked(IdempotencyMiddleware(App(), semel=semel, scope=lambda request: ("acme", None)))
    assert (driver.status, driver.header("www-authenticate")) == (401, "Bearer")


async def test_a_held_doubt_is_held_under_every_profile(semel: AsyncSemel) -> None:
    app = App({**START, "status": 500}, {"type": "http.response.body"})
    front = keyed(app, semel, profile="stripe-v2", policy=Policy(in_doubt="hold"))
    assert [(await asked(front)).status for _ in range(2)] == [500, 409]
    assert len(app.calls) == 1


async def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_comes(semel: AsyncSemel) -> None:
    headers = [(b"idempotency-key", b"k"), (b"content-length", b"2000000")]
    driver = Driver()
    driver.given.clear()
    await keyed(App(), semel)({**scope_of(), "headers": headers}, driver.receive, driver.send)
    assert driver.status == 413


async def test_what_a_client_wrote_into_a_mount_does_not_break_out_of_a_header(semel: AsyncSemel) -> None:
    app = Starlette(routes=[Mount("/{tenant}", keyed(App(), semel, required=True))])
    driver = await asked(app, path="/a\r\nX-Evil: 1>/orders", key=None)
    assert driver.header("link") == '</a%0D%0AX-Evil%3A%201%3E/.well-known/idempotency-policy>; rel="describedby"'


@pytest.mark.parametrize(
    ("path", "mount", "rest"),
    [
        ("/api/x", "/api", "/x"),
        ("/api", "/api", "/"),
        ("/apiary/x", "/api", "/apiary/x"),
        ("/x", "/api", "/x"),
        ("/api/x", "/api/", "/x"),
        ("/x", "", "/x"),
    ],
)
def test_a_path_lies_below_its_mount(path: str, mount: str, rest: str) -> None:
    assert below(path, mount) == rest
