"""An SQLite store with its drivers as tests use it: ask for operations, look at what SQLite is told."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from semel.core.operations import Found, Granted, Read
from semel.core.record import StoredRecord
from semel.core.store import Answers, Plan
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite.driver import SqliteDriver
from tests.unit.stores.asking import Asking
from tests.unit.stores.operations import KEYS, Clock, claim


class Asker(Asking):
    """A store and one driver on it."""

    def __init__(self, store: SqliteStore, clock: Clock) -> None:
        self.store: SqliteStore = store
        self.clock = clock
        self.driver: SqliteDriver = store.driver()

    def perform(self, *plans: Plan) -> list[Answers | Exception]:
        return self.driver.perform(plans)

    def granted(self, number: int = 1) -> Granted:
        """A claim of the first key that is won."""
        return self.one(claim(number=number), Granted)

    def record(self, digest: bytes = KEYS[0].digest) -> StoredRecord | None:
        """The record as the store has it."""
        return self.one(Read(digest), Found).record

    def writer(self) -> sqlite3.Connection:
        """The connection that writes."""
        database = self.driver._database()
        database.ready(self.store._settings)
        assert database._writer is not None
        return database._writer

    @contextmanager
    def traced(self) -> Iterator[list[str]]:
        """What the writer tells SQLite, first words only."""
        told: list[str] = []
        writer = self.writer()
        writer.set_trace_callback(lambda text: told.append(" ".join(text.split()[:2])))
        yield told
        writer.set_trace_callback(None)


@contextmanager
def opened(path: Path) -> Iterator[Asker]:
    """A store on `path` with a clock that stands still."""
    clock = Clock()
    asker = Asker(SqliteStore(path, clock=clock), clock)
    try:
        yield asker
    finally:
        asker.driver.close()


@contextmanager
def connected(path: Path, isolation_level: str | None = "") -> Iterator[sqlite3.Connection]:
    """A caller's own connection."""
    connection = sqlite3.connect(path, isolation_level=isolation_level, timeout=0)  # type: ignore[arg-type]
    try:
        yield connection
    finally:
        connection.close()
