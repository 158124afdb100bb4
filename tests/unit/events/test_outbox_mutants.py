"""The contract of outboxes notices outboxes that are wrong: each of these breaks one rule, and one scenario says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.events.outbox import (
    Cursor,
    CursorFound,
    CursorLost,
    CursorSaved,
    EraseEvents,
    EventBatch,
    EventsErased,
    EventsPurged,
    OutboxEvent,
    ParkedEvent,
    PurgeEvents,
    SaveCursor,
    StreamPart,
)
from semel.stores.events.outbox import MemoryOutbox
from semel.stores.memory import MemoryStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import OutboxContract
from semel.testing.contract.world import World


class SavesForAnybody(MemoryOutbox):
    """Without the fence."""

    def _save(self, operation: SaveCursor, now: int) -> CursorSaved | CursorLost:
        mine = self._cursors[operation.cursor.part]
        own = replace(operation.cursor, number=mine.number, token=mine.token)
        return super()._save(replace(operation, cursor=own), now)


class RefusesWhatItSaved(MemoryOutbox):
    """A save whose reply was lost is taken for that of a relay that was overtaken."""

    def _save(self, operation: SaveCursor, now: int) -> CursorSaved | CursorLost:
        if self._cursors[operation.cursor.part].number != operation.cursor.number:
            return CursorLost()
        return super()._save(operation, now)


class ForgetsWhereItWas(MemoryOutbox):
    """Whoever opens a part begins at its end, as if all had been published."""

    def _open(self, part: StreamPart, token: bytes, now: int) -> CursorFound:
        found = super()._open(part, token, now)
        at_end = replace(found.cursor, at=self._last)
        self._cursors[part] = at_end
        return replace(found, cursor=at_end)


class GoesByItsOwnDivision(MemoryOutbox):
    """Other divisions of the stream are not looked at."""

    def _open(self, part: StreamPart, token: bytes, now: int) -> CursorFound:
        others = {other: one for other, one in self._cursors.items() if other != part}
        self._cursors = {part: self._cursors[part]} if part in self._cursors else {}
        try:
            return super()._open(part, token, now)
        finally:
            self._cursors = {**others, **self._cursors}


class ReadsEveryStream(MemoryOutbox):
    def _read(self, cursor: Cursor, limit: int) -> EventBatch:
        found = tuple(one for one, _ in self._events.values() if one.position > cursor.at)[:limit]
        behind = replace(cursor, at=found[-1].position if found else self._last)
        return EventBatch(found, behind, is_last=len(found) < limit, may_read_on=len(found) == limit)


class SaysThatItIsAtTheEnd(MemoryOutbox):
    """A full batch moves the cursor past what did not fit into it."""

    def _read(self, cursor: Cursor, limit: int) -> EventBatch:
        batch = super()._read(cursor, limit)
        return replace(batch, cursor=replace(batch.cursor, at=self._last))


class HoldsNoKey(MemoryOutbox):
    def _held(self, part: StreamPart) -> frozenset[str | None]:
        return frozenset()


class ReleasesHeldKeys(MemoryOutbox):
    """What waits behind a parked event is given out before it."""

    def _released(self, part: StreamPart) -> list[ParkedEvent]:
        return [one for one in self._of_stream(part.stream) if part.has(one.stored.event) and one.error is None]


class BringsBackWhatWasDiscarded(MemoryOutbox):
    def _about_parked(self, operation: Any, now: int) -> Any:
        answer = super()._about_parked(operation, now)
        for one in getattr(operation, "failed", ()):
            self._parked[one.stored.position] = replace(one, parked_us=now)
        return answer


class BringsBackWhatWasErased(MemoryOutbox):
    def _save(self, operation: SaveCursor, now: int) -> CursorSaved | CursorLost:
        answer = super()._save(operation, now)
        if isinstance(answer, CursorSaved):
            self._park(operation.parked, now)
        return answer


class PurgesWhatWaits(MemoryOutbox):
    def _purge(self, operation: PurgeEvents, now: int) -> EventsPurged:
        return super()._purge(replace(operation, cursor=replace(operation.cursor, at=self._last)), now)


class PurgesWhatIsYoung(MemoryOutbox):
    def _purge(self, operation: PurgeEvents, now: int) -> EventsPurged:
        return super()._purge(replace(operation, keep_us=0), now)


class LetsParkedEventsExpireByItself(MemoryOutbox):
    def _purge(self, operation: PurgeEvents, now: int) -> EventsPurged:
        return super()._purge(replace(operation, keep_parked_us=operation.keep_parked_us or 0), now)


class ErasesByScopeAlone(MemoryOutbox):
    def _erase(self, operation: EraseEvents) -> EventsErased:
        return super()._erase(replace(operation, subject=None))


class LeavesParkedEventsWhenItErases(MemoryOutbox):
    def _erase(self, operation: EraseEvents) -> EventsErased:
        parked = dict(self._parked)
        try:
            return super()._erase(operation)
        finally:
            self._parked = parked


class AddsInAnyOrder(MemoryOutbox):
    def add(self, events: Iterable[OutboxEvent], now: int) -> None:
        super().add(list(events)[::-1], now)


MUTANTS: dict[type[MemoryOutbox], str] = {
    SavesForAnybody: "test_a_relay_that_was_overtaken_saves_nothing",
    RefusesWhatItSaved: "test_a_save_sent_again_answers_as_the_first_time",
    ForgetsWhereItWas: "test_what_was_not_saved_is_read_again_by_whoever_opens_next",
    GoesByItsOwnDivision: "test_another_division_begins_where_all_of_its_shards_were_published",
    ReadsEveryStream: "test_a_stream_has_its_own_events",
    SaysThatItIsAtTheEnd: "test_a_part_of_what_was_read_is_saved_and_the_rest_read_again",
    HoldsNoKey: "test_whoever_opens_a_part_is_told_which_keys_are_held",
    ReleasesHeldKeys: "test_a_parked_event_is_released_with_those_behind_it_in_order",
    BringsBackWhatWasDiscarded: "test_a_discarded_event_is_not_brought_back_by_its_failure",
    BringsBackWhatWasErased: "test_an_erased_event_is_not_brought_back_by_the_relay_that_had_read_it",
    PurgesWhatWaits: "test_published_events_are_purged_when_they_are_old_and_others_are_not",
    PurgesWhatIsYoung: "test_published_events_are_purged_when_they_are_old_and_others_are_not",
    LetsParkedEventsExpireByItself: "test_parked_events_expire_only_where_it_is_asked_for_and_only_those_that_failed",
    ErasesByScopeAlone: "test_erasing_lets_later_events_of_the_key_go_on",
    LeavesParkedEventsWhenItErases: "test_published_and_parked_events_are_erased_too",
    AddsInAnyOrder: "test_events_that_are_added_together_keep_their_order",
}


def _world(outbox: MemoryOutbox) -> World:
    clock = VirtualClock()
    store = MemoryStore(clock=clock.store_clock)
    store.table.outbox = outbox
    return World("async", clock, lambda: store)


def _scenario(name: str) -> Callable[..., None]:
    scenario: Callable[..., None] = getattr(OutboxContract(), name)
    return scenario


@pytest.mark.parametrize("name", sorted(set(MUTANTS.values())))
def test_an_outbox_as_it_should_be_passes(name: str) -> None:
    _scenario(name)(_world(MemoryOutbox()))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_an_outbox_that_is_wrong_is_noticed(mutant: type[MemoryOutbox]) -> None:
    with pytest.raises(AssertionError):
        _scenario(MUTANTS[mutant])(_world(mutant()))
