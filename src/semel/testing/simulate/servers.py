"""The models of servers under watch: whose model the records of a world are in.

What always holds: the checker is the one of the memory store's table, whatever is beneath it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.testing.simulate.models.redis import RedisModel
from semel.testing.simulate.watched import WatchedStore
from semel.testing.simulate.world import World

if TYPE_CHECKING:
    from semel.testing.simulate.simulation import Simulation


class WatchedRedis(WatchedStore):
    """Redis: an operation is one script, and writes may be forgotten."""

    __slots__ = ("model",)

    def __init__(self, sim: Simulation, batch: int) -> None:
        super().__init__(sim, batch)
        self.model = RedisModel(self.table)

    def perform(self, operation: Any, now: int) -> Any:
        """What the model makes of it."""
        return self.model.apply(operation, now)

    def mark(self) -> tuple[object, ...]:
        """What forgetting would lead back to."""
        return self.model.mark()


def watched(sim: Simulation, world: World) -> WatchedStore:
    """The store of a world."""
    match world.store:
        case "redis":
            return WatchedRedis(sim, world.batch)
        case _:
            return WatchedStore(sim, world.batch)
