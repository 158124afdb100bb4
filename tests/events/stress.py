"""Many writers and two relays at once: transactions that are held open, rolled back or partly so, relays that die.

What always holds in the end: what is committed is published, nothing else is, and of one ordering key in the order of
its commits. An event is published again only where a relay died, was overtaken, or did not hear of a confirmation.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from semel import AsyncSemel
from semel.core.events.outbox import OpenCursor, StreamPart
from semel.errors import StoreUnavailable
from semel.events import Backoff, Event, Outbox, Relay
from tests.events.places import Place

PARTS = 2
KEYS = 8
FAULTS = ("killed before it publishes", "killed before it saves", "confirmation lost", "overtaken")
NO_PAUSE = Backoff(first=0, most=0)


class Killed(BaseException):
    """A relay is gone: not an `Exception`, so that the relay does not take it for an answer of its publisher."""


@dataclass
class Report:
    """What came of it."""

    missing: list[str]
    uncommitted: list[str]
    out_of_order: list[str]
    repeats: int
    committed: int
    seen: dict[str, int]

    def __str__(self) -> str:
        seen = ", ".join(f"{name}: {count}" for name, count in sorted(self.seen.items()))
        return (
            f"{self.committed} events committed; missing {self.missing[:5]} ({len(self.missing)}), uncommitted "
            f"{self.uncommitted[:5]}, out of order {self.out_of_order[:5]}, {self.repeats} repeats; {seen}"
        )


@dataclass
class Stress:
    """One run on one place.

    Args:
        place: with tables of its own.
        writers: how many connections add events at the same time.
        transactions: how many each of them makes.
        seed: where chance comes from; the order in which statements arrive is the machine's.
        serial: whether the store has one writer at a time, so that none can be held open beside others.
    """

    place: Place
    writers: int
    transactions: int
    seed: int = 0
    serial: bool = False
    committed: dict[str, list[Any]] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    refused: set[str] = field(default_factory=set)
    _ended: int = 0
    _active: int = 0
    _holding: int = 0
    _turns: int = 0

    async def run(self) -> Report:
        """Let all of them go, then publish what is left."""
        self._changed = asyncio.Condition()
        self._one_writer = asyncio.Lock()
        self._active = self.writers
        await self._prepare()
        writers = [asyncio.create_task(self._write(number)) for number in range(self.writers)]
        relays = [asyncio.create_task(self._relay(number)) for number in range(2)]
        await asyncio.gather(*writers)
        await asyncio.gather(*relays)
        await self._publish_rest()
        return self._report()

    async def _prepare(self) -> None:
        await Relay(Outbox(self.place.semel()), self).run_once()  # the tables are there
        caller = await self.place.caller()
        await caller.begin()
        await caller.sql("DROP TABLE IF EXISTS stress_key")
        await caller.sql("CREATE TABLE stress_key (name varchar(10) PRIMARY KEY, number integer NOT NULL)")
        for number in range(KEYS):
            await caller.sql(f"INSERT INTO stress_key VALUES ('k{number}', 0)")  # noqa: S608 - a number
        await caller.commit()

    async def _write(self, number: int) -> None:
        chance = Random(f"{self.seed}:{number}")
        caller = await self.place.caller()
        outbox = Outbox(self.place.semel())
        for turn in range(self.transactions):
            async with self._alone():
                await self._transact(caller, outbox, chance, f"{number}.{turn}")
            await self._change(ended=1)
            if self.serial:
                await self._let_a_relay_work()
        await self._change(active=-1)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        if not self.serial:
            yield
            return
        async with self._one_writer:
            yield

    async def _transact(self, caller: Any, outbox: Outbox[AsyncSemel], chance: Random, name: str) -> None:
        """One transaction: up to three events, perhaps of a key, some below a savepoint that is rolled back."""
        await caller.begin()
        key = f"k{chance.randrange(KEYS)}" if chance.random() < 0.5 else None
        number = 0
        if key is not None:
            await caller.sql(f"UPDATE stress_key SET number = number + 1 WHERE name = '{key}'")  # noqa: S608 - a name
            ((number,),) = await caller.sql(f"SELECT number FROM stress_key WHERE name = '{key}'")  # noqa: S608
        added: dict[str, list[Any]] = {}
        for place in range(chance.randint(1, 3)):
            id_, data = f"{name}.{place}", [key, number * 10 + place]
            saves = chance.random() < 0.4
            if saves:
                await caller.sql("SAVEPOINT here")
            event = Event(type="stress", source="/test", id=id_, data=data)
            await outbox.add(event, within=caller.thing, ordering_key=key)
            if saves and chance.random() < 0.5:
                self.seen["rolled back to a savepoint"] += 1
                await caller.sql("ROLLBACK TO SAVEPOINT here")
            else:
                added[id_] = data
                if chance.random() < 0.1:
                    self.refused.add(id_)
        if key is None and not self.serial and chance.random() < 0.2:
            await self._hold(chance.randint(1, self.writers))
        if chance.random() < 0.2:
            self.seen["rolled back"] += 1
            await caller.rollback()
        else:
            await caller.commit()
            self.committed.update(added)

    async def _let_a_relay_work(self) -> None:
        until = self._turns + 1
        async with self._changed:
            await self._changed.wait_for(lambda: self._turns >= until)

    async def _hold(self, others: int) -> None:
        """Stay open until so many transactions of others have ended, or all who are left hold theirs open."""
        self.seen["held open"] += 1
        until = self._ended + others
        await self._change(holding=1)
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended >= until or self._holding >= self._active)
        await self._change(holding=-1)

    async def _change(self, *, ended: int = 0, active: int = 0, holding: int = 0) -> None:
        async with self._changed:
            self._ended += ended
            self._active += active
            self._holding += holding
            self._changed.notify_all()

    async def _relay(self, number: int) -> None:
        """Relays one after the other until all writers are done: some publish once, some go on, some die."""
        chance = Random(f"{self.seed}:relay:{number}")
        semel = self.place.semel()
        while self._active:
            if chance.random() < 0.2:
                self.seen["restarted"] += 1
                semel = self.place.semel()
            broker = _Faulty(self, semel, chance, lambda: chance.choice(FAULTS) if chance.random() < 0.2 else "")
            relay = Relay(
                Outbox(semel),
                broker,
                chance.choice((1, 8, 64)),
                batch=chance.randint(3, 20),
                parts=PARTS,
                max_attempts=2,
                backoff=NO_PAUSE,
            )
            try:
                if chance.random() < 0.2:
                    self.refused.clear()
                    self.seen["released"] += await relay.release()
                if self.serial or chance.random() < 0.5:
                    await relay.run_once()
                else:
                    await self._run_for_a_while(relay, chance.randint(1, self.writers))
            except* Killed as killed:
                self.seen[_name(killed)] += 1
            except* ConnectionError:
                self.seen["broker gone"] += 1
            except* StoreUnavailable:
                self.seen["opened at the same time"] += 1
            async with self._changed:
                self._turns += 1
                self._changed.notify_all()

    async def _run_for_a_while(self, relay: Relay, others: int) -> None:
        until = self._ended + others
        running = asyncio.create_task(relay.run())

        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(lambda: self._ended >= until or not self._active)

        waiting = asyncio.create_task(wait())
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        relay.stop()
        waiting.cancel()
        await running

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """What the broker does when it is well."""
        told: list[Exception | None] = []
        for event in events:
            if event.id in self.refused:
                told.append(ValueError("refused"))
            else:
                self.published.append(event.id)
                told.append(None)
        return told

    async def _publish_rest(self) -> None:
        for fault in FAULTS:
            await self._publish_with(fault)
        relay = Relay(Outbox(self.place.semel()), self, parts=PARTS, max_attempts=1)
        await relay.run_once()
        self.seen["parked"] += len([one async for one in relay.parked()])
        self.refused.clear()
        await relay.release()
        while await relay.run_once():
            pass

    async def _publish_with(self, fault: str) -> None:
        """One event more, and a relay that this happens to at once."""
        semel, id_ = self.place.semel(), f"then: {fault}"
        event = Event(type="stress", source="/test", id=id_, data=[None, 0])
        await Outbox(semel).add(event, autonomous=True)
        self.committed[id_] = [None, 0]
        faults = iter([fault])
        broker = _Faulty(self, semel, Random(fault), lambda: next(faults, ""))
        try:
            await Relay(Outbox(semel), broker, parts=PARTS, backoff=NO_PAUSE).run_once()
        except Killed as killed:
            self.seen[str(killed)] += 1

    def _report(self) -> Report:
        first = list(dict.fromkeys(self.published))
        out_of_order: list[str] = []
        last: dict[str, int] = {}
        for id_ in first:
            key, number = self.committed.get(id_, [None, 0])
            if key is not None and number <= last.get(key, 0):
                out_of_order.append(id_)
            if key is not None:
                last[key] = number
        published = set(first)
        return Report(
            sorted(self.committed.keys() - published),
            sorted(published - self.committed.keys()),
            out_of_order,
            len(self.published) - len(first),
            len(self.committed),
            dict(self.seen),
        )


def _name(killed: BaseExceptionGroup[Killed]) -> str:
    (first, *_) = killed.exceptions
    return _name(first) if isinstance(first, BaseExceptionGroup) else str(first)


class _Faulty:
    """A broker that is gone now and then, a relay that dies before or after it was asked, or another that takes over.

    `next_fault` says what goes wrong with each call.
    """

    def __init__(self, stress: Stress, semel: AsyncSemel, chance: Random, next_fault: Callable[[], str]) -> None:
        self._stress = stress
        self._semel = semel
        self._chance = chance
        self._next_fault = next_fault

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        fault = self._next_fault()
        if fault == "killed before it publishes":
            raise Killed(fault)
        told = await self._stress.publish(events)
        if fault == "killed before it saves":
            raise Killed(fault)
        if fault == "confirmation lost":
            self._stress.seen[fault] += 1
            return [ConnectionResetError("gone")] * len(events)
        if fault == "overtaken":
            self._stress.seen[fault] += 1
            relay = Relay(Outbox(self._semel), self._stress)
            for number in range(PARTS):
                await relay._ask(OpenCursor(StreamPart("default", number, PARTS), self._chance.randbytes(16)))
        return told
