"""A command as one multi-statement text for the store's own connections to MySQL and MariaDB: one round trip.

A text too large for the server is refused before it is sent: the server would close the connection, and it would not be
known whether anything was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from semel.errors import NotInTransaction
from semel.stores.sql.adapter import PlaceholderStyle, Server
from semel.stores.sql.dialect import Command
from semel.stores.sql.errors import ErrorKind

TOO_LARGE: Final = 1153
"""ER_NET_PACKET_TOO_LARGE, which the adapters see coming and raise before anything is sent."""
TRIES: Final = 3
"""How often a statement is sent that met a locked row, where the server does not wait: most locks are gone by then."""
FACTS: Final = "SELECT VERSION(), @@max_allowed_packet"
_HEAD: Final = 64  # bytes of a packet that are not the text
_WIDEST: Final = 4  # bytes of a character

texts: Final = PlaceholderStyle("%s")


@dataclass(frozen=True, slots=True)
class MysqlSession:
    """Where a session of the store's own leads, as both client libraries take it, and what it is told first."""

    address: dict[str, Any]
    statements: str

    @property
    def opening(self) -> str:
        """The text that sets the session up and asks for `FACTS`."""
        return f"{self.statements}; {FACTS}"


@dataclass(slots=True)
class OwnConnection:
    """A connection of the store's own, and what was learnt of its server."""

    connection: Any
    largest: int = 0
    waits: bool = False

    def learn(self, version: str, largest: int) -> None:
        """Note what `FACTS` answered: MySQL cannot be told not to wait at all."""
        self.largest = int(largest) - _HEAD
        self.waits = "mariadb" not in version.lower()

    def too_large(self, text: str) -> bool:
        """Whether the server would refuse it for its size."""
        return len(text) * _WIDEST > self.largest and len(text.encode()) > self.largest


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


class MysqlAdapter:
    """What the adapters of both client libraries share; they say which errors are those of their library."""

    keeps = True
    library_error: type[Exception]
    interface_error: type[Exception]

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


def no_transaction_error(library: str, begin: str) -> NotInTransaction:
    """The error for a connection of the caller that is closed, or commits every statement by itself."""
    return NotInTransaction(
        f"within() needs an open transaction, and this {library} connection is closed or in autocommit mode "
        f"without one; nothing ran. {begin} first."
    )
