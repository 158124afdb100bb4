"""Opens a store by its URL, or on an engine or pool that the caller already has. Nothing is connected.

- Backends are imported when they are asked for. An engine or pool is recognized by the names of its classes, so no
  library is imported that the caller does not use.
- An error names the scheme and never the rest of a URL, which may hold a password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote, urlencode

from semel.core.store import Store
from semel.errors import UsageError
from semel.extras import requires
from semel.stores.settings import make_store
from semel.validation import BELONGS, explain_unknown, to_timedelta

GROUP: Final = "semel.stores"
"""Entry points of third parties: the name is the scheme, the value is a callable that takes the URL."""

_FORMS: Final = (
    "postgresql://, mysql://, redis://, dynamodb://table, sqlite:///relative.db, sqlite:////absolute.db or memory://"
)

_DRIVERS: Final = {
    "postgresql": frozenset({"asyncpg", "pg8000", "psycopg", "psycopg2", "psycopg2cffi", "psycopg_async"}),
    "mysql": frozenset({"aiomysql", "asyncmy", "mariadbconnector", "mysqlconnector", "mysqldb", "pymysql"}),
    "sqlite": frozenset({"aiosqlite", "pysqlite"}),
}
"""Drivers that SQLAlchemy names after a plus sign. semel has libraries of its own, so the name changes nothing."""
_SCHEMES: Final = frozenset({"sqlite", "memory", "postgresql", "django", "mysql", "redis", "rediss", "dynamodb"})
_ALIASES: Final = {"postgres": "postgresql", "mariadb": "mysql"}
_USED: Final = {"postgresql": "psycopg and asyncpg", "mysql": "PyMySQL and asyncmy", "sqlite": "Python's sqlite3"}


def split_scheme(url: str) -> tuple[str, str]:
    """The scheme of `url` without aliases and SQLAlchemy's drivers, and what follows `://`; no scheme is an empty one.

    Raises:
        UsageError: the scheme names a driver that is not known.
    """
    given, colon, rest = url.partition("://")
    if not colon:
        return "", url
    dialect, plus, driver = given.lower().partition("+")
    dialect = _ALIASES.get(dialect, dialect)
    if not plus or dialect not in _DRIVERS:
        return dialect + plus + driver, rest
    if driver not in _DRIVERS[dialect]:
        message = (
            f"{given}:// names a driver that is not known here; nothing was opened. Write {dialect}://: semel uses "
            f"{_USED[dialect]}, whichever driver your own code uses."
        )
        raise UsageError(message)
    return dialect, _without_driver_settings(driver, rest)


def _without_driver_settings(driver: str, rest: str) -> str:
    """The rest of a URL, with what SQLAlchemy's asyncpg calls `ssl` named as everybody else does."""
    location, mark, query = rest.partition("?")
    if driver != "asyncpg" or not mark:
        return rest
    pairs = [("sslmode" if name == "ssl" else name, value) for name, value in parse_qsl(query, keep_blank_values=True)]
    return f"{location}?{urlencode(pairs)}"


def store_from_url(url: str, **settings: Any) -> Store:
    """The store that `url` names; `settings` are those of its class, and go before those in the URL.

    Raises:
        UsageError: the URL is malformed, its scheme is unknown, or a setting is.
        DependencyMissing: the client library of such a store is not installed.
    """
    scheme, rest = split_scheme(url)
    if not scheme:
        message = f"A store is named by a URL, and this one has no scheme; nothing was opened. Write {_FORMS}."
        raise UsageError(message)
    _refuse_settings_of_others(scheme, rest)
    match scheme:
        case "sqlite":
            return _sqlite(rest, settings)
        case "memory":
            return _memory(rest, settings)
        case "postgresql":
            from semel.stores.postgresql import PostgresStore

            return make_store(scheme, PostgresStore, f"postgresql://{rest}", **settings)
        case "django":
            from semel.stores.django import DjangoStore

            return make_store(scheme, DjangoStore, unquote(rest).strip("/") or "default", **settings)
        case "mysql":
            from semel.stores.mysql import MysqlStore

            return make_store(scheme, MysqlStore, f"mysql://{rest}", **settings)
        case "redis" | "rediss" | "redis+cluster" | "redis+sentinel":
            with requires(f"{scheme}://", "redis"):
                from semel.stores.redis import RedisStore

            return make_store(scheme, RedisStore, f"{scheme}://{rest}", **settings)
        case "dynamodb":
            from semel.stores.dynamodb import DynamoStore

            return make_store(scheme, DynamoStore, f"dynamodb://{rest}", **settings)
    return make_store(scheme, _third_party(scheme), url, **settings)


