"""The Redis store: records that many machines share, quick, and as safe as the server keeps what it acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from semel.core.operations import Operation
from semel.core.store import AsyncDriver, AsyncJoined, Capability, Joined, Plan
from semel.errors import UsageError
from semel.stores.admin import Admin
from semel.stores.redis.driver import AsyncRedisDriver, RedisDriver
from semel.stores.redis.key_names import RedisContext
from semel.stores.redis.pipeline import route
from semel.stores.redis.plan import plan
from semel.stores.redis.settings import Pattern, Settings


class RedisStore:
    """Records in Redis at `url`: one server, a cluster, or what Sentinels name.

    Settings: see `redis.settings.Settings`. Nothing is opened before the first use.
    """

    max_operations = 32
    """Not more: of 64 callers one half is answered while the server works for the other."""
    capabilities = frozenset({Capability.NOTIFY, Capability.SEPARATE_LOOP, Capability.EXAMINE, Capability.LETTERS})
    """Not durable: `semel doctor` says of Redis as the only store that it is best effort."""

    setting_names = frozenset(Settings.__dataclass_fields__) - {"name", "kind", "addresses"}

    def __init__(self, url: str, **settings: Any) -> None:
        given = Settings.of(url, **settings)
        self._context = RedisContext(given, Pattern(given.pattern))
        self.name = given.name

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""
        del joined  # `join` refuses first
        return plan(self._context, operations)

    def driver(self) -> RedisDriver:
        """A driver for threads."""
        return RedisDriver(self._context, route(self._context.settings))

    def async_driver(self) -> AsyncRedisDriver:
        """A driver for an event loop."""
        return AsyncRedisDriver(self._context, route(self._context.settings))

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for an event loop of semel's own: connections belong to no loop of the caller."""
        return self.async_driver()

    def admin(self) -> Admin:
        """What operators do: look."""
        from semel.stores.redis.admin import RedisAdmin

        return RedisAdmin(self._context)

    def join(self, connection: Any) -> Joined:
        """Redis cannot join a transaction."""
        _refuse(connection)

    def async_join(self, connection: Any) -> AsyncJoined:
        """Redis cannot join a transaction."""
        _refuse(connection)


def _refuse(connection: object) -> NoReturn:
    message = (
        f"Redis cannot join a transaction, so a {type(connection).__qualname__} cannot share one with it; nothing ran. "
        f"Use the SQL store of that database for within()."
    )
    raise UsageError(message)
