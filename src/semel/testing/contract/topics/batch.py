"""Batches: loaded once and whole, worked on page by page, counted without drifting, and deleted with their records."""

from __future__ import annotations

from typing import Any

import pytest

from semel.core.batch.operations import (
    AbandonLoad,
    AddItems,
    BatchChangedState,
    BatchesFound,
    BatchFound,
    BeginRun,
    ChangeBatch,
    ClaimItems,
    DropItems,
    DuplicateItems,
    EndBatch,
    EraseItems,
    ExpiredBatches,
    FindItems,
    FindPages,
    FindSubject,
    FinishLoad,
    FinishPage,
    ForgetItems,
    HeldBatches,
    ItemEnd,
    ItemsAdded,
    ItemsClaimed,
    ItemsErased,
    ItemsForgotten,
    ItemsFound,
    ItemsSettled,
    ListBatches,
    LoadAbandoned,
    LoadLost,
    NoteBatch,
    OpenBatch,
    PageFinished,
    PagesFound,
    PageTaken,
    PlacesFound,
    RateReserved,
    ReadBatch,
    ReadItems,
    ReopenItems,
    ReserveRate,
    SettleItems,
    TakePage,
)
from semel.core.batch.values import KEPT_US, BatchPage, ItemStatus, NewItem, State, StoredBatch, StoredItem, item_key
from semel.core.operations import Claim, Complete, Fail, Found, Granted, Lost, Purge, Read, Recorded, SweepCount, Terms
from semel.core.record import NOTHING, Failure
from semel.core.store import Capability
from semel.testing.contract.suite import Contract
from semel.testing.contract.topics.erasing import VALUE
from semel.testing.contract.world import World

DAY = 86_400
DAY_US = DAY * 1_000_000
COMPLETED, FAILED, SKIPPED, IN_DOUBT = (
    ItemStatus.COMPLETED,
    ItemStatus.FAILED,
    ItemStatus.SKIPPED,
    ItemStatus.IN_DOUBT,
)
_TERMS = Terms(30_000_000, KEPT_US, "rerun", 30_000_000)


