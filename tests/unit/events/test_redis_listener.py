"""How long a listener to Redis waits for its server."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub

from semel.events.brokers import redis_streams
from semel.events.brokers.faststream import on_redis
from semel.events.brokers.redis_group import ANSWER_WITHIN, Group

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


class QuietServer:
    """Has no entries, and notes for how long it was asked to wait for some."""

    def __init__(self, answer_within: float | None) -> None:
        self.connection_pool = SimpleNamespace(connection_kwargs={"socket_timeout": answer_within})
        self.blocks: list[int | None] = []

    async def xreadgroup(self, *_: Any, block: int | None, **__: Any) -> list[Any]:
        self.blocks.append(block)
        return []


@pytest.mark.anyio
@pytest.mark.parametrize(("answer_within", "block"), [(None, 2000), (10.0, 2000), (1.0, 500), (0.0001, 1)])
async def test_a_read_ends_before_its_connection_is_taken_for_lost(answer_within: float | None, block: int) -> None:
    server: Any = QuietServer(answer_within)
    subscription = redis_streams._Subscription(
        Group(lambda: server, "events", "billing"), prefetch=1, ack_wait=30.0, longest=60.0, dead_letter_stream=None
    )
    await subscription._read()
    assert server.blocks == [block]
