"""The PostgreSQL store."""

from semel.stores.postgresql.store import PostgresStore

__all__ = ["PostgresStore"]
