"""Looking for what is due and for what a member left behind, member by member, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from semel import AsyncSemel
from semel.events.brokers import redis_group
from semel.events.brokers.redis_group import LEAVE, WAITING, Group
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import Ledger, a_consumer, an_event, publish
from tests.events.test_redis_streams import SERVERS, RedisBench

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

IDLE_MS = 30_000
LONG_AGO_MS = 2 * IDLE_MS


class Stream:
    """A stream, its group, and members of it."""

    def __init__(self, bench: RedisBench) -> None:
        self.bench = bench
        self.client = bench.client
        self.first, self.second = self._member("first"), self._member("second")

    def _member(self, name: str) -> Group:
        return Group(lambda: self.client, self.bench.name, "billing", f"semel-{name}")

    def key(self, part: str) -> str:
        return f"{{{self.bench.name}}}:billing:semel-{part}"

    async def leave_behind(self, number: int) -> list[bytes]:
        """Add so many entries, which a member took long ago that is gone; gives their ids."""
        first = await self.client.xlen(self.bench.name)  # a server that knows identities leaves out what it has
        await publish(self.bench, *(an_event(first + one) for one in range(number)))
        await self.client.xreadgroup("billing", "gone", {self.bench.name: ">"}, count=number)
        ids = [id_ for id_, _ in await self.client.xrevrange(self.bench.name, count=number)][::-1]
        await self.age(ids, "gone")
        return ids

    async def set_aside(self, number: int) -> list[bytes]:
        """Add so many entries that wait since long ago, and for long; gives their ids."""
        ids = await self.leave_behind(number)
        await self.age(ids, WAITING)
        await self.client.zadd(self.key("due"), dict.fromkeys(ids, float(2**50)))
        return ids

    async def age(self, ids: list[bytes], member: str) -> None:
        await self.client.xclaim(self.bench.name, "billing", member, 0, ids, idle=LONG_AGO_MS, justid=True)

    async def take(self, member: Group, room: int) -> tuple[list[bytes], bool] | None:
        """What a member takes that looks once, and whether all was looked at; None: it may not look."""
        swept = await member.sweep(self.client, room, idle_ms=IDLE_MS)
        return None if swept is None else ([id_ for id_, _ in swept.entries], swept.is_over)


@pytest.fixture(params=SERVERS)
async def stream(request: pytest.FixtureRequest) -> AsyncIterator[Stream]:
    keys = request.getfixturevalue(request.param)
    client = Redis.from_url(keys.plain_url, protocol=2)
    bench = RedisBench(keys, client)
    await bench.make()
    await client.xgroup_create(bench.name, "billing", id="0", mkstream=True)
    yield Stream(bench)
    await bench.make()
    await client.delete(f"{bench.name}-nowhere")
    await client.aclose()


async def test_one_member_of_a_group_looks_at_a_time(stream: Stream) -> None:
    ids = await stream.leave_behind(2)
    assert await stream.take(stream.first, 1) == (ids[:1], False)
    assert await stream.take(stream.second, 1) is None, "two members look"
    assert await stream.take(stream.first, 1) == (ids[1:], True)


async def test_a_member_that_looks_no_more_is_followed_by_another(stream: Stream) -> None:
    await stream.take(stream.first, 1)
    lease = await stream.client.pttl(stream.key("sweep"))
    assert 0 < lease <= 2000, "a member that is killed is never followed"
    await stream.client.delete(stream.key("sweep"))  # as after that time
    assert await stream.take(stream.second, 1) == ([], True)


async def test_a_member_that_leaves_is_followed_at_once(stream: Stream) -> None:
    await stream.take(stream.first, 1)
    await stream.first.run(stream.client, LEAVE)
    assert await stream.take(stream.second, 1) == ([], True)


async def test_a_pass_goes_on_where_another_member_stopped(stream: Stream) -> None:
    ids = await stream.leave_behind(4)
    assert await stream.take(stream.first, 2) == (ids[:2], False)
    await stream.client.delete(stream.key("sweep"))
    await stream.age(ids[:2], "gone")  # whoever begins again meets these first
    assert await stream.take(stream.second, 2) == (ids[2:], True)


async def test_a_pass_that_is_over_begins_again(stream: Stream) -> None:
    ids = await stream.leave_behind(2)
    assert await stream.take(stream.first, 5) == (ids, True)
    await stream.age(ids, "gone")
    assert await stream.take(stream.first, 5) == (ids, True)


async def test_what_waits_takes_no_room(stream: Stream) -> None:
    waiting, left = await stream.set_aside(50), await stream.leave_behind(1)
    assert await stream.take(stream.first, 1) == (left, True)
    pending = await stream.client.xpending_range(stream.bench.name, "billing", "-", "+", 100, WAITING)
    assert [one["message_id"] for one in pending] == waiting, "what waits is somebody else's"
    assert await stream.client.zcard(stream.key("due")) == len(waiting)


async def test_what_a_stream_has_no_more_when_it_is_due_is_named(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    dropped, left = await stream.leave_behind(2)
    await stream.age([dropped, left], WAITING)
    await stream.client.zadd(stream.key("due"), {dropped: 1.0, left: 1.0})
    await stream.client.xdel(stream.bench.name, dropped)
    assert await stream.take(stream.first, 5) == ([left], True)
    assert_named(caplog, stream, dropped)


async def test_what_was_left_behind_and_a_stream_has_no_more_is_named(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    dropped, left = await stream.leave_behind(2)
    await stream.client.xdel(stream.bench.name, dropped)
    assert await stream.take(stream.first, 5) == ([left], True)
    assert_named(caplog, stream, dropped)


async def test_what_has_to_come_again_and_a_stream_has_no_more_is_named(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    (dropped,) = await stream.leave_behind(1)
    assert await stream.take(stream.first, 1) == ([dropped], True)
    await stream.client.xdel(stream.bench.name, dropped)
    await stream.first.delay(stream.client, dropped, timedelta(0))
    assert_named(caplog, stream, dropped)
    assert await stream.take(stream.first, 1) == ([], True)
    assert len(caplog.records) == 1, "it is named once"


def assert_named(caplog: pytest.LogCaptureFixture, stream: Stream, dropped: bytes) -> None:
    (record,) = caplog.records
    assert f"the entry {dropped.decode()} of {stream.bench.name} was dropped" in record.message


async def test_one_look_is_at_so_many_and_the_next_goes_on(stream: Stream) -> None:
    looks = redis_group._LOOKS
    await stream.set_aside(2 * looks)
    left = await stream.leave_behind(1)
    found = [await stream.take(stream.first, 7) for _ in range(3)]
    assert found == [([], False), ([], False), (left, True)]


async def test_a_listener_finds_what_was_left_behind_after_many_that_wait(stream: Stream) -> None:
    ledger = Ledger()
    await stream.set_aside(2 * redis_group._LOOKS)
    await stream.leave_behind(1)
    async with stream.bench.listen(
        a_consumer(AsyncSemel(MemoryStore()), ledger), ack_wait=IDLE_MS / 1000, prefetch=1, concurrency=1
    ):
        await ledger.has(1)
    assert ledger.ids == [f"e-{2 * redis_group._LOOKS}"], "the one behind all that wait"
