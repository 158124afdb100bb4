"""What the server does by itself, and that nothing of it ends the server."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, DidNotHappen, Policy, Semel
from semel.errors import StoreUnavailable
from semel.server.audit import read_anchors
from semel.server.bulk import BulkActions, BulkRequest, BulkRunner
from semel.server.engines import as_async, run_sweep
from semel.server.maintenance import Maintenance
from semel.stores.memory import MemoryStore
from semel.testing import Crash, VirtualClock
from tests.server.desk import OPERATOR, WHY, Desk

pytestmark = pytest.mark.anyio


def later(now: datetime) -> datetime:
    return now + timedelta(minutes=15)


def make(desk: Desk, **more: Any) -> Maintenance:
    runner = BulkRunner(BulkActions(desk.actions))
    return Maintenance(desk.semel, runner, desk.audit, due=later, **more)


async def test_a_sweep_marks_what_has_lapsed(desk: Desk) -> None:
    await desk.running()
    desk.clock.advance(3600)
    await make(desk).sweep_once()
    assert (await desk.read("running")).status == "in_doubt"


async def test_it_sweeps_at_once_and_again_when_it_is_due(desk: Desk) -> None:
    pauses: list[float] = []
    swept = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        swept.set()
        await asyncio.Event().wait()

    await desk.running()
    desk.clock.advance(3600)
    async with make(desk, pause=pause).running():
        await swept.wait()
        await asyncio.sleep(0)
    assert (await desk.read("running")).status == "in_doubt"
    assert any(890 < seconds <= 900 for seconds in pauses)


async def test_a_bulk_action_that_was_left_is_gone_on_with(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    asked = BulkRequest(action="release", reason=WHY, records={"status": "in_doubt"}, id="b")
    await bulk.start(OPERATOR, asked)
    runner = BulkRunner(bulk)
    await Maintenance(desk.semel, runner, desk.audit, due=later).sweep_once()
    await runner.join()
    assert (await bulk.progress(OPERATOR, "", "b")).done == 1


@pytest.mark.parametrize("error", [StoreUnavailable("down"), ZeroDivisionError("patient-7")])
async def test_what_fails_is_logged_by_its_kind_and_tried_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def breaks(**named: Any) -> None:
        raise error

    monkeypatch.setattr(desk.semel, "sweep", breaks)
    await make(desk).sweep_once()
    assert "tried again" in caplog.text
    assert "patient-7" not in caplog.text


async def test_the_chain_is_sealed_every_minute(desk: Desk) -> None:
    await desk.audit.append(scope="", actor="olga", action="look", target="x", reason="", outcome="shown")
    sealed = asyncio.Event()
    turns = 0

    async def pause(seconds: float) -> None:
        nonlocal turns
        if seconds == 60:
            turns += 1
            if turns == 2:
                sealed.set()
                await asyncio.Event().wait()
            return
        await asyncio.Event().wait()

    async with make(desk, pause=pause).running():
        await sealed.wait()
    assert (await desk.audit.verify()).sealed == 1


async def test_hooks_of_an_engine_for_threads_are_asked_in_a_thread() -> None:
    clock = VirtualClock()
    semel = Semel(MemoryStore(clock=clock.store_clock), clock=clock)
    policy = Policy(in_doubt="reconcile", reconcile=lambda attempt: DidNotHappen(), reconcile_after=timedelta(0))

    def dies() -> None:
        raise Crash

    with pytest.raises(Crash):
        semel.run("k", dies, operation="charge", fingerprint=None, policy=policy)
    clock.advance(3600)
    report = await run_sweep(semel, None)
    assert report.reconciled == 1
    known = as_async(semel)
    assert isinstance(known, AsyncSemel)
    record = await known.read("k", operation="charge")
    assert record is not None
    assert record.retryable


async def test_seals_are_written_down_elsewhere_once(desk: Desk, tmp_path: Path) -> None:
    place = tmp_path / "anchors"
    maintenance = make(desk, anchor=str(place))
    for scope in ("", "acme"):
        await desk.audit.append(scope=scope, actor="olga", action="look", target="x", reason=WHY)
    for _ in range(2):
        await maintenance.seal_once(desk.audit)
    assert [(anchor.scope, anchor.seq) for anchor in read_anchors(place)] == [("", 1), ("acme", 1)]
    await desk.audit.append(scope="acme", actor="olga", action="look", target="x", reason=WHY)
    await maintenance.seal_once(desk.audit)
    assert [(anchor.scope, anchor.seq) for anchor in read_anchors(place)] == [("", 1), ("acme", 1), ("acme", 2)]


async def test_a_place_that_cannot_be_written_does_not_keep_the_chain_from_being_sealed(
    desk: Desk, tmp_path: Path
) -> None:
    await desk.audit.append(scope="", actor="olga", action="look", target="x", reason=WHY)
    await make(desk, anchor=str(tmp_path / "gone" / "anchors")).seal_once(desk.audit)
    assert (await desk.audit.verify()).sealed == 1
