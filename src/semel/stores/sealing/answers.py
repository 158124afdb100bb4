"""What of each answer is opened after a store gave it.

- What is not sealed was written before sealing was switched on, or by the store itself, and is given as it is.
- A claim that would replay what cannot be opened, and a reading of events that are to be published or of items that are
  to be worked on, are answered by `RecordUnreadable`. In every other answer a field that cannot be opened says why, so
  that people can list, look at and decide about such records, and a record of which the rest can be read does not hide
  its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from semel.core.batch.operations import FindItems, ItemsClaimed, ItemsFound, ReadItems, RecordsFound
from semel.core.batch.values import StoredItem
from semel.core.events.letters import LetterFound, LetterPage, StoredLetter
from semel.core.events.outbox import (
    NO_ATTRIBUTES,
    EventBatch,
    EventsPeeked,
    OutboxEvent,
    ParkedEvent,
    ParkedPage,
    ReleasedEvents,
    StoredEvent,
)
from semel.core.operations import (
    Answer,
    Counted,
    Erased,
    Found,
    Granted,
    HistoryFound,
    InDoubtAnswer,
    Operation,
    Page,
    Reopened,
    Replay,
    Resolved,
    Reused,
    StateMismatch,
)
from semel.core.record import UNREADABLE, Failure, Status, Step, StoredRecord, is_tombstone
from semel.core.sealing.values import (
    ERROR,
    EVENT_ATTRIBUTES,
    EVENT_DATA,
    ITEM_DATA,
    ITEM_OUTCOME,
    LETTER_CONTENT,
    LETTER_ERROR,
    OUTCOME,
    PARKED_ERROR,
    Sealer,
    is_sealed,
    item_subject,
    open_failure,
    sealed_text,
    step_field,
    unreadable_outcome,
    unsealed_error,
)
from semel.errors import RecordUnreadable
from semel.stores.sealing.operations import subject_of

WithRecord = Granted | Reused | InDoubtAnswer | Found | Resolved | Reopened | Counted | StateMismatch | Erased
A = TypeVar("A", bound=WithRecord)
NO_DATA: Final = b"null"
"""The data of an item of which only its end was asked for."""
UNREADABLE_CONTENT: Final = b""
"""What stands for the content of a letter that cannot be opened; its `readable` is false, and its error says why."""


def open_answer(sealer: Sealer, operation: Operation, answer: Answer | Exception) -> Answer | Exception:
    """`answer` with what is in it opened."""
    opened = _OPENED.get(type(answer))
    if opened is None:
        return answer
    try:
        found: Answer = opened(sealer, operation, answer)
    except RecordUnreadable as error:
        return error
    return found


def open_bytes(sealer: Sealer, subject: bytes, field: bytes, stored: bytes) -> bytes:
    """What was sealed there, or what was stored without a seal.

    Raises:
        RecordUnreadable: it cannot be opened.
    """
    if is_sealed(stored):
        return sealer.open(subject, field, stored)
    if sealer.accepts_plain or is_tombstone(stored):
        return stored
    raise unsealed_error()


def _outcome(sealer: Sealer, subject: bytes, field: bytes, stored: bytes) -> bytes:
    """The same for an outcome; where it cannot be opened, one that says why when it is decoded."""
    try:
        return open_bytes(sealer, subject, field, stored)
    except RecordUnreadable as error:
        return unreadable_outcome(error)


def _failure(sealer: Sealer, subject: bytes, field: bytes, failure: Failure | None) -> Failure | None:
    return None if failure is None else open_failure(sealer, subject, field, failure)


def open_record(sealer: Sealer, record: StoredRecord) -> StoredRecord:
    """A record with outcome, error and finished steps opened."""
    outcome, error, steps = record.outcome, record.error, record.steps
    if outcome is None and error is None and not steps:
        return record
    digest = record.key.digest
    return replace(
        record,
        outcome=None if outcome is None else _outcome(sealer, digest, OUTCOME, outcome),
        error=_failure(sealer, digest, ERROR, error),
        steps=tuple(_step(sealer, digest, step) for step in steps),
    )


def find_unreadable(sealer: Sealer, record: StoredRecord) -> RecordUnreadable | None:
    """Why something that a record keeps cannot be opened; None: all of it can."""
    digest = record.key.digest
    kept = [(step_field(step.index), step.outcome) for step in record.steps]
    if record.outcome is not None:
        kept.append((OUTCOME, record.outcome))
    if record.error is not None and (sealed := sealed_text(record.error)) is not None:
        kept.append((ERROR, sealed))
    try:
        for field, stored in kept:
            open_bytes(sealer, digest, field, stored)
    except RecordUnreadable as error:
        return error
    return None


def _step(sealer: Sealer, digest: bytes, step: Step) -> Step:
    return replace(step, outcome=_outcome(sealer, digest, step_field(step.index), step.outcome))


def _with_record(sealer: Sealer, operation: Operation, answer: A) -> A:
    del operation
    record = answer.record
    return answer if record is None else replace(answer, record=open_record(sealer, record))


def _replay(sealer: Sealer, operation: Operation, answer: Replay) -> Replay:
    """The one answer that a cache keeps, and a caller takes for what came of it: nothing unreadable is in it.

    Raises:
        RecordUnreadable: outcome or error cannot be opened.
    """
    del operation
    record = answer.record
    digest, stored = record.key.digest, record.outcome
    if record.status is Status.COMPLETED and stored is not None:
        return replace(answer, record=replace(record, outcome=open_bytes(sealer, digest, OUTCOME, stored)))
    opened = open_record(sealer, record)
    if opened.error is not None and opened.error.type == UNREADABLE:
        raise RecordUnreadable(opened.error.message, reference=record.reference)
    return replace(answer, record=opened)


def _history(sealer: Sealer, operation: Operation, answer: HistoryFound) -> HistoryFound:
    del operation
    if answer.record is None:
        return answer
    digest = answer.record.key.digest
    entries = (replace(entry, error=_failure(sealer, digest, ERROR, entry.error)) for entry in answer.entries)
    return replace(answer, record=open_record(sealer, answer.record), entries=tuple(entries))


def _page(sealer: Sealer, operation: Operation, answer: Page) -> Page:
    del operation
    return replace(answer, records=tuple(open_record(sealer, record) for record in answer.records))


def _records(sealer: Sealer, operation: Operation, answer: RecordsFound) -> RecordsFound:
    del operation
    return RecordsFound(tuple(None if record is None else open_record(sealer, record) for record in answer.records))


def _claimed(sealer: Sealer, operation: Operation, answer: ItemsClaimed) -> ItemsClaimed:
    return ItemsClaimed(tuple(open_answer(sealer, operation, one) for one in answer.answers))


def open_letter(sealer: Sealer, letter: StoredLetter) -> StoredLetter:
    """A letter with content and error opened."""
    error = _failure(sealer, letter.id, LETTER_ERROR, letter.error)
    try:
        content = open_bytes(sealer, letter.id, LETTER_CONTENT, letter.content)
    except RecordUnreadable as problem:
        why = Failure(UNREADABLE, str(problem))
        return replace(letter, content=UNREADABLE_CONTENT, readable=False, error=why)
    return replace(letter, content=content, error=error)


def _letter(sealer: Sealer, operation: Operation, answer: LetterFound) -> LetterFound:
    del operation
    return answer if answer.letter is None else LetterFound(open_letter(sealer, answer.letter))


def _letters(sealer: Sealer, operation: Operation, answer: LetterPage) -> LetterPage:
    del operation
    return replace(answer, letters=tuple(open_letter(sealer, letter) for letter in answer.letters))


def open_event(sealer: Sealer, event: OutboxEvent) -> OutboxEvent:
    """An event with data, extensions and schema opened.

    Raises:
        RecordUnreadable: they cannot be.
    """
    subject = subject_of(event)
    return replace(
        event,
        data=None if event.data is None else open_bytes(sealer, subject, EVENT_DATA, event.data),
        attributes=open_bytes(sealer, subject, EVENT_ATTRIBUTES, event.attributes),
    )


def _stored_event(sealer: Sealer, stored: StoredEvent) -> StoredEvent:
    return StoredEvent(stored.position, open_event(sealer, stored.event))


def _listed_event(sealer: Sealer, stored: StoredEvent) -> StoredEvent:
    """An event that is only shown: without its data where that cannot be opened."""
    try:
        return _stored_event(sealer, stored)
    except RecordUnreadable:
        return StoredEvent(stored.position, replace(stored.event, data=None, attributes=NO_ATTRIBUTES))


def _parked(sealer: Sealer, parked: ParkedEvent) -> ParkedEvent:
    error = _failure(sealer, subject_of(parked.stored.event), PARKED_ERROR, parked.error)
    return replace(parked, stored=_stored_event(sealer, parked.stored), error=error)


def _listed_parked(sealer: Sealer, parked: ParkedEvent) -> ParkedEvent:
    """An event that is only shown: where it cannot be opened, and failed, its error says why."""
    try:
        return _parked(sealer, parked)
    except RecordUnreadable as problem:
        why = None if parked.error is None else Failure(UNREADABLE, str(problem))
        return replace(parked, stored=_listed_event(sealer, parked.stored), error=why)


def _batch(sealer: Sealer, operation: Operation, answer: EventBatch) -> EventBatch:
    del operation
    return replace(answer, events=tuple(_stored_event(sealer, stored) for stored in answer.events))


def _released(sealer: Sealer, operation: Operation, answer: ReleasedEvents) -> ReleasedEvents:
    del operation
    return ReleasedEvents(tuple(_parked(sealer, parked) for parked in answer.events))


def _parked_page(sealer: Sealer, operation: Operation, answer: ParkedPage) -> ParkedPage:
    del operation
    return replace(answer, events=tuple(_listed_parked(sealer, parked) for parked in answer.events))


def _peeked(sealer: Sealer, operation: Operation, answer: EventsPeeked) -> EventsPeeked:
    del operation
    return EventsPeeked(tuple(_listed_event(sealer, stored) for stored in answer.events))


def _items(sealer: Sealer, operation: ReadItems | FindItems, answer: ItemsFound) -> ItemsFound:
    only_ends = isinstance(operation, ReadItems) and operation.only_ends
    return ItemsFound(tuple(_item(sealer, operation.number, item, only_ends=only_ends) for item in answer.items))


def _item(sealer: Sealer, number: int, item: StoredItem, *, only_ends: bool) -> StoredItem:
    """An item; its data has to be there to be worked on.

    Raises:
        RecordUnreadable: its data cannot be opened, and somebody needs it.
    """
    if item.is_erased:
        return item
    subject = item_subject(number, item.position)
    outcome = None if item.outcome is None else _outcome(sealer, subject, ITEM_OUTCOME, item.outcome)
    data = NO_DATA if only_ends else open_bytes(sealer, subject, ITEM_DATA, item.data)
    return replace(item, data=data, outcome=outcome)


_OPENED: Final[dict[type, Callable[[Sealer, Any, Any], Any]]] = {
    **dict.fromkeys(
        (Granted, Reused, InDoubtAnswer, Found, Resolved, Reopened, Counted, StateMismatch, Erased), _with_record
    ),
    Replay: _replay,
    HistoryFound: _history,
    Page: _page,
    RecordsFound: _records,
    ItemsClaimed: _claimed,
    LetterFound: _letter,
    LetterPage: _letters,
    EventBatch: _batch,
    ReleasedEvents: _released,
    ParkedPage: _parked_page,
    EventsPeeked: _peeked,
    ItemsFound: _items,
}
