"""The MySQL and MariaDB store: records in a database that many machines share, or in the caller's own."""

from __future__ import annotations

from typing import Any, Final

from semel.stores.mysql.admin import MysqlSchema
from semel.stores.mysql.dialect import MysqlDialect
from semel.stores.mysql.errors import mysql_error_kind
from semel.stores.mysql.settings import address, session_of
from semel.stores.sql.adapter import Adapter, AsyncAdapter, Server
from semel.stores.sql.admin import SqlAdmin
from semel.stores.sql.context import Savepoints, SqlContext
from semel.stores.sql.settings import Settings
from semel.stores.sql.store import SqlStore

MYSQL: Final = Server(
    "MySQL",
    frozenset({"mysql", "mariadb"}),
    "a PyMySQL connection, a SQLAlchemy Session or Connection, or a Django connection",
    "an asyncmy connection, or a SQLAlchemy AsyncSession or AsyncConnection",
    mysql_error_kind,
    session_of,
)


class MysqlStore(SqlStore):
    """Records in the MySQL or MariaDB database at `url`. Settings: see `sql.settings.Settings`.

    `schema` names the database of the tables where it is not the one in the URL. Nothing is opened before it is used.
    """

    server = MYSQL
    libraries = ("pymysql", "asyncmy")
    setting_names = frozenset(Settings.__dataclass_fields__) - {"url", "name"}

    def __init__(self, url: str, **settings: Any) -> None:
        given = Settings.of(url, **settings)
        address(given)  # refuses what it does not know before anything is opened
        dialect = MysqlDialect(given)
        self._schema = MysqlSchema(given, dialect)
        super().__init__(SqlContext(given, dialect, self._schema, savepoints=Savepoints()))

    def _adapter(self) -> Adapter:
        from semel.stores.sql.adapters.pymysql import PymysqlAdapter

        return PymysqlAdapter(MYSQL)

    def _async_adapter(self) -> AsyncAdapter:
        from semel.stores.sql.adapters.asyncmy import AsyncmyAdapter

        return AsyncmyAdapter(MYSQL)

    def admin(self) -> SqlAdmin:
        """What operators do: migrate, look, mark as restored."""
        from semel.stores.mysql.admin import MysqlDoctor, MysqlRestoring, search_sql

        settings, schema = self._context.settings, self._schema
        restoring = MysqlRestoring(settings, schema)
        return SqlAdmin(
            self._context, self._adapter(), schema, MysqlDoctor(settings), restoring, search_sql=search_sql(settings)
        )
