"""The audit chain as operators' tools use it: appending, actions with two ends, lists, redaction, retention."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from semel import AsyncSemel, Semel
from semel.core.flow import Flow, ask
from semel.core.operators.audit import AppendEntry, KeepFrom, ReadEntries, RedactEntry
from semel.core.operators.chain import StoredEntry, hash_entry, name_chain
from semel.core.operators.verification import EXPIRE
from semel.engine.engine import engine_of
from semel.errors import NotResolvable, RecordNotFound, StoreUnavailable, UsageError
from semel.server.audit import Anchor, Audit, AuditEntry, read_anchors, write_anchors
from semel.server.audit.flows import SEAL_AFTER, AuditFlows, NewEntry
from semel.server.audit.recording import name_redrive
from semel.stores.memory import MemoryStore
from semel.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock=clock.store_clock)


@pytest.fixture
async def audit(store: MemoryStore, clock: VirtualClock) -> AsyncIterator[Audit]:
    async with AsyncSemel(store, clock=clock) as semel:
        yield Audit(semel)


async def append(audit: Audit, **changes: Any) -> AuditEntry:
    fields: dict[str, Any] = {"scope": "acme", "actor": "ann", "action": "resolve", "target": "r1", "reason": "why"}
    return await audit.append(**{**fields, **changes})


async def listed(audit: Audit, **asked: Any) -> list[AuditEntry]:
    return [entry async for entry in audit.entries(**asked)]


async def test_an_entry_is_given_as_it_is_listed(audit: Audit) -> None:
    entry = await append(audit, outcome="done", detail={"force": "yes"})
    assert await listed(audit) == [entry]
    assert (entry.seq, entry.reason, entry.detail, entry.phase) == (1, "why", {"force": "yes"}, "whole")


class Interfering(MemoryStore):
    """Calls `before` once, before entries are read for the first time."""

    before: Any = None

    def plan(self, operations: Any, *, joined: bool) -> Any:
        if self.before is not None and any(isinstance(one, ReadEntries) for one in operations):
            before, self.before = self.before, None
            before()
        return (yield from super().plan(operations, joined=joined))


def interfering(clock: VirtualClock) -> tuple[Interfering, Any, AsyncSemel]:
    """A store, how somebody else asks it in the middle of what is looked at, and an engine on it."""
    store = Interfering(clock=clock.store_clock)
    other = Semel(store, clock=clock)
    return store, lambda flow: engine_of(other).perform_on(None, flow), AsyncSemel(store, clock=clock)


async def test_what_is_redacted_while_the_chain_is_looked_at_is_no_fault(clock: VirtualClock) -> None:
    store, perform, semel = interfering(clock)
    audit = Audit(semel)
    for _ in range(3):
        await append(audit)

    def redact() -> None:
        flows = AuditFlows(engine_of(semel), bytes)
        perform(flows.redact("acme", 2, actor="ann", reason="a name was in it"))

    store.before = redact
    assert (await audit.verify()).faults == ()


async def test_what_is_taken_out_behind_the_chain_is_a_fault_however_busy_the_chain_is(clock: VirtualClock) -> None:
    store, perform, semel = interfering(clock)
    audit = Audit(semel)
    for _ in range(3):
        await append(audit)
    perform(_asking(RedactEntry(name_chain("acme"), 2)))
    flows = AuditFlows(engine_of(semel), bytes)
    looks = 0

    def go_on() -> None:
        nonlocal looks
        looks += 1
        perform(flows.append(NewEntry("acme", "ann", "resolve", "r2", "why", "done")))
        store.before = go_on

    store.before = go_on
    (fault,) = (await audit.verify()).faults
    assert (fault.seq, fault.kind) == (2, "edit")
    assert looks == 2, "once more, and not for ever"


@pytest.mark.parametrize("at_once", [3, 100])
@pytest.mark.parametrize("looks_before", [2, 3])
async def test_what_an_expiry_deletes_while_the_chain_is_looked_at_is_no_fault(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, looks_before: int, at_once: int
) -> None:
    monkeypatch.setattr("semel.server.audit.flows._PAGE", 2)
    store, perform, semel = interfering(clock)
    audit = Audit(semel)
    for _ in range(9):
        await append(audit)
    await audit.seal()
    await append(audit, action=EXPIRE, target="10")
    looks = 0

    def drop(most: int) -> None:
        perform(_asking(KeepFrom(name_chain("acme"), 10, most)))

    def count_looks() -> None:
        nonlocal looks
        looks += 1
        if looks <= looks_before:
            store.before = count_looks
        else:
            drop(at_once)

    drop(1)
    store.before = count_looks
    assert (await audit.verify()).faults == ()
    left = [entry.seq async for entry in audit.entries() if entry.seq < 10]
    assert len(left) == max(0, 8 - at_once), "the others were deleted meanwhile"


def _asking(operation: Any) -> Flow[Any]:
    return (yield from ask(operation))


def test_what_the_hash_covers_does_not_change_between_releases() -> None:
    entry = StoredEntry(
        scope="acme",
        seq=3,
        id=bytes(16),
        at_us=1_700_000_000_000_001,
        phase=0,
        ends=0,
        actor="ann",
        action="resolve",
        target="r1",
        outcome="done",
        written=None,
        written_hash=bytes(32),
        previous=bytes(range(32)),
        hash=b"",
    )
    numbers = [number.to_bytes(8, "big") for number in (3, 1_700_000_000_000_001, 0, 0)]
    fields = [b"semel audit entry 1", bytes(range(32)), b"acme", numbers[0], bytes(16), *numbers[1:]]
    fields += [b"ann", b"resolve", b"r1", b"done", bytes(32)]
    written = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    assert hash_entry(entry) == hashlib.sha256(written).digest()


@pytest.mark.parametrize("moved", [("annr", "esolve"), ("an", "nresolve")])
async def test_a_border_between_fields_cannot_be_moved(audit: Audit, moved: tuple[str, str]) -> None:
    first, second = await append(audit), await append(audit, actor=moved[0], action=moved[1])
    assert first.hash != second.hash


@pytest.mark.parametrize(
    "wrong",
    [
        {"actor": " "},
        {"action": ""},
        {"actor": "x" * 201},
        {"target": "x" * 256},
        {"reason": "x" * 2001},
        {"reason": "a\0b"},
        {"detail": {"x": "y" * 1001}},
        {"detail": {"": "y"}},
        {"detail": {str(number): "" for number in range(33)}},
        {"reason": None},
    ],
    ids=str,
)
async def test_what_cannot_be_kept_is_refused_before_anything_happens(audit: Audit, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing was appended"):
        await append(audit, **wrong)
    assert await listed(audit) == []


async def test_a_store_without_a_chain_is_refused_when_it_is_named() -> None:
    async with AsyncSemel("redis://localhost:1") as semel:
        with pytest.raises(UsageError, match="Use PostgreSQL, MySQL, MariaDB or SQLite"):
            Audit(semel)


async def test_an_action_has_an_entry_before_and_one_after_it(audit: Audit) -> None:
    async with audit.record(scope="acme", actor="ann", action="fail", target="r1", reason="why") as action:
        (begun,) = await listed(audit)
        assert (begun.phase, begun.is_open, begun.reason) == ("begun", True, "why")
        action.outcome = "failed it"
        action.detail["attempts"] = "3"
    ended, begun = await listed(audit)
    assert (begun.phase, begun.is_open) == ("begun", False)
    assert (ended.phase, ended.begun, ended.outcome) == ("ended", begun.seq, "failed it")
    assert ended.detail == {"attempts": "3"}


async def test_an_action_that_is_refused_says_so_without_the_text_of_the_error(audit: Audit) -> None:
    with pytest.raises(NotResolvable):
        async with audit.record(scope="acme", actor="ann", action="fail", target="r1", reason=""):
            raise NotResolvable("patient-7 is running")
    ended, _ = await listed(audit)
    assert ended.outcome == "refused: not_resolvable"
    assert "patient" not in repr(ended)


async def test_an_action_whose_store_did_not_answer_may_have_been_done(audit: Audit) -> None:
    with pytest.raises(StoreUnavailable):
        async with audit.record(scope="acme", actor="ann", action="fail", target="r1", reason=""):
            raise StoreUnavailable("no answer")
    assert [entry.outcome for entry in await listed(audit)] == ["unknown: store_unavailable", ""]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("processed", "done"),
        ("duplicate", "done"),
        ("ignored", "done"),
        ("unavailable", "unknown: unavailable"),
        ("in_progress", "refused: in_progress"),
        ("rejected", "failed: rejected"),
    ],
)
def test_a_redrive_is_done_only_where_its_event_is_processed(status: str, outcome: str) -> None:
    assert name_redrive(status) == outcome


async def test_an_action_that_fails_is_named_by_its_kind(audit: Audit) -> None:
    with pytest.raises(ZeroDivisionError):
        async with audit.record(scope="acme", actor="ann", action="fail", target="r1", reason=""):
            raise ZeroDivisionError
    assert [entry.outcome for entry in await listed(audit)] == ["failed: ZeroDivisionError", ""]


class Failing(MemoryStore):
    """A store that refuses some entries."""

    refused = 0
    lost = 0

    def apply(self, operations: Any) -> Any:
        if isinstance(operations[0], AppendEntry):
            if self.refused:
                return [StoreUnavailable("down", asked=False)] * len(operations)
            if self.lost:
                self.lost -= 1
                super().apply(operations)
                return [StoreUnavailable("lost", asked=True)] * len(operations)
        return super().apply(operations)


async def test_without_an_entry_nothing_is_done() -> None:
    store = Failing()
    store.refused = 1
    async with AsyncSemel(store) as semel:
        audit, ran = Audit(semel), []
        with pytest.raises(StoreUnavailable):
            async with audit.record(scope="", actor="ann", action="fail", target="r1", reason=""):
                ran.append("ran")
        assert ran == []


async def test_an_end_that_cannot_be_recorded_leaves_the_action_open(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing()
    async with AsyncSemel(store) as semel:
        audit = Audit(semel)
        with caplog.at_level(logging.ERROR, "semel.audit"):
            async with audit.record(scope="", actor="ann", action="fail", target="r1", reason=""):
                store.refused = 1
        store.refused = 0
        (entry,) = await listed(audit, only_open=True)
        assert entry.target == "r1"
    assert "not in the audit chain" in caplog.text


async def test_an_entry_whose_reply_is_lost_is_appended_once() -> None:
    store = Failing()
    store.lost = 2
    async with AsyncSemel(store) as semel:
        audit = Audit(semel)
        entry = await append(audit)
        assert await listed(audit) == [entry]


async def test_entries_are_listed_page_by_page(audit: Audit) -> None:
    for number in range(230):
        await append(audit, target=str(number))
    everything = await listed(audit)
    assert [entry.target for entry in everything] == [str(number) for number in reversed(range(230))]
    assert await listed(audit, limit=7) == everything[:7]
    assert await listed(audit, before=everything[100].place) == everything[101:]


async def test_a_list_can_be_of_several_scopes_and_before_a_moment(audit: Audit, clock: VirtualClock) -> None:
    first = await append(audit, scope="a")
    clock.advance(1)
    second = await append(audit, scope="b")
    await append(audit, scope="c")
    assert await listed(audit, scope=["a", "b"]) == [second, first]
    assert await listed(audit, scope="a") == [first]
    assert await listed(audit, before=second.at) == [first]


@pytest.mark.parametrize(
    "place", ["x", "", f"{'9' * 22}-1-00", f"1-{'9' * 22}-00", "1_0-1-00", "\u0661-1-00", "1-1-0", "1-1-" + "00" * 65]
)
async def test_a_place_that_is_none_is_refused(audit: Audit, place: str) -> None:
    with pytest.raises(UsageError, match="no place in the audit chain"):
        await listed(audit, before=place)


async def test_a_chain_is_sealed_once_enough_entries_are_not(audit: Audit) -> None:
    for _ in range(SEAL_AFTER + 1):
        await append(audit)
    assert (await audit.verify()).sealed == SEAL_AFTER


async def test_a_chain_is_sealed_by_the_first_entry_after_a_minute(audit: Audit, clock: VirtualClock) -> None:
    await append(audit)
    assert (await audit.verify()).sealed == 0
    clock.advance(60)
    await append(audit)
    assert (await audit.verify()).sealed == 2


async def test_what_a_person_wrote_is_taken_out_and_the_chain_says_who_did_that(audit: Audit) -> None:
    entry = await append(audit, reason="patient-7 called", detail={"name": "Ann"})
    said = await audit.redact(scope="acme", seq=entry.seq, actor="dpo", reason="request 17")
    assert (said.action, said.target, said.actor) == ("audit.redact", "1", "dpo")
    _, redacted = await listed(audit)
    assert (redacted.reason, redacted.detail) == (None, {})
    assert (await audit.verify()).is_whole
    with pytest.raises(RecordNotFound):
        await audit.redact(scope="acme", seq=entry.seq, actor="dpo", reason="again")


async def test_old_entries_go_up_to_a_seal_and_the_chain_says_so(audit: Audit, clock: VirtualClock) -> None:
    await append(audit)
    await append(audit)
    await audit.seal()
    clock.advance(timedelta(days=400))
    await append(audit)
    assert await audit.expire(older_than=timedelta(days=365), actor="ann", reason="retention") == 2
    assert [entry.action for entry in await listed(audit)] == ["audit.expire", "resolve"]
    report = await audit.verify()
    assert report.is_whole
    assert await audit.expire(older_than=timedelta(days=365), actor="ann", reason="retention") == 0
    assert len(await listed(audit)) == 2, "nothing is said where nothing goes"


async def test_anchors_are_written_once_and_read_again(audit: Audit, tmp_path: Path) -> None:
    file = tmp_path / "anchors"
    await append(audit)
    assert write_anchors(file, await audit.seal()) == 1
    assert write_anchors(file, await audit.seal()) == 0
    await append(audit, scope="größe")
    assert write_anchors(file, await audit.seal()) == 1
    anchors = read_anchors(file)
    assert [anchor.scope for anchor in anchors] == ["acme", "größe"]
    assert (await audit.verify(anchors=anchors)).is_whole


@pytest.mark.parametrize("text", ["{}", "nothing", '{"scope": 1, "seq": 1, "hash": ""}'])
def test_a_line_that_is_no_anchor_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "anchors"
    write_anchors(file, [Anchor("a", 1, "00")])
    with file.open("a") as written:
        written.write(text + "\n")
    with pytest.raises(UsageError, match="Line 2"):
        read_anchors(file)


@pytest.mark.parametrize("length", [1, 40, -1, 0])
def test_a_line_that_was_cut_off_keeps_no_anchor_from_being_read_or_written(tmp_path: Path, length: int) -> None:
    file = tmp_path / "anchors"
    first, second, third = (Anchor("a", number, f"{number:064x}") for number in (1, 2, 3))
    write_anchors(file, [first])
    line = msgspec.json.encode(second)
    with file.open("ab") as written:
        written.write(line[: length or None])
    is_whole = length == 0  # but for its end
    assert read_anchors(file) == [first, *([second] if is_whole else [])]
    assert write_anchors(file, [first, second, third]) == (1 if is_whole else 2)
    assert read_anchors(file) == [first, second, third]


def test_anchors_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_anchors(tmp_path / "missing")
