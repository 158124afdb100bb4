"""How items get into PostgreSQL: by COPY where the client library has it, and all of a lot or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from semel.errors import BatchInvalid
from semel.stores.postgresql import PostgresStore
from tests.batch.desk import Desk
from tests.faults.postgresql.pooled import bouncer
from tests.servers.databases import Databases
from tests.servers.plugin import verdict
from tests.servers.programs import ServerMissing
from tests.servers.room import Room

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
COPIES = ["psycopg", "asyncpg", "psycopg_pool", "asyncpg_pool", "proxy", "proxy_async"]
ROWS = ["sqlalchemy", "sqlalchemy_async"]


async def _place(name: str, url: str, stack: AsyncExitStack, room: Room) -> tuple[str, Callable[[], Any]]:
    """The kind of engine, and what makes its store."""
    plain = url.partition("://")[2]
    match name:
        case "psycopg_pool":
            pool = stack.enter_context(psycopg_pool.ConnectionPool(url, min_size=1, open=True))
            return "sync", lambda: pool
        case "asyncpg_pool":
            lent = await stack.enter_async_context(asyncpg.create_pool(url, min_size=1))
            return "async", lambda: lent
        case "sqlalchemy":
            engine = sqlalchemy.create_engine(f"postgresql+psycopg://{plain}")
            stack.callback(engine.dispose)
            return "sync", lambda: engine
        case "sqlalchemy_async":
            awaited = create_async_engine(f"postgresql+asyncpg://{plain}")
            stack.push_async_callback(awaited.dispose)
            return "async", lambda: awaited
        case "proxy" | "proxy_async":
            try:
                through = stack.enter_context(bouncer(url, room))
            except ServerMissing as missing:
                raise verdict(str(missing), optional=True) from None
            return ("async" if name == "proxy_async" else "sync"), lambda: PostgresStore(through, pooled=True)
        case _:
            return ("async" if name == "asyncpg" else "sync"), lambda: PostgresStore(url)


@pytest.fixture
def url(postgresql: Databases) -> str:
    found = postgresql.new_database()
    if postgresql.statement_log is not None:
        postgresql.admin(f"ALTER DATABASE {urlsplit(found).path.removeprefix('/')} SET log_statement = 'all'")
    return found


@pytest.fixture
async def desk(request: pytest.FixtureRequest, url: str, room: Room) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        kind, make_store = await _place(request.param, url, stack, room)
        made = Desk(kind, make_store)
        yield made
        await made.close()


def _is_logged(log: Path | None, url: str, words: str) -> bool:
    if log is None:
        pytest.skip("the log of a server that is not ours cannot be read")
    database = f" {urlsplit(url).path.removeprefix('/')} LOG:"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(database in line and words in line for line in lines)


@pytest.mark.parametrize("desk", COPIES, indirect=True)
async def test_items_are_copied(desk: Desk, url: str, postgresql: Databases) -> None:
    await desk.start(5)
    assert _is_logged(postgresql.statement_log, url, "COPY ")


@pytest.mark.parametrize("desk", ROWS, indirect=True)
async def test_a_library_without_copy_sends_arrays(desk: Desk, url: str, postgresql: Databases) -> None:
    await desk.start(5)
    assert not _is_logged(postgresql.statement_log, url, "COPY ")


@pytest.mark.parametrize("desk", [*COPIES, *ROWS], indirect=True)
async def test_what_was_loaded_is_what_was_given(desk: Desk) -> None:
    items = [{"id": f"ä{n}", "text": "tab\tback\\slash\nnull \\N", "none": None, "who": f"é{n}"} for n in range(5)]
    batch = await desk.start(items=items, about=lambda item: {"subject": item["who"]})
    seen: list[Any] = []
    await desk.run(batch, lambda item: seen.append(item.data))
    assert sorted(seen, key=lambda one: one["id"]) == items


@pytest.mark.parametrize("desk", [*COPIES, *ROWS], indirect=True)
async def test_an_id_that_was_there_in_an_earlier_lot_is_named_and_nothing_is_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.batch.sources.LOT", 3)
    items = [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}, {"id": "a"}, {"id": "e"}]
    with pytest.raises(BatchInvalid, match="4: the id 'a' was there already"):
        await desk.start(items=items)
    batch = await desk.start(2)
    assert (await desk.run(batch)).completed == 2
