"""Address of a MySQL or MariaDB server, and the session settings of semel's own connections.

- The caller's connections are never changed.
- One text sets up a session on both servers; what only one of them knows stands in a comment that only that one reads.
"""

from __future__ import annotations

import math
import ssl
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from semel.errors import UsageError
from semel.stores.settings import addresses_of, split_url
from semel.stores.sql.adapters.multi_statement import MysqlSession
from semel.stores.sql.settings import Settings

_OWN: Final = frozenset({"unix_socket", "ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify"})
_NO: Final = frozenset({"0", "false", "no", "off"})
_PORT: Final = 3306


def session_of(settings: Settings) -> MysqlSession:
    """Where a session leads and what it is told first.

    Raises:
        UsageError: the URL has a setting that is not known.
    """
    return MysqlSession(address(settings), session_statements(settings), lock_timeout_seconds(settings))


def lock_timeout_seconds(settings: Settings) -> int:
    """`lock_timeout` as both servers take it: whole seconds, at least one."""
    return max(1, math.ceil(settings.lock_timeout))


def session_statements(settings: Settings) -> str:
    """What a new session is told first."""
    return (
        # Literals compare by their bytes, like the columns.
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; "
        # The look of a claim at the row locks nothing, and nothing is locked but rows that are there.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; "
        # Strict: a value that does not fit is refused, not cut. Without SIMULTANEOUS_ASSIGNMENT: see the claim.
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
        "NO_ENGINE_SUBSTITUTION', sql_notes = 0, "
        f"lock_wait_timeout = {lock_timeout_seconds(settings)}, "
        # A key that an open transaction holds is answered at once by MariaDB; MySQL waits a second at least. Commands
        # that are patient set it for themselves.
        "innodb_lock_wait_timeout = 1 "
        f"/*M!100100 , innodb_lock_wait_timeout = 0, max_statement_time = {settings.statement_timeout:.3f} */"
    )


def address(settings: Settings) -> dict[str, Any]:
    """The arguments that both client libraries take.

    Raises:
        UsageError: the URL has a setting that is not known.
    """
    parts = split_url(settings.url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    given.pop("charset", None)  # many URLs have it; sessions of semel's own are utf8mb4 whatever it says
    unknown = sorted(given.keys() - _OWN)
    if unknown:
        message = (
            f"A {parts.scheme} URL has no setting {unknown[0]!r}; nothing was opened. "
            f"It has {', '.join(sorted(_OWN))} and those of the store."
        )
        raise UsageError(message)
    (host, port), *more = addresses_of(parts)
    if more:
        message = (
            f"A {parts.scheme} URL names one host; nothing was opened. Write mysql://user:password@host:3306/database."
        )
        raise UsageError(message)
    found: dict[str, Any] = {
        "host": host or "127.0.0.1",
        "port": port or _PORT,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.lstrip("/")) or None,
    }
    if "unix_socket" in given:
        found["unix_socket"] = given["unix_socket"]
    secure = _secured(given)
    return found if secure is None else {**found, "ssl": secure}


def _secured(given: dict[str, str]) -> ssl.SSLContext | None:
    """TLS where it was asked for: verified, unless `ssl_verify` says no."""
    further = [name for name in sorted(given) if name.startswith("ssl_")]
    if given.get("ssl", "").lower() in _NO:
        if further:
            raise _contradiction(f"{', '.join(further)} is for TLS, and ssl={given['ssl']} switches it off")
        return None
    if "ssl" not in given and not further:
        return None
    if "ssl_key" in given and "ssl_cert" not in given:
        raise _contradiction("ssl_key is the key of a certificate, and ssl_cert does not say of which")
    context = ssl.create_default_context(cafile=given.get("ssl_ca"))
    if given.get("ssl_verify", "").lower() in _NO:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "ssl_cert" in given:
        context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    return context


def _contradiction(why: str) -> UsageError:
    return UsageError(f"{why}; nothing was opened. Leave one of them out, or add the other.")
