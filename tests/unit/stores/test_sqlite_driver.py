"""Rounds on the store's own connections: one commit, errors where they belong, bounded waiting, nothing left open."""

import sqlite3
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from semel.core.key import Key
from semel.core.operations import Complete, Fail, Granted, Read, Recorded, Renew, Running
from semel.core.record import Failure, Lease, Status
from semel.core.store import Plan
from semel.errors import RecordUnreadable, SchemaOutdated, StoreMisconfigured, StoreUnavailable
from semel.stores.sqlite import SqliteStore, database
from tests.unit.stores.kit import Asker, connected, opened
from tests.unit.stores.operations import KEYS, SECOND, Clock, claim, nonce, terms


def keys(count: int) -> list[Key]:
    return [Key.of(f"k-{i}", operation="charge") for i in range(count)]


def test_nothing_is_opened_before_first_use(path: Path) -> None:
    SqliteStore(path).driver().close()
    assert not path.exists()


def test_sixty_four_claims_go_as_one_commit(asker: Asker) -> None:
    with asker.traced() as told:
        answers = asker.all([claim(key, number=i) for i, key in enumerate(keys(64))])
    assert all(isinstance(answer, Granted) for answer in answers)
    assert told.count("COMMIT") == told.count("BEGIN IMMEDIATE") == 1


def test_plans_of_several_kinds_go_as_one_commit(asker: Asker) -> None:
    lease = asker.granted().lease
    with asker.traced() as told:
        replies = asker.driver.perform(
            [
                asker.store.plan([claim(KEYS[1], number=2)], joined=False),
                asker.store.plan([Renew(lease, 5)], joined=False),
                asker.store.plan([Read(KEYS[0].digest)], joined=False),
            ]
        )
    assert [len(reply) for reply in replies if not isinstance(reply, Exception)] == [1, 1, 1]
    assert told.count("COMMIT") == 1


def test_a_round_that_only_reads_never_takes_the_write_lock(asker: Asker, path: Path) -> None:
    asker.one(Complete(asker.granted().lease, b"done"), Recorded)
    with connected(path, None) as rival:
        rival.execute("BEGIN IMMEDIATE")
        (answer,) = asker.all([claim(number=2)])
    assert type(answer).__name__ == "Replay"


def test_the_same_key_twice_in_one_list_is_granted_once(asker: Asker) -> None:
    first, second = asker.all([claim(number=1), claim(number=2)])
    assert isinstance(first, Granted)
    assert isinstance(second, Running)


def test_a_claim_lost_between_the_look_and_the_write_is_refused(asker: Asker) -> None:
    def overtaken(plan: Plan) -> Plan:
        look = yield next(plan)
        asker.granted(number=9)
        command = plan.send(look)
        while True:
            try:
                command = plan.send((yield command))
            except StopIteration as stop:
                return list(stop.value)

    (reply,) = asker.driver.perform([overtaken(asker.store.plan([claim(number=1)], joined=False))])
    assert reply == [Running(30 * SECOND)]


def test_a_value_that_a_constraint_refuses_fails_only_its_own_operation(asker: Asker) -> None:
    short = claim(KEYS[0])
    bad = type(short)(KEYS[1], b"f", b"short", terms(), short.about)
    answers = asker.all([short, bad, claim(KEYS[2], number=3)])
    assert [type(answer) for answer in answers] == [Granted, sqlite3.IntegrityError, Granted]
    assert asker.record(KEYS[1].digest) is None
    assert asker.record(KEYS[2].digest) is not None


def test_a_number_too_large_to_bind_fails_only_its_own_operation(asker: Asker) -> None:
    first, second = asker.granted(), asker.one(claim(KEYS[1], number=2), Granted)
    answers = asker.all([Renew(first.lease, 2**70), Renew(second.lease, 7)])
    assert isinstance(answers[0], OverflowError)
    assert not isinstance(answers[1], Exception)


