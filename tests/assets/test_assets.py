"""The asset service: the checklist of its README, point by point."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from examples.assets.__main__ import deliver
from examples.assets.sample import EVENTS, deliveries
from examples.assets.service import make_consumer
from examples.assets.sqlite import SqlitePlant
from semel import AsyncSemel
from semel.events import Event
from tests.assets.conftest import Start
from tests.effort import FULL

pytestmark = pytest.mark.anyio

END = [
    ("pump-1", "south", "pump", 50.0, "running", 45.5, 20.0),
    ("pump-2", "north", "pump", 30.0, "maintenance", 0.0, None),
]
FIVE = EVENTS[:5]


def metered(id_: str = "m-1", source: str = "/facilities/7") -> Event:
    return Event(id=id_, type="asset.energy_metered", source=source, subject="pump-1", data={"kwh": 5.0})


def energy(plant: SqlitePlant) -> object:
    return plant.read()[0][-1]


async def test_a_service_started_anew_goes_on_where_the_last_one_stopped(start: Start) -> None:
    async with start() as first:
        assert (await first.consumer.handle(EVENTS[0])).status == "processed"
        assert (await first.consumer.handle(metered())).status == "processed"
    async with start() as second:
        assert (await second.consumer.handle(metered())).status == "duplicate"
        assert energy(second.plant) == 5.0


async def test_two_services_at_once_keep_nothing_that_the_other_does_not_see(start: Start) -> None:
    async with start() as one, start() as other:
        statuses = [
            (await service.consumer.handle(event)).status
            for event in (EVENTS[0], metered("m-1"), metered("m-2"))
            for service in (one, other)
        ]
        assert statuses == ["processed", "duplicate"] * 3
        assert energy(one.plant) == 10.0


async def test_the_same_id_of_another_source_is_another_event(start: Start) -> None:
    async with start() as service:
        await service.consumer.handle(EVENTS[0])
        await service.consumer.handle(metered(source="/facilities/7"))
        assert (await service.consumer.handle(metered(source="/facilities/8"))).status == "processed"
        assert energy(service.plant) == 10.0


async def test_an_event_that_was_processed_does_not_reach_its_handler(start: Start) -> None:
    async with start() as service:
        await service.consumer.handle(EVENTS[0])
        for _ in range(5):
            await service.consumer.handle(metered())
        assert energy(service.plant) == 5.0


async def test_a_registration_that_is_saved_again_stays_one_row(start: Start) -> None:
    async with start() as service:
        for event in (EVENTS[0], EVENTS[3]):
            await service.consumer.handle(event)
        assert [row[:4] for row in service.plant.read()] == [("pump-1", "south", "pump", 50.0)]


async def test_of_two_changes_to_the_same_version_one_is_made_and_the_other_told(start: Start) -> None:
    changes = [
        Event(
            id=f"c-{kw}",
            type="asset.capacity_changed",
            source="/s",
            subject="pump-1",
            data={"capacity_kw": kw, "expected": 1},
        )
        for kw in (60.0, 70.0)
    ]
    async with start() as service:
        await service.consumer.handle(EVENTS[0])
        first, second = [await service.consumer.handle(change) for change in changes]
        assert (first.status, second.status) == ("processed", "failed")
        assert "expected at version 1 and is at version 2" in str(second.error)
        assert service.plant.read()[0][3] == 60.0


async def test_a_change_that_comes_before_its_registration_is_made_when_it_comes_again(start: Start) -> None:
    change = Event(
        id="c-1",
        type="asset.capacity_changed",
        source="/s",
        subject="pump-1",
        data={"capacity_kw": 60.0, "expected": 1},
    )
    async with start() as service:
        early = await service.consumer.handle(change)
        assert (early.action, early.status) == ("retry", "failed")
        await service.consumer.handle(EVENTS[0])
        assert (await service.consumer.handle(change)).status == "processed"


@pytest.mark.parametrize("seed", range(5))
async def test_events_that_come_several_times_in_any_order_give_one_end(start: Start, seed: int) -> None:
    async with start() as service:
        for event in deliveries(random.Random(seed)):
            assert (await service.consumer.handle(event)).action == "ack"
        assert service.plant.read() == END


@pytest.mark.timeout(1200 if FULL else 120)
async def test_all_orders_of_five_events_with_repeats_give_one_end(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each order has its own pump, so that one database serves all of them."""
    orders = list(_orders_with_a_repeat())
    plant = SqlitePlant(tmp_path / "assets.db")
    async with AsyncSemel(f"sqlite:///{tmp_path / 'assets.db'}") as semel:
        consumer = make_consumer(semel, plant, plant.transaction)
        for number, order in enumerate(orders):
            for place in order:
                assert (await consumer.handle(_of_pump(FIVE[place], number))).action == "ack"
    ends = {row[1:] for row in plant.read()}
    record_property("orders", len(orders))
    assert ends == {("south", "pump", 50.0, "running", 45.5, 12.5)}
    assert len(plant.read()) == len(orders)


def _orders_with_a_repeat() -> Iterator[tuple[int, ...]]:
    """Every order of five, in which one comes once more, later: every one at every place, or one of these in turn."""
    repeats = [(first, again) for first in range(len(FIVE)) for again in range(first + 1, len(FIVE) + 1)]
    for number, order in enumerate(itertools.permutations(range(len(FIVE)))):
        for first, again in repeats if FULL else [repeats[number % len(repeats)]]:
            yield *order[:again], order[first], *order[again:]


def _of_pump(event: Event, number: int) -> Event:
    return Event(
        id=f"{event.id}-{number}", type=event.type, source=event.source, subject=f"pump-{number:04}", data=event.data
    )


async def test_marks_are_kept_for_thirty_days(start: Start) -> None:
    async with start() as service:
        await service.consumer.handle(EVENTS[0])
        (record,) = [record async for record in service.semel.records(operation="event:assets")]
        assert record.expires_at is not None
        assert record.expires_at - record.created_at == timedelta(days=30)


async def test_what_fails_for_good_is_a_dead_letter_that_says_why(start: Start) -> None:
    lost = Event(id="x-1", type="asset.energy_metered", source="/s", data={"kwh": 1.0})
    async with start() as service:
        disposition = await service.consumer.handle(lost)
        assert (disposition.action, disposition.status) == ("dead_letter", "rejected")
        (letter,) = [letter async for letter in service.consumer.dead_letters()]
        assert letter.event == lost
        assert letter.error is not None
        assert "has no subject" in letter.error.message


async def test_an_unknown_type_is_an_error_and_delivered_again(start: Start) -> None:
    async with start() as service:
        disposition = await service.consumer.handle(Event(type="asset.painted", source="/s", subject="pump-1"))
        assert (disposition.action, disposition.status) == ("retry", "unknown_type")


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
async def test_every_handler_is_protected_in_the_same_way(start: Start, event: Event) -> None:
    async with start() as service:
        statuses = [(await service.consumer.handle(event)).status for _ in range(3)]
        assert statuses == ["processed", "duplicate", "duplicate"]


async def test_the_example_shows_what_came_of_each_delivery(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await deliver(tmp_path, seed=1)
    shown = capsys.readouterr().out
    assert "deliveries of 8 events: " in shown
    assert "8 processed" in shown
    assert "pump-1  south" in shown
