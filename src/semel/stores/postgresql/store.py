"""The PostgreSQL store: records in a database that many machines share, or in the caller's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from semel.stores.doctor import Finding
from semel.stores.postgresql.admin import PostgresSchema
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.postgresql.settings import check_tls
from semel.stores.sql.adapter import AsyncLibrary, Library
from semel.stores.sql.admin import Upkeep
from semel.stores.sql.context import Place
from semel.stores.sql.driver import Hears
from semel.stores.sql.external_pool import Borrowed
from semel.stores.sql.joined import POSTGRESQL
from semel.stores.sql.settings import Settings
from semel.stores.sql.store import ServedStore


class PostgresStore(ServedStore):
    """Records in the PostgreSQL database at `url`, or where an engine or pool of the caller leads.

    Settings: see `served.settings.Settings`. Nothing is opened before the first use.
    """

    server = POSTGRESQL
    packages = ("psycopg", "asyncpg")

    def __init__(self, url: str | Borrowed, **settings: Any) -> None:
        borrowed = url if isinstance(url, Borrowed) else None
        given = Settings.borrowed(borrowed.name, **settings) if borrowed else Settings.of(str(url), **settings)
        for address in filter(None, (given.url, given.listen_url)):
            check_tls(address)
        dialect = PostgresDialect(given)
        self._schema = PostgresSchema(given, dialect)
        super().__init__(Place(given, dialect, self._schema), borrowed)

    def _library(self) -> Library:
        if self._place.settings.pooled:
            from semel.stores.sql.adapters.pgbouncer import PooledPsycopg

            return PooledPsycopg()
        from semel.stores.sql.adapters.psycopg import PsycopgLibrary

        return PsycopgLibrary()

    def _async_library(self) -> AsyncLibrary:
        if self._place.settings.pooled:
            from semel.stores.sql.adapters.pgbouncer import PooledAsyncpg

            return PooledAsyncpg()
        from semel.stores.sql.adapters.asyncpg import AsyncpgLibrary

        return AsyncpgLibrary()

    def _hears(self) -> tuple[Hears | None, Hears | None]:
        from semel.stores.postgresql.listener import AsyncListener, Listener

        if self._place.settings.pooled and not self._place.settings.listen_url:
            return None, None
        return Listener, AsyncListener

    def upkeep(self) -> Upkeep:
        """What operators do: migrate, look, mark as restored."""
        from semel.stores.postgresql.admin import PostgresDoctor, PostgresRestoring, search_sql
        from semel.stores.sql.adapters.psycopg import PsycopgLibrary

        settings, schema = self._place.settings, self._schema
        restoring = PostgresRestoring(settings, schema)
        doctor = PostgresDoctor(settings)
        return Upkeep(self._place, PsycopgLibrary(), schema, doctor, restoring, search_sql(settings))

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What `semel doctor` finds here."""
        return self.upkeep().examine(horizon)
