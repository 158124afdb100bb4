"""Django, where the outcome cannot be recorded: what the client is told, and what is not sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.test import RequestFactory
from django.urls import path

from semel import SHARED, AsyncSemel, Semel
from semel.engine.async_engine import AsyncCall
from semel.engine.sync_engine import SyncCall
from semel.errors import StoreUnavailable
from semel.http.django import IdempotencyMiddleware
from semel.http.exchange import Rollback
from tests.unit.http.django_project import Effects, apost, post, project


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture(autouse=True)
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is gone when a call is settled."""
    lost = StoreUnavailable("the store is gone", ran=True)

    def settle(self: Any, value: Any) -> Any:
        raise lost

    async def asettle(self: Any, value: Any) -> Any:
        raise lost

    monkeypatch.setattr(SyncCall, "finish", settle)
    monkeypatch.setattr(AsyncCall, "finish", asettle)


def test_the_client_is_told_that_it_was_not_recorded(effects: Effects) -> None:
    with Semel("memory://") as semel, project(path("orders", effects.view), SEMEL={"semel": semel, "scope": SHARED}):
        answer = post()
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:semel:problem:not-recorded")


def test_a_stream_does_not_end_as_if_it_were_whole(effects: Effects) -> None:
    view = effects.answering(lambda: StreamingHttpResponse(iter([b"one"])))
    with Semel("memory://") as semel, project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
        chunks = post().streaming_content
        assert next(chunks) == b"one"
        with pytest.raises(Rollback):
            next(chunks)


def test_a_failure_reaches_the_client_all_the_same(effects: Effects) -> None:
    def failing() -> Any:
        raise RuntimeError

    view = effects.answering(failing)
    with Semel("memory://") as semel, project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
        assert b"Server Error" in post().content


@pytest.mark.anyio
async def test_an_awaited_chain_tells_that_it_was_not_recorded(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        with project(path("orders", effects.awaited), SEMEL={"semel": semel, "scope": SHARED}):
            answer = await apost()
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:semel:problem:not-recorded")


@pytest.mark.anyio
async def test_an_awaited_stream_does_not_end_as_if_it_were_whole(effects: Effects) -> None:
    async def one() -> AsyncIterator[bytes]:
        yield b"one"

    async with AsyncSemel("memory://") as semel:
        view = effects.answering(lambda: StreamingHttpResponse(one()))
        with project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
            chunks = aiter(await apost())
            assert await anext(chunks) == b"one"
            with pytest.raises(Rollback):
                await anext(chunks)


class Stop(BaseException):
    """A server stops a worker in the middle."""


def test_a_view_that_is_cut_off_leaves_its_key_to_the_next(effects: Effects) -> None:
    stops: list[BaseException] = [Stop()]

    def view(request: Any) -> Any:
        if stops:
            raise stops.pop()
        return effects.view(request)

    request = RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})
    with Semel("memory://") as semel, project():
        middleware = IdempotencyMiddleware(view, semel=semel, scope=SHARED)
        with pytest.raises(Stop):
            middleware(request)
        middleware(RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"}))
    assert len(effects.happened) == 1
