"""Joining the caller's transaction: the record commits or rolls back with the caller's rows, or the join is refused."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from semel.core.operations import (
    Answer,
    Checkpoint,
    Complete,
    Fail,
    Granted,
    JoinTransaction,
    Lost,
    Operation,
    Read,
    Recorded,
    Replay,
    Running,
    TransactionJoined,
)
from semel.core.record import Failure, Status, Step
from semel.errors import NotInTransaction, SchemaOutdated, TransactionAborted, UsageError
from semel.stores.sqlite import SqliteStore, migrate
from semel.stores.sqlite.joined import SqliteJoined
from tests.unit.stores.kit import Asker, connected
from tests.unit.stores.operations import ABOUTS, KEYS, SECOND, Clock, claim

T = TypeVar("T", bound=Answer)


class Caller:
    """A caller's connection joined to a store."""

    def __init__(self, store: SqliteStore, connection: sqlite3.Connection) -> None:
        self.store = store
        self.connection = connection
        self.joined = store.join(connection)

    def one(self, operation: Operation, kind: type[T]) -> T:
        (answer,) = self.joined.perform(self.store.plan([operation], joined=True))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, kind), answer
        return answer


@pytest.fixture
def caller(asker: Asker, path: Path) -> Iterator[Caller]:
    asker.record()
    with connected(path) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        yield Caller(asker.store, connection)


def test_the_record_commits_with_the_callers_rows(caller: Caller, asker: Asker) -> None:
    lease = caller.one(claim(), Granted).lease
    caller.connection.execute("INSERT INTO orders VALUES ('o-1')")
    caller.one(Complete(lease, b"done"), Recorded)
    assert asker.record() is None
    caller.connection.commit()
    record = asker.record()
    assert record is not None
    assert (record.status, record.outcome) == (Status.COMPLETED, b"done")


def test_the_record_rolls_back_with_the_callers_rows(caller: Caller, asker: Asker) -> None:
    lease = caller.one(claim(), Granted).lease
    caller.one(Complete(lease, b"done"), Recorded)
    caller.connection.rollback()
    assert asker.record() is None
    asker.granted(number=2)


def test_a_stored_failure_lasts_if_the_caller_commits(caller: Caller, asker: Asker) -> None:
    lease = caller.one(claim(), Granted).lease
    caller.one(Fail(lease, "final", Failure("app.Declined", "no"), doubtful=False), Recorded)
    caller.connection.commit()
    assert asker.one(claim(number=2), Replay).record.error == Failure("app.Declined", "no")


def test_a_claim_and_its_completion_are_two_statements_and_a_savepoint(caller: Caller) -> None:
    caller.joined.perform(caller.store.plan([Read(KEYS[2].digest)], joined=True))
    told: list[str] = []
    caller.connection.set_trace_callback(lambda text: told.append(text.split()[0]))
    lease = caller.one(claim(), Granted).lease
    caller.one(Complete(lease, b"done"), Recorded)
    assert told == ["PRAGMA", "BEGIN", "INSERT", "SAVEPOINT", "RELEASE", "UPDATE"]


def test_a_joined_claim_has_no_lease(caller: Caller) -> None:
    assert caller.one(claim(), Granted).record.lease_us == Clock().now


def test_a_duplicate_inside_a_transaction_replays(caller: Caller, asker: Asker) -> None:
    asker.one(Complete(asker.granted().lease, b"done"), Recorded)
    assert caller.one(claim(number=2), Replay).record == asker.record()


def test_a_take_over_inside_a_transaction_has_the_finished_steps(caller: Caller, asker: Asker) -> None:
    lease = asker.granted().lease
    asker.one(Checkpoint(lease, Step(0, "réserve", b"1")), Recorded)
    asker.clock.advance(30)
    granted = caller.one(claim(number=2), Granted)
    assert (granted.in_doubt, granted.record.fence) == (True, 2)
    assert granted.record.steps == (Step(0, "réserve", b"1"),)


