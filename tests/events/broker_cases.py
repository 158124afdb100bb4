"""What holds on every broker: one table of cases, which the tests of each broker run on a real server."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.events import Backoff, Consumer, Event
from semel.stores.memory import MemoryStore
from tests.proxy.proxy import Proxy

SOON = Backoff(first=timedelta(milliseconds=50), most=timedelta(milliseconds=50), spread=0)
LONG = 60.0


on_stores = pytest.mark.parametrize("place", ["memory", "sqlite", "postgresql"], indirect=True)


class Bench(ABC):
    """Where events of one test go, on one broker."""

    counts_held = True
    """Whether `unsettled` counts what somebody holds who listens."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._listeners = 0

    @abstractmethod
    def publisher(self, url: str | None = None) -> Any:
        """What publishes to where `listen` takes from; events of the type `nowhere` go to a place that is not there."""

    @asynccontextmanager
    async def listen(self, consumer: Any, url: str | None = None, **settings: Any) -> AsyncIterator[None]:
        """Listen there."""
        self._listeners += 1
        try:
            async with self._listen(consumer, url or self.url, **settings):
                yield
        finally:
            self._listeners -= 1

    @abstractmethod
    def _listen(self, consumer: Any, url: str, **settings: Any) -> AbstractAsyncContextManager[None]:
        """Listen with the adapter of the broker."""

    async def unsettled(self) -> int:
        """How many messages the broker still has for the consumer, those included that somebody holds."""
        assert self.counts_held or not self._listeners, "what a listener holds would be taken for settled"
        return await self._count_unsettled()

    @abstractmethod
    async def _count_unsettled(self) -> int:
        """How many messages the broker has."""

    async def drain(self, consumer: Any) -> None:
        """Listen until the broker has nothing more; what is counted is counted while nobody holds anything."""
        async with asyncio.timeout(LONG):
            while await self.unsettled():
                async with self.listen(consumer):
                    await asyncio.sleep(0.05)  # the broker tells nobody that it has nothing more to deliver

    @abstractmethod
    async def passed_on(self) -> list[str]:
        """The ids of what the broker's own place for dead letters holds."""


class Ledger:
    """What handlers did, and a way to wait for it."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._changed = asyncio.Condition()
        self._loop = asyncio.get_running_loop()

    async def add(self, id_: str) -> None:
        async with self._changed:
            self.ids.append(id_)
            self._changed.notify_all()

    def add_from_thread(self, id_: str) -> None:
        asyncio.run_coroutine_threadsafe(self.add(id_), self._loop).result(LONG)

    async def has(self, number: int) -> None:
        """Wait until there are so many."""
        async with asyncio.timeout(LONG), self._changed:
            await self._changed.wait_for(lambda: len(self.ids) >= number)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Look until it is so: a broker tells nobody what it has done."""
    try:
        async with asyncio.timeout(LONG):
            while not await condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{what}: not within {LONG} s")


def an_event(number: int = 1, **changes: Any) -> Event:
    given: dict[str, Any] = {
        "type": "registered",
        "source": "/facilities/7",
        "id": f"e-{number}",
        "data": {"n": number},
    }
    return Event(**{**given, **changes})


async def publish(bench: Bench, *events: Event) -> None:
    async with bench.publisher() as publisher:
        assert await publisher.publish(events) == [None] * len(events)


def a_consumer(semel: Any, ledger: Ledger, **settings: Any) -> Consumer[AsyncSemel]:
    consumer: Consumer[AsyncSemel] = Consumer(semel, "billing", **{"backoff": SOON, **settings})

    @consumer.on("registered")
    async def registered(event: Event) -> None:
        await ledger.add(event.id)

    return consumer


