"""`Consumer(transaction=…)` with every library that `within` knows, written as its users write it.

What always holds: effect and mark commit together, or neither is there; what was rolled back is counted; and a
transaction that does not commit is noticed before anything is acknowledged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite
import asyncmy
import asyncpg
import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.events import Consumer, DeadLetter, Disposition, Event, Outbox, Relay
from semel.stores.urls import store_from_url
from tests.events.desk import NO_CHANCE, TYPE, an_event
from tests.events.places import Broker
from tests.servers.records import emptied
from tests.within.servers.callers import mysql_address, with_driver
from tests.within.servers.django_connections import new_connection
from tests.within.world import drive

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
INSERT = "INSERT INTO consumer_effect (name) VALUES ('moved')"
COUNT = "SELECT count(*) FROM consumer_effect"
TABLE = "CREATE TABLE IF NOT EXISTS consumer_effect (name varchar(40) NOT NULL)"


@dataclass(frozen=True)
class Begun:
    """What a library's user gives as `transaction=`, and how a handler writes with what that gives."""

    transaction: Any
    write: Callable[[Any], Any]


Begin = Callable[[str, AsyncExitStack], Awaitable[Begun]]


@dataclass(frozen=True)
class Library:
    """One library. `commits` begins transactions that commit; `forgets` those of somebody who forgot to."""

    server: str
    is_async: bool
    commits: Begin
    forgets: Begin


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def write_by_execute(session: Any) -> Any:
    return session.execute(INSERT)


def write_by_cursor(session: Any) -> None:
    with session.cursor() as cursor:
        cursor.execute(INSERT)


async def write_by_async_cursor(session: Any) -> None:
    async with session.cursor() as cursor:
        await cursor.execute(INSERT)


def write_by_sqlalchemy(session: Any) -> Any:
    return session.execute(sa.text(INSERT))


def with_sqlite3(*, commits: bool) -> Begin:
    async def begin(url: str, _stack: AsyncExitStack) -> Begun:
        @contextmanager
        def transaction() -> Iterator[sqlite3.Connection]:
            with closing(sqlite3.connect(path_of(url))) as connection:
                if not commits:
                    yield connection
                    return
                with connection:
                    yield connection

        return Begun(transaction, write_by_execute)

    return begin


def with_aiosqlite(*, commits: bool) -> Begin:
    async def begin(url: str, _stack: AsyncExitStack) -> Begun:
        @asynccontextmanager
        async def transaction() -> AsyncIterator[aiosqlite.Connection]:
            async with aiosqlite.connect(path_of(url)) as connection:
                yield connection
                if commits:
                    await connection.commit()

        return Begun(transaction, write_by_execute)

    return begin


def with_psycopg(*, commits: bool) -> Begin:
    async def begin(url: str, _stack: AsyncExitStack) -> Begun:
        def transaction() -> Any:
            connection = psycopg.connect(url)
            return connection if commits else closing(connection)

        return Begun(transaction, write_by_execute)

    return begin


def with_async_psycopg(*, commits: bool) -> Begin:
    async def begin(url: str, _stack: AsyncExitStack) -> Begun:
        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                yield connection
                if not commits:
                    await connection.rollback()

        return Begun(transaction, write_by_execute)

    return begin


def with_asyncpg(*, commits: bool) -> Begin:
    async def begin(url: str, stack: AsyncExitStack) -> Begun:
        pool = await stack.enter_async_context(asyncpg.create_pool(url, min_size=1, max_size=1))

        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            async with pool.acquire() as connection, connection.transaction():
                yield connection

        @asynccontextmanager
        async def forgetful() -> AsyncIterator[Any]:
            async with pool.acquire() as connection:
                await connection.transaction().start()
                yield connection  # the pool rolls it back

        return Begun(transaction if commits else forgetful, write_by_execute)

    return begin


def with_sessions(driver: str, *, commits: bool) -> Begin:
    async def begin(url: str, stack: AsyncExitStack) -> Begun:
        engine = sa.create_engine(with_driver(url, driver), poolclass=sa.NullPool)
        stack.callback(engine.dispose)
        sessions = orm.sessionmaker(engine)
        return Begun(sessions.begin if commits else sessions, write_by_sqlalchemy)

    return begin


