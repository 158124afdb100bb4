"""How long a listener to Redis waits for its server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub

from semel.events.brokers import redis_streams
from semel.events.brokers.faststream import on_redis
from semel.events.brokers.listening import RetryDelay
from semel.events.brokers.redis_group import ANSWER_WITHIN, Group

LONG = 10
URL = "redis://127.0.0.1:1/"


def as_listened(url: str, options: dict[str, Any]) -> Any:
    return redis_streams._connecting(url, options)()


def as_under_faststream(url: str, options: dict[str, Any]) -> Any:
    broker = RedisBroker(url, **options)
    stream = StreamSub("events", group="billing", consumer="one")
    return on_redis._connect(broker.subscriber(stream=stream, ack_policy=AckPolicy.MANUAL))


@pytest.mark.parametrize("name", ["socket_timeout", "socket_connect_timeout"])
@pytest.mark.parametrize("connect", [as_listened, as_under_faststream])
def test_a_server_that_is_silent_is_not_waited_for_without_an_end(
    connect: Callable[[str, dict[str, Any]], Any], name: str
) -> None:
    assert connect(URL, {}).connection_pool.connection_kwargs[name] == ANSWER_WITHIN
    assert connect(URL, {name: 9}).connection_pool.connection_kwargs[name] == 9
    assert connect(f"{URL}?{name}=8", {}).connection_pool.connection_kwargs[name] == 8


@pytest.mark.parametrize("connect", [as_listened, as_under_faststream])
def test_answers_have_one_shape_whatever_an_address_asks_for(connect: Callable[[str, dict[str, Any]], Any]) -> None:
    for url, given in (
        (f"{URL}?protocol=3&decode_responses=yes", {}),
        (URL, {"protocol": 3, "decode_responses": True}),
    ):
        settings = connect(url, given).connection_pool.connection_kwargs
        assert (settings["protocol"], settings["decode_responses"]) == (2, False)


class QuietServer:
    """Has no entries, and notes for how long it was asked to wait for some."""

    def __init__(self, answer_within: float | None) -> None:
        self.connection_pool = SimpleNamespace(connection_kwargs={"socket_timeout": answer_within})
        self.blocks: list[int | None] = []

    async def xreadgroup(self, *_: Any, block: int | None, **__: Any) -> list[Any]:
        self.blocks.append(block)
        return []


def a_subscription(server: Any) -> redis_streams._Subscription:
    return redis_streams._Subscription(
        Group(lambda: server, "events", "billing"), prefetch=1, ack_wait=30.0, longest=60.0, dead_letter_stream=None
    )


@pytest.mark.anyio
@pytest.mark.parametrize(("answer_within", "block"), [(None, 2000), (10.0, 2000), (1.0, 500), (0.0001, 1)])
async def test_a_read_ends_before_its_connection_is_taken_for_lost(answer_within: float | None, block: int) -> None:
    server: Any = QuietServer(answer_within)
    await a_subscription(server)._read()
    assert server.blocks == [block]


@pytest.mark.anyio
async def test_each_outage_is_met_with_the_shortest_wait_by_whoever_looks_for_what_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[int] = []
    looks = itertools.count()
    subscription = a_subscription(QuietServer(None))

    async def sweep(*_: Any, **__: Any) -> None:
        if next(looks) % 2:
            raise ConnectionError

    async def wait(delay: RetryDelay, _: str) -> None:
        delay._failures += 1
        failures.append(delay._failures)
        if len(failures) == 5:
            await subscription.pause()

    monkeypatch.setattr(Group, "sweep", sweep)
    monkeypatch.setattr(RetryDelay, "wait", wait)
    monkeypatch.setattr(redis_streams, "SWEEP_EVERY", 0)
    await asyncio.wait_for(subscription._repeat(subscription._sweep), LONG)
    assert failures == [1] * 5
