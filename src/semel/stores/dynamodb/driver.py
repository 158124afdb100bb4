"""Drivers: rounds of plans as requests side by side, in threads and on an event loop.

What always holds: no more than `pool_size` requests of a driver are on their way. The chains of all plans of a round
begin together, and the round is over when the last one is. Nothing is shared with a forked process.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from semel.core.flow import Flow, arun, run
from semel.core.store import Answers, Plan
from semel.stores.dynamodb.clients import make_async_client, make_client
from semel.stores.dynamodb.commands import Chain, Pause, Together
from semel.stores.dynamodb.exchange import Place, Send, exchanged

T = TypeVar("T")
Replies = list[Answers | Exception]


class Round:
    """The plans of a round: begun, and ended when their chains are."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._replies: Replies = [[]] * len(plans)
        self._counts = [0] * len(plans)
        self.chains: list[Chain] = []
        for index, plan in enumerate(plans):
            try:
                together: Together = next(plan)
            except StopIteration as end:
                self._replies[index] = end.value
            except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
                self._replies[index] = error
            else:
                self._counts[index] = len(together.chains)
                self.chains += together.chains

    def replies(self, given: Sequence[Answers]) -> Replies:
        """The reply of each plan, once the chains have given theirs."""
        start = 0
        for index, (plan, count) in enumerate(zip(self._plans, self._counts, strict=True)):
            if count:
                self._replies[index] = _ended(plan, given[start : start + count])
                start += count
        return self._replies


def _ended(plan: Plan, given: Sequence[Answers]) -> Answers | Exception:
    try:
        plan.send(given)
    except StopIteration as end:
        answers: Answers = end.value
        return answers
    except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
        return error
    message = "a plan asked for more after its chains were carried out"
    return AssertionError(message)


class DynamoDriver:
    """Rounds for threads: one chain in the calling thread, several in threads of the driver."""

    def __init__(self, place: Place, client: Any = None) -> None:
        self._place = place
        self._given = client
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._client: Any = self._given
        self._pool: ThreadPoolExecutor | None = None

    def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        if self._pid != os.getpid():
            self._start_over()
        work = Round(plans)
        if len(work.chains) == 1:
            return work.replies([self.carry(work.chains[0])])
        return work.replies(self._side_by_side(work.chains))

    def carry(self, chain: Flow[T]) -> T:
        """Run one chain, or other work made of the same commands, in the calling thread."""
        return run(chain, lambda command: self._executed(command, self._side_by_side))

    def _side_by_side(self, chains: Sequence[Chain]) -> list[Answers]:
        return list(self._threads().map(self._in_pool, chains))

    def _in_pool(self, chain: Chain) -> Answers:
        """Run a chain in a thread of the pool, which must not wait for another one of it."""
        return run(chain, lambda command: self._executed(command, lambda chains: [*map(self._in_pool, chains)]))

    def _executed(self, command: Any, together: Callable[[Sequence[Chain]], list[Answers]]) -> Any:
        if isinstance(command, Together):
            return together(command.chains)
        return run(exchanged(self._place, command), self._act)

    def _act(self, wanted: Send | Pause) -> Any:
        if isinstance(wanted, Pause):
            return time.sleep(wanted.seconds)
        return getattr(self._opened(), wanted.call.action)(**wanted.call.parameters)

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = make_client(self._place.settings)
            return self._client

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._place.settings.pool_size, "semel-dynamodb")
            return self._pool

    def close(self) -> None:
        """Let go of every thread and connection."""
        if self._pid != os.getpid():
            return
        with self._lock:
            client, pool, self._client, self._pool = self._client, self._pool, None, None
        if pool is not None:
            pool.shutdown()
        if client is not None and client is not self._given:
            client.close()


class AsyncDynamoDriver:
    """The same on an event loop."""

    def __init__(self, place: Place, client: Any = None) -> None:
        self._place = place
        self._given = client
        self._opening = asyncio.Lock()
        self._entered: tuple[Any, Any] | None = None
        self._room = asyncio.BoundedSemaphore(place.settings.pool_size)

    async def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        work = Round(plans)
        if len(work.chains) == 1:
            return work.replies([await self.carry(work.chains[0])])
        return work.replies(await asyncio.gather(*map(self.carry, work.chains)))

    async def carry(self, chain: Flow[T]) -> T:
        """Run one chain, or other work made of the same commands."""
        return await arun(chain, self._executed)

    async def _executed(self, command: Any) -> Any:
        if isinstance(command, Together):
            return await asyncio.gather(*map(self.carry, command.chains))
        return await arun(exchanged(self._place, command), self._act)

    async def _act(self, wanted: Send | Pause) -> Any:
        if isinstance(wanted, Pause):
            return await asyncio.sleep(wanted.seconds)
        client = await self._opened()
        async with self._room:
            return await getattr(client, wanted.call.action)(**wanted.call.parameters)

    async def _opened(self) -> Any:
        if self._given is not None:
            return self._given
        async with self._opening:
            if self._entered is None:
                context = make_async_client(self._place.settings)
                self._entered = context, await context.__aenter__()
            return self._entered[1]

    async def close(self) -> None:
        """Let go of every connection."""
        entered, self._entered = self._entered, None
        if entered is not None:
            await entered[0].__aexit__(None, None, None)
