"""PyMySQL: MySQL and MariaDB in threads.

A connection of the caller in autocommit must have begun a transaction.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from semel.extras import requires
from semel.stores.sql.adapters.multi_statement import (
    MysqlAdapter,
    OwnConnection,
    SyncMysqlAdapter,
    SyncMysqlJoined,
    commits_by_itself,
    connect_arguments,
    no_transaction_error,
)
from semel.stores.sql.settings import Settings

with requires("mysql://", "pymysql"):
    import pymysql
    from pymysql.constants import CLIENT
    from pymysql.cursors import Cursor

    # By name: once PyMySQL was installed as MySQLdb, as for Django, `pymysql.err` may be a second copy of the module.
    from pymysql.err import DataError, InterfaceError, MySQLError


class _Pymysql(MysqlAdapter):
    cursor = Cursor
    library_error = MySQLError
    interface_error = InterfaceError
    data_error = DataError


class PymysqlAdapter(_Pymysql, SyncMysqlAdapter):
    """Sends commands through `pymysql.Connection`s of the store's own."""

    def _open(self, address: dict[str, Any], settings: Settings) -> Any:
        arguments = connect_arguments(address, settings)
        return pymysql.connect(
            **arguments, write_timeout=arguments["read_timeout"], client_flag=CLIENT.MULTI_STATEMENTS
        )

    def close(self, connection: OwnConnection) -> None:
        """Let go of a connection."""
        with suppress(Exception):
            connection.connection.close()


class PymysqlJoined(_Pymysql, SyncMysqlJoined):
    """Sends commands through a `pymysql.Connection` of the caller."""

    def demand_transaction(self, connection: Any) -> None:
        """A transaction must be open, or begin with the first statement."""
        if not connection.open or commits_by_itself(connection.server_status):
            raise no_transaction_error("PyMySQL", "Call `connection.begin()`")
