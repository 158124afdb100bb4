"""The PostgreSQL store keeps the contract: two stores on one database are two processes."""

from __future__ import annotations

import psycopg
import pytest

from semel.stores.postgresql import PostgresStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import InvalidationContract, MakeStore, StoreContract
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow


class TestPostgresql(StoreContract, InvalidationContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock, postgresql: Databases) -> MakeStore:
        with psycopg.connect(postgresql.url, autocommit=True) as connection:
            row = connection.execute("SELECT to_regclass('semel_record') IS NOT NULL").fetchone()
            if row and row[0]:
                connection.execute("TRUNCATE semel_record, semel_step, semel_invalidation")
        return lambda: PostgresStore(postgresql.url, clock=clock.store_clock)
