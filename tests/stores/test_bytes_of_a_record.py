"""What an ordinary record takes on each store, its indexes included: completed, by a policy of defaults, about nothing.

The limits are what was measured when they were set: whatever is added to every record shows here. Keys and nonces are
the same in each run, so that trees of keys split in the same places.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from semel.core.key import Key
from semel.core.operations import Claim, Complete, Granted, Terms
from semel.core.policy import Policy, microseconds
from semel.core.record import NOTHING
from semel.core.store import Store
from tests.servers.databases import Databases
from tests.servers.ministack import Tables
from tests.servers.redis import Keys

pytestmark = pytest.mark.slow

RECORDS: Final = 9_600
BATCH: Final = 64
POLICY: Final = Policy()
TERMS: Final = Terms(
    microseconds(POLICY.lease_for),
    microseconds(POLICY.keep_for),
    POLICY.in_doubt,
    microseconds(POLICY.reconcile_after),
)
Figures = Callable[[str, object], None]


def claim(number: int) -> Claim:
    key = Key.of(f"order-{number:031}", operation="charge", scope="acme")
    nonce = hashlib.sha256(f"nonce {number}".encode()).digest()[:16]
    return Claim(key, b"\x01" + bytes(32), nonce, TERMS, NOTHING)


def fill(store: Store, records: int, after_list: Callable[[int], None] = lambda done: None) -> None:
    """Claim and complete records in lists."""
    driver = store.driver()

    def ask(operations: list[Any]) -> list[Any]:
        [answers] = driver.perform([store.plan(operations, joined=False)])
        assert isinstance(answers, list), answers
        return answers

    for first in range(0, records, BATCH):
        granted = ask([claim(number) for number in range(first, first + BATCH)])
        assert all(isinstance(answer, Granted) for answer in granted)
        ask([Complete(answer.lease, b"\x01\xa6o-1234") for answer in granted])
        after_list(first + BATCH)
    driver.close()


def postgresql_bytes(url: str) -> float:
    """Vacuumed as often as autovacuum would on a large table."""
    import psycopg

    from semel.stores.postgresql import PostgresStore

    store = PostgresStore(url)
    store.admin().migrate()
    vacuumed = BATCH
    with psycopg.connect(url, autocommit=True) as keeper:
        keeper.execute("ALTER TABLE semel_record SET (autovacuum_enabled = false)")

        def vacuum(done: int) -> None:
            nonlocal vacuumed
            if done >= vacuumed * 1.05:
                vacuumed = done
                keeper.execute("VACUUM semel_record")

        fill(store, RECORDS, vacuum)
        sizes = "SELECT pg_relation_size('semel_record') + pg_indexes_size('semel_record'), count(*) FROM semel_record"
        size, count = keeper.execute(sizes).fetchone() or (0, 0)
    assert count == RECORDS
    return float(size / RECORDS)


def mariadb_bytes(url: str) -> float:
    """What is in the pages, however full they are."""
    from semel.stores.mysql import MysqlStore
    from tests.stores.mysql.kit import connected, told

    store = MysqlStore(url)
    store.admin().migrate()
    fill(store, RECORDS)
    table = f"`{url.rpartition('/')[2]}`.`semel_record`"
    with connected(url) as connection:
        pages = "SELECT SUM(data_size) FROM information_schema.innodb_buffer_page WHERE table_name = %s"
        ((size,),) = told(connection, f"{pages} AND page_type = 'INDEX'", table)
    return float(size / RECORDS)


def sqlite_bytes(path: Path) -> float:
    from semel.stores.sqlite import SqliteStore

    def pages() -> int:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")
            return int(connection.execute("PRAGMA page_count").fetchone()[0])

    store = SqliteStore(path)
    store.admin().migrate()
    empty = pages()
    fill(store, RECORDS)
    return (pages() - empty) * 4096 / RECORDS


def redis_bytes(keys: Keys) -> float:
    """The names and values of the fields; what the server takes around them differs between its releases."""
    from semel.stores.redis import RedisStore

    fill(RedisStore(keys.url), BATCH)
    sizes = {sum(map(len, keys.said("HGETALL", name))) for name in keys.names() if keys.said("TYPE", name) == b"hash"}
    assert len(sizes) == 1, sizes
    return float(sizes.pop())


def dynamodb_bytes(tables: Tables, url: str) -> float:
    """The names and values of the attributes."""
    from semel.stores.dynamodb import DynamoStore

    fill(DynamoStore(url), BATCH)
    sizes = {sum(len(name) + len(str(*value.values())) for name, value in item.items()) for item in tables.items(url)}
    return float(max(sizes))


def check(store: str, size: float, most: float, record_property: Figures) -> None:
    record_property("figures", f"{store}: {size:.1f} bytes for a record")
    assert size <= most, f"an ordinary record takes {size:.1f} bytes on {store}"


def test_a_record_on_postgresql_takes_no_more_bytes(postgresql: Databases, record_property: Figures) -> None:
    # When a vacuum can remove a row depends on what else the server does, so the least of some fillings counts.
    most = 378
    least = postgresql_bytes(postgresql.new_database())
    for _ in range(2):
        if least > most:
            least = min(least, postgresql_bytes(postgresql.new_database()))
    check("postgresql", least, most, record_property)


def test_a_record_on_mariadb_takes_no_more_bytes(mariadb: Databases, record_property: Figures) -> None:
    check("mariadb", mariadb_bytes(mariadb.new_database()), 305, record_property)


def test_a_record_on_sqlite_takes_no_more_bytes(tmp_path: Path, record_property: Figures) -> None:
    check("sqlite", sqlite_bytes(tmp_path / "semel.db"), 364, record_property)


def test_a_record_on_redis_takes_no_more_bytes(redis_keys: Keys, record_property: Figures) -> None:
    redis_keys.empty()
    check("redis", redis_bytes(redis_keys), 417, record_property)


def test_a_record_on_dynamodb_takes_no_more_bytes(dynamodb: Tables, record_property: Figures) -> None:
    check("dynamodb", dynamodb_bytes(dynamodb, dynamodb.new_table()), 791, record_property)
