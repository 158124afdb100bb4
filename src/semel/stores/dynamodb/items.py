"""Conversion between a record and its item, and the limit of 400 KB for an item.

- Attributes are named like the columns of the SQL stores; a few more serve conditions.
- An item written by a newer release is `RecordUnreadable`, never a guess.
- `version` rises with every write, so `nonce` and `version` name the exact item that was seen.
- `ttl` is set only while the record is settled: the service must never delete anything else.
- An operation that happened is recorded as such, however large its value: a value that does not fit becomes a
  tombstone, a duplicate gets `ResultNotKept`, and nothing runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from semel.core.events.letters import Letter, StoredLetter
from semel.core.operations import Checkpoint, Complete, Erase, Fail, Operation, Resolve
from semel.core.record import (
    MOST_INSIDE,
    WORKER_KEPT_US,
    About,
    Entry,
    Failure,
    Status,
    Step,
    StoredRecord,
    Worker,
    changes_of,
    erase_entries,
    pack_tombstone,
    shorten,
)
from semel.errors import RecordUnreadable
from semel.stores.dynamodb.clock import SECOND
from semel.stores.dynamodb.commands import Item
from semel.stores.rows import RECORD_COLUMNS, about_values, record_of, storable
from semel.stores.search import term_number

FORMAT: Final = 1
LARGEST: Final = 400 * 1024
KEY: Final = "digest"
TTL: Final = "ttl"
WORKER: Final = b"worker:"
LETTERS: Final = b"letters:"
_DIGEST_BYTES: Final = 32
SEARCHED: Final = ("business_key", "process_instance", "subject", "requester")
"""What has an index on demand. An item has one value of each, but several tags, which no index of items can hold."""
_AS_IT_IS: Final = {str: "S", bytes: "B", bool: "BOOL"}
_NAMES_AND_NUMBERS: Final = 2048
_OF_A_PIECE: Final = 64


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it was read, which write made it so, and what happened to it before."""

    record: StoredRecord
    version: int
    entries: tuple[Entry, ...] = ()


def attribute(value: Any) -> dict[str, Any]:
    """A plain value in the form of the wire."""
    kind = _AS_IT_IS.get(type(value))
    if kind is not None:
        return {kind: value}
    match value:
        case int():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case list():
            return {"L": [attribute(one) for one in value]}
        case dict():
            return {"M": {name: attribute(one) for name, one in value.items()}}
    message = f"no attribute of DynamoDB for a {type(value).__name__}"
    raise TypeError(message)


def plain(stored: Mapping[str, Any]) -> Any:
    """The value of an attribute."""
    ((kind, value),) = stored.items()
    match kind:
        case "N":
            return int(value)
        case "L":
            return [plain(one) for one in value]
        case "M":
            return {name: plain(one) for name, one in value.items()}
    return value


def key_of(digest: bytes) -> Item:
    """The primary key of a record."""
    return {KEY: {"B": digest}}


def step_value(step: Step) -> list[Any]:
    """A finished step as it is kept, under its position."""
    return [storable(step.name), step.outcome]


