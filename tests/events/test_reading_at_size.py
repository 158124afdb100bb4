"""How much of a large outbox a reading reads on PostgreSQL: by its indexes, as many pages as its events are on.

What the planner knows of the table is its statistics, and those are of the past: they are tried new and old.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.sql import Literal

from semel.core.events.outbox import Cursor, EventBatch, OpenCursor, PurgeEvents, ReadEvents, SaveCursor, StreamPart
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.postgresql.store import POSTGRESQL
from semel.stores.sql.adapter import PlaceholderStyle
from semel.stores.sql.adapters.psycopg import PsycopgAdapter
from semel.stores.sql.dialect import Command
from semel.stores.sql.plan import plan
from semel.stores.sql.settings import Settings
from tests.servers.databases import Databases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
EVENTS = 20_000
BATCH = 100
MOST_PAGES = 40
"""For 100 events of some 200 bytes: the pages of both indexes and of the table, read to the next place and back."""
ADD = """
INSERT INTO semel_outbox (added_us, shard, is_binary, stream, scope, id, source, type, attributes, data)
SELECT 0, n % 64, false, 'default', '', {name} || '.' || n, '/test', 'asset.moved', '{{}}', sha256('x')
FROM generate_series(1, 10) AS n
"""


class Outbox:
    """An outbox on a connection with the settings of the store's own, whose readings are explained."""

    def __init__(self, url: str, mode: str) -> None:
        PostgresStore(url).admin().migrate()
        self._dialect = PostgresDialect(Settings.of(url))
        self._connection = PsycopgAdapter(POSTGRESQL).connect(Settings.of(url))
        self._mode = mode
        self._numbered = PlaceholderStyle("$")
        self.other = psycopg.connect(url, autocommit=True)
        self.late = psycopg.connect(url)

    def close(self) -> None:
        for connection in (self._connection, self.other, self.late):
            connection.close()

    def ask(self, operation: Any) -> Any:
        """Carry out an operation."""
        steps = plan(self._dialect, [operation], joined=False)
        reply: Any = None
        while True:
            try:
                command = steps.send(reply)
            except StopIteration as end:
                (answer,) = end.value
                return answer
            reply = self._send(command)

    def explain(self, operation: ReadEvents | PurgeEvents) -> dict[str, Any]:
        """What the server does for a reading, or for a purge."""
        steps = plan(self._dialect, [operation], joined=False)
        command = next(steps)
        if isinstance(operation, PurgeEvents):
            command = steps.send(self._send(command))
        values = ", ".join(Literal(value).as_string(self.other) for value in command.values)
        self.other.execute(f"SET plan_cache_mode = {self._mode}".encode())
        self.other.execute(f"PREPARE reading AS {self._numbered(command.text)}".encode())
        told = self.other.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE reading ({values})".encode())
        self.other.execute("DEALLOCATE reading")
        ((found,),) = told.fetchall()
        top: dict[str, Any] = found[0]["Plan"]
        return top

    def _send(self, command: Command) -> list[tuple[Any, ...]]:
        cursor = psycopg.RawCursor(self._connection)
        cursor.execute(self._numbered(command.text).encode(), command.values)
        return cursor.fetchall() if cursor.description else []

    def open(self) -> Cursor:
        """Take the stream over."""
        cursor: Cursor = self.ask(OpenCursor(StreamPart("default"), bytes(16))).cursor
        return cursor

    def publish(self, cursor: Cursor, limit: int) -> tuple[Cursor, EventBatch]:
        """Read a batch and save it."""
        batch: EventBatch = self.ask(ReadEvents(cursor, limit))
        published = tuple(stored.position for stored in batch.events)
        saved: Cursor = self.ask(SaveCursor(batch.cursor, published)).cursor
        return saved, batch

    def publish_all(self, cursor: Cursor) -> Cursor:
        """Read all that is there."""
        is_last = False
        while not is_last:
            cursor, batch = self.publish(cursor, 5000)
            is_last = batch.is_last
        return cursor

    def fill(self, events: int) -> None:
        """Add events, ten in each transaction."""
        lots = f"FOR lot IN 1..{events // 10} LOOP {ADD.format(name='lot')}; COMMIT; END LOOP;"
        self.other.execute(f"DO $$ BEGIN {lots} END $$".encode())


