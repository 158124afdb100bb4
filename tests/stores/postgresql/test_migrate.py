"""Migrations on PostgreSQL: applied once, by one process, while workers of two releases run."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from semel.core.flow import run
from semel.core.operations import Erase, Erased, Granted, Page, Pending, Query, Recorded, Replay, Scan
from semel.core.record import Status
from semel.errors import SchemaOutdated, StoreUnavailable, UsageError
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.admin import PostgresSchema, scripts
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.sql.admin import AdminConnection
from semel.stores.sql.context import check_connection
from semel.stores.sql.dialect import Command
from semel.stores.sql.migrations import migrate_schema
from semel.stores.sql.settings import Settings
from tests.stores.postgresql.kit import ALL, NEXT, SOON, Asker, claim, claims, completions, release, rows

TABLES = "SELECT count(*) FROM pg_class WHERE relname LIKE 'semel%' AND relkind IN ('r', 'p')"
HERE = "FROM pg_stat_activity WHERE datname = current_database()"
WAITING = f"SELECT 1 {HERE} AND wait_event_type = 'Lock' AND query LIKE 'CREATE INDEX%'"
INDEXES = "SELECT indexrelid::regclass::text, indisvalid FROM pg_index WHERE indrelid = 'semel_record'::regclass"


def test_an_empty_database_is_migrated_once(url: str) -> None:
    admin = PostgresStore(url).admin()
    assert admin.migrate() == ALL
    before = rows(url, "SELECT * FROM semel_schema"), rows(url, "SELECT * FROM semel_meta")
    assert admin.migrate() == []
    assert before == (rows(url, "SELECT * FROM semel_schema"), rows(url, "SELECT * FROM semel_meta"))


def test_of_many_processes_one_applies(url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        applied = list(pool.map(lambda _: PostgresStore(url).admin().migrate(), range(6)))
    assert sorted(applied) == [[], [], [], [], [], ALL]


def test_a_worker_may_come_first(url: str, asker: Asker) -> None:
    asker.lease(claim())
    assert PostgresStore(url).admin().migrate() == []


def test_the_sql_printed_makes_the_same_schema(url: str, postgresql: Any) -> None:
    admin = PostgresStore(url).admin()
    text = admin.pending_sql()
    assert rows(url, TABLES) == [(0,)]
    by_hand = postgresql.new_database()
    with psycopg.connect(by_hand, autocommit=True) as connection:
        connection.execute(text.encode())
    admin.migrate()
    columns = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
    assert sorted(rows(url, columns)) == sorted(rows(by_hand, columns))
    assert PostgresStore(by_hand).admin().migrate() == []
    assert admin.pending_sql() == ""


def test_tables_of_a_chosen_schema_and_prefix_are_made_there(url: str) -> None:
    store = PostgresStore(url, schema="once", prefix="Shop_")
    assert store.admin().migrate(search=True)[0] == "0001"
    assert store.admin().migrate(search=True) == []
    assert rows(url, "SELECT to_regclass('once.\"Shop_record\"') IS NOT NULL") == [(True,)]


def test_records_of_the_first_schema_can_be_erased_after_the_second(url: str) -> None:
    first = release(url, {step: script for step, script in scripts().items() if step[0] == 1})
    assert first.admin().migrate() == ["0001"]
    worker = Asker(first)
    worker.all(completions(worker.all([claim()])))
    worker.close()
    assert PostgresStore(url).admin().migrate() == ALL[1:]
    asker = Asker(PostgresStore(url))
    assert isinstance(asker.one(Erase(claim().key.digest, "note", invalidates=True)), Erased)
    assert len(asker.one(Pending(10)).invalidations) == 1
    asker.close()


def test_the_release_before_works_on_while_only_the_pre_half_is_applied(url: str) -> None:
    PostgresStore(url).admin().migrate()
    assert release(url, NEXT).admin().migrate() == [f"{SOON:04} pre"]
    old, new = Asker(PostgresStore(url)), Asker(release(url, NEXT))
    try:
        lease = old.lease(claim("o-1"))
        assert isinstance(old.one(completions([Granted(_record(lease, old))])[0]), Recorded)
        assert isinstance(new.one(claim("o-1")), Replay)
    finally:
        old.close()
        new.close()


def _record(lease: Any, asker: Asker) -> Any:
    return asker.one(Scan(Query(reference=lease.key.reference), None, 1)).records[0]


def test_the_post_half_shuts_the_release_before_out(url: str) -> None:
    admin = release(url, NEXT).admin()
    PostgresStore(url).admin().migrate()
    admin.migrate()
    assert admin.pending() == [f"{SOON:04} post"]
    assert admin.migrate("post") == [f"{SOON:04} post"]
    assert admin.pending() == []
    with pytest.raises(SchemaOutdated, match="Use the newer release"):
        Asker(PostgresStore(url)).one(claim())


def test_a_new_release_does_not_work_before_its_pre_half(url: str) -> None:
    PostgresStore(url).admin().migrate()
    with pytest.raises(SchemaOutdated, match="semel migrate"):
        Asker(release(url, NEXT)).one(claim())


def test_the_post_half_is_refused_before_the_pre_half(url: str) -> None:
    PostgresStore(url).admin().migrate()
    with pytest.raises(UsageError, match=f"pre half of {SOON:04}"):
        release(url, NEXT).admin().migrate("post")


def test_a_later_migration_applies_the_post_half_that_was_left(url: str) -> None:
    PostgresStore(url).admin().migrate()
    release(url, NEXT).admin().migrate()
    later = {**NEXT, (SOON + 1, "pre"): "ALTER TABLE {record_table} ADD COLUMN shape text;\n"}
    assert release(url, later).admin().migrate() == [f"{SOON:04} post", f"{SOON + 1:04}"]


def test_an_empty_database_gets_both_halves(url: str) -> None:
    assert release(url, NEXT).admin().migrate() == [*ALL, f"{SOON:04}"]
    assert release(url, NEXT).admin().pending() == []


def test_a_newer_schema_is_not_migrated_by_an_older_release(url: str) -> None:
    release(url, NEXT).admin().migrate()
    with pytest.raises(SchemaOutdated, match="newer release"):
        PostgresStore(url).admin().migrate()


def test_a_half_that_fails_leaves_nothing_behind(url: str) -> None:
    PostgresStore(url).admin().migrate()
    broken = {**scripts(), (SOON, "pre"): "ALTER TABLE {record_table} ADD COLUMN colour text;\nSELECT 1 / 0;\n"}
    with pytest.raises(psycopg.errors.DivisionByZero):
        release(url, broken).admin().migrate()
    assert rows(url, "SELECT count(*) FROM information_schema.columns WHERE column_name = 'colour'") == [(0,)]
    assert release(url, NEXT).admin().migrate() == [f"{SOON:04} pre"]


def test_a_migration_that_cannot_get_its_lock_steps_aside_and_tries_again(url: str) -> None:
    PostgresStore(url).admin().migrate()
    admin = release(url, NEXT, lock_timeout=0.05).admin()
    sent: list[str] = []
    with psycopg.connect(url) as worker, AdminConnection(admin.context, admin.adapter) as talk:
        worker.execute("SELECT count(*) FROM semel_record")  # holds the table until its transaction ends

        def perform(command: Command) -> Any:
            sent.append(command.text)
            if command.text == "ROLLBACK":
                worker.rollback()
            return talk._execute(command)

        assert run(migrate_schema(admin.migrations, None, search=False, partitions=0), perform) == [f"{SOON:04} pre"]
    assert sent.count("ROLLBACK") == 1
    assert sent.count("BEGIN") == 2


def test_searching_is_added_on_demand_and_once(url: str) -> None:
    admin = PostgresStore(url).admin()
    admin.migrate()
    assert not any("search" in name for name, _ in rows(url, INDEXES))
    assert len(admin.migrate(search=True)) == 3
    assert sum("search" in name for name, _ in rows(url, INDEXES)) == 3
    assert admin.migrate(search=True) == []
    assert rows(url, "SELECT count(*) FROM semel_meta WHERE name = 'search'") == [(1,)]


def test_an_index_that_was_left_half_built_is_built_again(url: str) -> None:
    admin = PostgresStore(url).admin()
    admin.migrate(search=True)
    rows(url, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'semel_search_status'::regclass")
    assert admin.migrate(search=True) == ["index semel_search_status"]
    assert all(valid for _, valid in rows(url, INDEXES))


def test_the_indexes_are_built_while_somebody_writes(url: str, asker: Asker) -> None:
    lease = asker.lease(claim())
    admin = PostgresStore(url).admin()
    written: list[Any] = []
    with AdminConnection(admin.context, admin.adapter) as talk:

        def perform(command: Command) -> Any:
            if "CONCURRENTLY" in command.text and not written:
                with psycopg.connect(url) as other, ThreadPoolExecutor(1) as pool:
                    other.execute("UPDATE semel_record SET replays = replays")
                    building = pool.submit(talk._execute, command)  # waits for that transaction, and holds nobody up
                    while not rows(url, WAITING):
                        continue
                    written.append(asker.one(claim("o-2")))
                    other.commit()
                    return building.result()
            return talk._execute(command)

        run(migrate_schema(admin.migrations, None, search=True, partitions=0), perform)
    assert isinstance(written[0], Granted)
    assert all(valid for _, valid in rows(url, INDEXES))
    assert isinstance(asker.one(completions([Granted(_record(lease, asker))])[0]), Recorded)


@pytest.mark.parametrize("search", [False, True], ids=["without", "with"])
def test_listing_works_with_the_indexes_and_without(url: str, asker: Asker, search: bool) -> None:
    PostgresStore(url).admin().migrate(search=search)
    asker.all(completions(asker.all(claims(5))))
    asker.lease(claim("o-1", operation="refund"))
    page = asker.one(Scan(Query(status=Status.RUNNING), None, 10))
    assert isinstance(page, Page)
    assert [record.key.operation for record in page.records] == ["refund"]
    assert len(asker.one(Scan(Query(operation="charge"), None, 10)).records) == 5


def test_partitions_are_chosen_when_the_tables_are_made(url: str) -> None:
    admin = PostgresStore(url).admin()
    admin.migrate(partitions=4, search=True)
    assert rows(url, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'semel_record'::regclass") == [(4,)]
    assert admin.migrate(search=True) == []
    assert all(valid for _, valid in rows(url, INDEXES))
    with pytest.raises(UsageError, match="when the tables are created"):
        admin.migrate(partitions=8)


def test_a_key_is_claimed_once_over_all_partitions(url: str, asker: Asker) -> None:
    PostgresStore(url).admin().migrate(partitions=4)
    asked = claims(40)
    granted = asker.all(asked)
    assert all(isinstance(answer, Granted) for answer in granted)
    assert all(isinstance(answer, Recorded) for answer in asker.all(completions(granted)))
    again = [claim(one.key.value) for one in asked]
    assert all(isinstance(answer, Replay) for answer in asker.all(again))
    assert rows(url, "SELECT count(DISTINCT tableoid) FROM semel_record") == [(4,)]


def test_partitions_keep_the_fill_factor(url: str) -> None:
    PostgresStore(url).admin().migrate(partitions=2)
    options = rows(url, "SELECT reloptions::text FROM pg_class WHERE relname IN ('semel_record_p0', 'semel_record_p1')")
    assert all("fillfactor" in option for (option,) in options)
    assert len(options) == 2


def test_a_replica_is_refused_before_anything_is_claimed_there() -> None:
    settings = Settings.of("postgresql://replica.internal/shop")
    schema = PostgresSchema(settings, PostgresDialect(settings))
    with pytest.raises(StoreUnavailable, match="it is a replica"):
        run(check_connection(schema, settings), lambda _: [(1, b"id", True, 1)])