def test_a_new_life_inside_a_transaction_has_no_steps(caller: Caller, asker: Asker) -> None:
    lease = asker.granted().lease
    asker.one(Checkpoint(lease, Step(0, "reserve", b"1")), Recorded)
    asker.one(Complete(lease, b"done"), Recorded)
    asker.clock.advance(3600)
    assert caller.one(claim(number=2), Granted).record.steps == ()
    assert caller.connection.execute("SELECT count(*) FROM semel_step").fetchone() == (0,)


def test_operations_nest_in_one_transaction(caller: Caller, asker: Asker) -> None:
    outer = caller.one(claim(KEYS[0], number=1), Granted).lease
    inner = caller.one(claim(KEYS[1], number=2), Granted).lease
    caller.one(Complete(inner, b"inner"), Recorded)
    caller.one(Complete(outer, b"outer"), Recorded)
    caller.connection.commit()
    assert [asker.one(claim(key, number=9), Replay).record.outcome for key in KEYS[:2]] == [b"outer", b"inner"]


def test_savepoints_of_the_handler_do_no_harm(caller: Caller) -> None:
    lease = caller.one(claim(), Granted).lease
    for statement in ("SAVEPOINT mine", "INSERT INTO orders VALUES ('x')", "ROLLBACK TO mine", "RELEASE mine"):
        caller.connection.execute(statement)
    caller.one(Complete(lease, b"done"), Recorded)


@pytest.mark.parametrize("then", [[], ["BEGIN"], ["BEGIN IMMEDIATE"]])
def test_a_commit_inside_the_handler_is_noticed_and_leaves_the_record_in_doubt(
    caller: Caller, asker: Asker, then: list[str]
) -> None:
    lease = caller.one(claim(), Granted).lease
    caller.connection.commit()
    for statement in then:
        caller.connection.execute(statement)
    with pytest.raises(NotInTransaction, match="in doubt"):
        caller.one(Complete(lease, b"done"), Recorded)
    caller.connection.rollback()
    record = asker.record()
    assert record is not None
    assert (record.status, record.outcome) == (Status.RUNNING, None)
    assert asker.granted(number=2).in_doubt


def test_a_rollback_inside_the_handler_is_noticed(caller: Caller, asker: Asker) -> None:
    lease = caller.one(claim(), Granted).lease
    caller.connection.rollback()
    with pytest.raises(NotInTransaction, match="rolled"):
        caller.one(Fail(lease, "doubt", Failure("x", "y"), doubtful=True), Recorded)
    assert asker.record() is None


def test_a_rollback_to_before_the_claim_is_noticed(caller: Caller) -> None:
    caller.connection.execute("INSERT INTO orders VALUES ('x')")
    caller.connection.execute("SAVEPOINT mine")
    lease = caller.one(claim(), Granted).lease
    caller.connection.execute("ROLLBACK TO mine")
    with pytest.raises(NotInTransaction):
        caller.one(Complete(lease, b"done"), Recorded)


def test_only_connections_of_sqlite3_can_be_joined(asker: Asker) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        asker.store.join(object())


def test_a_connection_in_autocommit_without_a_transaction_is_refused(asker: Asker, path: Path) -> None:
    asker.record()
    with connected(path, None) as connection:
        with pytest.raises(NotInTransaction, match="nothing ran"):
            Caller(asker.store, connection).one(claim(), Granted)
        assert not connection.in_transaction
    assert asker.record() is None


def test_a_connection_in_autocommit_with_a_transaction_is_joined(asker: Asker, path: Path) -> None:
    asker.record()
    with connected(path, None) as connection:
        connection.execute("BEGIN")
        Caller(asker.store, connection).one(claim(), Granted)
        connection.execute("COMMIT")
    assert asker.record() is not None


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "autocommit"), reason="autocommit= came with Python 3.12")
def test_the_autocommit_attribute_is_understood(asker: Asker, path: Path) -> None:
    asker.record()
    options: dict[str, Any] = {"autocommit": True, "timeout": 0}
    connection = sqlite3.connect(path, **options)
    with pytest.raises(NotInTransaction):
        Caller(asker.store, connection).one(claim(), Granted)
    connection.close()
    connection = sqlite3.connect(path, **{**options, "autocommit": False})
    Caller(asker.store, connection).one(claim(), Granted)
    connection.commit()
    connection.close()
    assert asker.record() is not None


