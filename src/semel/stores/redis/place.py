"""A store's place: its settings, how its keys are spelt, and which operation a digest was claimed for.

What always holds: what is remembered of a digest is only ever a way to its key. What was forgotten is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from semel.core.key import Key
from semel.stores.redis.pattern import Pattern
from semel.stores.redis.settings import Settings

_MOST: Final = 65_536


@dataclass(slots=True)
class Place:
    """Shared by every plan and driver of a store."""

    settings: Settings
    pattern: Pattern
    _operations: dict[bytes, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages."""
        return self.settings.name

    def key(self, key: Key) -> str:
        """The key of a record in Redis; its operation is remembered for who asks by digest later."""
        if self.pattern.names_operation:
            known = self._operations
            if len(known) >= _MOST:
                known.clear()  # whoever asks now looks for its key, or claims again
            known[key.digest] = key.operation
        return self.pattern.key(key.operation, key.digest)

    def known_key(self, digest: bytes, operation: str = "") -> str | None:
        """The key of a digest; None where its operation is not known and the pattern names it."""
        operation = operation or self._operations.get(digest, "")
        if self.pattern.names_operation and not operation:
            return None
        return self.pattern.key(operation, digest)
