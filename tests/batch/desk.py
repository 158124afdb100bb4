"""Batches as both kinds of engine use them: one script for either, and a store whose time can be moved on.

What always holds: whatever blocks runs in a thread, so that a script may do two things at the same time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from semel import AsyncSemel, Semel
from semel.batch import Batch, Batches, BatchStatus, Item, ItemResult
from semel.core.batch.operations import ClaimItems
from semel.core.operations import Renew
from semel.stores.memory import MemoryStore
from semel.testing.clock import VirtualClock
from semel.testing.contract.instrumented_store import InstrumentedStore
from tests.faults.crowd import until

KINDS = ("sync", "async")
LEASE = 30.0
"""Seconds of a lease, where nothing else is said."""


class Desk:
    """One engine, or several, on one store."""

    def __init__(self, kind: str, make_store: Callable[[], Any] | None = None) -> None:
        self.kind = kind
        self.clock = VirtualClock()
        store = MemoryStore(clock=self.clock.store_clock)
        self._make_store = make_store or (lambda: store)
        self._engines: list[Any] = []
        self.semel = self.engine()
        self.ran: list[str] = []
        self._lock = threading.Lock()

    def engine(self) -> Any:
        """Another engine on the store, as another process would have."""
        made: Any = (Semel if self.kind == "sync" else AsyncSemel)(self._make_store())
        self._engines.append(made)
        return made

    def batches(self, **settings: Any) -> Batches[Any]:
        """Batches on the first engine, or on a given one."""
        return Batches(settings.pop("semel", self.semel), **settings)

    async def do(self, call: Callable[[], Any]) -> Any:
        """What a call gives, whether it has to be awaited or blocks."""
        if self.kind == "async":
            return await call()
        return await asyncio.to_thread(call)

    async def start(self, count: int = 10, **settings: Any) -> Batch[Any]:
        """A batch of so many items, with the ids i0, i1 and so on."""
        batches = settings.pop("batches", None) or self.batches()
        items = settings.pop("items", [{"id": f"i{n}", "n": n} for n in range(count)])
        given = {"operation": "pay", "item_id": "id", **settings}
        id_ = given.pop("id", "b")
        batch: Batch[Any] = await self.do(lambda: batches.start(id_, items, **given))
        return batch

    def handler(self, work: Callable[[Item], Any] | None = None) -> Any:
        """A handler that notes which items ran, and does `work`."""

        def run(item: Item) -> Any:
            with self._lock:
                self.ran.append(item.id)
            return None if work is None else work(item)

        async def arun(item: Item) -> Any:
            return run(item)

        return run if self.kind == "sync" else arun

    async def run(self, batch: Batch[Any], work: Any = None, **settings: Any) -> BatchStatus:
        """Run a batch with what `work` does for each item, or with a handler."""
        handler = settings.pop("handler", None) or self.handler(work)
        given = {"concurrency": 4, "page": 3, **settings}
        status: BatchStatus = await self.do(lambda: batch.run(handler, **given))
        return status

    async def results(self, batch: Batch[Any], **asked: Any) -> list[ItemResult[Any]]:
        """All results."""
        found: Any = batch.results(**asked)
        if self.kind == "async":
            return [result async for result in found]
        return await asyncio.to_thread(list, found)

    async def listed(self, batches: Batches[Any], **asked: Any) -> list[str]:
        """The ids of batches."""
        found: Any = batches.list(**asked)
        if self.kind == "async":
            return [batch.id async for batch in found]
        return [batch.id for batch in await asyncio.to_thread(list, found)]

    async def close(self) -> None:
        """Close every engine."""
        for engine in self._engines:
            await self.do(engine.close)


class ClockedDesk(Desk):
    """A desk whose engines live by the clock of the store, which is moved by hand."""

    @cached_property
    def store(self) -> InstrumentedStore:
        """Where its engines keep records."""
        return InstrumentedStore(MemoryStore(clock=self.clock.store_clock))

    def engine(self) -> Any:
        made: Any = (Semel if self.kind == "sync" else AsyncSemel)(self.store, clock=self.clock)
        self._engines.append(made)
        return made

    def claimed(self) -> list[int]:
        """How many items were claimed together, each time."""
        first = [operations[0] for operations in self.store.lists(ClaimItems)]
        return [len(claiming.claims) for claiming in first if isinstance(claiming, ClaimItems)]

    def outlast_a_lease(self) -> None:
        """Let more than a lease pass, and let it be renewed on the way."""
        for _ in range(4):
            sent = self.store.count(Renew)
            until(lambda: self.clock.next_due() is not None, "a timer")
            self.clock.advance(LEASE / 3)
            until(partial(self._has_renewed, sent), "a renewal")

    def _has_renewed(self, sent: int) -> bool:
        return self.store.count(Renew) > sent
