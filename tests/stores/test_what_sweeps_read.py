"""How much of a large table a sweep reads: by its indexes it finds the few records that have lapsed or are in doubt.

At the small effort there are fewer records, and as many fewer of those to be found.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from semel.core.operations import LapsedRecords, MarkLapsed, Operation, Page, Purge, Query, Scan
from semel.core.record import Status
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.dialect import MysqlDialect
from semel.stores.mysql.settings import address
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.postgresql.store import POSTGRESQL
from semel.stores.sql.adapter import PlaceholderStyle
from semel.stores.sql.adapters.psycopg import PsycopgAdapter
from semel.stores.sql.dialect import Command
from semel.stores.sql.plan import plan
from semel.stores.sql.settings import Settings
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite.admin import _NUMBERS
from semel.stores.sqlite.dialect import SQL, select_command
from tests.effort import FULL
from tests.servers.databases import Databases

RECORDS = 1_000_000 if FULL else 100_000
FEW = RECORDS // 50_000
SHARE = 0.05
DAY = 86_400 * 1_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 120)]

COLUMNS = """
digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us, in_doubt_policy,
reconcile_after_us, doubtful, attempts, outcome, error_type, error_message, created_us, {started}updated_us, expires_us,
keep_us, doubt_us
"""
IN_DOUBT = Scan(Query(status=Status.IN_DOUBT), None, 200)
Send = Callable[[Command], list[tuple[Any, ...]]]


def carry_out(steps: Generator[Command, Any, Any], send: Send) -> Any:
    """Drive a plan with `send`; answers its first answer."""
    reply: Any = None
    while True:
        try:
            command = steps.send(reply)
        except StopIteration as end:
            (answer,) = end.value
            if isinstance(answer, Exception):
                raise answer from None
            return answer
        reply = send(command)


def sweep(dialect: Any, send: Send) -> tuple[int, int]:
    """What a sweep asks a store; answers how many leases were marked, and how many records are in doubt then."""
    operations: Sequence[Operation] = (Purge(500), MarkLapsed(500), IN_DOUBT)
    _, marked, page = (carry_out(plan(dialect, [operation], joined=False), send) for operation in operations)
    assert isinstance(marked, LapsedRecords)
    assert isinstance(page, Page)
    return marked.count, len(page.records)


POSTGRESQL_FILL = f"""
INSERT INTO semel_record ({COLUMNS.format(started="")})
SELECT sha256(convert_to(%(name)s || n, 'UTF8')), 'acme', 'charge', %(name)s || n, %(status)s, false, sha256('f'), 1,
    substr(sha256('n'), 1, 16), t.claimed + 30000000, 'hold', 0, false, 1,
    CASE WHEN %(status)s = 'completed' THEN sha256('o') END, NULL, NULL, t.claimed, t.claimed, t.claimed + t.keep,
    t.keep, CASE WHEN %(status)s = 'in_doubt' THEN t.claimed END
FROM (
    SELECT n, CASE WHEN n %% 3 = 0 THEN 30 ELSE 90 END * {DAY}::bigint AS keep,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %(age)s - n * 1000 AS claimed
    FROM generate_series(1, %(count)s) AS n
) AS t ORDER BY claimed
"""  # noqa: S608 - names of columns
POSTGRESQL_PAGES = """
SELECT pg_relation_size('semel_record') / current_setting('block_size')::integer,
    (SELECT sum(pg_stat_get_xact_blocks_fetched(oid)) FROM pg_class WHERE relname LIKE 'semel%record%')
