"""What holds for an inbox in FastStream on every broker: one table of cases, run on real servers."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from faststream import AckPolicy, Context
from sqlalchemy.ext import asyncio as sa_asyncio

from semel import AsyncSemel
from semel.errors import UsageError
from semel.events import Consumer, Event
from semel.events.brokers.faststream import inbox
from semel.events.brokers.faststream.middleware import Inbox
from semel.stores.memory import MemoryStore
from tests.events.broker_cases import LONG, SOON, Bench, Ledger, an_event, is_empty, on_stores, publish, until
from tests.events.places import Place, place_at
from tests.proxy.proxy import Proxy
from tests.within.servers.callers import with_driver

UNSAFE = [policy for policy in AckPolicy if policy is not AckPolicy.MANUAL]
ACK_WAIT = 1.0
on_databases = pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)


class Site(ABC):
    """Where a subscriber of FastStream takes from, on one broker."""

    handler_ack_policies = UNSAFE

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @abstractmethod
    def broker(self, url: str, **settings: Any) -> Any:
        """A broker of FastStream."""

    @abstractmethod
    def subscriber(self, broker: Any, **settings: Any) -> Any:
        """A subscriber to what the bench publishes to."""

    @asynccontextmanager
    async def running(
        self, box: Inbox, handler: Callable[..., Any], *, url: str | None = None, is_lost: bool = False, **settings: Any
    ) -> AsyncIterator[Any]:
        """Have a handler called for as long as the block runs; gives the subscriber."""
        broker = self.broker(url or self.bench.url, middlewares=[box])
        subscriber = self.subscriber(broker, **{"ack_policy": AckPolicy.MANUAL, **settings})
        subscriber(handler)
        self.bench._listeners += 1
        try:
            await broker.start()
            yield subscriber
        finally:
            self.bench._listeners -= 1
            async with asyncio.timeout(LONG):
                await self.stop(broker, is_lost=is_lost)

    async def stop(self, broker: Any, *, is_lost: bool) -> None:
        """Stop a broker; what FastStream raises where the connection is gone is nobody's concern."""
        try:
            await broker.stop()
        except Exception:
            if not is_lost:
                raise

    async def drain(self, make_box: Callable[[], Inbox], handler: Callable[..., Any]) -> None:
        """Have messages handled until the broker has nothing more; counted while nobody holds anything."""
        async with asyncio.timeout(LONG):
            while await self.bench.unsettled():
                async with self.running(make_box(), handler):
                    await asyncio.sleep(0.3)  # the broker tells nobody that it has nothing more to deliver


def an_inbox(semel: AsyncSemel | None = None, **settings: Any) -> Inbox:
    return inbox(semel or AsyncSemel(MemoryStore()), "billing", **{"backoff": SOON, "lease_for": 1.0, **settings})


def writing_to(ledger: Ledger) -> Callable[..., Any]:
    async def registered(event: Event = Context("semel_event")) -> None:
        await ledger.add(event.id)

    return registered


@dataclass
class Rows:
    """A table of effects, in the database of a place."""

    engine: Any
    sessions: Any

    async def add(self, session: Any, name: str) -> None:
        await session.execute(sa.text("INSERT INTO faststream_effect (name) VALUES (:name)"), {"name": name})

    async def names(self) -> list[str]:
        async with self.sessions() as session:
            return [row[0] for row in await session.execute(sa.text("SELECT name FROM faststream_effect"))]


@asynccontextmanager
async def rows_in(place: Place) -> AsyncIterator[Rows]:
    driver = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}[place.name]
    engine = sa_asyncio.create_async_engine(with_driver(place.url, driver))
    async with engine.begin() as connection:
        await connection.execute(sa.text("CREATE TABLE IF NOT EXISTS faststream_effect (name varchar(40) NOT NULL)"))
        await connection.execute(sa.text("DELETE FROM faststream_effect"))
    yield Rows(engine, sa_asyncio.async_sessionmaker(engine))
    await engine.dispose()


