"""Requests without a known outcome, left behind by a crash, a lost connection or a service that is down. Flows.

- A request that was claimed but not stored was never sent, so it is cancelled instead of sent.
- A request that another process works on is left to it.
- A request is sent again under its own key only, and not at all if another process has ended it in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from semel.client.models import INTENT, SUBJECT, Cancel, Headers, Look, Resend, Scan, StoredRequest, Sweep
from semel.core import codec
from semel.core.flow import Flow
from semel.core.key import Key
from semel.core.record import Record, Status

T = TypeVar("T")

OPERATION: Final = "semel.client"
STEP: Final = "request"
NUMBER: Final = "number"
PLACE: Final = "place"
"""The tag that says where a request goes, where its record is about somebody."""
_UNFINISHED: Final = (Status.RUNNING, Status.IN_DOUBT)
_SAVED: Final = codec.shape_of(StoredRequest)


@dataclass(frozen=True, slots=True)
class Pending:
    """A request whose outcome is not known yet. `request` is None where only its key was kept."""

    intent: str
    place: str
    since: datetime
    key: Key
    request: StoredRequest | None
    number: int = 0
    subject: str | None = None

    @property
    def headers(self) -> Headers:
        """The headers to send it with again: those that were kept, and those that lead back to its key and subject."""
        kept = self.request.headers if self.request is not None else ()
        about = ((SUBJECT, self.subject),) if self.subject is not None else ()
        return (*kept, (INTENT, self.intent), *about)


taken_up: ContextVar[Pending | None] = ContextVar("semel_taken_up", default=None)


@contextmanager
def taking_up(pending: Pending) -> Iterator[None]:
    """What is sent inside with the key of `pending` is that request again, and not a new one of its intent."""
    token = taken_up.set(pending)
    try:
        yield
    finally:
        taken_up.reset(token)


@dataclass(frozen=True, slots=True)
class Resumed(Generic[T]):
    """What became of a request that was taken up again: a response, or the error that it ended with."""

    pending: Pending
    response: T | None
    error: Exception | None


def unfinished(scope: str) -> Flow[list[Pending]]:
    """Requests of this client whose outcome is not known, oldest first; those being sent by others included."""
    yield Sweep()  # what nobody works at any more is in doubt from here on
    found: list[Pending] = []
    for status in _UNFINISHED:
        records: list[Record] = yield Scan(scope, status)
        for each in records:
            record: Record | None = yield Look(each.key)
            pending = None if record is None else _pending(record)
            if pending is not None:
                found.append(pending)
            elif record is not None and record.status is Status.IN_DOUBT:
                yield Cancel(record.key, "it was never sent")
    return sorted(found, key=lambda pending: pending.since)


def resumed(scope: str, send: Callable[[Pending], Any]) -> Flow[list[Resumed[Any]]]:
    """Send again what is unfinished, each with its own key, and say what became of it."""
    ended: list[Resumed[Any]] = []
    for pending in (yield from unfinished(scope)):
        ended.append((yield from _sent_again(pending, send)))  # noqa: PERF401 - a flow cannot wait in a comprehension
    return ended


def _sent_again(pending: Pending, send: Callable[[Pending], Any]) -> Flow[Resumed[Any]]:
    if pending.request is None:
        return Resumed(pending, None, None)
    try:
        response = yield Resend(send, pending)
    except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from being sent
        return Resumed(pending, None, error)
    return Resumed(pending, response, None)


def forgotten(scope: str, intent: str) -> Flow[int]:
    """Give up what is not known of an intent; how many requests that were."""
    ended = 0
    for pending in (yield from unfinished(scope)):
        if pending.intent == intent:
            ended += yield Cancel(pending.key, "the caller gave it up")
    return ended


def _pending(record: Record) -> Pending | None:
    """An unfinished request; None for a record that got no further than its claim, which was never sent."""
    step = next((step for step in record.steps if step.name == STEP), None)
    saved = None if step is None else codec.decode(step.outcome, _SAVED)
    if saved is None:
        return None
    about = record.about
    has_request, place = saved.body is not None, about.tags.get(PLACE)
    return Pending(
        about.business_key or "",
        place or about.subject or "",
        record.created_at,
        record.key,
        saved if has_request else None,
        number_of(record),
        None if place is None else about.subject,
    )


def number_of(record: Record) -> int:
    """Which key of its intent a record has: how often it was refused before."""
    return int(record.about.tags.get(NUMBER, "0"))
