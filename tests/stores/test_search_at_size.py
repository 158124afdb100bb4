"""A search reads what it finds, however many records there are: its plan says so, and at a million records its time.

The small effort searches two thousand records and looks at the plans, after the statistics were gathered. The full one
searches a million and demands that the median of twenty searches takes at most 200 ms. By hand, with the figures:
`SEMEL_EFFORT=full pytest -s tests/stores/test_search_at_size.py -k sqlite`.
"""

from __future__ import annotations

import re
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from semel import Record, Semel
from semel.core.key import Key
from semel.core.operations import Claim, Granted, Query, Scan
from semel.core.record import About
from semel.core.store import Store
from semel.engine.admin import PAGE
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.dialect import MysqlDialect
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.sql.dialect import Command
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite.dialect import select_command
from tests.effort import FULL
from tests.unit.stores.operations import FINGERPRINTS, terms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if FULL else 120)]

RECORDS: Final = 1_000_000 if FULL else 2_000
TENANTS: Final = RECORDS // 1000
CUSTOMERS: Final = RECORDS // 100
TIMES: Final = 20
MOST: Final = 0.2
SEARCHES: Final[dict[str, dict[str, Any]]] = {
    "one subject": {"subject": "order 1234"},
    "one subject in its scope": {"subject": "order 1234", "scope": f"tenant {1234 % TENANTS}"},
    "what a customer asked for": {"requester": "customer 7"},
    "a tag of a thousand records": {"tag": ("tenant", "1")},
    "a tag of all records": {"tag": ("region", "eu")},
    "a tag of all records in one scope": {"tag": ("region", "eu"), "scope": "tenant 1"},
    "a tag of all records after some time": {"tag": ("region", "eu"), "after_us": 5},
}


# SQLite finds a record by its digest, or by time and digest: it has seen both beside the value.
_KEYS: Final = {"PRIMARY", "semel_record_pk", "sqlite_autoindex_semel_record_1", "semel_record_created"}
_INDEX: Final = re.compile(r"(?: using|Bitmap Index Scan on) (\w+)")


class Place(NamedTuple):
    """A store with many records, and the indexes by which a statement of it finds rows."""

    store: Store
    indexes: Callable[[Query], set[str]]


def claims() -> Iterator[list[Claim]]:
    """The claims of all records, in lists as lanes send them."""
    of, batch = terms(), 64
    for start in range(0, RECORDS, batch):
        yield [
            Claim(
                Key.of(str(number), operation="charge", scope=f"tenant {number % TENANTS}"),
                FINGERPRINTS[0],
                number.to_bytes(16, "big"),
                of,
                About(
                    subject=f"order {number}",
                    requester=f"customer {number % CUSTOMERS}",
                    tags={"tenant": str(number % TENANTS), "region": "eu"},
                ),
            )
            for number in range(start, min(start + batch, RECORDS))
        ]


def fill(store: Store) -> Store:
    driver, lists = store.driver(), claims()
    while some := list(islice(lists, 200)):
        replies = driver.perform([store.plan(operations, joined=False) for operations in some])
        assert all(isinstance(answer, Granted) for reply in replies if isinstance(reply, list) for answer in reply)
    driver.close()
    return store


def _sqlite(folder: Path, _request: pytest.FixtureRequest) -> Place:
    path = folder / "semel.db"
    store = fill(SqliteStore(path, synchronous="NORMAL"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ANALYZE")

    def indexes(query: Query) -> set[str]:
        command = select_command("scan", query, (5, bytes(32)), limit=PAGE + 1)
        assert command is not None
        with closing(sqlite3.connect(path)) as connection:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {command.text}", {**command.named, "now": 1}).fetchall()
        assert not any("SCAN" in line or "TEMP B-TREE" in line for *_, line in plan), plan
        return {line.split(" INDEX ")[1].split(" ")[0] for *_, line in plan}

    return Place(store, indexes)


def _postgresql(_folder: Path, request: pytest.FixtureRequest) -> Place:
    import psycopg

    url = request.getfixturevalue("postgresql").new_database()
    store = PostgresStore(url)
    fill(store)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")

    def indexes(query: Query) -> set[str]:
        dialect = store._context.dialect
        assert isinstance(dialect, PostgresDialect)
        command = _scan(dialect, query)
        # As in a pool of the caller's, whose sessions have the settings of the server.
        with psycopg.connect(url, autocommit=True) as connection, psycopg.ClientCursor(connection) as cursor:
            cursor.execute(f"EXPLAIN {command.text.replace('?', '%s')}".encode(), command.values)
            plan = [line for (line,) in cursor.fetchall()]
        assert not any("Seq Scan" in line for line in plan), plan
        return {found.group(1) for line in plan if (found := _INDEX.search(line))}

    return Place(store, indexes)


def _mariadb(_folder: Path, request: pytest.FixtureRequest) -> Place:
    from tests.stores.mysql.kit import connected, told

    url = request.getfixturevalue("mariadb").new_database()
    store = MysqlStore(url)
    fill(store)
    with connected(url) as connection:
        told(connection, "ANALYZE TABLE semel_record, semel_search")

    def indexes(query: Query) -> set[str]:
        dialect = store._context.dialect
        assert isinstance(dialect, MysqlDialect)
        command = _scan(dialect, query)
        with connected(url) as connection:
            plan = told(connection, f"EXPLAIN {command.text.replace('?', '%s')}", *command.values)
        assert not any("filesort" in str(line) or "temporary" in str(line) for line in plan), plan
        return {str(line[5]) for line in plan}

    return Place(store, indexes)


def _scan(dialect: PostgresDialect | MysqlDialect, query: Query) -> Command:
    command = dialect.scan(Scan(query, (5, bytes(32)), PAGE))
    assert command is not None
    return command


@pytest.fixture(scope="module", params=[_sqlite, _postgresql, _mariadb], ids=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made: Place = request.param(tmp_path_factory.mktemp("records"), request)
    return made


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_search_goes_by_the_index_of_its_value_and_then_by_the_key_of_each_record(
    place: Place, search: dict[str, Any]
) -> None:
    by_term, by_record = {"semel_term_everywhere", "semel_term_in_scope"}, _KEYS
    used = place.indexes(Query(**search))
    assert len(used & by_term) == len(used & by_record) == 1, used
    assert used <= by_term | by_record, used
    if "scope" in search:
        assert "semel_term_in_scope" in used
    elif "region" in search.get("tag", ()):
        assert "semel_term_everywhere" in used, "all records of the region would have to be sorted"


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_finds_a_page_of_records_and_in_time(place: Place, name: str) -> None:
    search = {**SEARCHES[name]}
    search.pop("after_us", None)
    took: list[float] = []
    found: list[Record] = []
    with Semel(place.store) as semel:
        for _ in range(TIMES):
            began = time.perf_counter()
            found = list(islice(semel.records(**search), PAGE))
            took.append(time.perf_counter() - began)
    assert found, "nothing was found"
    assert all(record.key.scope == search.get("scope", record.key.scope) for record in found)
    median = statistics.median(took)
    print(f"{name}, {RECORDS:,} records: {len(found)} found, median {median * 1000:.1f} ms")
    if FULL:
        assert median <= MOST
