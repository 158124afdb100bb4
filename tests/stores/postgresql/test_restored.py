"""The restore mark on PostgreSQL: what a restored store cannot know is held, never run again."""

from collections.abc import Iterator

import psycopg
import pytest

from semel import DidNotHappen, Policy, Semel
from semel.core.operations import Fail, Granted, InDoubtAnswer, Recorded, Replay
from semel.core.record import Failure, Status
from semel.errors import InDoubt, UsageError
from semel.stores.postgresql import PostgresStore
from semel.stores.sql.admin import RESTORED, SqlAdmin
from tests.stores.postgresql.kit import DAY, SECOND, Asker, claim, completions, rows
from tests.unit.stores.operations import START, Clock

HOUR = 3600 * SECOND


@pytest.fixture
def admin(url: str, clock: Clock) -> SqlAdmin:
    admin = PostgresStore(url, clock=clock).admin()
    admin.migrate()
    return admin


@pytest.fixture
def asker(url: str, clock: Clock, admin: SqlAdmin) -> Iterator[Asker]:
    asker = Asker(PostgresStore(url, clock=clock))
    yield asker
    asker.close()


def test_a_key_that_was_claimed_after_the_restore_point_is_held(asker: Asker, admin: SqlAdmin, url: str) -> None:
    backup = rows(url, "SELECT count(*) FROM semel_record")
    asker.all(completions([asker.one(claim("charged-and-forgotten"))]))
    rows(url, "DELETE FROM semel_record")  # the restore
    assert rows(url, "SELECT count(*) FROM semel_record") == backup
    admin.restored(START, HOUR)
    answer = asker.one(claim("charged-and-forgotten"))
    assert isinstance(answer, InDoubtAnswer)
    assert answer.remaining_us is None
    assert (answer.record.status, answer.record.in_doubt_policy) == (Status.IN_DOUBT, "hold")
    assert answer.record.error == RESTORED
    assert answer.record.attempts == 0


def test_without_the_mark_there_is_no_trigger(admin: SqlAdmin, url: str) -> None:
    triggers = (
        "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'semel_record'::regclass AND tgname NOT LIKE 'semel_history%'"
    )
    assert rows(url, triggers) == [(0,)]
    admin.restored(START, HOUR)
    assert rows(url, triggers) == [(1,)]
    assert admin.end_restored()
    assert rows(url, triggers) == [(0,)]
    assert not admin.end_restored()


def test_all_of_a_list_are_held(asker: Asker, admin: SqlAdmin) -> None:
    admin.restored(START, HOUR)
    assert all(isinstance(answer, InDoubtAnswer) for answer in asker.all([claim(f"o-{i}") for i in range(5)]))


def test_what_is_recorded_is_replayed_all_the_same(asker: Asker, admin: SqlAdmin) -> None:
    asker.all(completions([asker.one(claim())]))
    admin.restored(START, HOUR)
    assert isinstance(asker.one(claim()), Replay)


@pytest.mark.parametrize("how", ["running", "in doubt", "failed, retryable"])
def test_what_was_unsettled_at_the_restore_point_is_held(asker: Asker, admin: SqlAdmin, clock: Clock, how: str) -> None:
    lease = asker.lease(claim())
    if how != "running":
        asker.one(Fail(lease, "doubt" if how == "in doubt" else "retry", Failure("app.Broke", ""), doubtful=False))
    clock.now += 60 * SECOND
    assert admin.restored(clock.now, HOUR).held == 1
    assert isinstance(asker.one(claim()), InDoubtAnswer)


def test_what_was_claimed_since_the_restore_is_left_alone(asker: Asker, admin: SqlAdmin, clock: Clock) -> None:
    clock.now += 10 * SECOND
    granted = asker.one(claim())
    assert admin.restored(START, HOUR).held == 0
    assert isinstance(asker.one(completions([granted])[0]), Recorded)


