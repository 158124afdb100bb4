"""Pausing, cancelling, retrying, retention and erasure: what is decided about a batch reaches every worker."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any, cast

import pytest

from semel.batch import Item, actions, control, item
from semel.core.policy import DeclaredOperations
from semel.engine.engine import engine_of
from semel.errors import FailedBefore, RecordNotFound, ResultNotKept, UsageError
from tests.batch.desk import Desk
from tests.batch.leaving import begin, leave_behind

pytestmark = pytest.mark.anyio


class Declined(Exception):
    """The effect did not happen."""


def decline_odd(item: Item) -> int:
    if item.position % 2:
        raise Declined(f"{item.id} is odd")
    return item.position


class Gate:
    """Items that wait in their handler until they are let go."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.open = threading.Event()

    async def pass_through(self, _item: Item) -> None:
        """For tasks; a condition that only threads set is asked for in a thread."""
        self.arrived.set()
        await asyncio.to_thread(self.open.wait, 30)

    def block(self, _item: Item) -> None:
        """For threads."""
        self.arrived.set()
        self.open.wait(30)


def gated(desk: Desk, gate: Gate) -> Any:
    def block(item: Item) -> None:
        desk.ran.append(item.id)
        gate.block(item)

    async def wait(item: Item) -> None:
        desk.ran.append(item.id)
        await gate.pass_through(item)

    return block if desk.kind == "sync" else wait


async def test_a_paused_batch_lets_running_items_end_and_begins_no_others(desk: Desk) -> None:
    gate = Gate()
    batch = await desk.start(20)
    running = asyncio.create_task(desk.run(batch, handler=gated(desk, gate), concurrency=2, page=5))
    await asyncio.to_thread(gate.arrived.wait, 30)
    paused = await desk.do(lambda: batch.pause("lunch"))
    assert (paused.state, paused.reason) == ("paused", "lunch")
    gate.open.set()
    status = await running
    assert status.state == "paused"
    assert status.completed == len(desk.ran) < 20
    await desk.do(batch.resume)
    assert (await desk.run(batch)).completed == 20
    assert len(desk.ran) == len(set(desk.ran)) == 20


async def test_a_batch_that_was_paused_for_long_goes_on_and_repeats_nothing(desk: Desk) -> None:
    gate = Gate()
    batch = await desk.start(9)
    running = asyncio.create_task(desk.run(batch, handler=gated(desk, gate), concurrency=2, page=3))
    await asyncio.to_thread(gate.arrived.wait, 30)
    await desk.do(batch.pause)
    gate.open.set()
    paused = await running
    assert paused.state == "paused"
    assert 0 < paused.completed == len(desk.ran) < 9
    desk.clock.advance(timedelta(days=40))
    await desk.do(desk.semel.sweep)
    await desk.do(batch.resume)
    status = await desk.run(batch)
    assert (status.state, status.completed, status.failed) == ("completed", 9, 0)
    assert len(desk.ran) == len(set(desk.ran)) == 9


async def test_a_cancelled_batch_is_not_resumed(desk: Desk) -> None:
    batch = await desk.start(3)
    cancelled = await desk.do(lambda: batch.cancel("not wanted"))
    assert (cancelled.state, cancelled.reason) == ("cancelled", "not wanted")
    for change in (batch.resume, batch.pause, lambda: batch.retry("failed")):
        with pytest.raises(UsageError, match="cancelled"):
            await desk.do(change)
    assert (await desk.run(batch)).state == "cancelled"
    assert desk.ran == []


async def test_a_completed_batch_cannot_be_cancelled_or_paused(desk: Desk) -> None:
    batch = await desk.start(3)
    await desk.run(batch)
    for change in (batch.pause, batch.cancel):
        with pytest.raises(UsageError, match="is completed"):
            await desk.do(change)


