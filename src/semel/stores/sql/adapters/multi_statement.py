"""How commands are sent to MySQL and MariaDB through either client library.

- The store's own connections send a command as one multi-statement text, in one round trip; a caller's connection gets
  its statements one by one.
- Rows come as tuples, whatever cursor class the caller has set.
- A text too large for the server is refused before it is sent: the server would close the connection, and it would not
  be known whether anything was recorded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, cast

from semel.errors import NotInTransaction
from semel.stores.sql.adapter import PlaceholderStyle, Server
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import ErrorKind
from semel.stores.sql.settings import Settings

TOO_LARGE: Final = 1153
"""ER_NET_PACKET_TOO_LARGE, which the adapters see coming and raise before anything is sent."""
TRIES: Final = 3
"""How often a statement is sent that met a locked row, where the server does not wait: most locks are gone by then."""
FACTS: Final = "SELECT VERSION(), @@max_allowed_packet"
_HEAD: Final = 64  # bytes of a packet that are not the text
_WIDEST: Final = 4  # bytes of a character

_IN_TRANSACTION: Final = 1  # SERVER_STATUS_IN_TRANS
_AUTOCOMMIT: Final = 2  # SERVER_STATUS_AUTOCOMMIT

texts: Final = PlaceholderStyle("%s")


@dataclass(frozen=True, slots=True)
class MysqlSession:
    """Where a session of the store's own leads, as both client libraries take it, and what it is told first."""

    address: dict[str, Any]
    statements: str
    lock_timeout: int
    """Whole seconds."""

    @property
    def opening(self) -> str:
        """The text that sets the session up and asks for `FACTS`."""
        return f"{self.statements}; {FACTS}"


@dataclass(slots=True, eq=False, weakref_slot=True)
class OwnConnection:
    """A connection of the store's own, and what was learnt of its server."""

    connection: Any
    lock_timeout: int
    largest: int = 0
    waits: bool = False

    def learn(self, version: str, largest: int) -> None:
        """Note what `FACTS` answered: MySQL cannot be told not to wait at all."""
        self.largest = int(largest) - _HEAD
        self.waits = "mariadb" not in version.lower()

    @property
    def impatience(self) -> str:
        """Sets how long its statements wait for a row that is locked, as the session was told first."""
        return _wait_text(1 if self.waits else 0)

    def patiently(self, text: str) -> str:
        """The text of a command that waits for `lock_timeout`, and leaves the session as it was."""
        return f"{_wait_text(self.lock_timeout)}; {text}; {self.impatience}"

    def too_large(self, text: str) -> bool:
        """Whether the server would refuse it for its size."""
        return len(text) * _WIDEST > self.largest and len(text.encode()) > self.largest


def _wait_text(seconds: int) -> str:
    return f"SET SESSION innodb_lock_wait_timeout = {seconds}"


def to_multi_statement(command: Command) -> tuple[str, tuple[Any, ...]]:
    """The statements of a command as one text, and all their values."""
    pieces: list[str] = ["BEGIN"] if command.atomic else []
    values: list[Any] = []
    for part in linked_statements(command):
        pieces.append(texts(part.text))
        values += part.values
    if command.atomic:
        pieces.append("COMMIT")
    return "; ".join(pieces), tuple(values)


def linked_statements(command: Command) -> list[Command]:
    """The statements of a command, in order."""
    found = [command]
    while found[-1].then is not None:
        found.append(found[-1].then)
    return found


