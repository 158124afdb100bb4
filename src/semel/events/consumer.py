"""A consumer: handlers of events whose effects happen once, by the types they take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack, cast, overload

from semel.api import AsyncSemel, Semel
from semel.core.events.letters import operation_of
from semel.core.key import SHARED, Key
from semel.core.policy import Policy, PolicyFields
from semel.core.record import About
from semel.core.store import Capability
from semel.engine.async_engine import AsyncEngine
from semel.engine.decorator import check_async_function, check_sync_function
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.events.dead_letters import DeadLetter, RedriveReport, letter_query, parse_letter_id
from semel.events.deliveries import AsyncDeliveries, ReadEvent, SyncDeliveries
from semel.events.delivery import SerialRule, Settings, UnknownRule, UnknownType
from semel.events.disposition import Backoff, Disposition
from semel.events.event import Event
from semel.events.handlers import Handlers
from semel.events.letterbox import AsyncLetterbox, SyncLetterbox
from semel.handlers import DoesNotDecode
from semel.transactions import transaction_of

S = TypeVar("S", Semel, AsyncSemel)
F = TypeVar("F", bound=Callable[..., Any])

MAX_ATTEMPTS = 5
KEEP_FOR = timedelta(days=30)


class Consumer(Generic[S]):
    """Takes events for one purpose. Each event runs its handler once, however often it is delivered.

    Args:
        semel: the engine; of an `AsyncSemel` handlers are coroutine functions, and `handle` is awaited.
        name: of the consumer; part of the identity of its marks, so it must outlast deployments.
        backoff: how long to wait between two attempts.
        unknown: what to do with events of a type that no handler takes: `refuse` (deliver it again, because a newer
            release may know it), `dead_letter`, or `ignore`.
        transaction: gives a context manager that begins a transaction, gives what `within` takes, and commits at its
            end. Then the mark commits together with what the handler writes. Text is the alias of a Django database:
            its connection is the session, in `atomic`.
        serial_by: "subject": never two events of a subject at the same time, over all processes, as long as none runs
            for longer than `max_runtime`. It promises no order.
        scope: for whom, or a callable that says so of an event.
        about: what people search by, as a callable of the event; by default the subject.
        policy: fields of the policy. Here `max_attempts` is 5 and then an event becomes a dead letter, `keep_for` is 30
            days, and `when_running` is "reject". What a settings file says of the operation `event:` and the name wins.
    """

    def __init__(
        self,
        semel: S,
        name: str,
        *,
        backoff: Backoff | None = None,
        unknown: UnknownRule = "refuse",
        transaction: Callable[[], Any] | str | None = None,
        serial_by: SerialRule | None = None,
        scope: Any = SHARED,
        about: Callable[[Event], About | Mapping[str, Any] | None] | None = None,
        **policy: Unpack[PolicyFields],
    ) -> None:
        if unknown not in ("refuse", "dead_letter", "ignore"):
            raise UsageError(f"unknown is refuse, dead_letter or ignore, not {unknown!r}; nothing ran.")
        if serial_by not in (None, "subject"):
            raise UsageError(f'serial_by is "subject" or None, not {serial_by!r}; nothing ran.')
        engine = engine_of(semel)
        if Capability.LETTERS not in engine.store.capabilities:
            raise UsageError(
                f"{engine.store.name} keeps no dead letters, so an event that fails for good would be lost; nothing "
                f"was made."
            )
        self.semel: S = semel
        self.name = Key.of("any", operation=name, scope=SHARED if callable(scope) else scope).operation
        Key.of("any", operation=operation_of(self.name))  # longer than the name: refused here, and not event by event
        self._handlers = self._make_handlers()
        fields: PolicyFields = {"when_running": "reject", "keep_for": KEEP_FOR, "max_attempts": MAX_ATTEMPTS}
        fields |= policy
        settled = engine.policy_for(operation_of(self.name), None, fields)
        settings = Settings(
            name=self.name,
            policy=_with_own_errors(settled, unknown),
            backoff=backoff or Backoff(),
            unknown=unknown,
            scope=scope,
            about=about,
            keep_letters=max(KEEP_FOR, settled.keep_for),
            transaction=transaction_of(transaction, engine),
            serial_by=serial_by,
        )
        self.policy = settings.policy
        self.is_async = isinstance(engine, AsyncEngine)
        self._deliveries: Any
        self._letterbox: Any
        if isinstance(engine, AsyncEngine):
            self._deliveries = AsyncDeliveries(engine, settings, self._handlers, self._read)
            self._letterbox = AsyncLetterbox(engine, settings, self._deliveries)
        else:
            self._deliveries = SyncDeliveries(cast("Any", engine), settings, self._handlers, self._read)
            self._letterbox = SyncLetterbox(cast("Any", engine), settings, self._deliveries)

    def _make_handlers(self) -> Handlers:
        """What finds the handler of an event; a framework that has handlers of its own gives one that leads to them."""
        return Handlers()

    def _read(self, headers: Mapping[str, Any], body: bytes) -> Event:
        """The event that headers and a body are; a framework may know of further ways to write one.

        Raises:
            EventInvalid: it is none.
        """
        return Event.from_headers(headers, body)

    def __repr__(self) -> str:
        return f"Consumer({self.name!r})"

    @property
    def handlers(self) -> dict[str, Callable[..., Any]]:
        """The functions that take events, by type."""
        return {type_: handler.function for type_, handler in self._handlers}

    def on(self, *types: str) -> Callable[[F], F]:
        """Decorate the handler of events of these types.

        Its parameters are given by name: `event`, `data` (decoded to its annotation), `session` (what `transaction`
        gave) and `attempt`, each optional.

        Raises:
            UsageError: it has another parameter, is of the wrong kind, or one of the types has a handler.
        """

        def decorate(function: F) -> F:
            (check_async_function if self.is_async else check_sync_function)(function)
            self._handlers.add(types, function)
            return function

        return decorate

    @overload
    def handle(
        self: Consumer[AsyncSemel], event: Event, *, within: Any = None, remaining: timedelta | None = None
    ) -> Awaitable[Disposition]: ...

    @overload
    def handle(
        self: Consumer[Semel], event: Event, *, within: Any = None, remaining: timedelta | None = None
    ) -> Disposition: ...

    def handle(self, event: Event, *, within: Any = None, remaining: timedelta | None = None) -> Any:
        """Run the handler of an event once, and say what the broker is to be told.

        With `within`, effect and mark are part of your transaction: an error of the handler is raised, so that your
        block rolls back; then call `failed`. `remaining` is how long this process is sure to run, where somebody will
        freeze or end it: the claim ends by then.

        Raises:
            UsageError: the program has to be changed; the event was not processed.
        """
        if not isinstance(event, Event):
            raise UsageError(f"handle() takes an Event, not a {type(event).__name__}; nothing ran. Use receive().")
        return self._deliveries.handle(event, within=within, remaining=remaining)

    @overload
    def receive(
        self: Consumer[AsyncSemel],
        headers: Mapping[str, Any],
        body: bytes,
        *,
        read: ReadEvent | None = None,
        remaining: timedelta | None = None,
    ) -> Awaitable[Disposition]: ...

    @overload
    def receive(
        self: Consumer[Semel],
        headers: Mapping[str, Any],
        body: bytes,
        *,
        read: ReadEvent | None = None,
        remaining: timedelta | None = None,
    ) -> Disposition: ...

    def receive(
        self,
        headers: Mapping[str, Any],
        body: bytes,
        *,
        read: ReadEvent | None = None,
        remaining: timedelta | None = None,
    ) -> Any:
        """Read an event from headers and body, and handle it; what is no event becomes a dead letter.

        `read` is for messages of another form; it raises `EventInvalid` where one is no event.
        """
        return self._deliveries.receive(headers, body, read=read, remaining=remaining)

    @overload
    def failed(self: Consumer[AsyncSemel], event: Event, error: Exception) -> Awaitable[Disposition]: ...

    @overload
    def failed(self: Consumer[Semel], event: Event, error: Exception) -> Disposition: ...

    def failed(self, event: Event, error: Exception) -> Any:
        """Count an attempt that was rolled back with your transaction, and say what the broker is to be told."""
        if not isinstance(event, Event):
            raise UsageError(f"failed() takes an Event, not a {type(event).__name__}; nothing was counted.")
        return self._deliveries.failed(event, error)

    @overload
    def dead_letters(
        self: Consumer[AsyncSemel],
        *,
        reason: str | None = None,
        type: str | None = None,
        subject: str | None = None,
        before: datetime | None = None,
    ) -> AsyncIterator[DeadLetter]: ...

    @overload
    def dead_letters(
        self: Consumer[Semel],
        *,
        reason: str | None = None,
        type: str | None = None,
        subject: str | None = None,
        before: datetime | None = None,
    ) -> Iterator[DeadLetter]: ...

    def dead_letters(self, **asked: Any) -> Any:
        """Dead letters, oldest first. `before` is about when they became such.

        Raises:
            UsageError: there are never letters for that reason.
        """
        return self._letterbox.dead_letters(letter_query(self.name, **asked))

    @overload
    def redrive(self: Consumer[AsyncSemel], id: str) -> Awaitable[Disposition]: ...

    @overload
    def redrive(self: Consumer[Semel], id: str) -> Disposition: ...

    @overload
    def redrive(
        self: Consumer[AsyncSemel],
        *,
        reason: str | None = None,
        type: str | None = None,
        subject: str | None = None,
        before: datetime | None = None,
        rate: float | None = None,
    ) -> Awaitable[RedriveReport]: ...

    @overload
    def redrive(
        self: Consumer[Semel],
        *,
        reason: str | None = None,
        type: str | None = None,
        subject: str | None = None,
        before: datetime | None = None,
        rate: float | None = None,
    ) -> RedriveReport: ...

    def redrive(self, id: str | None = None, *, rate: float | None = None, **asked: Any) -> Any:  # noqa: A002 - as on a letter
        """Hand stored events to this consumer again: that of one letter, or of all that match, so many in a second.

        Never through the broker: nobody else sees them again. A letter goes with the write that completes its record.

        Raises:
            RecordNotFound: there is no letter of that id.
            UsageError: both an id and conditions, no positive rate, or a reason that no letter has.
        """
        if rate is not None and not rate > 0:
            raise UsageError(f"rate is a positive number of events in a second, not {rate!r}; nothing ran.")
        if id is None:
            return self._letterbox.redrive_all(letter_query(self.name, **asked), rate)
        if asked or rate is not None:
            raise UsageError("redrive() takes the id of one letter, or conditions for many, not both; nothing ran.")
        return self._letterbox.redrive(parse_letter_id(id))

    @overload
    def discard(self: Consumer[AsyncSemel], id: str, *, reason: str) -> Awaitable[DeadLetter]: ...

    @overload
    def discard(self: Consumer[Semel], id: str, *, reason: str) -> DeadLetter: ...

    def discard(self, id: str, *, reason: str) -> Any:  # noqa: A002 - as on a letter
        """Delete a letter; the log (`semel`) says why. Its record stays: delivered again, the event is not processed.

        Raises:
            RecordNotFound: there is no letter of that id.
            UsageError: no reason was given.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError("discard() needs a reason; nothing was changed.")
        return self._letterbox.discard(parse_letter_id(id), reason)


def _with_own_errors(policy: Policy, unknown: UnknownRule) -> Policy:
    """The policy, which also knows what consumers raise themselves."""
    final = (*policy.final_errors, DoesNotDecode)
    if unknown == "dead_letter":
        return policy.replace(final_errors=(*final, UnknownType))
    return policy.replace(final_errors=final, retry_errors=(*policy.retry_errors, UnknownType))