@pytest.mark.parametrize("most", [2, "20%"])
async def test_too_many_failures_pause_the_batch(desk: Desk, most: Any) -> None:
    batch = await desk.start(10)
    status = await desk.run(batch, decline_odd, concurrency=1, max_failed=most)
    assert (status.state, status.failed) == ("paused", 3)
    assert "max_failed=2" in status.reason


async def test_a_batch_that_too_many_failures_have_paused_goes_on_or_fails(desk: Desk) -> None:
    batch = await desk.start(10)
    await desk.run(batch, decline_odd, concurrency=1, max_failed=2)
    await desk.do(batch.resume)
    again = await desk.run(batch, decline_odd, concurrency=1, max_failed=3)
    assert (again.state, again.failed) == ("paused", 4)
    assert (await desk.do(batch.cancel)).state == "failed"


async def test_as_many_failures_as_may_be_pause_nothing(desk: Desk) -> None:
    batch = await desk.start(10)
    assert (await desk.run(batch, decline_odd, max_failed=5)).state == "completed"


async def test_failed_items_alone_run_again_with_their_history(desk: Desk) -> None:
    batch = await desk.start(10)
    await desk.run(batch, decline_odd)
    assert await desk.do(lambda: batch.retry("failed")) == 5
    status = await desk.do(batch.status)
    assert (status.state, status.completed, status.failed) == ("running", 5, 0)
    desk.ran.clear()
    done = await desk.run(batch)
    assert (done.state, done.completed) == ("completed", 10)
    assert sorted(desk.ran) == ["i1", "i3", "i5", "i7", "i9"]
    history = await desk.do(lambda: desk.semel.history(("b", "i1"), operation="pay"))
    assert [entry.kind for entry in history][:2] == ["attempt", "reopened"]
    assert await desk.do(lambda: batch.retry("failed")) == 0


async def test_items_that_fail_again_are_failed_again(desk: Desk) -> None:
    batch = await desk.start(4)
    for _ in range(3):
        status = await desk.run(batch, decline_odd)
        assert (status.state, status.completed, status.failed) == ("completed", 2, 2)
        assert await desk.do(lambda: batch.retry("failed")) == 2


async def test_to_retry_what_is_in_doubt_needs_a_reason(desk: Desk) -> None:
    batch = await desk.start(1)
    with pytest.raises(UsageError, match="needs a reason"):
        await desk.do(lambda: batch.retry("in_doubt"))
    with pytest.raises(UsageError, match='"failed" or "in_doubt"'):
        await desk.do(lambda: batch.retry(cast("Any", "completed")))


async def test_results_come_in_the_order_of_the_input_and_go_on_where_they_were(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "PAGE_OF_RESULTS", 5)
    monkeypatch.setattr(actions, "PAGE_OF_RESULTS", 5)
    batch = await desk.start(23)
    await desk.run(batch, decline_odd, page=10)
    every = await desk.results(batch)
    assert [result.position for result in every] == list(range(23))
    assert [result.position for result in await desk.results(batch, after=7)] == list(range(8, 23))
    assert await desk.results(batch, after=-(2**62)) == every, "from the first one on"
    failed = await desk.results(batch, status="failed", after=11)
    assert [result.position for result in failed] == list(range(13, 23, 2))
    with pytest.raises(UsageError, match="status is one of"):
        await desk.results(batch, status="nonsense")
    with pytest.raises(UsageError, match="after is the position of an item"):
        await desk.results(batch, after="x")


async def test_results_of_a_batch_that_goes_while_they_are_read_do_not_end_as_if_they_were_all(desk: Desk) -> None:
    batch = await desk.start(control.PAGE_OF_RESULTS + 1, keep_for=timedelta(days=1))
    await desk.run(batch)
    found: Any = batch.results()
    first = await anext(found) if desk.kind == "async" else await asyncio.to_thread(next, found)
    assert first.id == "i0"
    desk.clock.advance(timedelta(days=2))
    await desk.do(desk.semel.sweep)
    with pytest.raises(RecordNotFound, match="expired"):
        [result async for result in found] if desk.kind == "async" else await asyncio.to_thread(list, found)
    with pytest.raises(RecordNotFound, match="expired"):
        await desk.results(batch)


