"""From an engine or pool that the caller already has to the store on its connections.

What always holds: an object is known by the names of its classes, so nothing is imported that the caller does not use.
"""

from __future__ import annotations

from typing import Any, cast

from semel.core.store import Store
from semel.stores.served.borrowed import borrowed_from
from semel.stores.served.libraries.dbapi import kinds, of_postgresql


def store_on(pool: object, **settings: Any) -> Store | None:
    """The store where `pool` leads; None where it is neither an engine nor a pool.

    On MySQL and SQLite the address of an engine is used and not its connections: semel's own need a session, or a
    writer, of their own.

    Raises:
        UsageError: it leads to a server without a store.
    """
    engine = cast("Any", pool)
    if any(name.startswith("sqlalchemy.") and name.endswith("Engine") for name in kinds(pool)):
        match engine.dialect.name:
            case "sqlite":
                from semel.stores.sqlite import SqliteStore

                return SqliteStore(engine.url.database or "", **settings)
            case "mysql" | "mariadb":
                from semel.stores.mysql import MysqlStore

                return MysqlStore(_address(engine.url), **settings)
    found = borrowed_from(pool, {"postgresql": of_postgresql})
    if found is None:
        return None
    from semel.stores.postgresql import PostgresStore

    return PostgresStore(found[1], **settings)


def _address(url: Any) -> str:
    plain = url.set(drivername="mysql").difference_update_query(["charset"])
    return str(plain.render_as_string(hide_password=False))
