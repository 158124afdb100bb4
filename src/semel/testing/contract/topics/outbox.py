"""The outbox: what is added is read once each, by one relay at a time, and nothing is passed over or brought back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.events.outbox import (
    AddEvents,
    Cursor,
    CursorFound,
    CursorLost,
    CursorSaved,
    EraseEvents,
    EventBatch,
    EventsAdded,
    EventsErased,
    EventsPeeked,
    EventsPurged,
    LagMeasured,
    MeasureLag,
    OpenCursor,
    OutboxEvent,
    ParkedChanged,
    ParkedEvent,
    ParkedPage,
    PeekEvents,
    PurgeEvents,
    ReadEvents,
    ReadReleased,
    ReleasedEvents,
    ReleasedSettled,
    ReleaseParked,
    SaveCursor,
    ScanParked,
    SettleReleased,
    StoredEvent,
    StreamPart,
    shard_of,
)
from semel.core.operations import Complete, Lost, Recorded
from semel.core.policy import Policy
from semel.core.record import Failure
from semel.core.store import Capability
from semel.testing.contract.suite import Contract
from semel.testing.contract.topics.erasing import VALUE
from semel.testing.contract.world import World

DAY = 86_400
DAY_US = DAY * 1_000_000
WHOLE = StreamPart("default")
TOO_LARGE = Failure("app.TooLarge", "too large")
RERUN = Policy(in_doubt="rerun")


def _event(name: str, **changes: Any) -> OutboxEvent:
    key = changes.get("ordering_key")
    fields: dict[str, Any] = {
        "stream": "default",
        "shard": shard_of(key or name),
        "id": name,
        "source": "/contract",
        "type": "asset.moved",
        "subject": "asset-1",
        "time_us": 1_700_000_000_000_000,
        "content_type": "application/json",
        "data": b'{"a":1}',
        "binary": False,
        "attributes": b'{"extensions":{}}',
        "ordering_key": None,
        **changes,
    }
    return OutboxEvent(**fields)


async def _add(world: World, *names: str, **changes: Any) -> None:
    (answer,) = await world.perform(AddEvents(tuple(_event(name, **changes) for name in names)))
    assert isinstance(answer, EventsAdded), f"not the answer to AddEvents: {answer}"


async def _open(world: World, number: int, part: StreamPart = WHOLE) -> CursorFound:
    (answer,) = await world.perform(OpenCursor(part, number.to_bytes(16, "big")))
    assert isinstance(answer, CursorFound), f"not the answer to OpenCursor: {answer}"
    return answer


async def _read(world: World, cursor: Cursor, limit: int = 100) -> EventBatch:
    (answer,) = await world.perform(ReadEvents(cursor, limit))
    assert isinstance(answer, EventBatch), f"not the answer to ReadEvents: {answer}"
    return answer


def _saving(batch: EventBatch, refused: Iterable[str] = ()) -> SaveCursor:
    """What a relay saves after it has published a batch, of which the broker has refused some."""
    named = set(refused)
    published = tuple(one.position for one in batch.events if one.event.id not in named)
    parked = tuple(_parked(one) for one in batch.events if one.event.id in named)
    return SaveCursor(batch.cursor, published, parked)


def _parked(stored: StoredEvent, error: Failure | None = TOO_LARGE, attempts: int = 5) -> ParkedEvent:
    return ParkedEvent(stored=stored, error=error, attempts=attempts if error else 0)


async def _save(world: World, saving: SaveCursor) -> Cursor:
    (answer,) = await world.perform(saving)
    assert isinstance(answer, CursorSaved), f"the cursor was not saved: {answer}"
    return answer.cursor


async def _publish(
    world: World, cursor: Cursor, *, limit: int = 100, refused: Iterable[str] = ()
) -> tuple[list[str], Cursor]:
    """Read and save until there is nothing more, as a relay does; the ids in the order in which they were read."""
    got: list[str] = []
    for _ in range(1000):
        batch = await _read(world, cursor, limit)
        got += _ids(batch.events)
        cursor = await _save(world, _saving(batch, refused))
        if batch.is_last:
            return got, cursor
    raise AssertionError(f"it read on and on, and got {got[-10:]} at last")


async def _published(world: World, number: int, part: StreamPart = WHOLE, **settings: Any) -> list[str]:
    """What a new relay of a part publishes."""
    got, _ = await _publish(world, (await _open(world, number, part)).cursor, **settings)
    return got


def _ids(events: Sequence[StoredEvent]) -> list[str]:
    return [stored.event.id for stored in events]


async def _scan(world: World, after: int = 0, limit: int = 100, stream: str = "default") -> ParkedPage:
    (answer,) = await world.perform(ScanParked(stream, after, limit))
    assert isinstance(answer, ParkedPage), f"not the answer to ScanParked: {answer}"
    return answer


async def _parked_ids(world: World) -> list[str]:
    return [one.stored.event.id for one in (await _scan(world)).events]


async def _released(world: World, part: StreamPart = WHOLE, limit: int = 100) -> tuple[ParkedEvent, ...]:
    (answer,) = await world.perform(ReadReleased(part, limit))
    assert isinstance(answer, ReleasedEvents), f"not the answer to ReadReleased: {answer}"
    return answer.events


async def _settle(world: World, published: Sequence[ParkedEvent], failed: Sequence[ParkedEvent] = ()) -> set[Any]:
    positions = tuple(one.stored.position for one in published)
    (answer,) = await world.perform(SettleReleased(WHOLE, positions, tuple(failed)))
    assert isinstance(answer, ReleasedSettled), f"not the answer to SettleReleased: {answer}"
    return set(answer.held)


async def _change(world: World, position: int | None, *, discard: bool = False, stream: str = "default") -> int:
    (answer,) = await world.perform(ReleaseParked(stream, position, discard))
    assert isinstance(answer, ParkedChanged), f"not the answer to ReleaseParked: {answer}"
    return answer.count


async def _purge(world: World, cursor: Cursor, keep_us: int = DAY_US, **settings: Any) -> EventsPurged:
    asked: dict[str, Any] = {"limit": 100, **settings}
    (answer,) = await world.perform(PurgeEvents(cursor, keep_us, **asked))
    assert isinstance(answer, EventsPurged), f"not the answer to PurgeEvents: {answer}"
    return answer


async def _erase(world: World, limit: int = 100, **asked: Any) -> int:
    """Erase to the end, page by page; answers how many rows that were."""
    count, after = 0, 0
    for _ in range(1000):
        operation = EraseEvents(**{"scope": None, "subject": None, **asked}, after=after, limit=limit)
        (answer,) = await world.perform(operation)
        assert isinstance(answer, EventsErased), f"not the answer to EraseEvents: {answer}"
        count += answer.count
        if answer.after is None:
            return count
        assert answer.after > after, "it does not get on"
        after = answer.after
    raise AssertionError(f"it erased on and on, from {after}")


async def _left(world: World, limit: int = 100, **asked: Any) -> tuple[int, int]:
    """Erase to the end, page by page; answers how many were left alone because they wait, and because parked."""
    waiting, parked, after = 0, 0, 0
    for _ in range(1000):
        operation = EraseEvents(**{"scope": None, "subject": None, **asked}, after=after, limit=limit)
        (answer,) = await world.perform(operation)
        assert isinstance(answer, EventsErased), f"not the answer to EraseEvents: {answer}"
        waiting, parked = waiting + answer.waiting, parked + answer.parked
        if answer.after is None:
            return waiting, parked
        after = answer.after
    raise AssertionError(f"it erased on and on, from {after}")


async def _hold_key(world: World) -> Cursor:
    """Of the key "a" the first event was refused, and the second one waits behind it."""
    await _add(world, "a1", "a2", ordering_key="a")
    found = await _open(world, 1)
    batch = await _read(world, found.cursor)
    first, second = batch.events
    return await _save(world, SaveCursor(batch.cursor, (), (_parked(first), _parked(second, None))))


class OutboxContract(Contract, calls=False):
    """What a store with `Capability.OUTBOX` does for relays."""

    async def test_a_store_with_an_outbox_says_so(self, world: World) -> None:
        assert Capability.OUTBOX in world.store().capabilities

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"subject": None, "time_us": None, "content_type": None, "data": None},
            {"binary": True, "data": b"\x00\xff" * 300, "content_type": "image/png"},
            {"subject": "größe", "ordering_key": "schlüssel", "attributes": b'{"extensions":{"n":3}}'},
            {"data": b""},
            {"scope": "größe "},
        ],
        ids=["usual", "bare", "bytes", "texts", "empty", "scope"],
    )
    async def test_an_event_is_read_as_it_was_added(self, world: World, changes: dict[str, Any]) -> None:
        event = _event("e", **changes)
        await world.perform(AddEvents((event,)))
        batch = await _read(world, (await _open(world, 1)).cursor)
        assert [stored.event for stored in batch.events] == [event]

    @pytest.mark.parametrize("limit", [1, 3, 7, 8])
    async def test_events_of_a_key_are_read_in_the_order_of_adding(self, world: World, limit: int) -> None:
        names = [f"e{number}" for number in range(7)]
        for name in names:
            await _add(world, name, ordering_key="a")
        assert await _published(world, 1, limit=limit) == names

    async def test_events_that_are_added_together_keep_their_order(self, world: World) -> None:
        names = [f"e{number}" for number in range(7)]
        await _add(world, *names, ordering_key="a")
        assert await _published(world, 1, limit=3) == names

    async def test_a_list_of_additions_adds_all_of_them(self, world: World) -> None:
        answers = await world.perform(*(AddEvents((_event(f"e{number}"),)) for number in range(5)))
        assert [type(answer) for answer in answers] == [EventsAdded] * 5
        assert sorted(await _published(world, 1)) == [f"e{number}" for number in range(5)]

    async def test_the_same_event_added_twice_is_read_twice(self, world: World) -> None:
        await _add(world, "e")
        await _add(world, "e")
        assert await _published(world, 1) == ["e", "e"]

    async def test_a_stream_has_its_own_events(self, world: World) -> None:
        await _add(world, "mine")
        await _add(world, "other", stream="other")
        assert await _published(world, 1) == ["mine"]
        assert await _published(world, 2, StreamPart("other")) == ["other"]

    async def test_what_was_saved_is_not_read_again(self, world: World) -> None:
        await _add(world, "a", "b")
        got, cursor = await _publish(world, (await _open(world, 1)).cursor)
        assert sorted(got) == ["a", "b"]
        assert (await _publish(world, cursor))[0] == []
        assert await _published(world, 2) == []

    async def test_what_was_not_saved_is_read_again_by_whoever_opens_next(self, world: World) -> None:
        await _add(world, "a", "b")
        first = await _read(world, (await _open(world, 1)).cursor)
        assert len(first.events) == 2
        assert sorted(await _published(world, 2)) == ["a", "b"]

    async def test_a_part_of_what_was_read_is_saved_and_the_rest_read_again(self, world: World) -> None:
        await _add(world, *(f"e{number}" for number in range(5)), ordering_key="a")
        batch = await _read(world, (await _open(world, 1)).cursor, 2)
        await _save(world, _saving(batch))
        assert await _published(world, 2) == ["e2", "e3", "e4"]

    async def test_what_is_added_while_others_are_published_is_read_next(self, world: World) -> None:
        await _add(world, "a")
        batch = await _read(world, (await _open(world, 1)).cursor)
        await _add(world, "b")
        cursor = await _save(world, _saving(batch))
        assert (await _publish(world, cursor))[0] == ["b"]

    async def test_the_next_batch_may_be_read_before_the_first_is_saved(self, world: World) -> None:
        names = [f"e{number}" for number in range(6)]
        await _add(world, *names, ordering_key="a")
        first = await _read(world, (await _open(world, 1)).cursor, 2)
        assert first.may_read_on, "a full batch is followed by another one"
        second = await _read(world, first.cursor, 2)
        saved = await _save(world, _saving(first))
        await _save(world, _saving(replace(second, cursor=second.cursor.following(saved))))
        assert (_ids(first.events), _ids(second.events)) == (names[:2], names[2:4])
        assert await _published(world, 2) == names[4:]

    async def test_a_relay_that_was_overtaken_saves_nothing(self, world: World) -> None:
        await _add(world, "a", "b")
        batch = await _read(world, (await _open(world, 1)).cursor)
        later = await _open(world, 2)
        assert await world.perform(_saving(batch, refused=["a"])) == [CursorLost()]
        assert await _parked_ids(world) == []
        assert sorted((await _publish(world, later.cursor))[0]) == ["a", "b"]

    async def test_a_relay_that_was_overtaken_saves_nothing_after_the_other_one_has_saved(self, world: World) -> None:
        await _add(world, "a")
        batch = await _read(world, (await _open(world, 1)).cursor)
        assert await _published(world, 2) == ["a"]
        await _add(world, "b")
        assert await world.perform(_saving(batch)) == [CursorLost()]
        assert await _published(world, 3) == ["b"]

    async def test_a_relay_that_was_overtaken_long_ago_saves_nothing(self, world: World) -> None:
        await _add(world, "a")
        batch = await _read(world, (await _open(world, 1)).cursor)
        _, cursor = await _publish(world, (await _open(world, 2)).cursor)
        for _ in range(12):
            cursor = await _save(world, SaveCursor(cursor, ()))
        await _purge(world, cursor)
        assert await world.perform(_saving(batch, refused=["a"])) == [CursorLost()]
        assert await _parked_ids(world) == [], "what the other one has published is parked, and holds its key"

    async def test_a_save_sent_again_answers_as_the_first_time(self, world: World) -> None:
        await _add(world, "a", "bad", "b")
        saving = _saving(await _read(world, (await _open(world, 1)).cursor), refused=["bad"])
        first = await _save(world, saving)
        await _add(world, "later")
        assert await _save(world, saving) == first
        (parked,) = (await _scan(world)).events
        assert (parked.stored.event.id, parked.attempts) == ("bad", 5)
        assert (await _publish(world, first))[0] == ["later"]

    async def test_a_save_sent_again_after_another_relay_has_opened_changes_nothing(self, world: World) -> None:
        await _add(world, "a", "b")
        saving = _saving(await _read(world, (await _open(world, 1)).cursor, 1))
        saved = await _save(world, saving)
        later = await _open(world, 2)
        (again,) = await world.perform(saving)
        assert again in (CursorSaved(saved), CursorLost()), "it was saved then, and is not the relay's any more"
        assert await world.perform(SaveCursor(saved, ())) == [CursorLost()]
        assert len((await _publish(world, later.cursor))[0]) == 1

    @pytest.mark.parametrize("parts", [2, 5, 64])
    async def test_the_parts_of_a_stream_have_every_event_once(self, world: World, parts: int) -> None:
        names = [f"e{number}" for number in range(20)]
        await _add(world, *names)
        got: list[str] = []
        for number in range(parts):
            got += await _published(world, number + 1, StreamPart("default", number, parts), limit=3)
        assert sorted(got) == sorted(names)

    async def test_another_division_begins_where_all_of_its_shards_were_published(self, world: World) -> None:
        await _add(world, *(f"e{number}" for number in range(20)))
        for number in range(4):
            await _published(world, number + 1, StreamPart("default", number, 4))
        await _add(world, "later")
        assert await _published(world, 10) == ["later"]
        await _add(world, "last")
        got: list[str] = []
        for number in range(3):
            got += await _published(world, number + 20, StreamPart("default", number, 3))
        assert got == ["last"]

    async def test_a_part_that_nobody_read_is_read_by_the_next_division(self, world: World) -> None:
        names = [f"e{number}" for number in range(20)]
        await _add(world, *names)
        first = await _published(world, 1, StreamPart("default", 0, 2))
        assert set(names) - set(first) <= set(await _published(world, 2)), "nothing is passed over"

    async def test_a_parked_event_is_kept_with_its_cause_and_not_read_again(self, world: World) -> None:
        event = _event("bad", ordering_key="a")
        await world.perform(AddEvents((event,)))
        world.clock.advance(5)
        _, cursor = await _publish(world, (await _open(world, 1)).cursor, refused=["bad"])
        (parked,) = (await _scan(world)).events
        assert (parked.stored.event, parked.error, parked.attempts) == (event, TOO_LARGE, 5)
        assert parked.parked_us == world.clock.store_clock()
        assert (await _publish(world, cursor))[0] == []

    async def test_parked_events_are_listed_by_stream_and_page_by_page(self, world: World) -> None:
        names = [f"e{number}" for number in range(5)]
        await _add(world, *names, ordering_key="a")
        await _add(world, "other", stream="other")
        await _published(world, 1, refused=names)
        pages, after = [], 0
        for _ in range(3):
            page = await _scan(world, after, 2)
            pages.append([one.stored.event.id for one in page.events])
            after = page.after or 0
        assert pages == [names[:2], names[2:4], names[4:]]
        assert after == 0, "the last page has no cursor"
        assert (await _scan(world, limit=5)).after is None, "a page that holds all has no cursor"

    async def test_whoever_opens_a_part_is_told_which_keys_are_held(self, world: World) -> None:
        await _add(world, "a1", ordering_key="a")
        await _add(world, "free")
        await _add(world, "b1", ordering_key="b")
        await _published(world, 1, refused=["a1", "free"])
        assert (await _open(world, 2)).held == {"a", None}
        other = StreamPart("default", (shard_of("a") + 1) % 64, 64)
        assert (await _open(world, 3, other)).held <= {None}, "the key belongs to another part"

    async def test_a_parked_event_is_released_with_those_behind_it_in_order(self, world: World) -> None:
        await _hold_key(world)
        assert await _released(world) == (), "the key is held"
        page = await _scan(world)
        assert await _change(world, page.events[0].stored.position) == 1
        freed = await _released(world)
        assert [(one.stored.event.id, one.error) for one in freed] == [("a1", None), ("a2", None)]
        assert [one.stored.event.id for one in await _released(world, limit=1)] == ["a1"]
        assert await _settle(world, freed) == set()
        assert await _parked_ids(world) == []
        assert (await _open(world, 2)).held == frozenset()

    async def test_released_events_are_those_of_the_part(self, world: World) -> None:
        await _hold_key(world)
        await _change(world, None)
        shard = shard_of("a")
        assert await _released(world, StreamPart("default", (shard + 1) % 64, 64)) == ()
        assert len(await _released(world, StreamPart("default", shard, 64))) == 2

    async def test_a_released_event_that_fails_again_holds_its_key_again(self, world: World) -> None:
        await _hold_key(world)
        await _change(world, None)
        first, _ = await _released(world)
        again = Failure("app.Refused", "refused")
        world.clock.advance(5)
        assert await _settle(world, (), [replace(first, error=again, attempts=6)]) == {"a"}
        kept = (await _scan(world)).events[0]
        assert (kept.error, kept.attempts, kept.parked_us) == (again, 6, world.clock.store_clock())
        assert await _released(world) == ()

    async def test_a_discarded_event_is_not_brought_back_by_its_failure(self, world: World) -> None:
        await _hold_key(world)
        await _change(world, None)
        first, second = await _released(world)
        assert await _change(world, first.stored.position, discard=True) == 1
        await _settle(world, [second], [replace(first, error=TOO_LARGE, attempts=6)])
        assert await _parked_ids(world) == []

    async def test_a_discarded_event_lets_those_behind_it_go(self, world: World) -> None:
        await _hold_key(world)
        first = (await _scan(world)).events[0].stored.position
        assert await _change(world, first, discard=True) == 1
        assert [one.stored.event.id for one in await _released(world)] == ["a2"]
        assert await _change(world, first, discard=True) == 0

    async def test_only_events_with_an_error_of_the_stream_are_released(self, world: World) -> None:
        await _hold_key(world)
        first, second = [one.stored.position for one in (await _scan(world)).events]
        assert await _change(world, second) == 0, "it waits behind the other one"
        assert await _change(world, first, stream="other") == 0
        assert await _change(world, first, stream="other", discard=True) == 0
        assert await _change(world, None) == 1
        assert await _change(world, None) == 0

    async def test_published_events_are_purged_when_they_are_old_and_others_are_not(self, world: World) -> None:
        await _add(world, "old", "parked")
        _, cursor = await _publish(world, (await _open(world, 1)).cursor, refused=["parked"])
        world.clock.advance(DAY)
        await _add(world, "young")
        got, cursor = await _publish(world, cursor)
        assert got == ["young"]
        _, cursor = await _publish(world, cursor)  # so that where it begins to read is behind all of them
        await _add(world, "waiting")
        counts = [(await _purge(world, cursor, keep_us)).count for keep_us in (DAY_US, DAY_US, 0)]
        assert counts in ([2, 0, 1], [0, 0, 0]), "some stores delete what is published at once"
        assert await _parked_ids(world) == ["parked"]
        assert await _published(world, 2) == ["waiting"]

    async def test_no_more_events_are_purged_than_asked_for(self, world: World) -> None:
        await _add(world, *(f"e{number}" for number in range(5)))
        _, cursor = await _publish(world, (await _open(world, 1)).cursor)
        _, cursor = await _publish(world, cursor)
        world.clock.advance(DAY)
        counts, after = [], 0
        for _ in range(4):
            purged = await _purge(world, cursor, limit=2, after=after)
            counts.append(purged.count)
            after = purged.after
        assert counts in ([2, 2, 1, 0], [0, 0, 0, 0]), "some stores delete what is published at once"
        assert (await _purge(world, cursor)).count == 0, "all were met"

    async def test_parked_events_expire_only_where_it_is_asked_for_and_only_those_that_failed(
        self, world: World
    ) -> None:
        cursor = await _hold_key(world)
        world.clock.advance(DAY)
        assert (await _purge(world, cursor)).parked == 0, "nobody said that they expire"
        assert (await _purge(world, cursor, keep_parked_us=DAY_US + 1)).parked == 0
        assert await _parked_ids(world) == ["a1", "a2"]
        assert (await _purge(world, cursor, keep_parked_us=DAY_US)).parked == 1
        assert [one.stored.event.id for one in await _released(world)] == ["a2"], "it waited, and may go on"

    async def test_parked_events_of_other_parts_do_not_expire(self, world: World) -> None:
        await _hold_key(world)
        world.clock.advance(DAY)
        other = StreamPart("default", (shard_of("a") + 1) % 64, 64)
        cursor = (await _open(world, 2, other)).cursor
        assert (await _purge(world, cursor, keep_parked_us=DAY_US)).parked == 0
        assert await _parked_ids(world) == ["a1", "a2"]

    @pytest.mark.parametrize(
        ("asked", "left"),
        [
            ({"scope": "acme"}, "cdef"),
            ({"subject": "asset-2"}, "ace"),
            ({"scope": "acme", "subject": "asset-2"}, "acdef"),
            ({"scope": ""}, "abf"),
            ({"scope": "acme "}, "abcde"),
            ({"subject": "asset-2", "stream": "default"}, "acef"),
            ({"subject": "nobody"}, "abcdef"),
        ],
    )
    @pytest.mark.parametrize("limit", [1, 100])
    async def test_events_are_erased_by(self, world: World, asked: dict[str, str], left: str, limit: int) -> None:
        of: dict[str, dict[str, Any]] = {
            "a": {"scope": "acme"},
            "b": {"scope": "acme", "subject": "asset-2"},
            "c": {"subject": None},
            "d": {"subject": "asset-2"},
            "e": {},
            "f": {"scope": "acme ", "subject": "asset-2", "stream": "other"},
        }
        for name, changes in of.items():
            await _add(world, name, **changes)
        assert await _erase(world, limit, **asked) == len(of) - len(left)
        got = [*await _published(world, 1), *await _published(world, 2, StreamPart("other"))]
        assert "".join(sorted(got)) == left

    async def test_published_and_parked_events_are_erased_too(self, world: World) -> None:
        await _add(world, "done", "bad", scope="acme")
        await _add(world, "other")
        _, cursor = await _publish(world, (await _open(world, 1)).cursor, refused=["bad", "other"])
        assert await _erase(world, scope="acme") >= 1
        assert await _parked_ids(world) == ["other"]
        assert await _erase(world, scope="acme") == 0, "nothing of it is left"
        assert (await _publish(world, cursor))[0] == []

    @pytest.mark.parametrize("limit", [1, 100])
    async def test_events_that_are_not_published_are_left_alone_where_that_is_asked_for(
        self, world: World, limit: int
    ) -> None:
        await _add(world, "done", "bad", scope="acme")
        await _add(world, "other", scope="zenith")
        _, cursor = await _publish(world, (await _open(world, 1)).cursor, refused=["bad"])
        await _add(world, "waits", scope="acme")
        await _add(world, "never read", scope="acme", stream="other")
        for _ in range(2):
            left = await _left(world, limit, scope="acme", published_only=True)
            assert left == (2, 1), "what waits, and what is parked"
        assert (await _publish(world, cursor))[0] == ["waits"]
        assert await _parked_ids(world) == ["bad"]
        assert await _left(world, limit, scope="acme", published_only=True) == (1, 1)

    async def test_published_events_are_erased_where_only_those_are(self, world: World) -> None:
        await _add(world, "done", "also done", scope="acme")
        await _add(world, "other", scope="zenith")
        _, cursor = await _publish(world, (await _open(world, 1)).cursor)
        would = await _erase(world, scope="acme", published_only=True, dry_run=True)
        assert await _erase(world, scope="acme", published_only=True) == would
        assert await _erase(world, scope="acme") == 0, "nothing of it is left"
        assert (await _publish(world, cursor))[0] == []

    async def test_an_event_that_commits_below_a_published_one_is_not_taken_for_published(self, world: World) -> None:
        await _add(world, "first", scope="acme")
        batch = await _read(world, (await _open(world, 1)).cursor)
        await _add(world, "second", scope="acme")
        cursor = await _save(world, _saving(batch))
        assert await _left(world, scope="acme", published_only=True) == (1, 0)
        assert (await _publish(world, cursor))[0] == ["second"]

    async def test_a_dry_run_erases_no_event(self, world: World) -> None:
        await _hold_key(world)
        await _add(world, "waits", ordering_key="w")
        assert await _erase(world, subject="asset-1", dry_run=True) >= 3
        assert await _parked_ids(world) == ["a1", "a2"]
        assert await _published(world, 2) == ["waits"]

    async def test_an_erased_event_is_not_brought_back_by_the_relay_that_had_read_it(self, world: World) -> None:
        await _add(world, "bad", scope="acme")
        await _add(world, "other")
        batch = await _read(world, (await _open(world, 1)).cursor)
        await _erase(world, scope="acme")
        await _save(world, _saving(batch, refused=["bad", "other"]))
        assert await _parked_ids(world) == ["other"]

    async def test_erasing_lets_later_events_of_the_key_go_on(self, world: World) -> None:
        await _hold_key(world)
        await _add(world, "a3", ordering_key="a", subject="asset-2")
        await _erase(world, subject="asset-1")
        found = await _open(world, 2)
        assert found.held == frozenset()
        assert (await _publish(world, found.cursor))[0] == ["a3"]

    async def test_what_waits_is_measured_and_shown_without_taking_anything_over(self, world: World) -> None:
        await _hold_key(world)
        cursor = (await _open(world, 2)).cursor
        world.clock.advance(5)
        await _add(world, "w1", "w2", ordering_key="w")
        await _add(world, "x", stream="other")
        world.clock.advance(7)
        (peeked,) = await world.perform(PeekEvents("default", 1))
        assert isinstance(peeked, EventsPeeked)
        assert _ids(peeked.events) == ["w1"]
        (measured,) = await world.perform(MeasureLag("default", 100))
        assert isinstance(measured, LagMeasured)
        (lag,) = measured.streams
        assert (lag.stream, lag.waiting, lag.parked) == ("default", 2, 2)
        (measured,) = await world.perform(MeasureLag(None, 100))
        assert isinstance(measured, LagMeasured)
        assert {one.stream: one.waiting for one in measured.streams} == {"default": 2, "other": 1}
        assert (await _publish(world, cursor))[0] == ["w1", "w2"], "its relay goes on"

    async def test_events_ride_on_the_completion_of_their_record(self, world: World) -> None:
        lease = await world.crash()
        completing = Complete(lease, VALUE, events=(_event("a", ordering_key="k"), _event("b", ordering_key="k")))
        assert [type(one) for one in await world.perform(completing)] == [Recorded]
        assert [type(one) for one in await world.perform(completing)] == [Recorded], "it was sent again"
        assert await _published(world, 1) == ["a", "b"]

    async def test_a_late_completion_adds_no_events(self, world: World) -> None:
        late = await world.crash(policy=RERUN)
        world.clock.advance(31)
        lease = await world.crash(policy=RERUN)
        assert await world.perform(Complete(late, VALUE, events=(_event("late"),))) == [Lost()]
        await world.perform(Complete(lease, VALUE, events=(_event("mine"),)))
        assert await _published(world, 1) == ["mine"]

    async def test_a_list_of_completions_adds_the_events_of_those_that_have_some(self, world: World) -> None:
        leases = [await world.crash(key) for key in ("x", "y", "z")]
        answers = await world.perform(
            Complete(leases[0], VALUE, events=(_event("x"),)),
            Complete(leases[1], VALUE),
            Complete(leases[2], VALUE, events=(_event("z"),)),
        )
        assert [type(answer) for answer in answers] == [Recorded] * 3
        assert sorted(await _published(world, 1)) == ["x", "z"]
