"""What a settings file says of consumers, and that a strict one lets semel's own operations be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.events import Consumer, Event, Outbox, Relay

DECLARED = """
store = "memory://"
[operations."*"]
keep_for = "P1D"
[operations."event:billing"]
keep_for = "P90D"
max_attempts = 1
[operations."event:shipping"]
"""
STRICT = 'store = "memory://"\n[operations]\nstrict = true\n[operations."event:billing"]\n'


def file_of(folder: Path, text: str) -> str:
    path = folder / "semel.toml"
    path.write_text(text)
    return str(path)


def test_what_the_file_says_of_a_consumer_wins_over_its_code(tmp_path: Path) -> None:
    with Semel.from_settings(file_of(tmp_path, DECLARED)) as semel:
        consumer = Consumer(semel, "billing", keep_for=timedelta(days=2), max_attempts=3)

        @consumer.on("asset.moved")
        def moved(event: Event) -> None:
            raise LookupError("no such asset")

        disposition = consumer.handle(Event(type="asset.moved", source="/s", id="1"))
        assert (disposition.status, consumer.policy.keep_for) == ("exhausted", timedelta(days=90))
        assert Consumer(semel, "shipping").policy.keep_for == timedelta(days=30)


def test_a_strict_file_refuses_a_consumer_that_is_not_declared_when_it_is_made(tmp_path: Path) -> None:
    with Semel.from_settings(file_of(tmp_path, STRICT)) as semel:
        Consumer(semel, "billing")
        with pytest.raises(UsageError, match="'event:shipping' is not declared"):
            Consumer(semel, "shipping")


@pytest.mark.anyio
async def test_a_strict_file_lets_relays_publish_and_subjects_take_turns(tmp_path: Path) -> None:
    got: list[str] = []

    class Keeping:
        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            got.extend(event.id for event in events)
            return [None] * len(events)

    async with AsyncSemel.from_settings(file_of(tmp_path, STRICT)) as semel:
        outbox, consumer = Outbox(semel), Consumer(semel, "billing", serial_by="subject")

        @consumer.on("asset.moved")
        async def moved(event: Event) -> None:
            """Do nothing."""

        event = Event(type="asset.moved", source="/s", subject="pump-1", id="1")
        assert (await consumer.handle(event)).status == "processed"
        await outbox.add(event, autonomous=True)
        await Relay(outbox, Keeping()).run_once()
    assert got == ["1"]
