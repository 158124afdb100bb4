"""The record: what a store keeps for a key, its outcome, its history, what erasing leaves of it, and its lease.

- Instants are whole microseconds since 1970 on the store's clock; people are shown each of them once, as an aware
  datetime. Intervals are half-open: a lease is over, and a
  record expired, at the very instant named. Only settled records expire.
- An outcome is an envelope that says by itself how to read it. One that this version cannot read raises
  `RecordUnreadable` and is never taken for "nothing there". No object is ever rebuilt from a name found in data.
- Only a settled record is erased, and an erased record never runs again before it expires. Outcome, error, finished
  steps, what it is about, earlier notes, the texts of key and scope and the fingerprint are gone: the digest of a
  request lets one try out all the values that it can have had. Digest of the key, operation, status, fence, nonce, all
  instants and the expiry stay. A failure that could have been tried again becomes final: without its finished steps the
  next attempt would do once more what they did.
- An entry of the history is written where the record would otherwise forget something: when an attempt ends without a
  value, is taken over, or is decided about, and when the record is reopened or erased. An attempt that completes writes
  none: the record itself says all of it, and its entry is made from the record when somebody asks. `changes_of` is the
  rule, from the record before and after a write; SQL stores state the same in their schema. Entries belong to one life
  of a record: they are deleted with it, and erasing takes the texts of their errors.
- The first six bytes of a nonce name the process that drew it; a worker is what is known of that process.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from semel.core.key import Key
from semel.core.policy import Doubt
from semel.errors import RecordUnreadable, UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)
"""A day from the ends, so that every clock can tell their time of day."""
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")  # what one database or another cannot keep as text


def is_storable(text: str) -> bool:
    """Whether every database can keep a text: it has neither NUL nor half a character."""
    return _UNSTORABLE.search(text) is None


class Status(StrEnum):
    """Where a record is in its life."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    CANCELLED = "cancelled"


MOST_TAGS: Final = 32
"""How many tags a record can have: each of them is kept once more, to be searched for."""
TAG: Final = "tag"
_SEARCHED: Final = ("business_key", "process_instance", "subject", "requester")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What people search by. Nothing here takes part in identity or fingerprint."""

    subject: str | None = None
    business_key: str | None = None
    process_instance: str | None = None
    requester: str | None = None
    tags: Mapping[str, str] = {}

    @staticmethod
    def of(about: About | Mapping[str, Any] | None) -> About:
        """`about` as given by the caller, checked.

        Raises:
            UsageError: a name is unknown or a value is not a string.
        """
        if about is None or about is NOTHING:
            return NOTHING
        given = msgspec.structs.asdict(about) if isinstance(about, About) else _known(about)
        try:
            checked = msgspec.convert(given, About, strict=True)
        except msgspec.ValidationError as problem:
            message = f"about= is not usable: {problem}; nothing ran. Values are strings, tags maps strings to strings."
            raise UsageError(message) from None
        if len(checked.tags) > MOST_TAGS:
            message = f"about= has {len(checked.tags)} tags; nothing ran. A record can have {MOST_TAGS}."
            raise UsageError(message)
        for text in checked.texts():
            if not is_storable(text):
                message = "about= holds text that cannot be stored (NUL or half a character); nothing ran."
                raise UsageError(message)
        return checked

    def texts(self) -> Iterator[str]:
        """Every text in it."""
        yield from (text for text in (self.subject, self.business_key, self.process_instance, self.requester) if text)
        for name, text in self.tags.items():
            yield from (name, text)

    def terms(self) -> Iterator[Term]:
        """Each value that a record is found by; what as a rule belongs to fewest records comes first."""
        for kind in _SEARCHED:
            value = getattr(self, kind)
            if value is not None:
                yield Term(kind, "", value)
        for name, value in self.tags.items():
            yield Term(TAG, name, value)


class Term(NamedTuple):
    """A value that records are found by: which field of `About`, the name of a tag, and the value."""

    kind: str
    name: str
    value: str


def _known(about: Any) -> dict[str, Any]:
    if not isinstance(about, Mapping):
        message = f"about= must be a mapping or an About, not {type(about).__name__}; nothing ran."
        raise UsageError(message)
    unknown = sorted(str(name) for name in about if name not in About.__struct_fields__)
    if unknown:
        names = ", ".join(About.__struct_fields__)
        message = f"about= has no {', '.join(unknown)}; nothing ran. It has {names}; the rest goes into tags."
        raise UsageError(message)
    return dict(about)


NOTHING = About()


class Failure(msgspec.Struct, frozen=True):
    """An error as it is kept: its class name and its message, never its objects."""

    type: str
    message: str

    @staticmethod
    def of(error: BaseException) -> Failure:
        """What is kept of `error`, bounded in size. Never raises, whatever the error is made of."""
        try:
            message = str(error)[:2000]
        except Exception:  # noqa: BLE001 - the handler has ended; how it ended must be recorded all the same
            message = "the error has no message that can be read"
        return Failure(f"{type(error).__module__}.{type(error).__qualname__}", _UNSTORABLE.sub("\ufffd", message))


_UNKNOWN: Final = "semel.Unknown"
_TIMES_UNKNOWN: Final = re.compile(r"; it was asked ([0-9]{1,9}) times? in a row\Z")


def unknown_failure(times: int) -> Failure:
    """What a record keeps of a reconcile hook that could not tell, so many times in a row."""
    asked = f"it was asked {times} time{'s' if times > 1 else ''} in a row"
    return Failure(_UNKNOWN, f"the reconcile hook could not tell whether it happened; {asked}")


def times_unknown(failure: Failure | None) -> int:
    """How many times in a row the reconcile hook could not tell, as the last error of a record says."""
    found = None if failure is None or failure.type != _UNKNOWN else _TIMES_UNKNOWN.search(failure.message)
    return 0 if found is None else int(found[1])


class Note(msgspec.Struct, frozen=True):
    """How a doubt was ended, or that the record was reopened or erased. Kept as text.

    It says which decision, why, by whom, and whether a live lease was ended by it.
    """

    resolution: str
    reason: str
    by: str = ""
    forced: bool = False

    def text(self) -> str:
        """As it is kept."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of(text: str) -> Note:
        """The note that `text` stands for; any other text is a reason by itself."""
        try:
            return msgspec.json.decode(text, type=Note)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return Note("", text)


