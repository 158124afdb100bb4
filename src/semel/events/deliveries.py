"""How a consumer takes deliveries: alone, in a transaction that it begins, or in one of its caller.

- Without a transaction the engine claims, runs and settles as for any other call, and a failure is counted by it.
- In a transaction, effect and mark commit together. What fails rolls back, and is counted afterwards on a connection of
  semel's own; a crash in between loses that one count.
- What a delivery met is told as a value. Only what has to be changed in the program is raised.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, cast

from msgspec.structs import replace

from semel.core import codec
from semel.core.events.letters import LetterTooLarge, PutLetter, TouchLetter
from semel.core.flow import Flow, ask
from semel.core.observer import tracing
from semel.core.operations import Counted, CountFailure, Read
from semel.core.policy import Policy
from semel.core.record import NOTHING, Failure, Status, StoredRecord, Unknown
from semel.engine import context
from semel.engine.async_engine import AsyncEngine
from semel.engine.call_flow import Request, Result, terms_of
from semel.engine.decorator import async_call_function, async_call_hook, sync_call_function, sync_call_hook
from semel.engine.sync_engine import SyncEngine
from semel.errors import (
    ConcurrentModification,
    EventInvalid,
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReused,
    LeaseLost,
    RecordUnreadable,
    ResultNotKept,
    SemelError,
    StepsChanged,
    StoreUnavailable,
    TransactionAborted,
    TryLater,
    UsageError,
)
from semel.events.delivery import (
    Delivery,
    Settings,
    about_of,
    bound_policy,
    identify,
    letter_of_message,
    letter_of_stranger,
    report,
    serial_key,
    work_of,
)
from semel.events.disposition import Disposition, Ending
from semel.events.event import Event, compared_data, plain_event
from semel.events.handlers import Handlers
from semel.handlers import WasCancelled, async_is_cut_off, sync_is_cut_off

SERIAL: Final = "semel:serial"
"""The operation of the claims that keep events of one subject apart."""
ReadEvent = Callable[[Mapping[str, Any], bytes], Event]
"""Reads an event from headers and body; raises `EventInvalid`."""
_NOT_COMMITTED: Final = (
    "transaction= gave a block that ended without an error, and the record that was written in it is not there: it did "
    "not commit. This consumer has stopped, and the event was not acknowledged. Give a callable whose context manager "
    "commits at its end, such as sessions.begin."
)
_WARN_EVERY: Final = 60.0
_log: Final = logging.getLogger("semel")
_KEEPS_ERRORS: Final = (
    "transaction= gave a block that kept an error to itself, so nobody knows whether it rolled back; the event was not "
    "acknowledged. Have it roll back and raise the error again."
)
_JOINS_UNASKED: Final = (
    "An event was handed over inside within(), where what its handler wrote would be committed although it had failed: "
    "that is told, and not raised; nothing ran. Give your transaction as handle(event, within=…), which errors leave, "
    "or Consumer(transaction=…) one of its own, or call it outside."
)


class AsyncDeliveries:
    """Takes the deliveries of one consumer."""

    def __init__(self, engine: AsyncEngine, settings: Settings, handlers: Handlers, read: ReadEvent) -> None:
        self._engine = engine
        self._settings = settings
        self._handlers = handlers
        self._read = read
        self._shape = codec.shape_of(None)
        self._terms = terms_of(settings.policy)
        self._serial_policy = Policy(
            lease_for=settings.policy.lease_for, max_runtime=settings.policy.max_runtime, when_running="reject"
        )
        self._has_seen_commit = getattr(settings.transaction, "commits_or_raises", False)
        self._is_set_up = False
        self._has_stopped = False
        self._warn_at = 0.0

    async def handle(self, event: Event, *, within: Any = None, remaining: timedelta | None = None) -> Disposition:
        """Run the handler of an event once, and say what the broker is to be told.

        Raises:
            UsageError: the program has to be changed; the event was not acknowledged.
        """
        tracer = self._engine.tracer
        if tracer is None:
            return self._report(await self._take(event, within, remaining))
        with tracing(tracer, work_of(self._settings, event)) as trace:
            return self._report(await self._take(event, within, remaining), trace)

    def _report(self, done: Disposition, trace: object | None = None) -> Disposition:
        return report(self._engine.observer, self._settings, done, trace)

    async def _take(self, event: Event, within: Any, remaining: timedelta | None) -> Disposition:
        if self._has_stopped:
            raise UsageError(_NOT_COMMITTED)
        has_own = within is not None or self._settings.transaction is not None
        if not has_own and context.joined_here(self._engine.store.name) is not None:
            raise UsageError(_JOINS_UNASKED)
        if self._settings.unknown == "ignore" and self._handlers.find(event.type) is None:
            return Disposition("ack", "ignored")
        try:
            delivery = self._deliver(event, remaining)
        except EventInvalid as error:
            if within is not None:
                raise  # the caller's block rolls back, and `failed` keeps the letter
            return await self._refuse(event, error)
        delivery.within = within
        delivery.check_session(has_session=has_own)
        if self._settings.serial_by is None or event.subject is None:
            return await self._handle(delivery, within)
        if within is not None:
            raise UsageError(
                "With serial_by the next event of a subject may begin when handle() returns, and your transaction "
                "would still be open then; nothing ran. Give Consumer(transaction=…) instead of within=."
            )
        return await self._handle_alone(delivery, event.subject)

    async def _handle_alone(self, delivery: Delivery, subject: str) -> Disposition:
        """Handle an event while no other one of its subject is handled, in this process or in another."""
        try:
            turn = await self._engine.open(
                serial_key(self._settings, subject),
                operation=SERIAL,
                fingerprint=None,
                scope=delivery.scope,
                policy=bound_policy(self._serial_policy, delivery.request.policy.max_runtime),
            )
        except InProgress as error:
            return self._wait_for_turn(delivery, error)
        except SemelError as error:
            return await self._explain(delivery, error)
        try:
            disposition = await self._handle(delivery, None)
        except BaseException as error:
            await turn.abandon(error)
            raise
        with suppress(TryLater):  # its lease ends by itself
            await turn.give_back()
        return disposition

    def _wait_for_turn(self, delivery: Delivery, error: InProgress) -> Disposition:
        """Another event of the subject is handled: it gives the turn back when it ends, and not with its lease."""
        pause = self._settings.backoff.after(1)
        return Disposition("retry", "in_progress", min(pause, error.retry_after), delivery.reference, error)

    async def _handle(self, delivery: Delivery, within: Any) -> Disposition:
        try:
            if within is not None:
                return self._acknowledge(delivery, await self._call_within(delivery, within))
            if self._settings.transaction is not None:
                return await self._handle_in_transaction(delivery)
            return self._acknowledge(delivery, await self._engine.call(delivery.request, self._handler(delivery, None)))
        except SemelError as error:
            # That it passed over a step is noticed when the handler has returned, and recorded as an error of it.
            if error is delivery.error or isinstance(error, StepsChanged):
                if within is not None:
                    raise
                return delivery.after_run(error)
            if within is not None and delivery.has_begun:
                raise  # the caller's block must not commit what its handler wrote without a mark
            return await self._explain(delivery, error)
        except Exception as error:
            if within is not None or error is not delivery.error:
                raise
            return delivery.after_run(error)

    async def receive(
        self,
        headers: Mapping[str, Any],
        body: bytes,
        *,
        read: ReadEvent | None = None,
        remaining: timedelta | None = None,
    ) -> Disposition:
        """Read an event and handle it; what is no event becomes a dead letter with its bytes."""
        try:
            event = (read or self._read)(headers, body)
        except EventInvalid as error:
            try:
                await self._ask(PutLetter(letter_of_message(self._settings, headers, body, error)))
            except TryLater as silent:
                return self._report(_unavailable(silent))
            except LetterTooLarge as problem:
                return self._report(self._could_not_keep(problem))
            return self._report(Disposition("dead_letter", "invalid", error=error))
        return await self.handle(event, remaining=remaining)

    async def failed(self, event: Event, error: Exception) -> Disposition:
        """Count an attempt whose transaction was rolled back, and say what the broker is to be told."""
        try:
            delivery = self._deliver(event)
        except EventInvalid as problem:
            return self._report(await self._refuse(event, problem))
        delivery.error = error
        return self._report(await self._count(delivery, error))

    async def _refuse(self, event: Event, error: EventInvalid) -> Disposition:
        """Keep a letter of an event that can have no record."""
        try:
            await self._ask(PutLetter(letter_of_stranger(self._settings, event, error)))
        except TryLater as silent:
            return _unavailable(silent)
        except LetterTooLarge as problem:
            return self._could_not_keep(problem)
        return Disposition("dead_letter", "invalid", error=error)

    def _deliver(self, event: Event, remaining: timedelta | None = None) -> Delivery:
        """An event and its request.

        Raises:
            EventInvalid: a rule of the consumer, or the fingerprint, cannot be applied to it.
        """
        settings, engine = self._settings, self._engine
        policy = bound_policy(settings.policy, remaining)
        try:
            event = plain_event(event)
            asked = (event.type, event.subject, compared_data(event))
            key = identify(settings, event)
            about = about_of(settings, event)
            fingerprint = engine.fingerprints.take(asked)
        except Exception as problem:
            raise EventInvalid(
                f"This event can have no record ({type(problem).__name__}: {problem!s:.300}); nothing ran."
            ) from problem
        request = Request(
            key,
            fingerprint,
            policy,
            self._terms if policy is settings.policy else terms_of(policy),
            NOTHING if about == NOTHING else about,
            self._shape,
            asked,
            engine.fingerprints,
        )
        delivery = Delivery(settings, self._handlers, event, request)
        delivery.request = replace(
            request,
            policy=self._policy_for(delivery),
            dead_letter=delivery.make_letter,
            drops_letter=delivery.letter_id,
        )
        return delivery

    def _policy_for(self, delivery: Delivery) -> Policy:
        """The policy of the consumer; where its reconcile hook raises, that says no more than that it cannot tell."""
        policy = delivery.request.policy
        hook = policy.reconcile
        if hook is None:
            return policy

        async def ask_hook(attempt: Any) -> Any:
            try:
                return await async_call_hook(hook, attempt)
            except Exception as error:  # noqa: BLE001 - the hook is of the user, and it is kept for the disposition
                delivery.hook_error = error
                return Unknown()

        return policy.replace(reconcile=ask_hook)

    def _handler(self, delivery: Delivery, session: Any) -> Callable[[], Awaitable[None]]:
        async def call_handler() -> None:
            try:
                handler, given = delivery.arguments(self._engine.current(), session)
                await async_call_function(lambda: handler.function(**given))
            except CancelledError as error:
                if async_is_cut_off():
                    raise
                delivery.error = WasCancelled("what the handler waited for was cancelled, and not the handler")
                raise delivery.error from error
            except Exception as error:
                delivery.error = error
                raise

        return call_handler

    async def _call_within(self, delivery: Delivery, session: Any) -> Result[None]:
        joined = self._engine.store.async_join(session)
        with context.joining(self._engine.store.name, joined):
            result: Result[None] = await self._engine.call(delivery.request, self._handler(delivery, session))
            return result

    async def _handle_in_transaction(self, delivery: Delivery) -> Disposition:
        await self._set_up(delivery)
        result: Result[None] | None = None
        try:
            async with self._transaction() as session:
                result = await self._call_within(delivery, session)
        except SemelError as error:
            was_rolled_back = delivery.has_begun and isinstance(error, TransactionAborted | ConcurrentModification)
            if error is not delivery.error and not was_rolled_back:
                raise  # nothing ran, or what it came to is recorded
            return await self._count(delivery, error)
        except CancelledError as error:
            if async_is_cut_off():
                raise
            cause = WasCancelled("what the transaction waited for was cancelled, and not the consumer")
            cause.__cause__ = error
            return await self._after_rollback(delivery, cause)
        except Exception as error:  # noqa: BLE001 - of the handler, or of the commit: either way all of it is rolled back
            return await self._after_rollback(delivery, error)
        if result is None:
            raise UsageError(_KEEPS_ERRORS)
        if not self._has_seen_commit and not result.replayed and result.protected:
            await self._check_commit(delivery)
        return self._acknowledge(delivery, result)

    async def _after_rollback(self, delivery: Delivery, error: Exception) -> Disposition:
        if not delivery.has_begun:
            return self._could_not_begin(delivery, error)
        return await self._count(delivery, error)

    async def _set_up(self, delivery: Delivery) -> None:
        """Have the store ready before the first transaction: one that holds SQLite's only lock would keep it out."""
        if not self._is_set_up:
            await self._ask(Read(delivery.request.key.digest, operation=delivery.request.key.operation))
            self._is_set_up = True

    def _transaction(self) -> Any:
        begin = self._settings.transaction
        assert begin is not None  # noqa: S101 - asked by the caller
        return begin()

    async def _check_commit(self, delivery: Delivery) -> None:
        """Read back, where everybody else reads, what a first transaction of this process was to commit.

        Raises:
            UsageError: it is not there.
        """
        found = await self._ask(Read(delivery.request.key.digest, operation=delivery.request.key.operation))
        if found.record is None or found.record.status is not Status.COMPLETED:
            self._has_stopped = True
            raise UsageError(_NOT_COMMITTED)
        self._has_seen_commit = True

    def _could_not_begin(self, delivery: Delivery, error: Exception) -> Disposition:
        self._warn(f"transaction= could not begin one ({type(error).__qualname__})")
        return delivery.after_nothing_ran(error)

    def _could_not_read(self, delivery: Delivery, error: RecordUnreadable) -> Disposition:
        """Somebody else may be able to: with a key that is not at hand here, or of the newer release that wrote it."""
        self._warn(f"the record {delivery.reference} cannot be read here")
        return delivery.after_nothing_ran(error)

    def _could_not_keep(self, error: LetterTooLarge, reference: str | None = None) -> Disposition:
        """Leave the event to the broker, which gives it up as it is told to, and may hold what is too large here."""
        self._warn(str(error))
        return Disposition("retry", "unavailable", self._settings.backoff.most, reference, error)

    def _warn(self, why: str) -> None:
        """Say so in the log, now and then: nothing else shows an operator why events come again and again."""
        now = self._engine.clock.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_EVERY
            _log.warning("events of %s wait: %s", self._settings.name, why)

    async def _count(self, delivery: Delivery, error: Exception) -> Disposition:
        """Count an attempt that left nothing behind, on a connection of semel's own."""
        request, failure = delivery.request, Failure.of(error)
        is_final = delivery.reason(failure, 0, rolled_back=True) is not None
        most = 1 if is_final else self._settings.policy.max_attempts
        letter = None
        if most is not None:
            reason = delivery.reason(failure, most, rolled_back=True) or "exhausted"
            letter = delivery.letter(reason, failure, most)
        counting = CountFailure(
            request.key,
            request.fingerprint,
            self._engine.new_nonce(),
            failure,
            request.terms,
            request.about,
            most,
            letter,
        )
        try:
            answer = await self._ask(counting)
        except StoreUnavailable as silent:
            return _unavailable(silent)
        except LetterTooLarge as problem:
            return self._could_not_keep(problem, delivery.reference)
        if isinstance(answer, Counted):
            return delivery.after_failure(error, answer.record.attempts, rolled_back=True)
        return self._explain_uncounted(delivery, error, answer.record)

    def _explain_uncounted(self, delivery: Delivery, error: Exception, record: StoredRecord | None) -> Disposition:
        """Nothing was counted: somebody else runs the event, or its commit arrived although its answer was lost."""
        if record is not None and record.status is Status.COMPLETED:
            return Disposition("ack", "processed", reference=delivery.reference)
        if record is not None and record.final:
            return delivery.after_failure(error, self._settings.policy.max_attempts or 0, rolled_back=True)
        return Disposition("retry", "in_progress", self._settings.policy.lease_for, delivery.reference, error)

    async def _explain(self, delivery: Delivery, error: SemelError) -> Disposition:
        """What an answer of the engine means for the event."""
        try:
            return await self._judge(delivery, error)
        except StoreUnavailable as silent:
            return _unavailable(silent, delivery.reference)
        except LetterTooLarge as problem:
            return self._could_not_keep(problem, delivery.reference)

    async def _judge(self, delivery: Delivery, error: SemelError) -> Disposition:
        reference = delivery.reference
        match error:
            case ResultNotKept():
                return Disposition("ack", "duplicate", reference=reference)
            case FailedBefore():
                return await self._failed_before(delivery, error)
            case KeyReused():
                await self._ask(PutLetter(delivery.letter("reused", Failure.of(error), 0)), delivery.within)
                return Disposition("dead_letter", "reused", None, reference, error)
            case InDoubt() if error.retry_after is None:
                return await self._put_aside(delivery, error)
            case InDoubt():
                return Disposition("retry", "in_doubt", error.retry_after, reference, delivery.hook_error or error)
            case InProgress():
                return Disposition("retry", "in_progress", error.retry_after, reference, error)
            case LeaseLost():
                return Disposition("retry", "in_progress", self._settings.policy.lease_for, reference, error)
            case TryLater():
                return _unavailable(error, reference)
            case RecordUnreadable():
                return self._could_not_read(delivery, error)
            case LetterTooLarge():
                return self._could_not_keep(error, reference)
        raise error

    async def _put_aside(self, delivery: Delivery, error: InDoubt) -> Disposition:
        """Keep a letter of an event that waits for a person: nobody may run it again, or the hook cannot tell."""
        key, cause = delivery.request.key, delivery.hook_error or error
        found = await self._ask(Read(key.digest, operation=key.operation), delivery.within)
        attempts = 0 if found.record is None else found.record.attempts
        await self._ask(PutLetter(delivery.letter("in_doubt", Failure.of(cause), attempts)), delivery.within)
        return Disposition("dead_letter", "in_doubt", None, delivery.reference, cause)

    async def _failed_before(self, delivery: Delivery, error: FailedBefore) -> Disposition:
        if error.error_type == "semel.Cancelled":
            return Disposition("ack", "ignored", None, delivery.reference, error)
        touched = await self._ask(TouchLetter(self._settings.name, delivery.request.key.digest), delivery.within)
        reason = "rejected" if touched.letter is None else touched.letter.reason
        return Disposition("dead_letter", cast("Ending", reason), None, delivery.reference, error)

    def _acknowledge(self, delivery: Delivery, result: Result[None]) -> Disposition:
        return Disposition("ack", "duplicate" if result.replayed else "processed", reference=delivery.reference)

    async def _ask(self, operation: Any, within: Any = None) -> Any:
        """Have an operation carried out in the caller's transaction, where it is given, or on a connection of semel's.

        A letter that follows from a claim in the caller's transaction is part of it: another connection would wait for
        the locks of that claim.
        """
        joined = None if within is None else self._engine.store.async_join(within)
        return await self._engine.perform_on(joined, ask_once(operation))


