"""The schema: refuses rows that no statement of ours writes, is applied once, and knows its version."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from semel.core.events.letters import LetterQuery, ScanLetters
from semel.core.operations import Complete, Erase, Erased, Pending, PendingInvalidations, Query, Recorded
from semel.core.record import Status
from semel.errors import RecordUnreadable, SchemaOutdated, StoreUnavailable
from semel.stores.rows import RECORD_COLUMNS
from semel.stores.sql.migrations import scripts_of
from semel.stores.sqlite import SqliteStore, migrate, pending_sql
from semel.stores.sqlite.dialect import DIALECT, SQL, select_command
from semel.stores.sqlite.migrations import schema
from tests.unit.stores.kit import Asker, connected
from tests.unit.stores.operations import KEYS, Clock, claim

LISTING = {"scan", "count_records", "skip_r", "skip_s", "found_r", "found_s", "scan_letters", "purge_letters"}
"""Statements and their parts that people ask for, and no caller waits for."""


@pytest.mark.parametrize(
    "change",
    [
        "status = 'paused'",
        "status = 'completed'",
        "outcome = x'00'",
        "retryable = 1",
        "retryable = 2, status = 'failed'",
        "digest = x'00'",
        "nonce = x'00'",
        "fingerprint = x''",
        "fence = 0",
        "attempts = -1",
        "lease_us = NULL",
        "lease_us = 'soon'",
        "in_doubt_policy = 'guess'",
        "doubtful = 2",
        "error_type = 'app.Broke'",
        "keep_us = 0",
        "steps = -1",
    ],
)
def test_a_row_of_the_wrong_shape_is_refused(asker: Asker, change: str) -> None:
    asker.granted()
    with pytest.raises(sqlite3.IntegrityError):
        asker.writer().execute(f"UPDATE semel_record SET {change}")  # noqa: S608 - the texts above


@pytest.mark.parametrize(
    "change", ["status = 'completed', outcome = x'00'", "status = 'failed', retryable = 1", "status = 'cancelled'"]
)
def test_a_row_of_a_right_shape_is_accepted(asker: Asker, change: str) -> None:
    asker.granted()
    asker.writer().execute(f"UPDATE semel_record SET {change}")  # noqa: S608 - the texts above


def test_the_table_has_the_columns_of_a_record(asker: Asker) -> None:
    columns = asker.writer().execute("SELECT name FROM pragma_table_info('semel_record')").fetchall()
    assert sorted(name for (name,) in columns) == sorted(RECORD_COLUMNS)


def test_migrating_again_changes_nothing(path: Path) -> None:
    assert migrate(path) == ["0001", "0002", "0003", "0004", "0005", "0006"]
    with connected(path) as connection:
        before = connection.execute("SELECT * FROM semel_schema").fetchall(), _install_id(connection)
        assert migrate(path) == []
        assert before == (connection.execute("SELECT * FROM semel_schema").fetchall(), _install_id(connection))


def test_records_of_the_first_schema_can_be_erased(path: Path) -> None:
    with connected(path, None) as connection:
        connection.executescript(scripts_of("semel.stores.sqlite")[1, "pre"])
        connection.execute("INSERT INTO semel_schema VALUES (1, 0)")
    asker = Asker(SqliteStore(path), Clock())
    asker.one(Complete(asker.granted().lease, b"outcome"), Recorded)
    asker.one(Erase(KEYS[0].digest, "note", invalidates=True), Erased)
    assert len(asker.one(Pending(10), PendingInvalidations).invalidations) == 1
    asker.driver.close()


def test_each_database_has_an_install_id_of_its_own(tmp_path: Path) -> None:
    ids = set()
    for name in ("one.db", "two.db"):
        migrate(tmp_path / name)
        with connected(tmp_path / name) as connection:
            ids.add(_install_id(connection))
    assert {len(each) for each in ids} == {16}
    assert len(ids) == 2


def test_the_sql_of_a_migration_can_be_read_beforehand(path: Path) -> None:
    assert pending_sql(path) == schema().creation_sql()
    assert not path.exists()
    migrate(path)
    assert pending_sql(path) == ""


def test_the_sql_to_read_is_the_sql_that_is_applied(path: Path, tmp_path: Path) -> None:
    migrate(path)
    with connected(path) as applied, connected(tmp_path / "by_hand.db") as by_hand:
        by_hand.executescript(schema().creation_sql())
        listing = "SELECT name, sql FROM sqlite_master ORDER BY name"
        assert by_hand.execute(listing).fetchall() == applied.execute(listing).fetchall()
    assert migrate(tmp_path / "by_hand.db") == [], "what was applied by hand is noted too"


def test_semel_lives_beside_the_tables_of_an_application(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        migrate(path)
        connection.execute("INSERT INTO orders VALUES ('o-1')")


def test_a_database_of_a_newer_release_is_refused_and_left_alone(path: Path) -> None:
    migrate(path)
    with connected(path, None) as connection:
        connection.execute("INSERT INTO semel_schema VALUES (?, 0)", (schema().newest + 1,))
    asker = Asker(SqliteStore(path), Clock())
    with pytest.raises(SchemaOutdated, match="newer release"):
        asker.record()
    with pytest.raises(SchemaOutdated):
        migrate(path)
    with pytest.raises(SchemaOutdated):
        pending_sql(path)


def test_an_older_database_is_refused_where_it_may_not_be_migrated(path: Path) -> None:
    asker = Asker(SqliteStore(path, migrate=False), Clock())
    with pytest.raises(SchemaOutdated, match=r"version 0.*semel migrate"):
        asker.record()
    migrate(path)
    assert asker.record() is None
    asker.driver.close()


def test_a_migration_waits_no_longer_than_asked(path: Path) -> None:
    with connected(path, None) as rival:
        rival.execute("PRAGMA journal_mode = WAL")
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            migrate(path, busy_for=timedelta(milliseconds=10))


def test_a_file_that_is_no_database_is_unreadable(path: Path) -> None:
    path.write_bytes(b"not a database at all, and long enough to look at" * 50)
    asker = Asker(SqliteStore(path), Clock())
    with pytest.raises(RecordUnreadable, match="nothing ran") as caught:
        asker.record()
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    with pytest.raises(RecordUnreadable):
        pending_sql(path)


def test_a_damaged_database_is_unreadable(path: Path) -> None:
    migrate(path)
    with connected(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    asker = Asker(SqliteStore(path), Clock())
    with pytest.raises(RecordUnreadable, match="damaged"):
        asker.record()
    asker.driver.close()


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (Query(), "semel_record_created"),
        (Query(after_us=5, before_us=9), "semel_record_created"),
        (Query(status=Status.COMPLETED, operation="charge", scope="acme"), "semel_record_created"),
        (Query(status=Status.IN_DOUBT), "semel_record_open"),
        (Query(status=Status.RUNNING, operation="charge"), "semel_record_open"),
        (Query(stuck=True), "semel_record_open"),
        (Query(business_key="b"), "semel_term_everywhere"),
        (Query(process_instance="p", status=Status.IN_DOUBT), "semel_term_everywhere"),
        (Query(subject="s", after_us=5, before_us=9), "semel_term_everywhere"),
        (Query(requester="r", stuck=True), "semel_term_everywhere"),
        (Query(tag=("t", "v"), operation="charge"), "semel_term_everywhere"),
        (Query(tag=("t", "v"), scope="acme"), "semel_term_in_scope"),
        (Query(subject="s", reference="ab", scope="acme", status=Status.RUNNING), "semel_term_in_scope"),
        (Query(reference="abc"), "sqlite_autoindex_semel_record_1"),
        (Query(reference="ab"), "semel_record_created"),
    ],
)
def test_listings_use_an_index(asker: Asker, query: Query, index: str) -> None:
    command = select_command("scan", query, (5, KEYS[0].digest), limit=10)
    assert command is not None
    assert index in _query_plan(asker.writer(), command.text, {**command.named, "now": 1})


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (LetterQuery(consumer="billing"), "semel_letter_consumer"),
        (LetterQuery(consumer="billing", reason="rejected", before_us=9), "semel_letter_consumer"),
        (LetterQuery(consumer="billing", id=bytes(32)), "sqlite_autoindex_semel_letter_1"),
    ],
)
def test_letters_are_listed_by_an_index(asker: Asker, query: LetterQuery, index: str) -> None:
    command = DIALECT.scan_letters(ScanLetters(query, None, 10))
    plan = _query_plan(asker.writer(), command.text, {**command.named, "now": 1})
    assert index in plan
    assert "SCAN" not in plan


@pytest.mark.parametrize(
    ("statement", "index"),
    [("purge", "semel_record_expiry"), ("lapse", "semel_record_open"), ("purge_letters", "semel_letter_expiry")],
)
def test_the_sweep_uses_an_index(asker: Asker, statement: str, index: str) -> None:
    values = {"now": 1, "limit": 1, "error_type": "", "error_message": ""}
    assert index in _query_plan(asker.writer(), SQL[statement], values)


@pytest.mark.parametrize(
    "statement", sorted(set(SQL) - {"seen_many", "purge", "lapse", "install_id", "invalidations", *LISTING})
)
def test_no_statement_on_the_way_of_a_caller_walks_the_table(asker: Asker, statement: str) -> None:
    asker.one(claim(), object)  # type: ignore[type-var]
    values = dict.fromkeys(("now", "install", "nonce", "fence", "status", "outcome", "lease_us", "at", "digest"))
    text = SQL[statement]
    names = {word.strip(":,();") for word in text.replace("(", " ").split() if ":" in word}
    plan = _query_plan(asker.writer(), text, {**values, **dict.fromkeys(names)})
    assert "SCAN semel_record" not in plan
    assert "SCAN semel_step" not in plan
    assert "SCAN semel_letter" not in plan


def _install_id(connection: sqlite3.Connection) -> bytes:
    value: bytes = connection.execute(SQL["install_id"]).fetchone()[0]
    return value


def _query_plan(connection: sqlite3.Connection, text: str, values: dict[str, object]) -> str:
    return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values))
