"""Errors of SQLite, translated into semel's. Only listed classes and codes are translated; any other is a bug.

A translated error says what happened, whether anything ran and what to do, and carries its cause.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from semel.errors import (
    NotInTransaction,
    RecordUnreadable,
    SchemaOutdated,
    SemelError,
    StoreMisconfigured,
    StoreUnavailable,
)
from semel.errors import TransactionAborted as Aborted

# A value that cannot be bound, or a row that a constraint refuses: the statement is undone, its neighbours are not.
# These are mistakes of semel or of a caller of the store, so they are given back untranslated.
OF_ONE_OPERATION = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.NotSupportedError,
    OverflowError,
    UnicodeEncodeError,
)
# Never translated: a fault inside SQLite, a class that sqlite3 never raises, and the two roots.
BUGS = (sqlite3.InternalError, sqlite3.Warning, sqlite3.Error)
TRANSLATED = (sqlite3.OperationalError, sqlite3.DatabaseError)

_SNAPSHOT = 517  # SQLITE_BUSY_SNAPSHOT: what this transaction has read is no longer the newest
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNREADABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk reported an error; look at the system's log",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened; look at the path and its permissions",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only; give this user the right to write both",
    sqlite3.SQLITE_PERM: "the permission is missing; give this user the right to write the file and its folder",
    sqlite3.SQLITE_AUTH: "the permission is missing; give this user the right to write the file and its folder",
    sqlite3.SQLITE_NOLFS: "the file is larger than this file system allows; purge it or move it",
    sqlite3.SQLITE_PROTOCOL: "its locks could not be taken; look for a process that is stopped while it holds them",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted; try again",
    sqlite3.SQLITE_NOMEM: "there is not enough memory; try again",
}
_MISCONFIGURED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
"""Trying again is of no use before somebody changes the path or its permissions."""


def is_outage(error: Exception) -> bool:
    """Whether an error of sqlite3, or of SQLAlchemy, says nothing of what was sent: the file was locked, or full."""
    while (wrapped := getattr(error, "orig", None)) is not None:  # as SQLAlchemy wraps the error of a driver
        error = wrapped
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, sqlite3.OperationalError) and (code in _LOCKED or code in _UNAVAILABLE)


class WriteLocked(StoreUnavailable):
    """Somebody else holds the write lock of the file; nothing was written. What is recorded can still be read."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message, **{"conflict": True, **facts})


def code_of(error: sqlite3.Error) -> int:
    """SQLite's extended result code, 0 where the error did not come from the library."""
    return getattr(error, "sqlite_errorcode", 0)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection was in the way."""
    return code_of(error) & 0xFF in _LOCKED


def translate_error(error: sqlite3.Error, name: str, *, written: bool = False) -> Exception:
    """`error` as semel's own, or itself where it is a bug. `written`: it was the COMMIT, so it may have happened."""
    known = _known(error, name, "whether it was recorded is not known" if written else "nothing was recorded")
    if known is None:
        return error
    known.__cause__ = error
    return known


def _known(error: sqlite3.Error, name: str, effect: str) -> SemelError | None:
    primary = code_of(error) & 0xFF
    if type(error) not in TRANSLATED:
        return None
    if primary in _UNREADABLE:
        return RecordUnreadable(
            f"{name} is damaged or is not an SQLite database ({error}); {effect}, and nothing ran. "
            f"Look at the path, or restore the file from a backup."
        )
    if primary in _LOCKED:
        return WriteLocked(f"{name} was locked by another connection for too long ({error}); {effect}. Try again.")
    if primary in _MISCONFIGURED:
        return StoreMisconfigured(f"{name} cannot be used ({error}); {effect}: {_UNAVAILABLE[primary]}.")
    if primary in _UNAVAILABLE:
        return StoreUnavailable(f"{name} did not answer ({error}); {effect}: {_UNAVAILABLE[primary]}.")
    if primary == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return SchemaOutdated(
            f"{name} lacks what this release needs ({error}); {effect}, and nothing ran. Run `semel migrate`."
        )
    return None


def translate_joined_error(error: sqlite3.Error, name: str, *, lost: bool) -> Exception:
    """`error` on the caller's connection. `lost`: the transaction that was open before is not open any more."""
    known: Exception
    if lost or code_of(error) == _SNAPSHOT:
        known = Aborted(
            f"The caller's transaction on {name} cannot go on ({error}); nothing of it is kept. "
            f"Roll it back and run all of it again."
        )
    elif code_of(error) == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        known = NotInTransaction(
            f"The connection given to within() leads to a database without semel's tables ({error}); nothing ran. "
            f"Give a connection to {name}."
        )
    elif isinstance(error, sqlite3.ProgrammingError) and not code_of(error):
        known = NotInTransaction(
            f"The connection given to within() cannot be used here ({error}); nothing was recorded. "
            f"Give an open connection of this thread."
        )
    else:
        return translate_error(error, name)
    known.__cause__ = error
    return known
