"""Settings of a store on a SQL server: address, timeouts and table names.

Everything is checked before anything is opened; neither the name of a store nor its printed settings show a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from semel.errors import UsageError
from semel.stores.settings import DAY, Reader, StoreClock, count, join_url, read, seconds, split_url, truth

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")
_READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("connect_timeout", "statement_timeout", "lock_timeout", "idle_for", "lifetime"), seconds(DAY)),
    **dict.fromkeys(("listen", "migrate", "pooled"), truth),
    "pool_size": count(1, 1000),
    "min_idle": count(0, 1000),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a store was given.

    Attributes:
        url: where the server is, as its client library wants it, without semel's own settings.
        name: the same for messages: without user, password and settings.
        pool_size: how many connections a driver opens at most.
        min_idle: how many of them are kept, however long nobody uses them.
        idle_for: how many seconds a connection is kept unused; None: for ever. It is closed when the next one is taken.
        lifetime: how many seconds after it was opened a connection is replaced by a new one; None: never.
        connect_timeout: how long to wait for a connection.
        statement_timeout: how long a single statement may take. Less than any `keep_for`, so that a claim that is stuck
            on its way never outlives the record that answers it.
        lock_timeout: how long a statement waits for a row that somebody else has locked. MySQL and MariaDB: whole
            seconds, for decisions, and on MariaDB for claims in the caller's transaction; others wait less.
        pooled: PostgreSQL: `url` leads through a proxy that pools transactions, so nothing is left to a session.
        listen: whether each process that has waiters keeps one more connection for notifications; else they poll.
        listen_url: where to listen, if `url` leads through such a proxy, which tells nobody.
        schema: where the tables are; empty: where the connection looks first.
        prefix: what the names of the tables begin with.
        migrate: whether missing tables are created on first use. Existing ones are changed by `semel migrate` alone.
        clock: a virtual clock instead of the server's, for tests alone.
    """

    url: str = field(repr=False)
    name: str
    pool_size: int = 4
    min_idle: int = 0
    idle_for: float | None = None
    lifetime: float | None = None
    connect_timeout: float = 10.0
    statement_timeout: float = 15.0
    lock_timeout: float = 2.0
    pooled: bool = False
    listen: bool = True
    listen_url: str = field(default="", repr=False)
    schema: str = ""
    prefix: str = "semel_"
    migrate: bool = True
    clock: StoreClock | None = None

    @classmethod
    def of(cls, url: str, **given: Any) -> Settings:
        """The settings in `url` and in `given`, which go first.

        Raises:
            UsageError: one of them is not usable.
        """
        parts = split_url(url)
        own, rest = {}, []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in cls.__dataclass_fields__ and name not in ("url", "name", "clock"):
                own[name] = value
            else:
                rest.append((name, value))
        plain = join_url(parts._replace(query=urlencode(rest)))
        return cls(plain, _shown(url), **_checked({**own, **given}))

    @classmethod
    def for_pool(cls, name: str, **given: Any) -> Settings:
        """The settings for connections that are borrowed: nobody listens on those.

        Raises:
            UsageError: one of them is not usable.
        """
        return cls("", name, **_checked({**given, "listen": False}))


def _shown(url: str) -> str:
    parts = split_url(url)
    return join_url(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    checked = read(given, _READERS)
    for name in ("schema", "prefix"):
        if checked.get(name) and not _IDENTIFIER.fullmatch(str(checked[name])):
            message = f"{name} must be letters, digits and _, at most 31 of them; nothing was opened."
            raise UsageError(message)
    return checked
