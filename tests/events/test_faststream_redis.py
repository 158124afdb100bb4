"""An inbox in FastStream's Redis broker, with streams, on a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from faststream import AckPolicy, Context
from faststream.exceptions import StopConsume
from faststream.redis import ListSub, PubSub, RedisBroker, StreamSub
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from semel import AsyncSemel
from semel.errors import UsageError
from semel.events import Event
from semel.events.brokers.redis_group import RELEASE, Group
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import LONG, Ledger, an_event, is_empty, publish, until
from tests.events.faststream_cases import (
    ACK_WAIT,
    FastStreamCases,
    Site,
    Watcher,
    an_inbox,
    burn_for_three_deadlines,
    writing_to,
)
from tests.events.test_redis_streams import RedisBench
from tests.servers.redis import Keys


class RedisSite(Site):
    """The stream of a bench, and a group of it that begins at the first entry."""

    bench: RedisBench

    def __init__(self, bench: RedisBench, workers: int = 4) -> None:
        super().__init__(bench)
        self._members = count(1)
        self._workers = workers

    def broker(self, url: str, **settings: Any) -> Any:
        return RedisBroker(url, graceful_timeout=10.0, **settings)

    def subscriber(self, broker: Any, **settings: Any) -> Any:
        given = {"max_records": 8, "polling_interval": 50, **settings.pop("of_stream", {})}
        stream = StreamSub(self.bench.name, group="billing", consumer=f"worker-{next(self._members)}", **given)
        return broker.subscriber(stream=stream, **{"max_workers": self._workers, **settings})

    async def stop(self, broker: Any, *, is_lost: bool) -> None:
        """Stop a broker. FastStream does not wait for the tasks that it cancels, and one may just be connecting."""
        client = broker._connection
        reading = [task for subscriber in broker.subscribers for task in subscriber.tasks]
        try:
            await super().stop(broker, is_lost=is_lost)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
            if client is not None:
                await client.aclose()


@pytest.fixture(params=[1, 4], ids=["one-worker", "four-workers"])
async def site(request: pytest.FixtureRequest, redis_keys: Keys) -> AsyncIterator[RedisSite]:
    connection = Redis.from_url(redis_keys.plain_url, protocol=2)
    bench = RedisBench(redis_keys, connection)
    await bench.make()
    await connection.xgroup_create(bench.name, "billing", id="0", mkstream=True)
    yield RedisSite(bench, request.param)
    await bench.make()
    await connection.delete(f"{bench.name}-nowhere")
    await connection.aclose()


class TestFastStreamOnRedis(FastStreamCases):
    """What holds on every broker."""

    async def send_plain(self, site: Site, body: Any, headers: dict[str, str] | None = None) -> None:
        assert isinstance(site, RedisSite)
        async with site.broker(site.bench.url) as broker:
            await broker.publish(body, stream=site.bench.name, headers=headers)


@pytest.mark.anyio
@pytest.mark.slow
class TestOnRedisAlone:
    """What is special about it."""

    async def test_a_handler_that_burns_the_processor_for_three_deadlines_runs_once(self, site: RedisSite) -> None:
        with SyncRedis.from_url(site.bench.url, protocol=2) as other:

            def look() -> list[Any]:
                idle_ms = int(ACK_WAIT * 1000)
                return list(other.xautoclaim(site.bench.name, "billing", "other", idle_ms, "0-0", justid=True))

            with Watcher(look) as taken:
                runs = await burn_for_three_deadlines(site, threading.Event())
        assert (runs, taken) == (["e-1"], []), "somebody else was given the entry"

    async def test_what_a_process_left_behind_that_is_gone_is_taken(self, site: RedisSite) -> None:
        ledger = Ledger()
        await publish(site.bench, *(an_event(number) for number in range(10)))
        await site.bench.client.xreadgroup("billing", "gone", {site.bench.name: ">"}, count=7)
        async with site.running(an_inbox(ack_wait=0.2), writing_to(ledger)):
            await ledger.has(10)
            await until(lambda: is_empty(site.bench), "all is acknowledged")
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(10))

    async def test_who_lost_an_entry_does_not_settle_the_copy_of_another(self, site: RedisSite) -> None:
        ledger = Ledger()
        await publish(site.bench, an_event())

        async def registered() -> None:
            ((entry, _),) = await site.bench.client.xrange(site.bench.name)
            await site.bench.client.xclaim(site.bench.name, "billing", "another", 0, [entry])
            await ledger.add("ran")

        async with site.running(an_inbox(), registered):
            await ledger.has(1)
        pending = await site.bench.client.xpending_range(site.bench.name, "billing", "-", "+", 10)
        assert [one["consumer"] for one in pending] == [b"another"]

    async def test_an_entry_that_came_again_may_stop_its_subscriber(self, site: RedisSite) -> None:
        client, name = site.bench.client, site.bench.name

        async def registered(attempt: Any = Context("semel_attempt")) -> None:
            if attempt.number == 1:
                raise LookupError("not yet")
            raise StopConsume

        await publish(site.bench, an_event())
        box = an_inbox(in_doubt="rerun")
        async with site.running(box, registered) as subscriber:

            async def has_given_back() -> bool:
                pending = await client.xpending_range(name, "billing", "-", "+", 10)
                lease = await client.exists(f"{{{name}}}:billing:semel-sweep")
                return (
                    not subscriber.running and not lease and [one["consumer"] for one in pending] == [b"semel-waiting"]
                )

            await until(has_given_back, "the subscriber is stopped, and what it had is free")

    async def test_an_entry_that_takes_long_when_it_comes_again_holds_up_no_other(self, site: RedisSite) -> None:
        ledger, second_ran = Ledger(), asyncio.Event()

        async def registered(event: Event = Context("semel_event"), attempt: Any = Context("semel_attempt")) -> None:
            if attempt.number == 1:
                raise LookupError("not yet")
            if event.id == "e-1":
                await second_ran.wait()
            else:
                second_ran.set()
            await ledger.add(event.id)

        store = MemoryStore()
        boxes = [an_inbox(AsyncSemel(store), in_doubt="rerun") for _ in range(2)]
        await publish(site.bench, an_event(1), an_event(2))
        async with site.running(boxes[0], registered), site.running(boxes[1], registered):
            await ledger.has(2)
        assert ledger.ids == ["e-2", "e-1"]

    async def test_an_entry_whose_handler_is_wedged_is_taken_by_the_only_member_again(self, site: RedisSite) -> None:
        ledger, entered, may_end = Ledger(), list[int](), asyncio.Event()

        async def registered(event: Event = Context("semel_event"), attempt: Any = Context("semel_attempt")) -> None:
            entered.append(attempt.number)
            if attempt.number == 1:
                await may_end.wait()
            await ledger.add(event.id)

        await publish(site.bench, an_event())
        async with site.running(an_inbox(in_doubt="rerun", max_runtime=1.0, ack_wait=0.2), registered):
            await ledger.has(1)
            await until(lambda: is_empty(site.bench), "the second run is acknowledged")
            assert entered == [1, 2]
            may_end.set()

    async def test_what_is_given_back_at_a_stop_is_not_cut_off_by_another_stop(
        self, site: RedisSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """FastStream cancels the handler that stopped its subscriber, where somebody else stops it, too."""
        reached, may_go_on, given_back, run = asyncio.Event(), asyncio.Event(), list[str](), Group.run

        async def run_slowly(self: Group, client: Any, script: str, *values: Any) -> Any:
            if script is RELEASE:
                reached.set()
                await may_go_on.wait()
                given_back.append(self.stream)
            return await run(self, client, script, *values)

        async def registered() -> None:
            raise StopConsume

        monkeypatch.setattr(Group, "run", run_slowly)
        await publish(site.bench, an_event())
        async with site.running(an_inbox(), registered) as subscriber:
            await asyncio.wait_for(reached.wait(), LONG)
            other = asyncio.create_task(subscriber.stop())
            for _ in range(100):
                await asyncio.sleep(0)  # so far as it comes
            may_go_on.set()
            await asyncio.wait_for(other, LONG)
            assert given_back == [site.bench.name]

    async def test_what_is_held_is_given_back_where_the_stop_is_not_waited_for(self, site: RedisSite) -> None:
        entered, may_end = asyncio.Event(), asyncio.Event()

        async def registered() -> None:
            entered.set()
            await may_end.wait()

        await publish(site.bench, an_event())
        async with site.running(an_inbox(), registered) as subscriber:
            await asyncio.wait_for(entered.wait(), LONG)
            stopping = asyncio.create_task(subscriber.stop())
            await asyncio.sleep(0)  # it waits for the handler
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            pending = await site.bench.client.xpending_range(site.bench.name, "billing", "-", "+", 10)
            assert [one["consumer"] for one in pending] == [b"semel-waiting"]
            may_end.set()

    async def test_an_entry_of_faststream_itself_is_read(self, site: RedisSite) -> None:
        ledger, (headers, body) = Ledger(), an_event().to_headers()
        async with site.running(an_inbox(), writing_to(ledger)), site.broker(site.bench.url) as broker:
            for _ in range(2):
                await broker.publish(body, stream=site.bench.name, headers=headers)
            await ledger.has(1)
            await until(lambda: is_empty(site.bench), "all is acknowledged")
        assert ledger.ids == ["e-1"]

    @pytest.mark.parametrize(
        "settings",
        [{"channel": PubSub("assets")}, {"list": ListSub("assets")}, {"stream": StreamSub("assets")}],
        ids=["channel", "list", "no-group"],
    )
    async def test_what_redis_does_not_keep_is_refused(self, site: RedisSite, settings: dict[str, Any]) -> None:
        broker = site.broker(site.bench.url, middlewares=[an_inbox(AsyncSemel(MemoryStore()))])
        broker.subscriber(**settings)(writing_to(Ledger()))
        with pytest.raises(UsageError, match="nothing was taken"):
            await broker.start()
        await broker.stop()

    @pytest.mark.parametrize("name", ["batch", "no_ack"])
    @pytest.mark.filterwarnings("ignore:.*max_workers")
    async def test_entries_that_cannot_be_acknowledged_one_by_one_are_refused(self, site: RedisSite, name: str) -> None:
        with pytest.raises(UsageError, match=name):
            async with site.running(an_inbox(), writing_to(Ledger()), of_stream={name: True}):
                pass

    @pytest.mark.parametrize(
        ("given", "instead"),
        [
            ({"min_idle_time": 1000}, "ack_wait="),
            ({"claim_min_idle_time": 1000}, "ack_wait="),
            ({"last_id": "0"}, "XGROUP CREATE .* billing 0 MKSTREAM"),
        ],
        ids=["min_idle_time", "claim_min_idle_time", "last_id"],
    )
    @pytest.mark.filterwarnings("ignore:.*polling_interval")
    async def test_reading_by_which_entries_come_too_early_or_never_is_refused(
        self, site: RedisSite, given: dict[str, Any], instead: str
    ) -> None:
        with pytest.raises(UsageError, match=rf"{next(iter(given))}=.*nothing was taken.*{instead}"):
            async with site.running(an_inbox(), writing_to(Ledger()), of_stream=given):
                pass

    async def test_a_policy_of_the_broker_is_refused_like_one_of_a_subscriber(self, site: RedisSite) -> None:
        broker = site.broker(site.bench.url, middlewares=[an_inbox()], ack_policy=AckPolicy.ACK)
        broker.subscriber(stream=StreamSub(site.bench.name, group="billing", consumer="w"))(writing_to(Ledger()))
        with pytest.raises(UsageError, match=r"AckPolicy\.ACK:"):
            await broker.start()
        await broker.stop()