def with_connections(driver: str, *, commits: bool) -> Begin:
    async def begin(url: str, stack: AsyncExitStack) -> Begun:
        engine = sa.create_engine(with_driver(url, driver), poolclass=sa.NullPool)
        stack.callback(engine.dispose)
        return Begun(engine.begin if commits else engine.connect, write_by_sqlalchemy)

    return begin


def with_async_sessions(driver: str, *, commits: bool) -> Begin:
    async def begin(url: str, stack: AsyncExitStack) -> Begun:
        engine = sa_asyncio.create_async_engine(with_driver(url, driver), poolclass=sa.NullPool)
        stack.push_async_callback(engine.dispose)
        sessions = sa_asyncio.async_sessionmaker(engine)
        return Begun(sessions.begin if commits else sessions, write_by_sqlalchemy)

    return begin


def with_pymysql(*, commits: bool) -> Begin:
    async def begin(url: str, _stack: AsyncExitStack) -> Begun:
        @contextmanager
        def transaction() -> Iterator[Any]:
            with closing(pymysql.connect(**mysql_address(url))) as connection:
                connection.begin()
                yield connection
                if commits:
                    connection.commit()

        return Begun(transaction, write_by_cursor)

    return begin


def with_asyncmy(*, commits: bool) -> Begin:
    async def begin(url: str, _stack: AsyncExitStack) -> Begun:
        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            async with asyncmy.connect(**mysql_address(url)) as connection:
                await connection.begin()
                yield connection
                if commits:
                    await connection.commit()

        return Begun(transaction, write_by_async_cursor)

    return begin


def with_django(*, commits: bool) -> Begin:
    async def begin(url: str, stack: AsyncExitStack) -> Begun:
        from django.db import transaction as django_transaction

        connection = new_connection(url)
        stack.callback(connection.close)

        @contextmanager
        def forgetful() -> Iterator[Any]:
            with django_transaction.atomic(using=connection.alias):
                yield connection
                django_transaction.set_rollback(True, using=connection.alias)

        return Begun(connection.alias if commits else forgetful, write_by_cursor)

    return begin


def library(server: str, kind: str, make: Callable[..., Begin], *given: str) -> Library:
    return Library(server, kind == "async", make(*given, commits=True), make(*given, commits=False))


LIBRARIES = {
    "sqlite3": library("sqlite", "sync", with_sqlite3),
    "aiosqlite": library("sqlite", "async", with_aiosqlite),
    "sqlalchemy-sqlite": library("sqlite", "sync", with_sessions, "sqlite"),
    "psycopg": library("postgresql", "sync", with_psycopg),
    "psycopg-async": library("postgresql", "async", with_async_psycopg),
    "asyncpg": library("postgresql", "async", with_asyncpg),
    "sqlalchemy-psycopg": library("postgresql", "sync", with_sessions, "postgresql+psycopg"),
    "sqlalchemy-connection-psycopg": library("postgresql", "sync", with_connections, "postgresql+psycopg"),
    "sqlalchemy-async-asyncpg": library("postgresql", "async", with_async_sessions, "postgresql+asyncpg"),
    "django-postgresql": library("postgresql", "sync", with_django),
    "django-mariadb": library("mariadb", "sync", with_django),
    "pymysql": library("mariadb", "sync", with_pymysql),
    "asyncmy": library("mariadb", "async", with_asyncmy),
    "sqlalchemy-pymysql": library("mariadb", "sync", with_sessions, "mysql+pymysql"),
    "sqlalchemy-async-asyncmy": library("mariadb", "async", with_async_sessions, "mysql+asyncmy"),
}


