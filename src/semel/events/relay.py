"""The relay: moves events from the outbox to a broker, in the order of their keys, losing none.

- Each part of a stream is published by one relay at a time: whoever has claimed it, by an operation of semel's own
  (`semel:relay`), for at most five minutes. Then it is given back, so that others get their share.
- A claim only keeps relays from doing the same work twice. What keeps a late one from doing harm is the cursor,
  which it cannot save any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from semel.api import AsyncSemel
from semel.core.events.outbox import SHARDS, ParkedEvent, ReleaseParked, ScanParked, StreamPart
from semel.core.flow import Flow, ask
from semel.core.policy import Policy
from semel.core.record import Failure, instant
from semel.engine import context
from semel.engine.async_engine import AsyncCall, AsyncEngine
from semel.engine.engine import engine_of
from semel.errors import InProgress, LeaseLost, RecordNotFound, TryLater, UsageError
from semel.events.disposition import Backoff
from semel.events.encoding import show_outbox_event
from semel.events.event import Event
from semel.events.outbox import Outbox
from semel.events.publishing import (
    Overtaken,
    PartPublisher,
    Publisher,
    RelayProgress,
    RelaySettings,
    Spawn,
    TimeIsUp,
    spawn,
)
from semel.validation import Duration, to_timedelta

RELAY: Final = "semel:relay"
"""The operation of the claims by which relays share a stream."""
_LONGEST: Final = timedelta(minutes=5)
_HELD_FOR: Final = 240.0
"""Seconds after which a part is given back: there has to be time to end what is under way."""
_LEASE: Final = timedelta(seconds=10)
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_OTHERS_FIRST: Final = 1.25
"""Seconds before a part that was given back is claimed again: everybody else who waits has tried by then."""
_PAGE: Final = 100
_BACKOFF: Final = Backoff(first=0.1, most=timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class Parked:
    """An event that is not published for now.

    Attributes:
        position: names it, within its stream.
        event: the event.
        ordering_key: while it is parked, later events of this key wait, too.
        error: why it could not be published; None: it waits behind another one of its key, was released, or its
            destination does not take it for now.
        attempts: how often it was tried.
        since: when it was parked.
    """

    position: int
    event: Event
    ordering_key: str | None
    error: Failure | None
    attempts: int
    since: datetime


class Relay:
    """Moves the events of one stream to a broker.

    Args:
        outbox: of an `AsyncSemel`. A service that uses `Semel` runs the relay beside it, on an `AsyncSemel` of its own.
        publisher: the broker.
        in_flight: how many events may be on their way to the broker at the same time.
        batch: how many events are read, and marked as published, together.
        parts: into how many parts the stream is divided, so that as many relays can share it; up to 64, the same for
            all relays of a stream.
        max_attempts: how often an event is tried that the broker refuses, before it is parked.
        backoff: how long to wait in between, and while the broker cannot be reached; by default 0.1 to 30 seconds.
        keep_for: how long published events are kept, where the store keeps them.
        keep_parked_for: how long an event is kept that could not be published; then it is deleted, and those that wait
            behind it are published. By default for ever: an outbox loses nothing by itself.

    Raises:
        UsageError: a setting makes no sense, or the outbox is that of a `Semel`.
    """

    def __init__(
        self,
        outbox: Outbox[AsyncSemel],
        publisher: Publisher,
        in_flight: int = 64,
        *,
        batch: int = 500,
        parts: int = 1,
        max_attempts: int = 5,
        backoff: Backoff | None = None,
        keep_for: Duration = timedelta(days=7),
        keep_parked_for: Duration | None = None,
    ) -> None:
        engine = engine_of(outbox.semel)
        if not isinstance(engine, AsyncEngine):
            raise UsageError(
                "A relay is async, and this outbox is that of a Semel; nothing was made. Give it "
                "Outbox(AsyncSemel(…), stream) on the same store."
            )
        for name, value, most in (
            ("in_flight", in_flight, 65536),
            ("batch", batch, 65536),
            ("parts", parts, SHARDS),
            ("max_attempts", max_attempts, 1_000_000),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise UsageError(f"{name} is a whole number from 1 to {most}, not {value!r}; nothing was made.")
        self._engine = engine
        self.outbox = outbox
        self.publisher = publisher
        self.progress = RelayProgress()
        self._parts = [StreamPart(outbox.stream, number, parts) for number in range(parts)]
        self.keep_for = to_timedelta("keep_for", keep_for, may_be_zero=True, error=UsageError)
        parked = None
        if keep_parked_for is not None:
            parked = to_timedelta("keep_parked_for", keep_parked_for, error=UsageError)
        self._settings = RelaySettings(in_flight, batch, max_attempts, backoff or _BACKOFF, self.keep_for, parked)
        self._policy = Policy(lease_for=_LEASE, max_runtime=_LONGEST, when_running="reject")
        self._wake = asyncio.Event()
        self._wakes_once: set[asyncio.Event] = set()
        self._spawn: Spawn = spawn

    def __repr__(self) -> str:
        return f"Relay({self.outbox.stream!r})"

    async def run_once(self) -> int:
        """Publish all that is committed now, except what another relay is publishing; answers how many events.

        It deletes nothing of what was published before: call `purge` now and then, where `run` does not run.

        Raises:
            UsageError: it was called inside a transaction, or the publisher does not answer for each event.
            StoreUnavailable: the store did not answer; what was published and not yet saved is published again.
            ConnectionError: the broker could not be reached, as often as `max_attempts` says; or whatever the publisher
                answered instead.
        """
        return await self._once()

    async def run(self) -> None:
        """Publish events as they come, until `stop` is called."""
        self._refuse_joining()
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(self._run_part(part))

    def stop(self) -> None:
        """Have `run` end once what is under way is published and saved."""
        for wake in (self._wake, *self._wakes_once):
            wake.set()

    async def purge(self) -> int:
        """Delete events that were published more than `keep_for` ago; `run` does this by itself. Answers how many."""
        return await self._once(purges=True)

    async def parked(self) -> AsyncIterator[Parked]:
        """Events that could not be published, and those that wait behind them, oldest first."""
        after: int | None = 0
        while after is not None:
            page = await self._ask(ScanParked(self.outbox.stream, after, _PAGE))
            for one in page.events:
                yield _show(one)
            after = page.after

    async def release(self, position: int | None = None) -> int:
        """Have a parked event, or all of them, published again; answers how many.

        Raises:
            RecordNotFound: there is no such event among those that failed.
        """
        return await self._change(ReleaseParked(self.outbox.stream, position))

    async def discard(self, position: int) -> None:
        """Delete a parked event, which is then never published; those that wait behind it go on.

        Raises:
            RecordNotFound: there is no such event.
        """
        await self._change(ReleaseParked(self.outbox.stream, position, discard=True))

    async def _once(self, *, purges: bool = False) -> int:
        """Go through the parts once. To stop the relay ends this too, and nothing that is called later."""
        self._refuse_joining()
        wake = asyncio.Event()
        self._wakes_once.add(wake)
        try:
            turns = [await self._turn(part, wake, once=True, purges=purges) for part in self._parts]
        finally:
            self._wakes_once.discard(wake)
        return sum(count or 0 for count in turns)

    async def _change(self, operation: ReleaseParked) -> int:
        changed = await self._ask(operation)
        if operation.position is not None and not changed.count:
            raise RecordNotFound(
                f"There is no parked event at position {operation.position} of {self.outbox.stream!r} that could be "
                f"{'discarded' if operation.discard else 'released'}; nothing was changed."
            )
        return int(changed.count)

    async def _run_part(self, part: StreamPart) -> None:
        """Take the part over whenever it is free; a store that is silent is asked again, with pauses."""
        silent = 0
        while not self._wake.is_set():
            try:
                count = await self._turn(part, self._wake, once=False)
                silent = 0
                await self._rest(_LONGEST_PAUSE if count is None else _OTHERS_FIRST)
            except TryLater:
                silent += 1
                pause = self._settings.backoff.after(silent).total_seconds()
                await self._rest(max(pause, _LONGEST_PAUSE))

    async def _turn(self, part: StreamPart, wake: asyncio.Event, *, once: bool, purges: bool = False) -> int | None:
        """Claim a part, publish or purge, give it back; answers how many events that were, None if another has it."""
        try:
            call = await self._engine.open(
                (part.stream, part.number, part.parts), operation=RELAY, fingerprint=None, policy=self._policy
            )
        except InProgress:
            return None
        try:
            return await self._work(part, wake, once=once, purges=purges)
        except (Overtaken, TimeIsUp):
            return 0
        finally:
            await self._give_back(call)

    async def _work(self, part: StreamPart, wake: asyncio.Event, *, once: bool, purges: bool) -> int:
        until = self._engine.clock.monotonic() + _HELD_FOR
        publishing = PartPublisher(
            part,
            self.publisher,
            self._settings,
            ask=self._ask,
            clock=self._engine.clock,
            wake=wake,
            until=until,
            progress=self.progress,
            is_patient=not once,
            observer=self._engine.observer,
            spawn=self._spawn,
        )
        try:
            await publishing.open(self._engine.new_nonce())
            if purges:
                return await publishing.purge()
            count = await publishing.publish_all()
            pause = _FIRST_PAUSE
            while not once and not publishing.is_over:
                await self._rest(pause)
                published = await publishing.publish_all()
                count += published
                pause = _FIRST_PAUSE if published else min(pause * 2, _LONGEST_PAUSE)
            await publishing.finish()
            return count
        finally:
            await publishing.close()

    async def _give_back(self, call: AsyncCall[Any]) -> None:
        with suppress(TryLater, LeaseLost):  # its lease ends by itself, or has ended
            await asyncio.shield(self._engine.runtime().spawn(call.give_back()))

    async def _rest(self, seconds: float) -> None:
        await self._engine.clock.arest(self._wake, self._engine.clock.monotonic() + seconds)

    def _refuse_joining(self) -> None:
        if context.joined_here(self._engine.store.name) is not None:
            raise UsageError(
                "A relay publishes what is committed, and was called inside within(); nothing was published. Call it "
                "outside."
            )

    async def _ask(self, operation: Any) -> Any:
        """Have an operation carried out on a connection of semel's own."""
        return await self._engine.perform_on(None, _once(operation))


def _once(operation: Any) -> Flow[Any]:
    answer = yield from ask(operation)
    return answer


def _show(parked: ParkedEvent) -> Parked:
    kept = parked.stored.event
    return Parked(
        parked.stored.position,
        show_outbox_event(kept),
        kept.ordering_key,
        parked.error,
        parked.attempts,
        instant(parked.parked_us),
    )
