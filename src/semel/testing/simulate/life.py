"""What the checker knows of one generation of a key: who was granted it, what was done, what was recorded and told.

What always holds: this is kept by watching alone; nothing of it is ever shown to the engine or to the store.
"""

from __future__ import annotations

from typing import Any, Literal

Ended = Literal["", "expired", "forgotten"]


class Effect:
    """One entry of the ledger: a value nobody else has, and when it becomes visible outside."""

    __slots__ = ("arrives_us", "value")

    def __init__(self, value: int, arrives_us: int) -> None:
        self.value = value
        self.arrives_us = arrives_us


class Life:
    """One generation of a key, from the claim that found nothing to the record's expiry."""

    __slots__ = (
        "digest", "earlier", "effects", "ended", "erased", "failed", "fence", "fingerprint", "line", "number",
        "outcome", "stated", "value",
    )  # fmt: skip

    def __init__(self, digest: bytes, number: int, fingerprint: bytes, fence: int) -> None:
        self.digest = digest
        self.number = number
        self.fingerprint = fingerprint
        self.fence = fence
        self.effects: list[Effect] = []
        self.outcome: bytes | None = None
        self.value: Any = None
        self.failed = False
        self.erased = False
        self.ended: Ended = ""
        self.earlier: list[Any] = []  # values that were recorded, and forgotten by the server
        self.stated: dict[bytes, Any] = {}  # the values that operators stated, by the nonce of each statement
        self.line: list[Effect] = []  # what was done in this generation and in those that were forgotten before it

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        effects = tuple([(effect.value, effect.arrives_us) for effect in self.effects])
        forgotten = self.ended, len(self.earlier), len(self.line)
        stated = tuple(self.stated)
        return self.number, self.fence, effects, self.outcome, self.failed, self.erased, forgotten, stated
