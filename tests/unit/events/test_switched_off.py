"""Consumers of an engine that is switched off: handlers run at every delivery, and no event is lost that fails."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.errors import TryLater, UsageError
from semel.events import Consumer, Outbox
from tests.events.desk import Declined, an_event

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(tmp_path: Path) -> str:
    """Settings that switch semel off; the rows of handlers are in a file all the same."""
    file = tmp_path / "semel.toml"
    file.write_text(f'store = "sqlite:///{tmp_path}/semel.db"\nenabled = false\n')
    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        connection.execute("CREATE TABLE effect (name)")
    return str(file)


def test_the_transaction_of_every_delivery_commits(settings: str, tmp_path: Path) -> None:
    @contextmanager
    def transaction() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(tmp_path / "rows.db")) as connection, connection:
            yield connection

    with Semel.from_settings(settings) as semel:
        consumer = Consumer(semel, "billing", transaction=transaction)

        @consumer.on("asset.registered")
        def registered(session: sqlite3.Connection) -> None:
            session.execute("INSERT INTO effect VALUES ('moved')")

        assert [consumer.handle(an_event()).action for _ in range(2)] == ["ack", "ack"]
    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        assert connection.execute("SELECT count(*) FROM effect").fetchone() == (2,)


async def test_the_awaited_transaction_of_every_delivery_commits(settings: str, tmp_path: Path) -> None:
    @asynccontextmanager
    async def transaction() -> AsyncIterator[sqlite3.Connection]:
        with closing(sqlite3.connect(tmp_path / "rows.db")) as connection, connection:
            yield connection

    async with AsyncSemel.from_settings(settings) as semel:
        consumer = Consumer(semel, "billing", transaction=transaction)

        @consumer.on("asset.registered")
        async def registered(session: sqlite3.Connection) -> None:
            session.execute("INSERT INTO effect VALUES ('moved')")

        assert [(await consumer.handle(an_event())).action for _ in range(2)] == ["ack", "ack"]


def fail() -> None:
    raise Declined("no")


@pytest.mark.parametrize(
    "given",
    [
        {"final_errors": (Declined,)},
        {"max_attempts": 1},
        {"in_doubt": "hold"},
        {"unknown": "dead_letter", "type": "asset.painted"},
        {"type": "asset.painted", "max_attempts": 1},
    ],
    ids=["rejected", "exhausted", "in doubt", "unknown type", "unknown at last"],
)
def test_what_would_be_a_dead_letter_is_delivered_again(settings: str, given: dict[str, Any]) -> None:
    """No letter can be kept, and a broker that is told of one forgets the event."""
    type_ = given.get("type", "asset.registered")
    with Semel.from_settings(settings) as semel:
        consumer = Consumer(semel, "billing", **{name: given[name] for name in given if name != "type"})
        consumer.on("asset.registered")(fail)
        told = [consumer.handle(an_event(type=type_)) for _ in range(20)]
    assert {(one.status, one.action) for one in told} == {("unavailable", "retry")}
    assert all(isinstance(one.error, TryLater) for one in told)


def test_what_is_no_event_is_delivered_again(settings: str) -> None:
    with Semel.from_settings(settings) as semel:
        consumer = Consumer(semel, "billing")
        told = [consumer.receive({}, b"?"), consumer.handle(an_event(data={"at": float("nan")}))]
    assert [(one.status, one.action) for one in told] == [("unavailable", "retry")] * 2


def test_handlers_run_on_after_many_failures(settings: str) -> None:
    with Semel.from_settings(settings) as semel:
        consumer = Consumer(semel, "billing", max_attempts=1)
        consumer.on("asset.registered")(fail)
        consumer.on("asset.moved")(lambda: None)
        for _ in range(20):
            consumer.handle(an_event())
        assert consumer.handle(an_event(type="asset.moved")).status == "processed"


def test_an_outbox_is_refused(settings: str) -> None:
    with Semel.from_settings(settings) as semel, pytest.raises(UsageError, match="switched off"):
        Outbox(semel)
