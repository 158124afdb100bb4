"""The context of a Redis store: its settings, and a cache of the key names of recent digests.

The cache only ever shortens the way to a key: a name that is no longer in it is searched for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from semel.core.key import Key
from semel.stores.redis.settings import Pattern, Settings

_MOST: Final = 32_768
"""How many ways make a generation. This one and the one before are remembered."""


@dataclass(slots=True)
class RedisContext:
    """Shared by every plan and driver of a store."""

    settings: Settings
    pattern: Pattern
    _keys: dict[bytes, str] = field(default_factory=dict)
    _older: dict[bytes, str] = field(default_factory=dict)
    monotonic: Callable[[], float] = field(default=time.monotonic)
    """What the ages of connections are measured by."""

    @property
    def name(self) -> str:
        """For messages."""
        return self.settings.name

    def key(self, key: Key) -> str:
        """The key of a record in Redis; it is remembered for who asks by digest later."""
        known = self._keys.get(key.digest)
        return known or self.remember(key.digest, self.pattern.key(key.operation, key.digest))

    def remember(self, digest: bytes, key: str) -> str:
        """Keep the way to a record, at the expense of those that were learnt first."""
        # A generation at a time: a dictionary looks for its first entry past every one that was taken out before. Two
        # threads that begin a new one in the same moment forget one too many, which is looked for when it is asked for.
        if len(self._keys) >= _MOST:
            self._older, self._keys = self._keys, {}
        self._keys[digest] = key
        return key

    def known_key(self, digest: bytes, operation: str = "") -> str | None:
        """The key of a digest; None where its operation is not known and the pattern names it."""
        known = self._keys.get(digest) or self._older.get(digest)
        if known is None and (operation or not self.pattern.names_operation):
            return self.pattern.key(operation, digest)
        return known
