"""The asset service on real servers: consumers of a RabbitMQ queue that write to PostgreSQL, and are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiormq
import asyncpg
import pytest

from examples.assets.rabbitmq import declare, send
from examples.assets.sample import EVENTS, deliveries
from semel import AsyncSemel
from semel.events import Event
from tests.assets.test_assets import END
from tests.effort import FULL
from tests.processes import child
from tests.servers.broker import Broker
from tests.servers.databases import Databases
from tests.servers.records import emptied

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LONG = 60.0
KILLS = 8 if FULL else 2
ROOT = Path(__file__).parents[2]


@dataclass
class Servers:
    """A queue of this test, and its database."""

    database: str
    broker: str
    queue: str
    connection: asyncpg.Connection[Any]
    semel: AsyncSemel

    async def end_state(self) -> list[tuple[object, ...]]:
        rows = await self.connection.fetch(
            "SELECT a.id, facility, type, capacity_kw, state, load_kw, kwh FROM asset AS a "
            "LEFT JOIN asset_state AS s ON s.id = a.id LEFT JOIN energy AS e ON e.id = a.id ORDER BY a.id"
        )
        return [tuple(row) for row in rows]

    async def processed(self) -> int:
        """How many events have their mark."""
        return await self.semel.count(operation="event:assets", status="completed")

    async def has_processed(self, number: int) -> bool:
        return await self.processed() >= number

    async def messages(self, queue: str | None = None) -> int:
        """How many messages nobody has, or has taken."""
        connection = await aiormq.connect(self.broker)
        declared = await (await connection.channel()).queue_declare(queue or self.queue, passive=True)
        await connection.close()
        return int(declared.message_count or 0)

    async def is_empty(self) -> bool:
        return await self.messages() == 0

    @contextmanager
    def service(self) -> Iterator[subprocess.Popen[str]]:
        """A process of the example."""
        line = [sys.executable, "-m", "examples.assets.rabbitmq", "--queue", self.queue]
        variables = {**os.environ, "SEMEL_URL": self.database, "SEMEL_BROKER": self.broker}
        with child(line, cwd=ROOT, env=variables, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"listening to {self.queue}\n"
            yield process


@pytest.fixture
async def servers(postgresql: Databases, rabbitmq: Broker) -> AsyncIterator[Servers]:
    url, queue = emptied(postgresql, postgresql.url), rabbitmq.new_name()
    await declare(rabbitmq.url, queue)
    connection = await asyncpg.connect(url)
    for table in ("asset", "asset_state", "energy"):
        await connection.execute(f"DROP TABLE IF EXISTS {table}")
    async with AsyncSemel(url) as semel:
        yield Servers(url, rabbitmq.url, queue, connection, semel)
    await connection.close()


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Look until it is so: nobody tells a test what other processes have done."""
    try:
        async with asyncio.timeout(LONG):
            while not await condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{what}: not within {LONG} s")


async def stop(process: subprocess.Popen[str]) -> None:
    """Ask for its end, which has to be a clean one."""
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, LONG) == 0


async def check_end(servers: Servers) -> None:
    """Run services until nothing is left, and compare what came of it."""
    async with asyncio.timeout(LONG):  # one more run takes what the one before gave back
        while not (await servers.has_processed(len(EVENTS)) and await servers.is_empty()):
            with servers.service() as process:
                await until(lambda: servers.has_processed(len(EVENTS)), "every event is processed")
                await until(servers.is_empty, "nothing waits")
                await stop(process)  # repeats that it had taken, and not begun, go back to the queue
    assert await servers.end_state() == END
    assert await servers.processed() == len(EVENTS)


@pytest.mark.parametrize("seed", range(5 if FULL else 1))
async def test_repeats_in_any_order_through_a_queue_give_one_end(servers: Servers, seed: int) -> None:
    delivered = deliveries(random.Random(seed), times=5)
    assert len(delivered) > len(EVENTS), "some come several times"
    await send(servers.broker, servers.queue, delivered)
    await check_end(servers)


async def test_two_consumers_of_one_queue_give_one_end(servers: Servers) -> None:
    with servers.service() as other:
        await send(servers.broker, servers.queue, deliveries(random.Random(3), times=5))
        await check_end(servers)
        await stop(other)
    assert await servers.end_state() == END


async def test_a_consumer_that_is_killed_inside_a_transaction_loses_and_repeats_nothing(servers: Servers) -> None:
    with servers.service() as victim:
        # Its handlers of energy wait for this lock, inside their transactions.
        transaction = servers.connection.transaction()
        await transaction.start()
        await servers.connection.execute("LOCK TABLE energy IN ACCESS EXCLUSIVE MODE")
        await send(servers.broker, servers.queue, deliveries(random.Random(4), times=3))
        await until(lambda: _somebody_waits(servers), "a handler is inside its transaction")
        victim.kill()
        await asyncio.to_thread(victim.wait, LONG)
        await transaction.rollback()
    assert await servers.processed() < len(EVENTS), "what was under way is not marked"
    await check_end(servers)


async def _somebody_waits(servers: Servers) -> bool:
    return bool(
        await servers.connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'energy'::regclass"
        )
    )


async def test_consumers_that_are_killed_again_and_again_give_one_end(servers: Servers) -> None:
    delivered = deliveries(random.Random(5), times=4)
    for event in delivered[:KILLS]:
        with servers.service() as victim:
            await send(servers.broker, servers.queue, [event])
            await until(partial(_is_done, servers, event), "it is processed")
            victim.kill()  # perhaps before it is acknowledged, perhaps after: nobody knows
            await asyncio.to_thread(victim.wait, LONG)
    await send(servers.broker, servers.queue, delivered[KILLS:])
    await check_end(servers)


async def _is_done(servers: Servers, event: Event) -> bool:
    record = await servers.semel.read((event.source, event.id), operation="event:assets")
    return record is not None and record.status == "completed"


async def test_an_event_that_fails_for_good_is_a_letter_and_in_the_queue_for_dead_letters(servers: Servers) -> None:
    lost = Event(id="x-1", type="asset.energy_metered", source="/s", data={"kwh": 1.0})
    with servers.service() as process:
        await send(servers.broker, servers.queue, [lost])

        async def is_passed_on() -> bool:
            return await servers.messages(f"{servers.queue}.dead") == 1

        await until(is_passed_on, "the broker has it")
        await stop(process)
    record = await servers.semel.read(("/s", "x-1"), operation="event:assets")
    assert record is not None
    assert (record.status, record.retryable) == ("failed", False)