class Office:
    """An engine, a consumer on it, and a look at the database from outside."""

    def __init__(self, library: Library, url: str, count: Callable[[], int]) -> None:
        self.library = library
        self.url = url
        self.count_effects = count
        self.errors: list[Exception] = []
        self.runs = 0
        self.stack = AsyncExitStack()
        self.semel: Any = (AsyncSemel if library.is_async else Semel)(store_from_url(url))

    async def consumer(
        self, begin: Begin, also: Callable[[], Coroutine[Any, Any, None]] | None = None, **settings: Any
    ) -> Consumer[Any]:
        """A consumer whose handler writes a row, does something `also`, and raises the next of `errors`, if any."""
        begun = await begin(self.url, self.stack)
        consumer: Consumer[Any] = Consumer(
            self.semel, "billing", transaction=begun.transaction, backoff=NO_CHANCE, **settings
        )

        def moved(event: Event, session: Any) -> None:
            begun.write(session)
            if also is not None:
                drive(also())
            self._end(event)

        async def moved_async(event: Event, session: Any) -> None:
            await begun.write(session)
            if also is not None:
                await also()
            self._end(event)

        consumer.on(TYPE)(moved_async if self.library.is_async else moved)
        return consumer

    def _end(self, _event: Event) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)

    async def wait(self, given: Any) -> Any:
        return await given if self.library.is_async else given

    async def handle(self, consumer: Consumer[Any]) -> Disposition:
        given: Disposition = await self.wait(consumer.handle(an_event()))
        return given

    async def record(self) -> Any:
        event = an_event()
        return await self.wait(self.semel.read((event.source, event.id), operation="event:billing"))

    async def letters(self, consumer: Consumer[Any]) -> list[DeadLetter]:
        found: Any = consumer.dead_letters()
        return [one async for one in found] if self.library.is_async else list(found)

    async def close(self) -> None:
        await self.stack.aclose()
        await self.wait(self.semel.close())


@pytest.fixture(params=LIBRARIES)
async def office(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Office]:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # the tests are coroutines with either kind of function
    library = LIBRARIES[request.param]
    if library.server == "sqlite":
        path = tmp_path / "semel.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(TABLE)

        def count() -> int:
            with closing(sqlite3.connect(path)) as connection:
                return int(connection.execute(COUNT).fetchone()[0])

        made = Office(library, f"sqlite:///{path}", count)
    else:
        databases = request.getfixturevalue(library.server)
        url = emptied(databases, databases.url)
        databases.admin_each([TABLE, "DELETE FROM consumer_effect"], url)
        made = Office(library, url, lambda: int(databases.admin_each([COUNT], url)[0][0]))
    yield made
    await made.close()


async def test_effect_and_mark_commit_together_and_once(office: Office) -> None:
    consumer = await office.consumer(office.library.commits)
    given = [await office.handle(consumer) for _ in range(3)]
    assert [(one.status, one.action) for one in given] == [("processed", "ack"), *[("duplicate", "ack")] * 2]
    assert (office.runs, office.count_effects()) == (1, 1)
    assert (await office.record()).status == "completed"


async def test_an_error_rolls_back_and_its_attempt_is_counted(office: Office) -> None:
    office.errors = [OSError("no route"), OSError("no route")]
    consumer = await office.consumer(office.library.commits, max_attempts=2)
    first = await office.handle(consumer)
    record = await office.record()
    assert (first.status, first.action, str(first.error)) == ("failed", "retry", "no route")
    assert (record.status, record.retryable, record.attempts) == ("failed", True, 1)
    second = await office.handle(consumer)
    assert (second.status, second.action) == ("exhausted", "dead_letter")
    assert [(letter.reason, letter.attempts) for letter in await office.letters(consumer)] == [("exhausted", 2)]
    assert (office.runs, office.count_effects()) == (2, 0)


async def test_an_event_that_failed_before_commits_at_last(office: Office) -> None:
    office.errors = [OSError("no route")]
    consumer = await office.consumer(office.library.commits)
    assert [(await office.handle(consumer)).status for _ in range(3)] == ["failed", "processed", "duplicate"]
    assert (office.runs, office.count_effects()) == (2, 1)


async def test_a_transaction_that_does_not_commit_stops_the_consumer(office: Office) -> None:
    consumer = await office.consumer(office.library.forgets)
    for _ in range(2):
        with pytest.raises(UsageError, match="did not commit"):
            await office.handle(consumer)
    assert office.runs == 1, "it has stopped"
    assert office.count_effects() == 0
    assert await office.record() is None
    assert await office.letters(consumer) == []


