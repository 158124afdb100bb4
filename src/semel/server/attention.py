"""What needs a person: found by indexes alone, for all scopes or for those of a user.

- Under `hold` a record in doubt needs a person at once; under `reconcile` once its hook could not tell, or where what
  it said is sealed with a key that is not at hand; under `rerun` where nobody has asked for it again for a quarter of
  an hour. The rest is taken care of by retries, hooks and sweeps.
- Of each group the number, the oldest and the process that held it are told, and what to do. At most `MOST` records are
  looked at, and `MOST_ON_A_PAGE` where somebody waits: beyond that a number is a least one, and says so.
- Those looked at are the oldest of all scopes that are asked for, whichever scope they are of.
- What a store could only find by reading everything is named as not looked for, never as "nothing".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from semel.api import AsyncSemel
from semel.batch.control import list_page
from semel.core.batch.values import StoredBatch
from semel.core.events.letters import LetterQuery, ScanLetters, StoredLetter
from semel.core.events.outbox import MeasureLag, ParkedEvent, ScanParked
from semel.core.flow import Flow, ask
from semel.core.key import is_internal
from semel.core.operations import Query, Read, ReadHistory, Scan
from semel.core.policy import Doubt
from semel.core.record import (
    PROCESS_BYTES,
    UNREADABLE,
    Holder,
    Status,
    StoredRecord,
    holder_from_worker,
    instant,
    times_unknown,
)
from semel.core.sealing.values import SEALED
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.server.access import Permission, User
from semel.server.actions import Actions
from semel.server.actions.checks import BULK
from semel.server.audit.targets import batch_target, bulk_target
from semel.server.bulk import is_everywhere
from semel.server.engines import perform

MOST: Final = 10_000
"""How many records in doubt are looked at."""
MOST_ON_A_PAGE: Final = 1_000
"""The same where a page has to come at once, and again every other second; and how many letters, events and batches."""
UNTOUCHED: Final = timedelta(minutes=15)
"""For how long nobody may have asked for a record under `rerun` before it needs a person."""
_PAGE: Final = 500
_SMALLEST_PAGE: Final = 10
"""How many are read of each scope at least; where there are several, the oldest of each have to be known to compare."""
_BACKLOG: Final = 100_000
K = TypeVar("K")
T = TypeVar("T")
Kind = Literal["in_doubt", "dead_letter", "parked_key", "paused_batch", "paused_bulk"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Need:
    """Some of one kind, of one operation and policy, that need a person.

    Attributes:
        kind: `in_doubt`, `dead_letter`, `parked_key`, `paused_batch` or `paused_bulk`.
        operation: whose they are: an operation, a consumer, or a stream of the outbox.
        policy: for what is in doubt, what its owner's policy says.
        number: how many there are.
        is_exact: whether there are not more.
        oldest: since when the oldest has been waiting.
        target: the oldest one, as it is named to the actions.
        scope: whose the oldest one is; empty: shared.
        why: why it needs a person.
        holder: the process that had the oldest one, where it is known.
        suggestion: what to do.
        cause: for dead letters, the reason that they have in common; empty for everything else.
        paused_by: for paused batches and bulk actions, who paused the oldest one, where it is known and may be told.
    """

    kind: Kind
    operation: str
    policy: Doubt | None
    number: int
    is_exact: bool
    oldest: datetime
    target: str
    scope: str
    why: str
    holder: Holder | None
    suggestion: str
    cause: str = ""
    paused_by: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """What needs a person, the longest waiting first, what could not be looked for, and what not to its end.

    Attributes:
        cut: kinds of which there are so many that not all were looked at: more of them may need a person.
        without_hook: operations in doubt under `reconcile` whose hook is not known to this process: it cannot ask.
    """

    needs: tuple[Need, ...]
    not_looked_for: tuple[str, ...]
    at: datetime
    cut: tuple[Kind, ...] = ()
    without_hook: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """How many there are in all."""
        return sum(need.number for need in self.needs)


class AttentionFinder:
    """Finds what needs a person.

    Args:
        semel: the engine on whose store to look.
        untouched: how long a record under `rerun` may wait for its next attempt.
        most: how many records in doubt are looked at.
    """

    def __init__(self, semel: AsyncSemel, *, untouched: timedelta = UNTOUCHED, most: int = MOST) -> None:
        self._semel = semel
        self._most = most
        self._untouched = untouched
        self._store = engine_of(semel).store

    async def look(self, scopes: Iterable[str] | None = None, *, kinds: Collection[Kind] = KINDS) -> Needs:
        """What needs a person in these scopes, of these kinds; None: in all of them.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        asked: tuple[str | None, ...] = (None,) if scopes is None else tuple(sorted(scopes))
        has, missing, cut, without_hook = self._store.capabilities, list[str](), list[Kind](), set[str]()
        found: list[Need] = []
        if "in_doubt" in kinds and Capability.COUNT in has:
            found += await self._find_in_doubt(asked, cut, without_hook)
        elif "in_doubt" in kinds:
            missing.append("in_doubt")
        for capability, names, look in (
            (Capability.LETTERS, ("dead_letter",), self._find_letters),
            (Capability.OUTBOX, ("parked_key",), self._find_parked),
            (Capability.BATCH, ("paused_batch", "paused_bulk"), self._find_paused),
        ):
            if capability not in has or not set(names) & set(kinds):
                continue
            if Capability.COUNT in has:
                found += [need for need in await look(asked, cut) if need.kind in kinds]
            else:
                missing.append(names[0])  # a store that cannot count has no bulk actions
        found.sort(key=lambda need: (need.oldest, need.kind, need.operation))
        at = instant(await self._now_us())
        return Needs(tuple(found), tuple(missing), at, tuple(cut), tuple(sorted(without_hook)))

    async def backlog(self) -> tuple[tuple[str, int, datetime | None], ...]:
        """How many events of each stream are not published yet, and since when the oldest waits."""
        if Capability.OUTBOX not in self._store.capabilities or Capability.COUNT not in self._store.capabilities:
            return ()
        measured = await self._ask(MeasureLag(None, _BACKLOG))
        return tuple(
            (one.stream, one.waiting, None if one.oldest_us is None else instant(one.oldest_us))
            for one in measured.streams
        )

    async def count_lapsed(self) -> tuple[tuple[str, int, datetime], ...]:
        """How many leases of each operation are over and not swept yet, and since when the oldest of them is.

        That is no need of a person yet: a sweep marks them. Where none does, somebody has to hear of it.
        """
        if Capability.COUNT not in self._store.capabilities:
            return ()
        groups = _Groups[str, StoredRecord](self._most)
        query = Query(status=Status.RUNNING, stuck=True)
        async for record in _oldest_first([self._records(query)], groups):
            groups.add(record.key.operation, record, record.lease_us)
        return tuple((operation, group.number, instant(group.since_us)) for operation, group in groups.found.items())

    async def _find_in_doubt(
        self, scopes: tuple[str | None, ...], cut: list[Kind], without_hook: set[str]
    ) -> list[Need]:
        groups = _Groups[tuple[str, Doubt], StoredRecord](self._most)
        now_us = await self._now_us()
        sources = [self._records(Query(status=Status.IN_DOUBT, scope=scope)) for scope in scopes]
        async for record in _oldest_first(sources, groups):
            if _needs_person(record, self._untouched, now_us):
                groups.add((record.key.operation, record.in_doubt_policy), record, record.updated_us)
            if record.in_doubt_policy == "reconcile" and not self._has_hook(record.key.operation):
                without_hook.add(record.key.operation)
        cut += ["in_doubt"] * groups.is_cut
        holders = await self._find_holders([group.oldest for group in groups.found.values()])
        needs = []
        for (operation, policy), group in groups.found.items():
            oldest = group.oldest
            why, suggestion = _explain(policy, oldest, self._untouched)
            needs.append(
                Need(
                    kind="in_doubt",
                    operation=operation,
                    policy=policy,
                    number=group.number,
                    is_exact=not groups.is_cut,
                    oldest=instant(group.since_us),
                    target=oldest.reference,
                    scope=oldest.key.scope,
                    why=why,
                    holder=holders.get(oldest.nonce[:PROCESS_BYTES]),
                    suggestion=suggestion,
                )
            )
        return needs

    def _has_hook(self, operation: str) -> bool:
        known = engine_of(self._semel).known.get(operation)
        return known is not None and known.policy.reconcile is not None

    def _records(self, query: Query) -> _Source[StoredRecord]:
        async def read(cursor: tuple[int, bytes] | None, limit: int) -> tuple[Sequence[StoredRecord], Any]:
            page = await self._ask(Scan(query, cursor, limit))
            return page.records, page.cursor

        return _Source(read, lambda record: (record.created_us, record.key.digest))

    def _letters(self, scope: str | None) -> _Source[StoredLetter]:
        async def read(cursor: tuple[int, bytes] | None, limit: int) -> tuple[Sequence[StoredLetter], Any]:
            page = await self._ask(ScanLetters(LetterQuery(scope=scope), cursor, limit))
            return page.letters, page.cursor

        return _Source(read, lambda letter: (letter.first_us, letter.id))

    def _paused_batches(self, scope: str | None) -> _Source[StoredBatch]:
        async def read(after: int | None, limit: int) -> tuple[Sequence[StoredBatch], Any]:
            page = await perform(self._semel, list_page(scope, "paused", after or 0, limit=limit))
            return page, page[-1].number if page else None

        return _Source(read, lambda batch: batch.number)

    async def _find_letters(self, scopes: tuple[str | None, ...], cut: list[Kind]) -> list[Need]:
        groups = _Groups[tuple[str, str], StoredLetter](MOST_ON_A_PAGE)
        async for letter in _oldest_first([self._letters(scope) for scope in scopes], groups):
            groups.add((letter.consumer, letter.reason), letter, letter.first_us)
        cut += ["dead_letter"] * groups.is_cut
        return [
            Need(
                kind="dead_letter",
                operation=consumer,
                policy=None,
                number=group.number,
                is_exact=not groups.is_cut,
                oldest=instant(group.since_us),
                target=group.oldest.id.hex() + (group.oldest.record or b"").hex(),
                scope=group.oldest.scope,
                why=f"the consumer {consumer} could not process them: {reason.replace('_', ' ')}",
                holder=None,
                suggestion="Look at the error; redrive once its cause is gone, or discard.",
                cause=reason,
            )
            for (consumer, reason), group in groups.found.items()
        ]

    async def _find_parked(self, scopes: tuple[str | None, ...], cut: list[Kind]) -> list[Need]:
        measured = await self._ask(MeasureLag(None, 1))
        needs = []
        for stream in (one.stream for one in measured.streams if one.failed):
            groups = _Groups[str, ParkedEvent](MOST_ON_A_PAGE)
            keys: set[str | int] = set()
            after: int | None = 0
            while after is not None and groups.room > 0:
                page = await self._ask(ScanParked(stream, after, _PAGE))
                for event in page.events:
                    groups.looked_at += 1
                    if event.error is not None and (None in scopes or event.stored.event.scope in scopes):
                        keys.add(event.stored.event.ordering_key or event.stored.position)
                        groups.add(stream, event, event.parked_us)
                after = page.after
            if after is not None and "parked_key" not in cut:
                cut.append("parked_key")
            needs += [
                Need(
                    kind="parked_key",
                    operation=stream,
                    policy=None,
                    number=len(keys),
                    is_exact=after is None,
                    oldest=instant(group.since_us),
                    target=str(group.oldest.stored.position),
                    scope=group.oldest.stored.event.scope,
                    why="an event could not be published, and later ones of its key wait behind it",
                    holder=None,
                    suggestion="Look at the error; release the event once its cause is gone, or drop it.",
                )
                for group in groups.found.values()
            ]
        return needs

    async def _find_paused(self, scopes: tuple[str | None, ...], cut: list[Kind]) -> list[Need]:
        groups = _Groups[str, StoredBatch](MOST_ON_A_PAGE)
        async for batch in _oldest_first([self._paused_batches(scope) for scope in scopes], groups):
            if not is_internal(batch.operation) or (
                batch.operation == BULK and (None in scopes or not is_everywhere(batch))
            ):
                groups.add(batch.operation, batch, batch.updated_us)
        cut += ["paused_batch"] * groups.is_cut
        return [
            Need(
                kind="paused_bulk" if operation == BULK else "paused_batch",
                operation=operation,
                policy=None,
                number=group.number,
                is_exact=not groups.is_cut,
                oldest=instant(group.since_us),
                target=group.oldest.id,
                scope=group.oldest.scope,
                why=group.oldest.reason or "somebody paused it",
                holder=None,
                suggestion="Look at its failed items; resume it, or cancel it."
                if operation != BULK
                else "Look at what it does and what was refused; resume it, or cancel it.",
            )
            for operation, group in groups.found.items()
        ]

    async def _find_holders(self, records: Iterable[StoredRecord]) -> dict[bytes, Holder]:
        """The processes that these records in doubt name in their nonces.

        Of all records of one process one is asked for, and all processes together, so that the lane sends them as one
        list. What is settled and gone since names nobody.
        """
        one_of_each = {record.nonce[:PROCESS_BYTES]: record for record in records}
        found = await asyncio.gather(
            *(self._ask(ReadHistory(record.key.digest, record.key.operation)) for record in one_of_each.values())
        )
        workers = {worker.process: worker for answer in found for worker in answer.workers}
        return {process: holder for process in one_of_each if (holder := holder_from_worker(workers.get(process)))}

    async def _now_us(self) -> int:
        """The instant of the store, which is what records are dated by."""
        found = await self._ask(Read(bytes(32), operation=""))
        return int(found.now_us)

    async def _ask(self, operation: Any) -> Any:
        return await perform(self._semel, _asking(operation))


