"""Claims that are sent in advance: as many as begin soon, and none of them lapses before its item begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from semel import AsyncSemel, Limits, Semel
from semel.batch import Item
from semel.batch.batches import stoppable
from semel.core.batch.operations import ClaimItems
from semel.engine.engine import engine_of
from semel.stores.memory import MemoryStore
from semel.testing.contract.instrumented_store import InstrumentedStore
from tests.batch.desk import ClockedDesk, Desk

pytestmark = pytest.mark.anyio


async def test_a_claim_that_waits_for_a_worker_does_not_lapse(clocked: ClockedDesk) -> None:
    seen: list[tuple[str, int, bool]] = []
    doubtful: list[int] = []

    def work(item: Item) -> None:
        seen.append((item.id, item.number, item.in_doubt))
        if item.position == 1:
            clocked.outlast_a_lease()
            with Semel(clocked.store, clock=clocked.clock) as other:
                other.sweep()
                doubtful.append(other.count(status="in_doubt", operation="pay"))

    async def awork(item: Item) -> None:
        await asyncio.to_thread(work, item)

    batch = await clocked.start(4)
    handler = work if clocked.kind == "sync" else awork
    status = await clocked.run(batch, handler=handler, concurrency=1, page=4)
    assert status.completed == 4
    assert clocked.claimed() == [1, 2, 1], "one waited while the second item ran"
    assert (doubtful, seen) == ([0], [(f"i{n}", 1, False) for n in range(4)])


async def test_nothing_is_claimed_ahead_of_slow_items(clocked: ClockedDesk) -> None:
    batch = await clocked.start(20)
    await clocked.run(batch, lambda _item: clocked.clock.advance(5), concurrency=1, page=20)
    assert clocked.claimed() == [1] * 20


async def test_quick_items_are_claimed_together(clocked: ClockedDesk) -> None:
    batch = await clocked.start(40)
    await clocked.run(batch, concurrency=1, page=8)
    assert clocked.claimed()[:4] == [1, 2, 4, 1], "as many as the page has left"
    assert max(clocked.claimed()) == 8


async def test_no_more_is_claimed_ahead_than_the_rate_lets_begin_soon() -> None:
    store = InstrumentedStore(MemoryStore())
    with Semel(store) as semel:
        desk = Desk("sync")
        batch = await desk.start(9, batches=desk.batches(semel=semel))
        await desk.run(batch, rate=40, lease_for=3, concurrency=9, page=9)
    first: Any = store.lists(ClaimItems)[0][0]
    assert len(first.claims) == 4


async def test_a_run_that_has_ended_keeps_no_lease_alive(clocked: ClockedDesk) -> None:
    stops: list[Callable[[], None]] = []

    def stop(item: Item) -> None:
        if item.position == 1:
            stops[0]()

    batch = stoppable(await clocked.start(4), stops.append)
    status = await clocked.run(batch, stop, concurrency=1, page=4)
    assert status.completed == 2
    assert engine_of(clocked.semel).runtime()._renewals._heartbeat.due() is None


async def test_an_item_that_a_limit_of_the_process_refuses_keeps_its_claim(desk: Desk) -> None:
    doubts: list[bool] = []
    engine: Any = (Semel if desk.kind == "sync" else AsyncSemel)(MemoryStore(), limits=Limits(max_handlers=2))
    batch = await desk.start(20, batches=desk.batches(semel=engine))

    def work(item: Item) -> None:
        doubts.append(item.in_doubt)

    async def awork(item: Item) -> None:
        await asyncio.sleep(0)
        work(item)

    handler = work if desk.kind == "sync" else awork
    status = await asyncio.wait_for(desk.run(batch, handler=handler, concurrency=4, page=20), 60)
    assert (status.state, status.completed, doubts) == ("completed", 20, [False] * 20)
    await desk.do(engine.close)


async def test_a_page_takes_no_place_from_its_items(desk: Desk) -> None:
    engine: Any = (Semel if desk.kind == "sync" else AsyncSemel)(MemoryStore(), limits=Limits(max_handlers=1))
    batch = await desk.start(20, batches=desk.batches(semel=engine))

    async def anothing(item: Item) -> None:
        del item

    handler = (lambda item: None) if desk.kind == "sync" else anothing
    status = await asyncio.wait_for(desk.run(batch, handler=handler, concurrency=4, page=5), 60)
    assert (status.state, status.completed) == ("completed", 20)
    await desk.do(engine.close)