async def test_results_are_there_before_the_end(desk: Desk) -> None:
    batch = await desk.start(2)
    assert [(result.status, result.attempts) for result in await desk.results(batch)] == [("pending", 0)] * 2


async def test_a_value_that_was_not_kept_is_told_with_why(desk: Desk) -> None:
    batch = await desk.start(1)
    await desk.run(batch, lambda _item: "x" * 100, max_result=10)
    (result,) = await desk.results(batch)
    assert (result.status, result.value) == ("completed", None)
    assert result.error is not None
    assert result.error.type == "semel.errors.ResultNotKept"


async def test_values_are_read_as_a_type(desk: Desk) -> None:
    batch = await desk.start(2)
    await desk.run(batch, lambda item: timedelta(seconds=item.position))
    assert [result.value for result in await desk.results(batch, type=timedelta)] == [
        timedelta(0),
        timedelta(seconds=1),
    ]


async def test_a_batch_is_found_by_its_id_and_in_its_scope_alone(desk: Desk) -> None:
    await desk.start(1, batches=desk.batches(scope="acme"))
    await desk.start(1, id="other")
    found = await desk.do(lambda: desk.batches(scope="acme").get("b"))
    assert (found.id, found.operation, found.total) == ("b", "pay", 1)
    with pytest.raises(RecordNotFound):
        await desk.do(lambda: desk.batches().get("b"))
    assert await desk.listed(desk.batches()) == ["other"]