async def needs_of(actions: Actions, user: User, kinds: Collection[Kind] = KINDS) -> Needs:
    """What needs a person, in the scopes that exist for a user, of these kinds.

    Raises:
        Refused: the user may not list records, or the store did not answer.
    """
    actions.demand(user, Permission.LIST)
    finder = AttentionFinder(actions.semel, most=MOST_ON_A_PAGE)
    found: Needs = await actions.told(finder.look(user.scopes, kinds=kinds))
    return replace(
        found, needs=tuple(await asyncio.gather(*(_with_who_paused(actions, user, one) for one in found.needs)))
    )


async def _with_who_paused(actions: Actions, user: User, need: Need) -> Need:
    if need.kind not in _TARGETS:
        return need
    target = _TARGETS[need.kind](need.target)
    return replace(need, paused_by=await actions.find_who_paused(user, need.scope, target, reason=need.why))


_TARGETS: Final[dict[Kind, Callable[[str], str]]] = {"paused_batch": batch_target, "paused_bulk": bulk_target}
"""How the audit chain names what somebody paused."""


@dataclass(slots=True)
class _Group(Generic[T]):
    """Of what belongs together: how many, and the one that waits longest."""

    number: int
    since_us: int
    oldest: T


class _Groups(Generic[K, T]):
    """What was found, in groups, and how much was looked at for it."""

    def __init__(self, most: int) -> None:
        self.found: dict[K, _Group[T]] = {}
        self.looked_at = 0
        self.is_cut = False
        self._most = most

    @property
    def room(self) -> int:
        """How many more may be looked at."""
        return self._most - self.looked_at

    def add(self, place: K, one: T, since_us: int) -> None:
        """Count one that needs a person."""
        group = self.found.get(place)
        if group is None:
            self.found[place] = _Group(1, since_us, one)
            return
        group.number += 1
        if since_us < group.since_us:
            group.since_us, group.oldest = since_us, one


