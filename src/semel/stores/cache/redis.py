"""The cache in Redis: one script on one key for each operation, one round trip for all that go together.

- An error of a get or a put is a miss. An invalidation that was not acknowledged is an error.
- Every key names the database it stands for; while that is not known, the cache is not asked.
- The deadlines of entries, epochs and tombstones are compared with the server's clock inside the script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from semel.core.sealing.values import Sealer
from semel.core.store import Plan
from semel.errors import StoreUnavailable
from semel.stores.cache.logic import CacheBreaker, pack_record, unpack_record
from semel.stores.cache.operations import (
    CacheGet,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheMiss,
    CacheOperation,
    CachePut,
    CachePutResult,
)
from semel.stores.cache.settings import PATTERN, Cache
from semel.stores.redis.driver import AsyncRedisDriver, RedisDriver
from semel.stores.redis.key_names import RedisContext
from semel.stores.redis.pipeline import ScriptSource, route
from semel.stores.redis.plan import Reply, Script
from semel.stores.redis.settings import Pattern, Settings
from semel.stores.settings import StoreClock

EPOCH_US: Final = 10_000_000
"""How long an epoch stands: a store that takes longer to answer a claim fills nothing in."""

CACHE_SCRIPTS: Final = ScriptSource("semel.stores.cache", "rules", ("get", "put", "invalidate"))
_NO_ROOM: Final = 2


class RedisCache:
    """Entries in the Redis that a `Cache` names."""

    max_operations = 64

    def __init__(
        self,
        cache: Cache,
        gate: CacheBreaker,
        install_id: Callable[[], bytes | None],
        clock: StoreClock | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        assert cache.url is not None  # noqa: S101 - without a URL there is no such tier
        spelt = {} if "pattern=" in cache.url else {"pattern": PATTERN}
        settings = Settings.of(
            cache.url,
            # A cache may forget: what is gone is asked of the store again.
            **{"evicting": "allowed", "listen": False, "clock": clock, **spelt},
            timeout=cache.timeout,
            connect_timeout=cache.timeout,
        )
        self._context = RedisContext(settings, Pattern(settings.pattern))
        self._gate = gate
        self._install_id = install_id
        self._sealer = sealer
        self.name = settings.name

    def plan(self, operations: Sequence[CacheOperation], *, joined: bool) -> Plan:
        """One script for each operation, all sent together."""
        del joined
        write, read = _WAYS[type(operations[0])]
        replies: list[Reply]
        # Read for every round: should another database stand there by the time of a fill, the fill goes to that one's
        # key, where the epoch of the look does not stand.
        install_id = self._install_id()
        if install_id is None:
            replies = [_unknown_database_error()] * len(operations)
        elif self._gate.resting and not isinstance(operations[0], CacheInvalidate):
            replies = [_breaker_open_error()] * len(operations)
        else:
            naming = Naming(self._context.pattern, install_id, self._sealer)
            replies = yield [write(naming, operation) for operation in operations]
            self._note(replies)
        return [read(self._sealer, operation, reply) for operation, reply in zip(operations, replies, strict=True)]

    def _note(self, replies: Sequence[Reply]) -> None:
        silent = next((reply for reply in replies if isinstance(reply, StoreUnavailable)), None)
        if silent is None:
            self._gate.answered()
        else:
            self._gate.silent(silent)

    def driver(self) -> RedisDriver:
        """A driver for threads."""
        return RedisDriver(self._context, route(self._context.settings, CACHE_SCRIPTS))

    def async_driver(self) -> AsyncRedisDriver:
        """A driver for an event loop."""
        return AsyncRedisDriver(self._context, route(self._context.settings, CACHE_SCRIPTS))


class Naming(NamedTuple):
    """How the keys of entries are spelt, for one database, and what seals them."""

    pattern: Pattern
    install_id: bytes
    sealer: Sealer | None

    def key(self, operation: str, digest: bytes) -> str:
        """The key of an entry: in the place of the digest stands which database it is, and then the digest."""
        return self.pattern.key(operation, self.install_id + digest)


def _get_script(naming: Naming, operation: CacheGet) -> Script:
    key = operation.key
    return Script("get", naming.key(key.operation, key.digest), (operation.epoch, EPOCH_US))


def _get_answer(sealer: Sealer | None, operation: CacheGet, reply: Reply) -> Any:
    match reply:
        case [1, bytes(body), int(), int(rest)]:
            entry = unpack_record(body, operation.key.digest, sealer)
            return CacheMiss() if entry is None else CacheHit(*entry, rest)
        case [0, bytes(epoch), int(now), int()]:
            return CacheMiss(epoch, now)
    return CacheMiss()


def _put_script(naming: Naming, operation: CachePut) -> Script:
    key = operation.record.key
    body = pack_record(operation.record, operation.now_us, naming.sealer)
    return Script("put", naming.key(key.operation, key.digest), (operation.epoch, operation.until_us, body))


def _put_answer(sealer: Sealer | None, operation: CachePut, reply: Reply) -> Any:
    del sealer, operation
    return CachePutResult(reply == 1, full=reply == _NO_ROOM)


def _invalidate_script(naming: Naming, operation: CacheInvalidate) -> Script:
    return Script("invalidate", naming.key(operation.operation, operation.digest), (operation.quiet_us,))


def _invalidate_answer(sealer: Sealer | None, operation: CacheInvalidate, reply: Reply) -> Any:
    del sealer, operation
    if isinstance(reply, int):
        return CacheInvalidated(reply)
    return reply if isinstance(reply, Exception) else _not_understood_error()


_WAYS: Final[dict[type, tuple[Callable[[Naming, Any], Script], Callable[[Sealer | None, Any, Reply], Any]]]] = {
    CacheGet: (_get_script, _get_answer),
    CachePut: (_put_script, _put_answer),
    CacheInvalidate: (_invalidate_script, _invalidate_answer),
}


def _not_understood_error() -> StoreUnavailable:
    return StoreUnavailable(
        "The cache gave an answer that no Redis gives, so nothing is confirmed. Look at its address."
    )


def _unknown_database_error() -> StoreUnavailable:
    return StoreUnavailable(
        "Which database stands behind the cache is not known before it was reached, so nothing was asked of the cache. "
        "Try again once the database answers."
    )


def _breaker_open_error() -> StoreUnavailable:
    return StoreUnavailable("The cache does not answer and is left alone for a moment; the store behind it is asked.")
