"""A command as one text of several statements, as the store's own connections send it: one round trip.

What always holds: a text that the server would refuse for its size is refused before it is sent, because the server
closes the connection over it, and whether anything was recorded would not be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from semel.stores.sql.adapter import Texts
from semel.stores.sql.dialect import Command

TRIES: Final = 3
"""How often a statement is sent that met a locked row, where the server does not wait: most locks are gone by then."""
FACTS: Final = "SELECT VERSION(), @@max_allowed_packet"
_HEAD: Final = 64  # bytes of a packet that are not the text
_WIDEST: Final = 4  # bytes of a character

texts: Final = Texts("%s")


@dataclass(slots=True)
class Own:
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


def said(command: Command) -> tuple[str, tuple[Any, ...]]:
    """The statements of a command as one text, and all their values."""
    pieces: list[str] = ["BEGIN"] if command.atomic else []
    values: list[Any] = []
    for part in chain(command):
        pieces.append(texts(part.text))
        values += part.values
    if command.atomic:
        pieces.append("COMMIT")
    return "; ".join(pieces), tuple(values)


def chain(command: Command) -> list[Command]:
    """The statements of a command, in order."""
    found = [command]
    while found[-1].then is not None:
        found.append(found[-1].then)
    return found
