"""Bulk actions: counted first, each item once, refusals in words, resumed after a kill."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel import AsyncSemel, Policy, Semel
from semel.batch import Batches
from semel.core.batch.operations import ReadItems
from semel.core.batch.values import ItemStatus
from semel.events import Consumer, Disposition, Event
from semel.server import User
from semel.server.actions import make_actions
from semel.server.bulk import BulkAction, BulkActions, BulkRequest, BulkRunner, LetterFilter
from semel.server.console.app import make_console
from semel.server.refusals import Forbidden, Invalid, NotFound, NotPossible
from semel.testing import Crash
from tests.effort import FULL
from tests.processes import run_bounded
from tests.server.desk import ADMIN, ERASER, OPERATOR, VIEWER, WHY, Desk, Site
from tests.server.test_attention import put_letter

pytestmark = pytest.mark.anyio


def release(**more: Any) -> BulkRequest:
    return BulkRequest(**{"action": "release", "reason": WHY, "records": {"status": "in_doubt"}, "id": "b", **more})


async def test_a_preview_counts_and_changes_nothing(desk: Desk) -> None:
    await desk.completed()
    for number in range(3):
        await desk.in_doubt(f"k{number}")
    preview = await BulkActions(desk.actions).preview(OPERATOR, release(records={}))
    assert (preview.matching, preview.eligible) == (4, 3)
    assert preview.by_status == {"completed": 1, "in_doubt": 3}
    assert await desk.entries() == []


@pytest.mark.parametrize("action", ["resolve", "cancel", "fail", "release"])
@pytest.mark.parametrize("wanted", [{}, {"stuck": True}, {"status": "running"}], ids=["all", "stuck", "running"])
async def test_a_preview_counts_those_whose_lease_is_over_as_what_ends_them_does(
    desk: Desk, action: BulkAction, wanted: dict[str, Any]
) -> None:
    await desk.completed()
    await desk.in_doubt()
    for number in range(3):
        await desk.running(f"lapsed {number}")
    desk.clock.advance(3600)
    await desk.running("live")
    bulk = BulkActions(desk.actions)
    asked = release(action=action, records=wanted, error="lost" if action == "fail" else "")
    preview = await bulk.preview(OPERATOR, asked)
    await bulk.start(OPERATOR, asked)
    await bulk.run("", "b")
    progress = await bulk.progress(OPERATOR, "", "b")
    assert (preview.matching, preview.eligible) == (progress.status.total, progress.done)
    assert progress.done == (3 if wanted == {"status": "running"} else 4)


async def test_a_preview_of_reopening_counts_what_can_be_reopened(desk: Desk) -> None:
    for number in range(3):
        await desk.failed(f"failed {number}")
    for number in range(2):
        record = await desk.in_doubt(f"cancelled {number}")
        await desk.actions.cancel(OPERATOR, record.reference, reason=WHY)
    may_run_again = await desk.in_doubt("released")
    await desk.actions.release(OPERATOR, may_run_again.reference, reason=WHY)
    for erased in (await desk.read("failed 2"), await desk.read("cancelled 1")):
        await desk.actions.erase(ERASER, erased.reference, reason=WHY)
    bulk, asked = BulkActions(desk.actions), release(action="reopen", records={"operation": "charge"})
    preview = await bulk.preview(OPERATOR, asked)
    assert (preview.matching, preview.eligible, preview.is_eligible_exact) == (6, 3, True)
    await bulk.start(OPERATOR, asked)
    await bulk.run("", "b")
    assert (await bulk.progress(OPERATOR, "", "b")).done == 3


async def test_a_preview_of_reopening_very_many_says_how_many_there_are_at_most(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.bulk.MOST_COUNTED", 2)
    for number in range(3):
        await desk.failed(f"failed {number}")
    asked = release(action="reopen", records={"operation": "charge"})
    preview = await BulkActions(desk.actions).preview(OPERATOR, asked)
    assert (preview.eligible, preview.is_eligible_exact) == (3, False)


async def test_all_that_match_are_released_and_each_is_in_the_chain(desk: Desk) -> None:
    for number in range(5):
        await desk.in_doubt(f"k{number}")
    bulk = BulkActions(desk.actions)
    started = await bulk.start(OPERATOR, release())
    assert (started.status.total, started.done) == (5, 0)
    await bulk.run("", "b")
    progress = await bulk.progress(OPERATOR, "", "b")
    assert (progress.status.state, progress.done, progress.refused) == ("completed", 5, 0)
    assert await desk.actions.count(OPERATOR, status="in_doubt") == 0
    entries = await desk.entries()
    assert [entry.action for entry in entries if entry.phase == "begun"] == ["release"] * 5
    assert all("bulk action b" in (entry.reason or "") for entry in entries if entry.phase == "begun")


@pytest.mark.parametrize("value", [None, {"id": 7, "cents": [12.5, 2**70]}], ids=["null", "object"])
async def test_all_that_match_are_resolved_with_one_value(desk: Desk, value: Any) -> None:
    for number in range(3):
        await desk.in_doubt(f"k{number}")
    done = await desk.completed()
    bulk, asked = BulkActions(desk.actions), release(action="resolve", value=value, records={})
    assert (await bulk.preview(OPERATOR, asked)).eligible == 3
    await bulk.start(OPERATOR, asked)
    await bulk.run("", "b")
    progress = await bulk.progress(OPERATOR, "", "b")
    assert (progress.done, progress.refused) == (3, 1)
    (refusal,) = await bulk.refusals(OPERATOR, "", "b")
    assert refusal.id == done.reference
    for number in range(3):
        record = await desk.read(f"k{number}")
        assert (record.status, record.note and record.note.resolution) == ("completed", "Happened")
        assert await desk.semel.value(f"k{number}", operation="charge", scope="acme") == value
    begun = [entry for entry in await desk.entries() if entry.phase == "begun"]
    assert {entry.action for entry in begun} == {"resolve"}


async def test_a_value_that_an_operation_does_not_return_is_refused_for_its_records_alone(desk: Desk) -> None:
    @desk.semel.once(key="order", operation="typed", in_doubt="hold")
    async def typed(order: str) -> int:
        raise Crash

    with pytest.raises(Crash):
        await typed("o-1")
    await desk.in_doubt("k")  # an hour later
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release(action="resolve", value="ch_1"))
    await bulk.run("", "b")
    (refusal,) = await bulk.refusals(OPERATOR, "", "b")
    assert refusal.error is not None
    assert refusal.error.message.startswith("value: The value stated is not what the operation returns")
    assert (await desk.read("k")).status == "completed"
    assert await desk.actions.count(OPERATOR, status="in_doubt", operation="typed") == 1


async def test_another_value_under_the_same_id_is_another_bulk_action(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release(action="resolve", value=1))
    with pytest.raises(NotPossible, match="another bulk action"):
        await bulk.start(OPERATOR, release(action="resolve", value=True))


async def test_a_stated_value_is_kept_with_the_items_alone(desk: Desk) -> None:
    await desk.in_doubt()
    started = await BulkActions(desk.actions).start(OPERATOR, release(action="resolve", value="patient-7"))
    assert "patient-7" not in repr(started)


async def test_what_is_refused_says_why_and_the_rest_goes_on(desk: Desk) -> None:
    for number in range(3):
        await desk.in_doubt(f"k{number}")
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    taken = await desk.read("k1")
    await desk.actions.cancel(OPERATOR, taken.reference, reason="somebody was faster")
    await bulk.run("", "b")
    (refusal,) = await bulk.refusals(OPERATOR, "", "b")
    assert refusal.id == taken.reference
    assert refusal.error is not None
    assert "changed" in refusal.error.message
    assert (await bulk.progress(OPERATOR, "", "b")).done == 2
    assert (await desk.read("k1")).status == "cancelled"


async def test_records_that_ran_again_meanwhile_are_left_alone(desk: Desk) -> None:
    await desk.in_doubt("k", policy=Policy(in_doubt="rerun"))
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    await desk.in_doubt("k", policy=Policy(in_doubt="rerun"))  # another attempt, and in doubt again
    await bulk.run("", "b")
    assert (await bulk.progress(OPERATOR, "", "b")).refused == 1
    assert (await desk.read("k")).status == "in_doubt"


async def test_an_id_that_is_used_again_long_after_decides_again(desk: Desk) -> None:
    bulk = BulkActions(desk.actions)
    asked = BulkRequest(action="release", reason=WHY, records={"status": "in_doubt"}, id="nightly")
    for _ in range(2):
        await desk.in_doubt(policy=Policy(in_doubt="hold", keep_for=timedelta(days=100)))
        started = await bulk.start(OPERATOR, asked)
        status = await bulk.run(started.scope, started.id)
        assert (status.completed, (await desk.read("doubt")).status) == (1, "failed")
        desk.clock.advance(31 * 24 * 3600)
        await desk.semel.sweep()  # forgets the bulk action, and not the record


async def test_an_id_that_is_used_again_long_after_reopens_again(desk: Desk) -> None:
    bulk = BulkActions(desk.actions)
    record = await desk.failed()
    await desk.actions.reopen(OPERATOR, record.reference, reason=f"{WHY} (bulk action nightly)")
    await desk.failed()
    started = await bulk.start(
        OPERATOR, BulkRequest(action="reopen", reason=WHY, records={"status": "failed"}, id="nightly")
    )
    assert (await bulk.run(started.scope, started.id)).completed == 1
    assert (await desk.read("failed")).retryable


async def test_the_same_id_is_the_same_bulk_action(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    await bulk.run("", "b")
    again = await bulk.start(OPERATOR, release())
    assert again.done == 1
    with pytest.raises(NotPossible, match="another bulk action"):
        await bulk.start(OPERATOR, release(action="cancel"))


def release_older(moment: datetime, hours: int = 1) -> BulkRequest:
    return release(records={"before": moment}, ages={"before": timedelta(hours=hours)})


async def test_an_age_is_the_same_request_later_and_its_moment_the_first_one(desk: Desk) -> None:
    await desk.in_doubt("k0")
    first = (await desk.in_doubt("k1")).created_at
    bulk = BulkActions(desk.actions)
    assert (await bulk.start(OPERATOR, release_older(first))).status.total == 1
    again = await bulk.start(OPERATOR, release_older(first + timedelta(hours=5)))
    assert (again.status.total, again.metadata.moments) == (1, {"before": first})
    with pytest.raises(NotPossible, match="another bulk action"):
        await bulk.start(OPERATOR, release_older(first, hours=2))
    with pytest.raises(NotPossible, match="another bulk action"):
        await bulk.start(OPERATOR, release(records={"before": first}))


async def die_while_noting(bulk: BulkActions, asked: BulkRequest) -> None:
    """Begin a bulk action as a process does that is killed before all items are noted."""

    async def die(*args: Any) -> AsyncIterator[dict[str, Any]]:
        raise Crash
        yield {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "_items", die)
        with pytest.raises(Crash):
            await bulk.start(OPERATOR, asked)
    assert (await bulk.progress(OPERATOR, "", "b")).status.state == "loading"


async def test_what_was_noted_in_part_is_noted_as_of_the_moment_when_it_was_begun(desk: Desk) -> None:
    await desk.in_doubt("k0")
    first = (await desk.in_doubt("k1")).created_at
    bulk = BulkActions(desk.actions)
    await die_while_noting(bulk, release_older(first))
    again = await bulk.start(OPERATOR, release_older(first + timedelta(hours=5)))
    assert (again.status.total, again.metadata.moments) == (1, {"before": first})


async def test_another_request_takes_over_an_id_whose_items_were_never_all_noted(desk: Desk) -> None:
    first = (await desk.in_doubt("k0")).created_at
    bulk = BulkActions(desk.actions)
    await die_while_noting(bulk, release_older(first))
    other = await bulk.start(OPERATOR, release_older(first + timedelta(hours=5), hours=2))
    assert (other.status.total, other.metadata.moments) == (1, {"before": first + timedelta(hours=5)})


@pytest.mark.parametrize(
    "asked",
    [
        {"reason": ""},
        {"rate": 0},
        {"rate": -1},
        {"rate": float("inf")},
        {"rate": float("nan")},
        {"rate": 1e12},
        {"error": "x"},
        {"action": "fail"},
        {"value": 1},
        {"action": "fail", "error": "x", "value": False},
        {"action": "resolve", "error": "x"},
        {"action": "resolve", "value": float("nan")},
        {"action": "resolve", "value": {1, 2}},
        {"action": "resolve", "value": "\ud800"},
        {"action": "resolve", "value": "x" * 2000},
        {"action": "redrive"},
        {"records": None},
        {"id": "../x"},
        {"records": {"nonsense": 1}},
    ],
    ids=lambda asked: ascii(asked)[:60],
)
async def test_what_cannot_be_meant_is_refused(desk: Desk, asked: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        await BulkActions(desk.actions).start(ADMIN, release(**asked))


async def test_a_bulk_action_needs_the_permission_of_its_action(desk: Desk) -> None:
    bulk = BulkActions(desk.actions)
    for user, action in (
        (VIEWER, "release"),
        (VIEWER, "resolve"),
        (OPERATOR, "erase"),
        (ERASER, "release"),
        (ERASER, "resolve"),
    ):
        with pytest.raises(Forbidden):
            await bulk.start(user, release(action=action))


async def test_a_bulk_action_stays_in_the_scope_of_its_user(desk: Desk) -> None:
    await desk.in_doubt("one", scope="acme")
    await desk.in_doubt("two", scope="globex")
    bulk, anna = BulkActions(desk.actions), User("anna", {"operator"}, scopes={"acme"})
    started = await bulk.start(anna, release())
    assert (started.scope, started.status.total) == ("acme", 1)
    await bulk.run("acme", "b")
    assert (await desk.read("two", "globex")).status == "in_doubt"
    fred = User("fred", {"admin"}, scopes={"globex"})
    with pytest.raises(NotFound):
        await bulk.progress(fred, "acme", "b")
    assert await bulk.list(fred) == ()
    assert [one.id for one in await bulk.list(ADMIN)] == ["b"]


async def test_a_bulk_action_over_all_scopes_is_seen_by_those_alone_who_reach_them(desk: Desk) -> None:
    await desk.in_doubt("one", scope="acme")
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    shared = User("sam", {"admin"}, scopes={"", "acme"})
    assert await bulk.list(shared) == ()
    with pytest.raises(NotFound):
        await bulk.progress(shared, "", "b")


async def test_bulk_actions_are_listed_page_by_page_among_other_batches(desk: Desk) -> None:
    await desk.in_doubt("one", scope="acme")
    await desk.in_doubt("two", scope="globex")
    bulk, anna = BulkActions(desk.actions), User("anna", {"operator"}, scopes={"acme", "globex"})
    for number, scope in enumerate(("acme", "globex", "acme")):
        await Batches(desk.actions.semel, scope).start(f"other-{number}", [{"id": "1"}], operation="pay", item_id="id")
        await bulk.start(anna, release(id=f"b{number}", records={"status": "in_doubt", "scope": scope}))
    newest = await bulk.list(anna, limit=2, newest_first=True)
    assert [one.id for one in newest] == ["b2", "b1"]
    rest = await bulk.list(anna, limit=2, newest_first=True, after=newest[-1].number)
    assert [one.id for one in rest] == ["b0"]
    assert [one.id for one in await bulk.list(anna)] == ["b0", "b1", "b2"]


async def test_no_more_is_done_in_a_second_than_the_rate_says() -> None:
    async def handler() -> int:
        return 1

    async with AsyncSemel("memory://") as semel:
        for number in range(9):
            await semel.run(str(number), handler, operation="charge", fingerprint=None)
        bulk = BulkActions(make_actions(semel))
        began = asyncio.get_running_loop().time()
        started = await bulk.start(ERASER, BulkRequest(action="erase", reason=WHY, records={}, rate=40))
        assert (await bulk.run(started.scope, started.id)).completed == 9
        assert asyncio.get_running_loop().time() - began >= 8 / 40 - 0.01


async def test_erased_records_are_erased_once(desk: Desk) -> None:
    for number in range(3):
        await desk.completed(f"k{number}")
    bulk, eraser = BulkActions(desk.actions), User("emil", {"eraser"}, scopes={"acme"})
    await bulk.start(eraser, release(action="erase", records={"status": "completed"}))
    await bulk.run("acme", "b")
    progress = await bulk.progress(eraser, "acme", "b")
    assert (progress.done, progress.refused) == (3, 0)
    assert await desk.semel.read("k0", operation="charge", scope="acme") is not None
    assert (await desk.read("k0")).erased


async def test_the_runner_goes_on_with_what_was_left(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    runner = BulkRunner(bulk)
    assert await runner.resume() == 1
    await runner.join()
    assert (await bulk.progress(OPERATOR, "", "b")).done == 1
    assert await runner.resume() == 0


async def test_a_server_without_the_handlers_leaves_a_redrive_to_those_who_have_them(desk: Desk) -> None:
    consumer = Consumer(desk.semel, "billing", max_attempts=1)
    handled: list[str] = []
    errors = [OSError("no route to the ledger")]

    @consumer.on("paid")
    async def book(event: Event) -> None:
        if errors:
            raise errors.pop()
        handled.append(event.id)

    await consumer.handle(Event(type="paid", source="/shop", id="e-1"))
    knowing = BulkActions(make_actions(desk.semel, consumers=[consumer]))
    await knowing.start(OPERATOR, BulkRequest(action="redrive", reason=WHY, letters=LetterFilter("billing"), id="b"))
    other = BulkActions(desk.actions)
    assert await BulkRunner(other).resume() == 0
    with pytest.raises(NotPossible, match="not known here"):
        await other.run("", "b")
    assert await knowing.unfinished() == (("", "b"),)
    await knowing.run("", "b")
    assert ((await knowing.progress(OPERATOR, "", "b")).done, handled) == (1, ["e-1"])


async def test_an_event_whose_store_did_not_answer_is_redriven_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(desk.semel, "billing")
    await put_letter(desk, "billing")
    actions = make_actions(desk.semel, consumers=[consumer])
    came = [Disposition("ack", "processed"), Disposition("retry", "unavailable")]

    async def redrive(*args: Any, **named: Any) -> Disposition:
        return came.pop()

    monkeypatch.setattr(actions, "redrive", redrive)
    bulk = BulkActions(actions)
    await bulk.start(OPERATOR, BulkRequest(action="redrive", reason=WHY, letters=LetterFilter("billing"), id="b"))
    run = asyncio.create_task(bulk.run("", "b"))
    while not run.done():
        desk.clock.advance(1)
        await asyncio.sleep(0)
    progress = await bulk.progress(OPERATOR, "", "b")
    assert (progress.done, progress.refused) == (1, 0)


async def test_a_paused_one_goes_on_when_it_is_resumed(desk: Desk) -> None:
    for number in range(3):
        await desk.in_doubt(f"k{number}")
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    paused = await bulk.change(OPERATOR, "", "b", "pause", reason=WHY)
    assert (paused.state, paused.reason) == ("paused", WHY)
    await bulk.run("", "b")
    assert (await bulk.progress(OPERATOR, "", "b")).done == 0
    assert await desk.actions.count(OPERATOR, status="in_doubt") == 3
    assert await BulkRunner(bulk).resume() == 0, "nobody goes on with it by themselves"
    await bulk.change(OPERATOR, "", "b", "resume", reason=WHY)
    await bulk.run("", "b")
    assert (await bulk.progress(OPERATOR, "", "b")).done == 3
    begun = [entry for entry in await desk.entries() if entry.phase == "begun" and entry.target == "bulk:b"]
    assert [entry.detail["what"] for entry in begun] == ["pause", "resume"]


async def test_a_cancelled_one_leaves_the_rest_alone(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    await bulk.change(OPERATOR, "", "b", "cancel", reason=WHY)
    await bulk.run("", "b")
    assert (await bulk.progress(OPERATOR, "", "b")).status.state == "cancelled"
    assert (await desk.read("doubt")).status == "in_doubt"


async def test_what_is_over_cannot_be_paused(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    await bulk.run("", "b")
    with pytest.raises(Invalid, match="completed"):
        await bulk.change(OPERATOR, "", "b", "pause", reason=WHY)


async def test_to_pause_one_needs_the_permission_of_its_action(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    for user in (VIEWER, ERASER):
        with pytest.raises(Forbidden):
            await bulk.change(user, "", "b", "pause", reason=WHY)
    assert (await bulk.progress(OPERATOR, "", "b")).status.state == "pending"


class Counting:
    """Counts how many items a store was asked for."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[ReadItems] = []
        perform = desk.actions.perform

        async def note(flow: Any) -> Any:
            return await perform(self._watch(flow))

        monkeypatch.setattr(desk.actions, "perform", note)

    def _watch(self, flow: Any) -> Any:
        answer: Any = None
        while True:
            try:
                operation = flow.send(answer)
            except StopIteration as ended:
                return ended.value
            if isinstance(operation, ReadItems):
                self.asked.append(operation)
            answer = yield operation


