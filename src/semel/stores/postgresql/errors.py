"""SQLSTATE codes by kind: PostgreSQL's own, and those of the standard about connections.

A code that is not listed has no kind: its error is a bug and is raised as it is.
"""

from __future__ import annotations

import re
from typing import Final

from semel.stores.sql.errors import ErrorKind

_CODES: Final = {
    "40001": ErrorKind.CONFLICT,  # serialization_failure
    "40P01": ErrorKind.CONFLICT,  # deadlock_detected
    "40003": ErrorKind.LOST,  # statement_completion_unknown
    "55P03": ErrorKind.LOCKED,  # lock_not_available, lock_timeout too
    "57014": ErrorKind.SLOW,  # query_canceled, statement_timeout too
    "57P01": ErrorKind.LOST,  # admin_shutdown
    "57P02": ErrorKind.LOST,  # crash_shutdown
    "57P03": ErrorKind.LOST,  # cannot_connect_now
    "57P04": ErrorKind.LOST,  # database_dropped
    "57P05": ErrorKind.LOST,  # idle_session_timeout
    "25P03": ErrorKind.LOST,  # idle_in_transaction_session_timeout
    "25P02": ErrorKind.ABORTED,  # in_failed_sql_transaction
    "25006": ErrorKind.READ_ONLY,  # read_only_sql_transaction
    "25P01": ErrorKind.NO_TRANSACTION,  # no_active_sql_transaction
    "42501": ErrorKind.DENIED,  # insufficient_privilege
    "28P01": ErrorKind.WRONG_LOGIN,  # invalid_password
    "3D000": ErrorKind.NO_DATABASE,  # invalid_catalog_name
    "42P01": ErrorKind.MISSING,  # undefined_table
    "42703": ErrorKind.MISSING,  # undefined_column
    "3F000": ErrorKind.MISSING,  # invalid_schema_name
    "3B001": ErrorKind.MARK_GONE,  # invalid_savepoint_specification
    "XX001": ErrorKind.DAMAGED,  # data_corrupted
    "XX002": ErrorKind.DAMAGED,  # index_corrupted
}
_CLASSES: Final = {
    "08": ErrorKind.LOST,
    "28": ErrorKind.NO_LOGIN,
    "53": ErrorKind.FULL,
    "58": ErrorKind.FULL,  # the system under the server failed
    "22": ErrorKind.OF_ONE,
    "23": ErrorKind.OF_ONE,
}


def kind_of_sqlstate(sqlstate: str | None) -> ErrorKind | None:
    """What a code means."""
    return _CODES.get(sqlstate or "") or _CLASSES.get((sqlstate or "")[:2])


_REFUSED_LOGINS: Final = (
    (re.compile(r"password authentication failed|no password supplied", re.IGNORECASE), ErrorKind.WRONG_LOGIN),
    (re.compile(r"database \S+ does not exist", re.IGNORECASE), ErrorKind.NO_DATABASE),
    (
        re.compile(
            r"role \S+ does not exist|no pg_hba\.conf entry|is not permitted to log in|"
            r"(peer|ident) authentication failed",
            re.IGNORECASE,
        ),
        ErrorKind.NO_LOGIN,
    ),
    (re.compile(r"permission denied for database", re.IGNORECASE), ErrorKind.DENIED),
)


def kind_of_refused_login(message: str) -> ErrorKind | None:
    """What the text of a refused login means: libpq gives no code with it. A server in another language: not known."""
    return next((kind for pattern, kind in _REFUSED_LOGINS if pattern.search(message)), None)


def postgresql_error_kind(error: BaseException) -> ErrorKind | None:
    """What an error of any client library for PostgreSQL means, by its SQLSTATE and its DB-API class."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if code:
        return kind_of_sqlstate(code)
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"OperationalError", "InterfaceError"}:
        return kind_of_refused_login(str(error)) or ErrorKind.LOST
    return ErrorKind.OF_ONE if "DataError" in names else None
