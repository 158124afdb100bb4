"""Waiters in another process are told of an end, and only where somebody waits. The clock stands still meanwhile."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from semel import AsyncSemel, Semel
from semel.stores.postgresql import PostgresStore
from semel.testing.clock import VirtualClock
from tests.servers.databases import Databases

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


@pytest.fixture
def database(postgresql: Databases) -> str:
    return postgresql.new_database()


@pytest.fixture
def outsider(database: str) -> Iterator[psycopg.Connection[Any]]:
    with Semel(database) as semel:
        semel.run("first", lambda: None, operation="create the tables", fingerprint=None)
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def listeners(outsider: psycopg.Connection[Any]) -> int:
    listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    row = outsider.execute(listening).fetchone()
    return 0 if row is None else int(row[0])


def wanted(outsider: psycopg.Connection[Any]) -> int:
    row = outsider.execute("SELECT count(*) FROM semel_record WHERE wanted").fetchone()
    return 0 if row is None else int(row[0])


async def until(holds: Callable[[], bool], clock: VirtualClock) -> None:
    """Let the waiter's first look come, and nothing later."""
    while not holds():
        due = clock.next_due()
        if due is not None and due <= 0.06:
            clock.advance_to(due)
        await asyncio.sleep(0)


async def test_a_waiting_task_is_told(database: str, outsider: psycopg.Connection[Any]) -> None:
    clock, let_go = VirtualClock(), asyncio.Event()

    async def work() -> str:
        await let_go.wait()
        return "done"

    async def again() -> str:
        raise AssertionError

    async with AsyncSemel(database) as owner, AsyncSemel(PostgresStore(database), clock=clock) as other:
        running = asyncio.create_task(owner.run("k", work, operation="pay", fingerprint=None))
        await until(lambda: outsider.execute("SELECT FROM semel_record WHERE value = 'k'").rowcount == 1, clock)
        waiting = asyncio.create_task(other.run("k", again, operation="pay", fingerprint=None))
        await until(lambda: listeners(outsider) == 1 and wanted(outsider) == 1, clock)
        let_go.set()
        assert (await running).value == "done"
        assert (await waiting).value == "done"


def test_a_waiting_thread_is_told(database: str, outsider: psycopg.Connection[Any]) -> None:
    clock, let_go, began = VirtualClock(), threading.Event(), threading.Event()
    got: list[Any] = []

    def work() -> str:
        began.set()
        let_go.wait()
        return "done"

    with Semel(database) as owner, Semel(PostgresStore(database), clock=clock) as other:
        running = threading.Thread(target=lambda: owner.run("k", work, operation="pay", fingerprint=None))
        running.start()
        began.wait()
        waiting = threading.Thread(
            target=lambda: got.append(other.run("k", work, operation="pay", fingerprint=None).value)
        )
        waiting.start()
        asyncio.run(until(lambda: listeners(outsider) == 1 and wanted(outsider) == 1, clock))
        let_go.set()
        running.join()
        waiting.join()
    assert got == ["done"]


async def test_nothing_is_told_where_nobody_waits(database: str, outsider: psycopg.Connection[Any]) -> None:
    outsider.execute('LISTEN "public.semel_ended"')

    async def work() -> str:
        return "done"

    async with AsyncSemel(database) as semel:
        await semel.run("k", work, operation="pay", fingerprint=None)
    outsider.execute("NOTIFY \"public.semel_ended\", 'last'")
    assert [notice.payload for notice in outsider.notifies(stop_after=1)] == ["last"]


async def test_without_listening_a_waiter_looks(database: str, outsider: psycopg.Connection[Any]) -> None:
    let_go, began = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        began.set()
        await let_go.wait()
        return "done"

    async with AsyncSemel(database) as owner, AsyncSemel(database, listen=False) as other:
        running = asyncio.create_task(owner.run("k", work, operation="pay", fingerprint=None))
        await began.wait()
        waiting = asyncio.create_task(other.run("k", work, operation="pay", fingerprint=None))
        while not wanted(outsider):  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0)
        assert listeners(outsider) == 0
        let_go.set()
        assert (await running).value == (await waiting).value == "done"
