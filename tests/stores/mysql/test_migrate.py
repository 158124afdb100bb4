"""Migrations on MySQL and MariaDB: applied once, by one process, while workers of two releases run."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from semel.cli import main
from semel.core.flow import run
from semel.core.key import Key
from semel.core.operations import Complete, Granted, Page, Query, Recorded, Replay, Scan
from semel.errors import SchemaOutdated, StoreUnavailable, UsageError
from semel.stores.mysql import MysqlStore
from semel.stores.sql.admin import AdminConnection
from semel.stores.sql.dialect import Command
from semel.stores.sql.migrations import migrate_schema
from tests.servers.databases import Databases
from tests.stores.mysql.kit import ALL, NEWEST, NEXT, SOON, Asker, connected, release, rows, told
from tests.unit.stores.operations import ABOUTS, Clock, claim

pytestmark = pytest.mark.slow

INDEXES = "SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()"
COLUMNS = (
    "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_COMMENT FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, ORDINAL_POSITION"
)
PARTS = (
    "SELECT COUNT(PARTITION_NAME) FROM information_schema.PARTITIONS "
    "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'semel_record'"
)
FREE = "SELECT IS_FREE_LOCK(CONCAT('semel.', LEFT(SHA2(CONCAT(DATABASE(), '.semel_'), 256), 40)))"


@pytest.fixture
def fresh(server: Databases) -> str:
    return server.new_database()


@pytest.fixture
def asker(fresh: str) -> Iterator[Asker]:
    clock = Clock()
    asker = Asker(MysqlStore(fresh, clock=clock), clock)
    yield asker
    asker.driver.close()


def searched(fresh: str) -> list[str]:
    return sorted(name for (name,) in rows(fresh, INDEXES) if "search" in name)


def test_an_empty_database_is_migrated_once(fresh: str) -> None:
    admin = MysqlStore(fresh).admin()
    assert admin.migrate() == ALL
    before = rows(fresh, "SELECT * FROM semel_schema"), rows(fresh, "SELECT * FROM semel_meta")
    assert admin.migrate() == []
    assert before == (rows(fresh, "SELECT * FROM semel_schema"), rows(fresh, "SELECT * FROM semel_meta"))


def test_of_many_processes_one_applies(fresh: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda _: MysqlStore(fresh).admin().migrate(), range(4)))
    assert sorted(applied) == [[], [], [], ALL]


def test_a_worker_may_come_first(fresh: str, asker: Asker) -> None:
    asker.one(claim(), Granted)
    assert MysqlStore(fresh).admin().migrate() == []


def test_the_lock_is_free_again(fresh: str) -> None:
    admin = MysqlStore(fresh).admin()
    with AdminConnection(admin.context, admin.adapter) as talk:
        talk.run(migrate_schema(admin.migrations, None, search=True, partitions=0))
        assert rows(fresh, FREE) == [(1,)]


def test_the_sql_printed_makes_the_same_schema(server: Databases, fresh: str) -> None:
    admin = MysqlStore(fresh).admin()
    text = admin.pending_sql(search=True, partitions=2)
    assert rows(fresh, "SHOW TABLES") == []
    by_hand = server.new_database()
    with connected(by_hand, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS) as connection:
        cursor = connection.cursor()
        cursor.execute(text)
        while cursor.nextset():
            continue
    admin.migrate(search=True, partitions=2)
    assert rows(fresh, COLUMNS) == rows(by_hand, COLUMNS)
    assert searched(fresh) == searched(by_hand)
    assert rows(by_hand, PARTS) == [(2,)]
    assert MysqlStore(by_hand).admin().migrate(search=True) == []
    assert admin.pending_sql() == ""


def test_tables_of_a_chosen_database_and_prefix_are_made_there(server: Databases, fresh: str) -> None:
    elsewhere = server.new_database()
    name = elsewhere.rpartition("/")[2]
    admin = MysqlStore(fresh, schema=name, prefix="Shop_").admin()
    assert admin.migrate(search=True)[0] == "0001"
    assert admin.migrate(search=True) == []
    assert admin.restored(0, 1).held == 0
    assert admin.end_restored()
    assert rows(fresh, "SHOW TABLES") == []
    assert len(rows(elsewhere, "SHOW TABLES")) == 20


def test_the_release_before_works_on_while_only_the_pre_half_is_applied(fresh: str, asker: Asker) -> None:
    MysqlStore(fresh).admin().migrate()
    assert release(fresh, NEXT).admin().migrate() == [f"{SOON:04} pre"]
    new = Asker(release(fresh, NEXT, clock=asker.clock), asker.clock)
    try:
        lease = asker.one(claim(), Granted).lease
        asker.one(Complete(lease, b"\x01"), Recorded)
        new.one(claim(number=2), Replay)
    finally:
        new.driver.close()


def test_the_post_half_shuts_the_release_before_out(fresh: str, asker: Asker) -> None:
    admin = release(fresh, NEXT).admin()
    MysqlStore(fresh).admin().migrate()
    admin.migrate()
    assert admin.pending() == [f"{SOON:04} post"]
    assert admin.migrate("post") == [f"{SOON:04} post"]
    assert admin.pending() == []
    with pytest.raises(SchemaOutdated, match="Use the newer release"):
        asker.one(claim(), Granted)


def test_the_post_half_is_refused_before_the_pre_half(fresh: str) -> None:
    MysqlStore(fresh).admin().migrate()
    with pytest.raises(UsageError, match=f"pre half of {SOON:04}"):
        release(fresh, NEXT).admin().migrate("post")


def test_a_newer_schema_is_not_migrated_by_an_older_release(fresh: str) -> None:
    release(fresh, NEXT).admin().migrate()
    with pytest.raises(SchemaOutdated, match="newer release"):
        MysqlStore(fresh).admin().migrate()


def test_a_half_that_failed_is_not_noted_and_goes_on_when_it_is_run_again(fresh: str) -> None:
    MysqlStore(fresh).admin().migrate()
    broken = {**NEXT, (SOON, "pre"): f"{NEXT[SOON, 'pre']}THIS IS NOT SQL;\n"}
    admin = release(fresh, broken).admin()
    with AdminConnection(admin.context, admin.adapter) as talk:
        with pytest.raises(pymysql.ProgrammingError):
            talk.run(migrate_schema(admin.migrations, None, search=False, partitions=0))
        assert rows(fresh, FREE) == [(1,)]
    assert rows(fresh, "SELECT MAX(version) FROM semel_schema") == [(NEWEST,)]
    assert release(fresh, NEXT).admin().migrate() == [f"{SOON:04} pre"]


@pytest.mark.parametrize("search", [False, True], ids=["a half", "an index"])
def test_what_cannot_get_its_lock_steps_aside_and_tries_again(fresh: str, search: bool) -> None:
    MysqlStore(fresh).admin().migrate()
    admin = (MysqlStore(fresh, lock_timeout=0.05) if search else release(fresh, NEXT, lock_timeout=0.05)).admin()
    failed: list[StoreUnavailable] = []
    with connected(fresh) as worker, AdminConnection(admin.context, admin.adapter) as talk:
        told(worker, "SELECT COUNT(*) FROM semel_record")  # holds the table until its transaction ends

        def perform(command: Command) -> Any:
            try:
                return talk._execute(command)
            except StoreUnavailable as error:
                failed.append(error)
                worker.rollback()
                raise

        done = run(migrate_schema(admin.migrations, None, search=search, partitions=0), perform)
    assert len(failed) == 1
    assert (done == [f"{SOON:04} pre"]) is not search


def test_the_lock_is_kept_while_a_half_is_tried_again(fresh: str) -> None:
    MysqlStore(fresh).admin().migrate()
    admin = release(fresh, NEXT).admin()
    held: list[Any] = []
    with AdminConnection(admin.context, admin.adapter) as talk:

        def perform(command: Command) -> Any:
            if command.text.startswith("ALTER") and not held:
                held.append("refused")
                message = "as if it had been locked"
                raise StoreUnavailable(message)
            if "SLEEP" in command.text:
                held.append(rows(fresh, FREE))
            return talk._execute(command)

        assert run(migrate_schema(admin.migrations, None, search=False, partitions=0), perform) == [f"{SOON:04} pre"]
    assert held == ["refused", [(0,)]]


def test_searching_is_added_on_demand_and_once(fresh: str) -> None:
    admin = MysqlStore(fresh).admin()
    admin.migrate()
    assert searched(fresh) == []
    assert len(admin.migrate(search=True)) == 3
    assert len(searched(fresh)) == 3
    assert admin.migrate(search=True) == []


def test_an_index_that_is_missing_is_built(fresh: str) -> None:
    admin = MysqlStore(fresh).admin()
    admin.migrate(search=True)
    rows(fresh, "DROP INDEX semel_search_status ON semel_record")
    assert admin.migrate(search=True) == ["index semel_search_status"]


def test_listing_works_with_the_indexes(fresh: str, asker: Asker) -> None:
    MysqlStore(fresh).admin().migrate(search=True)
    asker.one(claim(), Granted)
    asker.one(claim(Key.of("r-1", operation="refund"), about=ABOUTS[1]), Granted)
    for query in (Query(operation="refund"), Query(business_key="b-1"), Query(process_instance="p-1")):
        page = asker.one(Scan(query, None, 10), Page)
        assert [record.key.value for record in page.records] == ["r-1"]


def test_a_key_is_claimed_once_over_all_partitions(fresh: str, asker: Asker) -> None:
    admin = MysqlStore(fresh).admin()
    admin.migrate(partitions=4)
    assert rows(fresh, PARTS) == [(4,)]
    keys = [Key.of(f"o-{i}", operation="charge") for i in range(40)]
    granted = asker.all([claim(key, number=1) for key in keys])
    ended = asker.all([Complete(answer.lease, b"\x01") for answer in granted if isinstance(answer, Granted)])
    assert [type(answer) for answer in ended] == [Recorded] * 40
    assert all(isinstance(answer, Replay) for answer in asker.all([claim(key, number=2) for key in keys]))


def test_partitions_are_chosen_when_the_tables_are_made(fresh: str) -> None:
    admin = MysqlStore(fresh).admin()
    admin.migrate()
    with pytest.raises(UsageError, match="when the tables are created"):
        admin.migrate(partitions=8)


def test_the_doctor_looks_at_everything(fresh: str) -> None:
    store = MysqlStore(fresh, migrate=False)
    before = {finding.topic: finding for finding in store.admin().examine(timedelta(hours=24))}
    assert before["schema"].advice == "run `semel migrate`"
    store.admin().migrate()
    after = {finding.topic: finding for finding in store.admin().examine(timedelta(hours=24))}
    assert after["schema"].found == f"version {NEWEST}, nothing pending"
    assert {"role", "proxy", "clock", "tables", "keep_for", "in doubt"} <= after.keys()


def test_the_doctor_tells_of_a_restore_mark(fresh: str) -> None:
    store = MysqlStore(fresh)
    store.admin().migrate()
    store.admin().restored(0, 3600 * 1_000_000)
    findings = {finding.topic: finding for finding in store.admin().examine(timedelta(hours=24))}
    assert "keys without a record are held" in findings["restore mark"].found


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["migrate", "{url}"], 0, "up to date"),
        (["migrate", "{url}", "--sql", "--search"], 0, "CREATE INDEX"),
        (["migrate", "{url}", "--partitions", "4"], 2, "when the tables are created"),
        (["restored", "{url}", "--at", "2020-01-01T00:00Z", "--for", "1h"], 0, "are held until"),
        (["restored", "{url}", "--end"], 0, "there is no mark"),
    ],
    ids=["migrate", "sql", "partitions", "restored", "end"],
)
def test_the_commands_know_the_server(
    fresh: str, capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    MysqlStore(fresh).admin().migrate()
    assert main([argument.format(url=fresh) for argument in arguments]) == code
    told_ = capfd.readouterr()
    assert said in told_.out + told_.err
