"""The MySQL and MariaDB store."""

from semel.stores.mysql.store import MysqlStore

__all__ = ["MysqlStore"]
