"""Django: the connection of an alias, inside `transaction.atomic`.

- A connection outside `atomic` is refused: Django would commit each statement by itself.
- Nothing is sent in a transaction that Django has marked for rollback.
"""

from __future__ import annotations

from typing import Any, Final

from semel.errors import NotInTransaction
from semel.stores.sql.adapter import PlaceholderStyle, Server, kinds, plain
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import ErrorKind

_texts: Final = PlaceholderStyle("%s")


class DjangoAdapter:
    """Sends commands through `django.db.connections[alias]`."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        rows: list[Row] = []
        step: Command | None = command
        with connection.cursor() as cursor:
            while step is not None:
                cursor.execute(_texts(step.text), step.values)
                rows = plain(cursor.fetchall()) if cursor.description else rows
                step = step.then
        return rows

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error of Django means, or the one that it wraps."""
        if any(name.endswith(".TransactionManagementError") for name in kinds(error)):
            return ErrorKind.ABORTED
        return None if error.__cause__ is None else self._server.error_kind(error.__cause__)

    def demand_transaction(self, connection: Any) -> None:
        """The connection must be inside `atomic`."""
        demand_atomic(connection)


def demand_atomic(connection: Any) -> None:
    """Refuse a Django connection that is not inside `atomic`.

    Raises:
        NotInTransaction: every statement of it would commit by itself.
    """
    if connection.in_atomic_block:
        return
    message = (
        f"within() needs an open transaction, and the Django connection {connection.alias!r} is not inside atomic(), "
        f"so every statement would commit by itself; nothing ran. Write `with transaction.atomic(using=…):` around it."
    )
    raise NotInTransaction(message)
