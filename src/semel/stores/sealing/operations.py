"""What of each operation is sealed before a store gets it. Every other operation holds nothing to seal.

Keys, fingerprints, what a record is about, notes of decisions, and the envelope of an event (id, source, type, subject)
are left as they are: stores search by them, and operators read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from semel.core.batch.operations import AddItems, CommitPage, ItemEnd, SettleItems
from semel.core.events.letters import Letter, PutLetter
from semel.core.events.outbox import AddEvents, OutboxEvent, ParkedEvent, SaveCursor, SettleReleased
from semel.core.operations import Checkpoint, Complete, CountFailure, Fail, Operation, Resolve
from semel.core.record import Failure
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
    event_subject,
    item_subject,
    seal_failure,
    step_field,
)

L = TypeVar("L", bound=Letter)


def seal_operation(sealer: Sealer, operation: Operation) -> Operation:
    """`operation` with what is in it sealed."""
    seal = _SEALED.get(type(operation))
    sealed: Operation = operation if seal is None else seal(sealer, operation)
    return sealed


def _complete(sealer: Sealer, operation: Complete) -> Complete:
    return replace(
        operation,
        outcome=sealer.seal(operation.lease.key.digest, OUTCOME, operation.outcome),
        events=tuple(seal_event(sealer, event) for event in operation.events),
    )


def _fail(sealer: Sealer, operation: Fail) -> Fail:
    return replace(
        operation,
        error=seal_failure(sealer, operation.lease.key.digest, ERROR, operation.error),
        letter=None if operation.letter is None else seal_letter(sealer, operation.letter),
    )


def _checkpoint(sealer: Sealer, operation: Checkpoint) -> Checkpoint:
    # A step that is sent again is recognised by its bytes.
    step, digest = operation.step, operation.lease.key.digest
    outcome = sealer.seal(digest, step_field(step.index), step.outcome, repeatable=True)
    return replace(operation, step=replace(step, outcome=outcome))


def _resolve(sealer: Sealer, operation: Resolve) -> Resolve:
    digest, outcome, error = operation.digest, operation.outcome, operation.error
    return replace(
        operation,
        outcome=None if outcome is None else sealer.seal(digest, OUTCOME, outcome),
        error=_optional_failure(sealer, digest, ERROR, error),
    )


def _count_failure(sealer: Sealer, operation: CountFailure) -> CountFailure:
    return replace(
        operation,
        error=seal_failure(sealer, operation.key.digest, ERROR, operation.error),
        letter=None if operation.letter is None else seal_letter(sealer, operation.letter),
    )


def _put_letter(sealer: Sealer, operation: PutLetter) -> PutLetter:
    return PutLetter(seal_letter(sealer, operation.letter))


def seal_letter(sealer: Sealer, letter: L) -> L:
    """A letter with content and error sealed."""
    return replace(
        letter,
        content=sealer.seal(letter.id, LETTER_CONTENT, letter.content),
        error=_optional_failure(sealer, letter.id, LETTER_ERROR, letter.error),
    )


def subject_of(event: OutboxEvent) -> bytes:
    """What names an event."""
    return event_subject(event.stream, event.id, event.source, event.type, event.scope)


def seal_event(sealer: Sealer, event: OutboxEvent) -> OutboxEvent:
    """An event with data, extensions and schema sealed."""
    subject = subject_of(event)
    return replace(
        event,
        data=None if event.data is None else sealer.seal(subject, EVENT_DATA, event.data),
        attributes=sealer.seal(subject, EVENT_ATTRIBUTES, event.attributes),
    )


def _parked(sealer: Sealer, parked: ParkedEvent) -> ParkedEvent:
    event = parked.stored.event
    return replace(
        parked,
        stored=replace(parked.stored, event=seal_event(sealer, event)),
        error=_optional_failure(sealer, subject_of(event), PARKED_ERROR, parked.error),
    )


def _add_events(sealer: Sealer, operation: AddEvents) -> AddEvents:
    return AddEvents(tuple(seal_event(sealer, event) for event in operation.events))


def _save_cursor(sealer: Sealer, operation: SaveCursor) -> SaveCursor:
    return replace(operation, parked=tuple(_parked(sealer, parked) for parked in operation.parked))


def _settle_released(sealer: Sealer, operation: SettleReleased) -> SettleReleased:
    return replace(operation, failed=tuple(_parked(sealer, parked) for parked in operation.failed))


def _add_items(sealer: Sealer, operation: AddItems) -> AddItems:
    number = operation.number
    items = (
        replace(item, data=sealer.seal(item_subject(number, item.position), ITEM_DATA, item.data))
        for item in operation.items
    )
    return replace(operation, items=tuple(items))


def _settle_items(sealer: Sealer, operation: SettleItems) -> SettleItems:
    return replace(operation, ends=_ends(sealer, operation.number, operation.ends))


def _commit_page(sealer: Sealer, operation: CommitPage) -> CommitPage:
    return replace(
        operation,
        outcome=sealer.seal(operation.lease.key.digest, OUTCOME, operation.outcome),
        ends=_ends(sealer, operation.number, operation.ends),
    )


def _ends(sealer: Sealer, number: int, ends: tuple[ItemEnd, ...]) -> tuple[ItemEnd, ...]:
    return tuple(
        replace(
            end,
            write=None if end.write is None else seal_operation(sealer, end.write),
            outcome=None
            if end.outcome is None
            else sealer.seal(item_subject(number, end.position), ITEM_OUTCOME, end.outcome),
        )
        for end in ends
    )


def _optional_failure(sealer: Sealer, subject: bytes, field: bytes, failure: Failure | None) -> Failure | None:
    return None if failure is None else seal_failure(sealer, subject, field, failure)


_SEALED: Final[dict[type, Callable[[Sealer, Any], Any]]] = {
    Complete: _complete,
    Fail: _fail,
    Checkpoint: _checkpoint,
    Resolve: _resolve,
    CountFailure: _count_failure,
    PutLetter: _put_letter,
    AddEvents: _add_events,
    SaveCursor: _save_cursor,
    SettleReleased: _settle_released,
    AddItems: _add_items,
    SettleItems: _settle_items,
    CommitPage: _commit_page,
}