async def test_refusals_are_read_by_how_items_ended_and_page_by_page(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        await desk.in_doubt(f"k{number}")
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    taken = [(await desk.read(f"k{number}")).reference for number in (1, 3, 5)]
    for reference in taken:
        await desk.actions.cancel(OPERATOR, reference, reason="somebody was faster")
    await bulk.run("", "b")
    counting = Counting(desk, monkeypatch)
    first = await bulk.refusals(OPERATOR, "", "b", limit=2)
    rest = await bulk.refusals(OPERATOR, "", "b", after=first[-1].position, limit=2)
    assert sorted(one.id for one in (*first, *rest)) == sorted(taken)
    assert (len(first), len(rest)) == (2, 1)
    assert [(one.status, one.limit) for one in counting.asked] == [(int(ItemStatus.SKIPPED), 2)] * 2
    assert counting.asked[1].first == first[-1].position + 1


async def test_nothing_is_read_where_nothing_was_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    await bulk.run("", "b")
    counting = Counting(desk, monkeypatch)
    assert await bulk.refusals(OPERATOR, "", "b") == ()
    assert counting.asked == []


async def test_letters_of_one_of_several_scopes_are_discarded_and_no_others(desk: Desk) -> None:
    for scope in ("acme", "globex", ""):
        await put_letter(desk, "billing", scope, record=scope.ljust(32).encode())
    bulk, anna = BulkActions(desk.actions), User("anna", {"operator"}, scopes={"acme", "globex"})

    def discard(scope: str | None) -> BulkRequest:
        return BulkRequest(action="discard", reason=WHY, letters=LetterFilter("billing", scope=scope), id="b")

    with pytest.raises(Invalid, match="Name it in the filter"):
        await bulk.start(anna, discard(None))
    with pytest.raises(NotFound):
        await bulk.start(anna, discard("initech"))
    started = await bulk.start(anna, discard("acme"))
    assert (started.scope, started.status.total) == ("acme", 1)
    await bulk.run("acme", "b")
    left = (await desk.actions.letters(ADMIN, "billing")).letters
    assert sorted(letter.scope for letter in left) == ["", "globex"]


async def test_letters_of_the_shared_scope_are_those_alone(desk: Desk) -> None:
    for scope in ("acme", ""):
        await put_letter(desk, "billing", scope, record=scope.ljust(32).encode())
    asked = BulkRequest(action="discard", reason=WHY, letters=LetterFilter("billing", scope=""), id="b")
    assert (await BulkActions(desk.actions).preview(OPERATOR, asked)).matching == 1


async def test_a_mounted_server_goes_on_with_what_a_dead_process_left(desk: Desk, site: Site) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    await site.get("/me")
    await site.app.state.api.runner.join()
    assert (await bulk.progress(OPERATOR, "", "b")).done == 1


async def test_a_mounted_console_goes_on_with_what_a_dead_process_left(desk: Desk) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(OPERATOR, release())
    runner = BulkRunner(bulk)
    app = make_console(desk.actions, bulk, runner, user=lambda request: OPERATOR)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
        assert (await client.get("/")).status_code == 200
    await runner.join()
    assert (await bulk.progress(OPERATOR, "", "b")).done == 1


async def test_what_was_left_is_looked_for_once_in_a_minute(desk: Desk) -> None:
    now = [0.0]
    looked: list[str] = []

    class Watched(BulkActions):
        async def unfinished(self) -> tuple[tuple[str, str], ...]:
            looked.append("looked")
            return ()

    runner = BulkRunner(Watched(desk.actions), monotonic=lambda: now[0])
    for at in (0.0, 30.0, 59.0, 60.0):
        now[0] = at
        runner.look_for_left()
        await runner.join()
    assert len(looked) == 2


async def test_an_error_that_nobody_expects_is_logged_by_its_kind(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    class Breaking(BulkActions):
        async def run(self, scope: str, id_: str) -> Any:
            raise ZeroDivisionError("patient-7")

    runner = BulkRunner(Breaking(desk.actions))
    runner.begin("", "b")
    await runner.join()
    assert "ZeroDivisionError" in caplog.text
    assert "patient-7" not in caplog.text


async def test_the_api_begins_a_bulk_action_and_tells_how_far_it_is(desk: Desk, site: Site) -> None:
    await desk.in_doubt()
    body = {"reason": WHY, "records": {"status": "in_doubt"}, "id": "b", "rate": 1000}
    assert (await site.post("/bulk/release", {**body, "value": 1})).status_code == 422
    dry = await site.post("/bulk/release", {**body, "dry_run": True})
    assert (dry.status_code, dry.json()["matching"]) == (200, 1)
    begun = await site.post("/bulk/release", body)
    assert (begun.status_code, begun.json()["total"]) == (202, 1)
    await site.app.state.api.runner.join()
    shown = (await site.get("/bulk/b")).json()
    assert (shown["state"], shown["done"]) == ("completed", 1)
    assert (await site.get("/bulk/b/refusals")).json()["refusals"] == []


@pytest.mark.parametrize(
    ("more", "value"),
    [({}, None), ({"value": None}, None), ({"value": {"id": 123456789012345678901}}, {"id": 123456789012345678901})],
    ids=["none", "null", "object"],
)
async def test_the_api_resolves_all_that_match_with_the_value_as_it_stands_there(
    desk: Desk, site: Site, more: dict[str, Any], value: Any
) -> None:
    await desk.in_doubt()
    begun = await site.post("/bulk/resolve", {"reason": WHY, "records": {"status": "in_doubt"}, "id": "b", **more})
    assert begun.status_code == 202
    await site.app.state.api.runner.join()
    assert (await site.get("/bulk/b")).json()["done"] == 1
    assert await desk.semel.value("doubt", operation="charge", scope="acme") == value


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "done"])
def test_resolving_all_goes_on_after_a_kill_and_resolves_each_once(tmp_path: Path, where: str) -> None:
    url, items = f"sqlite:///{tmp_path}/semel.db", 400 if FULL else 12
    fences = asyncio.run(prepare(url, items))
    kill_and_end(url, items, where, "resolve")
    asyncio.run(check(url, fences, status="completed"))
    with Semel(url) as semel:
        assert [semel.value(f"k{number}", operation="charge", scope="acme") for number in range(items)] == [
            {"receipt": 7}
        ] * items


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "done"])
def test_a_bulk_action_that_is_killed_goes_on_and_does_each_once(tmp_path: Path, where: str) -> None:
    url, items = f"sqlite:///{tmp_path}/semel.db", 400 if FULL else 30
    fences = asyncio.run(prepare(url, items))
    kill_and_end(url, items, where, "release")
    asyncio.run(check(url, fences))


