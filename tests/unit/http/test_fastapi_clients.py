"""FastAPI: clients that leave, servers that cancel, and the last byte that waits for the record."""

import asyncio
import contextvars
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from semel import AsyncSemel, Policy
from semel.stores.memory import MemoryStore
from semel.testing.clock import VirtualClock
from tests.unit.http.fastapi_shop import KEY, Busy, Shop, is_replay, making

pytestmark = pytest.mark.anyio

WHOLE = {"type": "http.request", "body": b"", "more_body": False}
HALF = {"type": "http.request", "body": b"{", "more_body": True}
GONE = {"type": "http.disconnect"}


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    async with making() as make:
        yield make()


class Client:
    """Somebody who speaks ASGI, message by message."""

    def __init__(self, shop: Shop, *received: dict[str, Any]) -> None:
        self.sent: list[Any] = []
        self.leaves = False
        self.known_at_the_end: str | None = None
        self._received = list(received)
        self._shop = shop
        shop.app.include_router(shop.router)

    def asks(self) -> Any:
        """Post, as the same client would with httpx."""
        headers = [(name.lower().encode(), value.encode()) for name, value in KEY.items()]
        head = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
        return self._shop.app({**head, "extensions": {"http.response.pathsend": {}}}, self._receive, self._send)

    async def _receive(self) -> Any:
        return self._received.pop(0) if self._received else GONE

    async def _send(self, message: Any) -> None:
        if self.leaves:
            raise OSError
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.known_at_the_end = await status(self._shop)
        self.sent.append(message)


async def status(shop: Shop) -> str | None:
    record = await shop.semel.read("k-1", operation="POST /", scope="alice")
    return None if record is None else record.status


async def test_an_upload_cut_off_in_the_middle_is_never_executed(shop: Shop) -> None:
    shop.post("/", shop.happened)
    client = Client(shop, HALF, GONE)
    await client.asks()
    assert (client.sent, shop.effects, await status(shop)) == ([], [], None)


async def test_a_cancelled_request_runs_on_and_is_replayed(shop: Shop) -> None:
    reached, may_go = asyncio.Event(), asyncio.Event()

    async def order() -> int:
        reached.set()
        await may_go.wait()
        return shop.happened()

    shop.post("/", order)
    request = asyncio.ensure_future(Client(shop, WHOLE).asks())
    await reached.wait()
    request.cancel()
    await asyncio.wait([request])
    may_go.set()
    again = await shop.ask()
    assert (again.json(), is_replay(again), len(shop.effects)) == (1, True, 1)


async def test_what_a_cancelled_request_has_opened_stays_open_while_it_runs(shop: Shop) -> None:
    reached, may_go, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def order(request: Request) -> None:
        request.scope["fastapi_middleware_astack"].callback(over.set)  # as FastAPI does with the files of a form
        reached.set()
        await may_go.wait()
        shop.effects.append(over.is_set())

    shop.post("/", order)
    request = asyncio.ensure_future(Client(shop, WHOLE).asks())
    await reached.wait()
    request.cancel()
    await asyncio.wait([request])
    may_go.set()
    await over.wait()
    assert shop.effects == [False]


async def test_an_endpoint_is_not_told_that_the_client_left_before_its_answer(shop: Shop) -> None:
    async def order(request: Request) -> bool:
        return await request.is_disconnected()

    shop.post("/", order)
    client = Client(shop, WHOLE, GONE)
    await client.asks()
    assert client.sent[-1]["body"] == b"false"


async def test_a_client_that_does_not_listen_stops_nothing(shop: Shop) -> None:
    shop.post("/", shop.happened)
    client = Client(shop, WHOLE)
    client.leaves = True
    await client.asks()
    assert await status(shop) == "completed"


async def test_chunks_pass_on_and_the_end_waits_for_the_record(shop: Shop) -> None:
    seen: list[tuple[str | None, int]] = []

    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        seen.append((await status(shop), len(client.sent)))
        yield b"two"

    async def order() -> Response:
        return StreamingResponse(chunks())

    shop.post("/", order)
    client = Client(shop, WHOLE)
    await client.asks()
    assert (seen, client.known_at_the_end) == ([("running", 2)], "completed")
    assert [message.get("body") for message in client.sent] == [None, b"one", b"two", b""]


async def test_a_stream_that_breaks_off_is_not_kept(shop: Shop) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        shop.happened()
        yield b"one"
        raise RuntimeError("out of paper")

    async def order() -> Response:
        return StreamingResponse(chunks())

    shop.post("/", order)
    client = Client(shop, WHOLE)
    with pytest.raises(RuntimeError, match="out of paper"):
        await client.asks()
    assert (client.sent[-1]["body"], await status(shop)) == (b"one", "in_doubt")


async def test_an_endpoint_that_is_cut_off_is_left_in_doubt(shop: Shop) -> None:
    async def order() -> None:
        raise asyncio.CancelledError

    shop.post("/", order)
    with pytest.raises(asyncio.CancelledError):
        await Client(shop, WHOLE).asks()
    assert await status(shop) == "in_doubt"


async def test_ways_to_answer_that_cannot_be_looked_at_are_hidden(shop: Shop) -> None:
    async def order(request: Request) -> list[str]:
        return list(request.scope["extensions"])

    shop.post("/", order)
    client = Client(shop, WHOLE)
    await client.asks()
    assert client.sent[-1]["body"] == b"[]"


async def test_a_failure_that_comes_too_late_gives_way_to_the_outcome_that_is_there() -> None:
    clock = VirtualClock()
    semel = AsyncSemel(MemoryStore(clock=clock.store_clock), clock=clock, policy=Policy(retry_errors=(Busy,)))

    async with making() as make:
        shop = make(semel=semel)

        async def order() -> int:
            number = shop.happened()
            if number == 1:
                clock.advance(60)  # its lease is over, and somebody else asks
                await asyncio.create_task(shop.ask(), context=contextvars.Context())
                raise Busy
            return number

        shop.post("/", order)
        answer = await shop.ask()
    assert (answer.json(), is_replay(answer)) == (2, True)
