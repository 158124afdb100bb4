"""The restore mark on MySQL and MariaDB: what a restored store cannot know is held, never run again."""

from typing import Any

import pytest

from semel import DidNotHappen, Policy, Semel
from semel.core.flow import run
from semel.core.key import Key
from semel.core.operations import (
    Checkpoint,
    Complete,
    Fail,
    Granted,
    InDoubtAnswer,
    Recorded,
    Replay,
    Resolve,
    Resolved,
)
from semel.core.record import Failure, Status, Step
from semel.errors import InDoubt, SchemaOutdated, StoreUnavailable, UsageError
from semel.stores.mysql import MysqlStore
from semel.stores.sql.admin import RESTORED, AdminConnection, SqlAdmin
from semel.stores.sql.dialect import Command
from tests.servers.databases import Databases
from tests.stores.mysql.kit import Asker, connected, rows, told
from tests.unit.stores.operations import KEYS, SECOND, START, Clock, claim, nonce, terms

pytestmark = pytest.mark.slow

HOUR = 3600 * SECOND
TRIGGERS = "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
ODD = 'it\'s "50%" \\ of ü?'


@pytest.fixture
def fresh(server: Databases) -> str:
    return server.new_database()


@pytest.fixture
def admin(fresh: str, clock: Clock) -> SqlAdmin:
    admin = MysqlStore(fresh, clock=clock).admin()
    admin.migrate()
    return admin


@pytest.fixture
def url(fresh: str, admin: SqlAdmin) -> str:
    """Where `asker` asks: in the database that `admin` has given its tables."""
    del admin
    return fresh


def completed(asker: Asker) -> None:
    asker.one(Complete(asker.one(claim(), Granted).lease, b"\x01"), Recorded)


def test_a_key_that_was_claimed_after_the_restore_point_is_held(asker: Asker, admin: SqlAdmin, fresh: str) -> None:
    completed(asker)
    rows(fresh, "DELETE FROM semel_record")  # the restore
    admin.restored(START, HOUR)
    answer = asker.one(claim(number=2), InDoubtAnswer)
    assert answer.remaining_us is None
    assert (answer.record.status, answer.record.in_doubt_policy) == (Status.IN_DOUBT, "hold")
    assert answer.record.error == RESTORED
    assert answer.record.attempts == 0


def test_without_the_mark_there_is_no_trigger(admin: SqlAdmin, fresh: str) -> None:
    assert rows(fresh, TRIGGERS) == []
    admin.restored(START, HOUR)
    assert rows(fresh, TRIGGERS) == [("semel_restored",)]
    assert admin.end_restored()
    assert rows(fresh, TRIGGERS) == []
    assert not admin.end_restored()


def test_all_of_a_list_are_held(asker: Asker, admin: SqlAdmin) -> None:
    admin.restored(START, HOUR)
    assert all(isinstance(answer, InDoubtAnswer) for answer in asker.all([claim(key) for key in KEYS]))


def test_what_is_recorded_is_replayed_all_the_same(asker: Asker, admin: SqlAdmin) -> None:
    completed(asker)
    admin.restored(START, HOUR)
    asker.one(claim(number=2), Replay)


@pytest.mark.parametrize("how", ["running", "in doubt", "failed, retryable"])
def test_what_was_unsettled_at_the_restore_point_is_held(asker: Asker, admin: SqlAdmin, how: str) -> None:
    lease = asker.one(claim(), Granted).lease
    if how != "running":
        ending = "doubt" if how == "in doubt" else "retry"
        asker.one(Fail(lease, ending, Failure("app.Broke", ""), doubtful=False), Recorded)  # type: ignore[arg-type]
    asker.clock.advance(60)
    assert admin.restored(asker.clock.now, HOUR).held == 1
    answer = asker.one(claim(number=2), InDoubtAnswer)
    assert (answer.record.in_doubt_policy, answer.record.completed_us) == ("hold", None)


def test_what_was_claimed_since_the_restore_is_left_alone(asker: Asker, admin: SqlAdmin) -> None:
    asker.clock.advance(10)
    lease = asker.one(claim(), Granted).lease
    assert admin.restored(START, HOUR).held == 0
    asker.one(Complete(lease, b"\x01"), Recorded)


