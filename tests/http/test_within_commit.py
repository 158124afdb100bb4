"""What counts as proof that the transaction of a request was committed, and what is answered without any."""

from __future__ import annotations

import unittest
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from tests.http.tills.awaited import FastapiTill, StarletteTill
from tests.http.tills.called import FlaskTill, WsgiTill
from tests.http.tills.django_tills import ALIAS, DecoratedTill, DjangoTill, RestTill
from tests.http.tills.libraries import AsyncCore, Asyncpg, AsyncSqlalchemy, Psycopg, Sqlalchemy
from tests.proxy.proxy import Proxy
from tests.proxy.wire import Direction
from tests.servers.databases import Databases

from django.test import TestCase  # isort: skip  # once Django is set up

pytestmark = pytest.mark.slow

AWAITED = [StarletteTill, FastapiTill]


@pytest.fixture(scope="module")
def url(postgresql: Databases) -> str:
    """A database for all of these tests: to make one takes longer than a test."""
    return postgresql.new_database()


class OnlySavepoints(AsyncSqlalchemy):
    """Releases a savepoint around the view, and never commits."""

    @asynccontextmanager
    async def unit(self, *, commits: bool) -> AsyncIterator[Any]:
        """See `AsyncLibrary`."""
        async with AsyncSession(self.engine) as session, session.begin_nested():
            yield session


class OfATest(AsyncSqlalchemy):
    """Sessions inside a transaction of a test that is rolled back at its end, as SQLAlchemy's documentation has it."""

    outer: AsyncConnection | None = None

    @asynccontextmanager
    async def unit(self, *, commits: bool) -> AsyncIterator[Any]:
        """See `AsyncLibrary`."""
        if self.outer is None:
            self.outer = await self.engine.connect()
            await self.outer.begin()
        async with AsyncSession(self.outer, join_transaction_mode="create_savepoint") as session, session.begin():
            yield session

    async def close(self) -> None:
        """See `AsyncLibrary`."""
        if self.outer is not None:
            await self.outer.close()
        await super().close()


class OnlySavepointsInThreads(Sqlalchemy):
    """The same as `OnlySavepoints`."""

    @contextmanager
    def unit(self, *, commits: bool) -> Iterator[Any]:
        """See `Library`."""
        with sa.orm.Session(self.engine) as session, session.begin_nested():
            yield session


@pytest.mark.parametrize("kind", AWAITED)
def test_the_end_of_a_savepoint_is_no_commit(kind: Any, url: str) -> None:
    till = kind(url, OnlySavepoints)
    till.empty()
    assert (till.ask().problem, till.rows()) == ("not-committed", 0)
    till.close()


def test_the_end_of_a_savepoint_is_no_commit_in_a_thread_either(url: str) -> None:
    till = FlaskTill(url, OnlySavepointsInThreads)
    till.empty()
    assert (till.ask().problem, till.rows()) == ("not-committed", 0)
    till.close()


@pytest.mark.parametrize("kind", AWAITED)
def test_a_test_may_roll_back_everything_around_its_requests(kind: Any, url: str) -> None:
    till = kind(url, OfATest)
    till.empty()
    first, again = till.ask(), till.ask()
    assert (first.status, again.status, again.replayed) == (201, 201, True)
    till.close()
    assert (till.rows(), till.records()) == (0, [])


@pytest.mark.parametrize("kind", [DjangoTill, DecoratedTill, RestTill])
def test_a_test_case_of_django_may_do_so_too(kind: Any, tmp_path: Path) -> None:
    till = kind(f"sqlite:///{tmp_path / 'records.db'}")

    class Case(TestCase):  # type: ignore[misc]  # Django has no types
        databases = frozenset({ALIAS})

        def test_payment(self) -> None:
            first, again = till.ask(), till.ask()
            assert (first.status, again.status, again.replayed) == (201, 201, True)

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert result.testsRun == 1
    assert result.wasSuccessful(), result.errors + result.failures
    assert (till.rows(), till.records()) == (0, [])
    till.close()


@pytest.mark.parametrize(("library", "costs"), [(AsyncSqlalchemy, 0), (AsyncCore, 1), (Asyncpg, 1)])
@pytest.mark.parametrize("kind", AWAITED)
def test_a_first_run_costs_semels_own_connection_one_read_or_nothing(
    kind: Any, library: Any, costs: int, url: str
) -> None:
    with Proxy(url) as proxy:
        till = kind(proxy.url, lambda _: library(url))
        till.url = url
        till.empty()
        till.ask(key="warm")  # opens connections, and has statements prepared
        proxy.forget()
        assert till.ask().status == 201
        sent = [
            seen for seen in proxy.seen if seen.direction is Direction.TO_SERVER and seen.kind in ("Query", "Execute")
        ]
        till.close()
    assert len(sent) == costs, proxy.seen


class CutAfterwards(Psycopg):
    """Commits, and then the way between semel and its store is cut."""

    def __init__(self, url: str, server: str, proxy: Proxy) -> None:
        super().__init__(server)
        self._proxy = proxy
        self.cuts = True

    @contextmanager
    def unit(self, *, commits: bool) -> Iterator[Any]:
        """See `Library`."""
        with psycopg.connect(self._url) as connection:
            yield connection
        if self.cuts:
            self._proxy.close()


def test_a_commit_that_cannot_be_seen_is_told_as_such_and_the_answer_is_replayed(url: str) -> None:
    with Proxy(url) as proxy:
        till = WsgiTill(proxy.url, lambda through: CutAfterwards(through, url, proxy))
        till.url = url
        till.empty()
        told = till.ask()
        till.close()
    assert (told.status, told.problem) == (503, "commit-unknown"), told
    assert (till.rows(), till.records()) == (1, ["completed"])
    again = WsgiTill(url, Psycopg)
    assert again.ask().replayed
    assert again.rows() == 1
    again.close()