_RUNNING, _IN_DOUBT = Status.RUNNING, Status.IN_DOUBT
REOPENED = Failure("semel.Reopened", "it was cancelled, and reopened since")
LEASE_ENDED = Failure("semel.LeaseEnded", "the lease ended without an outcome")


class Step(msgspec.Struct, frozen=True):
    """A finished step of an attempt: the recovery point of what it did."""

    index: int
    name: str
    outcome: bytes


class Lease(msgspec.Struct, frozen=True):
    """A granted claim. Every later write shows it; a store that does not recognise it changes nothing.

    `transaction` names the caller's transaction where the lease was granted or is used inside one; a store demands
    at the later write that it is still the same.
    """

    key: Key
    fence: int
    nonce: bytes
    until: int
    transaction: str = ""


class RecordBase(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is for stores and for people alike."""

    key: Key
    status: Status
    retryable: bool
    fingerprint: bytes
    fence: int
    in_doubt_policy: Doubt
    doubtful: bool
    attempts: int
    outcome: bytes | None
    error: Failure | None
    about: About
    steps: tuple[Step, ...] = ()

    @property
    def reference(self) -> str:
        """How this record is named in errors, logs and on the command line."""
        return self.key.reference

    @property
    def settled(self) -> bool:
        """Whether an end is recorded; only such records expire."""
        return self.status is not _RUNNING and self.status is not _IN_DOUBT

    @property
    def final(self) -> bool:
        """Whether the end recorded is the answer to every duplicate."""
        return self.settled and not self.retryable

    @property
    def erased(self) -> bool:
        """Whether what may be personal was taken out; no key is empty."""
        return not self.key.value


class StoredRecord(RecordBase, frozen=True, kw_only=True):
    """All that a store keeps of a key. Fields ending in `_us` are in its microseconds; people are shown a `Record`."""

    nonce: bytes
    lease_us: int
    reconcile_after_us: int
    created_us: int
    started_us: int
    updated_us: int
    completed_us: int | None
    expires_us: int
    keep_us: int
    resolution: str | None = None
    replays: int = 0
    replayed_us: int | None = None

    @property
    def lease(self) -> Lease:
        """The lease of the last claim."""
        return Lease(self.key, self.fence, self.nonce, self.lease_us)

    @property
    def note(self) -> Note | None:
        """How the doubt of this record was ended, or why it was erased, if either was."""
        return None if self.resolution is None else Note.of(self.resolution)

    def is_for(self, fingerprint: bytes) -> bool:
        """Whether its end is the answer to a request with this fingerprint; an erased one answers all of its key."""
        return self.erased or self.fingerprint == fingerprint

    def kept_until(self, now: int) -> int:
        """When an outcome recorded at `now` expires. A run that used up most of its time is given all of it again."""
        return self.expires_us if self.expires_us - now > self.keep_us // 2 else now + self.keep_us


class Record(RecordBase, frozen=True, kw_only=True):
    """What the store kept for a key at the moment it was read. Each instant is an aware datetime of the store's clock.

    Attributes:
        key: whose record it is.
        status: where it is in its life.
        retryable: whether it failed in a way that lets the key be claimed again.
        fingerprint: what was asked, as a digest behind one byte for its version; empty in an erased record.
        fence: rises with every granted claim.
        in_doubt_policy: what the last owner's policy says about doubt.
        doubtful: whether an attempt so far may have had its effect without a recorded outcome.
        attempts: how many attempts called the handler, the running one included.
        outcome: the stored value in its envelope, where it is completed.
        error: class name and message of the last error.
        about: what people search by.
        steps: its finished steps; a listing comes without them.
        created_at: when the key was first claimed.
        started_at: when the latest attempt was granted.
        updated_at: when the record last changed.
        lease_until: when the last lease ends or ended.
        completed_at: when it was settled.
        expires_at: when it stops being replayed, once settled.
        keep_for: the last owner's `keep_for`.
        reconcile_after: the last owner's `reconcile_after`.
        note: how its doubt was ended, or why it was erased, if either was.
        replays: how often it was replayed, as far as has been written down.
        replayed_at: when replays were last written down.
    """

    created_at: datetime
    started_at: datetime
    updated_at: datetime
    lease_until: datetime
    completed_at: datetime | None
    expires_at: datetime
    keep_for: timedelta
    reconcile_after: timedelta
    note: Note | None
    replays: int
    replayed_at: datetime | None

    @property
    def duration(self) -> timedelta | None:
        """How long the settling attempt took; None until it has settled."""
        return None if self.completed_at is None else self.completed_at - self.started_at


class Count(msgspec.Struct, frozen=True):
    """How many records an operation has in one status."""

    operation: str
    status: Status
    number: int


def show_record(stored: StoredRecord) -> Record:
    """A record as people see it."""
    completed, replayed = stored.completed_us, stored.replayed_us
    return Record(
        key=stored.key,
        status=stored.status,
        retryable=stored.retryable,
        fingerprint=stored.fingerprint,
        fence=stored.fence,
        in_doubt_policy=stored.in_doubt_policy,
        reconcile_after=timedelta(microseconds=stored.reconcile_after_us),
        doubtful=stored.doubtful,
        attempts=stored.attempts,
        outcome=stored.outcome,
        error=stored.error,
        about=stored.about,
        created_at=instant(stored.created_us),
        started_at=instant(stored.started_us),
        updated_at=instant(stored.updated_us),
        lease_until=instant(stored.lease_us),
        completed_at=None if completed is None else instant(completed),
        expires_at=instant(stored.expires_us),
        keep_for=timedelta(microseconds=stored.keep_us),
        note=stored.note,
        replays=stored.replays,
        replayed_at=None if replayed is None else instant(replayed),
        steps=stored.steps,
    )


def exact_instant(microseconds: int) -> datetime:
    """A store's instant as an aware datetime.

    Raises:
        OverflowError: it is in no year that there is.
    """
    return _EPOCH + timedelta(0, 0, microseconds)


def instant(microseconds: int) -> datetime:
    """The same; where there is none so far away, about the last or the first there is.

    Such a number is written by hand, for "never": the record that has it hides no others in a list.
    """
    try:
        return exact_instant(microseconds)
    except OverflowError:
        return _LATEST if microseconds > 0 else _EARLIEST


def store_instant(moment: datetime) -> int:
    """An aware datetime as a store's instant.

    Raises:
        UsageError: it is no datetime, or a naive one.
    """
    given: object = moment
    if not isinstance(given, datetime):
        message = f"A moment must be a datetime, not {type(given).__name__}; nothing ran."
        raise UsageError(message)
    if moment.utcoffset() is None:
        message = "A naive datetime names no moment; nothing ran. Give it a time zone."
        raise UsageError(message)
    return (moment - _EPOCH) // timedelta(microseconds=1)


VERSION = 1
COMPRESS_FROM = 4096
MOST_UNPACKED = 256 * 1024 * 1024
"""A larger value is never compressed, and none that would become larger is unpacked."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """An outcome as stored: how it is encoded, compressed and sealed, and the bytes."""

    version: int
    codec: str
    compression: str
    seal: str
    body: bytes


class NotKept(msgspec.Struct, frozen=True):
    """A tombstone: it is done, and its value was not kept, for this reason."""

    reason: str


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Envelope)
TOMBSTONE = "none"
UNREADABLE: Final = "semel.Unreadable"
"""What stands in the place of something sealed that could not be opened: a codec, or the type of a failure."""
_TOMBSTONE_START = b"\x95" + _ENCODER.encode(VERSION) + _ENCODER.encode(TOMBSTONE)  # an array of five begins with 95


def pack_outcome(codec: str, body: bytes) -> bytes:
    """Put an encoded value in an envelope, compressed where that makes it smaller."""
    if len(body) >= COMPRESS_FROM:
        smaller = zlib.compress(body, 1) if len(body) <= MOST_UNPACKED else body
        if len(smaller) < len(body):
            return _ENCODER.encode(Envelope(VERSION, codec, "zlib", "", smaller))
    return _ENCODER.encode(Envelope(VERSION, codec, "", "", body))


def pack_tombstone(reason: str) -> bytes:
    """An envelope that says only why the value was not kept."""
    return _ENCODER.encode(Envelope(VERSION, TOMBSTONE, "", "", reason.encode(errors="backslashreplace")))


def is_tombstone(stored: bytes) -> bool:
    """Whether an envelope of this release is a tombstone, without reading all of it."""
    return stored.startswith(_TOMBSTONE_START)


def tombstone_reason(stored: bytes) -> str:
    """Why a tombstone holds no value."""
    return _DECODER.decode(stored).body.decode(errors="replace")


def unpack_outcome(stored: bytes) -> tuple[str, bytes] | NotKept:
    """Codec and bytes of an envelope, or the tombstone.

    Raises:
        RecordUnreadable: written by a newer version, or damaged.
    """
    try:
        envelope = _DECODER.decode(stored)
    except Exception as problem:
        raise unreadable_error("its envelope is damaged") from problem
    if envelope.version != VERSION:
        raise unreadable_error(f"it has version {envelope.version}, and this release reads {VERSION}")
    if envelope.seal:
        raise _sealed_error(envelope)
    if envelope.codec == TOMBSTONE:
        return NotKept(envelope.body.decode(errors="replace"))
    match envelope.compression:
        case "":
            return envelope.codec, envelope.body
        case "zlib":
            return envelope.codec, _decompress(envelope.body)
        case other:
            raise unreadable_error(f"its compression {other!r} is unknown to this release")


def _decompress(body: bytes) -> bytes:
    """What was compressed, if it is no more than ever is: a row that somebody else wrote must not use up all memory."""
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(body, MOST_UNPACKED + 1)
    except zlib.error as problem:
        raise unreadable_error("its compressed body is damaged") from problem
    if len(found) > MOST_UNPACKED:
        raise unreadable_error(f"its body is larger than {MOST_UNPACKED} bytes once it is unpacked")
    if not unpacking.eof:
        raise unreadable_error("its compressed body is damaged")
    return found


def _sealed_error(envelope: Envelope) -> RecordUnreadable:
    """Why a sealed outcome was not opened: by whoever tried, or because nobody had a keyring."""
    if envelope.codec == UNREADABLE:
        return RecordUnreadable(envelope.body.decode(errors="replace"), key_id=envelope.seal)
    return unreadable_error(f"it is sealed with the key {envelope.seal!r}, and no keyring was given (seal=)")


def unreadable_error(why: str) -> RecordUnreadable:
    """The error for a stored outcome that cannot be given back."""
    return RecordUnreadable(
        f"The stored outcome cannot be read: {why}. It did run before and nothing ran now; "
        f"read it with the release that wrote it."
    )


@dataclass(frozen=True, slots=True)
class Happened:
    """It happened, with this value: what a duplicate shall get."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """It did not happen: the key may be claimed again, without doubt."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be told yet: the record stays in doubt."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It shall not happen any more: duplicates get `FailedBefore`."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It failed, for this reason, and is not tried again: duplicates get `FailedBefore` with it."""

    reason: str


Verdict = Happened | DidNotHappen | Unknown
Resolution = Happened | DidNotHappen | Cancelled | Failed
Ending = Literal["final", "retry", "doubt"]


ERASED_REASON: Final = "it was erased"
ERASED_OUTCOME: Final = pack_tombstone(ERASED_REASON)
ERASED_FAILURE: Final = Failure("semel.Erased", ERASED_REASON)
BLANK: Final = b""
"""The fingerprint of an erased record; no request has it."""
ERASED_RESOLUTION: Final = "Erased"
"""How the note of an erased record names what was done."""


def erase_record(record: StoredRecord, note: str) -> StoredRecord:
    """What is left of a settled record."""
    return replace(
        record,
        key=Key("", record.key.operation, "", record.key.digest),
        retryable=False,
        fingerprint=BLANK,
        doubtful=False,
        outcome=ERASED_OUTCOME if record.status is Status.COMPLETED else None,
        error=ERASED_FAILURE if record.status is Status.FAILED else None,
        about=NOTHING,
        resolution=note,
        steps=(),
    )


EntryKind = Literal["attempt", "taken_over", "resolved", "reopened", "erased"]
EntryEnding = Literal["completed", "failed", "retryable", "in_doubt", "cancelled"]

MOST_ENTRIES: Final = 100
"""How many entries of a record a SQL store keeps: the newest."""
MOST_INSIDE: Final = 20
"""How many entries a store keeps that has them inside the record."""
LONGEST_INSIDE: Final = 200
"""How many characters of an error such a store keeps."""
PROCESS_BYTES: Final = 6
"""How many bytes of a nonce name the process."""
WORKER_KEPT_US: Final = 90 * 24 * 3600 * 1_000_000
"""How long after its last sign a worker is known."""
_LONGEST_NAME: Final = 255


class Entry(msgspec.Struct, frozen=True):
    """One entry as a store keeps it. `nonce` is that of the attempt or the decision; an erasure has none.

    In one life of a record no two entries have the same fence and kind, and none has that of another attempt.
    """

    fence: int
    kind: EntryKind
    number: int
    started_us: int
    ended_us: int | None
    nonce: bytes | None
    ending: EntryEnding | None
    error: Failure | None


class Worker(msgspec.Struct, frozen=True):
    """A process as a store knows it, by the six bytes with which its nonces begin."""

    process: bytes
    host: str
    pid: int
    version: str
    started_us: int = 0

    @staticmethod
    def of(process: bytes, host: str, pid: int, version: str) -> Worker:
        """A worker with texts of bounded length."""
        return Worker(process, host[:_LONGEST_NAME], pid, version[:_LONGEST_NAME])


class Holder(msgspec.Struct, frozen=True):
    """The process that held a record or decided about it.

    Attributes:
        host: the name of its machine.
        pid: its process id there.
        version: which release of semel it ran.
        started: when the store first knew of it.
    """

    host: str
    pid: int
    version: str
    started: datetime


class HistoryEntry(msgspec.Struct, frozen=True):
    """One thing that happened to a record. Instants are aware datetimes of the store's clock.

    Attributes:
        kind: `attempt`, `taken_over` (an attempt whose lease ended, and another one went on), `resolved`, `reopened`
            or `erased`.
        number: which attempt it was, or how many there had been; reopening begins to count anew.
        started: when the attempt was granted, or the decision made.
        ended: when that was over; None while it runs.
        holder: the process; None where the store does not know it.
        ending: `completed`, `failed` (for good), `retryable` (failed, and may run again), `in_doubt` or `cancelled`;
            None while it runs, and for an erasure.
        error: class name and message of the error it ended with.
    """

    kind: EntryKind
    number: int
    started: datetime
    ended: datetime | None
    holder: Holder | None
    ending: EntryEnding | None
    error: Failure | None


def changes_of(before: StoredRecord | None, after: StoredRecord, known: Iterable[Entry] = ()) -> tuple[Entry, ...]:
    """The entries that a write leaves, from the record before and after it, beside those `known` already.

    Entries of an erasure are made by `erase_entries`: the instant of an erasure is not part of the record.
    """
    if before is None or before.created_us != after.created_us:
        return (_ended_attempt(after),) if after.status is Status.FAILED else ()
    if before.nonce == after.nonce:
        ends = before.status is Status.RUNNING and after.status in (Status.FAILED, Status.IN_DOUBT)
        return (_ended_attempt(after),) if ends and after.attempts == before.attempts else ()
    entries = _forgotten_attempt(before, after, known)
    return entries if after.status is Status.RUNNING else (*entries, _decision(before, after))


def _ended_attempt(record: StoredRecord) -> Entry:
    return Entry(
        record.fence,
        "attempt",
        record.attempts,
        record.started_us,
        record.updated_us,
        record.nonce,
        ending_of(record),
        record.error,
    )


def _forgotten_attempt(before: StoredRecord, after: StoredRecord, known: Iterable[Entry]) -> tuple[Entry, ...]:
    """The attempt that only the record knew of so far: one that runs, or one whose value is replaced."""
    fence, number, started, nonce = before.fence, before.attempts, before.started_us, before.nonce
    if before.status is Status.RUNNING:
        kind: EntryKind = "taken_over" if after.status is Status.RUNNING else "attempt"
        return (Entry(fence, kind, number, started, after.updated_us, nonce, "in_doubt", None),)
    is_decided = any(entry.fence == fence and entry.kind == "resolved" for entry in known)
    if before.status is Status.COMPLETED and not is_decided:
        return (Entry(fence, "attempt", number, started, before.completed_us, nonce, "completed", None),)
    return ()


def _decision(before: StoredRecord, after: StoredRecord) -> Entry:
    now, fence, nonce = after.updated_us, after.fence, after.nonce
    if fence == before.fence:
        return Entry(fence, "reopened", before.attempts, now, now, nonce, "retryable", None)
    if before.status is Status.FAILED:  # counted after its transaction was rolled back
        return _ended_attempt(after)
    error = after.error if after.final and after.status is Status.FAILED else None
    return Entry(fence, "resolved", before.attempts, now, now, nonce, ending_of(after), error)


_ENDINGS: Final[dict[Status, EntryEnding | None]] = {
    Status.RUNNING: None,
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.IN_DOUBT: "in_doubt",
    Status.CANCELLED: "cancelled",
}


def ending_of(record: StoredRecord) -> EntryEnding | None:
    """How the state of a record is called as the ending of an entry."""
    return "retryable" if record.retryable else _ENDINGS[record.status]


def erase_entries(record: StoredRecord, entries: Iterable[Entry], now: int) -> tuple[Entry, ...]:
    """What is left of the entries of a record that is erased, and that it was."""
    left = [entry if entry.error is None else replace(entry, error=ERASED_FAILURE) for entry in entries]
    if not any(entry.kind == "erased" for entry in left):
        left.append(Entry(record.fence, "erased", record.attempts, now, now, None, None, None))
    return tuple(left)


def with_present(record: StoredRecord, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries of a record with that of its present attempt, which nobody has written: it runs, or it completed."""
    kept = list(entries)
    is_said = any(entry.fence == record.fence and entry.kind in ("attempt", "resolved") for entry in kept)
    if is_said or record.status not in (Status.RUNNING, Status.COMPLETED):
        return tuple(kept)
    present = replace(_ended_attempt(record), ended_us=record.completed_us, error=None)
    place = next((place for place, entry in enumerate(kept) if entry.kind == "erased"), len(kept))
    return (*kept[:place], present, *kept[place:])


def shorten(entry: Entry) -> Entry:
    """An entry as it is kept inside a record, where room is scarce."""
    if entry.error is None:
        return entry
    error = Failure(entry.error.type[:LONGEST_INSIDE], entry.error.message[:LONGEST_INSIDE])
    return replace(entry, error=error)


def processes_of(record: StoredRecord, entries: Iterable[Entry]) -> list[bytes]:
    """The processes that a history speaks of, each once."""
    nonces = [record.nonce, *(entry.nonce for entry in entries if entry.nonce is not None)]
    return list(dict.fromkeys(nonce[:PROCESS_BYTES] for nonce in nonces))


def show_history(entries: Iterable[Entry], workers: Mapping[bytes, Worker]) -> tuple[HistoryEntry, ...]:
    """A history as people see it."""
    return tuple(
        HistoryEntry(
            kind=entry.kind,
            number=entry.number,
            started=instant(entry.started_us),
            ended=None if entry.ended_us is None else instant(entry.ended_us),
            holder=None if entry.nonce is None else holder_from_worker(workers.get(entry.nonce[:PROCESS_BYTES])),
            ending=entry.ending,
            error=entry.error,
        )
        for entry in entries
    )


def holder_from_worker(worker: Worker | None) -> Holder | None:
    """A process as people see it; None where it is not known."""
    if worker is None:
        return None
    return Holder(worker.host, worker.pid, worker.version, instant(worker.started_us))
