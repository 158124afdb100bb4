"""The dead letters of one consumer: listed, handed to it again, discarded.

- What is handed over is the stored event, never through the broker. Its letter goes with the write that completes its
  record.
- A letter about a doubt that has ended is not shown, and deleted when it is met.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from semel.core.events.letters import DropLetter, LetterQuery, ScanLetters, StoredLetter
from semel.core.operations import Read, Reopen
from semel.core.record import Note, Status
from semel.engine.async_engine import AsyncEngine
from semel.engine.clock import async_pause, sync_pause
from semel.engine.sync_engine import SyncEngine
from semel.errors import RecordNotFound, RecordUnreadable
from semel.events.dead_letters import (
    DeadLetter,
    LetterName,
    RedriveReport,
    check_readable,
    parse_letter_id,
    show_letter,
    unpack,
)
from semel.events.deliveries import AsyncDeliveries, SyncDeliveries, ask_once
from semel.events.delivery import Settings
from semel.events.disposition import Disposition
from semel.events.event import Event

_PAGE: Final = 100
_UNREADABLE: Final = "unreadable"
_log: Final = logging.getLogger("semel")


class AsyncLetterbox:
    """Keeps what one consumer could not process."""

    def __init__(self, engine: AsyncEngine, settings: Settings, deliveries: AsyncDeliveries) -> None:
        self._engine = engine
        self._settings = settings
        self._deliveries = deliveries

    async def dead_letters(self, query: LetterQuery) -> AsyncIterator[DeadLetter]:
        """Dead letters, oldest first, fetched page by page."""
        cursor = None
        while True:
            page = await self._ask(ScanLetters(query, cursor, _PAGE))
            for stored in page.letters:
                if not await self._close_if_settled(stored):
                    yield show_letter(stored)
            cursor = page.cursor
            if cursor is None:
                return

    async def _close_if_settled(self, letter: StoredLetter) -> bool:
        """Delete a letter about a doubt that has ended: a worker that was slow may complete after it was written."""
        if letter.reason != "in_doubt" or letter.record is None:
            return False
        try:
            found = await self._ask(Read(letter.record, operation=self._settings.operation))
        except RecordUnreadable:
            return False
        record = found.record
        if record is None or record.status not in (Status.COMPLETED, Status.CANCELLED):
            return False
        await self._ask(DropLetter(self._settings.name, letter.id, letter.record))
        return True

    async def redrive(self, name: LetterName) -> Disposition:
        """Hand the stored event of a letter to this consumer again; the letter goes when it is processed.

        Raises:
            RecordNotFound: there is no such letter.
            RecordUnreadable: it is sealed with a key that is not at hand; it was not touched.
        """
        query = LetterQuery(consumer=self._settings.name, id=name.id, record=name.record)
        page = await self._ask(ScanLetters(query, None, 1))
        if not page.letters:
            raise RecordNotFound(f"There is no dead letter {name.id.hex()[:16]} of {self._settings.name}; nothing ran.")
        (letter,) = page.letters
        check_readable(letter)
        if not letter.readable:
            disposition = await self._deliveries.receive(*unpack(letter.content))
        else:
            await self._reopen(letter)
            disposition = await self._deliveries.handle(Event.from_json(letter.content))
        if disposition.action == "ack":
            # Of an event that was processed before, or elsewhere.
            await self._ask(DropLetter(self._settings.name, letter.id, letter.record))
        return disposition

    async def redrive_all(self, query: LetterQuery, rate: float | None) -> RedriveReport:
        """Hand the stored events of many letters to this consumer again, at most `rate` in a second."""
        report = RedriveReport()
        began, clock = self._engine.clock.monotonic(), self._engine.clock
        # All that there are now: one that comes back as a letter is not handed over a second time.
        ids = [letter.id async for letter in self.dead_letters(query)]
        for number, id_ in enumerate(ids):
            if rate is not None:
                due = began + number / rate
                if clock.monotonic() < due:
                    await async_pause(clock, due - clock.monotonic())
            try:
                disposition = await self.redrive(parse_letter_id(id_))
            except RecordNotFound:
                continue  # somebody else was quicker
            except RecordUnreadable:
                report.statuses[_UNREADABLE] += 1
                continue
            report.statuses[disposition.status] += 1
        return report

    async def discard(self, name: LetterName, reason: str) -> DeadLetter:
        """Delete a letter, and say why in the log; its record stays: delivered again, the event is not processed.

        Raises:
            RecordNotFound: there is no such letter.
        """
        dropped = await self._ask(DropLetter(self._settings.name, name.id, name.record))
        if dropped.letter is None:
            raise RecordNotFound(
                f"There is no dead letter {name.id.hex()[:16]} of {self._settings.name}; nothing was changed."
            )
        _log.info("dead letter %s of %s was discarded: %s", name.id.hex()[:16], self._settings.name, reason)
        return show_letter(dropped.letter)

    async def _reopen(self, letter: StoredLetter) -> None:
        """Let the record of a letter be claimed again, if it was shut by its failure."""
        if letter.record is None or letter.reason == "reused":
            return
        found = await self._ask(Read(letter.record, operation=self._settings.operation))
        record = found.record
        if record is None or not record.final or record.status is not Status.FAILED:
            return
        note = Note("reopened", f"redrive of dead letter {letter.id.hex()[:16]}").text()
        await self._ask(Reopen(letter.record, self._engine.new_nonce(), record.nonce, note, self._settings.operation))

    async def _ask(self, operation: Any) -> Any:
        return await self._engine.perform_on(None, ask_once(operation))


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncLetterbox:
    """Keeps what one consumer could not process."""

    def __init__(self, engine: SyncEngine, settings: Settings, deliveries: SyncDeliveries) -> None:
        self._engine = engine
        self._settings = settings
        self._deliveries = deliveries

    def dead_letters(self, query: LetterQuery) -> Iterator[DeadLetter]:
        """Dead letters, oldest first, fetched page by page."""
        cursor = None
        while True:
            page = self._ask(ScanLetters(query, cursor, _PAGE))
            for stored in page.letters:
                if not self._close_if_settled(stored):
                    yield show_letter(stored)
            cursor = page.cursor
            if cursor is None:
                return

    def _close_if_settled(self, letter: StoredLetter) -> bool:
        """Delete a letter about a doubt that has ended: a worker that was slow may complete after it was written."""
        if letter.reason != "in_doubt" or letter.record is None:
            return False
        try:
            found = self._ask(Read(letter.record, operation=self._settings.operation))
        except RecordUnreadable:
            return False
        record = found.record
        if record is None or record.status not in (Status.COMPLETED, Status.CANCELLED):
            return False
        self._ask(DropLetter(self._settings.name, letter.id, letter.record))
        return True

    def redrive(self, name: LetterName) -> Disposition:
        """Hand the stored event of a letter to this consumer again; the letter goes when it is processed.

        Raises:
            RecordNotFound: there is no such letter.
            RecordUnreadable: it is sealed with a key that is not at hand; it was not touched.
        """
        query = LetterQuery(consumer=self._settings.name, id=name.id, record=name.record)
        page = self._ask(ScanLetters(query, None, 1))
        if not page.letters:
            raise RecordNotFound(f"There is no dead letter {name.id.hex()[:16]} of {self._settings.name}; nothing ran.")
        (letter,) = page.letters
        check_readable(letter)
        if not letter.readable:
            disposition = self._deliveries.receive(*unpack(letter.content))
        else:
            self._reopen(letter)
            disposition = self._deliveries.handle(Event.from_json(letter.content))
        if disposition.action == "ack":
            # Of an event that was processed before, or elsewhere.
            self._ask(DropLetter(self._settings.name, letter.id, letter.record))
        return disposition

    def redrive_all(self, query: LetterQuery, rate: float | None) -> RedriveReport:
        """Hand the stored events of many letters to this consumer again, at most `rate` in a second."""
        report = RedriveReport()
        began, clock = self._engine.clock.monotonic(), self._engine.clock
        # All that there are now: one that comes back as a letter is not handed over a second time.
        ids = [letter.id for letter in self.dead_letters(query)]
        for number, id_ in enumerate(ids):
            if rate is not None:
                due = began + number / rate
                if clock.monotonic() < due:
                    sync_pause(clock, due - clock.monotonic())
            try:
                disposition = self.redrive(parse_letter_id(id_))
            except RecordNotFound:
                continue  # somebody else was quicker
            except RecordUnreadable:
                report.statuses[_UNREADABLE] += 1
                continue
            report.statuses[disposition.status] += 1
        return report

    def discard(self, name: LetterName, reason: str) -> DeadLetter:
        """Delete a letter, and say why in the log; its record stays: delivered again, the event is not processed.

        Raises:
            RecordNotFound: there is no such letter.
        """
        dropped = self._ask(DropLetter(self._settings.name, name.id, name.record))
        if dropped.letter is None:
            raise RecordNotFound(
                f"There is no dead letter {name.id.hex()[:16]} of {self._settings.name}; nothing was changed."
            )
        _log.info("dead letter %s of %s was discarded: %s", name.id.hex()[:16], self._settings.name, reason)
        return show_letter(dropped.letter)

    def _reopen(self, letter: StoredLetter) -> None:
        """Let the record of a letter be claimed again, if it was shut by its failure."""
        if letter.record is None or letter.reason == "reused":
            return
        found = self._ask(Read(letter.record, operation=self._settings.operation))
        record = found.record
        if record is None or not record.final or record.status is not Status.FAILED:
            return
        note = Note("reopened", f"redrive of dead letter {letter.id.hex()[:16]}").text()
        self._ask(Reopen(letter.record, self._engine.new_nonce(), record.nonce, note, self._settings.operation))

    def _ask(self, operation: Any) -> Any:
        return self._engine.perform_on(None, ask_once(operation))