def ask_once(operation: Any) -> Flow[Any]:
    """A flow of one question."""
    answer = yield from ask(operation)
    return answer


def _unavailable(error: TryLater, reference: str | None = None) -> Disposition:
    return Disposition("retry", "unavailable", error.retry_after, reference, error)


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncDeliveries:
    """Takes the deliveries of one consumer."""

    def __init__(self, engine: SyncEngine, settings: Settings, handlers: Handlers, read: ReadEvent) -> None:
        self._engine = engine
        self._settings = settings
        self._handlers = handlers
        self._read = read
        self._shape = codec.shape_of(None)
        self._terms = terms_of(settings.policy)
        self._serial_policy = Policy(
            lease_for=settings.policy.lease_for, max_runtime=settings.policy.max_runtime, when_running="reject"
        )
        self._has_seen_commit = getattr(settings.transaction, "commits_or_raises", False)
        self._is_set_up = False
        self._has_stopped = False
        self._warn_at = 0.0

    def handle(self, event: Event, *, within: Any = None, remaining: timedelta | None = None) -> Disposition:
        """Run the handler of an event once, and say what the broker is to be told.

        Raises:
            UsageError: the program has to be changed; the event was not acknowledged.
        """
        tracer = self._engine.tracer
        if tracer is None:
            return self._report(self._take(event, within, remaining))
        with tracing(tracer, work_of(self._settings, event)) as trace:
            return self._report(self._take(event, within, remaining), trace)

    def _report(self, done: Disposition, trace: object | None = None) -> Disposition:
        return report(self._engine.observer, self._settings, done, trace)

    def _take(self, event: Event, within: Any, remaining: timedelta | None) -> Disposition:
        if self._has_stopped:
            raise UsageError(_NOT_COMMITTED)
        has_own = within is not None or self._settings.transaction is not None
        if not has_own and context.joined_here(self._engine.store.name) is not None:
            raise UsageError(_JOINS_UNASKED)
        if self._settings.unknown == "ignore" and self._handlers.find(event.type) is None:
            return Disposition("ack", "ignored")
        try:
            delivery = self._deliver(event, remaining)
        except EventInvalid as error:
            if within is not None:
                raise  # the caller's block rolls back, and `failed` keeps the letter
            return self._refuse(event, error)
        delivery.within = within
        delivery.check_session(has_session=has_own)
        if self._settings.serial_by is None or event.subject is None:
            return self._handle(delivery, within)
        if within is not None:
            raise UsageError(
                "With serial_by the next event of a subject may begin when handle() returns, and your transaction "
                "would still be open then; nothing ran. Give Consumer(transaction=…) instead of within=."
            )
        return self._handle_alone(delivery, event.subject)

    def _handle_alone(self, delivery: Delivery, subject: str) -> Disposition:
        """Handle an event while no other one of its subject is handled, in this process or in another."""
        try:
            turn = self._engine.open(
                serial_key(self._settings, subject),
                operation=SERIAL,
                fingerprint=None,
                scope=delivery.scope,
                policy=bound_policy(self._serial_policy, delivery.request.policy.max_runtime),
            )
        except InProgress as error:
            return self._wait_for_turn(delivery, error)
        except SemelError as error:
            return self._explain(delivery, error)
        try:
            disposition = self._handle(delivery, None)
        except BaseException as error:
            turn.abandon(error)
            raise
        with suppress(TryLater):  # its lease ends by itself
            turn.give_back()
        return disposition

    def _wait_for_turn(self, delivery: Delivery, error: InProgress) -> Disposition:
        """Another event of the subject is handled: it gives the turn back when it ends, and not with its lease."""
        pause = self._settings.backoff.after(1)
        return Disposition("retry", "in_progress", min(pause, error.retry_after), delivery.reference, error)

    def _handle(self, delivery: Delivery, within: Any) -> Disposition:
        try:
            if within is not None:
                return self._acknowledge(delivery, self._call_within(delivery, within))
            if self._settings.transaction is not None:
                return self._handle_in_transaction(delivery)
            return self._acknowledge(delivery, self._engine.call(delivery.request, self._handler(delivery, None)))
        except SemelError as error:
            # That it passed over a step is noticed when the handler has returned, and recorded as an error of it.
            if error is delivery.error or isinstance(error, StepsChanged):
                if within is not None:
                    raise
                return delivery.after_run(error)
            if within is not None and delivery.has_begun:
                raise  # the caller's block must not commit what its handler wrote without a mark
            return self._explain(delivery, error)
        except Exception as error:
            if within is not None or error is not delivery.error:
                raise
            return delivery.after_run(error)

    def receive(
        self,
        headers: Mapping[str, Any],
        body: bytes,
        *,
        read: ReadEvent | None = None,
        remaining: timedelta | None = None,
    ) -> Disposition:
        """Read an event and handle it; what is no event becomes a dead letter with its bytes."""
        try:
            event = (read or self._read)(headers, body)
        except EventInvalid as error:
            try:
                self._ask(PutLetter(letter_of_message(self._settings, headers, body, error)))
            except TryLater as silent:
                return self._report(_unavailable(silent))
            except LetterTooLarge as problem:
                return self._report(self._could_not_keep(problem))
            return self._report(Disposition("dead_letter", "invalid", error=error))
        return self.handle(event, remaining=remaining)

    def failed(self, event: Event, error: Exception) -> Disposition:
        """Count an attempt whose transaction was rolled back, and say what the broker is to be told."""
        try:
            delivery = self._deliver(event)
        except EventInvalid as problem:
            return self._report(self._refuse(event, problem))
        delivery.error = error
        return self._report(self._count(delivery, error))

    def _refuse(self, event: Event, error: EventInvalid) -> Disposition:
        """Keep a letter of an event that can have no record."""
        try:
            self._ask(PutLetter(letter_of_stranger(self._settings, event, error)))
        except TryLater as silent:
            return _unavailable(silent)
        except LetterTooLarge as problem:
            return self._could_not_keep(problem)
        return Disposition("dead_letter", "invalid", error=error)

    def _deliver(self, event: Event, remaining: timedelta | None = None) -> Delivery:
        """An event and its request.

        Raises:
            EventInvalid: a rule of the consumer, or the fingerprint, cannot be applied to it.
        """
        settings, engine = self._settings, self._engine
        policy = bound_policy(settings.policy, remaining)
        try:
            event = plain_event(event)
            asked = (event.type, event.subject, compared_data(event))
            key = identify(settings, event)
            about = about_of(settings, event)
            fingerprint = engine.fingerprints.take(asked)
        except Exception as problem:
            raise EventInvalid(
                f"This event can have no record ({type(problem).__name__}: {problem!s:.300}); nothing ran."
            ) from problem
        request = Request(
            key,
            fingerprint,
            policy,
            self._terms if policy is settings.policy else terms_of(policy),
            NOTHING if about == NOTHING else about,
            self._shape,
            asked,
            engine.fingerprints,
        )
        delivery = Delivery(settings, self._handlers, event, request)
        delivery.request = replace(
            request,
            policy=self._policy_for(delivery),
            dead_letter=delivery.make_letter,
            drops_letter=delivery.letter_id,
        )
        return delivery

    def _policy_for(self, delivery: Delivery) -> Policy:
        """The policy of the consumer; where its reconcile hook raises, that says no more than that it cannot tell."""
        policy = delivery.request.policy
        hook = policy.reconcile
        if hook is None:
            return policy

        def ask_hook(attempt: Any) -> Any:
            try:
                return sync_call_hook(hook, attempt)
            except Exception as error:  # noqa: BLE001 - the hook is of the user, and it is kept for the disposition
                delivery.hook_error = error
                return Unknown()

        return policy.replace(reconcile=ask_hook)

    def _handler(self, delivery: Delivery, session: Any) -> Callable[[], None]:
        def call_handler() -> None:
            try:
                handler, given = delivery.arguments(self._engine.current(), session)
                sync_call_function(lambda: handler.function(**given))
            except CancelledError as error:
                if sync_is_cut_off():
                    raise
                delivery.error = WasCancelled("what the handler waited for was cancelled, and not the handler")
                raise delivery.error from error
            except Exception as error:
                delivery.error = error
                raise

        return call_handler

    def _call_within(self, delivery: Delivery, session: Any) -> Result[None]:
        joined = self._engine.store.join(session)
        with context.joining(self._engine.store.name, joined):
            result: Result[None] = self._engine.call(delivery.request, self._handler(delivery, session))
            return result

    def _handle_in_transaction(self, delivery: Delivery) -> Disposition:
        self._set_up(delivery)
        result: Result[None] | None = None
        try:
            with self._transaction() as session:
                result = self._call_within(delivery, session)
        except SemelError as error:
            was_rolled_back = delivery.has_begun and isinstance(error, TransactionAborted | ConcurrentModification)
            if error is not delivery.error and not was_rolled_back:
                raise  # nothing ran, or what it came to is recorded
            return self._count(delivery, error)
        except CancelledError as error:
            if sync_is_cut_off():
                raise
            cause = WasCancelled("what the transaction waited for was cancelled, and not the consumer")
            cause.__cause__ = error
            return self._after_rollback(delivery, cause)
        except Exception as error:  # noqa: BLE001 - of the handler, or of the commit: either way all of it is rolled back
            return self._after_rollback(delivery, error)
        if result is None:
            raise UsageError(_KEEPS_ERRORS)
        if not self._has_seen_commit and not result.replayed and result.protected:
            self._check_commit(delivery)
        return self._acknowledge(delivery, result)

    def _after_rollback(self, delivery: Delivery, error: Exception) -> Disposition:
        if not delivery.has_begun:
            return self._could_not_begin(delivery, error)
        return self._count(delivery, error)

    def _set_up(self, delivery: Delivery) -> None:
        """Have the store ready before the first transaction: one that holds SQLite's only lock would keep it out."""
        if not self._is_set_up:
            self._ask(Read(delivery.request.key.digest, operation=delivery.request.key.operation))
            self._is_set_up = True

    def _transaction(self) -> Any:
        begin = self._settings.transaction
        assert begin is not None  # noqa: S101 - asked by the caller
        return begin()

    def _check_commit(self, delivery: Delivery) -> None:
        """Read back, where everybody else reads, what a first transaction of this process was to commit.

        Raises:
            UsageError: it is not there.
        """
        found = self._ask(Read(delivery.request.key.digest, operation=delivery.request.key.operation))
        if found.record is None or found.record.status is not Status.COMPLETED:
            self._has_stopped = True
            raise UsageError(_NOT_COMMITTED)
        self._has_seen_commit = True

    def _could_not_begin(self, delivery: Delivery, error: Exception) -> Disposition:
        self._warn(f"transaction= could not begin one ({type(error).__qualname__})")
        return delivery.after_nothing_ran(error)

    def _could_not_read(self, delivery: Delivery, error: RecordUnreadable) -> Disposition:
        """Somebody else may be able to: with a key that is not at hand here, or of the newer release that wrote it."""
        self._warn(f"the record {delivery.reference} cannot be read here")
        return delivery.after_nothing_ran(error)

    def _could_not_keep(self, error: LetterTooLarge, reference: str | None = None) -> Disposition:
        """Leave the event to the broker, which gives it up as it is told to, and may hold what is too large here."""
        self._warn(str(error))
        return Disposition("retry", "unavailable", self._settings.backoff.most, reference, error)

    def _warn(self, why: str) -> None:
        """Say so in the log, now and then: nothing else shows an operator why events come again and again."""
        now = self._engine.clock.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_EVERY
            _log.warning("events of %s wait: %s", self._settings.name, why)

    def _count(self, delivery: Delivery, error: Exception) -> Disposition:
        """Count an attempt that left nothing behind, on a connection of semel's own."""
        request, failure = delivery.request, Failure.of(error)
        is_final = delivery.reason(failure, 0, rolled_back=True) is not None
        most = 1 if is_final else self._settings.policy.max_attempts
        letter = None
        if most is not None:
            reason = delivery.reason(failure, most, rolled_back=True) or "exhausted"
            letter = delivery.letter(reason, failure, most)
        counting = CountFailure(
            request.key,
            request.fingerprint,
            self._engine.new_nonce(),
            failure,
            request.terms,
            request.about,
            most,
            letter,
        )
        try:
            answer = self._ask(counting)
        except StoreUnavailable as silent:
            return _unavailable(silent)
        except LetterTooLarge as problem:
            return self._could_not_keep(problem, delivery.reference)
        if isinstance(answer, Counted):
            return delivery.after_failure(error, answer.record.attempts, rolled_back=True)
        return self._explain_uncounted(delivery, error, answer.record)

    def _explain_uncounted(self, delivery: Delivery, error: Exception, record: StoredRecord | None) -> Disposition:
        """Nothing was counted: somebody else runs the event, or its commit arrived although its answer was lost."""
        if record is not None and record.status is Status.COMPLETED:
            return Disposition("ack", "processed", reference=delivery.reference)
        if record is not None and record.final:
            return delivery.after_failure(error, self._settings.policy.max_attempts or 0, rolled_back=True)
        return Disposition("retry", "in_progress", self._settings.policy.lease_for, delivery.reference, error)

    def _explain(self, delivery: Delivery, error: SemelError) -> Disposition:
        """What an answer of the engine means for the event."""
        try:
            return self._judge(delivery, error)
        except StoreUnavailable as silent:
            return _unavailable(silent, delivery.reference)
        except LetterTooLarge as problem:
            return self._could_not_keep(problem, delivery.reference)

    def _judge(self, delivery: Delivery, error: SemelError) -> Disposition:
        reference = delivery.reference
        match error:
            case ResultNotKept():
                return Disposition("ack", "duplicate", reference=reference)
            case FailedBefore():
                return self._failed_before(delivery, error)
            case KeyReused():
                self._ask(PutLetter(delivery.letter("reused", Failure.of(error), 0)), delivery.within)
                return Disposition("dead_letter", "reused", None, reference, error)
            case InDoubt() if error.retry_after is None:
                return self._put_aside(delivery, error)
            case InDoubt():
                return Disposition("retry", "in_doubt", error.retry_after, reference, delivery.hook_error or error)
            case InProgress():
                return Disposition("retry", "in_progress", error.retry_after, reference, error)
            case LeaseLost():
                return Disposition("retry", "in_progress", self._settings.policy.lease_for, reference, error)
            case TryLater():
                return _unavailable(error, reference)
            case RecordUnreadable():
                return self._could_not_read(delivery, error)
            case LetterTooLarge():
                return self._could_not_keep(error, reference)
        raise error

    def _put_aside(self, delivery: Delivery, error: InDoubt) -> Disposition:
        """Keep a letter of an event that waits for a person: nobody may run it again, or the hook cannot tell."""
        key, cause = delivery.request.key, delivery.hook_error or error
        found = self._ask(Read(key.digest, operation=key.operation), delivery.within)
        attempts = 0 if found.record is None else found.record.attempts
        self._ask(PutLetter(delivery.letter("in_doubt", Failure.of(cause), attempts)), delivery.within)
        return Disposition("dead_letter", "in_doubt", None, delivery.reference, cause)

    def _failed_before(self, delivery: Delivery, error: FailedBefore) -> Disposition:
        if error.error_type == "semel.Cancelled":
            return Disposition("ack", "ignored", None, delivery.reference, error)
        touched = self._ask(TouchLetter(self._settings.name, delivery.request.key.digest), delivery.within)
        reason = "rejected" if touched.letter is None else touched.letter.reason
        return Disposition("dead_letter", cast("Ending", reason), None, delivery.reference, error)

    def _acknowledge(self, delivery: Delivery, result: Result[None]) -> Disposition:
        return Disposition("ack", "duplicate" if result.replayed else "processed", reference=delivery.reference)

    def _ask(self, operation: Any, within: Any = None) -> Any:
        """Have an operation carried out in the caller's transaction, where it is given, or on a connection of semel's.

        A letter that follows from a claim in the caller's transaction is part of it: another connection would wait for
        the locks of that claim.
        """
        joined = None if within is None else self._engine.store.join(within)
        return self._engine.perform_on(joined, ask_once(operation))