class _Source(Generic[T]):
    """What one scope has, the oldest first, read page by page as far as it is needed.

    Args:
        read: from a cursor (None: the beginning) and a limit to a page and the next cursor (None: it was the last).
        place: by what its pages are ordered.
    """

    def __init__(
        self, read: Callable[[Any, int], Awaitable[tuple[Sequence[T], Any]]], place: Callable[[T], Any]
    ) -> None:
        self._read = read
        self._place = place
        self._cursor: Any = None
        self._is_last = False
        self._waiting = deque[T]()

    async def find_place(self, limit: int) -> Any:
        """The place of the next one, for which at most so many are read; None: there is none."""
        while not self._waiting and not self._is_last:
            page, self._cursor = await self._read(self._cursor, limit)
            self._waiting.extend(page)
            self._is_last = self._cursor is None
        return self._place(self._waiting[0]) if self._waiting else None

    def take(self) -> T:
        """The next one, after its place was found."""
        return self._waiting.popleft()


async def _oldest_first(sources: Sequence[_Source[T]], groups: _Groups[Any, T]) -> AsyncIterator[T]:
    """The oldest of all sources, as many as may be looked at; each counts as looked at."""
    page = min(_PAGE, max(_SMALLEST_PAGE, groups.room // max(1, len(sources))))
    places = await asyncio.gather(*(source.find_place(page) for source in sources))
    ahead = [(place, number) for number, place in enumerate(places) if place is not None]
    heapify(ahead)
    while ahead and groups.room > 0:
        _, number = heappop(ahead)
        groups.looked_at += 1
        yield sources[number].take()
        place = await sources[number].find_place(
            min(page, groups.room + 1)
        )  # one more than fits says whether it is cut
        if place is not None:
            heappush(ahead, (place, number))
    groups.is_cut = bool(ahead)


def _needs_person(record: StoredRecord, untouched: timedelta, now_us: int) -> bool:
    match record.in_doubt_policy:
        case "hold":
            return True
        case "reconcile":
            return times_unknown(record.error) > 0 or _is_unreadable(record)
        case "rerun":
            return now_us - record.updated_us >= untouched // timedelta(microseconds=1)


def _is_unreadable(record: StoredRecord) -> bool:
    """Whether the last error of a record, which says what its hook said, is sealed with a key that is not at hand."""
    return record.error is not None and record.error.type in (SEALED, UNREADABLE)


def _explain(policy: Doubt, record: StoredRecord, untouched: timedelta) -> tuple[str, str]:
    """Why a record needs a person, and what to do."""
    look = "Look whether the effect is there, then resolve: happened, or did not happen."
    match policy:
        case "hold":
            return "it started, no outcome is known, and its policy lets nobody but a person decide", look
        case "reconcile" if _is_unreadable(record):
            return "what its reconcile hook said is sealed, and the key is not known here", f"Give the key. {look}"
        case "reconcile":
            times = times_unknown(record.error)
            asked = "once" if times == 1 else f"{times} times"
            return f"its reconcile hook was asked {asked} and could not tell whether it happened", look
        case "rerun":
            minutes = int(untouched.total_seconds() // 60)
            return (
                f"it may run again, and nobody has asked for it for {minutes} minutes",
                "Have its caller try again; if nobody will, resolve or cancel it.",
            )


def _asking(operation: Any) -> Flow[Any]:
    return (yield from ask(operation))