def connect_arguments(address: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """What both client libraries take for a connection of the store's own."""
    return {
        **address,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": max(1, round(settings.connect_timeout)),
        # The server ends a statement that takes too long; this is for a server that does not answer at all.
        "read_timeout": settings.statement_timeout + settings.connect_timeout,
        "program_name": "semel",
    }


class MysqlAdapter:
    """What the adapters of both client libraries share; they name the cursors and errors of their library."""

    keeps = True
    copies = False
    cursor: type[Any]
    library_error: type[Exception]
    interface_error: type[Exception]
    data_error: type[Exception]

    def __init__(self, server: Server[MysqlSession]) -> None:
        self._server = server

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error of the client library means."""
        if isinstance(error, self.library_error):
            return ErrorKind.LOST if isinstance(error, self.interface_error) else self._server.error_kind(error)
        return ErrorKind.LOST if isinstance(error, (OSError, EOFError)) else None

    def is_tried_again(self, own: OwnConnection, kind: ErrorKind | None, turn: int) -> bool:
        """Whether a statement is sent again: it met a locked row on a server that does not wait."""
        return kind is ErrorKind.HELD and not own.waits and turn < TRIES


def commits_by_itself(server_status: int) -> bool:
    """Whether the next statement of a connection would commit by itself: in autocommit, with no transaction begun."""
    return bool(server_status & _AUTOCOMMIT and not server_status & _IN_TRANSACTION)


def no_transaction_error(library: str, begin: str) -> NotInTransaction:
    """The error for a connection of the caller that is closed, or commits every statement by itself."""
    return NotInTransaction(
        f"within() needs an open transaction, and this {library} connection is closed or in autocommit mode "
        f"without one; nothing ran. {begin} first."
    )


class AsyncMysqlAdapter(MysqlAdapter, ABC):
    """Sends commands through connections of the store's own."""

    @abstractmethod
    async def _open(self, address: dict[str, Any], settings: Settings) -> Any:
        """A new connection of the client library."""

    @abstractmethod
    async def close(self, connection: OwnConnection) -> None:
        """Let go of a connection; never raises."""

    async def connect(self, settings: Settings) -> OwnConnection:
        """A connection of the store's own."""
        session = self._server.session(settings)
        own = OwnConnection(await self._open(session.address, settings), session.lock_timeout)
        try:
            ((version, largest),) = await self._rows(own.connection, session.opening)
            own.learn(version, largest)
        except BaseException:
            await self.close(own)
            raise
        return own

    async def execute(self, connection: OwnConnection, command: Command) -> list[Row]:
        """The rows of `command`."""
        text, values = to_multi_statement(command)
        text = connection.patiently(text) if command.patient else text
        sql = self.cursor(connection.connection).mogrify(text, values)
        if connection.too_large(sql):
            raise self.data_error(TOO_LARGE, "the text is larger than max_allowed_packet")
        turn = 0
        while True:
            try:
                return await self._rows(connection.connection, sql)
            except self.library_error as error:
                turn += 1
                kind = self.error_kind(error)
                if kind is not ErrorKind.LOST:
                    await self._clean_up(connection, command)
                if command.patient or not self.is_tried_again(connection, kind, turn):
                    raise

    async def _clean_up(self, own: OwnConnection, command: Command) -> None:
        """What the rest of a text that failed would have done."""
        if command.atomic:
            await own.connection.rollback()
        if command.patient:
            await self._rows(own.connection, own.impatience)

    async def _rows(self, connection: Any, sql: str) -> list[Row]:
        """The rows of the last statement that has some."""
        async with connection.cursor(self.cursor) as cursor:
            await cursor.execute(sql)
            rows = cast("list[Row]", list(await cursor.fetchall()) if cursor.description else [])
            while await cursor.nextset():
                rows = list(await cursor.fetchall()) if cursor.description else rows
            return rows

    def demand_transaction(self, connection: OwnConnection) -> None:
        """Nothing to demand: the store's own connections are in autocommit."""


class AsyncMysqlJoined(MysqlAdapter):
    """Sends commands through a connection of the caller."""

    async def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        rows: list[Row] = []
        async with connection.cursor(self.cursor) as cursor:
            for part in linked_statements(command):
                await cursor.execute(texts(part.text), part.values)
                rows = list(await cursor.fetchall()) if cursor.description else rows
        return rows


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncMysqlAdapter(MysqlAdapter, ABC):
    """Sends commands through connections of the store's own."""

    @abstractmethod
    def _open(self, address: dict[str, Any], settings: Settings) -> Any:
        """A new connection of the client library."""

    @abstractmethod
    def close(self, connection: OwnConnection) -> None:
        """Let go of a connection; never raises."""

    def connect(self, settings: Settings) -> OwnConnection:
        """A connection of the store's own."""
        session = self._server.session(settings)
        own = OwnConnection(self._open(session.address, settings), session.lock_timeout)
        try:
            ((version, largest),) = self._rows(own.connection, session.opening)
            own.learn(version, largest)
        except BaseException:
            self.close(own)
            raise
        return own

    def execute(self, connection: OwnConnection, command: Command) -> list[Row]:
        """The rows of `command`."""
        text, values = to_multi_statement(command)
        text = connection.patiently(text) if command.patient else text
        sql = self.cursor(connection.connection).mogrify(text, values)
        if connection.too_large(sql):
            raise self.data_error(TOO_LARGE, "the text is larger than max_allowed_packet")
        turn = 0
        while True:
            try:
                return self._rows(connection.connection, sql)
            except self.library_error as error:
                turn += 1
                kind = self.error_kind(error)
                if kind is not ErrorKind.LOST:
                    self._clean_up(connection, command)
                if command.patient or not self.is_tried_again(connection, kind, turn):
                    raise

    def _clean_up(self, own: OwnConnection, command: Command) -> None:
        """What the rest of a text that failed would have done."""
        if command.atomic:
            own.connection.rollback()
        if command.patient:
            self._rows(own.connection, own.impatience)

    def _rows(self, connection: Any, sql: str) -> list[Row]:
        """The rows of the last statement that has some."""
        with connection.cursor(self.cursor) as cursor:
            cursor.execute(sql)
            rows = cast("list[Row]", list(cursor.fetchall()) if cursor.description else [])
            while cursor.nextset():
                rows = list(cursor.fetchall()) if cursor.description else rows
            return rows

    def demand_transaction(self, connection: OwnConnection) -> None:
        """Nothing to demand: the store's own connections are in autocommit."""


class SyncMysqlJoined(MysqlAdapter):
    """Sends commands through a connection of the caller."""

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of `command`."""
        rows: list[Row] = []
        with connection.cursor(self.cursor) as cursor:
            for part in linked_statements(command):
                cursor.execute(texts(part.text), part.values)
                rows = list(cursor.fetchall()) if cursor.description else rows
        return rows
