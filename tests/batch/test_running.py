"""Running: every item once, whatever was begun before, under the policy that it was given."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from semel import DidNotHappen, Happened, Unknown
from semel.batch import Item, Skip
from semel.core.operations import Complete
from semel.errors import FailedBefore, UsageError
from semel.testing.contract.topics.erasing import VALUE
from tests.batch.desk import Desk
from tests.batch.leaving import begin, leave_behind, perform

pytestmark = pytest.mark.anyio


class Declined(Exception):
    """The effect did not happen."""


async def test_every_item_runs_once_and_its_value_is_kept(desk: Desk) -> None:
    batch = await desk.start(10)
    status = await desk.run(batch, lambda item: item.data["n"] * 2)
    assert (status.state, status.total, status.completed, status.failed) == ("completed", 10, 10, 0)
    assert sorted(desk.ran) == sorted(f"i{n}" for n in range(10))
    assert [result.value for result in await desk.results(batch)] == [n * 2 for n in range(10)]


async def test_a_completed_batch_runs_nothing_again(desk: Desk) -> None:
    batch = await desk.start(5)
    await desk.run(batch)
    assert (await desk.run(batch)).state == "completed"
    assert len(desk.ran) == 5


async def test_an_item_is_an_ordinary_record(desk: Desk) -> None:
    batch = await desk.start(3)
    await desk.run(batch, lambda item: item.id)
    assert await desk.do(lambda: desk.semel.value(("b", "i1"), str, operation="pay")) == "i1"
    counts = await desk.do(desk.semel.counts)
    assert [(count.operation, count.number) for count in counts] == [("pay", 3)], "pages are not shown"


async def test_a_handler_is_given_what_it_names(desk: Desk) -> None:
    seen: list[Any] = []

    def note(data: dict[str, Any], attempt: Any, item: Item) -> None:
        seen.append(
            (item.id, item.position, item.number, item.in_doubt, data, attempt.number, len(attempt.derive("x")))
        )

    async def anote(data: dict[str, Any], attempt: Any, item: Item) -> None:
        note(data, attempt, item)

    batch = await desk.start(1)
    await desk.run(batch, handler=note if desk.kind == "sync" else anote)
    assert seen == [("i0", 0, 1, False, {"id": "i0", "n": 0}, 1, 64)]


async def test_data_that_does_not_fit_the_handler_fails_the_item(desk: Desk) -> None:
    def take(data: list[int]) -> None:
        raise AssertionError(data)

    async def atake(data: list[int]) -> None:
        take(data)

    batch = await desk.start(1)
    status = await desk.run(batch, handler=take if desk.kind == "sync" else atake, max_attempts=3)
    assert status.failed == 1
    (result,) = await desk.results(batch)
    assert (result.attempts, result.error is not None) == (1, True)


@pytest.mark.parametrize("name", ["event", "nonsense"])
async def test_a_parameter_that_nobody_gives_is_refused(desk: Desk, name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def sync({name}): pass\nasync def awaited({name}): pass", space)  # noqa: S102 - a name as a parameter
    batch = await desk.start(1)
    with pytest.raises(UsageError, match="item, data, session, attempt"):
        await desk.run(batch, handler=space["sync" if desk.kind == "sync" else "awaited"])


async def test_a_handler_of_the_other_kind_is_refused(desk: Desk) -> None:
    batch = await desk.start(1)
    other = Desk("async" if desk.kind == "sync" else "sync").handler()
    with pytest.raises(UsageError):
        await desk.run(batch, handler=other)


async def test_a_session_without_a_transaction_is_refused(desk: Desk) -> None:
    def take(session: Any) -> None:
        del session

    async def atake(session: Any) -> None:
        del session

    batch = await desk.start(1)
    with pytest.raises(UsageError, match="Give transaction="):
        await desk.run(batch, handler=take if desk.kind == "sync" else atake)


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"page": 0},
        {"page": True},
        {"max_attempts": 0},
        {"rate": 0},
        {"rate": float("inf")},
        {"rate": float("nan")},
        {"max_failed": -1},
        {"max_failed": "x%"},
        {"max_failed": "101%"},
        {"commit": "none"},
        {"commit": "page"},
        {"when_running": "wait"},
        {"keep_for": 1},
        {"nonsense": 1},
        {"wait": "x"},
    ],
    ids=str,
)
async def test_a_setting_that_makes_no_sense_is_refused(desk: Desk, settings: dict[str, Any]) -> None:
    batch = await desk.start(1)
    with pytest.raises(UsageError):
        await desk.run(batch, **settings)
    assert desk.ran == []


@pytest.mark.parametrize(
    ("settings", "hint"),
    [({"keep_for": 1}, "give keep_for to start"), ({"wait_for": 1}, "the batch goes on with the others")],
    ids=str,
)
async def test_a_setting_that_belongs_elsewhere_is_refused_with_its_place(
    desk: Desk, settings: dict[str, Any], hint: str
) -> None:
    batch = await desk.start(1)
    with pytest.raises(UsageError, match=hint):
        await desk.run(batch, **settings)


async def test_an_error_fails_its_item_and_the_others_go_on(desk: Desk) -> None:
    def work(item: Item) -> None:
        if item.position == 4:
            raise Declined("no funds")

    batch = await desk.start(10)
    status = await desk.run(batch, work)
    assert (status.state, status.completed, status.failed) == ("completed", 9, 1)
    (failed,) = await desk.results(batch, status="failed")
    assert (failed.id, failed.attempts, failed.error and failed.error.message) == ("i4", 1, "no funds")


@pytest.mark.parametrize("in_doubt", ["rerun", "hold"])
@pytest.mark.parametrize("retried", [True, False])
async def test_an_item_is_tried_as_often_as_it_may(desk: Desk, in_doubt: Any, retried: bool) -> None:
    numbers: list[tuple[int, bool]] = []

    def work(item: Item) -> None:
        numbers.append((item.number, item.in_doubt))
        raise Declined("no")

    batch = await desk.start(1)
    errors = (Declined,) if retried else ()
    status = await desk.run(batch, work, max_attempts=3, in_doubt=in_doubt, retry_errors=errors)
    assert (status.failed, status.in_doubt) == (1, 0)
    doubts = in_doubt == "rerun" and not retried
    assert numbers == [(1, False), (2, doubts), (3, doubts)]


async def test_a_final_error_is_not_tried_again(desk: Desk) -> None:
    def work(_item: Item) -> None:
        raise Declined("no")

    batch = await desk.start(1)
    assert (await desk.run(batch, work, max_attempts=3, final_errors=(Declined,))).failed == 1
    assert desk.ran == ["i0"]


@pytest.mark.parametrize("raised", [True, False])
async def test_a_skipped_item_is_counted_apart_with_its_reason(desk: Desk, raised: bool) -> None:
    def work(item: Item) -> Any:
        if item.position == 1:
            if raised:
                raise Skip("paid already")
            return Skip("paid already")
        return 1

    batch = await desk.start(3)
    status = await desk.run(batch, work, max_attempts=3)
    assert (status.completed, status.skipped, status.failed) == (2, 1, 0)
    (skipped,) = await desk.results(batch, status="skipped")
    assert (skipped.id, skipped.value, skipped.error and skipped.error.message) == ("i1", None, "paid already")
    assert await desk.do(lambda: batch.retry("failed")) == 0


async def test_steps_of_an_item_are_not_run_again(desk: Desk) -> None:
    ran: list[str] = []

    def work(item: Item, attempt: Any) -> None:
        attempt.step("reserve", ran.append, "reserve")
        if item.number == 1:
            raise Declined("later")

    async def reserve() -> None:
        ran.append("reserve")

    async def awork(item: Item, attempt: Any) -> None:
        await attempt.step("reserve", reserve)
        if item.number == 1:
            raise Declined("later")

    batch = await desk.start(1)
    status = await desk.run(batch, handler=work if desk.kind == "sync" else awork, max_attempts=2)
    assert (status.completed, ran) == (1, ["reserve"])


async def test_a_derived_key_is_the_same_on_every_attempt(desk: Desk) -> None:
    derived: list[str] = []

    def work(item: Item, attempt: Any) -> None:
        derived.append(attempt.derive("charge"))
        if item.number == 1:
            raise Declined("later")

    async def awork(item: Item, attempt: Any) -> None:
        work(item, attempt)

    batch = await desk.start(1)
    await desk.run(batch, handler=work if desk.kind == "sync" else awork, max_attempts=2)
    assert len(derived) == 2
    assert len(set(derived)) == 1


async def test_what_a_dead_process_finished_is_not_run_again(desk: Desk) -> None:
    batch = await desk.start(3)
    await begin(desk, batch)
    done, _left = await leave_behind(desk, batch, range(2))
    await perform(desk, Complete(done, VALUE))
    desk.clock.advance(31)
    seen: list[tuple[str, int, bool]] = []
    status = await desk.run(batch, lambda item: seen.append((item.id, item.number, item.in_doubt)))
    assert status.completed == 3
    assert sorted(seen) == [("i1", 2, True), ("i2", 1, False)]


async def test_an_attempt_whose_process_died_counts_when_the_next_one_fails(desk: Desk) -> None:
    def work(item: Item) -> None:
        seen.append((item.id, item.number))
        raise Declined("no")

    seen: list[tuple[str, int]] = []
    batch = await desk.start(2)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1))
    desk.clock.advance(31)
    assert (await desk.run(batch, work, max_attempts=2)).failed == 2
    assert sorted(seen) == [("i0", 2), ("i1", 1), ("i1", 2)]


async def test_an_attempt_whose_process_died_fails_no_item(desk: Desk) -> None:
    batch = await desk.start(2)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1))
    desk.clock.advance(31)
    status = await desk.run(batch, max_attempts=1)
    assert (status.completed, status.failed) == (2, 0)


async def test_what_a_dead_process_left_is_held_under_hold(desk: Desk) -> None:
    batch = await desk.start(3)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1), in_doubt="hold")
    desk.clock.advance(31)
    status = await desk.run(batch, in_doubt="hold")
    assert (status.state, status.completed, status.in_doubt) == ("completed", 2, 1)
    assert sorted(desk.ran) == ["i1", "i2"]
    (held,) = await desk.results(batch, status="in_doubt")
    assert held.id == "i0"


@pytest.mark.parametrize(
    ("verdict", "completed", "in_doubt", "ran"),
    [(Happened(1), 3, 0, 2), (DidNotHappen(), 3, 0, 3), (Unknown(), 2, 1, 2)],
    ids=["happened", "did not", "unknown"],
)
async def test_what_a_dead_process_left_is_asked_about(
    desk: Desk, verdict: Any, completed: int, in_doubt: int, ran: int
) -> None:
    batch = await desk.start(3)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1), in_doubt="reconcile")
    desk.clock.advance(100)
    status = await desk.run(batch, in_doubt="reconcile", reconcile=lambda _attempt: verdict, reconcile_after=30)
    assert (status.completed, status.in_doubt, len(desk.ran)) == (completed, in_doubt, ran)


async def test_a_run_that_does_not_wait_leaves_what_others_hold(desk: Desk) -> None:
    batch = await desk.start(6)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(3))
    status = await desk.run(batch, wait=False)
    assert (status.state, status.completed) == ("running", 3)
    assert sorted(desk.ran) == ["i3", "i4", "i5"]
    desk.clock.advance(31)
    assert (await desk.run(batch, wait=False)).state == "completed"


async def test_two_processes_share_a_batch(desk: Desk) -> None:
    batch = await desk.start(40)
    other = await desk.do(lambda: desk.batches(semel=desk.engine()).get("b"))
    both = await asyncio.gather(desk.run(batch, page=2), desk.run(other, page=2))
    assert [status.completed for status in both] == [40, 40]
    assert len(desk.ran) == len(set(desk.ran)) == 40


async def test_no_more_items_run_at_the_same_time_than_may(desk: Desk) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def enter() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)

    def leave() -> None:
        nonlocal running
        with lock:
            running -= 1

    def work(item: Item) -> None:
        del item
        enter()
        leave()

    async def awork(item: Item) -> None:
        del item
        enter()
        await asyncio.sleep(0)
        leave()

    batch = await desk.start(40)
    await desk.run(batch, handler=work if desk.kind == "sync" else awork, concurrency=3, page=20)
    assert 1 <= most <= 3


async def test_the_first_run_decides_how_large_a_page_is(desk: Desk) -> None:
    batch = await desk.start(10)
    await begin(desk, batch)
    assert (await desk.run(batch, page=7)).completed == 10


async def test_an_item_that_was_resolved_meanwhile_is_not_run(desk: Desk) -> None:
    batch = await desk.start(3)
    await begin(desk, batch)
    await leave_behind(desk, batch, range(1), in_doubt="hold")
    desk.clock.advance(31)
    await desk.do(lambda: desk.semel.resolve(("b", "i0"), Happened(7), operation="pay", reason="seen at the bank"))
    status = await desk.run(batch, in_doubt="hold")
    assert (status.completed, status.in_doubt) == (3, 0)
    assert sorted(desk.ran) == ["i1", "i2"]
    assert (await desk.results(batch))[0].value == 7


async def test_a_replayed_item_raises_as_any_record_does(desk: Desk) -> None:
    def work(_item: Item) -> None:
        raise Declined("no")

    batch = await desk.start(1)
    await desk.run(batch, work)
    with pytest.raises(FailedBefore, match="no"):
        await desk.do(lambda: desk.semel.value(("b", "i0"), operation="pay"))


async def test_no_more_items_begin_in_a_second_than_the_rate_says(desk: Desk) -> None:
    batch = await desk.start(9)
    began = asyncio.get_running_loop().time()
    assert (await desk.run(batch, rate=40)).completed == 9
    assert asyncio.get_running_loop().time() - began >= 8 / 40 - 0.01


async def test_a_run_that_is_cancelled_leaves_nothing_that_others_wait_for() -> None:
    desk = Desk("async")
    batch = await desk.start(6)
    arrived, never = asyncio.Event(), asyncio.Event()

    async def wait(item: Item) -> None:
        desk.ran.append(item.id)
        arrived.set()
        await never.wait()

    running = asyncio.create_task(desk.run(batch, handler=wait, concurrency=2, page=3))
    await arrived.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    begun = set(desk.ran)
    doubts: list[str] = []
    status = await desk.run(batch, lambda item: doubts.append(item.id) if item.in_doubt else None, wait=False)
    assert (status.state, status.completed) == ("completed", 6), "no lease had to pass"
    assert set(doubts) == begun
    await desk.close()
