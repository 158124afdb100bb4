"""What one event loop needs: the lane, the keeper and its task. Made on first use, gone with `close`.

What always holds: everything here is touched by one loop only, so there is no lock; waiters await a future of their
own; work that must outlive a cancelled caller is a task held here until it is done. Leases are kept alive elsewhere
(`LeaseThread`), because a handler that blocks the loop must cost nobody theirs; only where the store's connections
belong to this loop, and none can be opened beside them, it is done by a task of this loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from semel.core.circuit import Change
from semel.core.flow import arun
from semel.core.operations import Answer, Operation
from semel.core.store import AsyncDriver, InFront, Store, Tiered, tiers_of
from semel.engine.async_lane import AsyncLane
from semel.engine.attempt import AttemptState
from semel.engine.background import Keeper, Waiter, Waiting
from semel.engine.call_flow import Once
from semel.engine.clock import Clock
from semel.engine.effects import Stalled
from semel.engine.lane import Lane
from semel.engine.renewal import Renewals, Renewer, renewing_for_loops
from semel.engine.watch import TaskWatch, ThreadWatch

_AT_A_STRETCH = 256


class LeaseThread:
    """What renews the leases of all event loops of a process: a thread with a loop and a connection of its own.

    Args:
        store: where the leases are.
        make_driver: makes the driver for that loop.
        clock: what the thread rests on.
        report: told where the process stood still for so long that leases lapsed.
    """

    def __init__(
        self, store: Store, make_driver: Callable[[], AsyncDriver], clock: Clock, report: Callable[[Stalled], None]
    ) -> None:
        self.pid = os.getpid()
        renewer = Renewer(clock)
        self._watch: ThreadWatch = renewing_for_loops(store, make_driver, renewer, clock, report)
        self.renewals = Renewals(renewer, self._watch, clock)

    def wakes(self) -> list[threading.Event]:
        """What wakes the thread, if there is one; tests ask whether it rests."""
        return self._watch.wakes()

    async def close(self) -> None:
        """End the thread, if there is one, without holding this loop up."""
        if self._watch.wakes():
            await asyncio.to_thread(self._watch.close)


class Runtime:
    """The moving parts of one event loop; without a `lease_thread` it renews leases by itself."""

    def __init__(
        self,
        store: Store,
        lane: Lane,
        clock: Clock,
        waiting: Waiting,
        *,
        tell: Callable[[Change], None],
        report: Callable[[Stalled], None],
        lease_thread: LeaseThread | None,
    ) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self._clock = clock
        self._driver = store.async_driver()
        self.guard = lane.guard
        self.lane = AsyncLane(lane, self._driver, tell)
        self._tiers = tiers_of(store)
        front = None if self._tiers is None else self._tiers.front
        self._front_driver = None if front is None else front.async_driver()
        # A lane of its own: what the cache answers does not wait for what the store behind it is busy with.
        self._front = AsyncLane(Lane(front), self._front_driver, _unheard) if front and self._front_driver else None
        self._at_hand = 0
        self._keeper = Keeper(clock, waiting, _seat_ready)
        self._watch = TaskWatch(self._keeper, clock, self.lane.perform_all, _nothing_else, "semel-keeper")
        self._leases: TaskWatch | None = None
        self._renewals = self._renewing(report) if lease_thread is None else lease_thread.renewals
        self.hold: Callable[[AttemptState, Once], None] = self._renewals.hold
        self.release: Callable[[AttemptState], None] = self._renewals.release
        self._listens = False
        self._background: set[asyncio.Task[Any]] = set()

    def perform(self, operation: Operation) -> Awaitable[Answer]:
        """Have one operation performed, by the tiers of the store where it has some."""
        return self.lane.perform(operation) if self._tiers is None else self._performed(operation, self._tiers)

    async def _performed(self, operation: Operation, tiers: Tiered) -> Answer:
        answer = tiers.at_hand(operation)
        if answer is not None:
            if self._hogs():
                await asyncio.sleep(0)
            return answer
        flow = tiers.ask(operation)
        return await (self.lane.perform(operation) if flow is None else arun(flow, self._on_tier))

    def _hogs(self) -> bool:
        """Whether many answers were at hand in this turn of the loop: others want their turn, too."""
        if not self._at_hand:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._at_hand += 1
        return self._at_hand > _AT_A_STRETCH

    def _next_turn(self) -> None:
        self._at_hand = 0

    def _on_tier(self, wanted: Any) -> Awaitable[Any]:
        if isinstance(wanted, InFront) and self._front is not None:
            return self._front.perform(wanted.operation)  # type: ignore[arg-type]  # an operation of the cache
        return self.lane.perform(wanted)

    def _renewing(self, report: Callable[[Stalled], None]) -> Renewals:
        """Renewal by this loop itself."""
        renewer = Renewer(self._clock)
        self._leases = TaskWatch(renewer, self._clock, self.lane.perform_all, report, "semel-leases")
        return Renewals(renewer, self._leases, self._clock)

    async def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Wait until the waiter has news; `last` is the one this call waited with before."""
        self._listen()
        seat = asyncio.get_running_loop().create_future()
        waiter = self._keeper.waiting.join(digest, until, self._clock.monotonic(), seat, last)
        if waiter.news is not None:
            return waiter
        self._watch.rouse(min(until, self._keeper.waiting.due() or until))
        try:
            await seat
        except BaseException:
            self._keeper.waiting.leave(waiter)
            self.done(None, digest, waiter)
            raise
        return waiter

    def take_turn(self, digest: bytes) -> Waiter | None:
        """Become the one of this loop who claims a key; None while somebody else is."""
        return self._keeper.waiting.take_turn(digest)

    def _listen(self) -> None:
        """From the first wait on, have the store tell of ends, where it can."""
        if not self._listens:
            self._listens = True
            listen = getattr(self._driver, "listen", None)
            if listen is not None:
                listen(lambda digest: self.done(None, digest, None))

    def done(self, state: AttemptState | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over."""
        if state is not None:
            self.release(state)
        if self._keeper.waiting.done(digest, waiter):
            self._watch.rouse(None)

    def replayed(self, digest: bytes) -> None:
        """Count a replay."""
        if self._keeper.replayed(digest):
            self._watch.rouse(self._keeper.due())

    def aside(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` in a task that outlives the caller; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def wakes(self) -> list[asyncio.Event]:
        """What wakes the tasks that are alive here; tests ask whether they rest."""
        return [*self._watch.wakes(), *([] if self._leases is None else self._leases.wakes())]

    async def close(self) -> None:
        """Let what is under way come to its end, write down what was counted, let go of the connections."""
        while self._background:
            await asyncio.wait(set(self._background))
        tallies = self._keeper.drain()
        if tallies:
            await self.lane.perform_all(tallies)
        await self._watch.close()
        if self._leases is not None:
            await self._leases.close()
        await self.lane.close()
        if self._front is not None and self._front_driver is not None:
            await self._front.close()
            await self._front_driver.close()
        await self._driver.close()


def _seat_ready(waiter: Waiter) -> None:
    if not waiter.seat.done():
        waiter.seat.set_result(None)


def _nothing_else(effect: Any) -> None:
    raise AssertionError(effect)


def _unheard(_change: Change) -> None:
    """A cache has no guard, but a gate of its own, which tells by itself."""
