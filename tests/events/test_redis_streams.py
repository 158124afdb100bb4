"""The adapter of Redis streams on a real server."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from semel import AsyncSemel
from semel.errors import UsageError
from semel.events import Backoff, Consumer, Event
from semel.events.brokers import redis_streams as adapter
from semel.events.brokers.redis_group import Group
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import (
    LONG,
    SOON,
    AskingBrokerCases,
    Bench,
    Ledger,
    a_consumer,
    an_event,
    is_empty,
    publish,
    until,
)
from tests.servers.redis import Keys
from tests.servers.redis_newest import NewestRedis

SERVERS = ["redis_keys", *(["newest_redis_keys"] if NewestRedis.is_asked_for() else [])]


class RedisBench(Bench):
    """A stream, one for dead letters, and a key that is no stream."""

    def __init__(self, keys: Keys, client: Any) -> None:
        super().__init__(keys.plain_url.partition("?")[0])
        self.name = f"{keys.prefix}-events"
        self.dead = f"{self.name}-dead"
        self.client = client

    async def make(self) -> None:
        await self.client.delete(
            self.name, self.dead, *[f"{{{self.name}}}:billing:semel-{n}" for n in ("due", "sweep", "cursor")]
        )
        await self.client.set(f"{self.name}-nowhere", "no stream")

    def publisher(self, url: str | None = None) -> Any:
        def stream(event: Event) -> str:
            return self.name if event.type == "registered" else f"{self.name}-{event.type}"

        return adapter.publisher(url or self.url, stream=stream)

    def _listen(self, consumer: Any, url: str, **settings: Any) -> AbstractAsyncContextManager[None]:
        given = {"dead_letter_stream": self.dead, **settings}
        return adapter.listen(consumer, url, stream=self.name, **given)

    async def _count_unsettled(self) -> int:
        groups = await self.client.xinfo_groups(self.name)
        if not groups:
            return int(await self.client.xlen(self.name))
        last = groups[0]["last-delivered-id"].decode()
        return int(groups[0]["pending"]) + len(await self.client.xrange(self.name, min=f"({last}"))

    async def passed_on(self) -> list[str]:
        return [fields[b"ce-id"].decode() for _, fields in await self.client.xrange(self.dead)]


@pytest.fixture(params=SERVERS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[RedisBench]:
    keys = request.getfixturevalue(request.param)
    client = Redis.from_url(keys.plain_url, protocol=2)
    made = RedisBench(keys, client)
    await made.make()
    yield made
    await made.make()
    await client.delete(f"{made.name}-nowhere")
    await client.aclose()


class TestRedisStreams(AskingBrokerCases):
    """What holds on every broker."""

    async def send_raw(self, bench: Bench, headers: dict[str, str], body: bytes) -> None:
        assert isinstance(bench, RedisBench)
        await bench.client.xadd(bench.name, {**headers, "data": body})


@pytest.mark.anyio
@pytest.mark.slow
class TestOnRedisAlone:
    """What is special about it."""

    async def test_without_acknowledgements_it_does_not_listen(self, bench: RedisBench) -> None:
        with pytest.raises(UsageError, match="no_ack"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), no_ack=True):
                pass

    async def test_dead_letters_that_would_come_again_are_refused(self, bench: RedisBench) -> None:
        with pytest.raises(UsageError, match="dead_letter_stream"):
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), dead_letter_stream=bench.name):
                pass

    async def test_a_key_that_is_no_stream_is_named(self, bench: RedisBench) -> None:
        name = f"{bench.name}-nowhere"
        with pytest.raises(UsageError, match="cannot be read as a stream"):
            async with adapter.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger()), bench.url, stream=name):
                pass

    async def test_what_a_member_left_behind_that_is_gone_is_taken(self, bench: RedisBench) -> None:
        ledger = Ledger()
        await publish(bench, *(an_event(number) for number in range(20)))
        await bench.client.xgroup_create(bench.name, "billing", id="0")
        await bench.client.xreadgroup("billing", "gone", {bench.name: ">"}, count=15)
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger), ack_wait=0.2, prefetch=4, concurrency=2):
            await ledger.has(20)
            await until(lambda: is_empty(bench), "all is acknowledged")
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(20))

    async def test_a_handler_that_burns_the_processor_for_three_deadlines_runs_once(self, bench: RedisBench) -> None:
        store, ledger, runs = MemoryStore(), Ledger(), list[str]()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(store), "billing")
        burning, burned = threading.Event(), threading.Event()

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            runs.append(event.id)
            burning.set()
            until_then = time.perf_counter() + 6.4
            while time.perf_counter() < until_then:
                pass
            burned.set()
            await ledger.add(event.id)

        other = OtherListener(bench, burned)
        async with bench.listen(consumer, ack_wait=2.0, concurrency=1):
            await publish(bench, an_event())
            assert await asyncio.to_thread(burning.wait, LONG)
            await ledger.has(1)
        assert await asyncio.to_thread(other.stop) == [], "somebody else was given the entry"
        assert runs == ["e-1"]

    async def test_who_lost_an_entry_does_not_settle_the_copy_of_another(self, bench: RedisBench) -> None:
        store, ledger = MemoryStore(), Ledger()
        entered, may_end = asyncio.Event(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(store), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            entered.set()
            await may_end.wait()
            await ledger.add(event.id)

        await publish(bench, an_event())
        async with bench.listen(consumer):
            await asyncio.wait_for(entered.wait(), LONG)
            ((entry, _),) = await bench.client.xrange(bench.name)
            await bench.client.xclaim(bench.name, "billing", "another", 0, [entry])
            may_end.set()
            await ledger.has(1)
        pending = await bench.client.xpending_range(bench.name, "billing", "-", "+", 10)
        assert [one["consumer"] for one in pending] == [b"another"]

    async def test_a_stream_that_is_deleted_and_made_again_is_read_again(self, bench: RedisBench) -> None:
        ledger = Ledger()
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
            await publish(bench, an_event(1))
            await ledger.has(1)
            await bench.client.delete(bench.name)
            await publish(bench, an_event(2))
            await ledger.has(2)
        assert ledger.ids == ["e-1", "e-2"]

    async def test_what_waits_is_taken_when_its_due_time_is_lost(self, bench: RedisBench) -> None:
        ledger, failed = Ledger(), asyncio.Event()
        backoff = Backoff(first=3600.0, most=3600.0)
        consumer: Consumer[AsyncSemel] = Consumer(
            AsyncSemel(MemoryStore()), "billing", backoff=backoff, in_doubt="rerun"
        )

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            if not failed.is_set():
                failed.set()
                raise LookupError("not yet")
            await ledger.add(event.id)

        async def is_set_aside() -> bool:
            return bool(await bench.client.delete(f"{{{bench.name}}}:billing:semel-due"))

        await publish(bench, an_event())
        async with bench.listen(consumer, ack_wait=0.2):
            await until(is_set_aside, "it waits for its due time")
            await ledger.has(1)
        assert await bench.unsettled() == 0

    async def test_a_member_that_is_gone_and_has_nothing_is_removed(
        self, bench: RedisBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adapter, "_GONE_AFTER_MS", 0)
        await bench.client.xgroup_create(bench.name, "billing", id="0", mkstream=True)
        await bench.client.xgroup_createconsumer(bench.name, "billing", "semel-gone")
        await bench.client.xgroup_createconsumer(bench.name, "billing", "of-somebody-else")

        async def is_removed() -> bool:
            members = await bench.client.xinfo_consumers(bench.name, "billing")
            return b"semel-gone" not in [one["name"] for one in members]

        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger())):
            await until(is_removed, "the member is removed")
        members = await bench.client.xinfo_consumers(bench.name, "billing")
        assert [one["name"] for one in members] == [b"of-somebody-else"]

    async def test_a_server_that_knows_identities_leaves_out_an_event_that_it_has(self, bench: RedisBench) -> None:
        knows_identities = await adapter.read_version(bench.client) >= (8, 6)
        await publish(bench, an_event(1), an_event(2))
        await publish(bench, an_event(1), an_event(1, source="/facilities/8"))
        assert await bench.client.xlen(bench.name) == (3 if knows_identities else 4)

    async def test_what_a_group_has_not_acknowledged_outlasts_the_limit_of_a_stream(self, bench: RedisBench) -> None:
        can_keep = await adapter.read_version(bench.client) >= (8, 2)
        await bench.client.xgroup_create(bench.name, "billing", id="0", mkstream=True)
        await bench.client.xgroup_create(bench.name, "audit", id="0")
        events = [an_event(number) for number in range(300)]  # more than one node of a stream holds
        async with adapter.publisher(bench.url, stream=bench.name, max_length=1, keep_unread=True) as publisher:
            assert await publisher.publish(events) == [None] * 300
            ((_, entries),) = await bench.client.xreadgroup("billing", "one", {bench.name: ">"})
            await bench.client.xack(bench.name, "billing", *[id_ for id_, _ in entries])
            assert await publisher.publish([an_event(300)]) == [None]
            assert await bench.client.xlen(bench.name) == 301, "the other group has read nothing"
            ((_, entries),) = await bench.client.xreadgroup("audit", "one", {bench.name: ">"}, count=300)
            assert await publisher.publish([an_event(301)]) == [None]
            assert await bench.client.xlen(bench.name) == 302, "the other group has acknowledged nothing"
            await bench.client.xack(bench.name, "audit", *[id_ for id_, _ in entries])
            assert await publisher.publish([an_event(302)]) == [None]
        left = await bench.client.xlen(bench.name)
        assert 3 <= left < 200 if can_keep else left == 303

    async def test_an_entry_whose_handler_is_wedged_is_taken_by_the_only_member_again(self, bench: RedisBench) -> None:
        ledger, entered, may_end = Ledger(), list[str](), asyncio.Event()
        second = timedelta(seconds=1)
        consumer: Consumer[AsyncSemel] = Consumer(
            AsyncSemel(MemoryStore()), "billing", backoff=SOON, in_doubt="rerun", max_runtime=second, lease_for=second
        )

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            entered.append(event.id)
            if len(entered) == 1:
                await may_end.wait()
            await ledger.add(event.id)

        await publish(bench, an_event())
        async with bench.listen(consumer, ack_wait=0.2):
            await ledger.has(1)
            await until(lambda: is_empty(bench), "the second run is acknowledged")
            assert len(entered) == 2
            may_end.set()

    async def test_an_entry_that_was_dropped_is_acknowledged_and_no_dead_letter(
        self, bench: RedisBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        ledger = Ledger()
        consumer = a_consumer(AsyncSemel(MemoryStore()), ledger)
        await publish(bench, an_event(1), an_event(2))
        await bench.client.xgroup_create(bench.name, "billing", id="0")
        monkeypatch.setattr(secrets, "token_hex", lambda _: "lost")
        group = Group(lambda: bench.client, bench.name, "billing")
        ((_, ((dropped, _), _)),) = await bench.client.xreadgroup("billing", group.member, {bench.name: ">"})
        await bench.client.xdel(bench.name, dropped)
        reads_its_own = adapter._Subscription.start

        async def start(self: Any, take: Any) -> None:
            self._may_have_more = True  # the answer that told of both was lost
            await reads_its_own(self, take)

        monkeypatch.setattr(adapter._Subscription, "start", start)
        async with bench.listen(consumer):
            await ledger.has(1)
            await until(lambda: is_empty(bench), "both are acknowledged")
        assert ledger.ids == ["e-2"]
        assert [letter async for letter in consumer.dead_letters()] == []
        assert f"the entry {dropped.decode()} of {bench.name} was dropped" in caplog.text

    async def test_a_key_that_is_no_stream_is_told_from_one_that_is_not_there(self, bench: RedisBench) -> None:
        with pytest.raises(UsageError, match="is no stream"):
            await adapter.read_stream(bench.url, f"{bench.name}-nowhere", None)
        with pytest.raises(UsageError, match="There is no stream"):
            await adapter.read_stream(bench.url, f"{bench.name}-missing", None)

    async def test_a_member_that_ends_leaves_no_trace(self, bench: RedisBench) -> None:
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), Ledger())):
            pass
        assert await bench.client.xinfo_consumers(bench.name, "billing") == []


class OtherListener:
    """A second process of the same group, in a thread: takes what is left alone for two seconds."""

    def __init__(self, bench: RedisBench, until: threading.Event) -> None:
        self._bench, self._until = bench, until
        self._taken: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> list[bytes]:
        self._thread.join(LONG)
        return self._taken

    def _run(self) -> None:
        with SyncRedis.from_url(self._bench.url, protocol=2) as client:
            while not self._until.wait(0.05):
                with suppress(ResponseError):  # the group is not there yet
                    found = client.xautoclaim(self._bench.name, "billing", "other", 2000, "0-0", justid=True)
                    self._taken += found
