"""Conversion between a record and its hash in Redis; one hash holds all that is known of a key.

- A hash is read in the order of `FIELDS`, and every script returns records through that tuple.
- What this release cannot read is `RecordUnreadable`, never a guess.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec

from semel.core.events.letters import Letter, StoredLetter
from semel.core.key import Key
from semel.core.policy import Doubt
from semel.core.record import NOTHING, About, Entry, Failure, Status, Step, StoredRecord, Worker
from semel.errors import RecordUnreadable
from semel.stores.rows import storable, stored_about, stored_failure

FIELDS: Final = (
    "key",
    "status",
    "retryable",
    "fingerprint",
    "fence",
    "nonce",
    "lease_us",
    "in_doubt_policy",
    "reconcile_after_us",
    "doubtful",
    "attempts",
    "outcome",
    "error",
    "about",
    "created_us",
    "started_us",
    "updated_us",
    "completed_us",
    "expires_us",
    "keep_us",
    "resolution",
    "replays",
    "replayed_us",
    "steps",
)
_NOW: Final = len(FIELDS)
_WORDS: Final = {status.value.encode(): status for status in Status}
_DOUBTS: Final[dict[bytes, Doubt]] = {word.encode(): word for word in get_args(Doubt)}
_ENCODER: Final = msgspec.msgpack.Encoder()
_TEXTS: Final = msgspec.msgpack.Decoder(tuple[str, str, str])
_PAIR: Final = msgspec.msgpack.Decoder(tuple[str, str])
_ABOUT: Final = msgspec.msgpack.Decoder(About)
_STEP: Final = msgspec.msgpack.Decoder(tuple[int, str, bytes])


def packed_key(key: Key) -> bytes:
    """The texts of a key; its digest is in the name of the hash."""
    return _ENCODER.encode((key.scope, key.operation, key.value))


def packed_about(about: About) -> bytes:
    """What a claim is about; empty where it says nothing."""
    kept = stored_about(about)
    return b"" if kept == NOTHING else _ENCODER.encode(kept)


def packed_failure(failure: Failure) -> bytes:
    """An error; equal ones are equal bytes."""
    kept = stored_failure(failure)
    return _ENCODER.encode((kept.type, kept.message))


def packed_step(step: Step) -> tuple[str, bytes]:
    """The field of a finished step, and the step."""
    body = _ENCODER.encode((step.index, storable(step.name), step.outcome))
    return f"step:{hashlib.blake2b(body, digest_size=16).hexdigest()}", body


def texts_of(packed: bytes | None) -> tuple[str, str, str]:
    """Scope, operation and value of a key.

    Raises:
        RecordUnreadable: it is none.
    """
    try:
        return _TEXTS.decode(packed or b"")
    except msgspec.MsgspecError as problem:
        raise RecordUnreadable("A record without a key cannot be read; nothing ran.") from problem


def about_of(packed: bytes | None) -> About:
    """What a claim is about.

    Raises:
        RecordUnreadable: it is nothing that this release knows.
    """
    try:
        return _ABOUT.decode(packed) if packed else NOTHING
    except msgspec.MsgspecError as problem:
        raise RecordUnreadable("What a record is about cannot be read; nothing ran.") from problem


def server_time_of(reply: Sequence[Any]) -> int:
    """The store's now that a script told beside a record."""
    return int(reply[_NOW])


def record_of(digest: bytes, reply: Sequence[Any]) -> StoredRecord:
    """The record that a script told, with the finished steps that it told.

    Raises:
        RecordUnreadable: it holds what this release does not know, or is no record at all.
    """
    try:
        return _record(digest, reply)
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as problem:
        message = (
            f"The record {digest.hex()} cannot be read ({type(problem).__name__}: {problem}); nothing ran. "
            f"Read it with the release that wrote it."
        )
        raise RecordUnreadable(message, reference=digest.hex()) from problem


