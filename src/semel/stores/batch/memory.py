"""Batches in memory: the rules that every store follows, as dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from semel.core.batch.operations import (
    AbandonLoad,
    AboutBatches,
    AddItems,
    BatchAnswer,
    BatchChangedState,
    BatchesFound,
    BatchFound,
    BeginRun,
    ChangeBatch,
    DropItems,
    DuplicateItems,
    EndBatch,
    EraseItems,
    ExpiredBatches,
    FindItems,
    FindPages,
    FindSubject,
    FinishLoad,
    FinishPage,
    ForgetItems,
    HeldBatches,
    ItemEnd,
    ItemsAdded,
    ItemsErased,
    ItemsForgotten,
    ItemsFound,
    ItemsSettled,
    ListBatches,
    LoadAbandoned,
    LoadLost,
    NoteBatch,
    OpenBatch,
    PageFinished,
    PagesFound,
    PageTaken,
    PlacesFound,
    RateReserved,
    ReadBatch,
    ReadItems,
    ReopenItems,
    ReserveRate,
    TakePage,
)
from semel.core.batch.values import (
    ABANDONED_US,
    ENDED,
    STOPPED,
    BatchCounts,
    BatchPage,
    ItemPlace,
    ItemStatus,
    State,
    StoredBatch,
    StoredItem,
    may_change,
)

RECENT_US: Final = 60_000_000
"""Over how long the rate of a batch is measured."""
ERASED_DATA: Final = b"null"


def state_after(batch: StoredBatch, operation: ChangeBatch) -> State | None:
    """The state that a batch is brought to; its own where it is so already, None where it cannot be."""
    match operation.to:
        case "paused" if batch.state in ("pending", "running", "paused"):
            return "paused"
        case "running" if batch.state == "paused":
            return "running" if batch.page else "pending"
        case "running" if batch.state in ("pending", "running"):
            return batch.state
        case "cancelled" if batch.state in ("loading", "pending", "running", "paused"):
            return "failed" if batch.has_overrun else "cancelled"
        case "cancelled" if batch.state in ("cancelled", "failed"):
            return batch.state
    return None


class PageRow(msgspec.Struct):
    """What is known of a page that was handed out."""

    round: int
    is_done: bool
    updated_us: int


class _Loaded(msgspec.Struct):
    """All that belongs to one batch."""

    batch: StoredBatch
    token: bytes
    items: dict[int, StoredItem]
    subjects: dict[int, str]
    ids: dict[str, int]
    pages: dict[int, PageRow]
    counts: dict[int, Counter[int]]
    free_us: int = 0

    def positions_of(self, page: int) -> range:
        """The positions of a page."""
        size = self.batch.page
        return range(page * size, min((page + 1) * size, self.batch.total))


class MemoryBatches:
    """Batches by number."""

    def __init__(self) -> None:
        self._batches: dict[int, _Loaded] = {}
        self._last = 0

    def apply(self, operation: AboutBatches, now: int) -> BatchAnswer:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case OpenBatch() | AddItems() | DropItems() | FinishLoad() | AbandonLoad() | NoteBatch():
                return self._load(operation, now)
            case ReadBatch() | ListBatches() | ReadItems() | FindItems() | FindSubject():
                return self._look(operation, now)
            case BeginRun() | TakePage() | FindPages() | FinishPage() | EndBatch() | ReserveRate():
                return self._work(operation, now)
            case ChangeBatch():
                return self._change(operation, now)
            case ReopenItems():
                return self._reopen(operation, now)
            case EraseItems():
                return self._erase(operation)
            case ForgetItems():
                return ItemsForgotten(self.forget(operation))
            case ExpiredBatches():
                return self._expire(operation, now)
            case HeldBatches(after, limit):
                held = (k.batch for k in self._batches.values() if k.batch.number > after and self._is_held(k, now))
                return BatchesFound(tuple(islice(held, limit)))
            case _:
                assert_never(operation)

    def settle(self, number: int, page: int, ends: Iterable[ItemEnd], now: int) -> None:
        """Note what became of items."""
        known = self._batches.get(number)
        if known is None or page not in known.pages:
            return
        for end in ends:
            item = known.items.get(end.position)
            if item is None or end.status is None or not may_change(item.status, end.status):
                continue
            self._set(known, item, end.status, end.outcome)
        known.pages[page].updated_us = now

    def recount(self, number: int) -> BatchCounts:
        """The counts, taken from the rows of items alone."""
        found = Counter(item.status for item in self._batches[number].items.values())
        return _counts(found)

    def _expire(self, operation: ExpiredBatches, now: int) -> BatchesFound:
        for number, known in self._batches.items():
            if operation.number in (None, number) and self._may_expire(known, now):
                known.batch = replace(known.batch, state="expired")
        gone = [known.batch for known in self._batches.values() if known.batch.state == "expired"]
        return BatchesFound(tuple(b for b in gone if operation.number in (None, b.number))[: operation.limit])

    def _may_expire(self, known: _Loaded, now: int) -> bool:
        return _is_old(known.batch, now) and not self._counts(known, now).in_doubt

    def _is_held(self, known: _Loaded, now: int) -> bool:
        return _is_old(known.batch, now) and bool(self._counts(known, now).in_doubt)

    def forget(self, operation: ForgetItems) -> bool:
        """Delete items of a batch that is expired, and at last all of it."""
        known = self._batches.get(operation.number)
        if known is None or known.batch.state != "expired":
            return False
        if operation.is_last:
            del self._batches[operation.number]
            return True
        for position in [position for position in known.items if position < operation.end]:
            del known.ids[known.items.pop(position).id]
            known.subjects.pop(position, None)
        return True

    def _set(self, known: _Loaded, item: StoredItem, status: int, outcome: bytes | None) -> None:
        counts = known.counts[item.position // known.batch.page]
        counts[item.status] -= 1
        counts[status] += 1
        known.items[item.position] = replace(item, status=int(status), outcome=outcome)

    def _counts(self, known: _Loaded, now: int) -> BatchCounts:
        found: Counter[int] = Counter()
        recent = 0
        pages: Counter[bool] = Counter()
        for page, counts in known.counts.items():
            found.update(counts)
            row = known.pages[page]
            if row.updated_us > now - RECENT_US:
                recent += sum(counts.values()) - counts[ItemStatus.PENDING]
                pages[row.is_done] += 1
        return replace(_counts(found), recent=recent, recent_done=pages[True], recent_open=pages[False])

    def _found(self, known: _Loaded | None, now: int) -> BatchFound:
        if known is None:
            return BatchFound(None, BatchCounts(), now)
        updated = max([known.batch.updated_us, *(row.updated_us for row in known.pages.values())])
        return BatchFound(replace(known.batch, updated_us=updated), self._counts(known, now), now)

    def _by_name(self, scope: str, id_: str) -> _Loaded | None:
        return next((k for k in self._batches.values() if k.batch.scope == scope and k.batch.id == id_), None)

    def _load(
        self, operation: OpenBatch | AddItems | DropItems | FinishLoad | AbandonLoad | NoteBatch, now: int
    ) -> BatchAnswer:
        if isinstance(operation, OpenBatch):
            return self._open(operation, now)
        known = self._batches.get(operation.number)
        if isinstance(operation, NoteBatch):
            if known is not None and known.batch.notes == operation.seen:
                known.batch = replace(known.batch, notes=operation.notes)
            return self._found(known, now)
        if isinstance(operation, AbandonLoad):
            if known is not None and _may_abandon(known, operation):
                del self._batches[operation.number]
            return LoadAbandoned()
        if known is None or known.token != operation.token:
            return LoadLost()
        if isinstance(operation, FinishLoad):
            return self._finish_load(known, operation, now)
        if known.batch.state != "loading":
            return LoadLost()
        return self._add(known, operation, now) if isinstance(operation, AddItems) else self._drop(known, operation)

    def _open(self, operation: OpenBatch, now: int) -> BatchFound:
        known = self._by_name(operation.scope, operation.id)
        if known is None:
            self._last += 1
            batch = StoredBatch(
                number=self._last,
                scope=operation.scope,
                id=operation.id,
                operation=operation.operation,
                state="loading",
                created_us=now,
            )
            known = self._batches[self._last] = _Loaded(batch, b"", {}, {}, {}, {}, {})
        if known.batch.state == "loading":
            known.token = operation.token
            if not known.batch.loaded:
                known.batch = replace(
                    known.batch,
                    operation=operation.operation,
                    metadata=operation.metadata,
                    keep_us=operation.keep_us,
                    updated_us=now,
                )
        return self._found(known, now)

    def _add(self, known: _Loaded, operation: AddItems, now: int) -> ItemsAdded | DuplicateItems | LoadLost:
        loaded = known.batch.loaded
        if loaded == operation.offset + operation.count:
            return ItemsAdded(loaded)  # the same again, after its reply was lost
        if loaded != operation.offset:
            return LoadLost()
        twice = tuple(sorted({item.id for item in operation.items if item.id in known.ids}))
        if twice:
            return DuplicateItems(twice)
        for item in operation.items:
            known.items[item.position] = StoredItem(
                item.position, item.id, item.data, item.about, int(ItemStatus.PENDING)
            )
            known.ids[item.id] = item.position
            if item.subject is not None:
                known.subjects[item.position] = item.subject
        known.batch = replace(known.batch, loaded=loaded + operation.count, updated_us=now)
        return ItemsAdded(known.batch.loaded)

    def _drop(self, known: _Loaded, operation: DropItems) -> ItemsAdded:
        down_to = max(operation.offset, known.batch.loaded - operation.limit)
        for position in [position for position in known.items if position >= down_to]:
            del known.ids[known.items.pop(position).id]
            known.subjects.pop(position, None)
        known.batch = replace(known.batch, loaded=min(down_to, known.batch.loaded))
        return ItemsAdded(known.batch.loaded)

    def _finish_load(self, known: _Loaded, operation: FinishLoad, now: int) -> BatchFound | LoadLost:
        if known.batch.state == "loading":
            if known.batch.loaded != operation.total:
                return LoadLost()
            known.batch = replace(
                known.batch, state="pending", total=operation.total, digest=operation.digest, updated_us=now
            )
        return self._found(known, now)

    def _look(
        self,
        operation: ReadBatch | ListBatches | ReadItems | FindItems | FindSubject,
        now: int,
    ) -> BatchAnswer:
        match operation:
            case ReadBatch(scope, id_):
                return self._found(self._by_name(scope, id_), now)
            case ListBatches(scope, state, after, limit, newest_first, wanted):
                every = [k.batch for k in self._batches.values()]
                if newest_first:
                    found = [b for b in reversed(every) if not after or b.number < after]
                else:
                    found = [b for b in every if b.number > after]
                seen = (b for b in found if b.state != "expired" and scope in (None, b.scope))
                fits = (b for b in seen if state in (None, b.state) and wanted in (None, b.operation))
                return BatchesFound(tuple(islice(fits, limit)))
            case ReadItems(number, first, end, None):
                return ItemsFound(tuple(self._items(number, first, end)))
            case ReadItems(number, first, end, status, limit):
                found_items = (item for item in self._items(number, first, end) if item.status == status)
                return ItemsFound(tuple(islice(found_items, limit)))
            case FindItems(number, ids):
                known = self._batches.get(number)
                places = [] if known is None else sorted(known.ids[id_] for id_ in set(ids) if id_ in known.ids)
                return ItemsFound(() if known is None else tuple(known.items[place] for place in places))
            case FindSubject():
                return self._about(operation)

    def _items(self, number: int, first: int, end: int) -> list[StoredItem]:
        known = self._batches.get(number)
        if known is None:
            return []
        found = (known.items.get(position) for position in range(first, min(end, known.batch.loaded)))
        return [item for item in found if item is not None]

    def _about(self, operation: FindSubject) -> PlacesFound:
        found = [
            ItemPlace(
                number,
                known.batch.scope,
                known.batch.id,
                known.batch.operation,
                known.batch.state,
                position,
                item.id,
                item.status,
            )
            for number, known in self._batches.items()
            for position, subject in known.subjects.items()
            if operation.scope in (None, known.batch.scope) and subject == operation.subject
            for item in [known.items[position]]
            if (number, position) > operation.after
        ]
        found.sort(key=lambda place: (place.number, place.position))
        return PlacesFound(tuple(found[: operation.limit]))

    def _work(
        self, operation: BeginRun | TakePage | FindPages | FinishPage | EndBatch | ReserveRate, now: int
    ) -> BatchAnswer:
        known = self._batches.get(operation.number)
        match operation:
            case BeginRun(_, page):
                if known is not None and known.batch.state == "pending":
                    size = known.batch.page or page
                    known.batch = replace(known.batch, state="running", page=size, started_us=now, updated_us=now)
                return self._found(known, now)
            case TakePage():
                return _take(known, now)
            case FindPages(_, which, after, limit):
                return PagesFound(() if known is None else _pages(known, which, after)[:limit])
            case FinishPage(_, page, number):
                return PageFinished(known is not None and self._finish_page(known, page, number))
            case EndBatch():
                return self._end(known, now)
            case ReserveRate(_, count, interval_us):
                if known is None:
                    return RateReserved(0)
                begin = max(known.free_us, now)
                known.free_us = begin + count * interval_us
                return RateReserved(begin - now)

    def _finish_page(self, known: _Loaded, page: int, number: int) -> bool:
        row = known.pages.get(page)
        if row is None or row.round != number or row.is_done:
            return row is not None and row.is_done
        if any(known.items[position].status == ItemStatus.PENDING for position in known.positions_of(page)):
            row.round += 1
            return False
        row.is_done = True
        return True

    def _end(self, known: _Loaded | None, now: int) -> BatchFound:
        is_handed_out = known is not None and known.batch.next_page >= known.batch.pages
        if known is not None and known.batch.state == "running" and is_handed_out and _is_done(known):
            known.batch = replace(known.batch, state="completed", ended_us=now, updated_us=now)
        return self._found(known, now)

    def _change(self, operation: ChangeBatch, now: int) -> BatchChangedState:
        known = self._batches.get(operation.number)
        state = None if known is None else state_after(known.batch, operation)
        if known is None or state is None:
            return BatchChangedState(None if known is None else known.batch, is_changed=False)
        if state != known.batch.state:
            changes: dict[str, Any] = {"reason": operation.reason, "has_overrun": operation.has_overrun}
            if state in ENDED:
                changes = {"reason": operation.reason or known.batch.reason, "ended_us": now}
            known.batch = replace(known.batch, state=state, updated_us=now, **changes)
        return BatchChangedState(known.batch, is_changed=True)

    def _reopen(self, operation: ReopenItems, now: int) -> ItemsSettled:
        known = self._batches.get(operation.number)
        row = None if known is None else known.pages.get(operation.page)
        if known is None or row is None or known.batch.state not in ("running", "paused", "completed"):
            return ItemsSettled()
        changed = 0
        for position in operation.positions:
            item = known.items.get(position)
            if item is not None and item.status == operation.status:
                self._set(known, item, ItemStatus.PENDING, None)
                changed += 1
        if changed:
            if row.is_done:
                row.is_done, row.round = False, row.round + 1
            state = "running" if known.batch.state == "completed" else known.batch.state
            known.batch = replace(known.batch, state=state, ended_us=None, updated_us=now)
        return ItemsSettled()

    def _erase(self, operation: EraseItems) -> ItemsErased:
        known = self._batches.get(operation.number)
        count = 0
        for position in operation.positions:
            item = None if known is None else known.items.get(position)
            if known is None or item is None or item.is_erased:
                continue
            if item.status == ItemStatus.IN_DOUBT:
                continue
            if item.status == ItemStatus.PENDING and known.batch.state not in STOPPED:
                continue
            known.items[position] = replace(item, data=ERASED_DATA, about=None, outcome=None, is_erased=True)
            known.subjects.pop(position, None)
            count += 1
        return ItemsErased(count)


def _is_old(batch: StoredBatch, now: int) -> bool:
    if batch.state == "loading":
        return batch.updated_us <= now - ABANDONED_US
    if batch.ended_us is None or batch.state not in ENDED:
        return False
    return batch.ended_us + batch.keep_us <= now


def _may_abandon(known: _Loaded, operation: AbandonLoad) -> bool:
    return known.batch.state == "loading" and not known.batch.loaded and known.token == operation.token


def _is_done(known: _Loaded) -> bool:
    return all(row.is_done for row in known.pages.values())


def _counts(found: Counter[int]) -> BatchCounts:
    return BatchCounts(
        completed=found[ItemStatus.COMPLETED],
        failed=found[ItemStatus.FAILED],
        skipped=found[ItemStatus.SKIPPED],
        in_doubt=found[ItemStatus.IN_DOUBT],
    )


def _take(known: _Loaded | None, now: int) -> PageTaken:
    if known is None:
        return PageTaken(None, "failed")
    batch = known.batch
    if batch.state != "running" or batch.next_page >= batch.pages:
        return PageTaken(None, batch.state)
    page = batch.next_page
    known.batch = replace(batch, next_page=page + 1)
    known.pages[page] = PageRow(0, is_done=False, updated_us=now)
    known.counts[page] = Counter({int(ItemStatus.PENDING): len(known.positions_of(page))})
    return PageTaken(BatchPage(page, 0), batch.state)


def _pages(known: _Loaded, which: str, after: int) -> tuple[BatchPage, ...]:
    status = {"failed": ItemStatus.FAILED, "in_doubt": ItemStatus.IN_DOUBT}.get(which)
    return tuple(
        BatchPage(page, row.round)
        for page, row in known.pages.items()
        if page > after and (which == "all" or (not row.is_done if status is None else known.counts[page][status] > 0))
    )
