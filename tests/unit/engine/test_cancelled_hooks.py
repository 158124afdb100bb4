"""A reconcile hook that meets a cancellation nobody asked for ends no sweep, and no server that sweeps."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel, DidNotHappen, Policy, Semel
from semel.stores.memory import MemoryStore
from semel.testing import Crash, VirtualClock

KEYS = [f"k-{number}" for number in range(4)]


def answer(attempt: Any) -> DidNotHappen:
    if attempt.key.value == "k-1":
        raise asyncio.CancelledError
    return DidNotHappen()


async def wait_for_a_client_that_is_gone(attempt: Any) -> DidNotHappen:
    return answer(attempt)


async def die() -> None:
    raise Crash


def asking(hook: Any) -> Policy:
    return Policy(in_doubt="reconcile", reconcile=hook, reconcile_after=timedelta(0))


async def fill(clock: VirtualClock, hook: Any) -> AsyncSemel:
    semel = AsyncSemel(MemoryStore(clock=clock.store_clock), clock=clock)
    for key in KEYS:
        with pytest.raises(Crash):
            await semel.run(key, die, operation="charge", fingerprint=None, policy=asking(hook))
    clock.advance(3600)
    return semel


@pytest.mark.anyio
@pytest.mark.parametrize("hook", [answer, wait_for_a_client_that_is_gone])
async def test_a_cancelled_hook_leaves_its_own_record_in_doubt_alone(hook: Any) -> None:
    semel = await fill(VirtualClock(), hook)
    report = await semel.sweep()
    assert (report.reconciled, report.held) == (len(KEYS) - 1, 1)
    record = await semel.read("k-1", operation="charge")
    assert record is not None
    assert record.status == "in_doubt"
    assert record.error is not None
    assert "was cancelled" in record.error.message


def test_a_cancelled_hook_of_an_engine_for_threads_does_the_same() -> None:
    clock = VirtualClock()
    semel = Semel(MemoryStore(clock=clock.store_clock), clock=clock)

    def fall() -> None:
        raise Crash

    for key in KEYS:
        with pytest.raises(Crash):
            semel.run(key, fall, operation="charge", fingerprint=None, policy=asking(answer))
    clock.advance(3600)
    report = semel.sweep()
    assert (report.reconciled, report.held) == (len(KEYS) - 1, 1)


@pytest.mark.anyio
async def test_a_sweep_that_is_cancelled_itself_ends() -> None:
    asked = asyncio.Event()

    async def hang(attempt: Any) -> DidNotHappen:
        asked.set()
        await asyncio.Event().wait()
        return DidNotHappen()

    semel = await fill(VirtualClock(), hang)
    task = asyncio.create_task(semel.sweep())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
