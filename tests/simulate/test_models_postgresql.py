"""The model of PostgreSQL answers as the server does, over random sequences on lanes and in callers' transactions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from semel.stores.postgresql import PostgresStore
from semel.testing.simulate.models import Act, Begin, Commit, Isolation, PostgresModel, Rollback
from tests.servers.databases import Databases
from tests.simulate.sequences import Clock, Real, compare

FULL = os.environ.get("SEMEL_EFFORT") == "full"
SEQUENCES = 10_000 if FULL else 200
PATIENCE = 0.005
CALLERS = 2


class Postgresql(Real):
    """A database, a lane's driver, and connections of callers."""

    def __init__(self, url: str, clock: Clock, stack: ExitStack) -> None:
        self._store = PostgresStore(url, clock=clock, lock_timeout=PATIENCE, listen=False)
        self._driver = self._store.driver()
        stack.callback(self._driver.close)
        self._own = stack.enter_context(psycopg.connect(url, autocommit=True))
        options = f"-c lock_timeout={PATIENCE * 1000:.0f}"
        self._callers = [stack.enter_context(psycopg.connect(url, options=options)) for _ in range(CALLERS)]
        self._begun = 0
        self._driver.perform([self._store.plan([], joined=False)])
        # An autovacuum that gives pages back locks the whole table for a moment, which is longer than this patience.
        for table in ("semel_record", "semel_step"):
            self._own.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")

    def begin(self, isolations: tuple[Isolation, ...]) -> None:
        """Empty the tables; now and then for good, so that the dead rows do not pile up."""
        for caller in self._callers:
            caller.rollback()
        self._begun += 1
        if self._begun % 200 == 1:
            self._own.execute("TRUNCATE semel_record, semel_step")
        self._own.execute("DELETE FROM semel_record")
        self._own.execute("DELETE FROM semel_step")
        for caller, isolation in zip(self._callers, isolations, strict=False):
            caller.isolation_level = psycopg.IsolationLevel[isolation.name]

    def perform(self, session: int, act: Act) -> Any:
        """On the lane, or on the connection of a caller."""
        if session == 0:
            return self._first(self._driver.perform([self._store.plan([act], joined=False)])[0])  # type: ignore[list-item]
        caller = self._callers[session - 1]
        match act:
            case Begin():
                return None
            case Commit():
                return caller.commit()
            case Rollback():
                return caller.rollback()
        try:
            return self._first(self._store.join(caller).perform(self._store.plan([act], joined=True)))
        except Exception as error:  # noqa: BLE001 - what it is, is what is compared
            return error

    @staticmethod
    def _first(answers: Sequence[Any] | Exception) -> Any:
        return answers if isinstance(answers, Exception) else answers[0]


@contextmanager
def opened(url: str, clock: Clock) -> Iterator[Postgresql]:
    with ExitStack() as stack:
        yield Postgresql(url, clock, stack)


@pytest.mark.slow
@pytest.mark.timeout(3600 if FULL else 300)
def test_the_model_answers_as_the_server_does(postgresql: Databases) -> None:
    clock = Clock()
    with opened(postgresql.new_database(), clock) as real:
        compare(PostgresModel, real, clock, seed=0, first=0, count=SEQUENCES)
