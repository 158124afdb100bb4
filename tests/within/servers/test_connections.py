"""Which connections can be joined, and what those who give another one are told. within.md point 6 and the table."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

from semel import AsyncSemel, Semel
from semel.errors import NotInTransaction, TransactionAborted, UsageError
from semel.stores.postgresql import PostgresStore
from semel.stores.urls import store_from_url
from tests.within.servers.callers import with_driver
from tests.within.servers.world import DOORS, OnServer, on_postgresql

pytestmark = pytest.mark.anyio

Make = Callable[[str], Any]


@on_postgresql
async def test_a_transaction_that_failed_before_is_transaction_aborted(world: OnServer) -> None:
    caller = await world.begun()
    with pytest.raises(Exception, match="nowhere"):
        await caller.sql("SELECT * FROM nowhere")
    with pytest.raises(TransactionAborted):
        await world.call(caller.thing, "o-1", world.writes(caller))
    assert (world.runs, world.statuses()) == ([], [])


async def test_a_closed_connection_is_refused(world: OnServer) -> None:
    caller = await world.open()
    thing = caller.thing
    await caller.close()
    if "Session" in type(thing).__name__:
        await world.call(thing, "o-1", world.nothing)  # a closed session opens again, and begins again
        await caller.rollback()
    else:
        with pytest.raises(NotInTransaction):
            await world.call(thing, "o-1", world.nothing)
    assert world.statuses() == []


async def test_a_connection_without_a_transaction_is_refused_or_begins_one(world: OnServer) -> None:
    """With asyncpg and Django every statement would commit; the others begin by themselves."""
    caller = await world.open()
    if type(caller).__name__ in ("Asyncpg", "Django"):
        with pytest.raises(NotInTransaction, match="around it"):
            await world.call(caller.thing, "o-1", world.writes(caller))
        assert (world.runs, world.statuses()) == ([], [])
    else:
        await world.call(caller.thing, "o-1", world.writes(caller))
        assert world.statuses() == []
        await caller.commit()
        assert (world.rows(), world.statuses()) == (["charged"], ["completed"])


@pytest.mark.parametrize("world", [name for name, door in DOORS.items() if door.autocommit], indirect=True)
async def test_autocommit_is_refused(world: OnServer) -> None:
    caller = await world.open(**world.door.autocommit)
    with pytest.raises(NotInTransaction, match=r"(?i)autocommit"):
        await world.call(caller.thing, "o-1", world.writes(caller))
    assert (world.runs, world.rows(), world.statuses()) == ([], [], [])


async def test_a_transaction_that_may_not_write_is_refused(world: OnServer) -> None:
    caller = await world.begun()
    await caller.sql("SET TRANSACTION READ ONLY")
    with pytest.raises(NotInTransaction, match="may write"):
        await world.call(caller.thing, "o-1", world.nothing)


async def test_a_database_without_the_tables_is_refused(world: OnServer) -> None:
    caller = await world.open(world.databases.new_database())
    await caller.begin()
    with pytest.raises(NotInTransaction, match="without semel's tables"):
        await world.call(caller.thing, "o-1", world.nothing)


async def test_a_database_with_other_semel_tables_is_refused(world: OnServer) -> None:
    url = world.databases.new_database()
    with Semel(store_from_url(url)) as other:
        other.read("nothing", operation="charge")
    caller = await world.open(url)
    await caller.begin()
    with pytest.raises(NotInTransaction, match="another database"):
        await world.call(caller.thing, "o-1", world.nothing)
    assert await caller.sql("SELECT count(*) FROM semel_record") == [(0,)]


async def test_the_tables_may_be_new(world: OnServer) -> None:
    """`within` as the first thing that is ever done with a database."""
    url = world.databases.new_database()
    engine = world.engine_at(url)
    caller = await world.open(url)
    await caller.begin()
    assert (await world.call(caller.thing, "o-1", world.nothing, semel=engine)).value == "done"
    await caller.commit()
    await world.close_engine(engine)


async def test_the_other_colour_is_refused_and_told_what_to_use(world: OnServer) -> None:
    caller = await world.open()
    if world.door.colour == "sync":
        wanted = "sync_to_async" if type(caller).__name__ == "Django" else "Use Semel"
        with pytest.raises(UsageError, match=wanted):
            AsyncSemel(store_from_url(world.url)).within(caller.thing)
    else:
        with pytest.raises(UsageError, match="Use AsyncSemel"):
            Semel(store_from_url(world.url)).within(caller.thing)


@pytest.mark.parametrize("thing", [None, "postgresql://", object()], ids=["none", "text", "object"])
@pytest.mark.parametrize("kind", [Semel, AsyncSemel], ids=["sync", "async"])
def test_what_is_no_connection_is_refused(kind: Any, thing: Any) -> None:
    with pytest.raises(UsageError, match="SQLAlchemy"):
        kind(PostgresStore("postgresql://nowhere")).within(thing)


def _engine(url: str) -> Any:
    return sa.create_engine(with_driver(url, "postgresql+psycopg"))


WRONG: dict[str, tuple[type, Make]] = {
    "sqlalchemy-engine": (Semel, _engine),
    "sqlalchemy-sessionmaker": (Semel, lambda url: orm.sessionmaker(_engine(url))),
    "asyncpg-pool": (AsyncSemel, asyncpg.create_pool),
    "psycopg-class": (Semel, lambda url: psycopg.Connection),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_only_makes_connections_is_refused(what: str) -> None:
    kind, make = WRONG[what]
    url = "postgresql://nowhere"
    with pytest.raises(UsageError, match="runs your own statements"):
        kind(PostgresStore(url)).within(make(url))


def test_a_session_that_knows_no_database_is_refused() -> None:
    with pytest.raises(UsageError, match="bind_arguments"):
        Semel(PostgresStore("postgresql://nowhere")).within(orm.Session())


def test_a_connection_to_another_kind_of_server_is_refused() -> None:
    with sa.create_engine("sqlite://").connect() as connection, pytest.raises(UsageError, match="leads to sqlite"):
        Semel(PostgresStore("postgresql://nowhere")).within(connection)


@pytest.mark.parametrize("world", ["psycopg", "psycopg-async"], indirect=True)
async def test_psycopg_in_autocommit_with_an_open_transaction_is_fine(world: OnServer) -> None:
    caller = await world.open(autocommit=True)
    await caller.sql("BEGIN")
    await world.call(caller.thing, "o-1", world.writes(caller))
    assert world.statuses() == []
    await caller.sql("ROLLBACK")
    assert (world.rows(), world.statuses()) == ([], [])


async def test_row_factories_of_the_caller_are_neither_used_nor_changed(within_url: str) -> None:
    from psycopg.rows import dict_row

    with psycopg.connect(within_url, row_factory=dict_row) as connection, Semel(PostgresStore(within_url)) as semel:
        semel.within(connection).run("factory", lambda: "done", operation="charge", fingerprint=None)
        assert (
            semel.within(connection).run("factory", lambda: "again", operation="charge", fingerprint=None).value
            == "done"
        )
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
        connection.rollback()


async def test_a_scoped_session_is_a_session(within_url: str) -> None:
    engine = _engine(within_url)
    session = orm.scoped_session(orm.sessionmaker(engine))
    with Semel(PostgresStore(within_url)) as semel:
        assert semel.within(session).run("scoped", lambda: "done", operation="charge", fingerprint=None).value == "done"
    session.rollback()
    session.remove()
    engine.dispose()


async def test_an_async_scoped_session_is_a_session(within_url: str) -> None:
    async def handler() -> str:
        return "done"

    engine = sa_asyncio.create_async_engine(with_driver(within_url, "postgresql+asyncpg"), poolclass=sa.NullPool)
    session = sa_asyncio.async_scoped_session(sa_asyncio.async_sessionmaker(engine), scopefunc=asyncio.current_task)
    async with AsyncSemel(PostgresStore(within_url)) as semel:
        assert (
            await semel.within(session).run("scoped", handler, operation="charge", fingerprint=None)
        ).value == "done"
        await session.rollback()
        assert await semel.read("scoped", operation="charge") is None
    await session.remove()
    await engine.dispose()


async def test_a_connection_of_a_pool_of_asyncpg_is_a_connection(within_url: str) -> None:
    async def handler() -> str:
        return "done"

    async with (
        asyncpg.create_pool(within_url, min_size=1, max_size=1) as pool,
        AsyncSemel(PostgresStore(within_url)) as semel,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        assert (
            await semel.within(connection).run("pooled", handler, operation="charge", fingerprint=None)
        ).value == "done"


async def test_a_session_that_streams_by_default_is_fine(within_url: str) -> None:
    engine = _engine(within_url).execution_options(stream_results=True)
    with orm.Session(engine) as session, Semel(PostgresStore(within_url)) as semel:
        assert (
            semel.within(session).run("streamed", lambda: "done", operation="charge", fingerprint=None).value == "done"
        )
    engine.dispose()


async def test_a_session_whose_transaction_was_ended_inside_begin_is_told_so(within_url: str) -> None:
    """After that SQLAlchemy lets nothing through until the block is left; the completion has to say why."""
    engine = _engine(within_url)
    with Semel(PostgresStore(within_url)) as semel, orm.Session(engine) as session:

        def handler() -> str:
            session.rollback()
            return "done"

        with pytest.raises(NotInTransaction, match="not open any more"), session.begin():
            semel.within(session).run("ended", handler, operation="charge", fingerprint=None)
    engine.dispose()


async def test_a_django_block_that_will_be_rolled_back_is_transaction_aborted(
    within_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import transaction

    from tests.within.servers.django_connections import new_connection

    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    connection = new_connection(within_url)
    with Semel(PostgresStore(within_url)) as semel, transaction.atomic(using=connection.alias):
        transaction.set_rollback(True, using=connection.alias)
        with pytest.raises(TransactionAborted):
            semel.within(connection).run("doomed", lambda: "done", operation="charge", fingerprint=None)
    connection.close()