def _token(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def _ask(world: World, operation: Any, kind: type[Any]) -> Any:
    (answer,) = await world.perform(operation)
    assert isinstance(answer, kind), f"not the answer to {type(operation).__name__}: {answer}"
    return answer


async def _open(world: World, token: int = 1, **changes: Any) -> StoredBatch:
    fields: dict[str, Any] = {"scope": "", "id": "b", "operation": "pay", "metadata": b'{"a":1}', "keep_us": DAY_US}
    found: BatchFound = await _ask(world, OpenBatch(**{**fields, **changes}, token=_token(token)), BatchFound)
    assert found.batch is not None
    return found.batch


def _items(first: int, end: int, **changes: Any) -> tuple[NewItem, ...]:
    return tuple(NewItem(n, f"i{n}", b'{"n":%d}' % n, **changes) for n in range(first, end))


async def _add(world: World, batch: StoredBatch, first: int, end: int, *, token: int = 1, **changes: Any) -> Any:
    adding = AddItems(batch.number, _token(token), first, end - first, _items(first, end, **changes))
    (answer,) = await world.perform(adding)
    return answer


async def _load(world: World, count: int = 7, **changes: Any) -> StoredBatch:
    batch = await _open(world, **changes)
    assert await _add(world, batch, 0, count) == ItemsAdded(count)
    finish = FinishLoad(batch.number, _token(1), count, bytes(range(32)))
    found: BatchFound = await _ask(world, finish, BatchFound)
    assert found.batch is not None
    return found.batch


async def _run(world: World, count: int = 7, page: int = 3, **changes: Any) -> StoredBatch:
    batch = await _load(world, count, **changes)
    found: BatchFound = await _ask(world, BeginRun(batch.number, page), BatchFound)
    assert found.batch is not None
    return found.batch


async def _read(world: World, id_: str = "b", scope: str = "") -> BatchFound:
    found: BatchFound = await _ask(world, ReadBatch(scope, id_), BatchFound)
    return found


async def _state(world: World) -> State:
    batch = (await _read(world)).batch
    assert batch is not None
    return batch.state


async def _read_items(world: World, batch: StoredBatch, **asked: Any) -> tuple[StoredItem, ...]:
    found: ItemsFound = await _ask(world, ReadItems(batch.number, **{"first": 0, "end": 100, **asked}), ItemsFound)
    return found.items


async def _take(world: World, batch: StoredBatch) -> PageTaken:
    taken: PageTaken = await _ask(world, TakePage(batch.number), PageTaken)
    return taken


async def _take_all(world: World, batch: StoredBatch) -> list[BatchPage]:
    pages: list[BatchPage] = []
    while (page := (await _take(world, batch)).page) is not None:
        pages.append(page)
    return pages


async def _note(world: World, batch: StoredBatch, page: int, **ends: int) -> None:
    """Note what became of items, such as `i3=COMPLETED`."""
    rows = tuple(ItemEnd(int(name[1:]), status) for name, status in ends.items())
    await _ask(world, SettleItems(batch.number, page, rows), ItemsSettled)


async def _statuses(world: World, batch: StoredBatch) -> list[int]:
    return [item.status for item in await _read_items(world, batch)]


async def _check_counts(world: World, batch: StoredBatch) -> tuple[int, int, int, int]:
    """The counts, which are those of the rows."""
    counts = (await _read(world, batch.id)).counts
    told = (counts.completed, counts.failed, counts.skipped, counts.in_doubt)
    statuses = await _statuses(world, batch)
    assert told == tuple(statuses.count(kind) for kind in (COMPLETED, FAILED, SKIPPED, IN_DOUBT)), "counts drifted"
    return told


async def _pages(world: World, batch: StoredBatch, which: Any = "open", after: int = -1) -> tuple[BatchPage, ...]:
    found: PagesFound = await _ask(world, FindPages(batch.number, which, after, 100), PagesFound)
    return found.pages


async def _finish(world: World, batch: StoredBatch, page: int, round_: int = 0) -> bool:
    finished: PageFinished = await _ask(world, FinishPage(batch.number, page, round_), PageFinished)
    return finished.is_done


async def _change(world: World, batch: StoredBatch, to: Any, **settings: Any) -> BatchChangedState:
    asked = ChangeBatch(number=batch.number, to=to, **settings)
    changed: BatchChangedState = await _ask(world, asked, BatchChangedState)
    return changed


async def _held(world: World, after: int = 0, limit: int = 10) -> list[str]:
    held: BatchesFound = await _ask(world, HeldBatches(after, limit), BatchesFound)
    return [batch.id for batch in held.batches]


async def _complete_all(world: World, batch: StoredBatch) -> None:
    for page in await _take_all(world, batch):
        first = page.page * batch.page
        ends = {f"i{n}": COMPLETED for n in range(first, min(first + batch.page, batch.total))}
        await _note(world, batch, page.page, **ends)
        assert await _finish(world, batch, page.page)
    await _ask(world, EndBatch(batch.number), BatchFound)


def _claim(item: str, nonce: int) -> Claim:
    key = item_key("", "pay", "b", item)
    return Claim(key, b"\x01" + bytes(32), nonce.to_bytes(16, "big"), _TERMS, NOTHING)


class BatchContract(Contract, calls=False):
    """What a store with `Capability.BATCH` does for batches."""

    async def test_a_store_with_batches_says_so(self, world: World) -> None:
        assert Capability.BATCH in world.store().capabilities

    async def test_a_batch_is_read_as_it_was_begun(self, world: World) -> None:
        batch = await _open(world, id="größe", scope="acme", metadata=b'{"by":"x"}')
        assert (batch.id, batch.scope, batch.operation, batch.state) == ("größe", "acme", "pay", "loading")
        assert (batch.metadata, batch.keep_us, batch.loaded, batch.total) == (b'{"by":"x"}', DAY_US, 0, 0)
        assert (await _read(world, "größe", "acme")).batch == batch

    async def test_a_batch_of_another_scope_is_another_one(self, world: World) -> None:
        await _open(world)
        assert (await _read(world, "b", "acme")).batch is None

    async def test_items_are_read_as_they_were_added(self, world: World) -> None:
        batch = await _open(world)
        items = (
            NewItem(0, "plain", b"{}"),
            NewItem(1, "größe/1", b'"\xc3\xbc"', b'{"subject":"s"}', "s"),
            NewItem(2, "empty", b""),
        )
        await _ask(world, AddItems(batch.number, _token(1), 0, 3, items), ItemsAdded)
        found = await _read_items(world, batch)
        assert [(i.position, i.id, i.data, i.about, i.status, i.outcome, i.is_erased) for i in found] == [
            (0, "plain", b"{}", None, 0, None, False),
            (1, "größe/1", b'"\xc3\xbc"', b'{"subject":"s"}', 0, None, False),
            (2, "empty", b"", None, 0, None, False),
        ]

    async def test_of_one_status_the_first_items_are_read_up_to_a_limit(self, world: World) -> None:
        batch = await _load(world, 7)
        pending = int(ItemStatus.PENDING)
        found = await _read_items(world, batch, status=pending, limit=3)
        assert [item.position for item in found] == [0, 1, 2]
        rest = await _read_items(world, batch, first=3, status=pending, limit=100)
        assert [item.position for item in rest] == [3, 4, 5, 6]
        assert await _read_items(world, batch, status=int(ItemStatus.FAILED), limit=3) == ()

    async def test_loading_goes_on_behind_what_is_there(self, world: World) -> None:
        batch = await _open(world)
        assert await _add(world, batch, 0, 3) == ItemsAdded(3)
        again = await _open(world, 2)
        assert (again.number, again.loaded) == (batch.number, 3)
        assert await _add(world, batch, 3, 5, token=2) == ItemsAdded(5)
        assert len(await _read_items(world, batch)) == 5

    async def test_whoever_was_overtaken_adds_nothing(self, world: World) -> None:
        batch = await _open(world)
        await _open(world, 2)
        assert await _add(world, batch, 0, 3) == LoadLost()
        assert await _read_items(world, batch) == ()

    async def test_a_lot_that_is_sent_again_is_added_once(self, world: World) -> None:
        batch = await _open(world)
        assert await _add(world, batch, 0, 3) == ItemsAdded(3)
        assert await _add(world, batch, 0, 3) == ItemsAdded(3)
        assert len(await _read_items(world, batch)) == 3

    async def test_a_lot_that_leaves_a_gap_is_refused(self, world: World) -> None:
        batch = await _open(world)
        assert await _add(world, batch, 3, 5) == LoadLost()

    async def test_an_item_that_is_there_refuses_its_whole_lot(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 3)
        twice = (NewItem(3, "new", b"1"), NewItem(4, "i1", b"1"))
        (answer,) = await world.perform(AddItems(batch.number, _token(1), 3, 2, twice))
        assert answer == DuplicateItems(("i1",))
        found = (await _read(world)).batch
        assert found is not None
        assert found.loaded == 3
        assert len(await _read_items(world, batch)) == 3

    async def test_a_lot_may_have_fewer_items_than_positions(self, world: World) -> None:
        batch = await _open(world)
        (answer,) = await world.perform(AddItems(batch.number, _token(1), 0, 3, _items(0, 1)))
        assert answer == ItemsAdded(3)
        (answer,) = await world.perform(AddItems(batch.number, _token(1), 3, 2, ()))
        assert answer == ItemsAdded(5)

    async def test_the_same_id_in_two_batches_is_two_items(self, world: World) -> None:
        await _load(world)
        other = await _load(world, id="c")
        assert len(await _read_items(world, other)) == 7

    async def test_what_is_loaded_is_taken_back_in_lots(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 7)
        loaded = []
        for _ in range(3):
            told: ItemsAdded = await _ask(world, DropItems(batch.number, _token(1), 2, 2), ItemsAdded)
            loaded.append(told.loaded)
        assert loaded == [5, 3, 2]
        assert len(await _read_items(world, batch)) == 2
        assert await _add(world, batch, 2, 4) == ItemsAdded(4)

    async def test_whoever_was_overtaken_takes_nothing_back(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 3)
        await _open(world, 2)
        await _ask(world, DropItems(batch.number, _token(1), 0, 10), LoadLost)
        assert len(await _read_items(world, batch)) == 3

    async def test_a_batch_without_items_may_be_begun_otherwise(self, world: World) -> None:
        await _open(world)
        assert (await _open(world, 2, operation="refund", metadata=b"2")).operation == "refund"

    async def test_a_batch_with_items_stays_what_it_was_begun_as(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 3)
        again = await _open(world, 2, operation="refund", metadata=b"2")
        assert (again.operation, again.metadata) == ("pay", b'{"a":1}')

    async def test_a_loaded_batch_is_pending_and_has_its_digest(self, world: World) -> None:
        batch = await _load(world)
        assert (batch.state, batch.total, batch.digest) == ("pending", 7, bytes(range(32)))

    async def test_finishing_again_answers_as_the_first_time(self, world: World) -> None:
        batch = await _load(world)
        finish = FinishLoad(batch.number, _token(1), 7, bytes(range(32)))
        assert (await _ask(world, finish, BatchFound)).batch == batch

    async def test_whoever_was_overtaken_finishes_nothing(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 3)
        await _open(world, 2)
        await _ask(world, FinishLoad(batch.number, _token(1), 3, bytes(32)), LoadLost)
        assert await _state(world) == "loading"

    async def test_nothing_is_added_to_a_loaded_batch(self, world: World) -> None:
        batch = await _load(world)
        assert await _add(world, batch, 7, 9) == LoadLost()
        assert (await _open(world, 2)).state == "pending"

    async def test_notes_are_replaced_only_as_they_were_seen(self, world: World) -> None:
        batch = await _load(world)
        await _ask(world, NoteBatch(batch.number, b"[]", b'["one"]'), BatchFound)
        await _ask(world, NoteBatch(batch.number, b"[]", b'["two"]'), BatchFound)
        found = (await _read(world)).batch
        assert found is not None
        assert found.notes == b'["one"]'

    async def test_batches_are_listed_by_scope_and_state(self, world: World) -> None:
        first, second = await _load(world), await _open(world, id="c")
        await _open(world, id="d", scope="acme")
        every: BatchesFound = await _ask(world, ListBatches("", None, 0, 10), BatchesFound)
        assert [batch.id for batch in every.batches] == ["b", "c"]
        pending: BatchesFound = await _ask(world, ListBatches("", "pending", 0, 10), BatchesFound)
        assert [batch.id for batch in pending.batches] == ["b"]
        later: BatchesFound = await _ask(world, ListBatches("", None, first.number, 10), BatchesFound)
        assert [batch.id for batch in later.batches] == ["c"]
        assert second.number > first.number
        one: BatchesFound = await _ask(world, ListBatches("", None, 0, 1), BatchesFound)
        assert [batch.id for batch in one.batches] == ["b"]

    async def test_batches_of_every_scope_are_listed_where_none_is_named(self, world: World) -> None:
        first = await _load(world)
        await _open(world, id="d", scope="acme")
        every: BatchesFound = await _ask(world, ListBatches(None, None, 0, 10), BatchesFound)
        assert [(batch.scope, batch.id) for batch in every.batches] == [("", "b"), ("acme", "d")]
        loading: BatchesFound = await _ask(world, ListBatches(None, "loading", 0, 10), BatchesFound)
        assert [batch.id for batch in loading.batches] == ["d"]
        later: BatchesFound = await _ask(world, ListBatches(None, None, first.number, 10), BatchesFound)
        assert [batch.id for batch in later.batches] == ["d"]

    @pytest.mark.parametrize("scope", ["", None], ids=["of one scope", "of all"])
    async def test_the_newest_batches_come_first_on_request(self, world: World, scope: str | None) -> None:
        await _load(world)
        middle = await _open(world, id="c")
        await _open(world, id="d")
        newest: BatchesFound = await _ask(world, ListBatches(scope, None, 0, 2, newest_first=True), BatchesFound)
        assert [batch.id for batch in newest.batches] == ["d", "c"]
        rest: BatchesFound = await _ask(
            world, ListBatches(scope, None, middle.number, 2, newest_first=True), BatchesFound
        )
        assert [batch.id for batch in rest.batches] == ["b"]
        loading: BatchesFound = await _ask(world, ListBatches(scope, "loading", 0, 9, newest_first=True), BatchesFound)
        assert [batch.id for batch in loading.batches] == ["d", "c"]

    @pytest.mark.parametrize("scope", ["", None], ids=["of one scope", "of all"])
    @pytest.mark.parametrize("state", ["loading", None])
    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_batches_of_one_operation_are_listed_alone(
        self, world: World, scope: str | None, state: State | None, *, newest_first: bool
    ) -> None:
        for id_, operation in (("c", "pay"), ("d", "refund"), ("e", "pay"), ("f", "refund"), ("g", "Pay")):
            await _open(world, id=id_, operation=operation)
        found: BatchesFound = await _ask(world, ListBatches(scope, state, 0, 2, newest_first, "pay"), BatchesFound)
        assert [batch.id for batch in found.batches] == (["e", "c"] if newest_first else ["c", "e"])
        after = found.batches[0].number
        rest: BatchesFound = await _ask(world, ListBatches(scope, state, after, 2, newest_first, "pay"), BatchesFound)
        assert [batch.id for batch in rest.batches] == (["c"] if newest_first else ["e"])

    async def test_items_are_found_by_their_ids(self, world: World) -> None:
        batch = await _load(world)
        found: ItemsFound = await _ask(world, FindItems(batch.number, ("i5", "nobody", "i2")), ItemsFound)
        assert [item.id for item in found.items] == ["i2", "i5"]

    async def test_the_first_run_says_how_large_a_page_is(self, world: World) -> None:
        batch = await _run(world, page=3)
        assert (batch.state, batch.page, batch.pages) == ("running", 3, 3)
        again: BatchFound = await _ask(world, BeginRun(batch.number, 5), BatchFound)
        assert again.batch is not None
        assert again.batch.page == 3

    async def test_every_page_is_handed_out_once(self, world: World) -> None:
        batch = await _run(world)
        assert await _take_all(world, batch) == [BatchPage(0, 0), BatchPage(1, 0), BatchPage(2, 0)]
        assert await _take(world, batch) == PageTaken(None, "running")
        assert await _pages(world, batch) == (BatchPage(0, 0), BatchPage(1, 0), BatchPage(2, 0))
        assert await _pages(world, batch, after=1) == (BatchPage(2, 0),)

    async def test_no_page_is_handed_out_of_a_batch_that_does_not_run(self, world: World) -> None:
        batch = await _load(world)
        assert await _take(world, batch) == PageTaken(None, "pending")
        await _change(world, batch, "paused")
        assert await _take(world, batch) == PageTaken(None, "paused")

    async def test_ends_are_noted_and_counted(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=COMPLETED, i1=FAILED, i2=SKIPPED)
        await _note(world, batch, 1, i3=IN_DOUBT)
        assert await _statuses(world, batch) == [1, 2, 3, 4, 0, 0, 0]
        assert await _check_counts(world, batch) == (1, 1, 1, 1)

    @pytest.mark.parametrize("before", [COMPLETED, SKIPPED])
    async def test_a_late_worker_changes_nothing_that_is_done(self, world: World, before: ItemStatus) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=before)
        for late in (FAILED, IN_DOUBT, COMPLETED, SKIPPED):
            await _note(world, batch, 0, i0=late)
        assert (await _statuses(world, batch))[0] == before
        await _check_counts(world, batch)

    async def test_a_failure_gives_way_to_a_success_alone(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=FAILED)
        await _note(world, batch, 0, i0=IN_DOUBT)
        assert await _check_counts(world, batch) == (0, 1, 0, 0)
        await _note(world, batch, 0, i0=COMPLETED)
        assert await _check_counts(world, batch) == (1, 0, 0, 0)

    async def test_an_outcome_without_a_record_is_kept_with_its_item(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        ends = (ItemEnd(0, COMPLETED, None, b"value"), ItemEnd(1, COMPLETED, None, b""), ItemEnd(2, COMPLETED))
        await _ask(world, SettleItems(batch.number, 0, ends), ItemsSettled)
        assert [item.outcome for item in (await _read_items(world, batch))[:3]] == [b"value", b"", None]

    async def test_claims_of_a_list_are_answered_one_by_one(self, world: World) -> None:
        claimed: ItemsClaimed = await _ask(
            world, ClaimItems(tuple(_claim(f"i{n}", n) for n in range(70))), ItemsClaimed
        )
        assert [type(answer) for answer in claimed.answers] == [Granted] * 70
        again: ItemsClaimed = await _ask(world, ClaimItems((_claim("i3", 100), _claim("new", 101))), ItemsClaimed)
        assert [type(answer).__name__ for answer in again.answers] == ["Running", "Granted"]

    async def test_records_end_together_with_their_rows(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        claims = tuple(_claim(f"i{n}", n + 1) for n in range(3))
        claimed: ItemsClaimed = await _ask(world, ClaimItems(claims), ItemsClaimed)
        first, second, third = (answer.lease for answer in claimed.answers if isinstance(answer, Granted))
        failure = Failure("app.Declined", "declined")
        ends = (
            ItemEnd(0, COMPLETED, Complete(first, VALUE)),
            ItemEnd(1, FAILED, Fail(second, "final", failure, doubtful=False)),
            ItemEnd(2, None, Fail(third, "retry", failure, doubtful=False)),
        )
        settled: ItemsSettled = await _ask(world, SettleItems(batch.number, 0, ends), ItemsSettled)
        assert [type(answer) for answer in settled.answers] == [Recorded] * 3
        assert await _statuses(world, batch) == [1, 2, 0, 0, 0, 0, 0]
        found: Found = await _ask(world, Read(first.key.digest), Found)
        assert found.record is not None
        assert found.record.outcome == VALUE
        await _check_counts(world, batch)

    async def test_a_row_stays_as_it_is_where_its_record_was_lost(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        claimed: ItemsClaimed = await _ask(world, ClaimItems((_claim("i0", 1), _claim("i1", 2))), ItemsClaimed)
        zero, one = (answer.lease for answer in claimed.answers if isinstance(answer, Granted))
        world.clock.advance(31)
        await _ask(world, ClaimItems((_claim("i0", 3),)), ItemsClaimed)
        ends = (ItemEnd(0, COMPLETED, Complete(zero, VALUE)), ItemEnd(1, COMPLETED, Complete(one, VALUE)))
        settled: ItemsSettled = await _ask(world, SettleItems(batch.number, 0, ends), ItemsSettled)
        assert [type(answer) for answer in settled.answers] == [Lost, Recorded]
        assert (await _statuses(world, batch))[:2] == [0, 1]
        await _check_counts(world, batch)

    async def test_a_page_is_done_when_none_of_its_items_is_pending(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=COMPLETED, i1=FAILED, i2=IN_DOUBT)
        assert await _finish(world, batch, 0)
        assert await _finish(world, batch, 0), "sent again"
        assert await _pages(world, batch) == (BatchPage(1, 0), BatchPage(2, 0))

    async def test_a_page_with_a_pending_item_begins_another_round(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=COMPLETED)
        assert not await _finish(world, batch, 0)
        assert not await _finish(world, batch, 0), "of the round before"
        assert (await _pages(world, batch))[0] == BatchPage(0, 1)

    async def test_a_batch_ends_when_every_page_is_done(self, world: World) -> None:
        batch = await _run(world)
        pages = await _take_all(world, batch)
        await _ask(world, EndBatch(batch.number), BatchFound)
        assert await _state(world) == "running"
        for page in pages:
            first = page.page * 3
            await _note(world, batch, page.page, **{f"i{n}": COMPLETED for n in range(first, min(first + 3, 7))})
            assert await _finish(world, batch, page.page)
        found: BatchFound = await _ask(world, EndBatch(batch.number), BatchFound)
        assert found.batch is not None
        assert found.batch.state == "completed"
        assert found.batch.ended_us is not None

    async def test_a_batch_does_not_end_before_its_last_page_was_handed_out(self, world: World) -> None:
        batch = await _run(world)
        assert (await _take(world, batch)).page == BatchPage(0, 0)
        await _note(world, batch, 0, i0=COMPLETED, i1=COMPLETED, i2=COMPLETED)
        assert await _finish(world, batch, 0)
        await _ask(world, EndBatch(batch.number), BatchFound)
        assert await _state(world) == "running"

    async def test_a_batch_without_items_ends_at_once(self, world: World) -> None:
        batch = await _run(world, count=0)
        await _ask(world, EndBatch(batch.number), BatchFound)
        assert await _state(world) == "completed"

    async def test_a_batch_is_paused_and_goes_on(self, world: World) -> None:
        batch = await _run(world)
        paused = await _change(world, batch, "paused", reason="lunch")
        assert paused.batch is not None
        assert (paused.batch.state, paused.batch.reason, paused.is_changed) == ("paused", "lunch", True)
        going = await _change(world, batch, "running")
        assert going.batch is not None
        assert (going.batch.state, going.batch.reason) == ("running", "")

    async def test_a_batch_that_never_ran_is_pending_again_after_a_pause(self, world: World) -> None:
        batch = await _load(world)
        await _change(world, batch, "paused")
        await _change(world, batch, "running")
        assert await _state(world) == "pending"

    @pytest.mark.parametrize(("has_overrun", "state"), [(False, "cancelled"), (True, "failed")])
    async def test_a_batch_that_is_cancelled_never_runs_again(
        self, world: World, has_overrun: bool, state: State
    ) -> None:
        batch = await _run(world)
        await _change(world, batch, "paused", reason="too many", has_overrun=has_overrun)
        await _change(world, batch, "cancelled", reason="enough")
        found = (await _read(world)).batch
        assert found is not None
        assert (found.state, found.reason, found.ended_us is None) == (state, "enough", False)
        assert not (await _change(world, batch, "running")).is_changed
        assert not (await _change(world, batch, "paused")).is_changed
        assert (await _change(world, batch, "cancelled")).is_changed, "it is so already"
        assert await _state(world) == state

    async def test_a_completed_batch_is_not_cancelled(self, world: World) -> None:
        batch = await _run(world)
        await _complete_all(world, batch)
        assert not (await _change(world, batch, "cancelled")).is_changed
        assert await _state(world) == "completed"

    async def test_failed_items_are_opened_again_in_another_round(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=COMPLETED, i1=FAILED, i2=FAILED)
        await _finish(world, batch, 0)
        assert await _pages(world, batch, "failed") == (BatchPage(0, 0),)
        await _ask(world, ReopenItems(batch.number, 0, (0, 1), FAILED), ItemsSettled)
        assert (await _statuses(world, batch))[:3] == [1, 0, 2]
        assert await _check_counts(world, batch) == (1, 1, 0, 0)
        assert BatchPage(0, 1) in await _pages(world, batch)

    async def test_items_of_a_page_that_is_open_are_opened_in_the_same_round(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=IN_DOUBT)
        assert await _pages(world, batch, "in_doubt") == (BatchPage(0, 0),)
        await _ask(world, ReopenItems(batch.number, 0, (0,), IN_DOUBT), ItemsSettled)
        assert await _pages(world, batch, "in_doubt") == ()
        assert (await _pages(world, batch))[0] == BatchPage(0, 0)
        await _check_counts(world, batch)

    async def test_a_completed_batch_runs_again_where_items_are_opened(self, world: World) -> None:
        batch = await _run(world, count=3)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=COMPLETED, i1=FAILED, i2=COMPLETED)
        await _finish(world, batch, 0)
        await _ask(world, EndBatch(batch.number), BatchFound)
        assert await _state(world) == "completed"
        await _ask(world, ReopenItems(batch.number, 0, (1,), FAILED), ItemsSettled)
        found = (await _read(world)).batch
        assert found is not None
        assert (found.state, found.ended_us) == ("running", None)
        await _ask(world, EndBatch(batch.number), BatchFound)
        assert await _state(world) == "running"

    async def test_a_completed_batch_stays_so_where_nothing_is_opened(self, world: World) -> None:
        batch = await _run(world, count=3)
        await _complete_all(world, batch)
        await _ask(world, ReopenItems(batch.number, 0, (1,), FAILED), ItemsSettled)
        assert await _state(world) == "completed"

    async def test_nothing_is_opened_of_a_cancelled_batch(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=FAILED)
        await _change(world, batch, "cancelled")
        await _ask(world, ReopenItems(batch.number, 0, (0,), FAILED), ItemsSettled)
        assert (await _statuses(world, batch))[0] == FAILED
        assert await _state(world) == "cancelled"

    async def test_reserved_time_adds_up_over_all(self, world: World) -> None:
        batch = await _run(world)
        waits = []
        for count in (10, 5, 1):
            told: RateReserved = await _ask(world, ReserveRate(batch.number, count, 100_000), RateReserved)
            waits.append(told.wait_us)
        assert waits == [0, 1_000_000, 1_500_000]
        world.clock.advance(100)
        free: RateReserved = await _ask(world, ReserveRate(batch.number, 1, 100_000), RateReserved)
        assert free.wait_us == 0

    async def test_only_pages_of_the_last_minute_count_for_the_rate(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=COMPLETED, i1=FAILED)
        assert (await _read(world)).counts.recent == 2
        world.clock.advance(61)
        assert (await _read(world)).counts.recent == 0
        await _note(world, batch, 1, i3=COMPLETED)
        assert (await _read(world)).counts.recent == 1

    async def test_pages_of_the_last_minute_are_counted_by_whether_they_are_done(self, world: World) -> None:
        batch = await _run(world)
        await _take(world, batch)
        await _note(world, batch, 0, i0=COMPLETED, i1=COMPLETED, i2=COMPLETED)
        await _finish(world, batch, 0)
        await _take(world, batch)
        counts = (await _read(world)).counts
        assert (counts.recent, counts.recent_done, counts.recent_open) == (3, 1, 1)
        world.clock.advance(61)
        await _note(world, batch, 1, i3=COMPLETED)
        counts = (await _read(world)).counts
        assert (counts.recent, counts.recent_done, counts.recent_open) == (1, 0, 1)

    async def test_a_batch_expires_so_long_after_its_end(self, world: World) -> None:
        batch = await _run(world)
        await _complete_all(world, batch)
        world.clock.advance(DAY - 1)
        assert (await _ask(world, ExpiredBatches(10), BatchesFound)).batches == ()
        world.clock.advance(2)
        expired: BatchesFound = await _ask(world, ExpiredBatches(10), BatchesFound)
        assert [(one.id, one.state) for one in expired.batches] == [("b", "expired")]
        assert (await _ask(world, ListBatches("", None, 0, 10), BatchesFound)).batches == ()

    async def test_a_batch_that_has_not_ended_does_not_expire(self, world: World) -> None:
        batch = await _run(world)
        await _take_all(world, batch)
        world.clock.advance(400 * DAY)
        assert (await _ask(world, ExpiredBatches(10), BatchesFound)).batches == ()

    async def test_a_batch_with_doubts_does_not_expire(self, world: World) -> None:
        batch = await _run(world, count=1)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=IN_DOUBT)
        await _finish(world, batch, 0)
        await _ask(world, EndBatch(batch.number), BatchFound)
        world.clock.advance(2 * DAY)
        assert (await _ask(world, ExpiredBatches(10), BatchesFound)).batches == ()

    async def test_batches_that_only_doubts_keep_are_told_in_order(self, world: World) -> None:
        names = ("b", "c", "d")
        batches = [await _run(world, count=1, id=name) for name in names]
        for batch in batches:
            await _take_all(world, batch)
            await _note(world, batch, 0, i0=COMPLETED if batch.id == "c" else IN_DOUBT)
            await _finish(world, batch, 0)
            await _ask(world, EndBatch(batch.number), BatchFound)
        assert await _held(world) == [], "they are kept anyway"
        world.clock.advance(2 * DAY)
        assert await _held(world) == ["b", "d"]
        assert await _held(world, limit=1) == ["b"]
        assert await _held(world, after=batches[0].number) == ["d"]

    async def test_a_batch_that_runs_is_not_kept_by_doubts_alone(self, world: World) -> None:
        batch = await _run(world, count=2)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=IN_DOUBT)
        world.clock.advance(400 * DAY)
        assert await _held(world) == []

    async def test_one_batch_alone_may_be_let_expire(self, world: World) -> None:
        first, second = await _run(world), await _run(world, id="c")
        await _complete_all(world, first)
        await _complete_all(world, second)
        world.clock.advance(2 * DAY)
        expired: BatchesFound = await _ask(world, ExpiredBatches(1, second.number), BatchesFound)
        assert [one.id for one in expired.batches] == ["c"]
        assert await _state(world) == "completed"

    async def test_a_batch_that_cannot_be_loaded_is_taken_back(self, world: World) -> None:
        batch = await _open(world)
        await _ask(world, AbandonLoad(batch.number, _token(2)), LoadAbandoned)
        assert await _state(world) == "loading", "somebody else loads it"
        await _ask(world, AbandonLoad(batch.number, _token(1)), LoadAbandoned)
        await _ask(world, AbandonLoad(batch.number, _token(1)), LoadAbandoned)
        assert (await _read(world)).batch is None

    async def test_a_batch_of_which_something_is_loaded_is_not_taken_back(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 3)
        await _ask(world, AbandonLoad(batch.number, _token(1)), LoadAbandoned)
        assert await _state(world) == "loading"
        loaded = await _load(world, id="c", count=0)
        await _ask(world, AbandonLoad(loaded.number, _token(1)), LoadAbandoned)
        assert (await _read(world, "c")).known.state == "pending"

    async def test_a_batch_that_is_being_loaded_may_be_cancelled_and_nothing_else(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 3)
        for state in ("paused", "running"):
            assert not (await _change(world, batch, state)).is_changed
        assert (await _change(world, batch, "cancelled", reason="no")).is_changed
        assert await _add(world, batch, 3, 5) == LoadLost()
        assert (await _read(world)).known.ended_us is not None
        world.clock.advance(2 * DAY)
        expired: BatchesFound = await _ask(world, ExpiredBatches(10), BatchesFound)
        assert [one.id for one in expired.batches] == ["b"]

    async def test_a_batch_that_nobody_goes_on_loading_expires(self, world: World) -> None:
        batch = await _open(world)
        world.clock.advance(20 * DAY)
        await _add(world, batch, 0, 3)
        world.clock.advance(29 * DAY)
        assert (await _ask(world, ExpiredBatches(10), BatchesFound)).batches == ()
        assert (await _ask(world, ExpiredBatches(1, batch.number), BatchesFound)).batches == ()
        world.clock.advance(2 * DAY)
        expired: BatchesFound = await _ask(world, ExpiredBatches(10), BatchesFound)
        assert [one.id for one in expired.batches] == ["b"]
        assert await _add(world, batch, 3, 5) == LoadLost()

    async def test_an_expired_batch_is_deleted_with_its_records(self, world: World) -> None:
        batch = await _run(world, count=2)
        await _take_all(world, batch)
        claimed: ItemsClaimed = await _ask(world, ClaimItems((_claim("i0", 1), _claim("i1", 2))), ItemsClaimed)
        leases = [answer.lease for answer in claimed.answers if isinstance(answer, Granted)]
        ends = tuple(ItemEnd(place, COMPLETED, Complete(lease, VALUE)) for place, lease in enumerate(leases))
        await _ask(world, SettleItems(batch.number, 0, ends), ItemsSettled)
        await _finish(world, batch, 0)
        await _ask(world, EndBatch(batch.number), BatchFound)
        digests = tuple(lease.key.digest for lease in leases)
        not_yet: ItemsForgotten = await _ask(world, ForgetItems(batch.number, digests, 2), ItemsForgotten)
        assert not not_yet.is_done
        world.clock.advance(2 * DAY)
        await _ask(world, ExpiredBatches(10), BatchesFound)
        assert (await _ask(world, ForgetItems(batch.number, digests, 2), ItemsForgotten)).is_done
        assert await _read_items(world, batch) == ()
        assert (await _ask(world, ForgetItems(batch.number, (), 2, is_last=True), ItemsForgotten)).is_done
        assert (await _read(world)).batch is None
        assert (await _ask(world, Purge(10), SweepCount)).count == 2
        assert (await _ask(world, Read(digests[0]), Found)).record is None

    async def test_records_of_a_batch_do_not_expire_by_themselves(self, world: World) -> None:
        claimed: ItemsClaimed = await _ask(world, ClaimItems((_claim("i0", 1),)), ItemsClaimed)
        (granted,) = claimed.answers
        assert isinstance(granted, Granted)
        await world.perform(Complete(granted.lease, VALUE))
        world.clock.advance(40 * DAY)
        assert (await _ask(world, Purge(10), SweepCount)).count == 0
        again: ItemsClaimed = await _ask(world, ClaimItems((_claim("i0", 2),)), ItemsClaimed)
        assert type(again.answers[0]).__name__ == "Replay"

    async def test_items_about_a_subject_are_found_and_erased_once_they_are_done(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 3, about=b"{}", subject="ann")
        await _add(world, batch, 3, 5, about=b"{}", subject="bob")
        await _ask(world, FinishLoad(batch.number, _token(1), 5, bytes(32)), BatchFound)
        await _ask(world, BeginRun(batch.number, 3), BatchFound)
        await _take_all(world, batch)
        await _note(world, batch, 0, i0=COMPLETED, i1=FAILED)
        found: PlacesFound = await _ask(world, FindSubject("", "ann", (0, -1), 2), PlacesFound)
        assert [(p.batch, p.operation, p.position, p.id, p.status) for p in found.places] == [
            ("b", "pay", 0, "i0", COMPLETED),
            ("b", "pay", 1, "i1", FAILED),
        ]
        rest: PlacesFound = await _ask(world, FindSubject("", "ann", (batch.number, 1), 2), PlacesFound)
        assert [place.id for place in rest.places] == ["i2"]
        assert (await _ask(world, FindSubject("acme", "ann", (0, -1), 2), PlacesFound)).places == ()
        erased: ItemsErased = await _ask(world, EraseItems(batch.number, (0, 1, 2)), ItemsErased)
        assert erased.count == 2
        items = await _read_items(world, batch)
        assert [(item.data, item.about, item.is_erased) for item in items[:3]] == [
            (b"null", None, True),
            (b"null", None, True),
            (b'{"n":2}', b"{}", False),
        ]
        assert [p.id for p in (await _ask(world, FindSubject("", "ann", (0, -1), 9), PlacesFound)).places] == ["i2"]

    async def test_items_about_a_subject_are_found_in_every_scope_and_no_others_are(self, world: World) -> None:
        for number, (scope, subject) in enumerate((("", "ann"), ("acme", "ann"), ("acme ", "ann"), ("", "ann "))):
            batch = await _open(world, id=f"b{number}", scope=scope)
            await _add(world, batch, 0, 1, subject=subject)
        found: PlacesFound = await _ask(world, FindSubject(None, "ann", (0, -1), 9), PlacesFound)
        assert [(place.batch, place.scope) for place in found.places] == [("b0", ""), ("b1", "acme"), ("b2", "acme ")]
        found = await _ask(world, FindSubject("acme", "ann", (0, -1), 1), PlacesFound)
        assert [(place.batch, place.state) for place in found.places] == [("b1", "loading")]

    async def test_what_is_pending_is_erased_only_where_nothing_runs_any_more(self, world: World) -> None:
        batch = await _open(world)
        await _add(world, batch, 0, 2, subject="ann")
        await _ask(world, FinishLoad(batch.number, _token(1), 2, bytes(32)), BatchFound)
        await _ask(world, BeginRun(batch.number, 3), BatchFound)
        await _take_all(world, batch)
        await _note(world, batch, 0, i1=IN_DOUBT)
        for state, expected in (("paused", 0), ("cancelled", 1)):
            await _change(world, batch, state)
            erased: ItemsErased = await _ask(world, EraseItems(batch.number, (0, 1)), ItemsErased)
            assert erased.count == expected, f"of a batch that is {state}"
        assert [item.is_erased for item in await _read_items(world, batch)] == [True, False]