def test_half_a_surrogate_pair_in_an_error_is_recorded(asker: Asker) -> None:
    lease = asker.granted().lease
    fail = Fail(lease, "final", Failure("app.Broke", "file \udcff"), doubtful=False)
    assert asker.one(fail, Recorded) == asker.one(fail, Recorded)
    record = asker.record()
    assert record is not None
    assert record.error == Failure("app.Broke", "file \\udcff")


def test_a_full_disk_fails_the_whole_round_and_keeps_nothing(asker: Asker) -> None:
    asker.granted()
    writer = asker.writer()
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    lists = [[claim(key, number=i + 10)] for i, key in enumerate(keys(200))]
    replies = asker.driver.perform([asker.store.plan(each, joined=False) for each in lists])
    assert {type(reply) for reply in replies} == {StoreUnavailable}
    assert "disk is full" in str(replies[0])
    assert isinstance(replies[0], StoreUnavailable)
    assert isinstance(replies[0].__cause__, sqlite3.OperationalError)
    assert asker.record(keys(1)[0].digest) is None
    writer.execute("PRAGMA max_page_count = 1073741823")
    asker.one(lists[0][0], Granted)


def test_a_failed_commit_is_the_reply_of_every_plan_that_wrote(asker: Asker) -> None:
    writer = asker.writer()
    writer.execute("PRAGMA foreign_keys = ON")
    writer.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    writer.execute("CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    writer.execute("CREATE TRIGGER orphan AFTER INSERT ON semel_record BEGIN INSERT INTO child VALUES (1); END")
    replies = asker.driver.perform(
        [asker.store.plan([claim(key, number=i)], joined=False) for i, key in enumerate(KEYS)]
        + [asker.store.plan([Read(KEYS[0].digest)], joined=False)]
    )
    assert [type(reply) for reply in replies] == [sqlite3.IntegrityError] * 3 + [list]
    assert not writer.in_transaction
    assert asker.record() is None


def test_a_transaction_that_a_trigger_rolled_back_fails_the_whole_round(asker: Asker) -> None:
    asker.writer().execute(
        "CREATE TRIGGER undone AFTER INSERT ON semel_record WHEN NEW.value = 'o-1' "
        "BEGIN SELECT RAISE(ROLLBACK, 'undone'); END"
    )
    with pytest.raises(sqlite3.IntegrityError, match="undone"):
        asker.all([claim(key, number=i) for i, key in enumerate(KEYS)])
    assert [asker.record(key.digest) for key in KEYS] == [None, None, None]


def test_an_interrupt_inside_the_transaction_leaves_nothing_behind(path: Path) -> None:
    calls = []

    def clock() -> int:
        calls.append(1)
        if len(calls) == 4:  # the look, and the second of three writes
            raise KeyboardInterrupt
        return 1_700_000_000_000_000

    asker = Asker(SqliteStore(path, clock=clock), Clock())
    try:
        asker.writer()
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            asker.all([claim(key, number=i) for i, key in enumerate(KEYS)])
        assert not asker.writer().in_transaction
        assert asker.record() is None
        asker.granted()
    finally:
        asker.driver.close()


def test_a_held_write_lock_is_an_error_after_busy_for_and_nothing_is_recorded(path: Path) -> None:
    asker = Asker(SqliteStore(path, clock=Clock(), busy_for=timedelta(milliseconds=20)), Clock())
    try:
        asker.record()
        with connected(path, None) as rival:
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match=r"locked.*nothing was recorded"):
                asker.all([claim()])
        assert asker.record() is None
        asker.granted()
    finally:
        asker.driver.close()


