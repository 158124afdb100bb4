"""What a relay asks of PostgreSQL, as the server's own log has it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from semel import AsyncSemel
from semel.core.events.outbox import AddEvents
from semel.core.flow import Flow, ask
from semel.engine import background
from semel.engine.engine import engine_of
from semel.events import Event, Outbox, Relay
from semel.events import relay as relay_module
from semel.events.encoding import to_outbox
from tests.events.places import Broker, an_event
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow
BATCH = 100
MOST = 0.02
"""Statements for an event."""


@contextmanager
def asyncpg_noted(note: Callable[[str], object]) -> Iterator[None]:
    """Tell of every statement when it is sent."""
    connection: Any = asyncpg.Connection
    send = connection._do_execute

    async def noted(self: Any, query: Any, *rest: Any, **more: Any) -> Any:
        note(query if isinstance(query, str) else query.query)
        return await send(self, query, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "_do_execute", noted)
        yield


def statements_in(log: Path, database: str) -> int:
    """How many statements the server was sent for a database."""
    pattern = rf"\[\d+\] {database} LOG:  (?:statement|execute [^:]*): "
    return len(re.findall(pattern, log.read_text(encoding="utf-8", errors="replace")))


async def fill(semel: AsyncSemel, number: int) -> None:
    def add() -> Flow[None]:
        yield from ask(AddEvents(tuple(to_outbox(an_event(f"e-{one}"), "default", None) for one in range(number))))

    await engine_of(semel).perform_on(None, add())


async def count_statements(semel: AsyncSemel, log: Path, database: str, events: int) -> int:
    """How many statements a relay sends for so many events that wait."""
    await fill(semel, events)
    broker, before = Broker(), statements_in(log, database)
    assert await Relay(Outbox(semel), broker, batch=BATCH).run_once() == events
    assert len(broker.got) == events
    return statements_in(log, database) - before


def test_a_further_batch_of_a_relay_is_two_statements(postgresql: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    # How often the lease is renewed depends on time, not on events: so long that it is not.
    monkeypatch.setattr(relay_module, "_LEASE", timedelta(minutes=5))
    monkeypatch.setattr(background, "REGISTER_AFTER", 3600.0)  # likewise the note of which process this is
    log = postgresql.statement_log
    if log is None:
        pytest.skip("the log of a server that is not ours cannot be read")
    url = postgresql.new_database()
    database = urlsplit(url).path.removeprefix("/")
    postgresql.admin(f"ALTER DATABASE {database} SET log_statement = 'all'")

    async def count() -> tuple[int, int]:
        async with AsyncSemel(url) as semel:
            await count_statements(semel, log, database, BATCH)  # makes the tables, and the first cursor
            few = await count_statements(semel, log, database, 5 * BATCH)
            many = await count_statements(semel, log, database, 25 * BATCH)
            return few, many

    few, many = asyncio.run(count())
    assert few > 0, "nothing was counted"
    assert (many - few) / (20 * BATCH) <= MOST, (few, many)
    assert few - 5 * 2 < 12, f"what is not for a batch: {few - 5 * 2} statements"


async def _relay_and_note(url: str) -> list[str]:
    """What happens while two batches are published: what is read on the connection, and what is published."""
    noted: list[str] = []

    class Noting(Broker):
        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            noted.append("publish")
            return await super().publish(events)

    async with AsyncSemel(url) as semel:
        await fill(semel, 2 * BATCH)
        with asyncpg_noted(lambda query: noted.append("read") if "is_mine" in query else None):
            await Relay(Outbox(semel), Noting(), in_flight=BATCH, batch=BATCH).run_once()
    return noted


def test_the_next_batch_is_asked_for_before_a_publisher_that_never_waits_begins(postgresql: Databases) -> None:
    noted = asyncio.run(_relay_and_note(postgresql.new_database()))
    assert noted[:4] == ["read", "read", "publish", "read"]
