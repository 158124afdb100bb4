"""Kinds of errors on SQL servers, and semel's error for each. An adapter names the kind; the message is made here.

- A translated error says what happened, whether anything was recorded and what to do, and carries its cause.
- Only listed errors are translated; any other is a bug and is raised as it is.
- On the caller's connection nothing is ever sent again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from semel.errors import (
    NotInTransaction,
    RecordUnreadable,
    SchemaOutdated,
    SemelError,
    StoreMisconfigured,
    StoreUnavailable,
    TransactionAborted,
)


class ErrorKind(Enum):
    """What went wrong; the value says what to do."""

    CONFLICT = "it was in the way of another transaction; try again"
    LOCKED = "another transaction held a lock for too long; look for one that is idle in transaction"
    HELD = "a transaction that is still open holds the record; look for one that is idle in transaction"
    SLOW = "it took longer than statement_timeout allows; look at what keeps the server busy"
    LOST = "the connection broke; try again once the server can be reached"
    UNREACHED = "look whether the server runs, and at the host and the port in the URL"
    DENIED = "the user lacks a permission there; look at its grants"
    NO_LOGIN = "the server lets this user not in from here; look at the name of the user, and at who may connect"
    WRONG_LOGIN = "the user or the password is wrong; look at both in the URL"
    NO_DATABASE = "there is no such database on that server; look at its name in the URL, or create it"
    BAD_URL = "a setting in the URL is not known; look at its query"
    READ_ONLY = "the server accepts no writes; give the address of the primary"
    FULL = "the server is out of disk, memory or connections; free some"
    MISSING = "a table or column is missing; run `semel migrate`"
    MARK_GONE = "the transaction of the claim is not open any more"
    ABORTED = "the transaction is past use; roll it back and run all of it again"
    NO_TRANSACTION = "no transaction is open"
    DAMAGED = "what is stored is damaged; restore it from a backup"
    OF_ONE = "a value or a constraint refuses a single row"


OUTAGES: Final = frozenset(
    {
        ErrorKind.CONFLICT,
        ErrorKind.LOCKED,
        ErrorKind.HELD,
        ErrorKind.SLOW,
        ErrorKind.LOST,
        ErrorKind.UNREACHED,
        ErrorKind.READ_ONLY,
        ErrorKind.FULL,
    }
)
"""These say nothing of what was sent: the same may work later."""
_IN_THE_WAY: Final = frozenset({ErrorKind.CONFLICT, ErrorKind.LOCKED, ErrorKind.HELD})
"""The server is well and answers: somebody else was in the way."""
_MISCONFIGURED: Final = frozenset(
    {ErrorKind.DENIED, ErrorKind.NO_LOGIN, ErrorKind.WRONG_LOGIN, ErrorKind.NO_DATABASE, ErrorKind.BAD_URL}
)
"""Trying again is of no use before somebody changes the URL or the server."""


class RowError(Exception):
    """A value or a constraint refused one row of a list: told apart by sending them one by one. Never leaves a plan."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class CannotCopy(Exception):
    """The client library has no COPY; nothing was sent. Never leaves a plan."""


class RecordHeld(RowError):
    """An open transaction holds a row of a list, and the server would have waited for it. Never leaves a plan."""


class RowLocked(StoreUnavailable):
    """A transaction that is still open holds the record; nothing was written."""

    def __init__(self, reference: str) -> None:
        message = (
            f"The record {reference[:16]} is held by a transaction that is still open, so nothing was written to it. "
            f"It is tried again; end the transaction of a step before the operation returns."
        )
        super().__init__(message, conflict=True, reference=reference)


def translate_error(error: Exception, kind: ErrorKind | None, name: str) -> Exception:
    """`error` on the store's own connection, as semel's own."""
    known: SemelError
    match kind:
        case None:
            return error
        case ErrorKind.OF_ONE:
            return RowError(error)
        case ErrorKind.HELD:
            held = _not_done(error, kind, name)
            held.__cause__ = error
            return RecordHeld(held)
        case ErrorKind.MISSING:
            known = SchemaOutdated(f"{name} lacks what this release needs ({brief(error)}); nothing ran. {_do(kind)}")
        case ErrorKind.DAMAGED:
            known = RecordUnreadable(f"{name} could not read a record ({brief(error)}); nothing ran. {_do(kind)}")
        case ErrorKind.UNREACHED:
            known = StoreUnavailable(f"{name} cannot be reached ({brief(error)}); nothing was recorded. {_do(kind)}")
        case ErrorKind.LOST:
            known = StoreUnavailable(
                f"{name} did not answer ({brief(error)}); whether it was recorded is not known. {_do(kind)}"
            )
        case _ if kind in _MISCONFIGURED:
            known = StoreMisconfigured(
                f"{name} cannot be used ({brief(error)}); nothing was recorded. {_do(kind)} Trying again does not help."
            )
        case _:
            known = _not_done(error, kind, name)
    known.__cause__ = error
    return known


def translate_connecting_error(error: Exception, kind: ErrorKind | None, name: str) -> Exception:
    """`error` while a connection was opened: nothing was sent on it, so nothing can have been recorded."""
    return translate_error(error, ErrorKind.UNREACHED if kind is ErrorKind.LOST else kind, name)


def _not_done(error: Exception, kind: ErrorKind, name: str) -> StoreUnavailable:
    message = f"{name} did not do it ({brief(error)}); nothing was recorded. {_do(kind)}"
    return StoreUnavailable(message, conflict=kind in _IN_THE_WAY)


def translate_server_error_in_joined(error: Exception, kind: ErrorKind | None, name: str) -> Exception:
    """`error` on the caller's connection: what would be tried again elsewhere ends the caller's transaction here."""
    known: SemelError
    match kind:
        case None | ErrorKind.OF_ONE:
            return error
        case ErrorKind.MARK_GONE:
            return ended()
        case ErrorKind.NO_TRANSACTION:
            known = NotInTransaction(
                f"within() needs an open transaction on {name}, and this connection has none ({brief(error)}); "
                f"nothing ran. Begin one around within()."
            )
        case ErrorKind.MISSING:
            known = NotInTransaction(
                f"The connection given to within() leads to a database without semel's tables ({brief(error)}); "
                f"nothing ran. Give a connection to {name}."
            )
        case ErrorKind.READ_ONLY:
            known = NotInTransaction(
                f"The transaction given to within() takes no writes ({brief(error)}); nothing was recorded. "
                f"Give one that may write, on {name} itself and not on a replica."
            )
        case _:
            known = TransactionAborted(
                f"The caller's transaction on {name} cannot go on ({brief(error)}); nothing of it is kept. "
                f"Roll it back and run all of it again."
            )
    known.__cause__ = error
    return known


def ended() -> NotInTransaction:
    """The error for a transaction that the handler ended."""
    return NotInTransaction(
        "The transaction that the claim was written in is not open any more: the handler committed it or rolled it "
        "back. What it committed is kept and its record is in doubt; what it rolled back did not happen. Leave commit "
        "and rollback to the code around within()."
    )


def other_database() -> NotInTransaction:
    """The error for a connection whose database has another install_id."""
    return NotInTransaction(
        "The connection given to within() leads to another database than the store's; nothing ran. "
        "Give a connection to the same database."
    )


def brief(error: Exception) -> str:
    """The first line of a library's message: the rest may repeat the statement and its values."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _do(kind: ErrorKind) -> str:
    return f"{kind.value[0].upper()}{kind.value[1:]}."
