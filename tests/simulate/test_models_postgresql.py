"""The model of PostgreSQL answers as the server does, over random sequences on lanes and in callers' transactions."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from semel.stores.postgresql import PostgresStore
from semel_lab.simulate.models import Isolation, PostgresModel
from tests.servers.databases import Databases
from tests.servers.records import FORGET_SWEEPS
from tests.simulate.sequences import Clock, compare
from tests.simulate.served import CALLERS, SEQUENCES, TIME_LIMIT, Served

PATIENCE = 0.005


class Postgresql(Served):
    """A database, a lane's driver, and connections of callers."""

    def __init__(self, url: str, clock: Clock, stack: ExitStack) -> None:
        super().__init__(PostgresStore(url, clock=clock, lock_timeout=PATIENCE, listen=False), stack)
        self._own = stack.enter_context(psycopg.connect(url, autocommit=True))
        options = f"-c lock_timeout={PATIENCE * 1000:.0f}"
        self._callers = [stack.enter_context(psycopg.connect(url, options=options)) for _ in range(CALLERS)]
        self._begun = 0
        # An autovacuum that gives pages back locks the whole table for a moment, which is longer than this patience.
        for table in ("semel_record", "semel_step"):
            self._own.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")

    def begin(self, isolations: tuple[Isolation, ...]) -> None:
        """Empty the tables; now and then for good, so that the dead rows do not pile up."""
        for caller in self._callers:
            caller.rollback()
        self._begun += 1
        if self._begun % 200 == 1:
            self._own.execute("TRUNCATE semel_record, semel_step, semel_search")
        self._own.execute("DELETE FROM semel_record")
        self._own.execute("DELETE FROM semel_step")
        self._own.execute("DELETE FROM semel_search")
        self._own.execute(FORGET_SWEEPS)
        for caller, isolation in zip(self._callers, isolations, strict=False):
            caller.isolation_level = psycopg.IsolationLevel[isolation.name]


@pytest.mark.slow
@pytest.mark.timeout(TIME_LIMIT)
def test_the_model_answers_as_the_server_does(postgresql: Databases) -> None:
    clock = Clock()
    with ExitStack() as stack:
        real = Postgresql(postgresql.new_database(), clock, stack)
        compare(PostgresModel, real, clock, seed=0, first=0, count=SEQUENCES)
