"""What plans of the SQLite store yield to its drivers: statements, and where each of them may run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

from semel.stores.sql.dialect import Command, Row

Reply = tuple[list[Row], int, int]
"""Rows, how many rows were changed, and the store's now."""


class Kind(IntEnum):
    """Where a command may run, in rising order of what it needs."""

    READ = 0
    """A look-up by primary key: any connection."""
    SCAN = 1
    """A longer reading: any connection, but not in an event loop."""
    WRITE = 2
    """The writer's transaction, or the caller's."""
    ENTER = 3
    """The first write into the caller's transaction: one must be open, or begin by itself."""
    SAVEPOINT = 4
    """Mark the caller's transaction."""
    RELEASE = 5
    """Demand that the mark is still there."""


class SqliteCommand(Command, frozen=True):
    """One statement with named values, and those that follow it with the same values, in the same transaction.

    Attributes:
        kind: where it may run.
        named: the values, by their names; `now` is added where it is carried out.
        follow: statements for when something was changed; the rows of the last one count.
        otherwise: a statement for when nothing was changed; its rows count.
        to_rows: makes of what SQLite tells the rows that the shared plan reads; None: they are as they come.
        is_bare: what SQLite tells is the reply itself, for the claims, which have a plan of their own.
    """

    kind: Kind = Kind.WRITE
    named: dict[str, Any] = {}  # noqa: RUF012 - a Struct copies it
    follow: tuple[str, ...] = ()
    otherwise: str = ""
    to_rows: Callable[[list[Row], int, int], list[Row]] | None = None
    is_bare: bool = False


# How bytes are bound. For an object of type bytes sqlite3 looks for an adapter, a conform method and another adapter,
# at each execution; for a bytearray it does not. That was a tenth of the time of a claim.
blob = bytearray


@cache
def _named(text: str) -> str:
    """A text whose marks have names."""
    pieces = text.split("?")
    return pieces[0] + "".join(f":v{place}{piece}" for place, piece in enumerate(pieces[1:]))


def positional(text: str, values: Sequence[Any], *, is_look_up: bool = False) -> SqliteCommand:
    """A statement that all databases understand, with its values by position."""
    kind = Kind.WRITE
    if text.startswith("SELECT"):
        kind = Kind.READ if is_look_up else Kind.SCAN
    return SqliteCommand(_named(text), kind=kind, named={f"v{place}": value for place, value in enumerate(values)})


def whether_changed(_rows: list[Row], changed: int, _now: int) -> list[Row]:
    """One row where something was changed, and none otherwise."""
    return [(True,)] if changed > 0 else []
