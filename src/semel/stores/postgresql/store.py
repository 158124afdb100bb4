"""The PostgreSQL store: records in a database that many machines share, or in the caller's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.core.operations import Operation
from semel.core.store import AsyncDriver, Driver, Plan
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.postgresql.schema import PostgresSchema
from semel.stores.served.driver import AsyncServedDriver, ServedDriver
from semel.stores.served.place import Place
from semel.stores.served.plan import plan
from semel.stores.served.settings import Settings


class PostgresStore:
    """Records in the PostgreSQL database at `url`. Settings: see `served.settings.Settings`.

    Nothing is opened before the first use.
    """

    batch = 64

    def __init__(self, url: str, **settings: Any) -> None:
        given = Settings.of(url, **settings)
        dialect = PostgresDialect(given)
        self._place = Place(given, dialect, PostgresSchema(given, dialect))
        self.name = given.name

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""
        return plan(self._place.dialect, operations, joined=joined)

    def driver(self) -> Driver:
        """A driver for threads."""
        from semel.stores.postgresql.listening import Listener
        from semel.stores.served.libraries.psycopg import PsycopgLibrary

        return ServedDriver(self._place, PsycopgLibrary(), Listener)

    def async_driver(self) -> AsyncDriver:
        """A driver for an event loop."""
        from semel.stores.postgresql.listening import AsyncListener
        from semel.stores.served.libraries.asyncpg import AsyncpgLibrary

        return AsyncServedDriver(self._place, AsyncpgLibrary(), AsyncListener)
