"""One delivery of an event: run its handler once, and say what the broker is to be told.

- The same delivery twice is one run: its record is claimed, held and settled like that of any other operation.
- A dead letter is written in the statement that ends its record.
- `handle` raises nothing that is about the event; what has to be changed in the program it does raise (`UsageError`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from msgspec.structs import replace

from semel.core.events.letters import Letter, Reason, letter_id, operation_of
from semel.core.key import MAX_TEXT, Key, KeyValue, make_key
from semel.core.observer import Observer, Signal, Work, is_heard, notify
from semel.core.policy import Policy, microseconds
from semel.core.record import About, Failure
from semel.engine.call_flow import Request
from semel.errors import EventInvalid, FailedBefore, UsageError
from semel.events.dead_letters import pack
from semel.events.disposition import Backoff, Disposition, Ending
from semel.events.event import Event, describe_event, write_data
from semel.events.handlers import EventHandler, Handlers
from semel.handlers import DoesNotDecode

UnknownRule = Literal["refuse", "dead_letter", "ignore"]
SerialRule = Literal["subject"]
LONGEST_WAIT: Final = timedelta(days=365)
"""What an error may ask for at most: a `retry_after` that somebody else sent may be any number."""


class UnknownType(Exception):
    """No handler takes events of this type."""


_DOES_NOT_DECODE: Final = f"{DoesNotDecode.__module__}.{DoesNotDecode.__qualname__}"
_UNKNOWN_TYPE: Final = f"{UnknownType.__module__}.{UnknownType.__qualname__}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a consumer was made with."""

    name: str
    policy: Policy
    backoff: Backoff
    unknown: UnknownRule
    scope: Any
    about: Callable[[Event], About | Mapping[str, Any] | None] | None
    keep_letters: timedelta
    transaction: Callable[[], Any] | None
    serial_by: SerialRule | None = None

    @property
    def operation(self) -> str:
        """The operation of its records."""
        return operation_of(self.name)


def bound_policy(policy: Policy, remaining: timedelta | None) -> Policy:
    """The policy for a process that is sure to run for no longer than `remaining`.

    Its claims end by then: a process that is frozen or killed renews nothing, and must keep nobody waiting.

    Raises:
        UsageError: nothing remains.
    """
    if remaining is None or (policy.lease_for <= remaining and policy.max_runtime <= remaining):
        return policy
    if remaining <= timedelta(0):
        raise UsageError("remaining is a positive duration; nothing ran. Leave the event to the next delivery.")
    return policy.replace(lease_for=min(policy.lease_for, remaining), max_runtime=min(policy.max_runtime, remaining))


class Delivery:
    """An event that was delivered, its request, how its handler ended, and what its reconcile hook raised."""

    error: Exception | None = None
    hook_error: Exception | None = None
    number = 0
    has_begun = False
    """Whether its handler was about to be called."""
    within: Any = None
    """The caller's transaction, where there is one."""

    def __init__(self, settings: Settings, handlers: Handlers, event: Event, request: Request) -> None:
        self.settings = settings
        self.event = event
        self.request = request
        self.handler = handlers.find(event.type)

    def check_session(self, *, has_session: bool) -> None:
        """Refuse, before anything is claimed, a handler that asks for a session where there is none.

        Raises:
            UsageError: it does.
        """
        if not has_session and self.handler is not None and "session" in self.handler.parameters:
            raise UsageError(
                f"The handler of {self.event.type!r} asks for a session, and there is none; nothing ran. "
                f"Give Consumer(transaction=…), or handle(event, within=session)."
            )

    def arguments(self, attempt: Any, session: Any) -> tuple[EventHandler, dict[str, Any]]:
        """The handler, and what it is called with.

        Raises:
            UnknownType: there is none.
            DoesNotDecode: the data is not what it is annotated with.
        """
        self.has_begun = True
        if attempt is not None:
            self.number = attempt.number
        if self.handler is None:
            raise UnknownType(f"no handler takes events of the type {self.event.type!r:.200}")
        return self.handler, self.handler.arguments(self.event, attempt, session)

    def reason(self, failure: Failure, attempts: int, *, rolled_back: bool = False) -> Reason | None:
        """Why an event whose handler ended so is not tried again; None where it is.

        What was rolled back had no effect, so it is never in doubt.
        """
        policy = self.settings.policy
        if failure.type == _DOES_NOT_DECODE:
            return "invalid"
        if failure.type == _UNKNOWN_TYPE and self.settings.unknown == "dead_letter":
            return "unknown_type"
        if self.error is not None and isinstance(self.error, policy.final_errors):
            return "rejected"
        had_no_effect = rolled_back or isinstance(self.error, policy.retry_errors)
        is_last = policy.max_attempts is not None and attempts >= policy.max_attempts
        if is_last and (had_no_effect or policy.in_doubt == "rerun"):
            return "exhausted"
        return "in_doubt" if policy.in_doubt == "hold" and not had_no_effect else None

    def make_letter(self, failure: Failure, ending: str, attempts: int) -> Letter | None:
        """What is kept of it if nobody tries it again."""
        reason = self.reason(failure, attempts)
        return None if reason is None or ending == "retry" else self.letter(reason, failure, attempts)

    def letter_id(self) -> bytes:
        """What names the letter that is kept of it: all that its fingerprint is taken of, under any secret."""
        type_, subject, data = self.request.asked
        kind = b"bytes" if isinstance(data, bytes) else b"json"
        told = (type_.encode(), (subject or "").encode(), kind, write_data(data))
        return letter_id(self.settings.name, self.request.key.digest, *told)

    def letter(self, reason: Reason, error: Failure | None, attempts: int) -> Letter:
        """What is kept of it."""
        event = self.event
        return Letter(
            id=self.letter_id(),
            consumer=self.settings.name,
            scope=self.request.key.scope,
            record=self.request.key.digest,
            reason=reason,
            type=event.type,
            subject=event.subject,
            content=event.to_json(),
            readable=True,
            attempts=attempts,
            error=error,
            keep_us=microseconds(self.settings.keep_letters),
        )

    def after_failure(self, error: Exception, attempts: int, *, rolled_back: bool = False) -> Disposition:
        """What comes of an error of the handler that is recorded by now."""
        reason = self.reason(Failure.of(error), attempts, rolled_back=rolled_back)
        if reason is not None:
            return Disposition("dead_letter", reason, None, self.reference, error)
        return self._try_again(error, attempts)

    def after_run(self, error: Exception) -> Disposition:
        """What comes of an error of the handler that the engine has recorded.

        Without an attempt it ran unprotected, while the store was down: no letter is kept, and a broker that is told of
        one would forget the event.
        """
        return self.after_failure(error, self.number) if self.number else self._try_again(error, 1)

    def _try_again(self, error: Exception, attempts: int) -> Disposition:
        status: Ending = "unknown_type" if isinstance(error, UnknownType) else "failed"
        return Disposition("retry", status, self._wait(error, attempts), self.reference, error)

    def after_nothing_ran(self, error: Exception) -> Disposition:
        """What comes of an error that says nothing of the event, before its handler was called: nobody counts that."""
        return Disposition("retry", "unavailable", self.settings.backoff.after(1), self.reference, error)

    @property
    def scope(self) -> Any:
        """For whom it is, as the settings say."""
        rule = self.settings.scope
        return rule(self.event) if callable(rule) else rule

    @property
    def reference(self) -> str:
        """Names its record."""
        return self.request.key.reference

    def _wait(self, error: Exception, attempts: int) -> timedelta:
        """How long to wait: as the error says, if that is a length of time."""
        try:
            own = getattr(error, "retry_after", None)
        except Exception:  # noqa: BLE001 - of the user; the attempt is counted, and what came of it must be told
            own = None
        if isinstance(own, timedelta):
            own = own.total_seconds()
        if isinstance(own, int | float) and not isinstance(own, bool) and own >= 0:
            return timedelta(seconds=min(own, LONGEST_WAIT.total_seconds()))
        return self.settings.backoff.after(attempts)


