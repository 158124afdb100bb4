"""What servers do beyond answering: Redis removes keys for want of room, and comes back without its last writes.

What always holds: whatever is forgotten is written down for its key, so that a second effect can be asked whether a
record was forgotten before it; nothing else explains one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from semel.testing.simulate.servers import WatchedRedis

if TYPE_CHECKING:
    from semel.testing.simulate.simulation import Simulation

_MOST: Final = 3


class Quirks:
    """The quirks of one schedule."""

    __slots__ = ("forgotten", "sim")

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.forgotten: dict[bytes, int] = {}

    def options(self) -> list[str]:
        """What may happen before a round reaches the server."""
        sim = self.sim
        assert isinstance(sim.store, WatchedRedis)
        model, faults = sim.store.model, sim.world.faults
        evicts = [f"evict {number}" for number in range(len(model.table.records))] if "evict" in faults else []
        most = min(model.writes, _MOST) if "forget" in faults else 0
        return evicts + [f"forget {writes}" for writes in range(1, most + 1)]

    def strike(self, kind: str) -> bool:
        """Let it happen; False where it is none of these."""
        sim = self.sim
        word, _, number = kind.partition(" ")
        if word not in ("evict", "forget"):
            return False
        assert isinstance(sim.store, WatchedRedis)
        model = sim.store.model
        if word == "evict":
            digests = {list(model.table.records)[int(number)]}
            model.evict(*digests)
        else:
            digests = model.forget(int(number))
        sim.faults.note(word, digests, "server")
        for digest in digests:
            self._forgotten(digest)
        return True

    def _forgotten(self, digest: bytes) -> None:
        sim = self.sim
        self.forgotten[digest] = self.forgotten.get(digest, 0) + 1
        sim.store.claims.forgotten(digest)
        # Whoever had been granted the key, or had given it back, may find that undone.
        nonces = [nonce for nonce, life in sim.store.claims.life_of.items() if life.digest == digest]
        sim.faults.unknown.update(nonces)
        sim.faults.ghosts.update(nonces)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        return tuple(sorted(self.forgotten.items())), self.sim.store.mark()
