"""The script of one life: what proxy and service do to it. Used by the event loop of the scene alone, but for `events`.

What always holds: each cut and the stop happen once. A request finds its script by the header that names its life, so
what a dead client sent never uses up what is meant for the next one.
"""

import asyncio
import queue
from dataclasses import dataclass, field

from tests.client.kill.plans import Severed
from tests.client.kill.positions import At
from tests.client.kill.story import Life


@dataclass
class Script:
    """What is still to happen. `events` tells the killer: a position where the life is held, or None for its end."""

    round: int
    life: Life
    events: queue.SimpleQueue[At | None] = field(default_factory=queue.SimpleQueue)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    _cuts: list[Severed] = field(default_factory=list)
    _armed: bool = False
    _stopped: bool = False

    def __post_init__(self) -> None:
        self._cuts = list(self.life.plan.cuts)

    def next_cut(self) -> Severed | None:
        """What happens to this try; behind the last cut the stop is armed."""
        if self._cuts:
            severed = self._cuts.pop(0)
            self.life.cuts.append(severed.cut)
            return severed
        self._armed = True
        return None

    def stops(self, at: At) -> bool:
        """Whether this is where the life is to be killed."""
        return self._armed and not self._stopped and self.life.plan.stop is at

    async def pass_by(self, at: At) -> bool:
        """Hold here until the life is dead, if this is where it is killed; whether that was so."""
        if not self.stops(at):
            return False
        self._stopped = True
        self.events.put(at)
        await self.release.wait()
        return True
