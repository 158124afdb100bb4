"""An action on all that match a filter: a semel batch whose items are what matched when it was begun.

- A bulk action resumes after a kill, and does each item once: an item carries the fence that its record had, and the
  note of a record says which bulk action decided about it.
- A refusal is an answer: such an item is skipped, and says why. The others go on.
- It acts for the person who began it, with the roles and scopes they had then, and every item is in the audit chain.
- A moment that was written as an age, such as two hours ago, is that of the first request: sent again later it is the
  same request.
- It belongs to one scope, or to all of them; that of all is seen by those alone who reach all.
- The values that were searched for are not kept: they may be personal. What is stated for all, the value of `resolve`
  and the error of `fail`, is kept with the items, which a sealed store seals, and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, get_args

import msgspec

from semel.api import AsyncSemel
from semel.batch import Batches, BatchStatus, Skip
from semel.batch.batches import Batch
from semel.batch.control import items_that_ended, list_page, read_batch, result_of
from semel.batch.items import Item, ItemResult
from semel.batch.settings import MOST_RATE, is_valid_rate
from semel.core import codec
from semel.core.batch.values import ItemStatus, StoredBatch
from semel.core.events.letters import StoredLetter
from semel.core.key import SHARED, make_key
from semel.core.record import Happened, Record, Status
from semel.core.store import Capability
from semel.engine.admin import is_reopenable
from semel.engine.engine import RecordFilter, engine_of
from semel.errors import BatchChanged, RecordNotFound, SemelError, UsageError
from semel.server.access import Permission, User
from semel.server.actions import Actions
from semel.server.actions.checks import BULK, check_reason, not_found_error
from semel.server.actions.events import check_processed, letter_id
from semel.server.actions.records import MOST as PAGE
from semel.server.audit.targets import bulk_target
from semel.server.refusals import Invalid, NotFound, NotPossible, Refused, Unavailable

MOST_ITEMS: Final = 100_000
LONGEST_VALUE: Final = 2000
"""Characters of the value that `resolve` states, as JSON: every item keeps it."""
MOST_COUNTED: Final = 1000
"""How many records a dry run reads where their status does not tell whether they are in a state for the action."""
KEEP_FOR: Final = timedelta(days=30)
LEASE_FOR: Final = timedelta(seconds=10)
_PAGE_OF_ITEMS: Final = 50
_LETTERS_COUNTED: Final = 1000
_CONCURRENCY: Final = 8
_ATTEMPTS: Final = 5
_LOOK_EVERY: Final = 60.0
_LOOKING: Final = ("", "")
"""Stands among the tasks for the look at what was left; no bulk action has an empty id."""
_ANY_VALUE: Final = codec.shape_of(codec.NO_ANNOTATION)
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LOG: Final = logging.getLogger("semel.server")

RecordAction = Literal["resolve", "cancel", "fail", "release", "reopen", "erase"]
LetterAction = Literal["redrive", "discard"]
BulkAction = Literal["resolve", "cancel", "fail", "release", "reopen", "erase", "redrive", "discard"]
PERMISSIONS: Final[dict[str, Permission]] = {name: Permission(name) for name in get_args(BulkAction)}


class _NoAnswer(Exception):
    """The store did not answer, so that nothing is known of an item: it is tried again."""


class LetterFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters; what is None does not restrict. `scope` empty: the shared one."""

    consumer: str
    reason: str | None = None
    type: str | None = None
    subject: str | None = None
    scope: str | None = None
    before: datetime | None = None


class BulkMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the batch of a bulk action keeps of who began it, and why."""

    action: BulkAction
    actor: str
    roles: tuple[str, ...]
    scopes: tuple[str, ...] | None
    reason: str
    everywhere: bool
    consumer: str = ""
    """Whose letters are redriven, which needs its handlers."""
    rate: float | None = None
    searched_by: tuple[str, ...] = ()
    asked: str = ""
    """A digest of all that was asked for, so that the same id cannot stand for something else."""
    moments: dict[str, datetime] = msgspec.field(default_factory=dict)
    """What the ages in the filter meant when it was begun, by the names of the fields."""

    def user(self) -> User:
        """The person for whom it acts."""
        return User(self.actor, self.roles, self.scopes)


class BulkItem(msgspec.Struct, frozen=True):
    """One of those that matched: a record with its fence, or a letter with its consumer.

    `value` is what `resolve` states, as JSON, and `error` what `fail` does.
    """

    target: str
    fence: int | None = None
    consumer: str = ""
    value: str = "null"
    error: str = ""


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """What a bulk action would do: how many match, and how many of those are in a state for it.

    `is_exact`: all were looked at; otherwise the numbers are least ones. `is_eligible_exact` is false where so many
    would have to be read for the second number that it is only the most there can be.
    """

    matching: int
    eligible: int
    by_status: dict[str, int]
    is_exact: bool = True
    is_eligible_exact: bool = True


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """How far a bulk action is: `done`, `refused` and `failed` of `total`."""

    id: str
    scope: str
    metadata: BulkMetadata
    status: BatchStatus
    number: int = 0
    """Where it is in a list, for `after`."""

    @property
    def done(self) -> int:
        """How many items were carried out."""
        return self.status.completed

    @property
    def refused(self) -> int:
        """How many were refused."""
        return self.status.skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRequest:
    """What is asked for.

    Attributes:
        action: what to do with each.
        reason: why.
        records: which records, for an action on records.
        letters: which dead letters, for an action on those.
        error: for `fail`, what duplicates are told.
        value: for `resolve`, what duplicates get: a value that JSON has.
        rate: how many in a second at most.
        id: names it; the same id is the same bulk action. None: it is made up.
        ages: of moments in the filter, by their names, those that were written as an age: the same age is the same
            request, although it is another moment whenever it is asked for.
    """

    action: BulkAction
    reason: str
    records: RecordFilter | None = None
    letters: LetterFilter | None = None
    error: str = ""
    value: Any = None
    rate: float | None = None
    id: str | None = None
    ages: Mapping[str, timedelta] = field(default_factory=dict)


class BulkActions:
    """Begins bulk actions, carries them out, and says how far they are.

    Args:
        actions: what is done with each item.
        concurrency: how many items are under way at the same time; 1 is one after the other, the oldest first.
        lease_for: after which time without a sign of life another process goes on with what this one had begun.
        before_item: called before each item; tests end the process here.
    """

    def __init__(
        self,
        actions: Actions,
        *,
        concurrency: int = _CONCURRENCY,
        lease_for: timedelta = LEASE_FOR,
        before_item: Callable[[str], None] | None = None,
    ) -> None:
        self._actions = actions
        self._concurrency = concurrency
        self._lease_for = lease_for
        self._before_item = before_item

    @property
    def is_possible(self) -> bool:
        """Whether the store keeps what bulk actions need."""
        return Capability.BATCH in engine_of(self._actions.semel).store.capabilities and not self._actions.is_read_only

    async def preview(self, user: User, asked: BulkRequest, *, looks_at: int | None = None) -> BulkPreview:
        """How many match, and how many of those are in a state for the action. Nothing is changed.

        With `looks_at` at most so many records are looked at, and at most 1,000 letters.

        Raises:
            Refused: the user may not, or what was asked for cannot be used.
        """
        self._check(user, asked)
        if asked.letters is not None:
            return await self._preview_letters(user, asked, asked.letters, looks_at)
        records, reach = asked.records or {}, await self._reach(user, asked, looks_at)
        if reach is not None:
            records = {**records, "before": reach}
        numbers = await self._numbers(user, records)
        eligible, is_eligible_exact = await self._eligible(user, asked, records, numbers)
        return BulkPreview(sum(numbers.values()), eligible, numbers, reach is None, is_eligible_exact)

    async def start(self, user: User, asked: BulkRequest) -> BulkProgress:
        """Note all that match now as a batch. Nothing is changed before `run`.

        Raises:
            Refused: the user may not, too many match, or the id stands for another bulk action.
        """
        self._check(user, asked)
        if not self.is_possible:
            raise NotPossible("This store keeps neither batches nor an audit chain; nothing was done.")
        scope, metadata = self._scope(user, asked), _metadata_of(user, asked)
        id_ = asked.id or f"bulk-{make_key(metadata.asked, engine_of(self._actions.semel).new_nonce())[:16]}"
        known = await self._known(scope, id_)
        is_same = known is not None and (known.metadata.asked, known.metadata.actor) == (metadata.asked, user.name)
        if known is not None and known.status.state != "loading":
            if not is_same:
                raise _id_taken_error(id_)
            return known
        if known is not None and is_same:
            asked = _as_of(asked, known.metadata.moments)
            metadata = _metadata_of(user, asked)
        items = self._items(user, asked, scope)
        try:
            batch = await Batches(self._actions.semel, scope or SHARED).start(
                id_,
                _bounded(items),
                operation=BULK,
                item_id="target",
                metadata=msgspec.to_builtins(metadata),
                keep_for=KEEP_FOR,
            )
        except BatchChanged as error:
            raise NotPossible(f"{error.message} Choose another id.", because="id_taken") from error
        status = await batch.status()
        kept = msgspec.convert(status.metadata, BulkMetadata)
        if (kept.asked, kept.actor) != (metadata.asked, user.name):
            raise _id_taken_error(id_)  # another request with this id was loaded since it was looked for
        return BulkProgress(id_, scope, kept, status)

    async def run(self, scope: str, id_: str) -> BatchStatus:
        """Carry out what is left of a bulk action, until it has ended or is paused.

        Raises:
            NotFound: there is none.
            NotPossible: letters are redriven whose consumer is not known here.
        """
        known = await self._known(scope, id_)
        if known is None:
            raise not_found_error(f"bulk action {id_!r}")
        if known.metadata.consumer:
            self._actions.consumer(known.metadata.consumer)
        metadata, user = known.metadata, known.metadata.user()
        batch = await Batches(self._actions.semel, scope or SHARED).get(id_, type=BulkItem)

        async def act(item: Item) -> str:
            if self._before_item is not None:
                self._before_item(item.id)
            await self._act(user, metadata, id_, item)
            return "done"

        return await batch.run(
            act,
            concurrency=self._concurrency,
            page=_PAGE_OF_ITEMS,
            rate=metadata.rate,
            max_attempts=_ATTEMPTS,
            in_doubt="rerun",
            lease_for=self._lease_for,
            retry_errors=(_NoAnswer,),
        )

    async def progress(self, user: User, scope: str, id_: str) -> BulkProgress:
        """How far a bulk action is.

        Raises:
            NotFound: there is none that exists for the user.
        """
        self._actions.demand(user, Permission.LIST)
        known = await self._known(scope, id_) if user.reaches(scope) else None
        if known is None or (known.metadata.everywhere and user.scopes is not None):
            raise not_found_error(f"bulk action {id_!r}")
        return known

    async def list(
        self, user: User, *, limit: int | None = None, after: int = 0, newest_first: bool = False
    ) -> tuple[BulkProgress, ...]:
        """Bulk actions that exist for a user, in the order in which they were begun, or the newest first.

        `after` is the number of the last one of the page before; 0 is the beginning. Without `limit` they are all.
        """
        self._actions.demand(user, Permission.LIST)
        if not self._actions.has(Capability.BATCH):
            return ()
        found: list[StoredBatch] = []
        for scope in self._actions.scopes_asked(user, None):
            of_scope = self._batches(scope, None, after, newest_first=newest_first)
            count = 0
            async for batch in of_scope:
                if user.scopes is None or not _metadata_in(batch).everywhere:
                    found.append(batch)
                    count += 1
                if count == limit:
                    break
        found.sort(key=lambda batch: batch.number, reverse=newest_first)
        return tuple([await self._progress_of(batch) for batch in found[:limit]])

    async def _progress_of(self, batch: StoredBatch) -> BulkProgress:
        status = await self._actions.told(Batch(self._actions.semel, batch).status())
        return BulkProgress(batch.id, batch.scope, _metadata_in(batch), status, batch.number)

    async def refusals(
        self, user: User, scope: str, id_: str, *, after: int | None = None, limit: int = 100
    ) -> tuple[ItemResult[Any], ...]:
        """Items that were refused or failed, each with why, in the order of the input.

        They are asked for by how they ended: how many were carried out before them does not matter.
        """
        counts = (await self.progress(user, scope, id_)).status
        stored = (await self._actions.perform(read_batch(scope, id_))).known
        first = 0 if after is None else after + 1
        found: list[ItemResult[Any]] = []
        for status, number in (
            (ItemStatus.SKIPPED, counts.skipped),
            (ItemStatus.FAILED, counts.failed),
            (ItemStatus.IN_DOUBT, counts.in_doubt),
        ):
            if number:
                ended = await self._actions.perform(items_that_ended(stored, status, first, limit))
                found += [result_of(item, record, _ANY_VALUE) for item, record in ended]
        found.sort(key=lambda result: result.position)
        return tuple(found[:limit])

    async def change(
        self, user: User, scope: str, id_: str, what: Literal["pause", "resume", "cancel"], *, reason: str
    ) -> BatchStatus:
        """Pause a bulk action, let it go on, or end it; items that were carried out stay as they are."""
        known = await self.progress(user, scope, id_)
        permission = PERMISSIONS[known.metadata.action]
        self._actions.demand(user, permission)
        batch = await Batches(self._actions.semel, scope or SHARED).get(id_)

        async def decide() -> BatchStatus:
            if what == "resume":
                return await batch.resume()
            return await (batch.pause(reason) if what == "pause" else batch.cancel(reason))

        return await self._actions.change(
            user, permission, decide, scope=scope, target=bulk_target(id_), reason=reason, detail={"what": what}
        )

    async def unfinished(self) -> tuple[tuple[str, str], ...]:
        """Scope and id of the bulk actions that somebody has to go on with, and that can be gone on with here."""
        if not self.is_possible:
            return ()
        found = []
        for state in ("pending", "running"):
            found += [(one.scope, one.id) async for one in self._batches(None, state) if self._has_handlers(one)]
        return tuple(found)

    async def _preview_letters(
        self, user: User, asked: BulkRequest, wanted: LetterFilter, looks_at: int | None
    ) -> BulkPreview:
        number = in_doubt = in_vain = 0
        is_exact = True
        async for letter in self._letters(user, wanted, self._scope(user, asked)):
            if looks_at is not None and number == _LETTERS_COUNTED:
                is_exact = False
                break
            number += 1
            if asked.action == "redrive" and letter.reason == "in_doubt":
                in_doubt += 1
                in_vain += in_doubt <= MOST_COUNTED and bool(await self._actions.why_in_vain(letter))
        return BulkPreview(number, number - in_vain, {}, is_exact, is_eligible_exact=in_doubt <= MOST_COUNTED)

    async def _eligible(
        self, user: User, asked: BulkRequest, wanted: RecordFilter, numbers: dict[str, int]
    ) -> tuple[int, bool]:
        """How many of those that match are in a state for the action, and whether there are not fewer."""
        number = sum(numbers.get(status, 0) for status in _STATUSES[asked.action])
        if asked.action in _ENDS_DOUBT and numbers.get(Status.RUNNING):
            # Whoever runs under a lease that is over is in doubt, although no sweep has said so yet.
            lapsed = await self._numbers(user, {**wanted, "status": None, "stuck": True})
            return number + lapsed.get(Status.RUNNING, 0), True
        if asked.action != "reopen":
            return number, True
        if number > MOST_COUNTED:
            return number, False
        asked_for = [status for status in _STATUSES["reopen"] if numbers.get(status)]
        found = [one for status in asked_for async for one in self._records(user, {**wanted, "status": status})]
        return sum(is_reopenable(record) for record in found), True

    async def _numbers(self, user: User, wanted: RecordFilter) -> dict[str, int]:
        """How many match, by status."""
        numbers: dict[str, int] = {}
        for one in await self._actions.counts(user, **wanted):
            numbers[one.status] = numbers.get(one.status, 0) + one.number
        return numbers

    async def _reach(self, user: User, asked: BulkRequest, looks_at: int | None) -> datetime | None:
        """Before which moment records are counted, where not all may be looked at."""
        if looks_at is None:
            return None
        wanted: RecordFilter = {**(asked.records or {}), "newest_first": False}
        return await self._actions.reach(user, looks_at, **wanted)

    def _check(self, user: User, asked: BulkRequest) -> None:
        if asked.action not in PERMISSIONS:
            raise Invalid(f"A bulk action is one of {', '.join(PERMISSIONS)}; nothing was done.", because="action")
        self._actions.demand(user, PERMISSIONS[asked.action])
        check_reason(asked.reason)
        if asked.id is not None and not _ID.fullmatch(asked.id):
            raise Invalid("An id has 1 to 64 letters, digits and . _ -; nothing was done.", because="id")
        is_about_letters = asked.action in get_args(LetterAction)
        if is_about_letters is (asked.letters is None) or is_about_letters is (asked.records is not None):
            what = "letters" if is_about_letters else "records"
            raise Invalid(f"{asked.action} needs a filter of {what}, and no other; nothing was done.", because="filter")
        if asked.rate is not None and not is_valid_rate(asked.rate):
            raise Invalid(
                f"A rate is a positive number of items in a second, at most {MOST_RATE:,}; nothing was done.",
                because="rate",
            )
        if (asked.action == "fail") is not bool(asked.error.strip()):
            raise Invalid("fail, and nothing else, needs an error that duplicates are told.", because="error")
        if asked.action != "resolve" and asked.value is not None:
            raise Invalid("resolve, and nothing else, states a value; nothing was done.", because="value")
        _value_text(asked.value)
        if asked.letters is not None and asked.action == "redrive":
            self._actions.consumer(asked.letters.consumer)

    def _scope(self, user: User, asked: BulkRequest) -> str:
        """The scope that a bulk action belongs to; empty: to all of them, or to the shared one."""
        given: object = None
        if asked.letters is not None:
            given = asked.letters.scope
        elif asked.records is not None:
            given = asked.records.get("scope")
        if given is None and user.scopes is None:
            return ""
        if given is SHARED or isinstance(given, str):
            named = given if isinstance(given, str) else ""
            if not user.reaches(named):
                raise NotFound("Nothing matches; nothing was done.")
            return named
        if user.scopes is not None and len(user.scopes) == 1:
            return next(iter(user.scopes))
        raise Invalid("A bulk action belongs to one scope; nothing was done. Name it in the filter.", because="scope")

    async def _items(self, user: User, asked: BulkRequest, scope: str) -> AsyncIterator[dict[str, Any]]:
        if asked.letters is not None:
            async for letter in self._letters(user, asked.letters, scope):
                yield {"target": letter_id(letter), "consumer": letter.consumer}
            return
        stated = _stated(asked)
        async for record in self._records(user, asked.records or {}):
            yield {"target": record.reference, "fence": record.fence, **stated}

    async def _records(self, user: User, wanted: RecordFilter) -> AsyncIterator[Record]:
        cursor: str | None = None
        while True:
            page = await self._actions.list(user, cursor=cursor, limit=PAGE, **wanted)
            for record in page.records:
                yield record
            cursor = page.cursor
            if cursor is None:
                return

    async def _letters(self, user: User, wanted: LetterFilter, scope: str) -> AsyncIterator[StoredLetter]:
        cursor: str | None = None
        while True:
            page = await self._actions.letters(
                user,
                wanted.consumer,
                reason=wanted.reason,
                type=wanted.type,
                subject=wanted.subject,
                scope=wanted.scope if wanted.scope is not None else (scope or None),
                before=wanted.before,
                cursor=cursor,
                limit=PAGE,
            )
            for letter in page.letters:
                yield letter
            cursor = page.cursor
            if cursor is None:
                return

    async def _act(self, user: User, metadata: BulkMetadata, id_: str, item: Item) -> None:
        """Carry out one item.

        Raises:
            Skip: it was refused; the text says why.
            _NoAnswer: the store did not answer; it is tried again.
        """
        data: BulkItem = item.data
        reason = f"{metadata.reason[:900]} (bulk action {id_[:64]})"
        try:
            if data.consumer:
                await self._act_on_letter(user, metadata, data, reason, is_again=item.in_doubt)
            else:
                await self._act_on_record(user, metadata, data, reason)
        except Unavailable as error:
            raise _NoAnswer(error.message) from error
        except Refused as refusal:
            raise Skip(f"{refusal.because}: {refusal.message}") from refusal

    async def _act_on_record(self, user: User, metadata: BulkMetadata, data: BulkItem, reason: str) -> None:
        try:
            record = await self._actions.find(user, data.target)
        except NotFound:
            # An erased record has lost its scope: to a user of some scopes it is gone once it was erased here.
            if metadata.action != "erase" or not await self._is_erased(data, user.name, reason):
                raise
            return
        if _is_decided(record, metadata.action, data, user.name, reason):
            return  # carried out by an earlier attempt whose process died before it could say so
        more: dict[str, Any] = {}
        if metadata.action == "fail":
            more = {"error": data.error}
        elif metadata.action == "resolve":
            more = {"resolution": Happened(json.loads(data.value))}
        await getattr(self._actions, metadata.action)(user, data.target, reason=reason, fence=data.fence, **more)

    async def _is_erased(self, data: BulkItem, actor: str, reason: str) -> bool:
        try:
            record = await self._actions.find(User(actor, ()), data.target)
        except NotFound:
            return False
        return _is_decided(record, "erase", data, actor, reason)

    async def _act_on_letter(
        self, user: User, metadata: BulkMetadata, data: BulkItem, reason: str, *, is_again: bool
    ) -> None:
        try:
            if metadata.action == "discard":
                await self._actions.discard(user, data.consumer, data.target, reason=reason)
                return
            disposition = await self._actions.redrive(user, data.consumer, data.target, reason=reason)
            for _ in range(_ATTEMPTS):
                if not is_again or disposition.status != "in_progress" or disposition.retry_after is None:
                    break
                # The earlier attempt died in the handler, and the lease that it had on the event is still live.
                await asyncio.sleep(disposition.retry_after.total_seconds())
                disposition = await self._actions.redrive(user, data.consumer, data.target, reason=reason)
        except NotFound:
            if is_again:
                return  # the earlier attempt took it away
            raise
        check_processed(disposition)

    def _has_handlers(self, batch: StoredBatch) -> bool:
        consumer = _metadata_in(batch).consumer
        return not consumer or consumer in self._actions.consumers

    async def _known(self, scope: str, id_: str) -> BulkProgress | None:
        if not self._actions.has(Capability.BATCH):
            return None
        try:
            batch: Batch[AsyncSemel] = await Batches(self._actions.semel, scope or SHARED).get(id_)
        except RecordNotFound:
            return None
        if batch.operation != BULK:
            return None
        status = await batch.status()
        return BulkProgress(id_, scope, msgspec.convert(status.metadata, BulkMetadata), status)

    async def _batches(
        self, scope: str | None, state: Any, after: int = 0, *, newest_first: bool = False
    ) -> AsyncIterator[StoredBatch]:
        while True:
            asked = list_page(scope, state, after, newest_first=newest_first, operation=BULK)
            page: tuple[StoredBatch, ...] = await self._actions.perform(asked)
            for batch in page:
                after = batch.number
                if _read_metadata(batch) is not None:
                    yield batch
            if not page:
                return


class BulkRunner:
    """Carries out bulk actions in the background, each in a task of its own, and those that a dead process left.

    Args:
        bulk: what is carried out.
        monotonic: seconds that only grow.
    """

    def __init__(self, bulk: BulkActions, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bulk = bulk
        self._monotonic = monotonic
        self._look_from = -math.inf
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def begin(self, scope: str, id_: str) -> None:
        """Go on with a bulk action, unless that is under way here."""
        place = (scope, id_)
        if place not in self._tasks:
            task = self._tasks[place] = asyncio.create_task(self._run(scope, id_))
            task.add_done_callback(lambda _: self._tasks.pop(place, None))

    async def resume(self) -> int:
        """Go on with all that are not finished; answers how many."""
        unfinished = await self._bulk.unfinished()
        for scope, id_ in unfinished:
            self.begin(scope, id_)
        return len(unfinished)

    def look_for_left(self) -> None:
        """Go on in the background with what a dead process left, unless that was looked for a moment ago.

        A server that is mounted has nothing that runs by itself, so requests make it look.
        """
        now = self._monotonic()
        if now >= self._look_from and _LOOKING not in self._tasks:
            self._look_from = now + _LOOK_EVERY
            task = self._tasks[_LOOKING] = asyncio.create_task(self._look())
            task.add_done_callback(lambda _: self._tasks.pop(_LOOKING, None))

    async def join(self) -> None:
        """Wait until everything that is under way has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def close(self) -> None:
        """Leave what is under way to the next process."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        await self._try("looking for bulk actions", self.resume())

    async def _run(self, scope: str, id_: str) -> None:
        await self._try("a bulk action", self._bulk.run(scope, id_))

    async def _try(self, what: str, work: Awaitable[object]) -> None:
        try:
            await work
        except SemelError as error:
            _LOG.warning("%s stopped and is tried again later: %s", what, error.code)
        except Exception as error:  # noqa: BLE001 - what it says may be personal, and nobody awaits this task
            _LOG.error("%s ended with %s and is tried again later", what, type(error).__qualname__)


_STATUSES: Final[dict[str, tuple[Status, ...]]] = {
    "resolve": (Status.IN_DOUBT,),
    "cancel": (Status.IN_DOUBT,),
    "fail": (Status.IN_DOUBT,),
    "release": (Status.IN_DOUBT,),
    "reopen": (Status.FAILED, Status.CANCELLED),
    "erase": (Status.COMPLETED, Status.FAILED, Status.CANCELLED),
}
"""The statuses of records that each action is for; the record itself may refuse it all the same."""
_ENDS_DOUBT: Final = ("resolve", "cancel", "fail", "release")


def is_everywhere(batch: StoredBatch) -> bool:
    """Whether the bulk action that a batch is acts on all scopes: it exists for those alone who reach all."""
    metadata = _read_metadata(batch)
    return metadata is None or metadata.everywhere


def _read_metadata(batch: StoredBatch) -> BulkMetadata | None:
    """What a bulk action is to do; None where this release does not know that, so that it holds up no others."""
    try:
        return _metadata_in(batch)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        _LOG.warning("the bulk action %r cannot be read by this release: %s", batch.id, problem)
        return None


def _id_taken_error(id_: str) -> NotPossible:
    return NotPossible(
        f"The id {id_!r} stands for another bulk action; nothing was done. Choose another one.", because="id_taken"
    )


def _is_decided(record: Record, action: BulkAction, data: BulkItem, actor: str, reason: str) -> bool:
    """Whether it was this very bulk action that decided about a record last.

    A note alone does not tell: one of that id may have decided about it long ago, and be forgotten since.
    """
    note = record.note
    if note is None or note.by != actor or note.reason != reason:
        return False
    if action == "reopen":
        return not is_reopenable(record)
    return action == "erase" or record.fence != data.fence


def _metadata_in(batch: StoredBatch) -> BulkMetadata:
    return msgspec.json.decode(batch.metadata, type=BulkMetadata)


def _metadata_of(user: User, asked: BulkRequest) -> BulkMetadata:
    wanted: Any = asked.records if asked.letters is None else msgspec.structs.asdict(asked.letters)
    given = {name: value for name, value in (wanted or {}).items() if value not in (None, False)}
    written = {**given, **{name: age for name, age in asked.ages.items() if name in given}}
    told = [asked.action, asked.error, asked.reason, *(f"{name}={written[name]}" for name in sorted(written))]
    if asked.action == "resolve":
        told.append(f"value:{_value_text(asked.value)}")
    return BulkMetadata(
        action=asked.action,
        actor=user.name,
        roles=tuple(sorted(user.roles)),
        scopes=None if user.scopes is None else tuple(sorted(user.scopes)),
        reason=check_reason(asked.reason),
        everywhere=user.scopes is None and given.get("scope") is None,
        consumer=asked.letters.consumer if asked.letters is not None and asked.action == "redrive" else "",
        rate=asked.rate,
        searched_by=tuple(sorted(given)),
        asked=make_key(*told),
        moments={name: given[name] for name in asked.ages if name in given},
    )


def _as_of(asked: BulkRequest, moments: dict[str, datetime]) -> BulkRequest:
    """The same request with what its ages meant when it was begun."""
    if asked.letters is not None:
        return replace(asked, letters=msgspec.structs.replace(asked.letters, **moments))
    records: Any = {**(asked.records or {}), **moments}
    return replace(asked, records=records)


def _stated(asked: BulkRequest) -> dict[str, str]:
    """What an item keeps of what is stated for all."""
    if asked.action == "resolve":
        return {"value": _value_text(asked.value)}
    return {"error": asked.error.strip()} if asked.action == "fail" else {}


def _value_text(value: object) -> str:
    """A stated value as items keep it.

    Raises:
        Invalid: JSON has no such value, it cannot be stored, or it is too long.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        codec.encode_manual(value)
    except (TypeError, ValueError, RecursionError, UsageError) as error:
        raise Invalid(f"The value cannot be stated: {error}; nothing was done.", because="value") from error
    if len(text) > LONGEST_VALUE:
        raise Invalid(
            f"A value that is stated for many has at most {LONGEST_VALUE:,} characters as JSON; nothing was done.",
            because="value",
        )
    return text


async def _bounded(items: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    """The items, as long as there are not too many.

    Raises:
        Invalid: there are.
    """
    count = 0
    async for item in items:
        count += 1
        if count > MOST_ITEMS:
            raise Invalid(
                f"More than {MOST_ITEMS:,} match; nothing was done. Narrow the filter, and do it in parts.",
                because="too_many",
            )
        yield item
