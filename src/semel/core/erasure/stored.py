"""What a store keeps about a person: dead letters, items of batches, records, events; and copies of records in caches.

- Letters and items first, records last: a letter and an item lead to their record, and while they say whom they are
  about, both can be found again after a crash.
- A record goes by `Erase` alone, which changes a settled one in place: its key stays shut, so nothing that happened
  happens again. Its finished steps, the texts of its history and its letters go in the same step.
- Events that are not published yet are refused: they are published if, and only if, their transaction committed.
"""

from __future__ import annotations

from typing import Final

from semel.core.batch.operations import EraseItems, FindSubject, ReadRecords
from semel.core.batch.values import ItemPlace, ItemStatus, item_key
from semel.core.erasure.port import RECORDS, Erasable, ErasureTally, SubjectErasure
from semel.core.events.letters import REUSED, DropLetter, LetterQuery, ScanLetters, StoredLetter, operation_of
from semel.core.events.outbox import EraseEvents
from semel.core.flow import Flow, ask
from semel.core.operations import Erase, Erased, Pending, Query, Read, Scan
from semel.core.record import Status, StoredRecord
from semel.core.store import Capability, Store

LETTERS: Final = "letters"
ITEMS: Final = "items"
EVENTS: Final = "events"
COPIES: Final = "copies"
_PAGE: Final = 200
_EVENTS: Final = 1000
"""So many events are looked at together: there is no index on what they are about."""
_NOTES: Final = 10_000
_SHOWN: Final = 16
_RUNNING: Final = "still running, and what it holds is needed to end it: wait for its end, then erase again"
_IN_DOUBT: Final = "in doubt, and what it holds is needed to end the doubt: semel resolve, then erase again"
_TO_RUN: Final = "not run yet: let the batch come to its end, or cancel it, then erase again"
_ITEM_IN_DOUBT: Final = "in doubt: retry it with a reason, or resolve its record and run the batch, then erase again"
_WAITING: Final = (
    "not published yet, and others have to hear of it: let the relay catch up (semel events lag), then erase again; "
    "semel events erase deletes it unpublished"
)
_PARKED: Final = (
    "parked, because it could not be published: semel events release publishes it, semel events drop deletes it; then "
    "erase again"
)
_COPIED: Final = (
    "copies in caches that are not confirmed to be gone: processes forget theirs by themselves, and semel sweep "
    "confirms it"
)


def erasables_of(store: Store) -> list[Erasable]:
    """What this store keeps about people, in the order in which it has to be erased."""
    capabilities = store.capabilities
    found: list[Erasable] = []
    if Capability.LETTERS in capabilities:
        found.append(ErasableLetters())
    if Capability.BATCH in capabilities:
        found.append(ErasableItems())
    found.append(ErasableRecords(has_copies=Capability.LANE_WRAPPER in capabilities))
    if Capability.OUTBOX in capabilities:
        found.append(ErasableEvents())
    return found


def query_about(asked: SubjectErasure) -> Query:
    """Which records are about a subject."""
    return Query(subject=asked.subject, scope=asked.scope, scan=asked.scan)


def _why(record: StoredRecord) -> str:
    return _IN_DOUBT if record.status is Status.IN_DOUBT else _RUNNING


class ErasableRecords:
    """Records, with their finished steps and the texts of their history.

    Args:
        has_copies: whether caches in front of the store may hold copies, which the store notes until they are gone.
    """

    def __init__(self, *, has_copies: bool = False) -> None:
        self._has_copies = has_copies

    def erase_subject(self, asked: SubjectErasure, tally: ErasureTally) -> Flow[None]:
        """Erase those that are settled."""
        cursor: tuple[int, bytes] | None = None
        while True:
            page = yield from ask(Scan(query_about(asked), cursor, _PAGE))
            for record in page.records:
                yield from self._erase(asked, record, tally)
            cursor = page.cursor
            if cursor is None:
                break
        if self._has_copies and tally.records and not asked.dry_run:
            noted = yield from ask(Pending(_NOTES))
            held = [one.digest.hex()[:_SHOWN] for one in noted.invalidations if one.digest in tally.records]
            tally.add_refused(COPIES, _COPIED, *held)

    def _erase(self, asked: SubjectErasure, record: StoredRecord, tally: ErasureTally) -> Flow[None]:
        found: StoredRecord | None = record
        is_erased = record.settled
        if not asked.dry_run:
            answer = yield from ask(Erase(record.key.digest, asked.note, record.key.operation))
            found, is_erased = answer.record, isinstance(answer, Erased)
        if is_erased:
            tally.add_record(record.key.digest)
        elif found is not None:
            tally.add_refused(RECORDS, _why(found), found.reference[:_SHOWN])