async def test_batches_are_listed_by_state(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        batch = await desk.start(1, id=name)
        if name == "b":
            await desk.do(batch.pause)
    assert await desk.listed(desk.batches()) == ["a", "b", "c"]
    assert await desk.listed(desk.batches(), state="paused") == ["b"]
    with pytest.raises(UsageError, match="state is one of"):
        await desk.listed(desk.batches(), state="nonsense")


async def test_status_tells_rate_and_how_long_the_rest_takes(desk: Desk) -> None:
    batch = await desk.start(10)
    fresh = await desk.do(batch.status)
    assert (fresh.state, fresh.rate, fresh.eta, fresh.started) == ("pending", None, None, None)

    def tick(item: Item) -> None:
        desk.clock.advance(1)
        if item.position == 3:
            raise Declined("stop")

    await desk.run(batch, tick, concurrency=1, max_failed=0)
    await desk.do(batch.resume)
    status = await desk.do(batch.status)
    assert status.rate == pytest.approx(1, rel=0.5)
    assert status.eta is not None
    assert status.eta.total_seconds() == pytest.approx(status.remaining / (status.rate or 1))
    assert status.started is not None
    assert status.updated > status.started


async def run_slowly(desk: Desk, batch: Any, count: int) -> None:
    """Run so many items, of half a minute each, of one long page; the last one fails, which pauses the batch."""
    last = len(desk.ran) + count

    def work(_item: Item) -> None:
        desk.clock.advance(30)
        if len(desk.ran) == last:
            raise Declined("stop")

    await desk.run(batch, work, concurrency=1, page=100, max_failed=0)
    await desk.do(batch.resume)


async def test_nobody_is_told_a_rate_at_a_first_look_at_long_pages(desk: Desk) -> None:
    batch = await desk.start(100)
    await run_slowly(desk, batch, 20)
    found = await desk.do(lambda: desk.batches(semel=desk.engine()).get("b"))
    status = await desk.do(found.status)
    assert (status.remaining, status.rate, status.eta) == (80, None, None)


async def test_a_second_look_tells_what_ended_since_the_first(desk: Desk) -> None:
    batch = await desk.start(100)
    await run_slowly(desk, batch, 20)
    await run_slowly(desk, batch, 2)
    status = await desk.do(batch.status)
    assert status.rate == pytest.approx(2 / 60)
    assert status.eta is not None
    assert status.eta.total_seconds() == pytest.approx(78 * 30)


async def test_many_quick_pages_tell_a_rate_at_the_first_look(desk: Desk) -> None:
    batch = await desk.start(100)

    def tick(_item: Item) -> None:
        desk.clock.advance(1)

    await desk.run(batch, tick, concurrency=1, page=5)
    found = await desk.do(lambda: desk.batches(semel=desk.engine()).get("b"))
    assert (await desk.do(found.status)).rate == pytest.approx(1, rel=0.1)


async def test_a_batch_and_its_records_go_so_long_after_its_end(desk: Desk) -> None:
    batch = await desk.start(7, keep_for=timedelta(days=2))
    await desk.run(batch)
    desk.clock.advance(timedelta(days=1))
    await desk.do(desk.semel.sweep)
    assert (await desk.do(batch.status)).completed == 7
    desk.clock.advance(timedelta(days=1, seconds=1))
    await desk.do(desk.semel.sweep)
    with pytest.raises(RecordNotFound):
        await desk.do(batch.status)
    await desk.do(desk.semel.sweep)
    assert await desk.do(lambda: desk.semel.read(("b", "i1"), operation="pay")) is None
    assert await desk.do(lambda: desk.semel.count(operation="semel:batch_page")) == 0


@pytest.mark.parametrize("length", [247, 255])
async def test_a_batch_whose_id_is_as_long_as_a_key_runs_and_goes_as_any_other(desk: Desk, length: int) -> None:
    batch = await desk.start(3, id="b" * length, keep_for=timedelta(0))
    assert await desk.do(item(batch, "i2")(desk.handler(lambda _: "by itself"))) == "by itself"
    assert (await desk.run(batch)).completed == len(desk.ran) == 3
    await desk.do(desk.semel.sweep)
    assert await desk.listed(desk.batches()) == []


async def test_a_batch_whose_id_is_long_does_not_keep_others_from_going(desk: Desk) -> None:
    for id_ in ("b" * 247, "other"):
        await desk.run(await desk.start(1, id=id_, keep_for=timedelta(0)))
    await desk.do(desk.semel.sweep)
    assert await desk.listed(desk.batches()) == []


async def test_the_settings_file_says_how_long_batches_of_an_operation_are_kept(desk: Desk) -> None:
    declared = DeclaredOperations(declared={"pay": {"keep_for": timedelta(days=90)}})
    engine_of(desk.semel).declare(declared)
    await desk.run(await desk.start(1))
    await desk.run(await desk.start(1, id="other", operation="other"))
    desk.clock.advance(timedelta(days=60))
    await desk.do(desk.semel.sweep)
    assert await desk.listed(desk.batches()) == ["b"]
    desk.clock.advance(timedelta(days=31))
    await desk.do(desk.semel.sweep)
    assert await desk.listed(desk.batches()) == []


async def test_an_id_whose_batch_is_expired_may_be_begun_anew(desk: Desk) -> None:
    batch = await desk.start(3, keep_for=timedelta(days=2))
    await desk.run(batch)
    desk.clock.advance(timedelta(days=3))
    again = await desk.start(5, operation="other")
    assert (await desk.run(again)).completed == 5
    assert len(desk.ran) == 8


async def test_an_id_may_be_begun_anew_though_other_batches_have_expired_as_well(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        await desk.run(await desk.start(1, id=name, keep_for=timedelta(days=2)))
    desk.clock.advance(timedelta(days=3))
    again = await desk.start(2, id="c", items=[{"id": "other"}, {"id": "ones"}])
    assert (await desk.run(again)).completed == 2


async def test_a_batch_that_has_expired_does_not_act_on_the_next_one_of_its_id(desk: Desk) -> None:
    old = await desk.start(1, keep_for=0)
    await desk.run(old)
    desk.clock.advance(1)
    new = await desk.start(2, items=[{"id": "x", "n": 1}, {"id": "y", "n": 3}])
    await desk.run(new, decline_odd)
    for act in (old.status, lambda: old.retry("failed"), lambda: old.run(desk.handler())):
        with pytest.raises(RecordNotFound):
            await desk.do(act)
    for change in (old.pause, old.resume, old.cancel):
        with pytest.raises(UsageError, match="is gone"):
            await desk.do(change)
    assert (await desk.do(new.status)).failed == 1
    with pytest.raises(RecordNotFound):
        await desk.results(old)


@pytest.mark.parametrize("in_doubt", ["rerun", "hold"])
async def test_a_batch_that_was_cancelled_and_has_expired_does_not_stop_the_next_one_of_its_id(
    desk: Desk, in_doubt: Any
) -> None:
    """A process died while it ran the first item, and nobody took it over."""
    batch = await desk.start(2, keep_for=timedelta(days=2))
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1), in_doubt=in_doubt)
    await desk.do(batch.cancel)
    desk.clock.advance(timedelta(days=3))
    await desk.do(desk.semel.sweep)
    again = await desk.start(items=[{"id": "i0", "n": "another"}, {"id": "i1", "n": "one"}])
    status = await desk.run(again)
    if in_doubt == "rerun":
        assert (status.state, status.completed) == ("completed", 2)
        return
    # What a person has to decide about is kept, and stops this very item alone.
    assert (status.state, status.completed, status.failed) == ("completed", 1, 1)
    (failed,) = await desk.results(again, status="failed")
    assert (failed.id, failed.error and failed.error.type) == ("i0", "semel.errors.KeyReused")
    assert await desk.do(lambda: again.retry("failed")) == 0, "it would not run another time either"
    assert (await desk.do(again.status)).failed == 1


