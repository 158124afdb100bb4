"""The PostgreSQL store: records in a database that many machines share, or in the caller's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from semel.stores.doctor import Finding
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.postgresql.schema import PostgresSchema
from semel.stores.postgresql.session import check_tls
from semel.stores.served.borrowed import Borrowed
from semel.stores.served.driver import Hears
from semel.stores.served.joining import POSTGRESQL
from semel.stores.served.library import AsyncLibrary, Library
from semel.stores.served.place import Place
from semel.stores.served.settings import Settings
from semel.stores.served.store import ServedStore
from semel.stores.served.upkeep import Upkeep


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
            from semel.stores.served.libraries.pooled import PooledPsycopg

            return PooledPsycopg()
        from semel.stores.served.libraries.psycopg import PsycopgLibrary

        return PsycopgLibrary()

    def _async_library(self) -> AsyncLibrary:
        if self._place.settings.pooled:
            from semel.stores.served.libraries.pooled import PooledAsyncpg

            return PooledAsyncpg()
        from semel.stores.served.libraries.asyncpg import AsyncpgLibrary

        return AsyncpgLibrary()

    def _hears(self) -> tuple[Hears | None, Hears | None]:
        from semel.stores.postgresql.listening import AsyncListener, Listener

        if self._place.settings.pooled and not self._place.settings.listen_url:
            return None, None
        return Listener, AsyncListener

    def upkeep(self) -> Upkeep:
        """What operators do: migrate, look, mark as restored."""
        from semel.stores.postgresql.doctor import PostgresDoctor
        from semel.stores.postgresql.restored import PostgresRestoring
        from semel.stores.postgresql.search import search_sql
        from semel.stores.served.libraries.psycopg import PsycopgLibrary

        settings, schema = self._place.settings, self._schema
        restoring = PostgresRestoring(settings, schema)
        doctor = PostgresDoctor(settings)
        return Upkeep(self._place, PsycopgLibrary(), schema, doctor, restoring, search_sql(settings))

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What `semel doctor` finds here."""
        return self.upkeep().examine(horizon)
