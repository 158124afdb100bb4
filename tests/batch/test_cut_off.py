"""Handlers that end as no error does, and runs that are interrupted: the run ends, and nothing waits for it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semel import DidNotHappen, Semel
from semel.batch import Batches, Item
from semel.batch.async_runner import AsyncRunner
from semel.batch.sync_runner import SyncRunner
from semel.core.batch.operations import ReadItems
from tests.batch.desk import Desk
from tests.processes import child

pytestmark = pytest.mark.anyio


class Ended(BaseException):
    """What is no error of an item alone."""


def cancel_at_first(item: Item) -> None:
    """Item i1 meets what a library has cancelled, on its first attempt."""
    if item.id == "i1" and item.number == 1:
        raise asyncio.CancelledError("by the library")


def ignore(item: Item) -> None:
    """Nothing is to be done."""
    del item


async def finish_elsewhere(desk: Desk, work: Any = None, **settings: Any) -> Any:
    """What another process makes of the batch that does not wait for any lease."""
    engine = desk.engine()
    batch = await desk.do(lambda: desk.batches(semel=engine).get("b"))
    return await desk.run(batch, work, wait=False, **settings)


async def test_a_cancellation_inside_a_handler_is_an_error_of_its_item(desk: Desk) -> None:
    batch = await desk.start(10)
    status = await desk.run(batch, cancel_at_first)
    assert (status.state, status.completed, status.failed) == ("completed", 9, 1)
    (failed,) = await desk.results(batch, status="failed")
    assert (failed.id, failed.attempts) == ("i1", 1)
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == ("asyncio.exceptions.CancelledError", "by the library")


async def test_an_item_whose_task_was_cancelled_fails_alone() -> None:
    async def cancel(item: Item) -> None:
        if item.id == "i1":
            task = asyncio.create_task(asyncio.Event().wait())
            await asyncio.sleep(0)
            task.cancel()
            await task

    desk = Desk("async")
    status = await desk.run(await desk.start(10), handler=cancel)
    assert (status.state, status.completed, status.failed) == ("completed", 9, 1)
    await desk.close()


async def test_an_item_is_tried_again_after_a_cancellation_inside_it(desk: Desk) -> None:
    seen: list[tuple[int, bool]] = []

    def work(item: Item) -> None:
        if item.id == "i1":
            seen.append((item.number, item.in_doubt))
        cancel_at_first(item)

    status = await desk.run(await desk.start(4), work, max_attempts=2)
    assert (status.state, status.completed, seen) == ("completed", 4, [(1, False), (2, True)])


async def test_an_item_is_held_after_a_cancellation_inside_it(desk: Desk) -> None:
    status = await desk.run(await desk.start(4), cancel_at_first, in_doubt="hold", max_attempts=2)
    assert (status.state, status.completed, status.in_doubt) == ("completed", 3, 1)


async def test_an_item_is_asked_about_after_a_cancellation_inside_it(desk: Desk) -> None:
    asked: list[str] = []

    def reconcile(attempt: Any) -> DidNotHappen:
        asked.append(attempt.key.value)
        return DidNotHappen()

    status = await desk.run(
        await desk.start(4), cancel_at_first, in_doubt="reconcile", reconcile=reconcile, reconcile_after=0
    )
    assert (status.state, status.completed, len(asked)) == ("completed", 4, 1)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Ended])
async def test_what_is_no_error_ends_the_run_and_is_raised(desk: Desk, kind: type[BaseException]) -> None:
    def end(item: Item) -> None:
        if item.id == "i1":
            raise kind(3)

    async def run() -> BaseException | None:
        try:
            await desk.run(batch, end)
        except BaseException as error:  # noqa: BLE001 - pytest itself would take them for its own
            return error
        return None

    batch = await desk.start(10)
    assert type(await run()) is kind
    doubts: list[str] = []
    status = await finish_elsewhere(desk, lambda item: doubts.append(item.id) if item.in_doubt else None)
    assert (status.state, status.completed) == ("completed", 10), "no lease had to pass"
    assert doubts == ["i1"]


async def test_a_run_that_is_cut_off_while_it_reads_a_page_holds_none(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner: Any = SyncRunner if desk.kind == "sync" else AsyncRunner
    ask = runner.ask

    def cut_off(self: Any, operation: Any) -> Any:
        if isinstance(operation, ReadItems):
            raise Ended
        return ask(self, operation)

    batch = await desk.start(10)
    with monkeypatch.context() as patched:
        patched.setattr(runner, "ask", cut_off)
        with pytest.raises(Ended):
            await desk.run(batch, concurrency=2, page=5)
    status = await finish_elsewhere(desk)
    assert (status.state, status.completed) == ("completed", 10), "no lease had to pass"


async def test_what_ends_the_run_is_in_doubt_under_hold(desk: Desk) -> None:
    def end(item: Item) -> None:
        if item.id == "i1":
            raise Ended

    batch = await desk.start(10)
    with pytest.raises(Ended):
        await desk.run(batch, end, in_doubt="hold")
    status = await finish_elsewhere(desk, in_doubt="hold")
    assert (status.state, status.completed, status.in_doubt) == ("completed", 9, 1)


async def test_a_handler_that_cancels_its_own_task_ends_the_run() -> None:
    async def cancel(item: Item) -> None:
        task = asyncio.current_task()
        assert task is not None
        if item.id == "i1":
            task.cancel()
            await asyncio.sleep(0)

    desk = Desk("async")
    batch = await desk.start(10)
    with pytest.raises(asyncio.CancelledError):
        await desk.run(batch, handler=cancel)
    status = await finish_elsewhere(desk)
    assert (status.state, status.completed) == ("completed", 10), "no lease had to pass"
    await desk.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_interrupt_ends_the_run_and_leaves_the_rest_to_others(tmp_path: Path, kind: str) -> None:
    url, items = f"sqlite:///{tmp_path}/b.db", [{"id": f"i{n}"} for n in range(400)]
    with Semel(url) as semel:
        batch = Batches(semel).start("b", items, operation="pay", item_id="id")
        command = [sys.executable, "-m", "tests.batch.interrupted", url, kind]
        with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert (process.returncode, "KeyboardInterrupt" in errors) == (-signal.SIGINT, True)
        assert batch.status().remaining > 0
        status = batch.run(ignore, wait=False)
        assert (status.state, status.completed) == ("completed", 400), "no lease had to pass"
