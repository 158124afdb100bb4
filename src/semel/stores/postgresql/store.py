"""The PostgreSQL store: records in a database that many machines share, or in the caller's own."""

from __future__ import annotations

from typing import Any, Final

from semel.stores.postgresql.admin import PostgresSchema
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.postgresql.errors import postgresql_error_kind
from semel.stores.postgresql.settings import check_tls, session_settings
from semel.stores.sql.adapter import Adapter, AsyncAdapter, Server
from semel.stores.sql.admin import SqlAdmin
from semel.stores.sql.context import SqlContext
from semel.stores.sql.driver import ListenerFactory
from semel.stores.sql.external_pool import ExternalPool
from semel.stores.sql.settings import Settings
from semel.stores.sql.store import SqlStore

POSTGRESQL: Final = Server(
    "PostgreSQL",
    frozenset({"postgresql"}),
    "a psycopg.Connection, a SQLAlchemy Session or Connection, or a Django connection",
    "an asyncpg connection, a psycopg.AsyncConnection, or a SQLAlchemy AsyncSession or AsyncConnection",
    postgresql_error_kind,
    session_settings,
)


class PostgresStore(SqlStore):
    """Records in the PostgreSQL database at `url`, or where an engine or pool of the caller leads.

    Settings: see `sql.settings.Settings`. Nothing is opened before the first use.
    """

    server = POSTGRESQL
    libraries = ("psycopg", "asyncpg")
    setting_names = frozenset(Settings.__dataclass_fields__) - {"url", "name"}

    def __init__(self, url: str | ExternalPool, **settings: Any) -> None:
        pool = url if isinstance(url, ExternalPool) else None
        given = Settings.for_pool(pool.name, **settings) if pool else Settings.of(str(url), **settings)
        for address in filter(None, (given.url, given.listen_url)):
            check_tls(address)
        dialect = PostgresDialect(given)
        self._schema = PostgresSchema(given, dialect)
        super().__init__(SqlContext(given, dialect, self._schema), pool)

    def _adapter(self) -> Adapter:
        if self._context.settings.pooled:
            from semel.stores.sql.adapters.pgbouncer import PooledPsycopg

            return PooledPsycopg(POSTGRESQL)
        from semel.stores.sql.adapters.psycopg import PsycopgAdapter

        return PsycopgAdapter(POSTGRESQL)

    def _async_adapter(self) -> AsyncAdapter:
        if self._context.settings.pooled:
            from semel.stores.sql.adapters.pgbouncer import PooledAsyncpg

            return PooledAsyncpg(POSTGRESQL)
        from semel.stores.sql.adapters.asyncpg import AsyncpgAdapter

        return AsyncpgAdapter(POSTGRESQL)

    def _listener_factories(self) -> tuple[ListenerFactory | None, ListenerFactory | None]:
        from semel.stores.postgresql.listener import AsyncListener, Listener

        if self._context.settings.pooled and not self._context.settings.listen_url:
            return None, None
        return Listener, AsyncListener

    def admin(self) -> SqlAdmin:
        """What operators do: migrate, look, mark as restored."""
        from semel.stores.postgresql.admin import PostgresDoctor, PostgresRestoring, search_sql
        from semel.stores.sql.adapters.psycopg import PsycopgAdapter

        settings, schema = self._context.settings, self._schema
        restoring = PostgresRestoring(settings, schema)
        doctor = PostgresDoctor(settings)
        return SqlAdmin(
            self._context, PsycopgAdapter(POSTGRESQL), schema, doctor, restoring, search_sql=search_sql(settings)
        )