def nodes(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes of a plan."""
    yield of
    for below in of.get("Plans", ()):
        yield from nodes(below)


def check(planned: dict[str, Any], most_pages: int, most_passed_over: int) -> None:
    """In the order of positions from the floor on, by numbers of transactions for the late ones, and nothing else."""
    text = json.dumps(planned, indent=1)
    found = list(nodes(planned))
    by_position = [node for node in found if node.get("Index Name") == "semel_outbox_pk"]
    assert [node["Node Type"] for node in by_position] == ["Index Scan"], text
    tables = [node for node in found if node.get("Relation Name") == "semel_outbox"]
    assert not [node for node in tables if node["Node Type"] == "Seq Scan"], text
    late = [node for node in found if node.get("Index Name") == "semel_outbox_xid"]
    assert all("xid = late.xid" in node["Index Cond"] for node in late), text
    assert planned["Shared Hit Blocks"] + planned["Shared Read Blocks"] <= most_pages, text
    assert sum(node.get("Rows Removed by Filter", 0) for node in by_position) <= most_passed_over, text
    sorted_rows = [below["Actual Rows"] for node in found if node["Node Type"] == "Sort" for below in node["Plans"]]
    assert max(sorted_rows, default=0) <= BATCH, text


@pytest.fixture
def outbox(postgresql: Databases, request: pytest.FixtureRequest) -> Iterator[Outbox]:
    outbox = Outbox(postgresql.new_database(), request.param)
    yield outbox
    outbox.close()


@pytest.mark.parametrize("outbox", ["force_custom_plan", "force_generic_plan"], indirect=True)
@pytest.mark.parametrize("analyzed_at", [0, 1_000, EVENTS], ids=["never", "long-ago", "before"])
def test_a_reading_reads_few_pages_whatever_the_statistics_say(outbox: Outbox, analyzed_at: int) -> None:
    outbox.other.execute("ALTER TABLE semel_outbox SET (autovacuum_enabled = false)")
    outbox.late.execute(ADD.format(name="'late'").encode())
    outbox.fill(analyzed_at)
    if analyzed_at:
        outbox.other.execute("ANALYZE semel_outbox")
    outbox.fill(EVENTS - analyzed_at)
    cursor = outbox.publish_all(outbox.open())
    outbox.fill(EVENTS)
    cursor, _ = outbox.publish(cursor, BATCH)
    outbox.late.commit()
    while True:
        check(outbox.explain(ReadEvents(cursor, BATCH)), MOST_PAGES, BATCH)
        cursor, batch = outbox.publish(cursor, 10 * BATCH)
        if batch.is_last:
            break
    # The first reading of a window passes over the window before, once.
    check(outbox.explain(ReadEvents(cursor, BATCH)), MOST_PAGES + EVENTS // 40, EVENTS)
    cursor, batch = outbox.publish(cursor, BATCH)
    assert [stored.event.id for stored in batch.events] == [f"late.{n}" for n in range(1, 11)]
    check(outbox.explain(ReadEvents(cursor, BATCH)), MOST_PAGES, BATCH)


@pytest.mark.parametrize("outbox", ["force_custom_plan", "force_generic_plan"], indirect=True)
@pytest.mark.parametrize("analyzed_at", [0, 1_000, EVENTS], ids=["never", "long-ago", "before"])
def test_a_purge_reads_what_it_deletes_and_not_all_that_is_kept(outbox: Outbox, analyzed_at: int) -> None:
    outbox.other.execute("ALTER TABLE semel_outbox SET (autovacuum_enabled = false)")
    outbox.fill(analyzed_at)
    if analyzed_at:
        outbox.other.execute("ANALYZE semel_outbox")
    outbox.fill(EVENTS - analyzed_at)
    cursor = outbox.publish_all(outbox.open())
    outbox.other.execute("UPDATE semel_outbox SET added_us = extract(epoch FROM clock_timestamp()) * 1000000")
    outbox.other.execute("UPDATE semel_outbox SET added_us = 0 WHERE position <= 30")
    outbox.other.execute("VACUUM semel_outbox")
    for deleted in (30, 0):
        planned = outbox.explain(PurgeEvents(cursor, 3_600_000_000, 5000))
        text = json.dumps(planned, indent=1)
        pages = planned["Shared Hit Blocks"] + planned["Shared Read Blocks"]
        assert pages <= MOST_PAGES + 5 * deleted, text
        removed = [node.get("Rows Removed by Filter", 0) for node in nodes(planned)]
        assert max(removed) <= 31, text
        ((left,),) = outbox.other.execute("SELECT count(*) FROM semel_outbox WHERE added_us = 0").fetchall()
        assert left == 0


@pytest.mark.parametrize("outbox", ["force_custom_plan"], indirect=True)
def test_an_event_of_a_clock_that_was_wrong_does_not_keep_others_from_being_purged(outbox: Outbox) -> None:
    outbox.fill(30)
    cursor = outbox.publish_all(outbox.open())
    outbox.other.execute("UPDATE semel_outbox SET added_us = 9000000000000000 WHERE position = 1")
    assert outbox.ask(PurgeEvents(cursor, 3_600_000_000, 5000)).count == 29