@pytest.mark.parametrize("office", ["django-postgresql", "django-mariadb"], indirect=True)
async def test_a_handler_that_rolls_back_by_itself_has_failed(office: Office) -> None:
    """Django lets a handler mark its transaction for a rollback, and then ends it without an error."""
    from django.db import transaction as django_transaction

    begun = await office.library.commits(office.url, office.stack)
    consumer: Consumer[Any] = Consumer(office.semel, "billing", transaction=begun.transaction, backoff=NO_CHANCE)

    @consumer.on(TYPE)
    def moved(session: Any) -> None:
        begun.write(session)
        django_transaction.set_rollback(True, using=session.alias)

    given = await office.handle(consumer)
    assert (given.status, given.action) == ("failed", "retry")
    assert office.count_effects() == 0
    assert (await office.record()).attempts == 1


@pytest.mark.parametrize("office", ["django-postgresql", "django-mariadb"], indirect=True)
async def test_a_transaction_of_django_inside_another_one_is_refused(office: Office) -> None:
    """As in a view under `ATOMIC_REQUESTS`: whoever rolls that back would take an event along that was acknowledged."""
    from django.db import transaction as django_transaction

    begun = await office.library.commits(office.url, office.stack)
    consumer: Consumer[Any] = Consumer(office.semel, "billing", transaction=begun.transaction, backoff=NO_CHANCE)
    consumer.on(TYPE)(begun.write)
    with django_transaction.atomic(using=begun.transaction), pytest.raises(UsageError, match="inside another atomic"):
        consumer.handle(an_event())
    assert (await office.record(), office.count_effects()) == (None, 0)


@pytest.mark.parametrize("office", ["django-postgresql", "django-mariadb"], indirect=True)
async def test_a_connection_of_django_that_was_lost_is_opened_again(office: Office) -> None:
    """Nobody else does: outside of requests Django keeps the connection of a thread, whatever became of it."""
    from django.db import connections

    begun = await office.library.commits(office.url, office.stack)
    consumer: Consumer[Any] = Consumer(office.semel, "billing", transaction=begun.transaction, backoff=NO_CHANCE)
    consumer.on(TYPE)(begun.write)
    assert (await office.handle(consumer)).status == "processed"
    which, end = {
        "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({}, 5000)"),
        "mariadb": ("SELECT connection_id()", "KILL {}"),
    }[office.library.server]
    with connections[begun.transaction].cursor() as cursor:
        cursor.execute(which)
        (number,) = cursor.fetchone()
    with closing(new_connection(office.url)) as other, other.cursor() as cursor:
        cursor.execute(end.format(number))
    told = [(await office.wait(consumer.handle(an_event(id="e-2")))).status for _ in range(3)]
    assert told == ["unavailable", "processed", "duplicate"]
    assert office.count_effects() == 2


async def published(office: Office) -> list[str | None]:
    """The subjects of all events that a relay finds, as another process would."""
    broker = Broker()
    async with AsyncSemel(store_from_url(office.url)) as semel:
        await Relay(Outbox(semel), broker).run_once()
    return [event.subject for event in broker.events]


async def test_a_redriven_event_takes_its_letter_along_and_adds_to_the_outbox_in_one_commit(office: Office) -> None:
    outbox: Any = Outbox(office.semel)

    async def note() -> None:
        await office.wait(outbox.add(Event(type="asset.noted", source="/test", subject="noted")))

    office.errors = [OSError("no route"), OSError("no route")]
    consumer = await office.consumer(office.library.commits, note, max_attempts=1)
    assert (await office.handle(consumer)).status == "exhausted"
    (letter,) = await office.letters(consumer)
    assert (await office.wait(consumer.redrive(letter.id))).status == "exhausted"
    assert [one.id for one in await office.letters(consumer)] == [letter.id], "it failed again, and is one letter"
    assert await published(office) == [], "an attempt that was rolled back has added an event"
    assert (await office.wait(consumer.redrive(letter.id))).status == "processed"
    assert await office.letters(consumer) == []
    assert (await office.handle(consumer)).status == "duplicate"
    assert await published(office) == ["noted"]
    assert office.count_effects() == 1
