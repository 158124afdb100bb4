"""What an operator does to records: look at them, and decide about those that need it."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Unpack
from uuid import UUID

from msgspec.structs import replace

from semel.core import codec
from semel.core.erasure.port import SubjectErasureReport, conceal_subject
from semel.core.flow import Flow, ask
from semel.core.key import SHARED
from semel.core.operations import Page, Query, Scan, SkippedTo, SkipRecords
from semel.core.record import (
    Cancelled,
    Count,
    DidNotHappen,
    Failed,
    Happened,
    HistoryEntry,
    Record,
    Resolution,
    Status,
    StoredRecord,
    instant,
    show_record,
)
from semel.core.store import Capability
from semel.engine.admin import (
    check_reach,
    check_value,
    count,
    is_reopenable,
    not_erasable,
    not_reopenable,
    not_resolvable,
    reopen,
    resolve,
)
from semel.engine.engine import RecordFilter, engine_of, query_of
from semel.errors import NotResolvable, ResultNotKept, UsageError
from semel.server.access import Permission, User
from semel.server.actions.checks import BULK, ActionsBase, check_reason, not_found_error
from semel.server.engines import perform
from semel.server.refusals import Invalid, NotPossible, refusal_of

PAGE: Final = 50
MOST: Final = 200
SHORTEST: Final = 8
CONFIRMED: Final = 8
"""How many digits of the reference have to be typed to end a live lease."""
_REFERENCE: Final = re.compile(r"[0-9a-f]{8,64}")
_LONGEST_BODY: Final = 1 << 20
_CURSOR_BYTES: Final = 40
_APART: Final = 4
"""Records that an index leads to lie apart: one costs about as much as so many that follow each other."""
_FIRST_DIGEST: Final = bytes(32)
_LAST_DIGEST: Final = b"\xff" * 32
PERMISSION_OF: Final[dict[type, Permission]] = {
    Happened: Permission.RESOLVE,
    DidNotHappen: Permission.RELEASE,
    Cancelled: Permission.CANCEL,
    Failed: Permission.FAIL,
}
"""The permission that each resolution needs."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records, oldest first, and where the next page begins; no cursor: this was the last.

    `stopped_at`: the search had looked at as many records as it may, up to that moment; the next page goes on there.
    """

    records: tuple[Record, ...]
    cursor: str | None
    stopped_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StepBody:
    """What a record keeps of a finished step; the attributes as of `Body`."""

    name: str
    text: str | None
    why_none: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Body:
    """What a record keeps of its outcome and its steps, as JSON texts for people.

    Attributes:
        text: the value; None where there is none.
        why_none: why there is none.
        is_cut: whether the text is longer than what is shown.
        steps: the finished steps; of all of them together no more is shown than of one value.
    """

    text: str | None
    why_none: str
    is_cut: bool
    steps: tuple[StepBody, ...]


class RecordActions(ActionsBase):
    """Records: list, show, count, history, body; resolve, cancel, fail, release, reopen, erase."""

    async def list(
        self,
        user: User,
        *,
        cursor: str | None = None,
        limit: int = PAGE,
        looks_at: int | None = None,
        **filters: Unpack[RecordFilter],
    ) -> RecordPage:
        """One page of the records that exist for a user, oldest first, or as `newest_first` says.

        With `looks_at` a search stops once it has looked at so many records, and says where.

        Raises:
            Refused: the user may not, or the filter cannot be used.
        """
        self.demand(user, Permission.LIST)
        place = _read_cursor(cursor)
        most = max(1, min(limit, MOST))
        queries = self._queries(user, filters)
        edge = None if looks_at is None else await self._edge(queries, looks_at, place)
        pages = [await self._page(_up_to(query, edge), place, most) for query in queries]
        found = sorted(
            (one for page in pages for one in page.records),
            key=lambda one: (one.created_us, one.key.digest),
            reverse=bool(filters.get("newest_first", False)),
        )
        shown = found[:most]
        has_more = len(found) > most or any(page.cursor is not None for page in pages)
        last = _write_cursor(shown[-1].created_us, shown[-1].key.digest) if shown and has_more else None
        records = tuple(show_record(one) for one in shown)
        if last is not None or edge is None:
            return RecordPage(records, last)
        behind = _FIRST_DIGEST if filters.get("newest_first") else _LAST_DIGEST
        return RecordPage(records, _write_cursor(edge, behind), instant(edge))

    async def reach(self, user: User, looks_at: int, **filters: Unpack[RecordFilter]) -> datetime | None:
        """Where a search ends that may look at so many records; None: it need not stop.

        It is what `after` has to be, or `before` where the oldest come first.
        """
        self.demand(user, Permission.LIST)
        edge = await self._edge(self._queries(user, filters), looks_at, None)
        if edge is None:
            return None
        return instant(edge) if filters.get("newest_first") else instant(edge + 1)

    async def count(self, user: User, **filters: Unpack[RecordFilter]) -> int:
        """How many records match that exist for a user."""
        return sum(one.number for one in await self.counts(user, **filters))

    async def counts(self, user: User, **filters: Unpack[RecordFilter]) -> tuple[Count, ...]:
        """The same for each operation and status."""
        self.demand(user, Permission.LIST)
        numbers: dict[tuple[str, Status], int] = {}
        for query in self._queries(user, filters, counts=True):
            for one in await self.perform(count(query)):
                place = (one.operation, one.status)
                numbers[place] = numbers.get(place, 0) + one.number
        return tuple(Count(operation, status, number) for (operation, status), number in sorted(numbers.items()))

    async def show(self, user: User, reference: str) -> Record:
        """A record with its finished steps, named by its reference or the first 8 or more digits of it.

        Raises:
            NotFound: there is none that exists for the user.
        """
        self.demand(user, Permission.SHOW)
        return await self.find(user, reference)

    async def history(self, user: User, reference: str) -> tuple[HistoryEntry, ...]:
        """What happened to a record, oldest first, and who held it."""
        record = await self.show(user, reference)
        return await self.told(self.semel.history(record.key))

    async def body(self, user: User, reference: str) -> Body:
        """What a record keeps of its outcome and steps. That somebody looked is written into the audit chain."""
        self.demand(user, Permission.BODY)
        record = await self.find(user, reference)
        await self.note_look(user, Permission.BODY, scope=record.key.scope, target=record.reference)
        steps = _show_steps(record)
        if record.outcome is None:
            return Body(None, f"it is {record.status}, so there is no outcome", is_cut=False, steps=steps)
        text, why_none = _show_outcome(record.outcome)
        shown, is_cut = _cut(text, _LONGEST_BODY)
        return Body(shown, why_none, is_cut=is_cut, steps=steps)

    async def resolve(
        self,
        user: User,
        reference: str,
        resolution: Resolution,
        *,
        reason: str,
        correct: bool = False,
        force: bool = False,
        confirm: str = "",
        fence: int | None = None,
    ) -> Record:
        """End a doubt by decision; a permission of its own for each resolution (`PERMISSION_OF`).

        Args:
            user: who decides.
            reference: which record.
            resolution: `Happened(value)`, `DidNotHappen()`, `Cancelled()` or `Failed("why")`.
            reason: why; kept with the record and in the audit chain.
            correct: replace the value that an earlier `Happened` stated.
            force: end a live lease, too. It is a permission of its own, and `confirm` has to be given.
            confirm: with `force`, the first eight digits of the reference.
            fence: the fence of the record as it was looked at; refused where it has changed since.

        Raises:
            Refused: the record is in no state for it, or the user may not.
        """
        permission = PERMISSION_OF[type(resolution)]
        self.demand(user, permission)
        if force:
            self.demand(user, Permission.FORCE)
        record = await self._find_decidable(user, reference)
        if force and confirm != record.reference[:CONFIRMED]:
            raise Invalid(
                f"To end a live lease, type the first {CONFIRMED} digits of the reference; nothing was changed.",
                because="confirm",
            )

        async def decide() -> Record:
            _check_fence(record, fence)
            if record.settled and not correct:
                raise not_resolvable(record)
            if isinstance(resolution, Happened):
                self._check_value(record, resolution)
            try:
                return await self._decide(
                    record, resolution, reason=reason, by=user.name, correct=correct, force=force, fence=fence
                )
            except NotResolvable:  # the store's clock says whether a lease is over
                seen = await self.semel.read(record.key)
                if seen is not None:
                    _check_fence(seen, fence)  # it has gone on since it was found a moment ago
                if seen is not None and seen.status is Status.RUNNING:
                    raise still_running_error(seen) from None
                raise

        detail = {"resolution": type(resolution).__name__, "force": force, "correct": correct}
        return await self.change_record(user, permission, record, decide, reason=reason, detail=detail)

    def _check_value(self, record: Record, stated: Happened) -> None:
        try:
            check_value(stated.value, engine_of(self.semel).known.get(record.key.operation))
        except UsageError as error:
            raise Invalid(error.message, because="value") from error

    async def _decide(self, record: Record, resolution: Resolution, **how: Any) -> Record:
        """Resolve a record as it was seen: the store itself compares the fence."""
        engine = engine_of(self.semel)
        known = engine.known.get(record.key.operation)
        flow = resolve(record.key, resolution, nonce=engine.new_nonce(), known=known, **how)
        return show_record(await perform(self.semel, flow))

    async def cancel(self, user: User, reference: str, *, reason: str, **more: Any) -> Record:
        """Have a record in doubt never run again; further arguments as for `resolve`."""
        return await self.resolve(user, reference, Cancelled(), reason=reason, **more)

    async def fail(self, user: User, reference: str, *, error: str, reason: str, **more: Any) -> Record:
        """Have a record in doubt answer duplicates with an error; further arguments as for `resolve`."""
        return await self.resolve(user, reference, Failed(error), reason=reason, **more)

    async def release(self, user: User, reference: str, *, reason: str, **more: Any) -> Record:
        """Say that it did not happen: the next claim runs it; further arguments as for `resolve`."""
        return await self.resolve(user, reference, DidNotHappen(), reason=reason, **more)

    async def reopen(self, user: User, reference: str, *, reason: str, fence: int | None = None) -> Record:
        """Let a record run again that failed for good or was cancelled. Nothing runs now."""
        self.demand(user, Permission.REOPEN)
        record = await self._find_decidable(user, reference)

        async def decide() -> Record:
            _check_fence(record, fence)
            _check_running(record)
            if not is_reopenable(record):
                raise not_reopenable(record)
            nonce = engine_of(self.semel).new_nonce()
            again = reopen(record.key, reason=reason, by=user.name, nonce=nonce, fence=fence)
            return show_record(await perform(self.semel, again))

        return await self.change_record(user, Permission.REOPEN, record, decide, reason=reason)

    async def erase(self, user: User, reference: str, *, reason: str, fence: int | None = None) -> Record:
        """Take out of a settled record what may be personal. It never runs again for it."""
        self.demand(user, Permission.ERASE)
        record = await self._find_decidable(user, reference)

        async def decide() -> Record:
            _check_fence(record, fence)
            _check_running(record)
            if not record.settled:
                raise not_erasable(record.key, record)
            return await self.semel.erase(record.key, reason=reason, by=user.name)

        return await self.change_record(user, Permission.ERASE, record, decide, reason=reason)

    async def erase_subject(
        self,
        user: User,
        subject: str,
        *,
        reason: str,
        scope: str | None = None,
        scan: bool = False,
        dry_run: bool = False,
    ) -> SubjectErasureReport:
        """Erase all that is kept about a subject, in one scope, or (None) in all of them.

        The chain names the subject by a digest that needs the engine's secret, or not at all: it must not keep what has
        to go.

        Raises:
            Forbidden: the user may not, or not in every scope.
            NotFound: the scope is not one of the user's.
            Invalid: there is no subject, or no reason.
        """
        self.demand(user, Permission.ERASE)
        if scope is None:
            self.demand_everywhere(user, Permission.ERASE)
        elif not user.reaches(scope):
            raise not_found_error("such scope")
        if not subject:
            raise Invalid("A subject is a text that is not empty; nothing was erased.", because="subject")

        async def erase() -> SubjectErasureReport:
            return await self.semel.erase_subject(
                subject,
                reason=reason,
                scope=SHARED if scope == "" else scope,
                by=user.name,
                scan=scan,
                dry_run=dry_run,
            )

        if dry_run:
            check_reason(reason)
            return await self.told(erase())
        target = conceal_subject(subject, engine_of(self.semel).secrets)
        return await self.change(user, Permission.ERASE, erase, scope=scope or "", target=target, reason=reason)

    async def change_record(
        self,
        user: User,
        permission: Permission,
        record: Record,
        work: Callable[[], Awaitable[Record]],
        *,
        reason: str,
        detail: dict[str, Any] | None = None,
    ) -> Record:
        """Carry out a decision about a record, written down in the chain of its scope."""
        told = {"operation": record.key.operation, "fence": record.fence, **(detail or {})}
        return await self.change(
            user, permission, work, scope=record.key.scope, target=record.reference, reason=reason, detail=told
        )

    async def find(self, user: User, reference: str) -> Record:
        """The one record that is meant, among those that exist for a user.

        Raises:
            NotFound: there is none.
            Invalid: it is no reference, or several records begin so.
        """
        wanted = reference.lower() if isinstance(reference, str) else ""
        if not _REFERENCE.fullmatch(wanted):
            raise Invalid(
                f"A reference has {SHORTEST} to 64 hex digits; nothing was done. Look for the record in the list.",
                because="reference",
            )
        page = await self._page(Query(reference=wanted), None, MOST)
        found = [show_record(stored) for stored in page.records if _exists_for(user, stored)]
        if not found:
            raise not_found_error(f"record {wanted[:16]}")
        if len(found) > 1:
            raise Invalid(
                f"Several records begin with {wanted}; nothing was done. Give more digits.", because="reference"
            )
        return await self.told(self.semel.read(found[0].key)) or found[0]

    async def _find_decidable(self, user: User, reference: str) -> Record:
        record = await self.find(user, reference)
        if is_bulk_item(record):
            raise bulk_item_error(record)
        return record

    def _queries(self, user: User, filters: RecordFilter, *, counts: bool = False) -> Sequence[Query]:
        """One query for each scope that is to be looked at."""
        try:
            query = query_of(filters)
            check_reach(engine_of(self.semel).store, query, counts=counts)
        except UsageError as error:
            raise refusal_of(error) from error
        if user.scopes is not None:
            query = replace(query, hides_erased=True, without_operation=BULK)
        return [replace(query, scope=scope) for scope in self.scopes_asked(user, query.scope)]

    async def _edge(self, queries: Sequence[Query], looks_at: int, cursor: tuple[int, bytes] | None) -> int | None:
        """The instant up to which these queries together look at so many records.

        What an index leads to needs no bound, and a store that cannot tell reads everything only where that is asked
        for.
        """
        if Capability.COUNT not in engine_of(self.semel).store.capabilities:
            return None
        if not queries or queries[0].is_narrow:
            return None
        nearest, edge = max if queries[0].newest_first else min, None
        for is_led, most in _bounds_of(queries[0], looks_at):
            walks = {_walk(_up_to(query, edge), cursor, is_led=is_led) for query in queries}
            reached: list[SkippedTo] = [await self.perform(_skip(walk, max(most // len(queries), 1))) for walk in walks]
            edge = nearest([found.created_us for found in reached if found.created_us is not None], default=edge)
        return edge

    async def _page(self, query: Query, cursor: tuple[int, bytes] | None, limit: int) -> Page:
        page: Page = await self.perform(_scan(query, cursor, limit))
        return page


def _scan(query: Query, cursor: tuple[int, bytes] | None, limit: int) -> Flow[Page]:
    return (yield from ask(Scan(query, cursor, limit)))


def _skip(query: Query, number: int) -> Flow[SkippedTo]:
    return (yield from ask(SkipRecords(query, number)))


def _bounds_of(query: Query, looks_at: int) -> list[tuple[bool, int]]:
    """What a search walks along, and how many records of it: what an index leads to (True), and all by time.

    Where an index begins with an operation or a status, a server may still prefer to walk by time: then both are
    bounded, the walk by time first.
    """
    apart = looks_at // _APART
    if query.terms:
        return [(True, apart)]
    if query.operation is not None or query.status in (Status.FAILED, Status.CANCELLED):
        return [(False, looks_at * _APART), (True, apart)]
    return [(False, looks_at)]


def _walk(query: Query, cursor: tuple[int, bytes] | None, *, is_led: bool) -> Query:
    """A query for nothing else than what decides how far so many records reach.

    Queries of several scopes walk along the same records, unless a searched value leads to those of each.
    """
    kept = query if query.terms else replace(query, scope=None)
    if not is_led:
        kept = replace(kept, operation=None, status=None)
    if cursor is None:
        return kept
    if query.newest_first:
        return replace(kept, before_us=_earlier(cursor[0] + 1, query.before_us))
    return replace(kept, after_us=_later(cursor[0], query.after_us))


def _earlier(instant: int, limit: int | None) -> int:
    return instant if limit is None else min(instant, limit)


def _later(instant: int, limit: int | None) -> int:
    return instant if limit is None else max(instant, limit)


def _up_to(query: Query, edge: int | None) -> Query:
    """The query, as far as the edge."""
    if edge is None:
        return query
    if query.newest_first:
        return replace(query, after_us=_later(edge, query.after_us))
    return replace(query, before_us=_earlier(edge + 1, query.before_us))


def is_bulk_item(record: StoredRecord | Record) -> bool:
    """Whether a record is of a bulk action: its key names a record, which may be of any scope."""
    return record.key.operation == BULK


def bulk_item_error(record: Record) -> NotPossible:
    """The refusal to decide about an item of a bulk action by itself: that needs no permission of the action."""
    return NotPossible(
        f"The record {record.reference[:16]} is an item of a bulk action; nothing was changed. Pause, resume or cancel "
        f"the bulk action instead.",
        because="bulk_item",
    )


def _exists_for(user: User, stored: StoredRecord) -> bool:
    """Whether a record exists for a user: what was erased has no scope any more, so it does for those alone of all."""
    if user.scopes is None:
        return True
    return user.reaches(stored.key.scope) and not stored.erased and not is_bulk_item(stored)


def _check_fence(record: Record, fence: int | None) -> None:
    if fence is not None and record.fence != fence:
        raise NotPossible(
            f"The record {record.reference[:16]} has changed since it was looked at; nothing was changed. Look again.",
            because="changed",
        )


def _check_running(record: Record) -> None:
    if record.status is Status.RUNNING:
        raise still_running_error(record)


def still_running_error(record: Record) -> NotPossible:
    """The refusal for a record whose lease is live."""
    until = f"{record.lease_until:%Y-%m-%d %H:%M:%S} UTC"
    return NotPossible(
        f"The record {record.reference[:16]} is still running: lease until {until}, attempt {record.attempts}. "
        f"Nothing was changed. Wait until it has ended; an admin can end a live lease by force.",
        because="still_running",
        lease_until=record.lease_until,
    )


def _read_cursor(text: str | None) -> tuple[int, bytes] | None:
    if text is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _CURSOR_BYTES:
        raise Invalid(
            "The cursor is none that a page gave; nothing was read. Begin again without it.", because="cursor"
        )
    return int.from_bytes(raw[:8], "big", signed=True), raw[8:]


def _write_cursor(created_us: int, digest: bytes) -> str:
    return base64.urlsafe_b64encode(created_us.to_bytes(8, "big", signed=True) + digest).decode().rstrip("=")


def _show_steps(record: Record) -> tuple[StepBody, ...]:
    """The steps, as much of them as one page can show."""
    found, room = list[StepBody](), _LONGEST_BODY
    for step in record.steps:
        text, why_none = _show_outcome(step.outcome)
        shown, is_cut = _cut(text, room)
        room -= len(shown or "")
        found.append(StepBody(step.name, shown, why_none, is_cut))
    return tuple(found)


def _cut(text: str | None, longest: int) -> tuple[str | None, bool]:
    """As much of a text as may be shown, and whether that is not all."""
    return (None, False) if text is None else (text[:longest], len(text) > longest)


def _show_outcome(stored: bytes) -> tuple[str | None, str]:
    """A stored value as JSON for people, or why there is none."""
    try:
        value = codec.decode(stored, codec.shape_of(codec.NO_ANNOTATION))
    except ResultNotKept as error:
        return None, str(error.facts.get("reason", error.message))
    return json.dumps(value, ensure_ascii=False, indent=2, default=_plain, allow_nan=True), ""


def _plain(value: Any) -> Any:
    """What JSON has no word for: exact, and as text."""
    match value:
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case Decimal() | UUID() | timedelta():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case set() | frozenset() | tuple():
            return list(value)
        case Enum():
            return value.value
    return repr(value)
