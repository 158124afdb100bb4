"""A cache of completed records, in Redis and in the process, in front of a SQL store that decides."""

from semel.stores.cache.settings import Cache
from semel.stores.cache.store import TieredStore

__all__ = ["Cache", "TieredStore"]