def test_a_write_waits_for_the_lock_and_then_goes_through(
    asker: Asker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker.record()
    with connected(path, None) as rival:
        rival.execute("BEGIN IMMEDIATE")
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                rival.execute("COMMIT")

        monkeypatch.setattr("semel.stores.sqlite.database.time.sleep", pause)
        asker.granted()
    assert len(pauses) == 3
    assert len(set(pauses)) == 3  # jittered


def test_another_thread_that_writes_too_long_is_an_error(path: Path) -> None:
    asker = Asker(SqliteStore(path, clock=Clock(), busy_for=timedelta(milliseconds=20)), Clock())
    try:
        held = asker.driver._database()
        with held.writer(asker.store._settings, time.monotonic() + 1), pytest.raises(StoreUnavailable):
            asker.all([claim()])
    finally:
        asker.driver.close()


def test_threads_share_the_writer_and_each_key_is_granted_once(asker: Asker) -> None:
    wanted, granted = keys(20), []
    together = threading.Barrier(4)

    def work(number: int) -> None:
        together.wait()
        for index, key in enumerate(wanted):
            (answer,) = asker.all([claim(key, number=number * 1000 + index)])
            if isinstance(answer, Granted):
                granted.append(key)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key.value for key in granted) == sorted(key.value for key in wanted)


def test_two_stores_on_one_path_share_one_writer(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        assert one.writer() is other.writer()


def test_the_last_driver_closes_the_file(path: Path) -> None:
    with opened(path) as one:
        with opened(path) as other:
            other.granted()
        assert one.record() is not None
    assert (str(path), "FULL") not in database._process.open
    assert not path.with_name("semel.db-wal").exists()  # the last connection has written the log back


def test_a_driver_can_be_used_again_after_close(path: Path) -> None:
    with opened(path) as asker:
        asker.granted()
        asker.driver.close()
        assert asker.record() is not None


def test_a_driver_that_was_only_dropped_is_let_go_of_at_the_next_opening(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    driver = store.driver()
    driver.perform([store.plan([Read(KEYS[0].digest)], joined=False)])
    del driver
    with opened(tmp_path / "other.db") as asker:
        asker.record()
        assert (str(path), "FULL") not in database._process.open


def test_a_plan_that_breaks_does_not_break_its_neighbours(asker: Asker) -> None:
    replies = asker.driver.perform(
        [asker.store.plan([object()], joined=False), asker.store.plan([Read(KEYS[0].digest)], joined=False)]  # type: ignore[list-item]
    )
    assert isinstance(replies[0], KeyError)
    assert isinstance(replies[1], list)


def test_a_store_that_cannot_be_opened_is_the_reply_of_every_plan(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "missing" / "semel.db")
    driver = store.driver()
    replies = driver.perform(
        [
            store.plan([claim()], joined=False),
            store.plan([Complete(Lease(KEYS[0], 1, nonce(1), 0), b"x")], joined=False),
        ]
    )
    assert [type(reply) for reply in replies] == [StoreMisconfigured, StoreMisconfigured]


def test_a_record_of_a_newer_release_is_unreadable_and_its_neighbours_are_not(asker: Asker) -> None:
    asker.all([claim(KEYS[0], number=1), claim(KEYS[1], number=2)])
    writer = asker.writer()
    writer.execute("PRAGMA ignore_check_constraints = ON")
    writer.execute("UPDATE semel_record SET status = 'paused' WHERE digest = ?", (KEYS[0].digest,))
    answers = asker.all([claim(KEYS[0], number=3), claim(KEYS[1], number=4), claim(KEYS[2], number=5)])
    assert [type(answer) for answer in answers] == [RecordUnreadable, Running, Granted]
    assert "nothing ran" in str(answers[0])


def test_tables_that_vanished_are_an_outdated_schema(asker: Asker) -> None:
    asker.record()
    asker.writer().execute("DROP TABLE semel_record")
    (answer,) = asker.all([claim()])
    assert isinstance(answer, SchemaOutdated)
    assert "semel migrate" in str(answer)


def test_commits_are_synced_by_default(asker: Asker) -> None:
    assert asker.writer().execute("PRAGMA synchronous").fetchone() == (2,)
    assert asker.writer().execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_clock_that_steps_back_does_not_shorten_what_was_completed(asker: Asker) -> None:
    lease = asker.granted().lease
    asker.clock.advance(-3600)
    asker.one(Complete(lease, b"done"), Recorded)
    record = asker.record()
    assert record is not None
    assert record.status is Status.COMPLETED
