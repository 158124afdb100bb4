"""Records in an SQLite file: the embedded default. Durable, for any number of processes on one machine."""

from semel.stores.sqlite.admin import migrate, pending_sql
from semel.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "migrate", "pending_sql"]
