"""The outbox on DynamoDB: events are part of the one request that writes the record and what the handler added."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel import AsyncSemel, Semel
from semel.core.events.outbox import Cursor, EventBatch, ReadEvents, StreamPart
from semel.core.flow import run
from semel.errors import ConcurrentModification, SchemaOutdated, UsageError
from semel.events import Event, Outbox, Relay
from semel.events.encoding import to_outbox
from semel.stores.dynamodb import DynamoStore, Writes
from semel.stores.dynamodb.admin import creation
from semel.stores.dynamodb.commands import Call, Together
from semel.stores.dynamodb.events.items import cursor_names, cursors_key, event_item, position_of
from semel.stores.dynamodb.events.outbox import about_outbox
from semel.stores.dynamodb.items import attribute
from tests.events.places import Broker, an_event
from tests.servers.ministack import Tables

pytestmark = pytest.mark.slow


def _write(url: str, number: int, **condition: Any) -> dict[str, Any]:
    item = {"digest": {"B": b"mine" + number.to_bytes(8, "big")}}
    return {"Put": {"TableName": urlsplit(url).netloc, "Item": item, **condition}}


def _published(url: str, **settings: Any) -> list[Event]:
    """What a relay publishes now."""

    async def publish() -> list[Event]:
        async with AsyncSemel(url) as semel:
            broker = Broker()
            await Relay(Outbox(semel), broker, **settings).run_once()
            return broker.events

    return asyncio.run(publish())


@pytest.fixture
def url(dynamodb: Tables) -> str:
    dynamodb.empty(dynamodb.url)
    return dynamodb.url


def _mine(dynamodb: Tables, url: str) -> int:
    return sum(item["digest"]["B"].startswith(b"mine") for item in dynamodb.items(url))


def test_event_and_writes_are_kept_with_the_record_and_a_replay_adds_none(dynamodb: Tables, url: str) -> None:
    with Semel(url) as semel:
        outbox, writes = Outbox(semel), Writes()

        def place() -> str:
            writes.add(_write(url, 1))
            outbox.add(Event(type="order.placed", source="/shop", subject="o-1", data={"cents": 1250}))
            return "placed"

        for _ in range(2):
            with semel.within(writes):
                semel.run("o-1", place, operation="place", fingerprint=None)
    (event,) = _published(url)
    assert (event.subject, event.data) == ("o-1", {"cents": 1250})
    assert _mine(dynamodb, url) == 1
    assert _published(url) == []


def test_the_same_on_an_event_loop(dynamodb: Tables, url: str) -> None:
    async def scenario() -> None:
        async with AsyncSemel(url) as semel:
            outbox, writes = Outbox(semel), Writes()

            async def place() -> str:
                writes.add(_write(url, 1))
                await outbox.add(Event(type="order.placed", source="/shop"))
                return "placed"

            async with semel.within(writes):
                await semel.run("o-1", place, operation="place", fingerprint=None)

    asyncio.run(scenario())
    assert len(_published(url)) == _mine(dynamodb, url) == 1


def test_a_handler_that_raises_adds_no_event(url: str) -> None:
    with Semel(url) as semel:
        outbox = Outbox(semel)

        def place() -> str:
            outbox.add(Event(type="order.placed", source="/shop"))
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"), semel.within(Writes()):
            semel.run("o-1", place, operation="place", fingerprint=None)
    assert _published(url) == []


def test_a_condition_that_fails_refuses_the_events_too(url: str) -> None:
    with Semel(url) as semel:
        outbox, writes = Outbox(semel), Writes()

        def place() -> str:
            writes.add(_write(url, 1, ConditionExpression="attribute_exists(digest)"))
            outbox.add(Event(type="order.placed", source="/shop"))
            return "placed"

        with pytest.raises(ConcurrentModification), semel.within(writes):
            semel.run("o-1", place, operation="place", fingerprint=None)
    assert _published(url) == []


def test_events_added_beside_a_handler_need_an_operation_or_their_own_transaction(url: str) -> None:
    with Semel(url) as semel:
        outbox = Outbox(semel)
        with pytest.raises(UsageError, match="No operation is open"):
            outbox.add(an_event("lost"), within=Writes())
        outbox.add(an_event("kept"), autonomous=True)
    assert [event.id for event in _published(url)] == ["kept"]


@pytest.mark.parametrize(
    ("writes", "events", "fits"), [(0, 99, True), (59, 40, True), (59, 41, False), (0, 100, False)]
)
def test_a_hundred_items_are_written_together_and_no_more(
    dynamodb: Tables, url: str, writes: int, events: int, *, fits: bool
) -> None:
    with Semel(url) as semel:
        outbox, added = Outbox(semel), Writes()

        def place() -> str:
            for number in range(writes):
                added.add(_write(url, number))
            for number in range(events):
                outbox.add(Event(type="order.placed", source="/shop"), name=f"event {number}")
            return "placed"

        if fits:
            with semel.within(added):
                semel.run("o-1", place, operation="place", fingerprint=None)
        else:
            with pytest.raises(UsageError, match=r"100 items together.*nothing was written"), semel.within(added):
                semel.run("o-1", place, operation="place", fingerprint=None)
    assert len(_published(url)) == (events if fits else 0)
    assert _mine(dynamodb, url) == (writes if fits else 0)


def test_an_event_that_no_item_can_hold_is_refused_before_anything_is_written(url: str) -> None:
    with Semel(url) as semel, pytest.raises(UsageError, match=r"400 KiB.*nothing was written"):
        Outbox(semel).add(an_event("large", data=b"x" * 410_000), autonomous=True)
    assert _published(url) == []


def test_many_events_are_published_in_parts(url: str) -> None:
    with Semel(url) as semel:
        outbox = Outbox(semel)
        for number in range(30):
            outbox.add(an_event(f"e{number:02}"), autonomous=True)
    got = _published(url, parts=3, batch=4)
    assert sorted(event.id for event in got) == [f"e{number:02}" for number in range(30)]


def test_a_table_without_the_index_is_told_so_and_loses_nothing(dynamodb: Tables) -> None:
    url = dynamodb.new_url()
    made = creation(urlsplit(url).netloc)
    del made["GlobalSecondaryIndexes"]
    made["AttributeDefinitions"] = [{"AttributeName": "digest", "AttributeType": "B"}]
    dynamodb.client.create_table(**made)
    with Semel(url) as semel:
        Outbox(semel).add(an_event("early"), autonomous=True)
    with pytest.raises(SchemaOutdated, match="semel migrate"):
        _published(url)
    assert "index semel_outbox" in DynamoStore(url).admin().migrate()
    assert [event.id for event in _published(url)] == ["early"]


def test_the_doctor_is_not_confused_by_events(url: str) -> None:
    with Semel(url) as semel:
        Outbox(semel).add(an_event("waiting"), autonomous=True)
        semel.run("k", lambda: 1, operation="any", fingerprint=None)
    findings = {one.topic: one for one in DynamoStore(url).admin().examine(timedelta(days=1))}
    assert findings["schema"].verdict == "ok"


def test_what_the_index_still_names_and_the_table_has_no_more_is_not_published() -> None:
    there = to_outbox(an_event("there"), "default", None)
    item = event_item(there, position_of(7, there.shard), 1)
    gone = {"position": {"N": str(position_of(3, there.shard))}}

    def answer(command: Any) -> Any:
        match command:
            case Together(chains):
                return [run(chain, answer) for chain in chains]
            case Call("query", parameters):
                return {"Items": [gone, item] if _asks_for(parameters, item) else []}
            case Call("batch_get_item", _):
                return {"Responses": {"records": [item, cursors]}}
        raise AssertionError(command)

    cursor = Cursor(part=StreamPart("default"), number=1, token=bytes(16))
    cursors = {**cursors_key("default"), cursor_names(cursor.part)["token"]: attribute(cursor.token)}
    batch = run(about_outbox("records", ReadEvents(cursor, 10)), answer)
    assert isinstance(batch, EventBatch)
    assert [stored.event.id for stored in batch.events] == ["there"]
    assert batch.is_last


def _asks_for(parameters: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    return item["outbox_place"] in parameters["ExpressionAttributeValues"].values()
