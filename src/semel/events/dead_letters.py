"""Dead letters as people see them, and what came of handing many of them to their consumer again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from semel.core.events.letters import REASONS, LetterQuery, StoredLetter
from semel.core.record import UNREADABLE, Failure, instant, store_instant
from semel.core.sealing.values import refuse_sealed
from semel.errors import EventInvalid, RecordUnreadable, UsageError
from semel.events.event import Event

_ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that its consumer could not process.

    Attributes:
        id: names it, for `redrive` and `discard`.
        event: what was delivered; None where it cannot be read.
        raw: headers and body, where it cannot be read; None too where it is sealed and its key is not at hand.
        reason: why it is here: rejected, exhausted, reused, invalid, unknown_type or in_doubt.
        attempts: how often its handler was called.
        error: what that raised last; of the type `semel.Unreadable` where its key is not at hand.
        first: when it became a dead letter.
        last: when it was delivered last.
        seen: how often it was delivered since it is one, the first time included.
        reference: names its record; None where it has no identity.
    """

    id: str
    event: Event | None
    raw: tuple[dict[str, str], bytes] | None
    reason: str
    attempts: int
    error: Failure | None
    first: datetime
    last: datetime
    seen: int
    reference: str | None


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """How many letters were handed to their consumer again, by what came of them.

    Those whose key is not at hand were not, and are counted as `unreadable`.
    """

    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many there were."""
        return self.statuses.total()


def why_unreadable(stored: StoredLetter) -> Failure | None:
    """Why nobody can tell here what was delivered: its key is not at hand. None: it can be told."""
    if stored.error is not None and stored.error.type == UNREADABLE and not stored.content:
        return stored.error
    try:
        refuse_sealed(stored.content)
    except RecordUnreadable as problem:
        return Failure(UNREADABLE, str(problem))
    return None


def check_readable(stored: StoredLetter) -> None:
    """Refuse a letter that is sealed with a key which is not at hand, or that was changed.

    Raises:
        RecordUnreadable: it is.
    """
    _read(stored)


def _read(stored: StoredLetter) -> tuple[Event | None, tuple[dict[str, str], bytes] | None]:
    """The event that a letter keeps, or the headers and the body of what could not be read.

    Raises:
        RecordUnreadable: nobody can tell here what was delivered.
    """
    reference = None if stored.record is None else stored.record.hex()
    why = why_unreadable(stored)
    if why is not None:
        raise RecordUnreadable(why.message, reference=reference)
    try:
        return (Event.from_json(stored.content), None) if stored.readable else (None, unpack(stored.content))
    except (EventInvalid, msgspec.MsgspecError, UnicodeDecodeError) as problem:
        message = f"What is stored of a dead letter was changed, and cannot be read any more: {problem}"
        raise RecordUnreadable(message, reference=reference) from problem


def show_letter(stored: StoredLetter) -> DeadLetter:
    """A stored letter as people see it; where it cannot be opened or read, its error says so and there is no event."""
    event, raw = None, None
    try:
        event, raw = _read(stored)
    except RecordUnreadable as problem:
        stored = replace(stored, error=Failure(UNREADABLE, problem.message))
    return DeadLetter(
        id=stored.id.hex() + (stored.record or b"").hex(),
        event=event,
        raw=raw,
        reason=stored.reason,
        attempts=stored.attempts,
        error=stored.error,
        first=instant(stored.first_us),
        last=instant(stored.last_us),
        seen=stored.seen,
        reference=None if stored.record is None else stored.record.hex(),
    )


def pack(headers: Any, body: bytes) -> bytes:
    """Headers and body of what could not be read, as they are kept."""
    texts = {_storable(name): _storable(value) for name, value in headers.items()}
    return msgspec.msgpack.encode((texts, bytes(body)))


def _storable(value: object) -> str:
    """Text that UTF-8 can hold."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.encode("utf-8", "backslashreplace").decode()


def unpack(content: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and body again."""
    return msgspec.msgpack.decode(content, type=tuple[dict[str, str], bytes])


class LetterName(NamedTuple):
    """What names a letter in a store, and the record that leads to it; None where it has none."""

    id: bytes
    record: bytes | None


def parse_letter_id(text: object) -> LetterName:
    """The id of a letter, as people give it: its own name, and behind it that of its record.

    Raises:
        UsageError: it is none.
    """
    try:
        name = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        name = b""
    if len(name) not in (_ID_BYTES, 2 * _ID_BYTES):
        raise UsageError(
            f"The id of a dead letter is 128 hex digits, or 64 where it has no record, not {text!r:.140}; "
            f"nothing was changed."
        )
    return LetterName(name[:_ID_BYTES], name[_ID_BYTES:] or None)


def letter_query(
    consumer: str,
    *,
    reason: str | None = None,
    type: str | None = None,  # noqa: A002 - as on an event
    subject: str | None = None,
    before: datetime | None = None,
) -> LetterQuery:
    """Which letters of a consumer are asked for.

    Raises:
        UsageError: there are never letters for that reason.
    """
    if reason is not None and reason not in REASONS:
        raise UsageError(f"reason is one of {', '.join(REASONS)}, not {reason!r:.80}; nothing ran.")
    return LetterQuery(
        consumer=consumer,
        reason=reason,
        type=type,
        subject=subject,
        before_us=None if before is None else store_instant(before),
    )