def test_a_key_whose_record_had_expired_is_held_like_one_without(asker: Asker, admin: SqlAdmin, fresh: str) -> None:
    lease = asker.one(claim(), Granted).lease
    asker.one(Checkpoint(lease, Step(0, "reserve", b"one")), Recorded)
    asker.one(Complete(lease, b"\x01"), Recorded)
    asker.clock.advance(2 * 3600)
    assert admin.restored(asker.clock.now - HOUR, HOUR).forgotten == 1
    assert rows(fresh, "SELECT COUNT(*) FROM semel_step") == [(0,)]
    asker.one(claim(number=2), InDoubtAnswer)


def test_a_decision_lets_it_run_as_its_policy_says(asker: Asker, admin: SqlAdmin) -> None:
    admin.restored(START, HOUR)
    asker.one(claim(), InDoubtAnswer)
    asker.one(Resolve(KEYS[0].digest, nonce(9), Status.FAILED, None, "not in the books"), Resolved)
    granted = asker.one(claim(number=2, of=terms(in_doubt="reconcile")), Granted)
    assert (granted.record.status, granted.record.in_doubt_policy) == (Status.RUNNING, "reconcile")
    assert granted.record.attempts == 1


def test_a_failed_attempt_during_the_window_is_tried_again(admin: SqlAdmin, fresh: str, clock: Clock) -> None:
    admin.restored(START, HOUR)
    with Semel(MysqlStore(fresh, clock=clock), policy=Policy(retry_errors=(OSError,))) as semel:
        with pytest.raises(InDoubt):
            semel.run("o-1", lambda: None, operation="charge", fingerprint=None)
        semel.resolve("o-1", DidNotHappen(), operation="charge", reason="not in the books")
        with pytest.raises(OSError, match="down"):
            semel.run("o-1", _down, operation="charge", fingerprint=None)
        assert semel.run("o-1", lambda: "ran", operation="charge", fingerprint=None).value == "ran"


def _down() -> None:
    raise OSError("down")


@pytest.mark.parametrize("operation", ["refund", ODD], ids=["plain", "odd"])
def test_only_the_operations_that_are_named_are_held(asker: Asker, admin: SqlAdmin, operation: str) -> None:
    asker.one(claim(Key.of("o-8", operation=operation)), Granted)
    asker.one(claim(Key.of("o-9", operation="mail")), Granted)
    assert admin.restored(START, HOUR, ("charge", operation)).held == 1
    asker.one(claim(), InDoubtAnswer)
    asker.one(claim(Key.of("o-1", operation=operation)), InDoubtAnswer)
    asker.one(claim(Key.of("o-1", operation="mail")), Granted)


def test_after_the_window_new_keys_run(asker: Asker, admin: SqlAdmin) -> None:
    admin.restored(START, HOUR)
    asker.clock.now = START + HOUR - 1
    asker.one(claim(KEYS[0]), InDoubtAnswer)
    asker.clock.now += 1
    asker.one(claim(KEYS[1]), Granted)


def test_after_its_end_new_keys_run(asker: Asker, admin: SqlAdmin) -> None:
    admin.restored(START, HOUR)
    admin.end_restored()
    asker.one(claim(), Granted)


