"""A row that somebody has changed so that it cannot be read any more hides no other, and stops nothing that goes by."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from semel import About, AsyncSemel, Policy, Semel
from semel.batch import Batches
from semel.events import Consumer, Event, Outbox, Relay
from semel.server import User, console_app
from semel.server.actions import make_actions
from semel.server.attention import needs_of
from semel.server.bulk import BulkActions, BulkRequest
from semel.testing import Crash

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

ADMIN: Final = User("adam", {"admin"})
NUMBERS: Final = range(3)
FAR: Final = 9_000_000_000_000_000_000
PAGES: Final = (
    *("/", "/overview", "/records", "/batches", "/events", "/audit", "/bulk"),
    *("/events/letters?consumer=billing", "/events/parked?stream=default"),
)


class Refusing:
    """Takes no event."""

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        return [ValueError("no")] * len(events)


def die() -> None:
    raise Crash


def fail(item: Any) -> None:
    raise ValueError(item.id)


def consumer_of(semel: Any) -> Consumer[Any]:
    consumer = Consumer(semel, "billing", final_errors=(ValueError,))

    @consumer.on("t")
    async def refuse(event: Event) -> None:
        raise ValueError(event.id)

    return consumer


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database with three of everything."""
    made = tmp_path / "semel.db"
    policy = Policy(in_doubt="hold", lease_for=timedelta(seconds=1))
    with Semel(f"sqlite:///{made}") as semel:
        for number in NUMBERS:
            about = About(tags={"a": "b"})
            with pytest.raises(Crash):
                semel.run(f"k-{number}", die, operation="charge", fingerprint=None, policy=policy, about=about)
            Batches(semel).start(f"b-{number}", [{"id": "1"}], operation="load", item_id="id").run(fail)
    async with AsyncSemel(f"sqlite:///{made}") as semel:
        outbox = Outbox(semel)
        for number in NUMBERS:
            event = Event(type="t", source="/s", id=f"e-{number}", subject=f"s-{number}", data={"x": 1})
            await consumer_of(semel).handle(event)
            await outbox.add(event, autonomous=True)
        await Relay(outbox, Refusing(), max_attempts=1).run_once()
        change(made, "UPDATE semel_record SET lease_us = 1 WHERE status = 'running'")
        await semel.sweep()
    return made


@pytest.mark.parametrize(
    "changed",
    [
        "semel_record SET tags = '{' WHERE value = 'k-1'",
        "semel_record SET tags = '[1]' WHERE value = 'k-1'",
        f"semel_record SET expires_us = {FAR} WHERE value = 'k-1'",
        f"semel_record SET created_us = -{FAR} WHERE value = 'k-1'",
        f"semel_record SET updated_us = {FAR} WHERE value = 'k-1'",
        "semel_letter SET content = x'ff' WHERE subject = 's-1'",
        "semel_letter SET content = x'', readable = 0 WHERE subject = 's-1'",
        f"semel_letter SET last_us = {FAR} WHERE subject = 's-1'",
        "semel_parked SET attributes = x'ff' WHERE id = 'e-1'",
        "semel_parked SET attributes = x'7b7d' WHERE id = 'e-1'",
        "semel_parked SET data = x'ff' WHERE id = 'e-1'",
        f"semel_parked SET time_us = {FAR}, parked_us = {FAR} WHERE id = 'e-1'",
        "semel_batch SET metadata = x'ff' WHERE id = 'b-1'",
        "semel_batch SET notes = x'ff' WHERE id = 'b-1'",
    ],
)
async def test_everything_else_is_listed_swept_and_decided(path: Path, changed: str) -> None:
    change(path, f"UPDATE {changed}")
    async with AsyncSemel(f"sqlite:///{path}") as semel:
        consumer, actions = consumer_of(semel), make_actions(semel)
        assert len([one async for one in semel.records(operation="charge")]) == 3
        assert (await semel.sweep()).held == 3
        assert len([one async for one in consumer.dead_letters()]) == 3
        assert len([one async for one in Relay(Outbox(semel), Refusing()).parked()]) == 3
        needs = await needs_of(actions, ADMIN)
        assert {one.kind: one.number for one in needs.needs} == {"in_doubt": 3, "dead_letter": 3, "parked_key": 3}
        transport = httpx.ASGITransport(console_app(semel, user=lambda _: ADMIN))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert [(await client.get(page)).status_code for page in PAGES] == [200] * len(PAGES)
        bulk = BulkActions(actions)
        asked = BulkRequest(action="cancel", reason="why", records={"status": "in_doubt"}, id="all")
        await bulk.start(ADMIN, asked)
        assert (await bulk.run("", "all")).completed == 3


@pytest.mark.parametrize(
    "kept",
    [
        "UPDATE semel_letter SET content = x'ff' WHERE subject = 's-1'",
        "UPDATE semel_letter SET content = x'', readable = 0 WHERE subject = 's-1'",
    ],
)
async def test_other_letters_are_redriven_and_the_changed_one_stays(path: Path, kept: str) -> None:
    change(path, kept)
    async with AsyncSemel(f"sqlite:///{path}") as semel:
        consumer = Consumer(semel, "billing")
        seen: list[str] = []

        @consumer.on("t")
        async def take(event: Event) -> None:
            seen.append(event.id)

        report = await consumer.redrive()
        assert (dict(report.statuses), sorted(seen)) == ({"processed": 2, "unreadable": 1}, ["e-0", "e-2"])
        (left,) = [letter async for letter in consumer.dead_letters()]
        assert left.error is not None
        assert "was changed" in left.error.message


async def test_bulk_actions_of_a_newer_release_hold_up_no_others(path: Path) -> None:
    async with AsyncSemel(f"sqlite:///{path}") as semel:
        bulk = BulkActions(make_actions(semel))
        for id_ in ("one", "two", "three"):
            await bulk.start(ADMIN, BulkRequest(action="cancel", reason="why", records={"status": "in_doubt"}, id=id_))
        change(
            path,
            "UPDATE semel_batch SET metadata = CAST(replace(CAST(metadata AS TEXT), '\"cancel\"', '\"mend\"') AS BLOB) "
            "WHERE id = 'two'",
        )
        assert [id_ for _, id_ in await bulk.unfinished()] == ["one", "three"]
        assert [one.id for one in await bulk.list(ADMIN)] == ["one", "three"]
