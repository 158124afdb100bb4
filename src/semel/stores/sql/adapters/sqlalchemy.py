"""SQLAlchemy: the caller's Session or Connection, sync or async, on any DBAPI.

- Statements go through the connection of the session's own transaction, which SQLAlchemy begins by itself; the DBAPI
  connection is never used directly, because it may not be in that transaction yet.
- Under AUTOCOMMIT SQLAlchemy claims to be in a transaction and is not, so the DBAPI's own flag is read.
"""

from __future__ import annotations

from typing import Any, Final, cast

from semel.errors import NotInTransaction
from semel.stores.sql.adapter import KindOfError, PlaceholderStyle, Server, kinds, plain
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import ErrorKind

_texts: Final = {
    "pyformat": PlaceholderStyle("%s"),
    "format": PlaceholderStyle("%s"),
    "numeric_dollar": PlaceholderStyle("$"),
    "qmark": PlaceholderStyle("?"),
}
PARAMSTYLES: Final = frozenset(_texts)
_OPTIONS: Final = {"stream_results": False}  # a server-side cursor cannot write


def sqlalchemy_error_kind(error: Exception, wrapped_kind: KindOfError) -> ErrorKind | None:
    """What an error of SQLAlchemy means; one that it wraps means what `wrapped_kind` says."""
    names = kinds(error)
    if "sqlalchemy.exc.PendingRollbackError" in names:
        return ErrorKind.ABORTED
    if "sqlalchemy.exc.InvalidRequestError" in names:
        return ErrorKind.NO_TRANSACTION  # closed, or its transaction was ended inside `with …begin()`
    wrapped = getattr(error, "orig", None)
    return None if wrapped is None else wrapped_kind(wrapped)


class _Sqlalchemy:
    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    def _sent(self, connection: Any, command: Command) -> list[Row]:
        link = connection if hasattr(connection, "exec_driver_sql") else connection.connection()
        self._check(link)
        texts = _texts[link.dialect.paramstyle]
        rows: list[Row] = []
        step: Command | None = command
        while step is not None:
            result = link.exec_driver_sql(texts(step.text), step.values, execution_options=_OPTIONS)
            rows = plain(result) if result.returns_rows else rows
            step = step.then
        return rows

    def _check(self, link: Any) -> None:
        _refuse_autocommit(link)

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error of SQLAlchemy means, or the one that it wraps."""
        return sqlalchemy_error_kind(error, self._server.error_kind)

    def demand_transaction(self, connection: Any) -> None:
        """Nothing to refuse yet: it begins by itself, and what it stands on is known with the first statement."""


class SqlalchemyAdapter(_Sqlalchemy):
    """Sends commands through `sqlalchemy.Connection` and `sqlalchemy.orm.Session`."""

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        return self._sent(connection, command)


class AsyncSqlalchemyAdapter(_Sqlalchemy):
    """Sends commands through `AsyncConnection` and `AsyncSession`, in the greenlet that their own statements use."""

    async def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        return cast("list[Row]", await connection.run_sync(self._sent, command))


def _refuse_autocommit(link: Any) -> None:
    if not _commits_by_itself(link.dialect, link.connection.dbapi_connection):
        return
    message = (
        "within() needs a transaction, and this SQLAlchemy connection is set to AUTOCOMMIT, so every statement would "
        "commit by itself; nothing ran. Use another isolation_level for it."
    )
    raise NotInTransaction(message)


def _commits_by_itself(dialect: Any, dbapi_connection: Any) -> bool:
    """What the DBAPI connection itself says; where it cannot be asked, the completion notices."""
    try:
        return bool(dialect.detect_autocommit_setting(dbapi_connection))
    except (AttributeError, NotImplementedError):
        flag = getattr(dbapi_connection, "autocommit", False)
        return flag is True
