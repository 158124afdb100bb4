"""Django under mounts and other spellings of a path, and answers that cannot even be looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.urls import path, re_path

from semel import SHARED, AsyncSemel, Policy, Semel
from semel.http import Route
from semel.http.django import IdempotencyMiddleware, idempotent
from semel.http.exchange import NoAnswer
from semel.testing.clock import VirtualClock
from tests.unit.http.django_project import Effects, apost, post, project

AT = "/.well-known/idempotency-policy"


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://", policy=Policy(in_doubt="hold")) as semel:
        yield semel


@pytest.fixture
async def awaited() -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel("memory://", policy=Policy(in_doubt="hold")) as semel:
        yield semel


@pytest.fixture
def required(semel: Semel) -> dict[str, Any]:
    return {"semel": semel, "scope": "SHARED", "routes": [Route("/orders", required=True)]}


def test_routes_lie_below_the_mount_and_problems_link_there(effects: Effects, required: dict[str, Any]) -> None:
    with project(path("orders", effects.view), SEMEL=required):
        answer = post(key=None, SCRIPT_NAME="/api")
    assert (answer.status_code, effects.happened) == (400, [])
    assert answer.headers["Link"] == f'</api{AT}>; rel="describedby"'


@pytest.mark.anyio
async def test_routes_lie_below_the_mount_under_asgi(effects: Effects, awaited: AsyncSemel) -> None:
    chosen = {"semel": awaited, "scope": "SHARED", "routes": [Route("/orders", required=True)]}
    with project(path("orders", effects.awaited), SEMEL=chosen, FORCE_SCRIPT_NAME="/api"):
        answer = await apost("/api/orders", key=None)
    assert (answer.status_code, answer.headers["Link"]) == (400, f'</api{AT}>; rel="describedby"')


def test_the_policy_document_is_served_below_the_mount(effects: Effects, required: dict[str, Any]) -> None:
    with project(path("orders", effects.view), SEMEL=required):
        assert Client().get(AT, SCRIPT_NAME="/api").status_code == 200


@pytest.mark.parametrize("decorated", [False, True])
def test_the_same_key_under_another_mount_is_another_request(
    effects: Effects, required: dict[str, Any], *, decorated: bool
) -> None:
    view = idempotent(effects.view) if decorated else effects.view
    with project(path("orders", view), SEMEL=required):
        statuses = [post(SCRIPT_NAME=mount).status_code for mount in ("/a", "/a", "/b")]
    assert (statuses, effects.happened) == ([201, 201, 422], ["/a/orders"])


@pytest.mark.parametrize("spelt", ["/orders/", "//orders", "/orders//"])
def test_slashes_do_not_lead_around_a_route(effects: Effects, required: dict[str, Any], spelt: str) -> None:
    with project(re_path("^/*orders/*$", effects.view), SEMEL=required):
        assert (post(key=None, PATH_INFO=spelt).status_code, effects.happened) == (400, [])


def odd() -> HttpResponse:
    """An answer whose status is no number."""
    response = HttpResponse()
    response.status_code = "fine"
    return response


def odd_in_the_end() -> StreamingHttpResponse:
    """A stream whose headers cannot be read any more once it has begun."""

    def unreadable() -> Any:
        raise LookupError

    def chunks() -> Iterator[bytes]:
        yield b"one"
        response.items = unreadable

    response = StreamingHttpResponse(chunks())
    return response


def test_an_answer_that_cannot_be_recorded_leaves_a_doubt(effects: Effects, semel: Semel) -> None:
    with project(path("orders", effects.answering(odd)), SEMEL={"semel": semel, "scope": SHARED}):
        assert post().status_code == 500
    assert [record.status for record in semel.records()] == ["in_doubt"]


def test_a_stream_that_cannot_be_recorded_leaves_a_doubt(effects: Effects, semel: Semel) -> None:
    with project(path("orders", effects.answering(odd_in_the_end)), SEMEL={"semel": semel, "scope": SHARED}):
        chunks = post().streaming_content
        assert next(chunks) == b"one"
        with pytest.raises(LookupError):
            next(chunks)
    assert [record.status for record in semel.records()] == ["in_doubt"]


@pytest.mark.anyio
async def test_an_awaited_answer_that_cannot_be_recorded_leaves_a_doubt(effects: Effects, awaited: AsyncSemel) -> None:
    with project(path("orders", effects.answering(odd)), SEMEL={"semel": awaited, "scope": SHARED}):
        assert (await apost()).status_code == 500
    assert [record.status async for record in awaited.records()] == ["in_doubt"]


@pytest.mark.anyio
async def test_an_awaited_stream_that_cannot_be_recorded_leaves_a_doubt(effects: Effects, awaited: AsyncSemel) -> None:
    with project(path("orders", effects.answering(odd_in_the_end)), SEMEL={"semel": awaited, "scope": SHARED}):
        chunks = aiter((await apost()).streaming_content)
        assert await anext(chunks) == b"one"
        with pytest.raises(LookupError):
            await anext(chunks)
    assert [record.status async for record in awaited.records()] == ["in_doubt"]


HEADS: Any = [{"status": 103}, {"status": 204}, {"status": 304}, {"headers": {"Content-Length": "0"}}]


@pytest.mark.parametrize("head", HEADS)
def test_a_stream_without_a_body_is_recorded_before_its_head_can_leave(semel: Semel, head: Any) -> None:
    request = RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
    with project():
        middleware = IdempotencyMiddleware(
            lambda _: StreamingHttpResponse([b"none"], **head), semel=semel, scope=SHARED
        )
        middleware(request)
    assert [record.status for record in semel.records()] == ["completed"]


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_awaited_stream_without_a_body_is_recorded_before_its_head_can_leave(
    awaited: AsyncSemel, *, is_async: bool
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"none"

    async def view(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(chunks() if is_async else [b"none"], status=204)

    request = AsyncRequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
    with project():
        answer = await IdempotencyMiddleware(view, semel=awaited, scope=SHARED)(request)
    assert [record.status async for record in awaited.records()] == ["completed"]
    assert answer.is_async == is_async


def test_a_stream_without_a_body_and_without_an_end_is_stopped_at_max_runtime() -> None:
    clock = VirtualClock()

    def chunks() -> Iterator[bytes]:
        while True:
            clock.advance(60)
            yield b"more"

    with Semel("memory://", clock=clock) as semel, project():
        middleware = IdempotencyMiddleware(
            lambda _: StreamingHttpResponse(chunks(), status=204), semel=semel, scope=SHARED
        )
        with pytest.raises(NoAnswer, match="max_runtime"):
            middleware(RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"}))
        assert [record.status for record in semel.records()] == ["in_doubt"]


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_awaited_stream_without_a_body_and_without_an_end_is_stopped_at_max_runtime(*, is_async: bool) -> None:
    clock = VirtualClock()

    def chunks() -> Iterator[bytes]:
        while True:
            clock.advance(60)
            yield b"more"

    async def awaited_chunks() -> AsyncIterator[bytes]:
        for chunk in chunks():
            yield chunk

    async def view(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(awaited_chunks() if is_async else chunks(), status=204)

    async with AsyncSemel("memory://", clock=clock) as semel:
        with project():
            middleware = IdempotencyMiddleware(view, semel=semel, scope=SHARED)
            with pytest.raises(NoAnswer, match="max_runtime"):
                await middleware(AsyncRequestFactory().post("/orders", headers={"Idempotency-Key": "k1"}))
        assert [record.status async for record in semel.records()] == ["in_doubt"]
