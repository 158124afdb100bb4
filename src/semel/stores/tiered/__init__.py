"""Two tiers: a cache of completed records, in Redis and in the process, in front of a SQL store that decides."""

from semel.stores.tiered.settings import Cache
from semel.stores.tiered.store import TieredStore

__all__ = ["Cache", "TieredStore"]
