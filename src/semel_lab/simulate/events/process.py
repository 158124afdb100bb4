"""One process of a consumer: the real consumer, stopped wherever it waits.

What always holds: everything down to the lane is semel's own code. Where it would wait, it hands its wish to the
simulation and goes on with the answer. A process that dies raises `Killed` at that point, and nothing more of it
reaches the simulation.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from semel.api import AsyncSemel
from semel.core.record import DidNotHappen, Happened, Unknown
from semel.engine.async_engine import AsyncAttempt
from semel.events import Backoff, Consumer, DeadLetter, Disposition, Event, Outbox
from semel_lab.simulate.decorated_caller import Killed
from semel_lab.simulate.events.database import Session, Wish
from semel_lab.simulate.events.runtime import make_semel
from semel_lab.simulate.events.world import LEASE, MAX_ATTEMPTS
from semel_lab.simulate.world import Broken

if TYPE_CHECKING:
    from semel_lab.simulate.events.simulation import EventSimulation

TYPE = "asset.moved"


def label(event: Event) -> str:
    """What tells an event from another one under its id."""
    return f"{event.id} {event.subject}"


class Point:
    """A point that others can see: the beginning of a handler, its effect, the ends of a transaction."""

    __slots__ = ("name", "session", "subject")

    def __init__(self, name: str, subject: str = "", session: Session | None = None) -> None:
        self.name = name
        self.subject = subject
        self.session = session


class Process:
    """One process of one consumer."""

    def __init__(self, sim: EventSimulation, name: str, actor: int) -> None:
        self.sim = sim
        self.name = name
        self.actor = actor
        self.is_dead = False
        self.event: Event | None = None
        self.wanted: Any = None
        self.handling: str | None = None
        self._work: Any = None
        self._context = contextvars.Context()
        self.semel = make_semel(sim.database, sim.new_nonce, self.check_alive)
        self.consumer = self._make_consumer()

    def _make_consumer(self) -> Consumer[AsyncSemel]:
        world = self.sim.world
        consumer = Consumer(
            self.semel,
            self.name,
            max_attempts=MAX_ATTEMPTS,
            backoff=Backoff(first=0.1, most=0.1, spread=0.0),  # chance belongs to the choices of the schedule
            transaction=self._transaction if world.transaction else None,
            serial_by="subject" if world.serial else None,
            in_doubt=world.in_doubt,
            reconcile=None if world.hook is None else self._ask_whether_it_happened,
            reconcile_after=LEASE,
            lease_for=LEASE,
        )
        handler = self._handle_in_transaction if world.transaction else self._handle
        consumer.on(TYPE)(handler)
        return consumer

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Session]:
        session = self.sim.database.begin(self.check_alive)
        try:
            yield session
            await Wish(Point("commit", session=session))
        except BaseException:
            self.sim.database.roll_back(session)  # also what was to be committed, where that did not arrive
            raise

    async def _handle(self, event: Event) -> None:
        await self._act(event, None)

    async def _handle_in_transaction(self, event: Event, session: Session) -> None:
        if self.sim.world.outbox:
            await Outbox(self.semel).add(Event(type="asset.noted", source="/sim", subject=event.id))
        await self._act(event, session)

    async def _act(self, event: Event, session: Session | None) -> None:
        await Wish(Point("start", event.subject or ""))
        if self.sim.world.poison and not self.sim.is_mended:
            raise Broken("poison")
        await Wish(Point("effect", label(event), session))

    async def _ask_whether_it_happened(self, attempt: AsyncAttempt) -> Happened | DidNotHappen | Unknown:
        await Wish(Point("hook"))
        if self.sim.world.hook == "cannot tell":
            return Unknown()
        return Happened(None) if self.sim.has_effect(self.name, attempt.key) else DidNotHappen()

    def check_alive(self) -> None:
        """Raises `Killed` where the process has died."""
        if self.is_dead:
            raise Killed

    def take(self, event: Event) -> None:
        """Begin to handle an event."""
        self.event = event
        self._work = self.consumer.handle(event)
        self._go(self._work.send, None)

    def redrive(self, id_: str) -> None:
        """Begin to hand a dead letter over again."""
        self._work = self.consumer.redrive(id_)
        self._go(self._work.send, None)

    def list_letters(self) -> list[DeadLetter]:
        """The dead letters of this consumer, as an operator sees them."""
        found: list[DeadLetter] = []

        async def collect() -> None:
            found.extend([letter async for letter in self.consumer.dead_letters()])

        work = collect()
        answer: Any = None
        with suppress(StopIteration):
            while True:
                answer = self.sim.database.apply(self._context.run(work.send, answer))
        return found

    def answer(self, value: Any) -> None:
        """Go on with an answer, up to the next wish."""
        self._go(self._work.send, value)

    def refuse(self, error: Exception) -> None:
        """Go on with an error, up to the next wish."""
        self._go(self._work.throw, error)

    def _go(self, move: Any, value: Any) -> None:
        try:
            self.wanted = self._context.run(move, value)
        except StopIteration as end:
            self._end(end.value)
        except BaseException:
            self._work = None  # it is over
            raise

    def _end(self, disposition: Disposition | None) -> None:
        event, self.event, self.wanted, self._work, self.handling = self.event, None, None, None, None
        self.sim.told(self, event, disposition)

    def die(self) -> None:
        """End at the point where it stands; its successor begins anew."""
        self.is_dead = True
        work, self._work, self.wanted, self.handling = self._work, None, None, None
        if work is not None:
            with suppress(Killed, StopIteration):
                self._context.run(work.throw, Killed())
        self.event = None
