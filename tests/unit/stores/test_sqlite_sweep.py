"""The sweep and the listing: bounded, oldest first, and never a record that is not settled."""

from semel.core.key import Key
from semel.core.operations import (
    Checkpoint,
    Complete,
    Fail,
    Granted,
    LapsedRecords,
    MarkLapsed,
    Page,
    Purge,
    Query,
    Recorded,
    Replay,
    Scan,
    SweepCount,
)
from semel.core.record import Failure, Status, Step
from tests.unit.stores.kit import Asker
from tests.unit.stores.operations import KEYS, claim, terms


def test_a_purge_is_bounded_and_takes_what_expired_first(asker: Asker) -> None:
    for number, key in enumerate(KEYS):
        lease = asker.one(claim(key, number=number, of=terms(keep=100 - number)), Granted).lease
        asker.one(Complete(lease, b"done"), Recorded)
    asker.clock.advance(100)
    assert asker.one(Purge(2), SweepCount) == SweepCount(2)
    assert [asker.record(key.digest) is None for key in KEYS] == [False, True, True]
    assert asker.one(Purge(2), SweepCount) == SweepCount(1)
    assert asker.one(Purge(2), SweepCount) == SweepCount(0)


def test_a_purge_without_a_limit_to_speak_of_deletes_nothing(asker: Asker) -> None:
    asker.one(Complete(asker.granted().lease, b"done"), Recorded)
    asker.clock.advance(3600)
    assert asker.one(Purge(-1), SweepCount) == SweepCount(0)


def test_a_purge_takes_the_steps_along(asker: Asker) -> None:
    lease = asker.granted().lease
    asker.one(Checkpoint(lease, Step(0, "reserve", b"1")), Recorded)
    asker.one(Complete(lease, b"done"), Recorded)
    asker.clock.advance(3600)
    asker.one(Purge(10), SweepCount)
    assert asker.writer().execute("SELECT count(*) FROM semel_step").fetchone() == (0,)


def test_what_is_in_doubt_or_running_is_never_purged(asker: Asker) -> None:
    asker.one(Fail(asker.granted().lease, "doubt", Failure("x", "y"), doubtful=True), Recorded)
    asker.one(claim(KEYS[1], number=2), Granted)
    asker.clock.advance(1_000_000)
    assert asker.one(Purge(10), SweepCount) == SweepCount(0)


def test_a_record_expires_at_the_very_instant(asker: Asker) -> None:
    asker.one(Complete(asker.granted().lease, b"done"), Recorded)
    asker.clock.now += 3600 * 1_000_000 - 1
    assert asker.one(Purge(10), SweepCount) == SweepCount(0)
    asker.one(claim(number=2), Replay)
    asker.clock.now += 1
    assert asker.one(claim(number=2), Granted).record.fence == 2


def test_marking_lapsed_leases_is_bounded(asker: Asker) -> None:
    for number, key in enumerate(KEYS):
        asker.one(claim(key, number=number), Granted)
    asker.clock.advance(30)
    assert asker.one(MarkLapsed(2), LapsedRecords).count == 2
    assert asker.one(MarkLapsed(2), LapsedRecords).count == 1
    in_doubt = asker.one(Scan(Query(status=Status.IN_DOUBT), None, 10), Page)
    assert len(in_doubt.records) == 3


def test_pages_follow_each_other_without_gap_or_repetition(asker: Asker) -> None:
    keys = [Key.of(f"k-{i}", operation="charge") for i in range(25)]
    asker.all([claim(key, number=i) for i, key in enumerate(keys)])
    found, cursor = [], None
    for _ in range(6):
        page = asker.one(Scan(Query(), cursor, 5), Page)
        found += [record.key for record in page.records]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(found) == 25
    assert set(found) == set(keys)
    assert [key.digest for key in found] == sorted(key.digest for key in keys)  # created at one instant
