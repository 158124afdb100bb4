"""Opens a store on an engine or pool that the caller already has.

An object is recognized by the names of its classes, so no library is imported that the caller does not use.
"""

from __future__ import annotations

from typing import Any, cast

from semel.core.store import Store
from semel.errors import UsageError
from semel.stores.settings import make_store
from semel.stores.sql.adapters.dbapi import kinds
from semel.stores.sql.external_pool import ENGINES, POOLS


def store_on(pool: object, **settings: Any) -> Store | None:
    """The store where `pool` leads; None where it is neither an engine nor a pool.

    On MySQL and SQLite the address of an engine is used and not its connections: semel's own need a session, or a
    writer, of their own.

    Raises:
        UsageError: it leads to a server without a store.
    """
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

                return make_store("mysql", MysqlStore, _address(engine.url), **settings)
            case "postgresql":
                pass
            case other:
                message = f"An engine for {other} leads to no store that is known; nothing was opened."
                raise UsageError(message)
    from semel.stores.postgresql.store import POSTGRESQL, PostgresStore

    return make_store("postgresql", PostgresStore, borrow(pool, POSTGRESQL), **settings)


def _address(url: Any) -> str:
    plain = url.set(drivername="mysql").difference_update_query(["charset"])
    return str(plain.render_as_string(hide_password=False))
