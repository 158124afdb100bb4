"""What one event loop needs: the lane, the keeper and its task. Made on first use, gone with `close`.

What always holds: everything here is touched by one loop only, so there is no lock; waiters await a future of their
own; work that must outlive a cancelled caller is a task held here until it is done.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from semel.core.flow import arun
from semel.core.guard import Change
from semel.core.operations import Answer, Operation
from semel.core.store import Store
from semel.core.tiers import InFront, Tiered, tiers_of
from semel.engine.aio_lane import AsyncLane
from semel.engine.attempt import AttemptState
from semel.engine.clock import Clock
from semel.engine.effects import Rest, Together
from semel.engine.flows import Once
from semel.engine.keeper import DOZE, Keeper
from semel.engine.lane import Lane
from semel.engine.waiting import Waiter, Waiting

_log = logging.getLogger("semel")
_AT_A_STRETCH = 256


class Runtime:
    """The moving parts of one event loop."""

    def __init__(
        self, store: Store, lane: Lane, clock: Clock, waiting: Waiting, tell: Callable[[Change], None]
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
        self._wake = asyncio.Event()
        self._resting_until: float | None = None
        self._stirred = False
        self._listens = False
        self._task: asyncio.Task[None] | None = None
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

    def hold(self, state: AttemptState, once: Once) -> None:
        """Keep an attempt's lease alive."""
        policy = once.request.policy
        beat = self._keeper.heartbeat.hold(
            state.lease,
            length=policy.lease_for.total_seconds(),
            max_runtime=policy.max_runtime.total_seconds(),
            asked=once.asked,
        )
        state.keep(beat, self._clock.monotonic)
        self._stirred = True
        self._rouse(beat.next)

    async def wait(self, digest: bytes, until: float, last: Waiter | None) -> Waiter:
        """Wait until the waiter has news; `last` is the one this call waited with before."""
        self._listen()
        seat = asyncio.get_running_loop().create_future()
        waiter = self._keeper.waiting.join(digest, until, self._clock.monotonic(), seat, last)
        if waiter.news is not None:
            return waiter
        self._rouse(min(until, self._keeper.waiting.due() or until))
        try:
            await seat
        except BaseException:
            self._keeper.waiting.leave(waiter)
            self.done(None, digest, waiter)
            raise
        return waiter

    def _listen(self) -> None:
        """From the first wait on, have the store tell of ends, where it can."""
        if not self._listens:
            self._listens = True
            listen = getattr(self._driver, "listen", None)
            if listen is not None:
                listen(lambda digest: self.done(None, digest, None))

    def done(self, state: AttemptState | None, digest: bytes, waiter: Waiter | None) -> None:
        """A call is over."""
        if state is not None and state.beat is not None:
            self._keeper.heartbeat.release(state.beat)
        if self._keeper.waiting.done(digest, waiter):
            self._rouse(None)

    def replayed(self, digest: bytes) -> None:
        """Count a replay."""
        self._keeper.replayed(digest)

    def aside(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` in a task that outlives the caller; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _rouse(self, at: float | None) -> None:
        """Make sure the keeper is awake at `at` (None: now). It is not disturbed when it will be anyway."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        elif at is None or self._resting_until is None or at < self._resting_until:
            self._wake.set()

    async def _watch(self) -> None:
        try:
            await arun(self._keeper.watch(), self._attend)
        except Exception:
            _log.exception("the keeper ended; leases of this event loop are no longer renewed")
            raise

    async def _attend(self, wanted: Any) -> Any:
        match wanted:
            case Together(operations):
                return await self.lane.perform_all(operations)
            case Rest(until):
                return await self._rest(until)
        raise AssertionError(wanted)

    async def _rest(self, until: float | None) -> None:
        if until is None and self._stirred:
            until = self._clock.monotonic() + DOZE
        self._resting_until = until
        self._stirred = False
        await self._clock.arest(self._wake, until)
        self._resting_until = self._clock.monotonic()
        self._wake.clear()

    async def close(self) -> None:
        """Let what is under way come to its end, write down what was counted, let go of the connections."""
        while self._background:
            await asyncio.wait(set(self._background))
        tallies = self._keeper.drain()
        if tallies:
            await self.lane.perform_all(tallies)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.lane.close()
        if self._front is not None and self._front_driver is not None:
            await self._front.close()
            await self._front_driver.close()
        await self._driver.close()


def _seat_ready(waiter: Waiter) -> None:
    if not waiter.seat.done():
        waiter.seat.set_result(None)


def _unheard(_change: Change) -> None:
    """A cache has no guard, but a gate of its own, which tells by itself."""
