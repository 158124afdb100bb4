"""A Redis server that takes no commands, or no writes, for a while: a failover, no memory, no primary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from semel import AsyncSemel
from semel.events.brokers import redis_streams
from semel.events.brokers.redis_group import is_unavailable
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import Ledger, a_consumer, an_event, until
from tests.servers.redis import RedisServer, said

NOBODY = ("127.0.0.1", "1")
OUTAGES: dict[str, tuple[list[tuple[str, ...]], list[tuple[str, ...]]]] = {
    "replica": ([("REPLICAOF", *NOBODY)], [("REPLICAOF", "NO", "ONE")]),
    "replica without its primary": (
        [("CONFIG", "SET", "replica-serve-stale-data", "no"), ("REPLICAOF", *NOBODY)],
        [("REPLICAOF", "NO", "ONE")],
    ),
    "no memory": ([("CONFIG", "SET", "maxmemory", "1")], [("CONFIG", "SET", "maxmemory", "0")]),
}
"""What begins each, and what ends it."""
on_outages = pytest.mark.parametrize("outage", OUTAGES)


@pytest.fixture
def url(start_redis: Callable[..., AbstractContextManager[RedisServer]]) -> Iterator[str]:
    with start_redis() as server:
        yield server.endpoint.url


def say(url: str, commands: list[tuple[str, ...]]) -> None:
    for words in commands:
        said(url, *words)


def connections(url: str) -> set[bytes]:
    """Of all clients, this one included."""
    return {line.split()[0] for line in said(url, "CLIENT", "LIST", "TYPE", "normal").splitlines()}


def publisher(url: str) -> redis_streams.RedisPublisher:
    return redis_streams.publisher(url, stream="events")


@pytest.mark.anyio
@pytest.mark.slow
class TestWhileRedisTakesNoWrites:
    """What a listener and a publisher do."""

    @on_outages
    async def test_a_listener_goes_on_afterwards(self, url: str, outage: str, caplog: pytest.LogCaptureFixture) -> None:
        begin, end = OUTAGES[outage]
        ledger = Ledger()

        async def is_noticed() -> bool:
            return "takes no commands for now" in caplog.text

        consumer = a_consumer(AsyncSemel(MemoryStore()), ledger)
        async with redis_streams.listen(consumer, url, stream="events"), publisher(url) as events:
            await events.publish([an_event(1)])
            await ledger.has(1)
            say(url, begin)
            await until(is_noticed, "the listener meets the outage")
            say(url, end)
            await events.publish([an_event(2)])
            await ledger.has(2)
        assert ledger.ids == ["e-1", "e-2"]

    async def test_it_looks_the_server_up_again(self, url: str) -> None:
        async with redis_streams.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), url, stream="events"):
            before = connections(url)

            async def are_new() -> bool:
                return not before & connections(url)

            say(url, OUTAGES["replica"][0])
            await until(are_new, "no connection is one to the server that was the primary")

    async def test_a_group_that_is_gone_too_is_made_afterwards(
        self, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        ledger = Ledger()

        async def is_noticed() -> bool:
            return "takes no commands for now" in caplog.text

        async with redis_streams.listen(a_consumer(AsyncSemel(MemoryStore()), ledger), url, stream="events"):
            say(url, [("FLUSHALL",), *OUTAGES["replica"][0]])
            await until(is_noticed, "the listener meets the outage")
            say(url, OUTAGES["replica"][1])
            async with publisher(url) as events:
                await events.publish([an_event(1)])
                await ledger.has(1)
        assert ledger.ids == ["e-1"]

    @on_outages
    async def test_a_listener_that_starts_says_that_the_server_cannot_be_used(self, url: str, outage: str) -> None:
        say(url, OUTAGES[outage][0])
        with pytest.raises(ConnectionError, match="nothing was taken"):
            async with redis_streams.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), url, stream="events"):
                pass

    @pytest.mark.parametrize("outage", ["replica", "replica without its primary"])
    async def test_a_publisher_says_that_the_server_cannot_be_used(self, url: str, outage: str) -> None:
        say(url, OUTAGES[outage][0])
        async with publisher(url) as events:
            events._version = (7, 0)
            with pytest.raises(ConnectionError, match="publish"):
                await events.publish([an_event(1)])

            async def is_alone() -> bool:
                return len(connections(url)) == 1

            await until(is_alone, "it has no connection to the server that was the primary")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ReadOnlyError("You can't write against a read only replica."), True),
        (OutOfMemoryError("command not allowed"), True),
        (ResponseError("MISCONF Redis is configured to save RDB snapshots"), True),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), True),
        (ResponseError("BUSY Redis is busy running a script."), True),
        (ResponseError("BUSYGROUP Consumer Group name already exists"), False),
        (ResponseError("WRONGTYPE Operation against a key"), False),
        (ResponseError("NOGROUP No such key"), False),
    ],
)
def test_what_passes_by_itself_is_told_from_what_has_to_be_changed(answer: Any, expected: bool) -> None:
    assert is_unavailable(answer) is expected