def kill_and_end(url: str, items: int, where: str, action: str) -> None:
    """Kill two processes in the middle of a bulk action, and let a third one end it."""
    command = [sys.executable, "-m", "tests.server.bulk_worker", url, "b", where]
    kills = 0
    for at in (items // 3, 1):
        killed = run_bounded([*command, str(at), action], 60)
        kills += killed.returncode == -signal.SIGKILL
    assert kills == 2
    ended = run_bounded([*command, "0", action], 100)
    assert ended.stdout.split() == ["completed", str(items), "0", "0"], ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "done"])
def test_a_bulk_erasure_that_is_killed_goes_on_and_erases_all(tmp_path: Path, where: str) -> None:
    url, items = f"sqlite:///{tmp_path}/semel.db", 400 if FULL else 12
    with Semel(url) as semel:
        for number in range(items):
            semel.run(f"k{number}", lambda: "secret", operation="charge", fingerprint=None, scope="acme")
    kill_and_end(url, items, where, "erase")
    with Semel(url) as semel:
        for number in range(items):
            record = semel.read(f"k{number}", operation="charge", scope="acme")
            assert record is not None
            assert record.erased


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "done"])
def test_discarding_all_letters_goes_on_after_a_kill_and_refuses_none(tmp_path: Path, where: str) -> None:
    url, items = f"sqlite:///{tmp_path}/semel.db", 400 if FULL else 12
    with Semel(url) as semel:
        consumer = Consumer(semel, "billing", max_attempts=1)

        @consumer.on("paid")
        def book(event: Event) -> None:
            raise OSError("no route to the ledger")

        for number in range(items):
            consumer.handle(Event(type="paid", source="/shop", id=f"e-{number}"))
    kill_and_end(url, items, where, "discard")
    with Semel(url) as semel:
        assert list(Consumer(semel, "billing").dead_letters()) == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "inside", "written", "done"])
