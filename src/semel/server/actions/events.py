"""What an operator does about events: dead letters of consumers, and parked events of the outbox.

- A letter is redriven by its own consumer, whose handlers are Python code: without that consumer it is refused.
- Letters and parked events carry the scope of their event, and exist only for users who reach it.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from semel.api import AsyncSemel, Semel
from semel.core.events.letters import DropLetter, LetterQuery, ScanLetters, StoredLetter, operation_of
from semel.core.events.outbox import LagMeasured, MeasureLag, ParkedEvent, ReleaseParked, ScanParked, StreamLag
from semel.core.flow import Flow, ask
from semel.core.operations import Read
from semel.core.record import Status, instant
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.errors import RecordUnreadable
from semel.events import Consumer, Disposition
from semel.events.dead_letters import LetterName, parse_letter_id, why_unreadable
from semel.server.access import Permission, User
from semel.server.actions.checks import ActionsBase, not_found_error
from semel.server.audit import Audit
from semel.server.audit.recording import name_redrive
from semel.server.audit.targets import letter_target, parked_target
from semel.server.engines import call_either
from semel.server.refusals import Invalid, NotPossible, Unavailable

T = TypeVar("T")
PAGE: Final = 50
MOST: Final = 200
_LOOKED_AT: Final = 1000
"""How many rows are read for one page where a user sees only some of them."""
COUNTED: Final = 100_000
_DIGITS: Final = 18
"""How many digits a place in time has at most, in microseconds; more would not fit what stores count with."""


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Some dead letters, oldest first, and where the next page begins; no cursor: this was the last."""

    letters: tuple[StoredLetter, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class ParkedPage:
    """Some parked events by position, and after which to go on; None: this was the last page."""

    events: tuple[ParkedEvent, ...]
    after: int | None


class EventActions(ActionsBase):
    """Dead letters: list, show, redrive, discard. Parked events: list, release, drop.

    Args:
        consumers: the consumers whose handlers are known here; only their letters can be redriven.
    """

    def __init__(
        self, semel: Semel | AsyncSemel, audit: Audit | None, *, consumers: Iterable[Consumer[Any]] = ()
    ) -> None:
        super().__init__(semel, audit)
        self.consumers = {consumer.name: consumer for consumer in consumers}

    async def letters(
        self,
        user: User,
        consumer: str,
        *,
        reason: str | None = None,
        type: str | None = None,  # noqa: A002 - as on an event
        subject: str | None = None,
        scope: str | None = None,
        before: datetime | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> LetterPage:
        """Dead letters of a consumer that exist for a user, oldest first; with `before`, those that were dead then.

        Raises:
            Refused: the user may not, or the store keeps none.
        """
        self.demand(user, Permission.LIST)
        self._demand_store(Capability.LETTERS, "dead letters")
        most, place = max(1, min(limit, MOST)), _read_place(cursor)
        before_us = None if before is None else _to_micros(before)
        found: list[StoredLetter] = []
        for one in self.scopes_asked(user, scope):
            query = LetterQuery(
                consumer=consumer, reason=reason, type=type, subject=subject, scope=one, before_us=before_us
            )
            page = await self.perform(_ask(ScanLetters(query, place, most + 1)))
            found += page.letters
        found.sort(key=lambda letter: (letter.first_us, letter.id))
        shown = found[:most]
        return LetterPage(tuple(shown), _write_place(shown[-1]) if len(found) > most else None)

    async def letter(self, user: User, consumer: str, letter: str) -> StoredLetter:
        """One dead letter, named by its id.

        Raises:
            NotFound: there is none that exists for the user.
        """
        self.demand(user, Permission.SHOW)
        return await self._find_letter(user, consumer, letter)

    async def letter_body(self, user: User, consumer: str, letter: str) -> StoredLetter:
        """The same to look at its content, which is written into the audit chain.

        Raises:
            NotPossible: it is sealed with a key that is not at hand.
        """
        self.demand(user, Permission.BODY)
        found = await self._find_letter(user, consumer, letter)
        why = why_unreadable(found)
        if why is not None:
            raise NotPossible(why.message, because=RecordUnreadable.code)
        await self.note_look(user, Permission.BODY, scope=found.scope, target=letter_target(found))
        return found

    async def redrive(self, user: User, consumer: str, letter: str, *, reason: str) -> Disposition:
        """Hand the event of a letter to its consumer again; never through the broker.

        Raises:
            NotPossible: the handlers of that consumer are not known here.
        """
        self.demand(user, Permission.REDRIVE)
        found = await self._find_letter(user, consumer, letter)

        async def hand_over() -> Disposition:
            known = self.consumer(consumer)
            disposition: Disposition = await call_either(known.redrive, letter_id(found), is_async=known.is_async)
            return disposition

        def name(disposition: Disposition) -> str:
            return name_redrive(disposition.status)

        return await self._change_letter(user, Permission.REDRIVE, found, hand_over, reason=reason, name=name)

    async def why_in_vain(self, letter: StoredLetter) -> str:
        """Why a letter would be redriven in vain; empty: it may be worth it.

        Only a person may end a doubt under `hold`. Once they said that it did not happen, its letter is for redriving.
        """
        if letter.reason != "in_doubt" or letter.record is None:
            return ""
        record = (await self.perform(_ask(Read(letter.record, operation=operation_of(letter.consumer))))).record
        if record is None or record.status is not Status.IN_DOUBT or record.in_doubt_policy != "hold":
            return ""
        return (
            f"The event is in doubt, and only a person may say whether it was processed. "
            f"Decide about its record {letter.record.hex()[:16]}; nothing was changed."
        )

    async def discard(self, user: User, consumer: str, letter: str, *, reason: str) -> StoredLetter:
        """Delete a letter. Its record stays: the event is not processed when it is delivered again."""
        self.demand(user, Permission.DISCARD)
        found = await self._find_letter(user, consumer, letter)

        async def drop() -> StoredLetter:
            dropped = (await self.perform(_ask(DropLetter(consumer, found.id, found.record)))).letter
            if dropped is None:
                raise not_found_error(f"dead letter {found.id.hex()[:16]} of {consumer}")
            return found

        return await self._change_letter(user, Permission.DISCARD, found, drop, reason=reason)

    def consumer(self, name: str) -> Consumer[Any]:
        """The consumer of that name, with its handlers.

        Raises:
            NotPossible: it is not known here.
        """
        known = self.consumers.get(name)
        if known is None:
            raise NotPossible(
                f"The handlers of the consumer {name} are not known here, so its letters cannot be redriven; nothing "
                f"was changed. Start the server with them (--consumer MODULE:CONSUMER), or use semel events redrive.",
                because="handlers_unknown",
            )
        return known

    async def streams(self, user: User) -> tuple[StreamLag, ...]:
        """How many events of each stream wait to be published or are parked; streams belong to no scope."""
        self.demand_everywhere(user, Permission.LIST)
        if not self.has(Capability.OUTBOX):
            return ()
        measured: LagMeasured = await self.perform(_ask(MeasureLag(None, COUNTED)))
        return measured.streams

    async def parked(self, user: User, stream: str, *, after: int = 0, limit: int = PAGE) -> ParkedPage:
        """Events of a stream that could not be published, and those that wait behind them."""
        self.demand(user, Permission.LIST)
        self._demand_store(Capability.OUTBOX, "events")
        most, found = max(1, min(limit, MOST)), []
        place: int | None = after
        for _ in range(_LOOKED_AT // most + 1):
            page = await self.perform(_ask(ScanParked(stream, place or 0, most)))
            found += [one for one in page.events if user.reaches(one.stored.event.scope)]
            place = page.after
            if place is None or len(found) >= most:
                break
        if len(found) > most:
            place = found[most - 1].stored.position
        return ParkedPage(tuple(found[:most]), place)

    async def release_parked(self, user: User, stream: str, position: int, *, reason: str) -> int:
        """Have a parked event published again; what waits behind it follows. Answers how many were released."""
        return await self._change_parked(user, Permission.REDRIVE, stream, position, reason=reason)

    async def release_all_parked(self, user: User, stream: str, *, reason: str) -> int:
        """Have every event of a stream that failed published again, of all scopes; answers how many were released.

        It is one statement: either all of them are released, or none.
        """
        self.demand_everywhere(user, Permission.REDRIVE)
        self._demand_store(Capability.OUTBOX, "events")

        async def release() -> int:
            return int((await self.perform(_ask(ReleaseParked(stream, None)))).count)

        target = parked_target(stream, None)
        return await self.change(user, Permission.REDRIVE, release, scope="", target=target, reason=reason)

    async def drop_parked(self, user: User, stream: str, position: int, *, reason: str) -> int:
        """Delete a parked event, which is then never published; what waits behind it goes on."""
        return await self._change_parked(user, Permission.DISCARD, stream, position, reason=reason)

    async def _change_parked(
        self, user: User, permission: Permission, stream: str, position: int, *, reason: str
    ) -> int:
        self.demand(user, permission)
        self._demand_store(Capability.OUTBOX, "events")
        page = await self.perform(_ask(ScanParked(stream, position - 1, 1)))
        events = [one for one in page.events if one.stored.position == position]
        if not events or not user.reaches(events[0].stored.event.scope):
            raise not_found_error(f"parked event at position {position} of {stream}")
        event = events[0].stored.event

        async def release() -> int:
            is_dropped = permission is Permission.DISCARD
            changed = await self.perform(_ask(ReleaseParked(stream, position, discard=is_dropped)))
            if not changed.count:
                raise NotPossible(
                    f"The event at position {position} of {stream} waits behind another one of its key, or has gone "
                    f"on; nothing was changed. Release the one that failed.",
                    because="waiting",
                )
            return int(changed.count)

        return await self.change(
            user,
            permission,
            release,
            scope=event.scope,
            target=parked_target(stream, position),
            reason=reason,
            detail={"type": event.type},
        )

    async def _find_letter(self, user: User, consumer: str, letter: str) -> StoredLetter:
        self._demand_store(Capability.LETTERS, "dead letters")
        name = _letter_name(letter)
        query = LetterQuery(consumer=consumer, id=name.id, record=name.record)
        page = await self.perform(_ask(ScanLetters(query, None, 1)))
        for found in page.letters:
            if user.reaches(found.scope):
                stored: StoredLetter = found
                return stored
        raise not_found_error(f"dead letter {name.id.hex()[:16]} of {consumer}")

    async def _change_letter(
        self,
        user: User,
        permission: Permission,
        letter: StoredLetter,
        work: Callable[[], Awaitable[T]],
        *,
        reason: str,
        name: Callable[[T], str] | None = None,
    ) -> T:
        return await self.change(
            user,
            permission,
            work,
            scope=letter.scope,
            target=letter_target(letter),
            reason=reason,
            detail={"consumer": letter.consumer, "letter_reason": letter.reason},
            name=name,
        )

    def has(self, capability: Capability) -> bool:
        """Whether the store can do this."""
        return capability in engine_of(self.semel).store.capabilities

    def _demand_store(self, capability: Capability, what: str) -> None:
        if not self.has(capability):
            name = engine_of(self.semel).store.name
            raise NotPossible(f"{name} keeps no {what}; nothing was done.", because="not_kept")


def check_processed(disposition: Disposition) -> None:
    """Tell what came of a redrive from what was hoped for.

    Raises:
        Unavailable: the store did not answer.
        NotPossible: the event was handed over, and its letter is still there; `because` is what came of it.
    """
    status = disposition.status
    if name_redrive(status) == "done":
        return
    if status == "unavailable":
        raise Unavailable("The store did not answer.", may_have_happened=True)
    then = ""
    if status == "in_doubt" and disposition.reference is not None:
        then = f" Decide about its record {disposition.reference[:16]}."
    raise NotPossible(f"The event is {status.replace('_', ' ')} again.{then}", because=status)


def letter_id(letter: StoredLetter) -> str:
    """How a letter is named to `redrive` and `discard`."""
    return letter.id.hex() + (letter.record or b"").hex()


def _letter_name(text: str) -> LetterName:
    try:
        return parse_letter_id(text)
    except Exception as error:
        raise Invalid(str(error), because="letter") from error


def _ask(operation: Any) -> Flow[Any]:
    return (yield from ask(operation))


def _to_micros(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise Invalid("A moment needs its time zone, such as Z; nothing was done.", because="before")
    return round(moment.timestamp() * 1_000_000)


def _read_place(text: str | None) -> tuple[int, bytes] | None:
    if text is None:
        return None
    first, _, name = text.partition(".")
    try:
        if len(first) > _DIGITS:
            raise ValueError(first[:_DIGITS])
        return int(first), base64.urlsafe_b64decode(name)
    except ValueError:
        raise Invalid("The cursor is none that a page gave; nothing was read. Begin again.", because="cursor") from None


def _write_place(letter: StoredLetter) -> str:
    return f"{letter.first_us}.{base64.urlsafe_b64encode(letter.id).decode()}"


def first_seen(letter: StoredLetter) -> Any:
    """When it became a dead letter."""
    return instant(letter.first_us)
