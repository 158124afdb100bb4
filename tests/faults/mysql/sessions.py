"""Sessions beside the store, and a store that tells of every victim."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from semel.core.store import Driver
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.store import MYSQL
from semel.stores.sql.adapters.pymysql import PymysqlAdapter
from semel.stores.sql.driver import SqlDriver
from semel.stores.sql.errors import ErrorKind


def session(url: str) -> Any:
    """Somebody else's session, with a transaction open from its first statement on."""
    at = urlsplit(url)
    return pymysql.connect(
        host=at.hostname, port=at.port or 3306, user=unquote(at.username or ""), database=at.path.lstrip("/")
    )


class TellingAdapter(PymysqlAdapter):
    """PyMySQL; each statement that was the victim of a deadlock is added to `victims`."""

    def __init__(self, victims: list[Exception]) -> None:
        super().__init__(MYSQL)
        self._victims = victims

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error means, noted if it is a conflict."""
        found = super().error_kind(error)
        if found is ErrorKind.CONFLICT:
            self._victims.append(error)
        return found


class TellingStore(MysqlStore):
    """The store on that library."""

    def __init__(self, url: str, victims: list[Exception]) -> None:
        super().__init__(url)
        self._victims = victims

    def driver(self) -> Driver:
        """A driver for threads."""
        return SqlDriver(self._context, TellingAdapter(self._victims))
