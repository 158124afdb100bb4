"""The outbox: events that are published if, and only if, the transaction they were added in commits.

- Inside a handler that runs in a transaction of its caller, events are kept in memory and written by the statement
  that completes the record: no round trip more, and a replay adds nothing. Their ids are derived from the key and their
  name, so that a handler which runs again after a rollback gives the same ones.
- Elsewhere they are written at once, in the caller's transaction, and need an id of their own.
- Every event has the scope of the handler that adds it, or the one that is given, so that what is kept of a tenant or
  about a subject can be erased.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable
from typing import Any, Final, Generic, TypeVar, overload

from msgspec.structs import replace

from semel.api import AsyncSemel, Semel
from semel.core.events.outbox import AddEvents, EraseEvents, OutboxEvent
from semel.core.flow import Flow, ask
from semel.core.key import SHARED, Key
from semel.core.observer import Tracer, current_trace
from semel.core.store import Capability
from semel.engine import context
from semel.engine.async_engine import AsyncEngine
from semel.engine.context import AttemptState
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.events.encoding import to_outbox
from semel.events.event import Event

S = TypeVar("S", Semel, AsyncSemel)
_LOOKED_AT: Final = 1000
"""So many events are looked at together when some of them are to be erased."""


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
        scope: object = None,
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
        scope: object = None,
        within: Any = None,
        autonomous: bool = False,
    ) -> Event: ...

    def add(
        self,
        event: Event,
        *,
        name: str | None = None,
        ordering_key: str | None = None,
        scope: object = None,
        within: Any = None,
        autonomous: bool = False,
    ) -> Any:
        """Have an event published once the transaction commits; gives it with its id.

        Args:
            event: without an id of its own it gets one that is derived from the key of the running handler.
            name: tells events of one handler apart; by default the type.
            ordering_key: events of one key are published in the order in which they were added.
            scope: whose event it is, as for a key; by default that of the running handler, or `SHARED`.
            within: your transaction, as `semel.within` takes it. Not needed where the handler itself runs in it, unless
                the event is to go with a savepoint that may be rolled back: then it is written at once.
            autonomous: add it in a transaction of its own, whatever becomes of yours.

        Raises:
            UsageError: there is no transaction, no id, the handler has ended, or the name was used already in this
                attempt.
        """
        if not isinstance(event, Event):
            raise UsageError(f"add() takes an Event, not a {type(event).__name__}; it was not added.")
        engine = self._engine
        call = _current_call(engine)
        used = event.type if name is None else name
        named = _with_id(event, used, call)
        if engine.tracer is not None:
            named = _with_trace(named, engine.tracer)
        added = to_outbox(named, self.stream, ordering_key, _scope_text(scope, call))
        joined = None
        if within is not None:
            joined = engine.store.async_join(within) if isinstance(engine, AsyncEngine) else engine.store.join(within)
        elif not autonomous:
            if call is not None and call.joined:
                _note_name(used, call)
                if not call.events.add(added):
                    raise UsageError(
                        "add() was called after its handler had ended, and what that wrote is written without this "
                        "event; it was not added. Have the handler wait for whatever adds events."
                    )
                return _give(engine, named)
            joined = context.joined_here(engine.store.name)
            if joined is None:
                raise UsageError(
                    "add() was called without a transaction, so the event would be published whatever becomes of what "
                    "it tells of; it was not added. Call it in a handler inside semel.within(…), give within=, or say "
                    "autonomous=True."
                )
        if call is not None:
            _note_name(used, call)
        return engine.perform_on(joined, _add(added, named))

    @overload
    def erase(
        self: Outbox[AsyncSemel], *, subject: str | None = None, scope: object = None, every_stream: bool = False
    ) -> Awaitable[int]: ...

    @overload
    def erase(
        self: Outbox[Semel], *, subject: str | None = None, scope: object = None, every_stream: bool = False
    ) -> int: ...

    def erase(self, *, subject: str | None = None, scope: object = None, every_stream: bool = False) -> Any:
        """Delete the events of a subject, of a scope, or of a subject in a scope; answers how many rows that were.

        Published ones, parked ones, and also those that wait: they are then never published. Where they have to be, let
        relays catch up first. Events of transactions that have not committed yet are not found.

        Args:
            subject: that of the events.
            scope: whose events; `SHARED` for those of nobody in particular.
            every_stream: not of this stream alone.

        Raises:
            UsageError: neither a subject nor a scope is given.
        """
        if subject is None and scope is None:
            raise UsageError(
                "erase() needs a subject or a scope; without them it would delete all; nothing was erased."
            )
        asked = EraseEvents(
            scope=None if scope is None else _scope_text(scope, None),
            subject=subject,
            stream=None if every_stream else self.stream,
            limit=_LOOKED_AT,
        )
        return self._engine.perform_on(None, _erase(asked))


def _with_id(event: Event, used: str, call: AttemptState | None) -> Event:
    """The event under the id it is published with.

    Raises:
        UsageError: it has none, and there is no handler from whose key one could be derived.
    """
    if event.has_own_id:
        return event
    if call is None:
        raise UsageError(
            "Outside a handler nothing tells two runs of this code apart, so the event needs an id of its own; "
            "it was not added. Give Event(id=…)."
        )
    return event.with_id(call.key.derive(f"event:{used}"))


def _note_name(name: str, call: AttemptState) -> None:
    """Note that an event of this name is added: of two, replays could not tell which one is which.

    Raises:
        UsageError: there is one already.
    """
    if name in call.event_names:
        raise UsageError(
            f"An event named {name!r} was added already in this attempt; this one was not added. Give each a name."
        )
    call.event_names.add(name)


def _current_call(engine: Any) -> AttemptState | None:
    """The call of this engine whose handler is running here."""
    attempt = engine.current()
    return None if attempt is None else attempt._call  # noqa: SLF001 - what people see of it has no place for events


def _with_trace(event: Event, tracer: Tracer) -> Event:
    """The event with the span that it is added in, as the CloudEvents extension `traceparent`, unless it has one."""
    trace = None if "traceparent" in event.extensions else current_trace(tracer)
    return event if trace is None else dataclasses.replace(event, extensions={**event.extensions, "traceparent": trace})


def _scope_text(scope: object, call: AttemptState | None) -> str:
    """The scope of an event, as keys have it."""
    if scope is not None:
        return "" if scope is SHARED else Key.of("any", operation="any", scope=scope).scope
    return "" if call is None else call.key.scope


def _erase(asked: EraseEvents) -> Flow[int]:
    count, after = 0, 0
    while True:
        erased = yield from ask(replace(asked, after=after))
        count += erased.count
        if erased.after is None:
            return count
        after = erased.after


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
