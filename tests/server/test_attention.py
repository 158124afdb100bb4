"""What needs a person, and what does not yet."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from semel import AsyncSemel, Policy
from semel.batch import Batches
from semel.batch.batches import Batch
from semel.core.batch.operations import BeginRun
from semel.core.events.letters import Letter, PutLetter, letter_id
from semel.core.flow import Flow, ask
from semel.core.key import SHARED
from semel.core.operations import Operation, ReadHistory, RegisterWorker, Scan
from semel.core.record import PROCESS_BYTES, Holder
from semel.core.store import Plan
from semel.engine.engine import engine_of, this_worker
from semel.security import Keyring
from semel.server import console_app
from semel.server.access import User
from semel.server.attention import AttentionFinder, Needs, needs_of
from semel.server.engines import perform
from semel.stores.sealing.keyless import KeylessStore
from semel.stores.sqlite import SqliteStore
from tests.server.desk import ADMIN, OPERATOR, RECONCILED, RERUN, VIEWER, Desk, Site

pytestmark = pytest.mark.anyio


async def look(desk: Desk) -> Needs:
    return await AttentionFinder(desk.semel).look()


async def put_letter(desk: Desk, consumer: str, scope: str = "acme", record: bytes = b"r" * 32) -> None:
    letter = Letter(
        id=letter_id(consumer, record, b"{}"),
        consumer=consumer,
        scope=scope,
        record=record,
        reason="exhausted",
        type="t",
        subject=None,
        content=b"{}",
        readable=True,
        attempts=5,
        error=None,
        keep_us=10**12,
    )

    def put() -> Flow[object]:
        return (yield from ask(PutLetter(letter)))

    await perform(desk.semel, put())


async def test_nothing_needs_a_person_where_there_is_nothing(desk: Desk) -> None:
    await desk.completed()
    found = await look(desk)
    assert found.needs == ()
    assert found.not_looked_for == ()


async def test_a_held_doubt_needs_a_person_at_once_and_says_who_had_it(desk: Desk) -> None:
    def register() -> Flow[object]:
        return (yield from ask(RegisterWorker(this_worker())))

    await perform(desk.semel, register())
    record = await desk.in_doubt()
    (need,) = (await look(desk)).needs
    assert (need.kind, need.operation, need.policy, need.number) == ("in_doubt", "charge", "hold", 1)
    assert need.target == record.reference
    assert need.holder is not None
    assert need.holder.pid == os.getpid()
    assert "resolve" in need.suggestion


async def test_the_first_screen_says_where_nobody_knows_who_had_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_none(finder: AttentionFinder, records: object) -> dict[bytes, Holder]:
        return {}  # as where the process has given no sign for so long that it was forgotten

    monkeypatch.setattr(AttentionFinder, "_find_holders", find_none)
    await desk.in_doubt()
    transport = httpx.ASGITransport(console_app(desk.semel, user=lambda _: ADMIN))
    async with httpx.AsyncClient(transport=transport, base_url="http://semel.test") as client:
        page = (await client.get("/")).text
    assert "Last held by a process that the store does not know." in page


async def test_the_holders_of_many_operations_are_asked_for_together(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    for number in range(6):
        async with AsyncSemel(path) as semel:
            await leave_in_doubt(semel, f"ship-{number}")
            await leave_in_doubt(semel, f"bill-{number}")
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("DELETE FROM semel_worker")
        for number in range(6):
            process = number.to_bytes(PROCESS_BYTES, "big")
            rows.execute(
                "UPDATE semel_record SET nonce = CAST(? || substr(nonce, 7) AS BLOB) WHERE operation IN (?, ?)",
                (process, f"ship-{number}", f"bill-{number}"),
            )
            if number:
                row = (process, f"host-{number}", 100 + number, "1.0", 0, 0)
                rows.execute("INSERT INTO semel_worker VALUES (?, ?, ?, ?, ?, ?)", row)
    store = CountingStore(path)
    async with AsyncSemel(store) as semel:
        needs = (await AttentionFinder(semel).look()).needs
    hosts = {need.operation: need.holder.host if need.holder else None for need in needs}
    assert hosts == {
        f"{name}-{number}": f"host-{number}" if number else None for number in range(6) for name in ("ship", "bill")
    }
    assert sum(store.histories) == 6
    assert len(store.histories) <= 2


class CountingStore(SqliteStore):
    """Notes how many histories it is asked for at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.histories: list[int] = []

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands."""
        if isinstance(operations[0], ReadHistory):
            self.histories.append(len(operations))
        return super().plan(operations, joined=joined)


async def leave_in_doubt(semel: AsyncSemel, operation: str, key: str = "k", scope: object = SHARED) -> None:
    """Have an operation end without a known outcome."""

    async def fail() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await semel.run(key, fail, operation=operation, scope=scope, fingerprint=None, policy=Policy(in_doubt="hold"))


async def test_a_doubt_to_be_reconciled_needs_one_once_its_hook_could_not_tell(desk: Desk) -> None:
    await desk.running(policy=RECONCILED)
    desk.clock.advance(3600)
    await desk.semel.sweep()
    (need,) = (await look(desk)).needs
    assert need.policy == "reconcile"
    assert "could not tell" in need.why


async def test_a_doubt_whose_hook_was_not_asked_needs_nobody_yet(desk: Desk) -> None:
    await desk.running(policy=RECONCILED)
    desk.clock.advance(3600)
    without_hooks = AsyncSemel(engine_of(desk.semel).store, clock=desk.clock)
    await without_hooks.sweep()
    assert (await desk.read("running")).status == "in_doubt"
    assert (await look(desk)).needs == ()


@pytest.mark.parametrize("keys", ["the same", "others", "none", "none, by a command"])
async def test_a_doubt_whose_key_is_not_at_hand_is_not_taken_for_one_that_waits_for_its_hook(
    tmp_path: Path, keys: str
) -> None:
    path, ring = tmp_path / "semel.db", Keyring(active="k", keys={"k": bytes(range(32))})

    async def fail() -> None:
        raise TimeoutError

    async with AsyncSemel(path, seal=ring) as semel:
        with pytest.raises(TimeoutError):
            await semel.run("k", fail, operation="charge", fingerprint=None, policy=RECONCILED)
        assert (await semel.sweep()).held == 1
    seen: dict[str, AsyncSemel] = {
        "the same": AsyncSemel(path, seal=ring),
        "others": AsyncSemel(path, seal=Keyring(active="o", keys={"o": bytes(range(1, 33))})),
        "none": AsyncSemel(path),
        "none, by a command": AsyncSemel(KeylessStore(SqliteStore(path))),
    }
    async with seen[keys] as semel:
        (need,) = (await AttentionFinder(semel).look()).needs
    assert ("could not tell" if keys == "the same" else "the key is not known here") in need.why


async def test_a_doubt_that_may_run_again_needs_one_after_a_quarter_of_an_hour(desk: Desk) -> None:
    await desk.in_doubt(policy=RERUN)
    assert (await look(desk)).needs == ()
    desk.clock.advance(899)
    assert (await look(desk)).needs == ()
    desk.clock.advance(1)
    (need,) = (await look(desk)).needs
    assert (need.policy, need.number) == ("rerun", 1)


async def test_doubts_are_grouped_by_operation_and_policy_with_the_oldest(desk: Desk) -> None:
    first = await desk.in_doubt("first")
    for number in range(3):
        await desk.in_doubt(f"later {number}")
    (need,) = (await look(desk)).needs
    assert (need.number, need.target, need.is_exact) == (4, first.reference, True)


async def test_dead_letters_are_counted_by_consumer(desk: Desk) -> None:
    await put_letter(desk, "billing")
    await put_letter(desk, "billing", record=b"s" * 32)
    await put_letter(desk, "shipping")
    needs = {need.operation: need.number for need in (await look(desk)).needs}
    assert needs == {"billing": 2, "shipping": 1}


async def test_a_paused_batch_needs_a_person(desk: Desk) -> None:
    batch = await start_batch(desk)
    await batch.pause("the bank is closed")
    (need,) = (await look(desk)).needs
    assert (need.kind, need.operation, need.target, need.scope) == ("paused_batch", "pay", "payroll", "acme")
    assert need.why == "the bank is closed"


async def start_batch(desk: Desk) -> Batch[AsyncSemel]:
    """A batch that runs, of which nothing has ended."""
    batch = await Batches(desk.semel, "acme").start("payroll", [{"id": "a"}], operation="pay", item_id="id")

    def begin() -> Flow[object]:
        return (yield from ask(BeginRun(batch._batch.number, 10)))

    await perform(desk.semel, begin())
    return batch


async def test_who_paused_a_batch_is_told_to_those_who_may_read_the_chain(desk: Desk) -> None:
    await start_batch(desk)
    await desk.actions.pause_batch(OPERATOR, "acme", "payroll", reason=" the bank is closed ")
    (need,) = (await needs_of(desk.actions, ADMIN)).needs
    assert need.paused_by == OPERATOR.name
    (need,) = (await needs_of(desk.actions, VIEWER)).needs
    assert need.paused_by == ""


async def test_who_paused_a_batch_at_the_command_line_is_told(desk: Desk) -> None:
    batch = await start_batch(desk)
    written = desk.audit.record(
        scope="acme", actor="root@host", action="batch pause", target="batch:payroll", reason="the bank is closed"
    )
    async with written:
        await batch.pause("the bank is closed")
    (need,) = (await needs_of(desk.actions, ADMIN)).needs
    assert need.paused_by == "root@host"


async def test_nobody_is_named_for_a_pause_that_is_not_in_the_chain(desk: Desk) -> None:
    batch = await start_batch(desk)
    await desk.actions.pause_batch(OPERATOR, "acme", "payroll", reason="the bank is closed")
    await desk.actions.resume_batch(OPERATOR, "acme", "payroll", reason="it is open")
    await batch.pause("the bank is closed")
    (need,) = (await needs_of(desk.actions, ADMIN)).needs
    assert need.paused_by == ""


async def test_who_paused_is_told_after_items_were_retried(desk: Desk) -> None:
    await start_batch(desk)
    await desk.actions.pause_batch(OPERATOR, "acme", "payroll", reason="the bank is closed")
    await desk.actions.retry_batch(ADMIN, "acme", "payroll", "failed", reason="try them")
    (need,) = (await needs_of(desk.actions, ADMIN)).needs
    assert need.paused_by == OPERATOR.name


async def test_a_user_is_shown_what_is_in_their_scopes_alone(desk: Desk) -> None:
    await desk.in_doubt("one", scope="acme")
    await desk.in_doubt("two", scope="globex")
    await put_letter(desk, "billing", scope="globex")
    acme = User("anna", {"viewer"}, scopes={"acme"})
    assert (await needs_of(desk.actions, acme)).number == 1
    assert (await needs_of(desk.actions, VIEWER)).number == 3


async def test_what_was_not_looked_at_to_its_end_is_never_called_nothing(desk: Desk) -> None:
    for number in range(3):
        await desk.running(f"young-{number}", policy=RERUN)
    desk.clock.advance(60)
    await desk.semel.sweep()
    found = await AttentionFinder(desk.semel, most=2).look()
    assert (found.needs, found.cut) == ((), ("in_doubt",))
    assert (await AttentionFinder(desk.semel, most=3).look()).cut == ()


async def test_the_api_says_what_was_not_looked_at_to_its_end(
    desk: Desk, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.attention.MOST_ON_A_PAGE", 2)
    for number in range(3):
        await desk.running(f"young-{number}", policy=RERUN)
    desk.clock.advance(60)
    await desk.semel.sweep()
    told = (await site.get("/attention")).json()
    assert (told["needs"], told["number"], told["cut"]) == ([], 0, ["in_doubt"])


async def test_the_api_says_why_letters_are_there(desk: Desk, site: Site) -> None:
    await put_letter(desk, "billing", "acme")
    (need,) = (await site.get("/attention")).json()["needs"]
    assert (need["kind"], need["cause"]) == ("dead_letter", "exhausted")


@pytest.mark.parametrize("page", [1, 2, 500])
async def test_the_oldest_are_looked_at_whichever_scope_they_are_of(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("semel.server.attention._PAGE", page)
    first = await desk.in_doubt("first", scope="b")
    for number in range(4):
        await desk.in_doubt(f"later {number}", scope="a")
    await desk.in_doubt("last", scope="c")
    finder = AttentionFinder(desk.semel, most=4)
    (need,) = (await finder.look({"a", "b", "c"})).needs
    assert (need.target, need.scope, need.number, need.is_exact) == (first.reference, "b", 4, False)
    (everywhere,) = (await finder.look()).needs
    assert (everywhere.target, everywhere.number) == (need.target, need.number)


async def test_the_oldest_letters_are_looked_at_whichever_scope_they_are_of(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.attention.MOST_ON_A_PAGE", 2)
    for number, (scope, consumer) in enumerate([("b", "old"), ("a", "billing"), ("a", "billing")]):
        desk.clock.advance(60)
        await put_letter(desk, consumer, scope, record=bytes([number]) * 32)
    found = await AttentionFinder(desk.semel).look({"a", "b"})
    assert [(need.operation, need.number) for need in found.needs] == [("old", 1), ("billing", 1)]
    assert found.cut == ("dead_letter",)


async def test_the_oldest_paused_batches_are_looked_at_whichever_scope_they_are_of(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.attention.MOST_ON_A_PAGE", 2)
    for name, scope, operation in (("1", "b", "old"), ("2", "a", "pay"), ("3", "a", "pay")):
        batch = await Batches(desk.semel, scope).start(name, [{"id": "1"}], operation=operation, item_id="id")
        await batch.pause("wait")
    found = await AttentionFinder(desk.semel).look({"a", "b"})
    assert [(need.operation, need.number) for need in found.needs] == [("old", 1), ("pay", 1)]
    assert found.cut == ("paused_batch",)


async def test_for_many_scopes_not_many_more_are_read_than_are_looked_at(tmp_path: Path) -> None:
    store = ReadingStore(tmp_path / "shop.db")
    async with AsyncSemel(store) as semel:
        for number in range(30):
            await leave_in_doubt(semel, "ship", f"k{number}", scope=f"scope-{number % 3}")
        await AttentionFinder(semel, most=12).look({"scope-0", "scope-1", "scope-2"})
    assert sum(store.limits) <= 12 + 3 * 10 + 3


class ReadingStore(SqliteStore):
    """Notes how many records in doubt it is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.limits: list[int] = []

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands."""
        self.limits += [one.limit for one in operations if isinstance(one, Scan)]
        return super().plan(operations, joined=joined)


async def test_operations_whose_hook_is_not_known_here_are_named(desk: Desk) -> None:
    await desk.in_doubt("asked", policy=RECONCILED)
    assert (await look(desk)).without_hook == ()
    stranger = AsyncSemel(engine_of(desk.semel).store, clock=desk.clock)
    assert (await AttentionFinder(stranger).look()).without_hook == ("charge",)


async def test_letters_of_two_reasons_are_two_needs_that_say_which(desk: Desk) -> None:
    await put_letter(desk, "billing")
    (need,) = (await look(desk)).needs
    assert need.cause == "exhausted"
