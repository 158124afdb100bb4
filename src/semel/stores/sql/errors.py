"""What goes wrong on a server, and what it means to semel. A client library names the trouble; this says the sentence.

What always holds: a translated error says what happened, whether anything was recorded, and what to do, and carries its
cause. Only what is named is translated; everything else stays the bug it is. On the caller's connection nothing is ever
sent again.

SQLSTATE codes by what they mean: PostgreSQL's own, and what the standard says of connections.

What always holds: a code that is not listed means nothing that is known, so its error stays the bug it is.
"""

from __future__ import annotations

import re
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


class Trouble(Enum):
    """Kinds of trouble; the value says what to do."""

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


_IN_THE_WAY: Final = frozenset({Trouble.CONFLICT, Trouble.LOCKED, Trouble.HELD})
"""The server is well and answers: somebody else was in the way."""
_MISCONFIGURED: Final = frozenset(
    {Trouble.DENIED, Trouble.NO_LOGIN, Trouble.WRONG_LOGIN, Trouble.NO_DATABASE, Trouble.BAD_URL}
)
"""Trying again is of no use before somebody changes the URL or the server."""


class OfOneOperation(Exception):
    """A value or a constraint refused one row of a list: told apart by sending them one by one. Never leaves a plan."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class RecordHeld(OfOneOperation):
    """An open transaction holds a row of a list, and the server would have waited for it. Never leaves a plan."""


class RowLocked(StoreUnavailable):
    """A transaction that is still open holds the record; nothing was written."""

    def __init__(self, reference: str) -> None:
        message = (
            f"The record {reference[:16]} is held by a transaction that is still open, so nothing was written to it. "
            f"It is tried again; end the transaction of a step before the operation returns."
        )
        super().__init__(message, conflict=True, reference=reference)


def translate_error(error: Exception, trouble: Trouble | None, name: str) -> Exception:
    """`error` on the store's own connection, as semel's own."""
    known: SemelError
    match trouble:
        case None:
            return error
        case Trouble.OF_ONE:
            return OfOneOperation(error)
        case Trouble.HELD:
            held = _not_done(error, trouble, name)
            held.__cause__ = error
            return RecordHeld(held)
        case Trouble.MISSING:
            known = SchemaOutdated(
                f"{name} lacks what this release needs ({brief(error)}); nothing ran. {_do(trouble)}"
            )
        case Trouble.DAMAGED:
            known = RecordUnreadable(f"{name} could not read a record ({brief(error)}); nothing ran. {_do(trouble)}")
        case Trouble.UNREACHED:
            known = StoreUnavailable(f"{name} cannot be reached ({brief(error)}); nothing was recorded. {_do(trouble)}")
        case Trouble.LOST:
            known = StoreUnavailable(
                f"{name} did not answer ({brief(error)}); whether it was recorded is not known. {_do(trouble)}"
            )
        case _ if trouble in _MISCONFIGURED:
            known = StoreMisconfigured(
                f"{name} cannot be used ({brief(error)}); nothing was recorded. {_do(trouble)} "
                f"Trying again does not help."
            )
        case _:
            known = _not_done(error, trouble, name)
    known.__cause__ = error
    return known


def translated_connecting(error: Exception, trouble: Trouble | None, name: str) -> Exception:
    """`error` while a connection was opened: nothing was sent on it, so nothing can have been recorded."""
    return translate_error(error, Trouble.UNREACHED if trouble is Trouble.LOST else trouble, name)


def _not_done(error: Exception, trouble: Trouble, name: str) -> StoreUnavailable:
    message = f"{name} did not do it ({brief(error)}); nothing was recorded. {_do(trouble)}"
    return StoreUnavailable(message, conflict=trouble in _IN_THE_WAY)


def translate_server_error_in_joined(error: Exception, trouble: Trouble | None, name: str) -> Exception:
    """`error` on the caller's connection: what would be tried again elsewhere ends the caller's transaction here."""
    known: SemelError
    match trouble:
        case None | Trouble.OF_ONE:
            return error
        case Trouble.MARK_GONE:
            return ended()
        case Trouble.NO_TRANSACTION:
            known = NotInTransaction(
                f"within() needs an open transaction on {name}, and this connection has none ({brief(error)}); "
                f"nothing ran. Begin one around within()."
            )
        case Trouble.MISSING:
            known = NotInTransaction(
                f"The connection given to within() leads to a database without semel's tables ({brief(error)}); "
                f"nothing ran. Give a connection to {name}."
            )
        case Trouble.READ_ONLY:
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


def _do(trouble: Trouble) -> str:
    return f"{trouble.value[0].upper()}{trouble.value[1:]}."


_CODES: Final = {
    "40001": Trouble.CONFLICT,  # serialization_failure
    "40P01": Trouble.CONFLICT,  # deadlock_detected
    "40003": Trouble.LOST,  # statement_completion_unknown
    "55P03": Trouble.LOCKED,  # lock_not_available, lock_timeout too
    "57014": Trouble.SLOW,  # query_canceled, statement_timeout too
    "57P01": Trouble.LOST,  # admin_shutdown
    "57P02": Trouble.LOST,  # crash_shutdown
    "57P03": Trouble.LOST,  # cannot_connect_now
    "57P04": Trouble.LOST,  # database_dropped
    "57P05": Trouble.LOST,  # idle_session_timeout
    "25P03": Trouble.LOST,  # idle_in_transaction_session_timeout
    "25P02": Trouble.ABORTED,  # in_failed_sql_transaction
    "25006": Trouble.READ_ONLY,  # read_only_sql_transaction
    "25P01": Trouble.NO_TRANSACTION,  # no_active_sql_transaction
    "42501": Trouble.DENIED,  # insufficient_privilege
    "28P01": Trouble.WRONG_LOGIN,  # invalid_password
    "3D000": Trouble.NO_DATABASE,  # invalid_catalog_name
    "42P01": Trouble.MISSING,  # undefined_table
    "42703": Trouble.MISSING,  # undefined_column
    "3F000": Trouble.MISSING,  # invalid_schema_name
    "3B001": Trouble.MARK_GONE,  # invalid_savepoint_specification
    "XX001": Trouble.DAMAGED,  # data_corrupted
    "XX002": Trouble.DAMAGED,  # index_corrupted
}
_CLASSES: Final = {
    "08": Trouble.LOST,
    "28": Trouble.NO_LOGIN,
    "53": Trouble.FULL,
    "58": Trouble.FULL,  # the system under the server failed
    "22": Trouble.OF_ONE,
    "23": Trouble.OF_ONE,
}


def trouble_of(sqlstate: str | None) -> Trouble | None:
    """What a code means."""
    return _CODES.get(sqlstate or "") or _CLASSES.get((sqlstate or "")[:2])


_REFUSED_LOGINS: Final = (
    (re.compile(r"password authentication failed|no password supplied", re.IGNORECASE), Trouble.WRONG_LOGIN),
    (re.compile(r"database \S+ does not exist", re.IGNORECASE), Trouble.NO_DATABASE),
    (
        re.compile(
            r"role \S+ does not exist|no pg_hba\.conf entry|is not permitted to log in|"
            r"(peer|ident) authentication failed",
            re.IGNORECASE,
        ),
        Trouble.NO_LOGIN,
    ),
    (re.compile(r"permission denied for database", re.IGNORECASE), Trouble.DENIED),
)


def trouble_of_login(message: str) -> Trouble | None:
    """What the text of a refused login means: libpq gives no code with it. A server in another language: not known."""
    return next((trouble for pattern, trouble in _REFUSED_LOGINS if pattern.search(message)), None)
