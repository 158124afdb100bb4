"""Marks in the caller's transaction, where it has no name that the server tells: savepoints that must still be there.

What always holds: the server lets go of every savepoint that was set after the one released, so those that somebody
still needs are set again. That happens where tasks share a transaction and the first to begin is the first to end; the
released mark was there, so the transaction is the one that the later marks were set in.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from semel.stores.served.command import Command

_SET: Final = "SAVEPOINT "
_RELEASE: Final = "RELEASE SAVEPOINT "


def mark(name: str) -> Command:
    """Set a mark. Its name cannot be bound; it is made of letters, digits and `_`."""
    return Command(f"{_SET}{name}")


def demand(name: str) -> Command:
    """Release a mark; the server refuses (1305) where the transaction has ended."""
    return Command(f"{_RELEASE}{name}")


class Marks:
    """Which marks are set, per connection and in order."""

    def __init__(self) -> None:
        self._set: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()

    def kept(self, connection: Any, command: Command) -> Command:
        """`command`, followed by setting again what it lets go of and others still need."""
        text = command.text
        if text.startswith(_SET):
            self._set.setdefault(connection, []).append(text.removeprefix(_SET))
        elif text.startswith(_RELEASE):
            return replace(command, then=self._again(connection, text.removeprefix(_RELEASE)))
        return command

    def _again(self, connection: Any, name: str) -> Command | None:
        marks = self._set.pop(connection, [])
        at = len(marks) - 1 - marks[::-1].index(name) if name in marks else len(marks)
        later = marks[at + 1 :]
        if marks[:at] or later:
            self._set[connection] = marks[:at] + later
        again: Command | None = None
        for other in reversed(later):
            again = replace(mark(other), then=again)
        return again