@pytest.mark.anyio
@pytest.mark.slow
class FastStreamCases:
    """The cases."""

    async def test_what_was_processed_is_acknowledged(self, site: Site) -> None:
        ledger, bodies = Ledger(), list[int]()

        async def registered(body: dict[str, int], event: Event = Context("semel_event")) -> None:
            bodies.append(body["n"])
            await ledger.add(event.id)

        await publish(site.bench, *(an_event(number) for number in range(50)))
        async with site.running(an_inbox(), registered):
            await ledger.has(50)
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(50))
        assert sorted(bodies) == list(range(50))
        await until(lambda: is_empty(site.bench), "all is acknowledged")

    @on_stores
    async def test_an_event_that_is_published_twice_is_processed_once(self, site: Site, semel: AsyncSemel) -> None:
        ledger = Ledger()
        for _ in range(2):
            await publish(site.bench, an_event(1), an_event(1), an_event(2))
        await publish(site.bench, an_event(3))
        async with site.running(an_inbox(semel), writing_to(ledger)):
            await ledger.has(3)
        await site.drain(lambda: an_inbox(semel), writing_to(ledger))
        assert sorted(ledger.ids) == ["e-1", "e-2", "e-3"]

    async def test_two_processes_run_each_event_once(self, site: Site) -> None:
        store, ledger = MemoryStore(), Ledger()
        boxes = [an_inbox(AsyncSemel(store)) for _ in range(2)]
        for _ in range(2):
            await publish(site.bench, *(an_event(number) for number in range(30)))
        async with site.running(boxes[0], writing_to(ledger)), site.running(boxes[1], writing_to(ledger)):
            await ledger.has(30)
        await site.drain(lambda: an_inbox(AsyncSemel(store)), writing_to(ledger))
        assert sorted(ledger.ids) == sorted(f"e-{number}" for number in range(30))

    async def test_what_failed_comes_again_after_its_delay(self, site: Site, caplog: pytest.LogCaptureFixture) -> None:
        ledger, times = Ledger(), list[float]()
        gc.collect()  # what earlier tests left open is logged by asyncio when it is collected
        caplog.clear()

        async def registered(attempt: Any = Context("semel_attempt")) -> None:
            times.append(asyncio.get_running_loop().time())
            if attempt.number < 3:
                raise LookupError("not yet")
            await ledger.add("ran")

        await publish(site.bench, an_event())
        async with site.running(an_inbox(in_doubt="rerun"), registered):
            await ledger.has(1)
        assert len(times) == 3
        assert times[1] - times[0] >= 0.045, "it came again before its delay"
        await until(lambda: is_empty(site.bench), "it is acknowledged in the end")
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert errors == [], "an error of the handler reached FastStream"

    async def test_an_event_that_always_fails_becomes_a_dead_letter(self, site: Site) -> None:
        box = an_inbox(in_doubt="rerun", max_attempts=2)

        async def registered() -> None:
            raise LookupError("never")

        async def is_a_letter() -> bool:
            return [(letter.reason, letter.attempts) async for letter in box.consumer.dead_letters()] == [
                ("exhausted", 2)
            ]

        await publish(site.bench, an_event())
        async with site.running(box, registered):
            await until(is_a_letter, "it is a dead letter")
        await until(lambda: is_empty(site.bench), "it is not delivered again")
        await self.check_passed_on(site)

    async def check_passed_on(self, site: Site) -> None:
        """What the broker itself does with a dead letter."""

    async def test_a_dead_letter_is_handed_to_its_subscriber_again(self, site: Site) -> None:
        ledger, may_work = Ledger(), asyncio.Event()
        box = an_inbox(in_doubt="rerun", max_attempts=1)

        async def registered(body: dict[str, int], event: Event = Context("semel_event")) -> None:
            if not may_work.is_set():
                raise LookupError("not yet")
            await ledger.add(f"{event.id}: {body['n']}")

        async def letters() -> list[Any]:
            return [letter async for letter in box.consumer.dead_letters()]

        async def has_one() -> bool:
            return len(await letters()) == 1

        await publish(site.bench, an_event())
        async with site.running(box, registered):
            await until(has_one, "it is a dead letter")
            may_work.set()
            disposition = await box.consumer.redrive((await letters())[0].id)
            assert (disposition.status, ledger.ids, await letters()) == ("processed", ["e-1: 1"], [])
            assert (await box.consumer.handle(an_event())).status == "duplicate"

    @on_databases
    async def test_effect_and_mark_commit_together(self, site: Site, place: Place) -> None:
        ledger = Ledger()
        async with rows_in(place) as rows:

            async def registered(
                event: Event = Context("semel_event"), session: Any = Context("semel_session")
            ) -> None:
                await rows.add(session, event.id)
                await ledger.add(event.id)

            box = an_inbox(place.semel(), transaction=rows.sessions.begin)
            for _ in range(2):
                await publish(site.bench, an_event(1), an_event(2))
            async with site.running(box, registered):
                await ledger.has(2)
            await site.drain(lambda: an_inbox(place.semel(), transaction=rows.sessions.begin), registered)
            assert sorted(await rows.names()) == ["e-1", "e-2"]
        await place.close()

    @on_databases
    async def test_what_failed_is_rolled_back_and_counted(self, site: Site, place: Place) -> None:
        ledger, numbers = Ledger(), list[int]()
        async with rows_in(place) as rows:

            async def registered(session: Any = Context("semel_session")) -> None:
                numbers.append(len(numbers) + 1)
                await rows.add(session, f"attempt {len(numbers)}")
                if len(numbers) < 2:
                    raise LookupError("not yet")
                await ledger.add("ran")

            box = an_inbox(place.semel(), transaction=rows.sessions.begin)
            await publish(site.bench, an_event())
            async with site.running(box, registered):
                await ledger.has(1)
            await until(lambda: is_empty(site.bench), "it is acknowledged in the end")
            assert await rows.names() == ["attempt 2"]
        await place.close()

    async def test_a_transaction_that_does_not_commit_stops_the_subscriber(self, site: Site, tmp_path: Any) -> None:
        place, called = place_at("sqlite", f"sqlite:///{tmp_path}/semel.db"), asyncio.Event()
        async with rows_in(place) as rows:

            async def registered(session: Any = Context("semel_session")) -> None:
                await rows.add(session, "lost")
                called.set()

            await publish(site.bench, an_event())
            async with site.running(an_inbox(place.semel(), transaction=rows.sessions), registered) as subscriber:
                await asyncio.wait_for(called.wait(), LONG)

                async def has_stopped() -> bool:
                    return not subscriber.running

                await until(has_stopped, "the subscriber is stopped")

        async def is_back() -> bool:
            return await site.bench.unsettled() == 1

        await until(is_back, "the message is still there")
        await place.close()

    async def test_an_acknowledgement_that_is_lost_gives_a_duplicate(self, site: Site) -> None:
        store, ledger = MemoryStore(), Ledger()
        entered, may_end = asyncio.Event(), asyncio.Event()

        async def registered(event: Event = Context("semel_event")) -> None:
            entered.set()
            await may_end.wait()
            await ledger.add(event.id)

        await publish(site.bench, an_event())
        with Proxy(site.bench.url) as proxy:
            box = an_inbox(AsyncSemel(store), ack_wait=ACK_WAIT)
            async with site.running(box, registered, url=proxy.url, is_lost=True):
                await asyncio.wait_for(entered.wait(), LONG)
                proxy.close()  # for good: what a client would send again does not arrive either
                may_end.set()
                await ledger.has(1)
        await site.drain(lambda: an_inbox(AsyncSemel(store), ack_wait=ACK_WAIT), registered)
        assert ledger.ids == ["e-1"]

    async def test_what_another_worker_runs_is_not_acknowledged_before_it_ends(self, site: Site) -> None:
        store, ledger = MemoryStore(), Ledger()
        running, may_end = asyncio.Event(), asyncio.Event()
        other: Consumer[AsyncSemel] = Consumer(AsyncSemel(store), "billing", lease_for=timedelta(seconds=1))

        @other.on("registered")
        async def registered(event: Event) -> None:
            running.set()
            await may_end.wait()

        def make_box() -> Inbox:
            return an_inbox(AsyncSemel(store), ack_wait=ACK_WAIT)

        task = asyncio.ensure_future(other.handle(an_event()))
        await running.wait()
        await publish(site.bench, an_event(), an_event(2))
        async with site.running(make_box(), writing_to(ledger)):
            await ledger.has(1)

        async def is_still_there() -> bool:
            return await site.bench.unsettled() == 1

        await until(is_still_there, "what runs elsewhere is not acknowledged")
        may_end.set()
        await task
        await site.drain(make_box, writing_to(ledger))
        assert ledger.ids == ["e-2"]

    async def test_a_message_without_an_identity_becomes_a_dead_letter(self, site: Site) -> None:
        box = an_inbox()
        await self.send_plain(site, {"n": 1})

        async def letters() -> list[Any]:
            return [letter async for letter in box.consumer.dead_letters()]

        async def has_one() -> bool:
            return len(await letters()) == 1

        async with site.running(box, writing_to(Ledger())):
            await until(has_one, "it is a dead letter")
        (letter,) = await letters()
        assert (letter.reason, letter.event, letter.raw[1]) == ("invalid", None, b'{"n":1}')
        await until(lambda: is_empty(site.bench), "it is settled")

    async def test_an_id_of_the_producer_is_found_where_it_was_said_to_be(self, site: Site) -> None:
        ledger = Ledger()
        box = an_inbox(id="body:order.id", source="header:x-shop", type="order.placed")

        async def registered(body: dict[str, Any], event: Event = Context("semel_event")) -> None:
            await ledger.add(f"{event.source} {event.id} {event.type} {body['order']['id']}")

        for number in (1, 1, 2):
            await self.send_plain(site, {"order": {"id": f"o-{number}"}}, headers={"x-shop": "/north"})
        async with site.running(box, registered):
            await ledger.has(2)
            await until(lambda: self.is_settled(site), "all is acknowledged")
        assert sorted(ledger.ids) == ["/north o-1 order.placed o-1", "/north o-2 order.placed o-2"]

    async def is_settled(self, site: Site) -> bool:
        return not site.bench.counts_held or await is_empty(site.bench)

    @pytest.mark.parametrize("policy", UNSAFE, ids=lambda policy: policy.name)
    async def test_a_policy_that_loses_messages_is_refused_at_start(
        self, site: Site, policy: AckPolicy, recwarn: pytest.WarningsRecorder
    ) -> None:
        await publish(site.bench, an_event())
        ledger = Ledger()
        with pytest.raises(UsageError) as refused:
            async with site.running(an_inbox(), writing_to(ledger), ack_policy=policy):
                pass
        text = str(refused.value)
        assert "The subscriber Registered (" in text
        assert f"ack_policy=AckPolicy.{policy.name}" in text
        assert "nothing was taken" in text
        assert "Write ack_policy=AckPolicy.MANUAL" in text
        assert (ledger.ids, await site.bench.unsettled()) == ([], 1)

    @abstractmethod
    async def send_plain(self, site: Site, body: Any, headers: dict[str, str] | None = None) -> None:
        """Publish with FastStream itself what is no CloudEvent."""


async def burn_for_three_deadlines(site: Site, burning: threading.Event) -> list[str]:
    """Run a handler that burns the processor for longer than the broker waits; gives the ids of its runs."""
    ledger, runs = Ledger(), list[str]()

    async def registered(event: Event = Context("semel_event")) -> None:
        runs.append(event.id)
        burning.set()
        until_then = time.perf_counter() + 3.2 * ACK_WAIT
        while time.perf_counter() < until_then:
            pass
        await ledger.add(event.id)

    async with site.running(an_inbox(ack_wait=ACK_WAIT), registered):
        await publish(site.bench, an_event())
        await ledger.has(1)
    return runs


class Watcher:
    """Looks, from a thread, for what a broker would give to another process meanwhile."""

    def __init__(self, look: Callable[[], list[Any]]) -> None:
        self._look = look
        self._taken: list[Any] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> list[Any]:
        self._thread.start()
        return self._taken

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(LONG)

    def _run(self) -> None:
        while not self._end.wait(0.05):
            self._taken += self._look()
