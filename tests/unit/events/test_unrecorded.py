"""A handler that ran in a transaction of the caller, and whose end the store did not take: nothing of it may commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from semel import AsyncSemel, Semel
from semel.engine.engine import engine_of
from semel.errors import StoreUnavailable
from semel.events import Consumer
from semel.stores.urls import store_from_url
from semel.testing import VirtualClock
from tests.events.desk import an_event

pytestmark = pytest.mark.anyio


class Cut:
    """A joined transaction on which the store answers nothing once the handler has run, for longer than a lease."""

    def __init__(self, joined: Any, is_cut: Callable[[], bool], clock: VirtualClock) -> None:
        self._joined = joined
        self._is_cut = is_cut
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._joined, name)

    def perform(self, plan: Any) -> Any:
        if self._is_cut():
            self._clock.advance(3600)
            raise StoreUnavailable("the disk is full")
        return self._joined.perform(plan)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "semel.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE effect (name)")
        yield connection


@contextmanager
def transaction_on(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Begin; commit at the end, or roll back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def cut(semel: Any, is_cut: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = engine_of(semel).store, cast("VirtualClock", engine_of(semel).clock)
    for name in ("join", "async_join"):
        right = getattr(store, name)
        monkeypatch.setattr(store, name, lambda session, right=right: Cut(right(session), is_cut, clock))


def test_what_ran_and_has_no_mark_leaves_the_block(
    rows: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    with Semel(store_from_url(f"sqlite:///{tmp_path}/semel.db"), clock=VirtualClock()) as semel:
        semel.read("any", operation="any")  # the tables are there
        consumer = Consumer(semel, "billing")

        @consumer.on("asset.registered")
        def registered(session: sqlite3.Connection) -> None:
            session.execute("INSERT INTO effect VALUES ('moved')")
            ran.append("ran")

        cut(semel, lambda: len(ran) == 1, monkeypatch)
        with pytest.raises(StoreUnavailable, match="disk is full"), transaction_on(rows) as session:
            consumer.handle(an_event(), within=session)
        ran.append("the disk has room again")
        with transaction_on(rows) as session:
            assert consumer.handle(an_event(), within=session).status == "processed"
    assert rows.execute("SELECT count(*) FROM effect").fetchone() == (1,)


async def test_what_ran_and_has_no_mark_leaves_the_awaited_block(
    rows: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    async with AsyncSemel(store_from_url(f"sqlite:///{tmp_path}/semel.db"), clock=VirtualClock()) as semel:
        await semel.read("any", operation="any")  # the tables are there
        consumer = Consumer(semel, "billing")

        @consumer.on("asset.registered")
        async def registered(session: sqlite3.Connection) -> None:
            session.execute("INSERT INTO effect VALUES ('moved')")
            ran.append("ran")

        cut(semel, lambda: len(ran) == 1, monkeypatch)
        with pytest.raises(StoreUnavailable, match="disk is full"), transaction_on(rows) as session:
            await consumer.handle(an_event(), within=session)
        ran.append("the disk has room again")
        with transaction_on(rows) as session:
            assert (await consumer.handle(an_event(), within=session)).status == "processed"
    assert rows.execute("SELECT count(*) FROM effect").fetchone() == (1,)
