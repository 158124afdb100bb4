"""Letters, events and items are as safe sealed as plain, also where a key, or the whole keyring, is not at hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from semel import AsyncSemel, Semel
from semel.batch import Batches
from semel.errors import RecordUnreadable
from semel.events import Consumer, Disposition, Event, Outbox, Relay
from semel.security import Keyring
from semel.server import User, console_app

RING: Final = Keyring(active="a", keys={"a": bytes(range(32))})
OTHER: Final = Keyring(active="b", keys={"b": bytes(range(1, 33))})
ITEMS: Final = [{"id": str(number), "secret": "x"} for number in range(3)]
rings = pytest.mark.parametrize("ring", [OTHER, None], ids=["another key", "no keyring"])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'semel.db'}"


def fail(item: Any) -> None:
    raise ValueError(item.id)


def start_batch(semel: Semel) -> Any:
    return Batches(semel).start("b-1", ITEMS, operation="bulk", item_id="id")


def test_failed_items_are_retried(url: str) -> None:
    with Semel(url, seal=RING) as semel:
        batch = start_batch(semel)
        assert batch.run(fail).failed == 3
        assert batch.retry("failed") == 3
        assert batch.run(lambda item: item.data["secret"]).completed == 3


@pytest.mark.anyio
async def test_failed_items_are_retried_on_an_event_loop() -> None:
    async def refuse(item: Any) -> None:
        raise ValueError(item.id)

    async def take(item: Any) -> str:
        return str(item.data["secret"])

    async with AsyncSemel("memory://", seal=RING) as semel:
        batch = await Batches(semel).start("b-1", ITEMS, operation="bulk", item_id="id")
        assert (await batch.run(refuse)).failed == 3
        assert await batch.retry("failed") == 3
        assert (await batch.run(take)).completed == 3


def test_items_in_doubt_are_retried(url: str) -> None:
    def interrupt(item: Any) -> None:
        raise KeyboardInterrupt

    with Semel(url, seal=RING) as semel:
        batch = Batches(semel).start("b-1", ITEMS[:1], operation="bulk", item_id="id")
        with pytest.raises(KeyboardInterrupt):
            batch.run(interrupt, in_doubt="hold", concurrency=1)
        assert batch.run(lambda item: 1, in_doubt="hold").in_doubt == 1
        assert batch.retry("in_doubt", reason="looked") == 1
        assert batch.run(lambda item: 1, in_doubt="hold").completed == 1


@rings
def test_a_worker_that_cannot_open_items_ends_none(url: str, ring: Keyring | None) -> None:
    with Semel(url, seal=RING) as semel:
        start_batch(semel)
    ran: list[str] = []
    with Semel(url, seal=ring) as semel, pytest.raises(RecordUnreadable):
        Batches(semel).get("b-1").run(lambda item: ran.append(item.id))
    with Semel(url, seal=RING) as semel:
        status = Batches(semel).get("b-1").run(lambda item: item.id)
    assert (ran, status.state, status.completed, status.failed) == ([], "completed", 3, 0)


@rings
def test_a_single_item_that_cannot_be_opened_does_not_run(url: str, ring: Keyring | None) -> None:
    from semel.batch import item as item_of

    ran: list[str] = []

    def pay(item: Any) -> None:
        ran.append(item.id)

    with Semel(url, seal=RING) as semel:
        start_batch(semel)
    with Semel(url, seal=ring) as semel, pytest.raises(RecordUnreadable):
        item_of(Batches(semel).get("b-1"), "1")(pay)()
    assert ran == []


class Publisher:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[Event] = []

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        self.given += events
        return [None] * len(events)


@pytest.mark.anyio
@rings
async def test_a_relay_that_cannot_open_events_publishes_none_and_passes_over_none(
    url: str, ring: Keyring | None
) -> None:
    publisher = Publisher()
    with Semel(url, seal=RING) as semel:
        Outbox(semel).add(Event(type="t", source="/s", id="e-1", data={"x": 1}), autonomous=True)
    async with AsyncSemel(url, seal=ring) as other:
        with pytest.raises(RecordUnreadable):
            await Relay(Outbox(other), publisher).run_once()
        assert publisher.given == []
    async with AsyncSemel(url, seal=RING) as own:
        assert await Relay(Outbox(own), publisher).run_once() == 1


class Refusing:
    """Takes no event."""

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        return [ValueError("no")] * len(events)


@pytest.mark.anyio
async def test_events_that_cannot_be_opened_are_listed_with_the_others(url: str) -> None:
    for ring, id_ in ((RING, "e-1"), (OTHER, "e-2")):
        async with AsyncSemel(url, seal=ring) as semel:
            outbox = Outbox(semel)
            await outbox.add(Event(type="t", source="/s", id=id_, data={"x": 1}), autonomous=True)
            await Relay(outbox, Refusing(), max_attempts=1).run_once()
    async with AsyncSemel(url, seal=OTHER) as semel:
        parked = {one.event.id: one async for one in Relay(Outbox(semel), Refusing()).parked()}
        assert sorted(parked) == ["e-1", "e-2"]
        assert (parked["e-1"].event.data, parked["e-2"].event.data) == (None, {"x": 1})
        error = parked["e-1"].error
        assert error is not None
        assert "the key 'a'" in error.message


def consumer_of(semel: Semel, ran: list[str]) -> Consumer[Semel]:
    consumer = Consumer(semel, "billing", final_errors=(ValueError,))

    @consumer.on("t")
    def handle(event: Event) -> None:
        ran.append(event.id)
        raise ValueError(event.id)

    return consumer


@rings
@pytest.mark.parametrize("id_", ["e-done", "e-failed"])
def test_an_event_whose_record_cannot_be_opened_waits_and_ends_no_consumer(
    url: str, ring: Keyring | None, id_: str, caplog: pytest.LogCaptureFixture
) -> None:
    def deliver(ring: Keyring | None, id_: str) -> Disposition:
        with Semel(url, seal=ring) as semel:
            consumer = Consumer(semel, "billing", final_errors=(ValueError,))

            @consumer.on("t")
            def handle(event: Event) -> None:
                ran.append(event.id)
                if event.id == "e-failed":
                    raise ValueError

            return consumer.handle(Event(type="t", source="/s", id=id_))

    ran: list[str] = []
    first = deliver(RING, id_)
    there = deliver(ring, id_)
    assert (there.action, there.status, there.reference) == ("retry", "unavailable", first.reference)
    assert there.retry_after is not None
    assert isinstance(there.error, RecordUnreadable)
    assert f"the record {first.reference} cannot be read here" in caplog.text
    assert deliver(ring, "e-other").status == "processed"
    assert deliver(RING, id_).action == ("ack" if id_ == "e-done" else "dead_letter")
    assert ran == [id_, "e-other"]


@pytest.fixture
def letters(url: str) -> str:
    """Two dead letters, sealed: of an event, and of what is none."""
    with Semel(url, seal=RING) as semel:
        consumer = consumer_of(semel, [])
        assert consumer.handle(Event(type="t", source="/s", id="e-1", data={"x": 1})).action == "dead_letter"
        assert consumer.receive({"ce-id": "1"}, b"raw").action == "dead_letter"
    return url


def count_letters(url: str) -> int:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as rows:
        (count,) = rows.execute("SELECT count(*) FROM semel_letter").fetchone()
    return int(count)


@rings
def test_letters_that_cannot_be_opened_are_listed_and_say_which_key_is_missing(
    letters: str, ring: Keyring | None
) -> None:
    with Semel(letters, seal=ring) as semel:
        found = list(consumer_of(semel, []).dead_letters())
    assert [(letter.event, letter.raw) for letter in found] == [(None, None)] * 2
    errors = [letter.error for letter in found]
    assert all(error is not None and error.type == "semel.Unreadable" and "'a'" in error.message for error in errors)


@rings
def test_a_letter_that_cannot_be_opened_is_not_handed_over(letters: str, ring: Keyring | None) -> None:
    ran: list[str] = []
    with Semel(letters, seal=ring) as semel:
        consumer = consumer_of(semel, ran)
        for letter in consumer.dead_letters():
            with pytest.raises(RecordUnreadable):
                consumer.redrive(letter.id)
    assert (ran, count_letters(letters)) == ([], 2)


def test_letters_that_can_be_opened_are_handed_over_beside_others(letters: str) -> None:
    ran: list[str] = []
    with Semel(letters, seal=OTHER) as semel:
        consumer = consumer_of(semel, ran)
        consumer.handle(Event(type="t", source="/s", id="e-2"))
        report = consumer.redrive(reason="rejected")
    assert report.statuses == {"unreadable": 1, "rejected": 1}
    assert ran == ["e-2", "e-2"]


@rings
def test_a_letter_that_cannot_be_opened_can_be_discarded(letters: str, ring: Keyring | None) -> None:
    with Semel(letters, seal=ring) as semel:
        consumer = consumer_of(semel, [])
        discarded = [consumer.discard(letter.id, reason="its key is lost") for letter in consumer.dead_letters()]
    assert [letter.event for letter in discarded] == [None, None]
    assert count_letters(letters) == 0


@pytest.mark.anyio
@rings
async def test_the_console_says_which_key_a_letter_needs(letters: str, ring: Keyring | None) -> None:
    with Semel(letters, seal=RING) as semel:
        (first, *_) = consumer_of(semel, []).dead_letters()
    async with AsyncSemel(letters, seal=ring) as semel:
        transport = httpx.ASGITransport(console_app(semel, user=lambda _: User("adam", {"admin"})))
        async with httpx.AsyncClient(transport=transport, base_url="http://console.example") as client:
            answer = await client.get("/events/letter", params={"consumer": "billing", "letter": first.id})
    assert answer.status_code == 409
    assert "&#39;a&#39;" in answer.text
