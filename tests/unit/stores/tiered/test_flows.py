"""What the tiers ask for, and in which order; stepped by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.circuit import Breaker
from semel.core.observer import Signal
from semel.core.operations import (
    Complete,
    Confirm,
    Erase,
    Erased,
    Found,
    Granted,
    Invalidate,
    Read,
    Recorded,
    Replay,
    Resolve,
    Resolved,
    Reused,
    Running,
)
from semel.core.record import About, Failure, Status, StoredRecord
from semel.errors import StoreUnavailable
from semel.stores.cache.logic import LARGEST, CacheBreaker, LruCache, Tiers
from semel.stores.cache.operations import (
    CacheGet,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheMiss,
    CachePut,
    CachePutResult,
    CacheRequest,
)
from semel.stores.cache.settings import Cache
from tests.unit.stores.operations import FINGERPRINTS, KEYS, SECOND, START, claim
from tests.unit.stores.tiered.records import completed

CLAIM = claim()
RECORD = completed(KEYS[0])
LOOK = CacheRequest(CacheGet(KEYS[0], b"epoch"))
REDIS_NOW = 5_000 * SECOND
MISSED = CacheMiss(b"epoch", REDIS_NOW)
REPLAY = Replay(RECORD, START + 1)


class World:
    """Tiers by hand: `step` answers what was asked for last, and gives what is asked for next, or the end."""

    def __init__(self, *, local: int = 0, **settings: Any) -> None:
        self.now = 100.0
        self.heard: list[tuple[str, str]] = []
        self.local = LruCache(local, 10**6) if local else None
        breaker = Breaker(failures=1, rest=1, longest=1, chance=lambda: 1.0)
        self.gate = CacheBreaker(breaker, lambda: self.now, self)
        cache = Cache(**{"url": "redis://host", "cap": 60, "local": local, **settings})
        self.tiers = Tiers(
            cache, self.gate, self.local, monotonic=lambda: self.now, observer=self, new_epoch=lambda: b"epoch"
        )

    def observe(self, event: Signal) -> None:
        self.heard.append((event.kind, event.detail))

    def played(self, operation: Any, *answers: Any) -> list[Any]:
        """What is asked for, one after the other, and at the end what comes of it."""
        flow = self.tiers.ask(operation)
        assert flow is not None
        wanted = [next(flow)]
        try:
            for answer in answers:
                step = flow.throw if isinstance(answer, Exception) else flow.send
                wanted += [step(answer)]
        except StopIteration as end:
            return [*wanted, end.value]
        raise AssertionError(wanted)


def test_a_hit_is_a_replay_and_nobody_else_is_asked() -> None:
    world = World()
    told = world.played(CLAIM, CacheHit(RECORD, START, SECOND))
    assert told == [LOOK, Replay(RECORD, START, "redis")]
    assert world.heard == [("cache_hit", "redis")]


def test_another_fingerprint_is_reused_by_the_cache_as_by_the_store() -> None:
    other = replace(CLAIM, fingerprint=FINGERPRINTS[1])
    assert World().played(other, CacheHit(RECORD, START, SECOND))[-1] == Reused(RECORD, START)


@pytest.mark.parametrize(
    "record", [completed(KEYS[1]), replace(RECORD, status=Status.RUNNING), replace(RECORD, status=Status.FAILED)]
)
def test_anything_but_a_completed_record_of_that_key_is_a_miss(record: StoredRecord) -> None:
    assert World().played(CLAIM, CacheHit(record, START, SECOND), Running(1)) == [LOOK, CLAIM, Running(1)]


def test_a_miss_asks_the_store_and_fills_in_what_it_replays() -> None:
    world = World()
    fill = CacheRequest(CachePut(RECORD, b"epoch", REDIS_NOW + 60 * SECOND, START + 1))
    assert world.played(CLAIM, MISSED, REPLAY, CachePutResult(done=True)) == [LOOK, CLAIM, fill, REPLAY]
    assert world.heard == [("cache_miss", "")]


def test_an_entry_lives_no_longer_than_the_record_counted_from_the_look() -> None:
    late = Replay(RECORD, RECORD.expires_us - 7 * SECOND)
    fill = World().played(CLAIM, MISSED, late, CachePutResult(done=True))[2]
    assert fill.operation.until_us == REDIS_NOW + 7 * SECOND


@pytest.mark.parametrize(
    "answer",
    [
        Running(1),
        Reused(RECORD, START),
        Granted(replace(RECORD, status=Status.RUNNING)),
        Replay(replace(RECORD, status=Status.FAILED, error=Failure("a", "b")), START),
        Replay(replace(RECORD, status=Status.CANCELLED), START),
        Replay(RECORD, RECORD.expires_us),
        Replay(replace(RECORD, outcome=b"x" * (LARGEST + 1)), START),
        Replay(replace(RECORD, about=About(tags={"note": "x" * LARGEST})), START),
    ],
)
def test_nothing_else_is_filled_in(answer: Any) -> None:
    assert World().played(CLAIM, MISSED, answer) == [LOOK, CLAIM, answer]


def test_without_an_epoch_nothing_is_filled_in() -> None:
    assert World().played(CLAIM, CacheMiss(b"", REDIS_NOW), REPLAY) == [LOOK, CLAIM, REPLAY]


def test_whatever_befalls_the_cache_the_store_is_asked() -> None:
    assert World().played(CLAIM, RuntimeError("a bug"), REPLAY) == [LOOK, CLAIM, REPLAY]


def test_a_fill_that_fails_is_nobodys_trouble() -> None:
    assert World().played(CLAIM, MISSED, REPLAY, StoreUnavailable("away"))[-1] == REPLAY


def test_a_cache_without_room_is_looked_into_and_not_filled_for_a_while() -> None:
    world = World()
    assert world.played(CLAIM, MISSED, REPLAY, CachePutResult(done=False, full=True))[-1] == REPLAY
    assert world.played(CLAIM, MISSED, REPLAY) == [LOOK, CLAIM, REPLAY]
    assert world.played(CLAIM, CacheHit(RECORD, START, SECOND)) == [LOOK, Replay(RECORD, START, "redis")]
    world.now += 5
    assert len(world.played(CLAIM, MISSED, REPLAY, CachePutResult(done=True))) == 4
    assert not world.gate.shut


def test_while_the_gate_is_shut_the_store_is_asked_at_once() -> None:
    world = World()
    world.gate.silent(StoreUnavailable("away"))
    assert world.played(CLAIM, REPLAY) == [CLAIM, REPLAY]


def test_a_completion_concerns_no_cache() -> None:
    lease = Granted(RECORD).lease
    assert World().tiers.ask(Complete(lease, b"x")) is None
    assert World().tiers.ask(Read(KEYS[0].digest)) is None


def test_what_the_process_keeps_is_at_hand_for_local_for_from_before_it_asked() -> None:
    world = World(local=10, local_for=5)
    world.played(CLAIM, CacheHit(RECORD, START, 60 * SECOND))
    world.now = 104.9
    assert world.tiers.at_hand(CLAIM) == Replay(RECORD, START, "process")
    world.now = 105.0
    assert world.tiers.at_hand(CLAIM) is None


def test_nor_for_longer_than_the_cache_would() -> None:
    world = World(local=10, local_for=5)
    world.played(CLAIM, CacheHit(RECORD, START, SECOND))
    world.now = 101.0
    assert world.tiers.at_hand(CLAIM) is None


def test_the_time_that_an_answer_took_is_taken_off() -> None:
    world = World(local=10, local_for=5)
    flow = world.tiers.ask(CLAIM)
    assert flow is not None
    next(flow)
    world.now = 105.0
    with pytest.raises(StopIteration):
        flow.send(CacheHit(RECORD, START, 60 * SECOND))
    assert world.tiers.at_hand(CLAIM) is None


def test_another_fingerprint_is_reused_by_the_process_too() -> None:
    world = World(local=10)
    world.played(CLAIM, CacheHit(RECORD, START, SECOND))
    assert world.tiers.at_hand(replace(CLAIM, fingerprint=FINGERPRINTS[1])) == Reused(RECORD, START)


ERASE = Erase(KEYS[0].digest, "note", KEYS[0].operation)
FOUND = Found(RECORD, START + 9)
DROP = CacheRequest(CacheInvalidate(KEYS[0].digest, KEYS[0].operation, 10 * SECOND))
REMEMBERED = CacheRequest(CacheInvalidate(KEYS[0].digest, KEYS[0].operation, (2 * 86_400 + 5) * SECOND))


def test_erasing_asks_the_store_first_and_confirms_once_the_cache_has() -> None:
    told = World().played(ERASE, Erased(RECORD), FOUND, CacheInvalidated(0), Recorded(START))
    assert told[0] == replace(ERASE, invalidates=True)
    assert told[2:] == [DROP, Confirm(KEYS[0].digest, START + 9), Erased(RECORD)]


def test_where_the_cache_does_not_answer_the_note_stays() -> None:
    assert World().played(ERASE, Erased(RECORD), FOUND, StoreUnavailable("away"))[-2:] == [DROP, Erased(RECORD)]


def test_where_processes_keep_records_the_note_stays_for_the_sweep() -> None:
    told = World(local=10).played(ERASE, Erased(RECORD), FOUND, CacheInvalidated(0))
    assert told[-2:] == [REMEMBERED, Erased(RECORD)]


def test_also_where_the_tombstone_is_of_an_earlier_drop() -> None:
    told = World(local=10).played(ERASE, Erased(RECORD), FOUND, CacheInvalidated(60 * SECOND))
    assert told[-2:] == [REMEMBERED, Erased(RECORD)]


def test_the_process_that_erases_forgets_at_once() -> None:
    world = World(local=10)
    world.played(CLAIM, CacheHit(RECORD, START, 60 * SECOND))
    world.played(ERASE, Erased(RECORD), FOUND, StoreUnavailable("away"))
    assert world.tiers.at_hand(CLAIM) is None


INVALIDATE = Invalidate(KEYS[0].digest, KEYS[0].operation, START)


LATER = Found(RECORD, START + 5 * SECOND)


def test_a_sweep_confirms_once_no_process_can_hold_it_any_more() -> None:
    assert World(local=10).played(INVALIDATE, LATER, CacheInvalidated(5 * SECOND))[-1] == Recorded(START + 5 * SECOND)


@pytest.mark.parametrize("cache", ["an earlier tombstone", "no shared cache"])
def test_where_the_note_alone_says_when_a_sweep_also_waits_for_the_commit_of_the_erase(cache: str) -> None:
    shared = cache == "an earlier tombstone"
    answer = [CacheInvalidated(1000 * SECOND)] if shared else []
    url = {} if shared else {"url": None}
    # The erase noted START, and somebody may have read what it erases for as long as it was not committed.
    early, late = (Found(RECORD, START + seconds * SECOND) for seconds in (64, 65))
    with pytest.raises(StoreUnavailable, match="stays noted"):
        World(local=10, **url).played(INVALIDATE, early, *answer)
    assert World(local=10, **url).played(INVALIDATE, late, *answer)[-1] == Recorded(late.now_us)


@pytest.mark.parametrize("answer", [CacheInvalidated(5 * SECOND - 1), StoreUnavailable("away")])
def test_and_not_before(answer: Any) -> None:
    with pytest.raises(StoreUnavailable, match="stays noted"):
        World(local=10).played(INVALIDATE, LATER, answer)


def test_nor_by_a_tombstone_that_is_older_than_the_note() -> None:
    with pytest.raises(StoreUnavailable, match="stays noted"):
        World(local=10).played(INVALIDATE, FOUND, CacheInvalidated(60 * SECOND))


@pytest.mark.parametrize(("answer", "answered"), [(CacheInvalidated(0), True), (StoreUnavailable("away"), False)])
def test_a_sweep_is_told_whether_the_cache_answered(answer: Any, *, answered: bool) -> None:
    with pytest.raises(StoreUnavailable, match="stays noted") as caught:
        World(local=10).played(INVALIDATE, LATER, answer)
    assert caught.value.conflict is answered


def test_a_store_whose_clock_was_set_back_is_no_reason_to_wait_where_no_process_keeps_records() -> None:
    told = World().played(INVALIDATE, Found(RECORD, START - SECOND), CacheInvalidated(0))
    assert told[-1] == Recorded(START - SECOND)


def test_a_doubt_that_is_ended_is_dropped_from_the_caches() -> None:
    resolve = Resolve(KEYS[0].digest, b"n", Status.CANCELLED, None, "note")
    told = World().played(resolve, Resolved(RECORD), CacheInvalidated(0))
    assert told == [resolve, CacheRequest(CacheInvalidate(KEYS[0].digest, "charge", 10 * SECOND)), Resolved(RECORD)]