def test_redriving_all_letters_goes_on_after_a_kill_and_each_effect_happens_once(tmp_path: Path, where: str) -> None:
    path, items = tmp_path / "semel.db", 400 if FULL else 12
    with Semel(path) as semel:
        consumer = Consumer(semel, "billing", max_attempts=1)

        @consumer.on("paid")
        def book(event: Event) -> None:
            raise OSError("no route to the ledger")

        for number in range(items):
            consumer.handle(Event(type="paid", source="/shop", id=f"e-{number}"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE booked (event TEXT)")
    kill_and_end(f"sqlite:///{path}", items, where, "redrive")
    with closing(sqlite3.connect(path)) as connection:
        booked = [event for (event,) in connection.execute("SELECT event FROM booked")]
    assert sorted(booked) == sorted(f"e-{number}" for number in range(items))
    with Semel(path) as semel:
        assert list(Consumer(semel, "billing").dead_letters()) == []


async def prepare(url: str, items: int) -> dict[str, int]:
    """So many records in doubt; gives their fences."""

    async def hears_nothing() -> None:
        raise TimeoutError

    policy = Policy(in_doubt="hold")  # in doubt at once: a lease short enough to wait for is over before it is granted
    asked: dict[str, Any] = {"operation": "charge", "scope": "acme", "fingerprint": None, "policy": policy}
    async with AsyncSemel(url) as semel:
        for number in range(items):
            with pytest.raises(TimeoutError):
                await semel.run(f"k{number}", hears_nothing, **asked)
        return {record.reference: record.fence async for record in semel.records(status="in_doubt")}


async def check(url: str, fences: dict[str, int], *, status: str = "failed") -> None:
    """Each record was decided about once: its fence rose once, and one entry of its history says so."""
    async with AsyncSemel(url) as semel:
        actions = make_actions(semel)
        assert await semel.count(operation="charge", status=status) == len(fences)
        async for record in semel.records(operation="charge"):
            decided = [entry for entry in await semel.history(record.key) if entry.kind == "resolved"]
            assert (record.fence, len(decided)) == (fences[record.reference] + 1, 1)
        (report,) = await actions.verify_audit(ADMIN)
        assert report.is_whole
        begun = [entry for entry in await everything(actions) if entry.phase == "begun"]
        assert {entry.target for entry in begun} == set(fences)


async def everything(actions: Any) -> list[Any]:
    return [entry async for entry in actions.audit.entries()]


async def test_whoever_was_overtaken_is_not_told_that_the_other_bulk_action_is_theirs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    await bulk.start(ADMIN, release())

    async def not_yet(scope: str, id_: str) -> None:
        """What is found a moment before the other one is there."""

    monkeypatch.setattr(bulk, "_known", not_yet)
    with pytest.raises(NotPossible, match="stands for another bulk action") as refused:
        await bulk.start(OPERATOR, release())
    assert refused.value.because == "id_taken"
    assert (await bulk.start(ADMIN, release())).metadata.actor == "adam"
