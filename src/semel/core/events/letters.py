"""Dead letters: what a consumer of events could not process, and what a store may be asked about them.

- A letter is named by its consumer, its record and all that its event is compared by, so that a crash neither loses nor
  doubles one, and another event under the same id has a letter of its own.
- It is written in the transaction or statement that ends its record, and goes with the write that completes it.
- A decision on the record closes its letters, except those of another event under the same id (`reused`), and except
  where the event may run again by it: the broker was released, and nobody else has the event. Erasing the record
  deletes all of them.
- A record with a letter is kept for at least as long as the letter.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal, get_args

import msgspec

from semel.core.flow import Asks
from semel.core.record import Failure
from semel.errors import UsageError

Reason = Literal["rejected", "exhausted", "reused", "invalid", "unknown_type", "in_doubt"]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
REUSED: Final[Reason] = "reused"
"""The reason of a letter that is not about the event of its record, but about another one under the same id."""


class LetterTooLarge(UsageError):
    """The store cannot hold a dead letter of this size; nothing was written, so the broker has to keep the event."""


def operation_of(consumer: str) -> str:
    """The operation of the records of a consumer's events: part of their identity, and of where stores keep letters."""
    return f"event:{consumer}"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that nobody tries again by itself.

    Attributes:
        id: 32 bytes (`letter_id`).
        consumer: whose it is.
        scope: for whom the event is, as in its key.
        record: the digest of its record; None where what arrived has no identity.
        reason: why it is here.
        type: of the event; empty where it cannot be read.
        subject: of the event.
        content: the event as JSON; headers and body, packed, where it cannot be read.
        readable: whether `content` is an event.
        attempts: how often its handler was called.
        error: what it raised last.
        keep_us: how long the letter is kept.
    """

    id: bytes
    consumer: str
    scope: str
    record: bytes | None
    reason: Reason
    type: str
    subject: str | None
    content: bytes
    readable: bool
    attempts: int
    error: Failure | None
    keep_us: int


class StoredLetter(Letter, frozen=True, kw_only=True):
    """A letter as a store has it. `seen` is how often it was delivered, `first_us` and `last_us` when."""

    first_us: int
    last_us: int
    seen: int
    expires_us: int


class LetterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters to list; what is None does not restrict.

    An id with its record, or one of a letter without a record, is found without looking through all letters; both need
    the consumer, where a store keeps letters beside their records.
    """

    consumer: str | None = None
    id: bytes | None = None
    record: bytes | None = None
    scope: str | None = None
    reason: str | None = None
    type: str | None = None
    subject: str | None = None
    before_us: int | None = None


class PutLetter(msgspec.Struct, Asks["LetterFound"], frozen=True):
    """Keep a letter. Of one with the same id that is there already, why and how often it failed is what is new.

    Such a letter was seen once more, and is kept for as long as a new one.
    """

    letter: Letter


class TouchLetter(msgspec.Struct, Asks["LetterFound"], frozen=True):
    """The event of a record was delivered again: its letter was seen once more, and is the answer.

    A letter whose reason is `reused` is another event under the same id, and is not meant.
    """

    consumer: str
    record: bytes


class ScanLetters(msgspec.Struct, Asks["LetterPage"], frozen=True):
    """One page of letters, oldest first, after the cursor (first instant and id)."""

    query: LetterQuery
    cursor: tuple[int, bytes] | None
    limit: int


class DropLetter(msgspec.Struct, Asks["LetterFound"], frozen=True):
    """Delete a letter; the answer is what was deleted.

    `record`, where the letter has one, leads a store to it that keeps letters beside their records; without it such a
    store looks through all of them. Consumer and id decide.
    """

    consumer: str
    id: bytes
    record: bytes | None = None


class LetterFound(msgspec.Struct, frozen=True):
    """The letter that was kept, touched or deleted; None where there is none."""

    letter: StoredLetter | None


class LetterPage(msgspec.Struct, frozen=True):
    """One page of letters; no cursor means that it was the last."""

    letters: tuple[StoredLetter, ...]
    cursor: tuple[int, bytes] | None


def letter_id(consumer: str, record: bytes | None, *content: bytes) -> bytes:
    """What names a letter; `content` is all that tells its event from another one under the same id.

    Each part enters with its length, so that no two letters share a name.
    """
    digest = hashlib.sha256(b"semel.letter\x00")
    for part in (consumer.encode(), record or b"", *content):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
