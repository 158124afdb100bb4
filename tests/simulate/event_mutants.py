"""Mistakes one could make with events, each as a switch that puts it in, and the invariants that may give it away."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from semel.core.events.letters import DropLetter, LetterFound, PutLetter, letter_id
from semel.core.record import Failure
from semel.engine import call_flow
from semel.errors import SemelError
from semel.events import deliveries, delivery
from semel.events.deliveries import AsyncDeliveries
from semel.events.delivery import Delivery
from semel.events.disposition import Disposition
from semel.events.letterbox import AsyncLetterbox
from semel.stores.letters import Letters
from semel_lab.simulate.events.database import Database
from semel_lab.simulate.events.process import Process
from semel_lab.simulate.world import Broken

Switch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class EventMutant:
    """A mistake, and the invariants it breaks."""

    name: str
    switch: Switch
    breaks: frozenset[str]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


EVENT_MUTANTS: list[EventMutant] = []


def mutant(name: str, *breaks: str) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        EVENT_MUTANTS.append(EventMutant(name, switch, frozenset(breaks)))
        return switch

    return add


def swapped(target: Any, name: str, wrong: Any) -> AbstractContextManager[Any]:
    return patch.object(target, name, wrong)


@mutant("the mark is set before the effect", "E5")
def _() -> AbstractContextManager[Any]:
    async def handle(self: Any, delivery: Delivery, within: Any) -> Disposition:
        async def nothing() -> None:
            delivery.number = 1

        try:
            result = await self._engine.call(delivery.request, nothing)
            if not result.replayed:
                await self._handler(delivery, None)()
        except SemelError as error:
            return await self._explain(delivery, error)  # type: ignore[no-any-return]
        except Broken as error:
            return delivery.after_failure(error, 1)
        return self._acknowledge(delivery, result)  # type: ignore[no-any-return]

    return swapped(AsyncDeliveries, "_handle", handle)


@mutant("the mark does not say whose it is", "E2", "E3", "E5", "E7")
def _() -> AbstractContextManager[Any]:
    return swapped(delivery.Settings, "operation", property(lambda _self: "event:"))


@mutant("what could not be committed is acknowledged", "E1")
def _() -> AbstractContextManager[Any]:
    async def count(self: Any, delivery: Delivery, error: Exception) -> Disposition:
        return Disposition("ack", "processed", reference=delivery.reference)

    return swapped(AsyncDeliveries, "_count", count)


@mutant("an event is acknowledged before its transaction commits", "E3")
def _() -> AbstractContextManager[Any]:
    right: Any = Process._transaction

    @asynccontextmanager
    async def transaction(self: Any) -> AsyncIterator[Any]:
        async with right(self) as session:
            yield session
            queue = self.sim.queue
            queue[:] = [message for message in queue if self not in message.holders]

    return swapped(Process, "_transaction", transaction)


@mutant("an attempt that was rolled back is not counted", "E4")
def _() -> AbstractContextManager[Any]:
    async def count(self: Any, delivery: Delivery, error: Exception) -> Disposition:
        return delivery.after_failure(error, 1, rolled_back=True)

    return swapped(AsyncDeliveries, "_count", count)


@mutant("a failure that is final leaves no letter", "E2")
def _() -> AbstractContextManager[Any]:
    return swapped(Delivery, "make_letter", lambda *_: None)


@mutant("a letter is written after its record", "E2")
def _() -> AbstractContextManager[Any]:
    right: Any = AsyncDeliveries._handle
    make = Delivery.make_letter

    async def handle(self: Any, delivery: Delivery, within: Any) -> Disposition:
        given: Disposition = await right(self, delivery, within)
        if given.action == "dead_letter" and delivery.error is not None:
            failure = Failure.of(delivery.error)
            letter = make(delivery, failure, "final", delivery.number)
            if letter is not None:
                await self._ask(PutLetter(letter))
        return given

    return _together(swapped(AsyncDeliveries, "_handle", handle), swapped(Delivery, "make_letter", lambda *_: None))


@mutant("a letter is named by chance", "E2")
def _() -> AbstractContextManager[Any]:
    numbers = itertools.count()
    return swapped(delivery, "letter_id", lambda *_: b"%032d" % next(numbers))


@mutant("a letter is named by the id of its event and its data alone", "E2", "E3", "E8")
def _() -> AbstractContextManager[Any]:
    def name(self: Delivery) -> bytes:
        return letter_id(self.settings.name, self.request.key.digest, self.event.body)

    return swapped(Delivery, "letter_id", name)


@mutant("a letter about a doubt outlives it", "E3")
def _() -> AbstractContextManager[Any]:
    async def keep(self: Any, letter: Any) -> bool:
        return False

    return swapped(AsyncLetterbox, "_close_if_settled", keep)


@mutant("what the hook could not tell is not counted", "E4")
def _() -> AbstractContextManager[Any]:
    return swapped(call_flow, "times_unknown", lambda _failure: 0)


@mutant("an event that nobody can tell anything of is acknowledged", "E1")
def _() -> AbstractContextManager[Any]:
    async def acknowledge(self: Any, delivery: Delivery, error: Any) -> Disposition:
        return Disposition("ack", "in_doubt", None, delivery.reference, error)

    return swapped(AsyncDeliveries, "_put_aside", acknowledge)


@mutant("a redriven record stays shut", "E8")
def _() -> AbstractContextManager[Any]:
    async def leave(self: Any, letter: Any) -> None:
        """Do nothing."""

    return swapped(AsyncLetterbox, "_reopen", leave)


@mutant("a letter stays when its record is completed", "E3", "E8")
def _() -> AbstractContextManager[Any]:
    right: Any = Letters.apply

    def apply(self: Any, operation: Any, now: int) -> Any:
        return LetterFound(None) if isinstance(operation, DropLetter) else right(self, operation, now)

    return _together(swapped(Letters, "drop", lambda *_: None), swapped(Letters, "apply", apply))


@mutant("nobody keeps events of one subject apart", "E6")
def _() -> AbstractContextManager[Any]:
    async def handle(self: Any, delivery: Delivery, subject: str) -> Disposition:
        return await self._handle(delivery, None)  # type: ignore[no-any-return]

    return swapped(AsyncDeliveries, "_handle_alone", handle)


@mutant("events are added before their record is completed", "E7")
def _() -> AbstractContextManager[Any]:
    rolled_back: Any = Database.roll_back

    def roll_back(self: Any, session: Any) -> None:
        if not session.is_over and session.table is not None:
            self.table.outbox.add(session.table.events, self.now_us)
            session.table.outbox = type(session.table.outbox)()
        rolled_back(self, session)

    return swapped(Database, "roll_back", roll_back)


@mutant("a store that does not answer is taken for a yes", "E1")
def _() -> AbstractContextManager[Any]:
    def acknowledge(error: Any, reference: str | None = None) -> Disposition:
        return Disposition("ack", "processed", None, reference, error)

    return swapped(deliveries, "_unavailable", acknowledge)


def _together(*switches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for switch in switches:
        stack.enter_context(switch)
    return stack
