"""Actions: permission, scope, reason and the audit chain on everything that an operator does."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from semel import DidNotHappen, Happened, Policy, Record
from semel.core.erasure.port import conceal_subject
from semel.core.fingerprint import Secrets
from semel.core.key import SHARED
from semel.errors import SemelError, StoreUnavailable, TryLater
from semel.server import User
from semel.server.actions import Actions
from semel.server.actions.checks import BULK
from semel.server.audit import Anchor, write_anchors
from semel.server.bulk import BulkActions, BulkRequest
from semel.server.refusals import Forbidden, Invalid, NotFound, NotPossible, ReadOnly, Unavailable
from tests.server.desk import ACME, ADMIN, ERASER, OPERATOR, VIEWER, WHY, Desk

pytestmark = pytest.mark.anyio
FOREIGN = User("fred", {"admin"}, scopes={"globex"})


async def test_a_doubt_is_ended_and_the_chain_says_by_whom(desk: Desk) -> None:
    record = await desk.in_doubt()
    resolved = await desk.actions.resolve(OPERATOR, record.reference, Happened("ch_9"), reason=WHY)
    assert resolved.status == "completed"
    assert resolved.note is not None
    assert resolved.note.by == "olga"
    assert await desk.outcomes() == ["begun", "done"]
    begun, _ = await desk.entries()
    assert (begun.scope, begun.actor, begun.action) == ("acme", "olga", "resolve")
    assert (begun.target, begun.reason) == (record.reference, WHY)


async def test_the_chain_holds_neither_key_nor_value(desk: Desk) -> None:
    record = await desk.in_doubt("the-secret-key")
    await desk.actions.resolve(OPERATOR, record.reference, Happened("the-secret-value"), reason=WHY)
    assert "the-secret" not in repr(await desk.entries())


@pytest.mark.parametrize("reason", ["", "   ", None, "x" * 1001, "a\0b"])
async def test_a_change_without_a_usable_reason_is_refused(desk: Desk, reason: Any) -> None:
    record = await desk.in_doubt()
    with pytest.raises(Invalid, match="reason"):
        await desk.actions.cancel(OPERATOR, record.reference, reason=reason)
    assert (await desk.read("doubt")).status == "in_doubt"
    assert await desk.entries() == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (StoreUnavailable("no answer"), "unknown: store_unavailable"),
        (StoreUnavailable("nobody was asked", asked=False), "refused: store_unavailable"),
        (StoreUnavailable("somebody was in the way", conflict=True), "refused: store_unavailable"),
        (TryLater("too many"), "refused: try_later"),
    ],
)
async def test_the_chain_says_refused_only_where_nothing_can_have_happened(
    desk: Desk, error: SemelError, outcome: str
) -> None:
    with pytest.raises(type(error)):
        async with desk.audit.record(scope="", actor="olga", action="cancel", target="x", reason=WHY):
            raise error
    assert await desk.outcomes() == ["begun", outcome]


async def test_what_still_runs_is_refused_in_words(desk: Desk) -> None:
    record = await desk.running()
    with pytest.raises(NotPossible, match="still running: lease until 2030-01-01") as refused:
        await desk.actions.release(OPERATOR, record.reference, reason=WHY)
    assert refused.value.because == "still_running"
    assert await desk.outcomes() == ["begun", "refused: not_possible"]


async def test_a_live_lease_is_ended_by_an_admin_who_types_the_reference(desk: Desk) -> None:
    record = await desk.running()
    with pytest.raises(Forbidden):
        await desk.actions.release(OPERATOR, record.reference, reason=WHY, force=True, confirm=record.reference[:8])
    with pytest.raises(Invalid, match="first 8 digits"):
        await desk.actions.release(ADMIN, record.reference, reason=WHY, force=True, confirm="yes")
    released = await desk.actions.release(ADMIN, record.reference, reason=WHY, force=True, confirm=record.reference[:8])
    assert released.fence > record.fence
    assert released.note is not None
    assert released.note.forced


async def test_a_decision_about_what_has_changed_since_is_refused(desk: Desk) -> None:
    record = await desk.in_doubt()
    with pytest.raises(NotPossible, match="changed since") as refused:
        await desk.actions.cancel(OPERATOR, record.reference, reason=WHY, fence=record.fence + 1)
    assert refused.value.because == "changed"


async def test_what_is_settled_cannot_be_resolved_again(desk: Desk) -> None:
    record = await desk.completed()
    with pytest.raises(NotPossible):
        await desk.actions.resolve(OPERATOR, record.reference, DidNotHappen(), reason=WHY)


async def test_a_failed_record_is_reopened(desk: Desk) -> None:
    record = await desk.failed()
    reopened = await desk.actions.reopen(OPERATOR, record.reference, reason=WHY)
    assert reopened.retryable


async def test_a_settled_record_is_erased_by_an_eraser_alone(desk: Desk) -> None:
    record = await desk.completed()
    with pytest.raises(Forbidden):
        await desk.actions.erase(OPERATOR, record.reference, reason=WHY)
    erased = await desk.actions.erase(ERASER, record.reference, reason=WHY)
    assert erased.erased


async def keep_about(desk: Desk, subject: str, scope: str = "acme") -> None:
    async def handler() -> str:
        return "ch_1"

    about = {"subject": subject}
    await desk.semel.run(subject, handler, operation="charge", scope=scope, fingerprint=None, about=about)


async def test_all_that_is_kept_about_a_subject_is_erased_in_the_scope_that_is_named(desk: Desk) -> None:
    await keep_about(desk, "patient-7")
    await keep_about(desk, "patient-7", scope="globex")
    report = await desk.actions.erase_subject(ERASER, "patient-7", scope="acme", reason=WHY)
    assert report.erased == {"records": 1}
    assert not (await desk.read("patient-7", scope="globex")).erased


async def test_the_chain_does_not_name_a_person_who_was_erased(desk: Desk) -> None:
    await keep_about(desk, "patient-7")
    await desk.actions.erase_subject(ERASER, "patient-7", reason=WHY)
    assert await desk.outcomes() == ["begun", "done"]
    assert "patient-7" not in str(await desk.entries())


async def test_a_person_who_was_erased_is_named_by_a_digest_that_nobody_can_try_out(desk: Desk) -> None:
    """A plain digest of "patient-7" is found by trying numbers."""
    await keep_about(desk, "patient-7")
    await desk.actions.erase_subject(ERASER, "patient-7", reason=WHY)
    assert {entry.target for entry in await desk.entries()} == {"a subject"}
    secret = Secrets(b"s" * 32)
    assert conceal_subject("patient-7", secret) == conceal_subject("patient-7", secret)
    assert conceal_subject("patient-7", secret) != conceal_subject("patient-8", secret)
    assert conceal_subject("patient-7", secret) != conceal_subject("patient-7", Secrets(b"t" * 32))
    assert hashlib.sha256(b"patient-7").hexdigest()[:16] not in conceal_subject("patient-7", secret)


async def test_a_dry_run_of_erasing_a_subject_erases_nothing(desk: Desk) -> None:
    await keep_about(desk, "patient-7")
    report = await desk.actions.erase_subject(ERASER, "patient-7", reason=WHY, dry_run=True)
    assert (report.erased, report.dry_run) == ({"records": 1}, True)
    assert not (await desk.read("patient-7")).erased


async def test_a_subject_is_erased_everywhere_by_those_alone_who_reach_everything(desk: Desk) -> None:
    await keep_about(desk, "patient-7", scope="globex")
    with pytest.raises(Forbidden):
        await desk.actions.erase_subject(ACME, "patient-7", reason=WHY)
    with pytest.raises(NotFound):
        await desk.actions.erase_subject(ACME, "patient-7", scope="globex", reason=WHY)
    assert not (await desk.read("patient-7", scope="globex")).erased


async def test_a_body_is_shown_to_those_who_may_and_the_chain_says_so(desk: Desk) -> None:
    record = await desk.completed(value={"number": 12345678901234567890123})
    with pytest.raises(Forbidden):
        await desk.actions.body(VIEWER, record.reference)
    body = await desk.actions.body(OPERATOR, record.reference)
    assert body.text is not None
    assert "12345678901234567890123" in body.text
    assert await desk.outcomes() == ["shown"]


async def test_of_all_steps_together_no_more_is_shown_than_of_one_value(desk: Desk) -> None:
    record = await with_steps(desk, "a" * 600_000, "b" * 600_000, "c")
    first, second, third = (await desk.actions.body(OPERATOR, record.reference)).steps
    assert (len(first.text or ""), first.is_cut) == (600_002, False)
    assert second.is_cut
    assert len(second.text or "") == (1 << 20) - 600_002
    assert (third.text, third.is_cut) == ("", True)


async def test_a_step_whose_value_was_not_kept_says_why(desk: Desk) -> None:
    record = await with_steps(desk, "twelve words", max_result=3)
    (step,) = (await desk.actions.body(OPERATOR, record.reference)).steps
    assert step.text is None
    assert "max_result" in step.why_none


async def with_steps(desk: Desk, *values: str, max_result: int = 1 << 20) -> Record:
    """A record in doubt, whose attempt had finished steps with these values."""

    async def handler() -> None:
        for number, value in enumerate(values):
            await desk.semel.current().step(f"step {number}", _gives(value))
        raise ConnectionError

    policy = Policy(in_doubt="hold", max_result=max_result)
    with pytest.raises(ConnectionError):
        await desk.semel.run("k", handler, operation="charge", scope="acme", fingerprint=None, policy=policy)
    return await desk.read("k")


def _gives(value: str) -> Callable[[], Awaitable[str]]:
    async def give() -> str:
        return value

    return give


@pytest.mark.parametrize("action", ["show", "history", "body", "cancel", "reopen", "erase"])
async def test_what_is_in_another_scope_is_refused_as_what_does_not_exist(desk: Desk, action: str) -> None:
    record = await desk.in_doubt()
    more = {} if action in ("show", "history", "body") else {"reason": WHY}
    messages = []
    for reference in (record.reference, "f" * 64):
        with pytest.raises(NotFound) as refused:
            await getattr(desk.actions, action)(FOREIGN, reference, **more)
        messages.append(refused.value.message.replace(reference[:16], "…"))
    assert messages[0] == messages[1]
    assert await desk.entries() == []


async def test_a_list_shows_the_scopes_of_a_user_alone(desk: Desk) -> None:
    for scope in ("acme", "globex", "initech"):
        await desk.completed(f"in {scope}", scope=scope)
        desk.clock.advance(1)
    both = User("bob", {"viewer"}, scopes={"initech", "acme"})
    assert [one.key.scope for one in (await desk.actions.list(both)).records] == ["acme", "initech"]
    assert (await desk.actions.list(both, scope="globex")).records == ()
    assert await desk.actions.count(both) == 2
    assert await desk.actions.count(VIEWER) == 3


async def test_pages_follow_each_other_over_several_scopes(desk: Desk) -> None:
    for number in range(7):
        await desk.completed(f"k{number}", scope="acme" if number % 3 else "globex")
        desk.clock.advance(1)
    both = User("bob", {"viewer"}, scopes={"globex", "acme"})
    seen, cursor = [], None
    while True:
        page = await desk.actions.list(both, cursor=cursor, limit=2)
        seen += [one.key.value for one in page.records]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [f"k{number}" for number in range(7)]


@pytest.mark.parametrize("cursor", ["", "nonsense", "AAAA", "é"])
async def test_a_cursor_that_no_page_gave_is_refused(desk: Desk, cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        await desk.actions.list(VIEWER, cursor=cursor)


@pytest.mark.parametrize("reference", ["", "abc", "xyz" * 10, "%" * 8, "' OR 1=1 --"])
async def test_what_is_no_reference_is_refused(desk: Desk, reference: str) -> None:
    with pytest.raises(Invalid, match="hex digits"):
        await desk.actions.show(VIEWER, reference)


async def test_without_an_audit_chain_nothing_is_changed(desk: Desk) -> None:
    record = await desk.in_doubt()
    actions = Actions(desk.semel, None)
    assert actions.is_read_only
    with pytest.raises(ReadOnly):
        await actions.cancel(ADMIN, record.reference, reason=WHY)
    assert (await actions.show(ADMIN, record.reference)).status == "in_doubt"


async def test_a_sweep_is_not_for_users_of_some_scopes(desk: Desk) -> None:
    with pytest.raises(Forbidden):
        await desk.actions.sweep(ACME, reason=WHY)
    report = await desk.actions.sweep(OPERATOR, reason=WHY)
    assert report.held == 0


async def test_an_error_that_nobody_expects_ends_its_entry(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await desk.in_doubt()

    async def breaks(*args: Any, **named: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(desk.actions, "_decide", breaks)
    with pytest.raises(ZeroDivisionError):
        await desk.actions.cancel(OPERATOR, record.reference, reason=WHY)
    assert await desk.outcomes() == ["begun", "failed: ZeroDivisionError"]


async def test_what_was_done_is_not_called_refused_where_the_reply_was_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await desk.in_doubt()
    decide = desk.actions._decide

    async def loses_the_reply(*args: Any, **named: Any) -> None:
        await decide(*args, **named)
        raise StoreUnavailable("The store did not answer.")

    monkeypatch.setattr(desk.actions, "_decide", loses_the_reply)
    with pytest.raises(Unavailable):
        await desk.actions.cancel(OPERATOR, record.reference, reason=WHY)
    assert (await desk.read("doubt")).status == "cancelled"
    assert await desk.outcomes() == ["begun", "unknown: unavailable"]


@pytest.mark.parametrize("what", ["cancel", "reopen"])
async def test_a_record_that_goes_on_after_it_was_found_is_not_decided_about(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    seen = await (desk.in_doubt() if what == "cancel" else desk.failed("doubt"))
    found = desk.actions.find

    async def find_and_dawdle(user: User, reference: str) -> Any:
        record = await found(user, reference)
        if what == "cancel":
            await desk.semel.resolve(record.key, DidNotHappen(), reason="somebody was quicker")
            await desk.in_doubt()
        else:
            await desk.semel.reopen(record.key, reason="somebody was quicker")
            await desk.failed("doubt")
        return record

    monkeypatch.setattr(desk.actions, "find", find_and_dawdle)
    with pytest.raises(NotPossible, match="has changed since it was looked at"):
        await getattr(desk.actions, what)(OPERATOR, seen.reference, reason=WHY, fence=seen.fence)
    assert (await desk.read("doubt")).status == ("in_doubt" if what == "cancel" else "failed")
    assert (await desk.outcomes())[-1] == "refused: not_possible"


SHARED_ALONE = User("sara", {"admin"}, scopes={""})


async def test_what_was_erased_in_a_scope_does_not_exist_for_those_of_the_shared_one(desk: Desk) -> None:
    async def handler() -> str:
        return "ch_1"

    await desk.semel.run("shared", handler, operation="charge", scope=SHARED, fingerprint=None)
    record = await desk.completed()
    await desk.actions.erase(ADMIN, record.reference, reason=WHY)
    listed = await desk.actions.list(SHARED_ALONE)
    assert [one.key.value for one in listed.records] == ["shared"]
    assert await desk.actions.count(SHARED_ALONE) == 1
    for look in (desk.actions.show, desk.actions.history, desk.actions.body):
        with pytest.raises(NotFound, match="There is no record"):
            await look(SHARED_ALONE, record.reference)
    assert (await desk.actions.show(ADMIN, record.reference)).erased
    assert await desk.actions.count(ADMIN) == 2


@pytest.mark.parametrize("filters", [{"operation": BULK}, {"reference": ""}], ids=str)
async def test_items_of_bulk_actions_exist_for_those_alone_who_reach_every_scope(
    desk: Desk, filters: dict[str, Any]
) -> None:
    item = await _bulk_item(desk)
    listed = await desk.actions.list(SHARED_ALONE, **filters)
    assert BULK not in {one.key.operation for one in listed.records}
    assert BULK not in {one.operation for one in await desk.actions.counts(SHARED_ALONE, **filters)}
    with pytest.raises(NotFound):
        await desk.actions.show(SHARED_ALONE, item.reference)
    assert item.reference in {one.reference for one in (await desk.actions.list(ADMIN, **filters)).records}


@pytest.mark.parametrize("decide", ["resolve", "release", "cancel", "fail", "reopen", "erase"])
async def test_nobody_decides_about_an_item_of_a_bulk_action_by_itself(desk: Desk, decide: str) -> None:
    item = await _bulk_item(desk)
    told: dict[str, dict[str, Any]] = {"resolve": {"resolution": Happened(1)}, "fail": {"error": "no"}}
    with pytest.raises(NotPossible, match="item of a bulk action") as refused:
        await getattr(desk.actions, decide)(ADMIN, item.reference, reason=WHY, **told.get(decide, {}))
    assert refused.value.because == "bulk_item"
    assert await desk.actions.show(ADMIN, item.reference) == item


async def _bulk_item(desk: Desk) -> Record:
    """What is kept of an item of a bulk action on all scopes."""
    await desk.in_doubt()
    bulk = BulkActions(desk.actions)
    asked = BulkRequest(action="release", reason=WHY, records={"status": "in_doubt"}, id="b")
    await bulk.start(ADMIN, asked)
    await bulk.run("", "b")
    (item,) = (await desk.actions.list(ADMIN, operation=BULK)).records
    return item


async def test_a_chain_that_is_gone_is_found_by_what_was_written_down_elsewhere(desk: Desk, tmp_path: Path) -> None:
    await desk.audit.append(scope="acme", actor="olga", action="look", target="x", reason=WHY)
    place = tmp_path / "anchors"
    desk.actions.anchor = str(place)
    (report,) = await desk.actions.verify_audit(ADMIN)
    assert (report.is_whole, report.anchors) == (True, 0)
    write_anchors(place, [*await desk.audit.seal(), Anchor("globex", 3, "ab" * 32, 1)])
    (report,) = await desk.actions.verify_audit(ADMIN)
    assert ([fault.scope for fault in report.faults], report.anchors) == (["globex"], 2)
    (report,) = await desk.actions.verify_audit(ACME)
    assert (report.is_whole, report.anchors) == (True, 1)
