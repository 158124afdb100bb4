"""How much of a large outbox a purge reads on SQLite: what it deletes, and not all that is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite import outbox as sqlite_outbox

EVENTS = 20_000
NOW = 10_000_000
OLD = 30
ADD = """
INSERT INTO semel_outbox (added_us, shard, is_binary, stream, scope, id, source, type, attributes, data)
WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < :events)
SELECT CASE WHEN value <= :old THEN 0 ELSE :now END, value % 64, 0, 'default', '', value, '/test', 't', X'7B7D', X'00'
FROM n
"""
PURGE = {"stream": "default", "parts": 1, "part": 0, "at": EVENTS, "after": 0, "keep_us": NOW // 2, "now": NOW}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    SqliteStore(tmp_path / "semel.db").admin().migrate()
    with closing(sqlite3.connect(tmp_path / "semel.db")) as connection:
        connection.execute(ADD, {"events": EVENTS, "old": OLD, "now": NOW})
        yield connection


def find_lot(connection: sqlite3.Connection) -> tuple[int, int | None, int]:
    """How many events a purge finds, the last of them, and how many hundred steps of SQLite's machine that took."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 100)
    ((found, last),) = connection.execute(sqlite_outbox._SQL["lot"], {**PURGE, "limit": 5000}).fetchall()
    connection.set_progress_handler(None, 0)
    return found, last, steps


def test_a_purge_reads_what_it_deletes_and_not_all_that_is_kept(connection: sqlite3.Connection) -> None:
    found, last, steps = find_lot(connection)
    assert (found, last) == (OLD, OLD)
    assert steps < EVENTS // 100, "it looked at each event"


def test_a_purge_that_finds_nothing_reads_next_to_nothing(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM semel_outbox WHERE added_us = 0")
    found, last, steps = find_lot(connection)
    assert (found, last) == (0, None)
    assert steps < EVENTS // 100, "it looked at each event"


def test_an_event_of_a_clock_that_was_wrong_does_not_keep_others_from_being_purged(
    connection: sqlite3.Connection,
) -> None:
    connection.execute("UPDATE semel_outbox SET added_us = 9000000000000000 WHERE position = 1")
    assert find_lot(connection)[:2] == (OLD - 1, OLD)