def expiry_values(expires_us: int, keep_us: int) -> dict[str, int]:
    """What conditions need of an expiry, because they cannot calculate: see `StoredRecord.kept_until`."""
    return {
        "expires_us": expires_us,
        "expires_s": -(-expires_us // SECOND),
        "extend_from_us": expires_us - keep_us // 2,
    }


OPEN_ENTRY: Final = -1
"""What stands for fence, number and start of the entry of a record's present attempt: the record itself says them."""


def entry_value(entry: Entry) -> list[Any]:
    """An entry as it is kept."""
    kept = shorten(entry)
    error = ("", "") if kept.error is None else (storable(kept.error.type), storable(kept.error.message))
    return [
        kept.fence,
        kept.kind,
        kept.number,
        kept.started_us,
        OPEN_ENTRY if kept.ended_us is None else kept.ended_us,
        kept.nonce or b"",
        kept.ending or "",
        *error,
    ]


def _entries_of(kept: list[list[Any]], record: StoredRecord) -> tuple[Entry, ...]:
    return tuple(_entry_of(values, record) for values in kept[-MOST_INSIDE:])


def _entry_of(values: list[Any], record: StoredRecord) -> Entry:
    fence, kind, number, started_us, ended_us, nonce, ending, error_type, error_message = values
    error = Failure(error_type, error_message) if error_type or error_message else None
    if fence == OPEN_ENTRY:
        fence, number, started_us, nonce = record.fence, record.attempts, record.started_us, record.nonce
    return Entry(fence, kind, number, started_us, ended_us, nonce or None, ending or None, error)


def entries_after(seen: Seen | None, changed: StoredRecord, operation: Operation, now: int) -> tuple[Entry, ...]:
    """The history of a record after an operation has changed it."""
    if seen is None or seen.record.created_us != changed.created_us:
        return changes_of(None, changed)
    if isinstance(operation, Erase):
        return erase_entries(changed, seen.entries, now)[-MOST_INSIDE:]
    return (*seen.entries, *changes_of(seen.record, changed, seen.entries))[-MOST_INSIDE:]


def room_for_entries(seen: Seen | None) -> int:
    """How much of an item its history may take after one write more."""
    entries = () if seen is None else seen.entries
    return sum(_size(attribute(entry_value(entry))) + 1 for entry in entries) + _NAMES_AND_NUMBERS if entries else 0


def worker_item(worker: Worker, now: int, started_us: int) -> Item:
    """The item of a worker; no digest is as short as its key. The service deletes it some time after its last sign."""
    values = {
        KEY: WORKER + worker.process,
        "host": storable(worker.host),
        "pid": worker.pid,
        "version": storable(worker.version),
        "started_us": started_us,
        TTL: -(-(now + WORKER_KEPT_US) // SECOND),
    }
    return {name: attribute(value) for name, value in values.items()}


def worker_of(item: Item) -> Worker:
    """The worker that an item keeps."""
    values = {name: plain(stored) for name, stored in item.items()}
    process = bytes(values[KEY])[len(WORKER) :]
    return Worker(process, values["host"], values["pid"], values["version"], values["started_us"])


def is_record(item: Item) -> bool:
    """Whether an item is that of a record, and not of a worker or of events: no other key is as long as a digest."""
    return len(plain(item[KEY])) == _DIGEST_BYTES


OWNER: Final = "letters_of"
"""The attribute that says whose dead letters an item holds."""


def letters_key(place: bytes) -> Item:
    """The primary key of the dead letters of a record; of one that has none it is under the letter's own id."""
    return key_of(LETTERS + place)


def letter_names(id_: bytes) -> dict[str, str]:
    """The attributes of a letter in the item of its record's letters: what its writer says, and what is counted."""
    return {name: f"{name}_{id_.hex()}" for name in ("letter", "first_us", "last_us", "seen", "expires_us")}


def letter_value(letter: Letter) -> dict[str, Any]:
    """What its writer says of a letter, as it is kept; what is None is left out."""
    error = letter.error
    values = {
        **{name: getattr(letter, name) for name in ("consumer", "scope", "record", "reason")},
        "type": storable(letter.type),
        "subject": storable(letter.subject),
        **{name: getattr(letter, name) for name in ("content", "readable", "attempts", "keep_us")},
        "error_type": None if error is None else storable(error.type),
        "error_message": None if error is None else storable(error.message),
    }
    return {name: value for name, value in values.items() if value is not None}


def letters_of(item: Item | None) -> list[StoredLetter]:
    """The letters that an item holds."""
    names = [] if item is None else [name for name in item if name.startswith("letter_")]
    return [_letter_of(item or {}, bytes.fromhex(name.removeprefix("letter_"))) for name in names]


def _letter_of(item: Item, id_: bytes) -> StoredLetter:
    told = {name: plain(item[kept]) for name, kept in letter_names(id_).items()}
    said = {"record": None, "subject": None, **told.pop("letter")}
    error_type, error_message = said.pop("error_type", None), said.pop("error_message", None)
    error = None if error_type is None else Failure(error_type, error_message)
    return StoredLetter(**said, **told, id=id_, error=error)


def item_of(record: StoredRecord, version: int, entries: tuple[Entry, ...] = ()) -> Item:
    """The item that keeps a record; what is None is left out."""
    key, error = record.key, record.error
    values: dict[str, Any] = {
        "format": FORMAT,
        "version": version,
        "digest": key.digest,
        "scope": key.scope,
        "operation": key.operation,
        "value": key.value,
        "status": record.status.value,
        "retryable": record.retryable,
        "fingerprint": record.fingerprint,
        "fence": record.fence,
        "nonce": record.nonce,
        "lease_us": record.lease_us,
        "in_doubt_policy": record.in_doubt_policy,
        "reconcile_after_us": record.reconcile_after_us,
        "doubtful": record.doubtful,
        "attempts": record.attempts,
        "outcome": record.outcome,
        "error_type": None if error is None else storable(error.type),
        "error_message": None if error is None else storable(error.message),
        **about_values(record.about),
        **_search_values(record.about),
        "created_us": record.created_us,
        "started_us": record.started_us,
        "updated_us": record.updated_us,
        "completed_us": record.completed_us,
        **expiry_values(record.expires_us, record.keep_us),
        "keep_us": record.keep_us,
        "resolution": storable(record.resolution),
        "replays": record.replays,
        "replayed_us": record.replayed_us,
        "steps": _steps_map(record.steps),
        "history": [entry_value(entry) for entry in entries] or None,
    }
    if record.settled:
        values[TTL] = values["expires_s"]
    return {name: attribute(value) for name, value in values.items() if value is not None}


def search_attribute(kind: str) -> str:
    """The attribute by which an index finds what has a value of this kind; items without one are not in it."""
    return f"{kind}_term"


def _search_values(about: About) -> dict[str, int]:
    return {search_attribute(term.kind): term_number(term) for term in about.terms() if term.kind in SEARCHED}


def seen_of(item: Item) -> Seen:
    """The record that an item keeps.

    Raises:
        RecordUnreadable: a newer release wrote it, or it is none of semel's.
    """
    values: dict[str, Any] = {
        name: int(stored["N"]) if "N" in stored else plain(stored) for name, stored in item.items()
    }
    if values.get("format") != FORMAT:
        raise _unreadable(values.get(KEY), values.get("format"))
    record = record_of(list(map(values.get, RECORD_COLUMNS)), _steps_of(values["steps"]))
    return Seen(record, values["version"], _entries_of(values.get("history", []), record))


def _steps_map(steps: tuple[Step, ...]) -> dict[str, list[Any]]:
    """Steps by their position; a further one at the same position, of a handler that changed, gets a number behind."""
    kept: dict[str, list[Any]] = {}
    for step in steps:
        place, number = str(step.index), 0
        while place in kept:
            number += 1
            place = f"{step.index}.{number}"
        kept[place] = step_value(step)
    return kept


def _steps_of(kept: Mapping[str, list[Any]]) -> tuple[Step, ...]:
    def order(place: str) -> tuple[int, int]:
        index, _, number = place.partition(".")
        return int(index), int(number or 0)

    return tuple(Step(order(place)[0], *kept[place]) for place in sorted(kept, key=order))


def fits(record: StoredRecord, room: int) -> bool:
    """Whether the item of a record takes no more than `room`; mostly that is plain without making the item."""
    return _at_most(record) <= room or size_of(item_of(record, 1)) <= room


def _at_most(record: StoredRecord) -> int:
    """What no item of this record is larger than. A character takes eight bytes at most: in a tag, as an escape."""
    key, error = record.key, record.error
    texts = [key.scope, key.operation, key.value, record.resolution or "", *record.about.texts()]
    texts += [step.name for step in record.steps]
    if error is not None:
        texts += error.type, error.message
    values = [key.digest, record.fingerprint, record.nonce, record.outcome or b""]
    values += [step.outcome for step in record.steps]
    pieces = len(record.steps) + len(record.about.tags)
    return _NAMES_AND_NUMBERS + _OF_A_PIECE * pieces + 8 * sum(map(len, texts)) + sum(map(len, values))


def size_of(item: Item) -> int:
    """How large the service will find an item, from above."""
    return sum(len(name.encode()) + _size(stored) for name, stored in item.items())


def _size(stored: Mapping[str, Any]) -> int:
    ((kind, value),) = stored.items()
    match kind:
        case "L":
            return 3 + sum(1 + _size(one) for one in value)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _size(one) for name, one in value.items())
        case "S":
            return len(value.encode())
        case "BOOL":
            return 1
    return len(value)


def settled_statuses() -> list[str]:
    """The words of records that expire."""
    return [status.value for status in Status if status not in (Status.RUNNING, Status.IN_DOUBT)]


def _unreadable(digest: object, found: object) -> RecordUnreadable:
    reference = digest.hex() if isinstance(digest, bytes) else "?"
    return RecordUnreadable(
        f"The record {reference} has the format {found!r}, and this release reads {FORMAT}; nothing ran. "
        f"Read it with the release that wrote it.",
        reference=reference,
    )


_REST: Final = 2048
"""Room for what an end changes beside the outcome."""
_BRIEF: Final = 80
Kind = TypeVar("Kind", bound=Operation)


def shrink(operation: Kind, record: StoredRecord | None, size: int = LARGEST) -> tuple[Kind, bool]:
    """The operation with values that fit into an item of this size, and whether the finished steps have to go for it.

    Without `record` only what cannot fit into any item is left out. Steps are left out of what is final alone: nobody
    takes it up again.
    """
    match operation:
        case Complete(_, outcome) | Resolve(_, _, _, bytes() as outcome):
            settles = record is not None and bool(record.steps)
            bare = 0 if record is None else size_of(item_of(replace(record, steps=(), outcome=None), 1))
            return replace(operation, outcome=_tombstone_unless_it_fits(outcome, size - bare)), settles
        case Checkpoint(_, step):
            before = () if record is None else record.steps
            for kept in before:
                if (kept.index, kept.name) == (step.index, step.name):
                    return replace(operation, step=kept), False  # the same step again, after its reply was lost
            whole = 0 if record is None else size_of(item_of(record, 1))
            return replace(
                operation, step=replace(step, outcome=_tombstone_unless_it_fits(step.outcome, size - whole))
            ), False
        case Fail(_, _, error) if record is not None:
            return replace(operation, error=replace(error, message=error.message[:_BRIEF])), False
    return operation, False


def _tombstone_unless_it_fits(outcome: bytes, left: int) -> bytes:
    room = left - _REST
    if len(outcome) <= room:
        return outcome
    return pack_tombstone(
        f"the result takes {len(outcome)} bytes, and an item of DynamoDB has room for {max(room, 0)} here"
    )