def test_a_key_whose_record_had_expired_is_held_like_one_without(asker: Asker, admin: SqlAdmin, clock: Clock) -> None:
    asker.all(completions([asker.one(claim())]))
    clock.now += 2 * DAY
    assert admin.restored(clock.now - HOUR, HOUR).forgotten == 1
    assert isinstance(asker.one(claim()), InDoubtAnswer)


def test_a_decision_lets_it_run(asker: Asker, admin: SqlAdmin, url: str, clock: Clock) -> None:
    admin.restored(START, HOUR)
    with Semel(PostgresStore(url, clock=clock)) as semel:
        with pytest.raises(InDoubt):
            semel.run("o-1", lambda: "ran", operation="charge", fingerprint=None)
        semel.resolve("o-1", DidNotHappen(), operation="charge", reason="not in the books")
        assert semel.run("o-1", lambda: "ran", operation="charge", fingerprint=None).value == "ran"


def test_a_failed_attempt_during_the_window_is_tried_again_as_its_policy_says(
    admin: SqlAdmin, url: str, clock: Clock
) -> None:
    admin.restored(START, HOUR)
    with Semel(PostgresStore(url, clock=clock), policy=Policy(retry_errors=(OSError,))) as semel:
        with pytest.raises(InDoubt):
            semel.run("o-1", lambda: None, operation="charge", fingerprint=None)
        semel.resolve("o-1", DidNotHappen(), operation="charge", reason="not in the books")
        with pytest.raises(OSError, match="down"):
            semel.run("o-1", _down, operation="charge", fingerprint=None)
        semel.run("o-1", lambda: "ran", operation="charge", fingerprint=None)
        record = semel.read("o-1", operation="charge")
    assert record is not None
    assert (record.status, record.in_doubt_policy) == (Status.COMPLETED, "rerun")


def _down() -> None:
    raise OSError("down")


def test_other_operations_run_on(asker: Asker, admin: SqlAdmin) -> None:
    admin.restored(START, HOUR, ("charge", "refund"))
    assert isinstance(asker.one(claim(operation="charge")), InDoubtAnswer)
    assert isinstance(asker.one(claim(operation="mail")), Granted)


def test_after_the_window_new_keys_run(asker: Asker, admin: SqlAdmin, clock: Clock) -> None:
    admin.restored(START, HOUR)
    clock.now += HOUR - 1
    assert isinstance(asker.one(claim("just before")), InDoubtAnswer)
    clock.now += 1
    assert isinstance(asker.one(claim("at its end")), Granted)


def test_after_its_end_new_keys_run(asker: Asker, admin: SqlAdmin) -> None:
    admin.restored(START, HOUR)
    admin.end_restored()
    assert isinstance(asker.one(claim()), Granted)


def test_a_claim_in_the_callers_transaction_is_held_too(admin: SqlAdmin, url: str, clock: Clock) -> None:
    admin.restored(START, HOUR)
    ran: list[str] = []
    with Semel(PostgresStore(url, clock=clock)) as semel, psycopg.connect(url) as connection:
        connection.execute("SET search_path TO pg_temp, public")
        with pytest.raises(InDoubt):
            semel.within(connection).run("o-1", lambda: ran.append("ran"), operation="charge", fingerprint=None)
    assert ran == []


def test_a_restore_point_in_the_future_is_refused(admin: SqlAdmin) -> None:
    with pytest.raises(UsageError, match="future"):
        admin.restored(START + 1, HOUR)


def test_a_second_mark_takes_the_place_of_the_first(asker: Asker, admin: SqlAdmin, clock: Clock) -> None:
    admin.restored(START, HOUR)
    admin.restored(START, 2 * HOUR)
    clock.now += HOUR
    assert isinstance(asker.one(claim()), InDoubtAnswer)


def test_partitions_are_marked_too(url: str, clock: Clock) -> None:
    admin = PostgresStore(url, clock=clock).admin()
    admin.migrate(partitions=3)
    admin.restored(START, HOUR)
    asker = Asker(PostgresStore(url, clock=clock))
    answers = asker.all([claim(f"o-{i}") for i in range(9)])
    asker.close()
    assert all(isinstance(answer, InDoubtAnswer) for answer in answers)