def test_a_connection_to_another_file_is_refused(asker: Asker, tmp_path: Path) -> None:
    asker.record()
    migrate(tmp_path / "other.db")
    with connected(tmp_path / "other.db") as connection:
        with pytest.raises(NotInTransaction, match=r"other\.db"):
            Caller(asker.store, connection).one(claim(), Granted)
        assert not connection.in_transaction


def test_a_connection_to_a_copy_of_the_file_is_refused(asker: Asker, path: Path, tmp_path: Path) -> None:
    asker.record()
    asker.writer().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, tmp_path / "copy.db")
    with connected(tmp_path / "copy.db") as connection, pytest.raises(NotInTransaction):
        Caller(asker.store, connection).one(claim(), Granted)


def test_the_check_of_the_file_does_not_fix_what_the_transaction_sees(caller: Caller, asker: Asker) -> None:
    caller.connection.execute("BEGIN")
    assert isinstance(caller.joined, SqliteJoined)
    caller.joined._demand_transaction()
    asker.granted(number=9)
    caller.connection.execute("INSERT INTO orders VALUES ('not BUSY_SNAPSHOT')")


def test_a_connection_to_memory_is_refused(asker: Asker) -> None:
    asker.record()
    connection = sqlite3.connect(":memory:")
    with pytest.raises(NotInTransaction, match="memory"):
        Caller(asker.store, connection).one(claim(), Granted)
    connection.close()


def test_a_file_that_was_exchanged_under_its_path_is_refused(path: Path, tmp_path: Path) -> None:
    migrate(path)
    store = SqliteStore(path, clock=Clock())
    with connected(path) as connection:
        Caller(store, connection).one(claim(), Granted)
        connection.rollback()
    migrate(tmp_path / "other.db")
    (tmp_path / "other.db").rename(path)
    with connected(path) as connection:
        with pytest.raises(NotInTransaction, match="another database"):
            Caller(store, connection).one(claim(), Granted)
        assert connection.execute("SELECT count(*) FROM semel_record").fetchone() == (0,)


def test_a_file_that_lost_its_tables_is_refused(caller: Caller) -> None:
    caller.one(claim(), Granted)
    caller.connection.rollback()
    caller.connection.execute("DROP TABLE semel_record")
    with pytest.raises(NotInTransaction, match="semel's tables"):
        caller.one(claim(), Granted)


def test_a_closed_connection_is_refused(caller: Caller) -> None:
    caller.connection.close()
    with pytest.raises(NotInTransaction, match="closed"):
        caller.one(claim(), Granted)


def test_a_connection_of_another_thread_is_refused(caller: Caller) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            caller.one(claim(), Granted)
        except NotInTransaction as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "thread" in str(errors[0])


