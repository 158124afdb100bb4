"""What a relay asks of PostgreSQL, as the server's own log has it."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from semel import AsyncSemel
from semel.core.events.outbox import AddEvents
from semel.core.flow import Flow, ask
from semel.engine import background
from semel.engine.engine import engine_of
from semel.events import Outbox, Relay
from semel.events import relay as relay_module
from semel.events.encoding import to_outbox
from tests.events.places import Broker, an_event
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow
BATCH = 100
MOST = 0.02
"""Statements for an event."""


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
