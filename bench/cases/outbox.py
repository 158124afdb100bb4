"""The outbox on PostgreSQL alone: what an event adds to a completion, and how fast a relay reads.

The relay's publisher does nothing, so its rate is that of reading, decoding and saving.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from bench.callers import Numbers, alone_async, event_loop
from bench.event_servers import events_of, fill_outbox
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, execute, server, settle
from bench.shop import TABLES, asked, place_async
from bench.site import Fact
from bench.workload import OPERATION, TENANT, Receipt, order
from semel import AsyncSemel
from semel.events import Event, Outbox, Relay

_MOST_US = 20.0
"""Microseconds for an event: 50,000 of them in a second."""
_EVENTS = 20_000


class Nowhere:
    """A publisher that does nothing."""

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """Take them."""
        return [None] * len(events)


def _completing(name: str, *, adds: bool) -> Callable[[Path, Effort], AbstractContextManager[Measure]]:
    """A transaction of three statements with its record, and an event that rides on the completion of it."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        numbers.take(1)  # the template was filled with the first
        with database(folder, name) as url, event_loop() as loop:
            execute(url, *TABLES)
            semel, connection = AsyncSemel(url), loop.run(asyncpg.connect(url))
            outbox = Outbox(semel)

            async def place(tenant: str, order_id: str, amount: int, connection: Any) -> Receipt:
                placed = await place_async(tenant, order_id, amount, connection)
                if adds:
                    await outbox.add(Event(type="placed", source="/bench", subject=order_id, data=placed))
                return placed

            placing = semel.once(key="order_id", scope="tenant", operation=OPERATION, ignore=("connection",))(place)

            async def call(number: int) -> Any:
                async with connection.transaction(), semel.within(connection):
                    return await placing(TENANT, *asked(number), connection)

            yield lambda calls: loop.run(alone_async(numbers.take(calls), call))
            loop.run(connection.close())
            loop.run(semel.close())

    return prepare


def _relaying(name: str, *, held: bool = False) -> Callable[[Path, Effort], AbstractContextManager[Measure]]:
    """A relay that finds so many events, and passes them on to nobody."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        with database(folder, name) as url, event_loop() as loop:
            semel = AsyncSemel(url)
            holder = loop.run(asyncpg.connect(url)) if held else None
            if holder is not None:
                transaction = holder.transaction(isolation="repeatable_read")
                loop.run(transaction.start())
                # With a number of its own, so that it is one of those which every snapshot names.
                loop.run(holder.execute("SELECT pg_current_xact_id()"))

            def measure(calls: int) -> float:
                loop.run(fill_outbox(semel, events_of(numbers.take(calls))))
                return loop.run(_time_relay(semel))

            loop.run(_time_relay(semel))
            settle(url)
            yield measure
            if holder is not None:
                loop.run(holder.close())
            loop.run(semel.close())

    return prepare


async def _time_relay(semel: AsyncSemel) -> float:
    relay = Relay(Outbox(semel), Nowhere())
    began = time.perf_counter()
    await relay.run_once()
    return time.perf_counter() - began


def _facts(folder: Path, effort: Effort) -> Sequence[Fact]:
    with _relaying("outbox_fact")(folder, effort) as measure:
        calls = effort.calls(_EVENTS)
        seconds = sorted(measure(calls) for _ in range(5))[2]
    return [Fact("an event through a relay whose publisher does nothing", 1e6 * seconds / calls, "µs", _MOST_US)]


_PLAIN, _FREE = "a transaction with its record", "relay, publisher that does nothing"
OUTBOX = Case(
    "outbox",
    "the outbox on PostgreSQL: an event that rides on a completion, and a relay to a publisher that does nothing",
    (
        Variant(_PLAIN, _completing("outbox_plain", adds=False), 200),
        Variant(
            "the same with an event",
            _completing("outbox_event", adds=True),
            200,
            _PLAIN,
            Comparison("faster", 0.85),
        ),
        Variant(_FREE, _relaying("outbox_free"), _EVENTS),
        Variant(
            "relay while a transaction is held open",
            _relaying("outbox_held", held=True),
            _EVENTS,
            _FREE,
            Comparison("faster", 0.95),
        ),
    ),
    notes=(f"Events of about 200 bytes, {order(0)} and so on, in batches of 500; the cursor is saved after each.",),
    site=server,
    facts=_facts,
)