"""


def test_a_sweep_on_postgresql_reads_few_pages(
    postgresql: Databases, record_property: Callable[[str, object], None]
) -> None:
    url = postgresql.new_database()
    PostgresStore(url).admin().migrate()
    numbered = PlaceholderStyle("$")
    dialect = PostgresDialect(Settings.of(url))
    connect = PsycopgAdapter(POSTGRESQL).connect  # with the settings that the store's own sessions have
    with connect(Settings.of(url)) as connection, psycopg.connect(url, autocommit=True) as other:

        def send(command: Command) -> list[tuple[Any, ...]]:
            cursor = psycopg.RawCursor(connection)
            cursor.execute(numbered(command.text).encode(), command.values)
            return cursor.fetchall() if cursor.description else []

        def fill(name: str, status: str, count: int, age: int) -> None:
            other.execute(POSTGRESQL_FILL.encode(), {"name": name, "status": status, "count": count, "age": age})

        fill("settled", "completed", RECORDS, 600_000_000)
        fill("doubt", "in_doubt", FEW, DAY)
        other.execute("VACUUM ANALYZE semel_record")
        assert sweep(dialect, send) == (0, FEW)
        fill("lapsed", "running", FEW, 45_000_000)
        connection.execute(b"BEGIN")
        pages, before = connection.execute(POSTGRESQL_PAGES.encode()).fetchone()
        assert sweep(dialect, send) == (FEW, 2 * FEW)
        read = connection.execute(POSTGRESQL_PAGES.encode()).fetchone()[1] - before
    record_property("figures", f"{RECORDS} records: {read} of {pages} pages read")
    assert 0 < read <= pages * SHARE


MARIADB_FILL = f"""
INSERT INTO semel_record ({COLUMNS.format(started="started_us, ")})
SELECT UNHEX(SHA2(CONCAT(%(name)s, n), 256)), 'acme', 'charge', CONCAT(%(name)s, n), %(status)s, FALSE,
    UNHEX(SHA2('f', 256)), 1, UNHEX(LEFT(SHA2('n', 256), 32)), t.claimed + 30000000, 'hold', 0, FALSE, 1,
    IF(%(status)s = 'completed', 'o', NULL), NULL, NULL, t.claimed, t.claimed, t.claimed, t.claimed + t.keep, t.keep,
    IF(%(status)s = 'in_doubt', t.claimed, NULL)
FROM (
    SELECT seq AS n, IF(seq MOD 3 = 0, 30, 90) * {DAY} AS keep,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - %(age)s - seq * 1000 AS claimed
    FROM seq_1_to_{{count}}
) AS t
"""  # noqa: S608 - names of columns
MARIADB_READS = "SHOW SESSION STATUS LIKE 'Handler_read%'"


def test_a_sweep_on_mariadb_reads_few_rows(mariadb: Databases, record_property: Callable[[str, object], None]) -> None:
    url = mariadb.new_database()
    MysqlStore(url).admin().migrate()
    connection = pymysql.connect(**address(Settings.of(url)), autocommit=True)
    placed = PlaceholderStyle("%s")
    dialect = MysqlDialect(Settings.of(url))
    cursor = connection.cursor()

    def send(command: Command) -> list[tuple[Any, ...]]:
        cursor.execute(placed(command.text), command.values)
        rows = list(cursor.fetchall())
        return rows if command.then is None else send(command.then)

    def fill(name: str, status: str, count: int, age: int) -> None:
        values = {"name": name, "status": status, "age": age}
        cursor.execute(MARIADB_FILL.format(count=count), values)

    def reads() -> int:
        cursor.execute(MARIADB_READS)
        return sum(int(number) for _, number in cursor.fetchall())

    fill("settled", "completed", RECORDS, 600_000_000)
    fill("doubt", "in_doubt", FEW, DAY)
    assert sweep(dialect, send) == (0, FEW)
    fill("lapsed", "running", FEW, 45_000_000)
    before = reads()
    assert sweep(dialect, send) == (FEW, 2 * FEW)
    read = reads() - before
    connection.close()
    record_property("figures", f"{RECORDS} records: {read} rows read")
    assert 0 < read <= RECORDS * SHARE / 10


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("purge", SQL["purge"]),
        ("lapse", SQL["lapse"]),
        ("in doubt", select_command("scan", IN_DOUBT.query).text),  # type: ignore[union-attr]  # such a query can match
        ("doctor", _NUMBERS),
    ],
    ids=lambda value: value if len(value) < 10 else "",
)
def test_a_sweep_on_sqlite_reads_by_index(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "semel.db"
    SqliteStore(str(path)).admin().migrate()
    with sqlite3.connect(path) as connection:
        values = dict.fromkeys(("now", "limit", "most", "error_type", "error_message", "status"), 1)
        plans = connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    connection.close()
    others = ("USE", "LIST", "CORRELATED", "SCALAR", "CO-ROUTINE", "SCAN n", "SCAN (subquery")
    reads = [detail for *_, detail in plans if not detail.startswith(others)]
    assert reads, f"{name} reads nothing"
    assert all("USING" in detail for detail in reads), reads
