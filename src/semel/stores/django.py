"""The database of an alias in Django's settings as a store: `django://default`.

- The settings are read on first use, so that a store can be made while Django is being set up, and a test run uses its
  test database.
- Operations outside `within` use connections of semel's own, never the one that a request's transaction is on.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from semel.core.store import SEARCHING, Capabilities, Capability, Store
from semel.errors import UsageError
from semel.extras import requires
from semel.stores.settings import make_store
from semel.stores.wrapper import StoreWrapper

__all__ = ["DjangoStore"]


class DjangoStore(StoreWrapper):
    """The store behind `alias`."""

    max_operations = 64

    def __init__(self, alias: str, **settings: Any) -> None:
        self._alias = alias
        self._settings = settings
        self._found: Store | None = None

    @property
    def name(self) -> str:
        """What the store is called in messages."""
        return f"django://{self._alias}"

    def _behind(self) -> Store:
        if self._found is None:
            self._found = _store_of(self._alias, self._settings)
        return self._found

    @property
    def install_id(self) -> bytes | None:
        """Which database this is, where that was learnt by now."""
        return None if self._found is None else super().install_id

    @property
    def capabilities(self) -> Capabilities:
        """What every database that Django and semel know can do; more once the settings were read."""
        every = frozenset(
            {
                Capability.JOIN,
                Capability.SEPARATE_LOOP,
                Capability.INVALIDATIONS,
                Capability.DURABLE,
                Capability.LETTERS,
                Capability.OUTBOX,
                Capability.BATCH,
                Capability.AUDIT,
                *SEARCHING,
            }
        )
        return every if self._found is None else super().capabilities


def _store_of(alias: str, settings: dict[str, Any]) -> Store:
    vendor, given = _database(alias)
    match vendor:
        case "sqlite":
            from semel.stores.sqlite import SqliteStore

            return make_store("sqlite", SqliteStore, str(given["NAME"]), **settings)
        case "postgresql":
            from semel.stores.postgresql import PostgresStore

            return make_store(vendor, PostgresStore, url_of(vendor, given), **settings)
        case "mysql":
            from semel.stores.mysql import MysqlStore

            return make_store(vendor, MysqlStore, url_of(vendor, given), **settings)
    message = f"Django's database {alias!r} is {vendor}, which has no store; nothing was opened."
    raise UsageError(message)


def _database(alias: str) -> tuple[str, dict[str, Any]]:
    """What kind of database an alias leads to, and its settings as Django has them now."""
    with requires("django://", "django"):
        from django.core.exceptions import ImproperlyConfigured
        from django.db import connections
        from django.db.utils import ConnectionDoesNotExist
    try:
        connection = connections[alias]
    except (ConnectionDoesNotExist, ImproperlyConfigured) as problem:
        message = f"Django has no database {alias!r} that can be used ({problem}); nothing was opened."
        raise UsageError(message) from problem
    return connection.vendor, connection.settings_dict


def url_of(scheme: str, given: dict[str, Any]) -> str:
    """The URL that Django's settings of a database stand for; options that are plain words or numbers go along."""
    user, password = quote(str(given.get("USER") or ""), safe=""), quote(str(given.get("PASSWORD") or ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    host, port = str(given.get("HOST") or ""), str(given.get("PORT") or "")
    options = {
        name: value
        for name, value in (given.get("OPTIONS") or {}).items()
        if isinstance(value, str | int) and not isinstance(value, bool) and name in _PASSED_ON[scheme]
    }
    if host.startswith("/"):
        options["host" if scheme == "postgresql" else "unix_socket"] = host
        host = ""
    place = f"{host}:{port}" if port else host
    query = f"?{urlencode(options)}" if options else ""
    return f"{scheme}://{login}{place}/{quote(str(given['NAME']), safe='')}{query}"


_PASSED_ON: Final[dict[str, frozenset[str]]] = {
    "postgresql": frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs"}),
    "mysql": frozenset({"unix_socket", "ssl_ca", "ssl_cert", "ssl_key"}),
}