def identify(settings: Settings, event: Event) -> Key:
    """The key of an event's record: who says so, and which one."""
    scope = settings.scope(event) if callable(settings.scope) else settings.scope
    return Key.of(_pair(event.source, event.id), operation=settings.operation, scope=scope)


def serial_key(settings: Settings, subject: str) -> KeyValue:
    """What is claimed while an event of a subject is handled."""
    return _pair(settings.name, subject)


def _pair(first: str, second: str) -> KeyValue:
    """Two texts as the value of a key; a digest of them where they would be too long for one."""
    if len(first.encode()) + len(second.encode()) + len("(, )") > MAX_TEXT:
        return make_key(first, second)
    return first, second


def about_of(settings: Settings, event: Event) -> About:
    """What people find the record of an event by.

    Raises:
        UsageError: the rule of the consumer gives something else.
    """
    return About(subject=event.subject) if settings.about is None else About.of(settings.about(event))


def letter_of_message(settings: Settings, headers: Mapping[str, Any], body: bytes, error: EventInvalid) -> Letter:
    """What is kept of a message that is no event."""
    return _letter_without_record(settings, error, pack(headers, body), readable=False)


def letter_of_stranger(settings: Settings, event: Event, error: EventInvalid) -> Letter:
    """What is kept of an event that can have no record; where JSON cannot hold it, what people can read of it."""
    content = _read_again(event)
    readable = content is not None
    letter = _letter_without_record(settings, error, content or pack(*describe_event(event)), readable=readable)
    return replace(letter, type=event.type, subject=event.subject)


def _read_again(event: Event) -> bytes | None:
    """The event as JSON, if it can be read again."""
    try:
        content = event.to_json()
        Event.from_json(content)
    except Exception:  # noqa: BLE001 - of values of the caller, which may do anything
        return None
    return content


def _letter_without_record(settings: Settings, error: EventInvalid, content: bytes, *, readable: bool) -> Letter:
    return Letter(
        id=letter_id(settings.name, None, content),
        consumer=settings.name,
        scope="",
        record=None,
        reason="invalid",
        type="",
        subject=None,
        content=content,
        readable=readable,
        attempts=0,
        error=Failure.of(error),
        keep_us=microseconds(settings.keep_letters),
    )


def work_of(settings: Settings, event: Event) -> Work:
    """A delivery, as a tracer sees it."""
    return Work(kind="process", operation=settings.operation, event_type=event.type, parents=trace_of(event))


def trace_of(event: Event) -> tuple[str, ...]:
    """The span that an event was made in, where its producer said so."""
    trace = event.extensions.get("traceparent")
    return (trace,) if isinstance(trace, str) else ()


def report(observer: Observer, settings: Settings, done: Disposition, trace: object | None = None) -> Disposition:
    """Tell the observer what came of a delivery; gives it on. A letter that was there before is not told of again."""
    told = [("consumed", done.status)]
    if done.action == "dead_letter" and not isinstance(done.error, FailedBefore):
        told.append(("dead_letter", done.status))
    for kind, detail in told:
        if is_heard(observer, kind):
            signal = Signal(
                kind=kind,  # type: ignore[arg-type]  # one of the two words above
                operation=settings.operation,
                reference=done.reference or "",
                detail=detail,
                trace=trace,
            )
            notify(observer, signal)
    return done