def test_the_first_use_of_a_file_inside_its_own_transaction_is_refused_at_once(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE orders (id TEXT)")
        connection.execute("INSERT INTO orders VALUES ('o-1')")
        with pytest.raises(SchemaOutdated, match="semel migrate"):
            Caller(SqliteStore(path), connection).one(claim(), Granted)


def test_the_first_use_of_a_file_may_be_a_join(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        Caller(SqliteStore(path), connection).one(claim(), Granted)
        connection.commit()
        assert connection.execute("SELECT count(*) FROM semel_record").fetchone() == (1,)


@pytest.mark.parametrize("text_factory", [str, bytes, bytes.upper])
def test_factories_and_converters_of_the_caller_neither_disturb_nor_change(
    asker: Asker, path: Path, text_factory: Any
) -> None:
    lease = asker.one(claim(about=ABOUTS[1]), Granted).lease
    asker.one(Checkpoint(lease, Step(0, "réserve", b"1")), Recorded)
    asker.one(Fail(lease, "final", Failure("app.Declined", "nö"), doubtful=False), Recorded)
    for name in ("TEXT", "INTEGER", "BLOB"):
        sqlite3.register_converter(name, lambda _: "converted")
    connection = sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
    try:
        connection.row_factory = row_factory = lambda _, row: {"row": row}
        connection.text_factory = text_factory
        caller = Caller(asker.store, connection)
        assert caller.one(claim(number=2), Replay).record == asker.record()
        caller.one(claim(KEYS[1], number=3), Granted)
        assert connection.row_factory is row_factory
        assert connection.text_factory is text_factory
        connection.rollback()
    finally:
        connection.close()
        for name in ("TEXT", "INTEGER", "BLOB"):
            sqlite3.converters.pop(name)


def test_a_write_lock_held_by_others_answers_running(caller: Caller, path: Path) -> None:
    with connected(path, None) as rival:
        rival.execute("BEGIN IMMEDIATE")
        assert caller.one(claim(), Running) == Running(50_000)
        rival.execute("ROLLBACK")
        caller.one(claim(), Granted)


def test_a_transaction_that_read_an_older_state_is_aborted(caller: Caller, asker: Asker) -> None:
    caller.connection.execute("BEGIN")
    caller.connection.execute("SELECT * FROM orders").fetchall()
    asker.granted(number=9)
    with pytest.raises(TransactionAborted, match="all of it again"):
        caller.one(claim(), Granted)


def test_a_deferred_transaction_that_has_not_read_sees_what_was_written_since(caller: Caller, asker: Asker) -> None:
    caller.connection.execute("BEGIN")
    asker.one(Complete(asker.granted(number=9).lease, b"done"), Recorded)
    caller.one(claim(), Replay)


def test_a_transaction_that_was_rolled_back_under_us_is_aborted(caller: Caller) -> None:
    caller.connection.execute(
        "CREATE TEMP TRIGGER gone BEFORE UPDATE ON semel_record BEGIN SELECT RAISE(ROLLBACK, 'gone'); END"
    )
    lease = caller.one(claim(), Granted).lease
    with pytest.raises(TransactionAborted, match="run all of it again"):
        caller.one(Complete(lease, b"done"), Recorded)


def test_a_step_commits_with_its_effect(caller: Caller, asker: Asker) -> None:
    lease = asker.granted().lease
    name = caller.one(JoinTransaction(lease), TransactionJoined).transaction
    caller.connection.execute("INSERT INTO orders VALUES ('o-1')")
    inside = type(lease)(lease.key, lease.fence, lease.nonce, lease.until, name)
    caller.one(Checkpoint(inside, Step(0, "reserve", b"1")), Recorded)
    assert asker.record().steps == ()  # type: ignore[union-attr]
    caller.connection.commit()
    assert asker.record().steps == (Step(0, "reserve", b"1"),)  # type: ignore[union-attr]


def test_a_step_begins_the_transaction_of_a_default_connection(caller: Caller, asker: Asker) -> None:
    caller.one(JoinTransaction(asker.granted().lease), TransactionJoined)
    assert caller.connection.in_transaction


def test_a_step_in_autocommit_is_refused(asker: Asker, path: Path) -> None:
    lease = asker.granted().lease
    with connected(path, None) as connection, pytest.raises(NotInTransaction):
        Caller(asker.store, connection).one(JoinTransaction(lease), TransactionJoined)


def test_a_step_of_a_lost_lease_is_not_entered(caller: Caller, asker: Asker) -> None:
    lease = asker.granted().lease
    asker.clock.advance(30)
    asker.granted(number=2)
    caller.one(JoinTransaction(lease), Lost)


def test_a_commit_inside_a_step_is_noticed(caller: Caller, asker: Asker) -> None:
    lease = asker.granted().lease
    name = caller.one(JoinTransaction(lease), TransactionJoined).transaction
    caller.connection.commit()
    inside = type(lease)(lease.key, lease.fence, lease.nonce, lease.until, name)
    with pytest.raises(NotInTransaction):
        caller.one(Checkpoint(inside, Step(0, "reserve", b"1")), Recorded)


def test_the_record_of_the_outer_operation_stays_renewable_after_a_step(caller: Caller, asker: Asker) -> None:
    lease = asker.granted().lease
    name = caller.one(JoinTransaction(lease), TransactionJoined).transaction
    inside = type(lease)(lease.key, lease.fence, lease.nonce, lease.until, name)
    caller.one(Checkpoint(inside, Step(0, "reserve", b"1")), Recorded)
    caller.connection.commit()
    record = asker.record()
    assert record is not None
    assert record.lease_us == Clock().now + 30 * SECOND
