"""Several processes on one batch: what one of them counts or decides reaches the others, whatever they wait for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from semel import Semel
from semel.batch import Batch, Batches, Item, async_runner, sync_runner
from semel.batch.batches import stoppable
from tests.batch.desk import ClockedDesk, Desk

pytestmark = pytest.mark.anyio
SECONDS_TO_WAIT = 100.0
"""Longer than any of these tests may take."""


class Declined(Exception):
    """The effect did not happen."""


def look_every(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have runs look at the state of their batch so often."""
    monkeypatch.setattr(async_runner, "_POLL", seconds)
    monkeypatch.setattr(sync_runner, "_POLL", seconds)


async def elsewhere(desk: Desk) -> Batch[Any]:
    """The same batch as another process has it."""
    engine = desk.engine()
    batch: Batch[Any] = await desk.do(lambda: desk.batches(semel=engine).get("b"))
    return batch


def fail_together(desk: Desk) -> Any:
    """A handler that fails at the first item of each of two pages, once both have come so far."""
    both = threading.Barrier(2)

    def run(item: Item) -> None:
        desk.ran.append(item.id)
        if item.position in (0, 5):
            both.wait(30)
            raise Declined("no")

    async def arun(item: Item) -> None:
        await asyncio.to_thread(run, item)

    return run if desk.kind == "sync" else arun


@pytest.mark.parametrize("seconds", [0.0, 3600.0], ids=["at the next look", "at the end"])
async def test_failures_of_all_processes_count_for_max_failed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    look_every(monkeypatch, seconds)
    here = await desk.start(10)
    there, handler = await elsewhere(desk), fail_together(desk)
    given = {"handler": handler, "concurrency": 1, "page": 5, "max_failed": 1}
    ends = await asyncio.gather(*(desk.run(batch, **given) for batch in (here, there)))
    status = await desk.do(here.status)
    assert (status.state, status.failed) == ("paused", 2)
    assert status.reason == "2 items failed, more than max_failed=1"
    assert {end.state for end in ends} == {"paused"}
    if not seconds:
        assert len(desk.ran) <= 6, "whoever failed last begins nothing more"


async def test_a_batch_that_was_resumed_goes_on_until_the_next_failure(desk: Desk) -> None:
    def fail_early(item: Item) -> None:
        if item.position in (0, 1, 7):
            raise Declined("no")

    batch = await desk.start(10)
    assert (await desk.run(batch, fail_early, concurrency=1, max_failed=1)).failed == 2
    await desk.do(batch.resume)
    again = await desk.run(batch, fail_early, concurrency=1, max_failed=1)
    assert (again.state, again.failed, again.completed) == ("paused", 3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("decision", ["pause", "cancel"])
async def test_what_is_decided_elsewhere_is_seen_while_the_rate_is_waited_for(desk: Desk, decision: str) -> None:
    batch = await desk.start(6)
    there, begun = await elsewhere(desk), threading.Event()
    running = asyncio.create_task(desk.run(batch, lambda _item: begun.set(), rate=1 / SECONDS_TO_WAIT, concurrency=2))
    await asyncio.to_thread(begun.wait, 30)
    await desk.do(getattr(there, decision))
    status = await asyncio.wait_for(running, SECONDS_TO_WAIT / 2)
    assert status.state == {"pause": "paused", "cancel": "cancelled"}[decision]
    assert len(desk.ran) == 1


@pytest.mark.slow
async def test_a_run_that_is_to_end_does_not_wait_for_the_rate(desk: Desk) -> None:
    begun = threading.Event()
    stops: list[Any] = []
    batch = stoppable(await desk.start(6), stops.append)
    running = asyncio.create_task(desk.run(batch, lambda _item: begun.set(), rate=1 / SECONDS_TO_WAIT, concurrency=2))
    await asyncio.to_thread(begun.wait, 30)
    stops[0]()
    status = await asyncio.wait_for(running, SECONDS_TO_WAIT / 2)
    assert (status.state, len(desk.ran)) == ("running", 1)


@pytest.mark.slow
async def test_processes_share_one_rate(desk: Desk) -> None:
    here = await desk.start(12)
    there = await elsewhere(desk)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(desk.run(batch, rate=20, page=2, concurrency=2) for batch in (here, there)))
    passed = asyncio.get_running_loop().time() - began
    assert (await desk.do(here.status)).completed == len(desk.ran) == 12
    assert passed >= 11 / 20 - 0.01, "each of them alone took that long for half of them"


@pytest.mark.parametrize("decision", ["pause", "cancel"])
async def test_no_item_begins_later_than_two_seconds_after_a_decision(clocked: ClockedDesk, decision: str) -> None:
    begun: list[float] = []
    decided: list[float] = []

    def work(_item: Item) -> None:
        begun.append(clocked.clock.monotonic())
        if len(begun) == 2:  # right after a look
            with Semel(clocked.store, clock=clocked.clock) as semel:
                getattr(Batches(semel).get("b"), decision)()
            decided.append(clocked.clock.monotonic())
        clocked.clock.advance(0.1)

    here = await clocked.start(200)
    there = await elsewhere(clocked)
    await asyncio.gather(*(clocked.run(batch, work, concurrency=2, page=50) for batch in (here, there)))
    assert begun[-1] <= decided[0] + 2
    assert len(begun) > 2, "a decision is not told to anybody: it is seen"
