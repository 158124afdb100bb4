"""The outbox: events that are published if, and only if, the transaction they were added in commits.

- Inside a handler that runs in a transaction of its caller, events are kept in memory and written by the statement
  that completes the record: no round trip more, and a replay adds nothing. Their ids are derived from the key and their
  name, so that a handler which runs again after a rollback gives the same ones.
- Elsewhere they are written at once, in the caller's transaction, and need an id of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Generic, TypeVar, overload

from semel.api import AsyncSemel, Semel
from semel.core.events.outbox import AddEvents, OutboxEvent
from semel.core.flow import Flow, ask
from semel.core.key import Key
from semel.core.store import Capability
from semel.engine import context
from semel.engine.async_engine import AsyncEngine
from semel.engine.context import AttemptState
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.events.encoding import to_outbox
from semel.events.event import Event

S = TypeVar("S", Semel, AsyncSemel)


class Outbox(Generic[S]):
    """Where handlers put the events they give off.

    Args:
        semel: the engine, whose store keeps them.
        stream: a name; each stream is moved by relays of its own.

    Raises:
        UsageError: the store has no transactions that events could be part of.
    """

    def __init__(self, semel: S, stream: str = "default") -> None:
        self.semel: S = semel
        self._engine: Any = engine_of(semel)
        if Capability.OUTBOX not in self._engine.store.capabilities:
            raise UsageError(
                f"{self._engine.store.name} has no transaction that an event could be part of, so an outbox there "
                f"would lose events or publish what never happened; nothing was made. Keep the outbox in the SQL "
                f"database of your service."
            )
        self.stream = Key.of("any", operation=stream).operation

    def __repr__(self) -> str:
        return f"Outbox({self.stream!r})"

    @overload
    def add(
        self: Outbox[AsyncSemel],
        event: Event,
        *,
        name: str | None = None,
        ordering_key: str | None = None,
        within: Any = None,
        autonomous: bool = False,
    ) -> Awaitable[Event]: ...

    @overload
    def add(
        self: Outbox[Semel],
        event: Event,
        *,
        name: str | None = None,
        ordering_key: str | None = None,
        within: Any = None,
        autonomous: bool = False,
    ) -> Event: ...

    def add(
        self,
        event: Event,
        *,
        name: str | None = None,
        ordering_key: str | None = None,
        within: Any = None,
        autonomous: bool = False,
    ) -> Any:
        """Have an event published once the transaction commits; gives it with its id.

        Args:
            event: without an id of its own it gets one that is derived from the key of the running handler.
            name: tells events of one handler apart; by default the type.
            ordering_key: events of one key are published in the order in which they were added.
            within: your transaction, as `semel.within` takes it; not needed where the handler itself runs in it.
            autonomous: add it in a transaction of its own, whatever becomes of yours.

        Raises:
            UsageError: there is no transaction, no id, or the name was used already in this attempt.
        """
        engine = self._engine
        call = _current_call(engine)
        named = self._name(event, name, call)
        added = to_outbox(named, self.stream, ordering_key)
        joined = None
        if within is not None:
            joined = engine.store.async_join(within) if isinstance(engine, AsyncEngine) else engine.store.join(within)
        elif not autonomous:
            if call is not None and call.joined:
                call.events.append(added)
                return _give(engine, named)
            joined = context.joined_here(engine.store.name)
            if joined is None:
                raise UsageError(
                    "add() was called without a transaction, so the event would be published whatever becomes of what "
                    "it tells of; it was not added. Call it in a handler inside semel.within(…), give within=, or say "
                    "autonomous=True."
                )
        return engine.perform_on(joined, _add(added, named))

    def _name(self, event: Event, name: str | None, call: AttemptState | None) -> Event:
        """The event under the id it is published with.

        Raises:
            UsageError: it has none, and there is no handler from whose key one could be derived; or the name was used.
        """
        if call is None:
            if not event.has_own_id:
                raise UsageError(
                    "Outside a handler nothing tells two runs of this code apart, so the event needs an id of its own; "
                    "it was not added. Give Event(id=…)."
                )
            return event
        used = event.type if name is None else name
        if used in call.event_names:
            raise UsageError(
                f"An event named {used!r} was added already in this attempt; this one was not added. Give each a name."
            )
        call.event_names.add(used)
        return event if event.has_own_id else event.with_id(call.key.derive(f"event:{used}"))


def _current_call(engine: Any) -> AttemptState | None:
    """The call of this engine whose handler is running here."""
    attempt = engine.current()
    return None if attempt is None else attempt._call  # noqa: SLF001 - what people see of it has no place for events


def _add(event: OutboxEvent, named: Event) -> Flow[Event]:
    yield from ask(AddEvents((event,)))
    return named


def _give(engine: Any, event: Event) -> Any:
    """The event, as the kind of engine gives it."""
    if not isinstance(engine, AsyncEngine):
        return event

    async def give() -> Event:
        return event

    return give()
