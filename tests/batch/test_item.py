"""`item`: one item of a batch, run where somebody else decides when and how often."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import DidNotHappen, Happened, Semel
from semel.batch import Batch, Batches, Skip, item
from semel.batch.batches import parts_of
from semel.batch.engines.commit_mode import async_decide_commit, sync_decide_commit
from semel.batch.engines.single import AsyncSingleRunner, SyncSingleRunner
from semel.core.batch.values import KEPT_US, item_key
from semel.core.fingerprint import Digest
from semel.core.operations import Claim, Complete, Terms
from semel.core.record import NOTHING
from semel.engine.engine import engine_of
from semel.errors import FailedBefore, InDoubt, InProgress, KeyReused, RecordNotFound, TryLater, UsageError
from semel.testing.contract.topics.erasing import VALUE
from tests.batch.desk import Desk
from tests.batch.leaving import begin, leave_behind, perform

pytestmark = pytest.mark.anyio


class Died(Exception):
    """Stands for the end of a process."""


def die(*_: Any) -> None:
    raise Died


def decide(desk: Desk, batch: Batch[Any]) -> Any:
    """Decide that a batch is committed by page."""
    engine, stored, _ = parts_of(batch)
    return (sync_decide_commit if desk.kind == "sync" else async_decide_commit)(engine, stored, "page")


def claim_of_another(desk: Desk) -> Claim:
    """A claim of the key of the item i0 by something that is not this item."""
    taken = engine_of(desk.semel).fingerprints.take(Digest(b"something else".ljust(32)))
    return Claim(item_key("", "pay", "b", "i0"), taken, b"n" * 16, Terms(30_000_000, KEPT_US, "rerun", 0), NOTHING)


async def run_item(desk: Desk, batch: Batch[Any], id_: str, work: Any = None, **settings: Any) -> Any:
    """Run one item of a batch with what `work` does."""
    guarded = item(batch, id_, **settings)(desk.handler(work))
    return await desk.do(guarded)


async def test_an_item_runs_once_and_repeats_give_what_it_gave(desk: Desk) -> None:
    batch = await desk.start(3)
    given = [await run_item(desk, batch, "i1", lambda one: one.data["n"] * 10) for _ in range(3)]
    assert given == [10, 10, 10]
    assert desk.ran == ["i1"]
    assert (await desk.do(batch.status)).completed == 1


async def test_the_batch_is_completed_once_all_items_are_done_in_any_order(desk: Desk) -> None:
    batch = await desk.start(7)
    for place in (6, 0, 3, 5, 1, 4):
        await run_item(desk, batch, f"i{place}")
        assert (await desk.do(batch.status)).state == "running"
    await run_item(desk, batch, "i2")
    status = await desk.do(batch.status)
    assert (status.state, status.completed, status.remaining) == ("completed", 7, 0)


async def test_a_run_of_the_batch_does_not_repeat_what_was_done_by_itself(desk: Desk) -> None:
    batch = await desk.start(10)
    await run_item(desk, batch, "i8", lambda _: "alone")
    status = await desk.run(batch, lambda _: "together")
    assert (status.state, status.completed) == ("completed", 10)
    assert sorted(desk.ran) == sorted(f"i{n}" for n in range(10))
    assert [result.value for result in await desk.results(batch)][8] == "alone"


async def test_what_a_run_has_done_is_given_and_does_not_run(desk: Desk) -> None:
    batch = await desk.start(5)
    await desk.run(batch, lambda one: one.data["n"])
    assert await run_item(desk, batch, "i4") == 4
    assert len(desk.ran) == 5


async def test_an_item_that_the_batch_does_not_have_is_refused(desk: Desk) -> None:
    batch = await desk.start(2)
    with pytest.raises(RecordNotFound, match="no item 'i7'"):
        await run_item(desk, batch, "i7")
    assert desk.ran == []


async def test_nothing_runs_of_a_paused_batch_until_it_is_resumed(desk: Desk) -> None:
    batch = await desk.start(2)
    await run_item(desk, batch, "i0", lambda _: "done")
    await desk.do(batch.pause)
    with pytest.raises(TryLater, match="is paused"):
        await run_item(desk, batch, "i1")
    assert await run_item(desk, batch, "i0") == "done"
    assert desk.ran == ["i0"]
    await desk.do(batch.resume)
    await run_item(desk, batch, "i1")
    assert (await desk.do(batch.status)).state == "completed"


async def test_whoever_found_the_batch_running_sees_that_it_was_paused_since(desk: Desk) -> None:
    await run_item(desk, await desk.start(2), "i0")
    batch = await desk.do(lambda: desk.batches().get("b"))
    await desk.do(batch.pause)
    with pytest.raises(TryLater, match="is paused"):
        await run_item(desk, batch, "i1")
    assert desk.ran == ["i0"]


async def test_nothing_runs_of_a_cancelled_batch(desk: Desk) -> None:
    batch = await desk.start(2)
    await desk.do(batch.cancel)
    with pytest.raises(UsageError, match="is cancelled"):
        await run_item(desk, batch, "i1")
    assert desk.ran == []


async def test_a_skipped_item_raises_skip_every_time_and_is_counted(desk: Desk) -> None:
    def refuse(_: Any) -> None:
        raise Skip("nothing to pay")

    batch = await desk.start(1)
    for _ in range(2):
        with pytest.raises(Skip, match="nothing to pay"):
            await run_item(desk, batch, "i0", refuse)
    status = await desk.do(batch.status)
    assert (desk.ran, status.skipped, status.state) == (["i0"], 1, "completed")


async def test_a_failed_item_is_counted_and_tried_as_often_as_allowed(desk: Desk) -> None:
    def fail(_: Any) -> None:
        raise OSError("down")

    batch = await desk.start(1)
    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            await run_item(desk, batch, "i0", fail, max_attempts=2)
    with pytest.raises(FailedBefore):
        await run_item(desk, batch, "i0", fail, max_attempts=2)
    status = await desk.do(batch.status)
    assert (desk.ran, status.failed, status.state) == (["i0", "i0"], 1, "completed")


async def test_a_failed_item_runs_again_after_a_retry(desk: Desk) -> None:
    def fail(_: Any) -> None:
        raise OSError("down")

    batch = await desk.start(2)
    await run_item(desk, batch, "i1")
    with pytest.raises(OSError, match="down"):
        await run_item(desk, batch, "i0", fail)
    assert (await desk.do(batch.status)).state == "completed"
    assert await desk.do(lambda: batch.retry("failed")) == 1
    assert await run_item(desk, batch, "i0", lambda _: "well") == "well"
    status = await desk.do(batch.status)
    assert (status.state, status.completed, status.failed) == ("completed", 2, 0)


async def test_an_item_whose_process_died_runs_again_when_its_lease_is_over(desk: Desk) -> None:
    batch = await desk.start(3)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1))
    with pytest.raises(InProgress):
        await run_item(desk, batch, "i0", when_running="reject")
    desk.clock.advance(31)
    assert await run_item(desk, batch, "i0", lambda one: one.in_doubt) is True


async def test_an_item_whose_process_died_is_in_doubt_where_it_is_held(desk: Desk) -> None:
    batch = await desk.start(1)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1), in_doubt="hold")
    desk.clock.advance(31)
    for _ in range(2):
        with pytest.raises(InDoubt):
            await run_item(desk, batch, "i0", in_doubt="hold")
    status = await desk.do(batch.status)
    assert (desk.ran, status.in_doubt, status.state) == ([], 1, "completed")


async def test_what_a_dead_process_finished_is_given_and_counted(desk: Desk) -> None:
    batch = await desk.start(3)
    await begin(desk, batch)
    (lease,) = await leave_behind(desk, batch, range(1))
    await perform(desk, Complete(lease, VALUE))
    assert (await desk.do(batch.status)).completed == 0
    await run_item(desk, batch, "i0")
    assert desk.ran == []
    assert (await desk.do(batch.status)).completed == 1


async def test_a_record_that_a_person_resolved_is_what_the_item_gives(desk: Desk) -> None:
    batch = await desk.start(1)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1), in_doubt="hold")
    desk.clock.advance(31)
    with pytest.raises(InDoubt):
        await run_item(desk, batch, "i0", in_doubt="hold")
    await desk.do(lambda: desk.semel.resolve(item_key("", "pay", "b", "i0"), Happened("paid"), reason="seen"))
    assert await run_item(desk, batch, "i0", in_doubt="hold") == "paid"
    status = await desk.do(batch.status)
    assert (status.completed, status.in_doubt) == (1, 0)


async def test_an_item_that_a_person_has_reopened_runs_again(desk: Desk) -> None:
    def fail(_: Any) -> None:
        raise OSError("down")

    batch = await desk.start(2)
    await run_item(desk, batch, "i1")
    with pytest.raises(OSError, match="down"):
        await run_item(desk, batch, "i0", fail)
    await desk.do(lambda: desk.semel.reopen(item_key("", "pay", "b", "i0"), reason="it is up again"))
    assert await run_item(desk, batch, "i0", lambda _: "well") == "well"
    status = await desk.do(batch.status)
    assert (status.state, status.completed, status.failed) == ("completed", 2, 0)


async def test_an_item_of_which_a_person_has_said_that_it_did_not_happen_runs_again(desk: Desk) -> None:
    batch = await desk.start(1)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1), in_doubt="hold")
    desk.clock.advance(31)
    with pytest.raises(InDoubt):
        await run_item(desk, batch, "i0", in_doubt="hold")
    await desk.do(lambda: desk.semel.resolve(item_key("", "pay", "b", "i0"), DidNotHappen(), reason="seen"))
    assert await run_item(desk, batch, "i0", lambda _: "paid", in_doubt="hold") == "paid"
    status = await desk.do(batch.status)
    assert (status.state, status.completed, status.in_doubt) == ("completed", 1, 0)


async def test_an_item_that_was_reopened_does_not_run_while_its_batch_is_paused(desk: Desk) -> None:
    def fail(_: Any) -> None:
        raise OSError("down")

    batch = await desk.start(2)
    with pytest.raises(OSError, match="down"):
        await run_item(desk, batch, "i0", fail)
    await desk.do(batch.pause)
    await desk.do(lambda: desk.semel.reopen(item_key("", "pay", "b", "i0"), reason="it is up again"))
    with pytest.raises(TryLater, match="is paused"):
        await run_item(desk, batch, "i0")
    assert (desk.ran, (await desk.do(batch.status)).failed) == (["i0"], 1)


async def test_a_skipped_item_stays_skipped_though_its_record_was_reopened(desk: Desk) -> None:
    def skip(_: Any) -> None:
        raise Skip("nothing to pay")

    batch = await desk.start(1)
    with pytest.raises(Skip):
        await run_item(desk, batch, "i0", skip)
    await desk.do(lambda: desk.semel.reopen(item_key("", "pay", "b", "i0"), reason="a mistake"))
    with pytest.raises(Skip, match="does not run again"):
        await run_item(desk, batch, "i0")
    assert (desk.ran, (await desk.do(batch.status)).skipped) == (["i0"], 1)


async def test_an_item_whose_key_was_used_for_something_else_is_counted_as_failed(desk: Desk) -> None:
    batch = await desk.start(2)
    await perform(desk, claim_of_another(desk))
    with pytest.raises(KeyReused):
        await run_item(desk, batch, "i0")
    await run_item(desk, batch, "i1")
    status = await desk.do(batch.status)
    assert (status.state, status.completed, status.failed) == ("completed", 1, 1)


async def test_an_item_never_gives_what_something_else_left_under_its_key(desk: Desk) -> None:
    batch = await desk.start(1)
    claimed = await perform(desk, claim_of_another(desk))
    await perform(desk, Complete(claimed.lease, b"\x05"))
    for _ in range(2):
        with pytest.raises(KeyReused):
            await run_item(desk, batch, "i0")
    assert (await desk.do(batch.status)).failed == 1


async def test_a_page_that_a_crash_left_is_finished_by_whoever_asks_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await desk.start(2)
    await run_item(desk, batch, "i0")
    with monkeypatch.context() as patched:
        for kind in (AsyncSingleRunner, SyncSingleRunner):
            patched.setattr(kind, "_finish_page_of", die)
        with pytest.raises(Died):
            await run_item(desk, batch, "i1")
    status = await desk.do(batch.status)
    assert (status.state, status.completed) == ("running", 2)
    await run_item(desk, batch, "i0")
    assert (await desk.do(batch.status)).state == "completed"
    assert desk.ran == ["i0", "i1"]


async def test_a_page_that_a_crash_left_is_finished_by_a_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = await desk.start(1)
    with monkeypatch.context() as patched:
        for kind in (AsyncSingleRunner, SyncSingleRunner):
            patched.setattr(kind, "_finish_page_of", die)
        with pytest.raises(Died):
            await run_item(desk, batch, "i0")
    assert (await desk.run(batch)).state == "completed"
    assert desk.ran == ["i0"]


async def test_a_page_that_a_dead_process_holds_is_finished_with_its_last_item(desk: Desk) -> None:
    """Nobody need ask for an item of it again once that lease has ended."""
    batch = await desk.start(3)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(0))
    for place in range(3):
        await run_item(desk, batch, f"i{place}")
    status = await desk.do(batch.status)
    assert (status.state, status.completed, len(desk.ran)) == ("completed", 3, 3)


async def test_a_page_of_which_items_were_opened_at_the_last_moment_is_not_held(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_is_pending(*_: Any) -> bool:
        return True

    batch = await desk.start(2)
    with monkeypatch.context() as patched:
        patched.setattr(AsyncSingleRunner, "_are_all_ended", nothing_is_pending)
        patched.setattr(SyncSingleRunner, "_are_all_ended", lambda *_: True)
        await run_item(desk, batch, "i0")
    assert (await desk.do(batch.status)).state == "running"
    assert (await desk.run(batch, wait=False)).state == "completed"
    assert desk.ran == ["i0", "i1"]


async def test_a_run_and_items_by_themselves_share_a_batch(desk: Desk) -> None:
    batch = await desk.start(60)
    others = [run_item(desk, batch, f"i{n}", wait_for=60) for n in range(0, 60, 7)]
    status, *_ = await asyncio.gather(desk.run(batch), *others)
    assert (status.state, status.completed) == ("completed", 60)
    assert sorted(desk.ran) == sorted(f"i{n}" for n in range(60))


async def test_items_by_themselves_and_pages_that_commit_as_a_whole_exclude_each_other(desk: Desk) -> None:
    batch, other = await desk.start(1), await desk.start(1, id="other")
    await run_item(desk, batch, "i0")
    with pytest.raises(UsageError, match="one by one elsewhere"):
        await desk.run(batch, commit="page", transaction=lambda: None, handler=desk.handler())
    await desk.do(lambda: decide(desk, other))
    with pytest.raises(UsageError, match='run with commit="page"'):
        await run_item(desk, other, "i0")
    assert desk.ran == ["i0"]


async def test_what_was_decided_about_committing_goes_with_its_batch(desk: Desk) -> None:
    batch = await desk.start(1, keep_for=timedelta(days=2))
    await run_item(desk, batch, "i0")
    assert await desk.do(lambda: desk.semel.count(operation="semel:batch", status="completed")) == 1
    desk.clock.advance(timedelta(days=3))
    for _ in range(2):
        await desk.do(desk.semel.sweep)
    assert await desk.do(lambda: desk.semel.count(operation="semel:batch")) == 0


async def test_an_item_is_named_by_a_text_and_settings_by_their_names(desk: Desk) -> None:
    batch = await desk.start(1)
    with pytest.raises(UsageError, match="not by a int"):
        item(batch, 1)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="lease_for"):
        item(batch, "i0", lease_fo=1)  # type: ignore[call-overload]


def test_an_item_is_not_run_inside_the_transaction_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    with Semel(f"sqlite:///{path}") as semel, closing(sqlite3.connect(path)) as connection:
        batch = Batches(semel).start("b", [{"id": "i0"}], operation="pay", item_id="id")
        with semel.within(connection), pytest.raises(UsageError, match="inside within"):
            item(batch, "i0")(lambda: None)()


def test_the_record_of_an_item_commits_with_what_its_function_writes(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"

    def connect() -> Any:
        return sqlite3.connect(path)

    def fail_after_writing(session: Any) -> None:
        session.execute("INSERT INTO paid VALUES (1)")
        raise OSError("down")

    def write(session: Any) -> str:
        session.execute("INSERT INTO paid VALUES (1)")
        return "paid"

    with Semel(f"sqlite:///{path}") as semel, closing(connect()) as reader:
        reader.execute("CREATE TABLE paid (n int)")
        batch = Batches(semel).start("b", [{"id": "i0"}], operation="pay", item_id="id")
        once = item(batch, "i0", transaction=connect, max_attempts=2)
        with pytest.raises(OSError, match="down"):
            once(fail_after_writing)()
        assert [once(write)() for _ in range(2)] == ["paid", "paid"]
        assert reader.execute("SELECT count(*) FROM paid").fetchone() == (1,)
        (result,) = batch.results()
        assert (result.status, batch.status().state) == ("completed", "completed")
        assert result.attempts == 2


def test_a_transaction_that_does_not_commit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"

    @contextmanager
    def forget() -> Iterator[Any]:
        with closing(sqlite3.connect(path)) as connection:
            yield connection

    with Semel(f"sqlite:///{path}") as semel:
        batch = Batches(semel).start("b", [{"id": "i0"}], operation="pay", item_id="id")
        with pytest.raises(UsageError, match="did not commit"):
            item(batch, "i0", transaction=forget)(lambda: "paid")()
        assert batch.status().completed == 0


def test_a_transaction_that_keeps_errors_to_itself_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"

    @contextmanager
    def keep() -> Iterator[Any]:
        with suppress(OSError), closing(sqlite3.connect(path)) as connection, connection:
            yield connection

    def fail() -> None:
        raise OSError("down")

    with Semel(f"sqlite:///{path}") as semel:
        batch = Batches(semel).start("b", [{"id": "i0"}], operation="pay", item_id="id")
        with pytest.raises(UsageError, match="kept an error to itself"):
            item(batch, "i0", transaction=keep)(fail)()
        assert batch.status().remaining == 1