async def test_nothing_of_a_cancelled_batch_waits_for_a_person_once_it_has_expired(desk: Desk) -> None:
    batch = await desk.start(2, keep_for=timedelta(days=2))
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1))
    await desk.do(batch.cancel)
    desk.clock.advance(timedelta(days=3))
    for _ in range(2):
        await desk.do(desk.semel.sweep)
    assert await desk.do(desk.semel.count) == 0


async def test_what_is_about_a_subject_is_erased_once_it_has_ended(desk: Desk) -> None:
    batch = await desk.start(6, about=lambda item: {"subject": "ann" if item["n"] % 2 == 0 else "bob"})

    def work(item: Item) -> str:
        if item.position == 2:
            raise Declined("no")
        return f"paid {item.id}"

    await desk.run(batch, work)
    found = desk.semel.records(subject="ann")
    records = [r async for r in found] if desk.kind == "async" else await asyncio.to_thread(list, found)
    assert len(records) == 3
    report = await desk.do(lambda: desk.batches().erase(subject="ann", reason="asked to"))
    assert (report.erased, report.refused) == (3, 0)
    results = await desk.results(batch)
    assert [result.value for result in results] == [None, "paid i1", None, "paid i3", None, "paid i5"]
    assert [result.status for result in results][2] == "failed"
    with pytest.raises(ResultNotKept):
        await desk.do(lambda: desk.semel.value(("b", "i0"), operation="pay"))
    with pytest.raises(FailedBefore):
        await desk.do(lambda: desk.semel.value(("b", "i2"), operation="pay"))
    again = await desk.do(lambda: desk.batches().erase(subject="ann", reason="asked to"))
    assert (again.erased, again.refused) == (0, 0)


async def test_items_that_have_not_ended_are_not_erased(desk: Desk) -> None:
    batch = await desk.start(2, about=lambda _item: {"subject": "ann"})
    report = await desk.do(lambda: desk.batches().erase(subject="ann", reason="asked to"))
    assert (report.erased, report.refused) == (0, 2)
    assert (await desk.run(batch)).completed == 2
    with pytest.raises(UsageError, match="needs a reason"):
        await desk.do(lambda: desk.batches().erase(subject="ann", reason=" "))
