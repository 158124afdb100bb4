"""A transaction that cannot begin knows nothing of the event: nothing ran, so nothing is counted."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.events import Consumer
from semel.stores.urls import store_from_url
from tests.events.desk import NO_CHANCE, Declined, Desk, an_event, fail


@pytest.mark.parametrize("error", [ConnectionError("refused"), AttributeError("no pool")])
def test_what_begins_nothing_is_no_failure_of_an_event(
    desk: Desk, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def transaction() -> Iterator[Any]:
        raise error
        yield

    @asynccontextmanager
    async def awaited() -> AsyncIterator[Any]:
        raise error
        yield

    ran: list[str] = []
    consumer = desk.consumer(
        lambda: ran.append("ran"), transaction=awaited if desk.is_async else transaction, max_attempts=1
    )
    told = [desk.handle(consumer, an_event()) for _ in range(3)]
    assert [(one.status, one.action, one.error) for one in told] == [("unavailable", "retry", error)] * 3
    assert [one.retry_after for one in told] == [NO_CHANCE.after(1)] * 3
    assert (ran, desk.letters(), desk.record(an_event())) == ([], [], None)
    said = f"events of billing wait: transaction= could not begin one ({type(error).__name__})"
    assert caplog.messages.count(said) == 1
    desk.clock.advance(60)
    desk.handle(consumer, an_event())
    assert caplog.messages.count(said) == 2


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_pool_without_a_free_connection_makes_no_dead_letter(tmp_path: Path, kind: str) -> None:
    """A session of SQLAlchemy takes its connection with the first statement, which is the claim."""
    path = tmp_path / "semel.db"
    engine = sa.create_engine(
        f"sqlite:///{path}", poolclass=sa.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.001
    )
    begin = orm.sessionmaker(engine).begin if kind == "session" else engine.begin
    with Semel(path) as semel:
        consumer = Consumer(semel, "billing", transaction=begin, max_attempts=1)
        consumer.on("asset.registered")(lambda: None)
        with engine.connect():
            told = [consumer.handle(an_event()) for _ in range(3)]
        assert [(one.status, one.action) for one in told] == [("unavailable", "retry")] * 3
        assert consumer.handle(an_event()).status == "processed"
        assert list(consumer.dead_letters()) == []
    engine.dispose()


def test_what_gives_no_context_manager_has_to_be_changed(desk: Desk) -> None:
    """Of the other kind, or a generator that nobody decorated: no later delivery mends that."""

    @contextmanager
    def transaction() -> Iterator[None]:
        yield

    @asynccontextmanager
    async def awaited() -> AsyncIterator[None]:
        yield

    consumer = desk.consumer(lambda: None, transaction=transaction if desk.is_async else awaited)
    with pytest.raises(UsageError, match=r"transaction= gave a .*, which is not an? .*context manager; nothing ran"):
        desk.handle(consumer, an_event())
    assert (desk.letters(), desk.record(an_event())) == ([], None)


def test_what_keeps_errors_to_itself_has_to_be_changed(desk: Desk, tmp_path: Path) -> None:
    """Whether it rolled back, or committed half of what the handler wrote, nobody knows."""

    @contextmanager
    def transaction() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(tmp_path / "semel.db")) as connection, suppress(Declined), connection:
            yield connection

    @asynccontextmanager
    async def awaited() -> AsyncIterator[sqlite3.Connection]:
        with transaction() as connection:
            yield connection

    desk.close()
    desk.store = store_from_url(f"sqlite:///{tmp_path}/semel.db")
    desk.semel = (AsyncSemel if desk.is_async else Semel)(desk.store)
    consumer = desk.consumer(fail(Declined("no")), transaction=awaited if desk.is_async else transaction)
    with pytest.raises(UsageError, match="kept an error to itself"):
        desk.handle(consumer, an_event())
    assert desk.letters() == []
