"""What people decide about items in doubt reaches the batch: its counts, its next run, and its end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import DidNotHappen, Happened, Semel
from semel.batch import Batch, Batches
from semel.errors import BatchChanged, RecordNotFound
from semel.security import Keyring
from tests.batch.desk import Desk
from tests.batch.leaving import begin, leave_behind
from tests.security.test_resealing import RING

pytestmark = pytest.mark.anyio
DID_NOT_HAPPEN = DidNotHappen()
OTHER_RING = Keyring(active="other", keys={"other": bytes(range(32))})


async def left_in_doubt(desk: Desk) -> Batch[Any]:
    """A completed batch, kept for two days, whose items i0 and i1 of three are in doubt."""
    batch = await desk.start(3, keep_for=timedelta(days=2))
    await begin(desk, batch)
    await leave_behind(desk, batch, range(2), in_doubt="hold")
    desk.clock.advance(31)
    status = await desk.run(batch, in_doubt="hold")
    assert (status.state, status.completed, status.in_doubt) == ("completed", 1, 2)
    return batch


async def resolve(desk: Desk, verdict: Any, *ids: str) -> None:
    for id_ in ids:
        await desk.do(lambda id_=id_: desk.semel.resolve(("b", id_), verdict, operation="pay", reason="seen"))  # type: ignore[misc]


async def test_the_status_of_a_batch_that_has_ended_follows_what_was_decided(desk: Desk) -> None:
    batch = await left_in_doubt(desk)
    await resolve(desk, Happened("paid"), "i0")
    status = await desk.do(batch.status)
    assert (status.state, status.completed, status.in_doubt) == ("completed", 2, 1)
    results = await desk.results(batch)
    assert [(one.status, one.value) for one in results][:2] == [("completed", "paid"), ("in_doubt", None)]


async def test_a_run_runs_what_did_not_happen(desk: Desk) -> None:
    batch = await left_in_doubt(desk)
    await resolve(desk, DID_NOT_HAPPEN, "i0")
    desk.ran.clear()
    status = await desk.run(batch, in_doubt="hold")
    assert (status.state, status.completed, status.in_doubt, desk.ran) == ("completed", 2, 1, ["i0"])


async def test_what_nobody_has_decided_stays_in_doubt(desk: Desk) -> None:
    batch = await left_in_doubt(desk)
    desk.clock.advance(timedelta(days=3))
    await desk.do(desk.semel.sweep)
    desk.ran.clear()
    assert (await desk.run(batch, in_doubt="hold")).in_doubt == 2
    assert desk.ran == []


@pytest.mark.parametrize("verdict", [Happened("paid"), DID_NOT_HAPPEN], ids=["happened", "did-not-happen"])
async def test_a_batch_expires_once_its_doubts_are_resolved(desk: Desk, verdict: Any) -> None:
    batch = await left_in_doubt(desk)
    desk.clock.advance(timedelta(days=3))
    await resolve(desk, verdict, "i0")
    await desk.do(desk.semel.sweep)
    assert await desk.listed(desk.batches()) == ["b"], "the other one is in doubt still"
    await resolve(desk, verdict, "i1")
    await desk.do(desk.semel.sweep)
    with pytest.raises(RecordNotFound):
        await desk.do(batch.status)


async def test_an_id_is_free_once_the_doubts_of_its_batch_are_resolved(desk: Desk) -> None:
    await left_in_doubt(desk)
    desk.clock.advance(timedelta(days=3))
    with pytest.raises(BatchChanged):
        await desk.start(2)
    await resolve(desk, Happened("paid"), "i0", "i1")
    assert (await desk.run(await desk.start(2))).completed == 2


def test_items_of_a_sealed_store_are_retried(tmp_path: Path) -> None:
    def decline() -> None:
        raise ValueError("no")

    with Semel(tmp_path / "semel.db", seal=RING) as semel:
        batch = Batches(semel).start("b", [{"id": "i0"}], operation="pay", item_id="id")
        assert batch.run(decline).failed == 1
        assert batch.retry("failed") == 1


def test_a_sealed_batch_expires_though_its_key_is_gone(tmp_path: Path) -> None:
    """Otherwise it would keep every other batch from being deleted as well."""
    with Semel(tmp_path / "semel.db", seal=RING) as semel:
        Batches(semel).start("b", [{"id": "i0"}], operation="pay", keep_for=timedelta(0)).run(lambda: "paid")
    with Semel(tmp_path / "semel.db", seal=OTHER_RING) as semel:
        semel.sweep()
        assert list(Batches(semel).list()) == []
        semel.sweep()
        assert semel.read(("b", "b_0"), operation="pay") is None


@pytest.mark.parametrize("changed", ["batch SET operation = ''", "item SET id = char(10)"])
def test_a_batch_that_was_changed_by_hand_keeps_no_other_from_going(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changed: str
) -> None:
    path = tmp_path / "semel.db"
    with Semel(f"sqlite:///{path}") as semel:
        for id_ in ("b-1", "b-2"):
            Batches(semel).start(id_, [{"id": "1"}], operation="load", item_id="id").run(lambda item: 1)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE semel_batch SET keep_us = 1, ended_us = 1, updated_us = 1")
            which = "number" if changed.startswith("batch") else "batch"
            connection.execute(f"UPDATE semel_{changed} WHERE {which} = 1")
        semel.sweep()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT id FROM semel_batch").fetchall() == [("b-1",)]
    assert "the batch 'b-1' (number 1) does not expire: key_" in caplog.text
