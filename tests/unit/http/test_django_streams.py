"""Streams of Django: chunks pass on, the end waits for the record, and who stops asking stops nothing."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.http import FileResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory
from django.urls import path

from semel import SHARED, AsyncSemel, Policy, Semel
from semel.http.django import IdempotencyMiddleware
from tests.unit.http.django_project import Effects, apost, post, project


class Final(Exception):
    """Stored."""


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://", policy=Policy(final_errors=(Final,))) as semel:
        yield semel


@pytest.fixture
def chosen(semel: Semel) -> dict[str, Any]:
    return {"semel": semel, "scope": "SHARED"}


def test_a_stream_passes_in_chunks_and_is_replayed(effects: Effects, chosen: dict[str, Any]) -> None:
    view = effects.answering(lambda: StreamingHttpResponse(iter([b"one", "two"])))
    with project(path("orders", view), SEMEL=chosen):
        first = list(post().streaming_content)
        again = post()
    assert (first, again.content, len(effects.happened)) == ([b"one", b"two"], b"onetwo", 1)


def test_a_stream_that_is_closed_early_is_worked_off_and_kept(effects: Effects, chosen: dict[str, Any]) -> None:
    view = effects.answering(lambda: StreamingHttpResponse(iter([b"one", b"two", b"three"])))
    with project(path("orders", view), SEMEL=chosen):
        first = post()
        assert next(first.streaming_content) == b"one"
        first.close()
        again = post()
    assert again.content == b"onetwothree"


def test_a_stream_that_breaks_follows_the_policy(effects: Effects, chosen: dict[str, Any]) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"one"
        raise Final

    with project(path("orders", effects.answering(lambda: StreamingHttpResponse(chunks()))), SEMEL=chosen):
        with pytest.raises(Final):
            list(post().streaming_content)
        assert post().json()["type"] == "urn:semel:problem:failed-before"


def test_a_stream_finds_its_attempt(chosen: dict[str, Any], semel: Semel) -> None:
    def chunks() -> Iterator[str]:
        yield semel.current().derive("next")

    with project(path("orders", lambda request: StreamingHttpResponse(chunks())), SEMEL=chosen):
        assert len(b"".join(post().streaming_content)) == 64


def test_of_a_file_the_last_byte_waits_for_the_record(effects: Effects, chosen: dict[str, Any]) -> None:
    view = effects.answering(lambda: FileResponse(io.BytesIO(b"abc"), filename="a.txt"))
    with project(path("orders", view), SEMEL=chosen):
        first = post()
        assert next(first.streaming_content) == b"abc"
        again = post()  # the first has not ended, and its outcome is there
        first.close()
    assert (again.content, again.headers["Content-Type"]) == (b"abc", "text/plain")


def test_a_large_stream_leaves_a_tombstone(effects: Effects, chosen: dict[str, Any]) -> None:
    view = effects.answering(lambda: StreamingHttpResponse(iter([b"x" * 20])))
    with project(path("orders", view), SEMEL={**chosen, "max_response": 10}):
        assert b"".join(post().streaming_content) == b"x" * 20
        assert post().json()["type"] == "urn:semel:problem:response-not-kept"


async def three() -> AsyncIterator[bytes]:
    for chunk in (b"one", b"two", b"three"):
        yield chunk


@pytest.mark.anyio
async def test_an_awaited_stream_passes_in_chunks_and_is_replayed(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        view = effects.answering(lambda: StreamingHttpResponse(three()))
        with project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
            first = [chunk async for chunk in await apost()]
            again = await apost()
    assert (first, again.content) == ([b"one", b"two", b"three"], b"onetwothree")


@pytest.mark.anyio
async def test_a_called_stream_in_an_awaited_chain_passes_in_chunks(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        view = effects.answering(lambda: StreamingHttpResponse(iter([b"one", b"two"])))
        with project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
            first = [chunk async for chunk in await apost()]
            again = await apost()
    assert (first, again.content) == ([b"one", b"two"], b"onetwo")


@pytest.mark.anyio
async def test_an_awaited_stream_that_is_closed_early_is_worked_off_and_kept(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        view = effects.answering(lambda: StreamingHttpResponse(three()))
        with project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
            first = await apost()
            assert await anext(aiter(first)) == b"one"
            await asyncio.to_thread(first.close)
            again = await apost()
    assert again.content == b"onetwothree"


@pytest.mark.anyio
async def test_an_awaited_stream_that_is_closed_in_the_loop_is_worked_off(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        view = effects.answering(lambda: StreamingHttpResponse(three()))
        with project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
            (await apost()).close()
            again = await apost()  # waits for the first
    assert again.content == b"onetwothree"


@pytest.mark.anyio
async def test_an_awaited_stream_that_breaks_follows_the_policy(effects: Effects) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        raise Final

    async with AsyncSemel("memory://", policy=Policy(final_errors=(Final,))) as semel:
        view = effects.answering(lambda: StreamingHttpResponse(chunks()))
        with project(path("orders", view), SEMEL={"semel": semel, "scope": SHARED}):
            with pytest.raises(Final):
                [chunk async for chunk in await apost()]
            assert (await apost()).json()["type"] == "urn:semel:problem:failed-before"


class Held:
    """A view that waits until it is let go, and then streams."""

    def __init__(self) -> None:
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        self.times = 0

    async def view(self, request: Any) -> StreamingHttpResponse:
        await self._wait()
        return StreamingHttpResponse(three())

    async def streaming(self, request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(self._waiting())

    async def _waiting(self) -> AsyncIterator[bytes]:
        yield b"one"
        await self._wait()
        yield b"two"

    async def _wait(self) -> None:
        self.times += 1
        self.reached.set()
        await self.let_go.wait()


def asked() -> Any:
    return AsyncRequestFactory().post("/orders", headers={"Idempotency-Key": "k1"})


@pytest.mark.anyio
async def test_a_client_that_leaves_does_not_stop_the_view() -> None:
    held = Held()
    async with AsyncSemel("memory://") as semel:
        middleware = IdempotencyMiddleware(held.view, semel=semel, scope=SHARED)
        with project():
            first = asyncio.ensure_future(middleware(asked()))
            await held.reached.wait()
            first.cancel()
            held.let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await first
            again = await middleware(asked())
    assert (again.content, held.times) == (b"onetwothree", 1)


@pytest.mark.anyio
async def test_a_client_that_leaves_a_stream_does_not_stop_it() -> None:
    held = Held()
    async with AsyncSemel("memory://") as semel:
        middleware = IdempotencyMiddleware(held.streaming, semel=semel, scope=SHARED)
        with project():
            chunks = aiter(await middleware(asked()))
            await anext(chunks)
            second = asyncio.ensure_future(anext(chunks))
            await held.reached.wait()
            second.cancel()
            held.let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await second
            again = await middleware(asked())
    assert (again.content, held.times) == (b"onetwo", 1)
