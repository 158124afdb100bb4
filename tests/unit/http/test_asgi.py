"""The ASGI middleware, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from semel import AsyncSemel, Policy
from semel.engine.async_engine import AsyncCall
from semel.engine.call_flow import Result
from semel.errors import LeaseLost
from semel.http.exchange import NoAnswer
from semel.http.response import Response
from tests.unit.http.driver import BODY, GONE, START, App, Driver, Message, asked, keyed, part, scope_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def semel() -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel("memory://") as semel:
        yield semel


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_what_is_not_http_passes_untouched(semel: AsyncSemel, kind: str) -> None:
    app = App()
    scope = {"type": kind, "path": "/orders", "headers": [(b"idempotency-key", b"k")]}
    driver = Driver()
    await keyed(app, semel)(scope, driver.receive, driver.send)
    assert app.calls == [scope]
    assert app.calls[0] is scope


async def test_a_request_without_a_key_passes_with_its_own_scope_and_messages(semel: AsyncSemel) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend((scope, receive, send))

    scope, driver = scope_of(key=None), Driver()
    receive, send = driver.receive, driver.send
    await keyed(app, semel)(scope, receive, send)
    assert seen == [scope, receive, send]


async def test_a_body_in_parts_reaches_the_application_whole(semel: AsyncSemel) -> None:
    app = App()
    await asked(keyed(app, semel), part(b'{"a"', more=True), part(b": 1}", more=True), part(b""))
    assert app.bodies == [b'{"a": 1}']


async def test_a_client_that_leaves_in_the_middle_of_its_body_runs_nothing(semel: AsyncSemel) -> None:
    app = App()
    driver = await asked(keyed(app, semel), part(b'{"a"', more=True), GONE)
    assert (app.calls, driver.sent) == ([], [])


async def test_the_last_message_is_sent_only_after_the_outcome_is_recorded(semel: AsyncSemel) -> None:
    statuses: list[str] = []

    async def look(message: Message) -> None:
        record = await semel.read(("/orders", "k-1"), operation="POST /**")
        statuses.append("none" if record is None else record.status.value)

    driver = Driver(on_send=look)
    await keyed(App(), semel)(scope_of(), driver.receive, driver.send)
    assert statuses == ["completed", "completed"]


async def test_all_promised_bytes_in_a_part_are_held_until_the_outcome_is_recorded(semel: AsyncSemel) -> None:
    """As BaseHTTPMiddleware sends: everything in one part that says there is more, then an empty end."""
    start = {**START, "headers": [(b"content-length", b"4")]}
    app = App(start, {"type": "http.response.body", "body": b"done", "more_body": True}, {"type": "http.response.body"})
    driver = Driver()

    async def look(message: Message) -> None:
        record = await semel.read(("/orders", "k-1"), operation="POST /**")
        assert record is not None
        assert record.status.value == "completed"

    driver = Driver(on_send=look)
    await keyed(app, semel)(scope_of(), driver.receive, driver.send)
    assert driver.body == b"done"


async def test_parts_of_a_stream_are_passed_on_as_they_come(semel: AsyncSemel) -> None:
    more = {"type": "http.response.body", "body": b"one", "more_body": True}
    app = App(START, more, {"type": "http.response.body", "body": b"two"})
    driver = Driver()
    statuses: list[str] = []

    async def look(message: Message) -> None:
        record = await semel.read(("/orders", "k-1"), operation="POST /**")
        statuses.append("none" if record is None else record.status.value)

    driver = Driver(on_send=look)
    await keyed(app, semel)(scope_of(), driver.receive, driver.send)
    assert statuses == ["running", "running", "completed"]


async def test_a_stream_is_replayed_whole(semel: AsyncSemel) -> None:
    more = {"type": "http.response.body", "body": b"one", "more_body": True}
    front = keyed(App(START, more, {"type": "http.response.body", "body": b"two"}), semel)
    await asked(front)
    again = await asked(front)
    assert (again.body, again.header("idempotency-replayed")) == (b"onetwo", "true")


async def test_trailers_are_the_end_of_an_answer_that_announces_them(semel: AsyncSemel) -> None:
    trailers = {"type": "http.response.trailers", "headers": [(b"x-sum", b"1")], "more_trailers": False}
    app = App({**START, "trailers": True}, {"type": "http.response.body", "body": b"done"}, trailers)
    driver = await asked(keyed(app, semel))
    assert [message["type"] for message in driver.sent][-1] == "http.response.trailers"
    assert (await asked(keyed(app, semel))).body == b"done"


async def test_background_work_does_not_delay_the_answer(semel: AsyncSemel) -> None:
    app = App()
    app.afterwards = asyncio.Event()
    complete = asyncio.Event()
    driver = Driver(on_send=lambda message: complete.set() if message["type"] == "http.response.body" else None)
    request = asyncio.ensure_future(keyed(app, semel)(scope_of(), driver.receive, driver.send))
    await complete.wait()
    assert not app.ended.is_set()
    app.afterwards.set()
    await request
    assert app.ended.is_set()


async def test_a_duplicate_gets_its_answer_while_background_work_goes_on(semel: AsyncSemel) -> None:
    app = App()
    app.afterwards = asyncio.Event()
    front = keyed(app, semel)
    complete = asyncio.Event()
    driver = Driver(on_send=lambda message: complete.set() if message["type"] == "http.response.body" else None)
    request = asyncio.ensure_future(front(scope_of(), driver.receive, driver.send))
    await complete.wait()
    assert (await asked(front)).header("idempotency-replayed") == "true"
    app.afterwards.set()
    await request


async def test_a_cancelled_request_does_not_stop_its_handler(semel: AsyncSemel) -> None:
    app = App()
    app.may_go_on.clear()
    front, driver = keyed(app, semel), Driver()
    request = asyncio.ensure_future(front(scope_of(), driver.receive, driver.send))
    await app.began.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    app.may_go_on.set()
    await app.ended.wait()
    assert (await asked(front)).header("idempotency-replayed") == "true"
    assert len(app.calls) == 1


async def test_the_handler_hears_of_no_disconnect_while_it_works(semel: AsyncSemel) -> None:
    heard: list[Message] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        listening = asyncio.ensure_future(receive())
        await asyncio.wait([listening], timeout=0)
        heard.extend([listening.result()] if listening.done() else [])
        await send(START)
        await send({"type": "http.response.body", "body": b"done"})
        heard.append(await listening)

    await asked(keyed(app, semel), part(BODY), GONE)
    assert heard == [GONE]


async def test_a_client_that_cannot_be_sent_to_stops_nothing(semel: AsyncSemel) -> None:
    more = {"type": "http.response.body", "body": b"one", "more_body": True}
    app = App(START, more, more, {"type": "http.response.body", "body": b"two"})
    front = keyed(app, semel)

    def refuse(message: Message) -> None:
        raise OSError("gone")

    driver = Driver(on_send=refuse)
    await front(scope_of(), driver.receive, driver.send)
    assert (await asked(front)).body == b"oneonetwo"


async def test_ways_to_answer_that_pass_the_body_by_are_hidden_with_a_key(semel: AsyncSemel) -> None:
    app = App()
    extensions: dict[str, Any] = {"http.response.pathsend": {}, "http.response.debug": {}}
    await asked(keyed(app, semel), extensions=extensions)
    assert app.calls[0]["extensions"] == {"http.response.debug": {}}


async def test_without_a_key_nothing_is_hidden(semel: AsyncSemel) -> None:
    app = App()
    extensions: dict[str, Any] = {"http.response.pathsend": {}}
    await asked(keyed(app, semel), key=None, extensions=extensions)
    assert app.calls[0]["extensions"] == extensions


async def test_an_application_that_ends_without_an_answer_leaves_a_doubt(semel: AsyncSemel) -> None:
    with pytest.raises(NoAnswer):
        await asked(keyed(App(START), semel))
    record = await semel.read(("/orders", "k-1"), operation="POST /**")
    assert record is not None
    assert record.status.value == "in_doubt"


async def test_an_error_after_the_answer_is_the_application_s_own(semel: AsyncSemel) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"done"})
        raise RuntimeError("background")

    front = keyed(app, semel)
    with pytest.raises(RuntimeError, match="background"):
        await asked(front)
    assert (await asked(front)).header("idempotency-replayed") == "true"


async def test_what_is_held_in_doubt_is_409(semel: AsyncSemel) -> None:
    front = keyed(App(START), semel, policy=Policy(in_doubt="hold"))
    with pytest.raises(NoAnswer):
        await asked(front)
    driver = await asked(front)
    assert (driver.status, b"in-doubt" in driver.body) == (409, True)


async def test_the_outcome_of_whoever_has_the_key_now_is_sent(
    semel: AsyncSemel, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Result(Response(202, (), b"theirs"), replayed=True)
    monkeypatch.setattr(AsyncCall, "finish", _gives(recorded))
    driver = await asked(keyed(App(), semel))
    assert (driver.status, driver.body) == (202, b"theirs")


async def test_an_outcome_that_could_not_be_recorded_is_503_and_not_the_application_s_answer(
    semel: AsyncSemel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncCall, "finish", _gives(LeaseLost("lost")))
    driver = await asked(keyed(App(), semel))
    assert (driver.status, b"lease-lost" in driver.body, b"done" in driver.body) == (503, True, False)


async def test_a_handler_that_lost_its_lease_is_503(semel: AsyncSemel) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise LeaseLost("this attempt lost its lease", reference="r")

    driver = await asked(keyed(app, semel))
    assert (driver.status, b"lease-lost" in driver.body) == (503, True)


async def test_the_end_of_a_stream_that_could_not_be_recorded_is_withheld(
    semel: AsyncSemel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncCall, "finish", _gives(LeaseLost("lost")))
    more = {"type": "http.response.body", "body": b"one", "more_body": True}
    driver = await asked(keyed(App(START, more, {"type": "http.response.body", "body": b"two"}), semel))
    assert driver.body == b"one"
    assert driver.sent[-1]["more_body"]


def _gives(outcome: Any) -> Any:
    async def settle(self: Any, value: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return settle
