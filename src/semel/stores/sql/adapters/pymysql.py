"""PyMySQL: MySQL and MariaDB in threads.

- Rows come as tuples, whatever cursor class the caller has set.
- The store's own connections send a command in one text; a caller's connection gets its statements one by one.
- A connection of the caller in autocommit must have begun a transaction.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

from semel.extras import requires
from semel.stores.sql.adapters.multi_statement import (
    TOO_LARGE,
    MysqlAdapter,
    OwnConnection,
    linked_statements,
    no_transaction_error,
    texts,
    to_multi_statement,
)
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import ErrorKind
from semel.stores.sql.settings import Settings

with requires("mysql://", "pymysql"):
    import pymysql
    from pymysql.constants import CLIENT, SERVER_STATUS
    from pymysql.cursors import Cursor

    # By name: once PyMySQL was installed as MySQLdb, as for Django, `pymysql.err` may be a second copy of the module.
    from pymysql.err import InterfaceError, MySQLError


class _Pymysql(MysqlAdapter):
    library_error = MySQLError
    interface_error = InterfaceError


class PymysqlAdapter(_Pymysql):
    """Sends commands through `pymysql.Connection`s of the store's own."""

    def connect(self, settings: Settings) -> Any:
        """A connection of the store's own."""
        session = self._server.session(settings)
        own = OwnConnection(
            pymysql.connect(
                **session.address,
                charset="utf8mb4",
                autocommit=True,
                client_flag=CLIENT.MULTI_STATEMENTS,
                connect_timeout=max(1, round(settings.connect_timeout)),
                # The server ends a statement that takes too long; this is for a server that does not answer at all.
                read_timeout=settings.statement_timeout + settings.connect_timeout,
                write_timeout=settings.statement_timeout + settings.connect_timeout,
                program_name="semel",
            )
        )
        try:
            own.learn(*_rows(own.connection, session.opening)[0])
        except BaseException:
            self.close(own)
            raise
        return own

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        own: OwnConnection = connection
        text, values = to_multi_statement(command)
        with own.connection.cursor(Cursor) as cursor:
            sql = cursor.mogrify(text, values)
        if own.too_large(sql):
            raise pymysql.DataError(TOO_LARGE, "the text is larger than max_allowed_packet")
        turn = 0
        while True:
            try:
                return _rows(own.connection, sql)
            except MySQLError as error:
                turn += 1
                kind = self.error_kind(error)
                if command.atomic and kind is not ErrorKind.LOST:
                    own.connection.rollback()
                if not self.is_tried_again(own, kind, turn):
                    raise

    def close(self, connection: Any) -> None:
        """Let go of a connection."""
        with suppress(Exception):
            connection.connection.close()

    def demand_transaction(self, connection: Any) -> None:
        """Nothing to demand: the store's own connections are in autocommit."""


class PymysqlJoined(_Pymysql):
    """Sends commands through a `pymysql.Connection` of the caller."""

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        rows: list[Row] = []
        with connection.cursor(Cursor) as cursor:
            for part in linked_statements(command):
                cursor.execute(texts(part.text), part.values)
                rows = list(cursor.fetchall()) if cursor.description else rows
        return rows

    def demand_transaction(self, connection: Any) -> None:
        """A transaction must be open, or begin with the first statement."""
        status = connection.server_status
        begun = status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        if not connection.open or (status & SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT and not begun):
            raise no_transaction_error("PyMySQL", "Call `connection.begin()`")


def _rows(connection: Any, sql: str) -> list[Row]:
    """The rows of the last statement that has some."""
    with connection.cursor(Cursor) as cursor:
        cursor.execute(sql)
        rows = cast("list[Row]", list(cursor.fetchall()) if cursor.description else [])
        while cursor.nextset():
            rows = list(cursor.fetchall()) if cursor.description else rows
        return rows