def _record(digest: bytes, reply: Sequence[Any]) -> StoredRecord:
    (
        key,
        status,
        retryable,
        fingerprint,
        fence,
        nonce,
        lease_us,
        in_doubt_policy,
        reconcile_after_us,
        doubtful,
        attempts,
        outcome,
        error,
        about,
        created_us,
        started_us,
        updated_us,
        completed_us,
        expires_us,
        keep_us,
        resolution,
        replays,
        replayed_us,
        _,
        _,
        *steps,
    ) = reply
    scope, operation, value = _TEXTS.decode(key)
    return StoredRecord(
        key=Key(scope, operation, value, digest),
        status=_WORDS[status],
        retryable=retryable == b"1",
        fingerprint=fingerprint,
        fence=int(fence),
        nonce=nonce,
        lease_us=int(lease_us),
        in_doubt_policy=_DOUBTS[in_doubt_policy],
        reconcile_after_us=int(reconcile_after_us),
        doubtful=doubtful == b"1",
        attempts=int(attempts),
        outcome=outcome,
        error=None if error is None else Failure(*_PAIR.decode(error)),
        about=_ABOUT.decode(about) if about else NOTHING,
        created_us=int(created_us),
        started_us=int(started_us),
        updated_us=int(updated_us),
        completed_us=None if completed_us is None else int(completed_us),
        expires_us=int(expires_us),
        keep_us=int(keep_us),
        resolution=None if resolution is None else resolution.decode(),
        replays=int(replays),
        replayed_us=None if replayed_us is None else int(replayed_us),
        steps=_steps(steps) if steps else (),
    )


def entries_of(told: Sequence[bytes]) -> tuple[Entry, ...]:
    """The entries of a history, in their order.

    Raises:
        RecordUnreadable: one of them is nothing that this release knows.
    """
    try:
        return tuple(entry for _, entry in sorted(map(_entry, told), key=lambda pair: pair[0]))
    except (TypeError, ValueError, msgspec.MsgspecError) as problem:
        raise RecordUnreadable("The history of a record cannot be read; nothing ran.") from problem


def _entry(told: bytes) -> tuple[int, Entry]:
    """Its number in the order of arrival, and the entry; the error comes last, because it may hold any byte."""
    *fields, error = told.split(b":", 8)
    place, fence, kind, number, started_us, ended_us, nonce, ending = (field.decode() for field in fields)
    return int(place), msgspec.convert(
        {
            "fence": int(fence),
            "kind": kind,
            "number": int(number),
            "started_us": int(started_us),
            "ended_us": int(ended_us),
            "nonce": bytes.fromhex(nonce) or None,
            "ending": ending or None,
            "error": Failure(*_PAIR.decode(error)) if error else None,
        },
        Entry,
    )


_LETTER: Final = msgspec.msgpack.Decoder(dict[str, Any])


def letter_values(letter: Letter) -> tuple[Any, ...]:
    """A letter as scripts take it: id, why it is there and whose it is, how long it is kept, and all of it."""
    packed = _ENCODER.encode(
        {
            "consumer": letter.consumer,
            "scope": letter.scope,
            "record": letter.record,
            "reason": letter.reason,
            "type": storable(letter.type),
            "subject": storable(letter.subject),
            "content": letter.content,
            "readable": letter.readable,
            "attempts": letter.attempts,
            "error": None if letter.error is None else packed_failure(letter.error),
            "keep_us": letter.keep_us,
        }
    )
    return letter.id.hex(), f"{letter.reason}:{owner_mark(letter.consumer)}", letter.keep_us, packed


def owner_mark(consumer: str) -> str:
    """A consumer as scripts compare it."""
    return consumer.encode().hex()


def letter_of(told: Sequence[bytes]) -> StoredLetter:
    """The letter that a script told as its id and its value.

    Raises:
        RecordUnreadable: it is nothing that this release knows.
    """
    id_, value = told
    try:
        first_us, last_us, seen, expires_us, _, _, packed = value.split(b":", 6)
        fields = _LETTER.decode(packed)
        error = fields.pop("error")
        return StoredLetter(
            **fields,
            id=bytes.fromhex(id_.decode()),
            error=None if error is None else Failure(*_PAIR.decode(error)),
            first_us=int(first_us),
            last_us=int(last_us),
            seen=int(seen),
            expires_us=int(expires_us),
        )
    except (TypeError, ValueError, msgspec.MsgspecError) as problem:
        raise RecordUnreadable("A dead letter cannot be read; nothing was changed.") from problem


WORKER_FIELDS: Final = ("host", "pid", "version", "started_us")


def worker_of(process: bytes, told: Sequence[bytes | None]) -> Worker | None:
    """The worker that a process is noted as, if it is."""
    host, pid, version, started_us = told
    if host is None or pid is None or version is None or started_us is None:
        return None
    return Worker(process, host.decode(), int(pid), version.decode(), int(started_us))


def _steps(kept: Sequence[bytes]) -> tuple[Step, ...]:
    """Finished steps in their order: by index, and by when they were recorded."""
    numbered = []
    for entry in kept:
        number, _, body = entry.partition(b":")
        numbered.append((int(number), Step(*_STEP.decode(body))))
    numbered.sort(key=lambda pair: (pair[1].index, pair[0]))
    return tuple(step for _, step in numbered)