class ErasableLetters:
    """Dead letters of all consumers, with the records of their events."""

    def erase_subject(self, asked: SubjectErasure, tally: ErasureTally) -> Flow[None]:
        """Erase those of records that are settled, and those without a record."""
        query = LetterQuery(consumer=None, subject=asked.subject, scope=asked.scope)
        cursor: tuple[int, bytes] | None = None
        while True:
            page = yield from ask(ScanLetters(query, cursor, _PAGE))
            for letter in page.letters:
                yield from self._erase(asked, letter, tally)
            cursor = page.cursor
            if cursor is None:
                return

    def _erase(self, asked: SubjectErasure, letter: StoredLetter, tally: ErasureTally) -> Flow[None]:
        digest = letter.record
        if digest is not None and letter.reason != REUSED:
            # Its own event's record, which holds of the subject what the letter does. Erasing it takes the letter with
            # it, and is refused where the event may still run from that letter.
            found, is_erased = yield from self._erase_record(asked, letter, digest)
            if found is not None and not is_erased:
                tally.add_refused(LETTERS, _why(found), letter.id.hex()[:_SHOWN])
                return
            if is_erased:
                tally.add_record(digest)
                tally.add_erased(LETTERS)
                return
        if asked.dry_run or (yield from ask(DropLetter(letter.consumer, letter.id, digest))).letter is not None:
            tally.add_erased(LETTERS)

    def _erase_record(
        self, asked: SubjectErasure, letter: StoredLetter, digest: bytes
    ) -> Flow[tuple[StoredRecord | None, bool]]:
        """The record of a letter, if there is one, and whether it is erased, or would be."""
        operation = operation_of(letter.consumer)
        if asked.dry_run:
            record = (yield from ask(Read(digest, operation=operation))).record
            return record, record is not None and record.settled
        answer = yield from ask(Erase(digest, asked.note, operation))
        return answer.record, isinstance(answer, Erased)


class ErasableItems:
    """Items of batches, with their records."""

    def erase_subject(self, asked: SubjectErasure, tally: ErasureTally) -> Flow[None]:
        """Erase those that are done, and those that no run reaches any more."""
        after = (0, -1)
        while True:
            places = (yield from ask(FindSubject(asked.scope, asked.subject, after, _PAGE))).places
            for place in places:
                yield from self._erase(asked, place, tally)
            if len(places) < _PAGE:
                return
            after = (places[-1].number, places[-1].position)

    def _erase(self, asked: SubjectErasure, place: ItemPlace, tally: ErasureTally) -> Flow[None]:
        """The record first: while its item says whom it is about, both can be found again."""
        name = f"{place.batch}:{place.position}"
        if place.may_run or place.status == ItemStatus.IN_DOUBT:
            tally.add_refused(ITEMS, _TO_RUN if place.may_run else _ITEM_IN_DOUBT, name)
            return
        key = item_key(place.scope, place.operation, place.batch, place.id)
        if asked.dry_run:
            (record,) = (yield from ask(ReadRecords((key.digest,)))).records
            is_erased = record is not None and record.settled
        else:
            answer = yield from ask(Erase(key.digest, asked.note, key.operation))
            record, is_erased = answer.record, isinstance(answer, Erased)
        if record is not None and not is_erased:
            tally.add_refused(ITEMS, _why(record), name)
            return
        if is_erased:
            tally.add_record(key.digest)
        if asked.dry_run:
            tally.add_erased(ITEMS)
            return
        tally.add_erased(ITEMS, (yield from ask(EraseItems(place.number, (place.position,)))).count)


class ErasableEvents:
    """Events of the outbox, of all streams."""

    def erase_subject(self, asked: SubjectErasure, tally: ErasureTally) -> Flow[None]:
        """Delete those that are published."""
        after: int | None = 0
        while after is not None:
            answer = yield from ask(
                EraseEvents(
                    scope=asked.scope,
                    subject=asked.subject,
                    after=after,
                    limit=_EVENTS,
                    published_only=True,
                    dry_run=asked.dry_run,
                )
            )
            tally.add_erased(EVENTS, answer.count)
            tally.add_refused(EVENTS, _WAITING, number=answer.waiting)
            tally.add_refused(EVENTS, _PARKED, number=answer.parked)
            after = answer.after
