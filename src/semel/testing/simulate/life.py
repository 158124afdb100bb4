"""What the checker knows of one generation of a key: who was granted it, what was done, what was recorded and told.

What always holds: this is kept by watching alone; nothing of it is ever shown to the engine or to the store.
"""

from __future__ import annotations

from typing import Any


class Effect:
    """One entry of the ledger: what happened outside, by which attempt, and when it becomes visible there."""

    __slots__ = ("arrives_us", "caller", "fence", "nonce", "value")

    def __init__(self, value: int, caller: int, fence: int, nonce: bytes, arrives_us: int) -> None:
        self.value = value
        self.caller = caller
        self.fence = fence
        self.nonce = nonce
        self.arrives_us = arrives_us


class Life:
    """One generation of a key, from the claim that found nothing to the record's expiry."""

    __slots__ = ("digest", "effects", "failed", "fence", "fingerprint", "number", "outcome", "steps", "value")

    def __init__(self, digest: bytes, number: int, fingerprint: bytes, fence: int) -> None:
        self.digest = digest
        self.number = number
        self.fingerprint = fingerprint
        self.fence = fence
        self.effects: list[Effect] = []
        self.outcome: bytes | None = None
        self.value: Any = None
        self.failed = False
        self.steps: dict[int, int] = {}

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        effects = tuple([(effect.value, effect.arrives_us) for effect in self.effects])
        return self.number, self.fence, effects, self.outcome, self.failed, tuple(self.steps.items())