_SQL_POOL: Final = {
    "size": "pool_size",
    "min_idle": "min_idle",
    "idle_for": "idle_for",
    "lifetime": "lifetime",
    "connect_timeout": "connect_timeout",
    "statement_timeout": "statement_timeout",
}
_REDIS_POOL: Final = {
    "idle_for": "idle_for",
    "lifetime": "lifetime",
    "connect_timeout": "connect_timeout",
    "statement_timeout": "timeout",
}
_DYNAMODB_POOL: Final = {
    "size": "pool_size",
    "connect_timeout": "connect_timeout",
    "statement_timeout": "read_timeout",
}
_POOLS: Final[dict[str, tuple[dict[str, str], str]]] = {
    "postgresql": (_SQL_POOL, ""),
    "mysql": (_SQL_POOL, ""),
    "django": (_SQL_POOL, ""),
    "redis": (_REDIS_POOL, "it opens a connection for each batch that is on its way, and keeps it for the next one"),
    "dynamodb": (_DYNAMODB_POOL, "the SDK keeps the connections"),
    "sqlite": ({}, "it is a file, and its connections are no sessions of a server; busy_for in its URL bounds waiting"),
    "memory": ({}, "it lives in this process and opens no connections"),
}
"""By scheme: what the settings of a pool are called by such a store, and why it has no others."""


def pool_settings(scheme: str, pool: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the table `[pool]` as a store of `scheme` calls them; an empty scheme is the path of a SQLite file.

    Raises:
        UsageError: such a store has no use for one of them.
    """
    kind = scheme.partition("+")[0].replace("rediss", "redis") or "sqlite"
    names, reason = _POOLS.get(kind, ({}, "it comes from another package; write its settings into its URL"))
    for name in pool:
        if name not in names:
            known = f" It has {', '.join(sorted(names))}." if names else ""
            raise UsageError(f"{kind}:// has no use for {name} of a pool: {reason}; nothing was opened.{known}")
    return {names[name]: value for name, value in pool.items()}


def _refuse_settings_of_others(scheme: str, rest: str) -> None:
    """Refuse a URL that sets what belongs to a policy, to limits or to a cache; stores of others have their own names.

    Raises:
        UsageError: it does.
    """
    if scheme.partition("+")[0] not in _SCHEMES:
        return
    for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True):
        if name in BELONGS:
            raise UsageError(explain_unknown(f"A {scheme} URL", name, (), outcome="nothing was opened"))


def _sqlite(rest: str, settings: dict[str, Any]) -> Store:
    from semel.stores.sqlite import SqliteStore

    location, _, query = rest.partition("?")
    host, slash, path = location.partition("/")
    if host or not slash:
        message = (
            "A sqlite URL has three slashes before a relative path and four before an absolute one; nothing was "
            "opened. Write sqlite:///relative.db or sqlite:////absolute.db."
        )
        raise UsageError(message)
    return make_store("sqlite", SqliteStore, unquote(path), **{**_sqlite_settings(query), **settings})


def _sqlite_settings(query: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name:
            case "synchronous":
                settings[name] = value.upper()
            case "busy_for":
                settings[name] = _seconds(name, value)
            case _:
                message = f"A sqlite URL has no setting {name!r}; nothing was opened. It has synchronous and busy_for."
                raise UsageError(message)
    return settings


def _seconds(name: str, value: str) -> timedelta:
    try:
        number: object = float(value)
    except ValueError:
        number = value
    return to_timedelta(name, number, may_be_zero=True, outcome="nothing was opened")


def _memory(rest: str, settings: dict[str, Any]) -> Store:
    from semel.stores.memory import MemoryStore

    if rest:
        message = "memory:// takes nothing after it; nothing was opened. Each such store is a place of its own."
        raise UsageError(message)
    return make_store("memory", MemoryStore, **settings)


def _third_party(scheme: str) -> Callable[..., Store]:
    for entry in entry_points(group=GROUP, name=scheme):
        return cast("Callable[..., Store]", entry.load())
    message = (
        f"No store is known for {scheme}://; nothing was opened. Use {_FORMS}, or install a package that adds it "
        f"(entry point group {GROUP})."
    )
    raise UsageError(message)


def store_on(pool: object, **settings: Any) -> Store | None:
    """The store where `pool` leads; None where it is neither an engine nor a pool.

    On MySQL and SQLite the address of an engine is used and not its connections: semel's own need a session, or a
    writer, of their own.

    Raises:
        UsageError: it leads to a server without a store.
    """
    from semel.stores.sql.adapter import kinds
    from semel.stores.sql.external_pool import ENGINES, POOLS

    names = kinds(pool)
    borrow = next((POOLS[name] for name in names if name in POOLS), None)
    if borrow is None:
        borrow = next((ENGINES[name] for name in names if name in ENGINES), None)
        if borrow is None:
            return None
        engine = cast("Any", pool)
        match engine.dialect.name:
            case "sqlite":
                from semel.stores.sqlite import SqliteStore

                return make_store("sqlite", SqliteStore, engine.url.database or "", **settings)
            case "mysql" | "mariadb":
                from semel.stores.mysql import MysqlStore

                return make_store("mysql", MysqlStore, _mysql_url(engine.url), **settings)
            case "postgresql":
                pass
            case other:
                message = f"An engine for {other} leads to no store that is known; nothing was opened."
                raise UsageError(message)
    from semel.stores.postgresql.store import POSTGRESQL, PostgresStore

    return make_store("postgresql", PostgresStore, borrow(pool, POSTGRESQL), **settings)


def _mysql_url(url: Any) -> str:
    plain = url.set(drivername="mysql").difference_update_query(["charset"])
    return str(plain.render_as_string(hide_password=False))
