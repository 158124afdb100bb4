"""SQLSTATE codes by what they mean: PostgreSQL's own, and what the standard says of connections.

What always holds: a code that is not listed means nothing that is known, so its error stays the bug it is.
"""

from __future__ import annotations

import re
from typing import Final

from semel.stores.served.troubles import Trouble

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
