"""A database that is not there for a while: no attempt is counted, and nothing has to be retried by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.batch import Batch, Batches, Item, item
from semel.errors import StoreUnavailable


class Declined(Exception):
    """What a handler raises by itself."""


class Database:
    """A file with a table of effects, and transactions on it of which the first few fail."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.failures: list[Exception] = []
        with self.connect() as connection:
            connection.execute("CREATE TABLE effect (item text NOT NULL)")

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=0)) as connection, connection:
            yield connection

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        if self.failures:
            raise self.failures.pop()
        with self.connect() as connection:
            yield connection

    def count(self) -> int:
        with self.connect() as connection:
            found: int = connection.execute("SELECT count(*) FROM effect").fetchone()[0]
            return found


def pay(item: Item, session: sqlite3.Connection) -> str:
    session.execute("INSERT INTO effect VALUES (?)", (item.id,))
    return item.id


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "semel.db")


@pytest.fixture
def semel(database: Database) -> Iterator[Semel]:
    with Semel(database.url) as made:
        yield made


@pytest.fixture
def batch(semel: Semel) -> Batch[Semel]:
    return Batches(semel).start("b", [{"id": f"i{n}"} for n in range(4)], operation="pay", item_id="id")


def locked() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), TimeoutError(), locked()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("commit", ["item", "page"])
def test_a_run_goes_on_when_the_database_is_back(
    batch: Batch[Semel], database: Database, error: Exception, commit: Any
) -> None:
    database.failures = [error] * 3
    status = batch.run(pay, transaction=database.begin, commit=commit, concurrency=1)
    assert (status.state, status.completed, status.failed) == ("completed", 4, 0)
    assert database.failures == []
    assert database.count() == 4


def test_an_error_of_another_kind_is_counted(batch: Batch[Semel], database: Database) -> None:
    database.failures = [Declined()]
    status = batch.run(pay, transaction=database.begin, concurrency=1)
    assert (status.completed, status.failed) == (3, 1)


def test_an_outage_of_something_else_that_a_handler_meets_is_counted(batch: Batch[Semel], database: Database) -> None:
    def lose_the_gateway(item: Item, session: sqlite3.Connection) -> None:
        raise ConnectionResetError("the gateway is gone")

    status = batch.run(lose_the_gateway, transaction=database.begin, concurrency=1)
    assert (status.completed, status.failed) == (0, 4)


def test_a_database_that_stays_away_ends_the_run_with_its_error(
    batch: Batch[Semel], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.batch.sync_runner._GIVE_UP_AFTER", 0.0)
    database.failures = [ConnectionRefusedError("nobody there")] * 100
    with pytest.raises(ConnectionRefusedError, match="nobody there"):
        batch.run(pay, transaction=database.begin, concurrency=1)
    assert batch.status().failed == 0


def test_an_item_by_itself_is_to_be_run_again(batch: Batch[Semel], database: Database) -> None:
    database.failures = [ConnectionRefusedError()]
    paid = item(batch, "i0", transaction=database.begin)(pay)
    with pytest.raises(StoreUnavailable, match="No attempt is counted"):
        paid()
    assert paid() == "i0"
    assert batch.status().failed == 0
