"""One worker process of the simulation: callers live in it, share its lane and its keeper, and die with it.

What always holds: what the shells and runtimes do around lane and keeper is done here in the same order, with a turn of
the scheduler wherever a thread or task could lose its own.
"""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any

from semel.engine.attempt import AttemptState
from semel.engine.flows import Once
from semel.engine.renewal import Renewals
from semel.engine.resending import Resends
from semel.engine.waiting import Waiter
from semel.testing.simulate.lane_runner import LaneRunner
from semel.testing.simulate.watch_runner import KeeperRunner, RenewalRunner

if TYPE_CHECKING:
    from semel.testing.simulate.simulation import Simulation


_BLUR = 1e-6


class ProcessClock:
    """The monotonic clock of one process: as fast as every other, and off by its skew."""

    __slots__ = ("_sim", "_skew_us")

    def __init__(self, sim: Simulation, skew: float) -> None:
        self._sim = sim
        self._skew_us = round(skew * 1_000_000) + 1_000_000_000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return (self._sim.now_us + self._skew_us) / 1_000_000

    def until(self, at: float) -> float:
        """How long until `at`; what floating point may blur counts as nothing, because a round trip takes longer."""
        left = at - self.monotonic()
        return 0.0 if abs(left) < _BLUR else left

    def instant(self, at: float) -> int:
        """The first microsecond of the simulation at which this clock shows `at` or more."""
        instant = round(at * 1_000_000) - self._skew_us
        while (instant + self._skew_us) / 1_000_000 < at:
            instant += 1
        return instant

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Nobody sleeps in a simulation."""
        raise NotImplementedError

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """Nobody sleeps in a simulation."""
        raise NotImplementedError


def whole() -> float:
    """Jitter that is none: every pause has its full length."""
    return 1.0


class Worker:
    """A process: callers live in it, share its lanes and its watches, and die with it."""

    __slots__ = (
        "alive",
        "clock",
        "index",
        "keeper",
        "lane",
        "lanes",
        "leases",
        "parked",
        "renewals",
        "resends",
        "sim",
        "skew",
        "thaws_us",
        "up",
    )

    def __init__(self, sim: Simulation, index: int) -> None:
        skews = sim.world.skews
        self.sim = sim
        self.index = index
        self.skew = skews[index % len(skews)]
        self.clock = ProcessClock(sim, self.skew)
        self.alive = True
        self.up = True
        self.thaws_us: int | None = None
        self.parked: list[Any] = []
        # A budget that never changes is no state: what it does when it runs out is what it does when there is none.
        self.resends = Resends(whole, math.inf if sim.world.resends else 0)
        self.lane = LaneRunner(self, 1000 + index)
        # Renewals go their own way, so that nothing callers ask for holds them up.
        apart = LaneRunner(self, 1500 + index, guarded=False)
        self.lanes = (self.lane, apart)
        self.keeper = KeeperRunner(self, self.lane)
        self.leases = RenewalRunner(self, apart)
        self.renewals = Renewals(self.leases.renewer, self.leases, self.clock)

    def hold(self, state: AttemptState, once: Once) -> None:
        """Keep an attempt's lease alive."""
        self.renewals.hold(state, once)

    def done(self, state: AttemptState | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over, as the runtimes see it."""
        if state is not None:
            self.renewals.release(state)
        if self.keeper.keeper.waiting.done(digest, waiter):
            self.keeper.rouse(None)

    def untie(self) -> None:
        """Let go of the knot of objects."""
        for lane in self.lanes:
            lane.untie()
        for watch in (self.keeper, self.leases):
            watch.visit = None
        del self.lane, self.lanes, self.keeper, self.leases, self.renewals, self.parked
