"""An engine or pool that the caller has: the store works on its connections and gives them back as they were."""

import asyncpg
import psycopg
import psycopg_pool
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from tests.servers.databases import Databases

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


@pytest.fixture
def database(postgresql: Databases) -> str:
    return postgresql.new_database()


def kept(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM semel_record WHERE status = 'completed'").fetchone()
        return 0 if row is None else int(row[0])


async def paid() -> str:
    return "paid"


def test_an_engine_of_sqlalchemy(database: str) -> None:
    engine = create_engine(database.replace("postgresql:", "postgresql+psycopg:", 1), pool_size=1, max_overflow=0)
    with Semel(engine) as semel:
        first = semel.run("k", lambda: "paid", operation="pay", fingerprint=None)
        again = semel.run("k", lambda: "twice", operation="pay", fingerprint=None)
    assert (first.value, again.value, again.replayed) == ("paid", "paid", True)
    with engine.connect() as connection:  # the only one there is: it was given back, and not in autocommit
        connection.execute(text("CREATE TABLE mine (n int)"))
        connection.rollback()
        assert connection.execute(text("SELECT to_regclass('mine')")).scalar() is None
    engine.dispose()
    assert kept(database) == 1


async def test_an_async_engine_of_sqlalchemy(database: str) -> None:
    engine = create_async_engine(database.replace("postgresql:", "postgresql+asyncpg:", 1), pool_size=1, max_overflow=0)
    async with AsyncSemel(engine) as semel:
        first = await semel.run("k", paid, operation="pay", fingerprint=None)
        again = await semel.run("k", paid, operation="pay", fingerprint=None)
    assert (first.value, again.value, again.replayed) == ("paid", "paid", True)
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar() == 1
    await engine.dispose()
    assert kept(database) == 1


async def test_a_pool_of_asyncpg(database: str) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as pool:
        async with AsyncSemel(pool) as semel:
            first = await semel.run("k", paid, operation="pay", fingerprint=None)
            again = await semel.run("k", paid, operation="pay", fingerprint=None)
        assert (first.value, again.replayed) == ("paid", True)
        assert await pool.fetchval("SELECT 1") == 1
    assert kept(database) == 1


def test_a_pool_of_psycopg(database: str) -> None:
    with psycopg_pool.ConnectionPool(database, min_size=1, max_size=1, open=True) as pool:
        with Semel(pool) as semel:
            first = semel.run("k", lambda: "paid", operation="pay", fingerprint=None)
            again = semel.run("k", lambda: "twice", operation="pay", fingerprint=None)
        assert (first.value, again.value) == ("paid", "paid")
        with pool.connection() as connection:
            assert not connection.autocommit
    assert kept(database) == 1


async def test_an_async_pool_of_psycopg(database: str) -> None:
    async with psycopg_pool.AsyncConnectionPool(database, min_size=1, max_size=1, open=False) as pool:
        async with AsyncSemel(pool) as semel:
            first = await semel.run("k", paid, operation="pay", fingerprint=None)
            again = await semel.run("k", paid, operation="pay", fingerprint=None)
        assert (first.value, again.replayed) == ("paid", True)
        async with pool.connection() as connection:
            assert not connection.autocommit
    assert kept(database) == 1


def test_a_pool_of_the_other_colour_is_refused(database: str) -> None:
    engine = create_async_engine(database.replace("postgresql:", "postgresql+asyncpg:", 1))
    with Semel(engine) as semel, pytest.raises(UsageError, match="Use AsyncSemel"):
        semel.run("k", lambda: "paid", operation="pay", fingerprint=None)


def test_something_else_is_no_place(database: str) -> None:
    with pytest.raises(UsageError, match="is no store"):
        Semel(object())


def test_the_name_of_a_borrowed_store_hides_the_password() -> None:
    engine = create_engine("postgresql+psycopg://user:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in repr(Semel(engine))