@pytest.mark.anyio
@pytest.mark.slow
class BrokerCases:
    """The cases."""

    @on_stores
    async def test_what_was_processed_is_acknowledged(self, bench: Bench, semel: AsyncSemel) -> None:
        ledger = Ledger()
        await publish(bench, *(an_event(number) for number in range(300)))
        async with bench.listen(a_consumer(semel, ledger)):
            await ledger.has(300)
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(300))
        await until(lambda: is_empty(bench), "all is acknowledged")

    async def test_an_event_arrives_as_it_was_sent(self, bench: Bench) -> None:
        seen: asyncio.Queue[Event] = asyncio.Queue()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            await seen.put(event)

        sent = [
            an_event(1, subject='Zürich "1" 100%25', extensions={"tenant": "a", "n": 1}, dataschema="/s"),
            an_event(2, data=b"\x00bytes", datacontenttype="application/octet-stream"),
            an_event(3, data=None),
        ]
        await publish(bench, *sent)
        async with bench.listen(consumer), asyncio.timeout(LONG):
            arrived = sorted([await seen.get() for _ in sent], key=lambda event: event.id)
        for before, after in zip(sent, arrived, strict=True):
            assert (after.id, after.source, after.subject, after.data) == (
                before.id,
                before.source,
                before.subject,
                before.data,
            )
            assert after.time == before.time
            # Headers are text; a message that is JSON as a whole keeps numbers.
            arrived_as = {name: str(value) for name, value in after.extensions.items()}
            assert {name: str(value) for name, value in before.extensions.items()} == arrived_as

    async def test_handlers_of_threads_are_called_in_threads(self, bench: Bench) -> None:
        ledger = Ledger()
        consumer: Consumer[Semel] = Consumer(Semel(MemoryStore()), "billing")

        @consumer.on("registered")
        def registered(event: Event) -> None:
            ledger.add_from_thread(event.id)

        await publish(bench, *(an_event(number) for number in range(20)))
        async with bench.listen(consumer, concurrency=4):
            await ledger.has(20)
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(20))
        await until(lambda: is_empty(bench), "all is acknowledged")

    async def test_what_failed_comes_again_after_its_delay(self, bench: Bench) -> None:
        ledger, times = Ledger(), list[float]()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", backoff=SOON, in_doubt="rerun")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) < 3:
                raise LookupError("not yet")
            await ledger.add(event.id)

        await publish(bench, an_event())
        async with bench.listen(consumer):
            await ledger.has(1)
        assert len(times) == 3
        assert times[1] - times[0] >= 0.045, "it came again before its delay"
        await until(lambda: is_empty(bench), "it is acknowledged in the end")

    @on_stores
    async def test_a_dead_letter_is_passed_on_after_it_is_stored(self, bench: Bench, semel: AsyncSemel) -> None:
        consumer: Consumer[AsyncSemel] = Consumer(semel, "billing", backoff=SOON, in_doubt="rerun", max_attempts=2)

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            raise LookupError("never")

        await publish(bench, an_event())

        async def is_passed_on() -> bool:
            return await bench.passed_on() == ["e-1"]

        async with bench.listen(consumer):
            await until(is_passed_on, "the broker has the dead letter")
        letters = [letter async for letter in consumer.dead_letters()]
        assert [(letter.reason, letter.attempts) for letter in letters] == [("exhausted", 2)]
        await until(lambda: is_empty(bench), "it is not delivered again")

    @on_stores
    async def test_an_event_that_is_published_twice_is_processed_once(self, bench: Bench, semel: AsyncSemel) -> None:
        ledger = Ledger()
        for _ in range(2):
            await publish(bench, an_event(1), an_event(1), an_event(2))
        await publish(bench, an_event(3))
        consumer = a_consumer(semel, ledger, lease_for=timedelta(seconds=2))  # a copy that comes meanwhile waits for it
        async with bench.listen(consumer):
            await ledger.has(3)
        await bench.drain(consumer)
        assert sorted(ledger.ids) == ["e-1", "e-2", "e-3"]

    async def test_what_another_worker_runs_is_not_acknowledged_before_it_ends(self, bench: Bench) -> None:
        store, ledger = MemoryStore(), Ledger()
        elsewhere = AsyncSemel(store)
        running, may_end = asyncio.Event(), asyncio.Event()
        other: Consumer[AsyncSemel] = Consumer(elsewhere, "billing", lease_for=timedelta(seconds=1))

        @other.on("registered")
        async def registered(event: Event) -> None:
            running.set()
            await may_end.wait()

        task = asyncio.ensure_future(other.handle(an_event()))
        await running.wait()
        await publish(bench, an_event(), an_event(2))
        consumer = a_consumer(AsyncSemel(store), ledger, lease_for=timedelta(seconds=1))
        async with bench.listen(consumer):
            await ledger.has(1)

        async def is_still_there() -> bool:
            return await bench.unsettled() == 1

        await until(is_still_there, "what runs elsewhere is not acknowledged")
        may_end.set()
        await task
        await bench.drain(consumer)
        assert ledger.ids == ["e-2"]

    @on_stores
    async def test_nothing_is_lost_when_the_connection_is(self, bench: Bench, semel: AsyncSemel) -> None:
        ledger = Ledger()
        entered, may_go_on = asyncio.Event(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(semel, "billing", backoff=SOON)

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            entered.set()
            await may_go_on.wait()
            await ledger.add(event.id)

        with Proxy(bench.url) as proxy:
            await publish(bench, *(an_event(number) for number in range(50)))
            async with bench.listen(consumer, proxy.url, concurrency=8):
                await asyncio.wait_for(entered.wait(), LONG)
                proxy.sever()
                may_go_on.set()
                await ledger.has(50)
                await publish(bench, *(an_event(number) for number in range(50, 60)))
                await ledger.has(60)
        await bench.drain(consumer)
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(60)), "each runs once"

    async def test_a_publisher_connects_again(self, bench: Bench) -> None:
        ledger = Ledger()
        with Proxy(bench.url) as proxy:
            async with bench.publisher(proxy.url) as publisher:
                assert await publisher.publish([an_event(1)]) == [None]
                proxy.sever()
                async with asyncio.timeout(LONG):
                    while True:
                        try:
                            assert await publisher.publish([an_event(2)]) == [None]
                            break
                        except ConnectionError:
                            continue
        async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
            await ledger.has(2)
        assert sorted(ledger.ids) == ["e-1", "e-2"]

    async def test_a_broker_that_is_not_there_is_an_error_of_the_connection(self, bench: Bench) -> None:
        scheme = bench.url.partition(":")[0]
        async with bench.publisher(f"{scheme}://127.0.0.1:1") as publisher:
            with pytest.raises(ConnectionError):
                await publisher.publish([an_event()])

    async def test_what_cannot_be_routed_is_an_error_of_that_event_alone(self, bench: Bench) -> None:
        async with bench.publisher() as publisher:
            given = await publisher.publish([an_event(1), an_event(2, type="nowhere"), an_event(3)])
        assert [error is None for error in given] == [True, False, True]
        assert isinstance(given[1], LookupError)

    async def test_many_are_in_flight_at_a_time(self, bench: Bench) -> None:
        events = [an_event(number, data="x" * 200_000 if number == 7 else number) for number in range(200)]
        async with bench.publisher() as publisher:
            assert await publisher.publish(events) == [None] * 200
        assert await bench.unsettled() == 200

    async def test_the_end_waits_for_handlers_and_gives_back_what_waits(self, bench: Bench) -> None:
        ledger, store = Ledger(), MemoryStore()
        entered, may_end = asyncio.Event(), asyncio.Event()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(store), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            entered.set()
            await may_end.wait()
            await ledger.add(event.id)

        await publish(bench, *(an_event(number) for number in range(10)))
        listening = bench.listen(consumer, concurrency=1)
        await listening.__aenter__()
        await asyncio.wait_for(entered.wait(), LONG)
        ending = asyncio.ensure_future(listening.__aexit__(None, None, None))
        await asyncio.sleep(0)
        assert not ending.done()
        may_end.set()
        await ending
        assert len(ledger.ids) == 1, "no other one was begun once the end was asked for"

        async def are_back() -> bool:
            return await bench.unsettled() == 9

        await until(are_back, "one is acknowledged, the others wait again")
        async with bench.listen(a_consumer(AsyncSemel(store), ledger)):
            await ledger.has(10)
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(10))

    async def test_handlers_that_do_not_end_are_interrupted(self, bench: Bench) -> None:
        entered, ends = asyncio.Event(), list[str]()
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(event: Event) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ends.append(event.id)
                raise

        await publish(bench, an_event())
        async with bench.listen(consumer, stop_within=0):
            await asyncio.wait_for(entered.wait(), LONG)
        assert ends == ["e-1"]

        async def is_back() -> bool:
            return await bench.unsettled() == 1

        await until(is_back, "what was interrupted is delivered again")

    async def test_an_error_of_the_program_ends_the_listener_and_acknowledges_nothing(self, bench: Bench) -> None:
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing")

        @consumer.on("registered")
        async def registered(session: Any) -> None:
            """Asks for a session, and there is none."""

        await publish(bench, an_event())
        with pytest.raises(UsageError, match="session"):
            async with bench.listen(consumer):
                await asyncio.wait_for(asyncio.Event().wait(), LONG)

        async def is_back() -> bool:
            return await bench.unsettled() == 1

        await until(is_back, "the message is still there")

    async def test_a_cancelled_block_ends_in_order(self, bench: Bench) -> None:
        ledger = Ledger()
        began = asyncio.Event()

        async def run() -> None:
            async with bench.listen(a_consumer(AsyncSemel(MemoryStore()), ledger)):
                began.set()
                await asyncio.Event().wait()

        await publish(bench, an_event())
        task = asyncio.create_task(run())
        await ledger.has(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: is_empty(bench), "what ended is acknowledged")

    async def test_what_is_no_event_becomes_a_dead_letter(self, bench: Bench) -> None:
        consumer = a_consumer(AsyncSemel(MemoryStore()), Ledger())
        await self.send_raw(bench, {"other": "header"}, b"no event")

        async def is_a_letter() -> bool:
            return [letter.reason async for letter in consumer.dead_letters()] == ["invalid"]

        async with bench.listen(consumer):
            await until(is_a_letter, "it is a dead letter")
        await until(lambda: is_empty(bench), "it is settled")

    async def send_raw(self, bench: Bench, headers: dict[str, str], body: bytes) -> None:
        raise NotImplementedError


class AskingBrokerCases(BrokerCases):
    """Also those of brokers that give messages only to who asks for them."""

    async def test_what_waits_behind_a_wedged_handler_goes_to_others(self, bench: Bench) -> None:
        store, ledger = MemoryStore(), Ledger()
        entered, may_end = asyncio.Event(), asyncio.Event()
        second = timedelta(seconds=1)
        wedged: Consumer[AsyncSemel] = Consumer(AsyncSemel(store), "billing", max_runtime=second, lease_for=second)

        @wedged.on("registered")
        async def registered() -> None:
            entered.set()
            await may_end.wait()

        await publish(bench, *(an_event(number) for number in range(6)))
        async with bench.listen(wedged, concurrency=1, prefetch=8):
            await asyncio.wait_for(entered.wait(), LONG)
            async with bench.listen(a_consumer(AsyncSemel(store), ledger)):
                await ledger.has(5)
            may_end.set()


async def is_empty(bench: Bench) -> bool:
    return await bench.unsettled() == 0
