"""How relays share a stream: each holds a part for a while and gives it back, so that others get their share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from semel import AsyncSemel
from semel.events import Event, Outbox, Relay
from semel.stores.memory import MemoryStore
from semel.testing import VirtualClock

FIVE_MINUTES = 300.0
SOME = timedelta(seconds=5)
"""What is left of a lease that is renewed in time."""


class Hands:
    """Relays on one store and one clock, which moves as soon as all of them wait for it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock.store_clock)
        self.published: list[tuple[str, str, float]] = []
        self.engines: list[AsyncSemel] = []

    def relay(self, name: str) -> Relay:
        """A relay as another process would have it; what it publishes is written down under its name."""
        hands = self

        class Broker:
            async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
                hands.published += [(name, event.id, hands.clock.monotonic()) for event in events]
                return [None] * len(events)

        engine = AsyncSemel(self.store, clock=self.clock)
        self.engines.append(engine)
        return Relay(Outbox(engine), Broker())

    async def add(self, id_: str) -> None:
        await Outbox(self.engines[0]).add(Event(type="t", source="/s", id=id_), autonomous=True)

    async def let_pass(self, seconds: float, *relays: Relay) -> None:
        """Let time pass in small steps, each of which gives everybody a turn, and the thread that renews leases too."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            while not await self._is_calm(relays):  # noqa: ASYNC110 - nobody tells that a lease is renewed
                await asyncio.sleep(0)
            self.clock.advance(min(1.0, until - self.clock.monotonic()))
            await asyncio.sleep(0)

    async def _is_calm(self, relays: Sequence[Relay]) -> bool:
        """Whether all wait for the clock, and leases are renewed."""
        if not all(self.clock.rests_on(relay._wake) for relay in relays):
            return False
        claims = [one async for one in self.engines[0].records(operation="semel:relay", status="running")]
        now = datetime.fromtimestamp(self.clock.store_clock() / 1e6, UTC)
        return all(one.lease_until - now > SOME for one in claims)

    async def close(self, *running: asyncio.Task[Any]) -> None:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for engine in self.engines:
            await engine.close()


def test_a_relay_gives_its_part_back_before_five_minutes_are_over_and_another_one_gets_it() -> None:
    async def scenario() -> None:
        hands = Hands()
        first, second = hands.relay("first"), hands.relay("second")
        holding = asyncio.create_task(first.run())
        await hands.add("e-0")
        await hands.let_pass(1, first)
        waiting = asyncio.create_task(second.run())
        for number in range(1, 5):
            await hands.let_pass(30, first, second)
            await hands.add(f"e-{number}")
        await hands.let_pass(1, first, second)
        assert {name for name, _, _ in hands.published} == {"first"}, "it holds the part, and there is something to do"
        await hands.let_pass(FIVE_MINUTES - hands.clock.monotonic(), first, second)
        await hands.add("e-5")
        await hands.let_pass(2, first, second)
        assert hands.published[-1][:2] == ("second", "e-5"), "it got its share while the first one goes on"
        assert [id_ for _, id_, _ in hands.published] == [f"e-{number}" for number in range(6)], "each once"
        await hands.close(holding, waiting)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_part_is_given_back_in_time_by_a_relay_that_never_ends() -> None:
    async def scenario() -> None:
        hands = Hands()
        relay = hands.relay("first")
        running = asyncio.create_task(relay.run())
        await hands.let_pass(2, relay)
        claims: set[int] = set()
        held: list[float] = []
        began = hands.clock.monotonic()
        while hands.clock.monotonic() < 3 * FIVE_MINUTES:
            (record,) = [one async for one in hands.engines[0].records(operation="semel:relay")]
            if record.fence not in claims:
                held.append(hands.clock.monotonic() - began)
                began = hands.clock.monotonic()
                claims.add(record.fence)
            await hands.let_pass(5, relay)
        assert len(claims) >= 3
        assert max(held) < FIVE_MINUTES
        await hands.close(running)

    asyncio.run(asyncio.wait_for(scenario(), 60))