def test_a_claim_in_the_callers_transaction_is_held_too(admin: SqlAdmin, fresh: str, clock: Clock) -> None:
    ran: list[str] = []
    with Semel(MysqlStore(fresh, clock=clock)) as semel, connected(fresh) as connection:
        told(connection, "SELECT COUNT(*) FROM semel_meta FOR UPDATE")  # its snapshot may be older than the mark
        connection.rollback()
        told(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        admin.restored(START, HOUR)
        with pytest.raises(InDoubt):
            semel.within(connection).run("o-1", lambda: ran.append("ran"), operation="charge", fingerprint=None)
    assert ran == []


def test_a_record_that_the_callers_snapshot_lacks_is_replayed(
    asker: Asker, admin: SqlAdmin, fresh: str, clock: Clock
) -> None:
    admin.restored(START, HOUR)
    with Semel(MysqlStore(fresh, clock=clock)) as semel, connected(fresh) as connection:
        told(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        with pytest.raises(InDoubt):
            semel.run("o-1", lambda: "ran", operation="charge", fingerprint=None)
        semel.resolve("o-1", DidNotHappen(), operation="charge", reason="not in the books")
        semel.run("o-1", lambda: "ran", operation="charge", fingerprint=None)
        assert semel.within(connection).run("o-1", lambda: "again", operation="charge", fingerprint=None).value == "ran"


def test_a_restore_point_in_the_future_is_refused(admin: SqlAdmin) -> None:
    with pytest.raises(UsageError, match="future"):
        admin.restored(START + 1, HOUR)


def test_without_tables_there_is_nothing_to_mark(fresh: str) -> None:
    with pytest.raises(SchemaOutdated, match="semel migrate"):
        MysqlStore(fresh).admin().restored(0, HOUR)


def test_one_mark_replaces_another_without_a_moment_between(asker: Asker, admin: SqlAdmin, fresh: str) -> None:
    admin.restored(START, HOUR)
    standing: list[int] = []
    with AdminConnection(admin.context, admin.adapter) as talk:

        def perform(command: Command) -> Any:
            answer = talk._execute(command)
            standing.append(len(rows(fresh, TRIGGERS)))
            return answer

        run(admin.restoring.set_mark(START, 2 * HOUR, None), perform)
    assert min(standing) == 1
    assert standing[-1] == 1
    asker.clock.now += HOUR
    asker.one(claim(), InDoubtAnswer)


def test_a_mark_that_was_set_half_way_holds_and_can_be_taken_away(asker: Asker, admin: SqlAdmin, fresh: str) -> None:
    with AdminConnection(admin.context, admin.adapter) as talk:

        def perform(command: Command) -> Any:
            if command.text == "BEGIN":
                raise KeyboardInterrupt
            return talk._execute(command)

        with pytest.raises(KeyboardInterrupt):
            run(admin.restoring.set_mark(START, HOUR, None), perform)
    asker.one(claim(), InDoubtAnswer)
    assert admin.end_restored()
    assert rows(fresh, TRIGGERS) == []


def test_a_row_that_is_held_is_waited_for(asker: Asker, admin: SqlAdmin, fresh: str) -> None:
    asker.one(claim(), Granted)
    sent: list[str] = []
    with connected(fresh) as worker, AdminConnection(admin.context, admin.adapter) as talk:

        def perform(command: Command) -> Any:
            if command.text == "BEGIN" and not sent:
                told(worker, "SELECT digest FROM semel_record FOR UPDATE")
            if command.text == "ROLLBACK":
                worker.rollback()
            if command.text in ("BEGIN", "ROLLBACK", "COMMIT"):
                sent.append(command.text)
            return talk._execute(command)

        assert run(admin.restoring.set_mark(START, HOUR, None), perform).held == 1
    assert sent == ["BEGIN", "ROLLBACK", "BEGIN", "COMMIT"]


def test_a_mark_that_could_not_be_set_says_what_may_be_left_of_it(admin: SqlAdmin, fresh: str) -> None:
    with AdminConnection(admin.context, admin.adapter) as talk:

        def perform(command: Command) -> Any:
            if command.text == "BEGIN":
                message = "It was not to be had."
                raise StoreUnavailable(message)
            return [] if "SLEEP" in command.text else talk._execute(command)

        with pytest.raises(StoreUnavailable, match=r"It was not to be had\..* set in part"):
            run(admin.restoring.set_mark(START, HOUR, None), perform)
    assert rows(fresh, TRIGGERS) == [("semel_restored",)]


def test_partitions_are_marked_too(fresh: str, clock: Clock) -> None:
    admin = MysqlStore(fresh, clock=clock).admin()
    admin.migrate(partitions=3)
    admin.restored(START, HOUR)
    asker = Asker(MysqlStore(fresh, clock=clock), clock)
    answers = asker.all([claim(Key.of(f"o-{i}", operation="charge")) for i in range(9)])
    asker.driver.close()
    assert all(isinstance(answer, InDoubtAnswer) for answer in answers)
