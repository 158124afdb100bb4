"""Records in Redis: one server, a cluster, or servers watched by Sentinel."""

from semel.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
