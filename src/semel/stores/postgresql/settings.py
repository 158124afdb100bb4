"""Session settings and TLS of semel's own connections to PostgreSQL. The caller's connections are never changed."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import parse_qsl

from semel.errors import UsageError
from semel.stores.settings import split_url
from semel.stores.sql.settings import Settings

_CERTIFICATES: Final = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir"})
_ENCRYPTED: Final = frozenset({"require", "verify-ca", "verify-full"})


def check_tls(url: str) -> None:
    """Refuse a URL that names certificates and leaves it open whether the connection is encrypted.

    Without sslmode the client libraries go on in plain text where the server, or a proxy before it, has no TLS.

    Raises:
        UsageError: it is such a URL.
    """
    given = dict(parse_qsl(split_url(url).query, keep_blank_values=True))
    names = ", ".join(sorted(given.keys() & _CERTIFICATES))
    mode = given.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    if names and mode not in _ENCRYPTED:
        message = (
            f"{names} is for TLS, and with sslmode={mode} the connection may be plain text; nothing was opened. "
            f"Write sslmode=verify-full, or leave out what is for TLS."
        )
        raise UsageError(message)


def session_settings(settings: Settings) -> dict[str, str]:
    """The settings of a new session."""
    path = {"search_path": settings.schema} if settings.schema else {}
    return {
        "application_name": "semel",
        "statement_timeout": f"{settings.statement_timeout * 1000:.0f}",
        "lock_timeout": f"{settings.lock_timeout * 1000:.0f}",
        "default_transaction_isolation": "read committed",
        # On a table that was never analysed the planner would keep a hash join over all records in its prepared plan.
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
        **path,
    }
