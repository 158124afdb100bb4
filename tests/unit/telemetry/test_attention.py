"""Gauges of what needs a person: what is shown, how often is asked, and what an error leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from semel.errors import UsageError
from semel.telemetry.attention import GAUGES, UP, Attention, AttentionCollector


class Finder:
    """A query whose answer is set by the test; counts how often it was asked."""

    def __init__(self, *found: Attention) -> None:
        self.found: Iterable[Attention] | Exception = found
        self.asked = 0
        self.gate: asyncio.Event | None = None

    async def __call__(self) -> Iterable[Attention]:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Clock:
    """Seconds that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(collector: AttentionCollector) -> str:
    """What a scrape gets."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


@pytest.mark.anyio
async def test_every_kind_is_shown_with_number_and_age() -> None:
    rows = [
        Attention(kind="in_doubt", operation="pay", policy="hold", number=3, oldest_seconds=90.5),
        Attention(kind="lapsed", operation="pay", number=2, oldest_seconds=5),
        Attention(kind="dead_letter", operation="event:billing", number=4, oldest_seconds=60),
        Attention(kind="parked_key", operation="default", number=1, oldest_seconds=7),
        Attention(kind="paused_batch", operation="bulk", number=1, oldest_seconds=8),
        Attention(kind="outbox", operation="default", number=0),
    ]
    collector = AttentionCollector(Finder(*rows))
    await collector.refresh()
    text = shown(collector)
    assert 'semel_in_doubt{operation="pay",policy="hold"} 3.0' in text
    assert 'semel_in_doubt_oldest_seconds{operation="pay",policy="hold"} 90.5' in text
    for row in rows[1:]:
        gauge = GAUGES[row.kind]
        assert f'{gauge.number}{{operation="{row.operation}"}} {float(row.number)}' in text
        assert f'{gauge.oldest}{{operation="{row.operation}"}} {float(row.oldest_seconds)}' in text
    assert f"{UP} 1.0" in text


@pytest.mark.anyio
async def test_operations_beyond_the_bound_are_added_up_as_other() -> None:
    rows = [
        Attention(kind="in_doubt", operation=f"o{number}", policy="hold", number=number, oldest_seconds=number)
        for number in (1, 2, 3)
    ]
    collector = AttentionCollector(Finder(*rows), max_operations=1)
    await collector.refresh()
    text = shown(collector)
    assert 'semel_in_doubt{operation="o1",policy="hold"} 1.0' in text
    assert 'semel_in_doubt{operation="other",policy="hold"} 5.0' in text
    assert 'semel_in_doubt_oldest_seconds{operation="other",policy="hold"} 3.0' in text


@pytest.mark.anyio
async def test_a_store_is_not_asked_again_before_the_time_is_over() -> None:
    finder, clock = Finder(), Clock()
    collector = AttentionCollector(finder, every=15, monotonic=clock)
    await collector.refresh()
    clock.now += 14
    await collector.refresh()
    assert finder.asked == 1
    clock.now += 1
    await collector.refresh()
    assert finder.asked == 2


@pytest.mark.anyio
async def test_scrapes_at_the_same_time_ask_once() -> None:
    finder = Finder()
    finder.gate = asyncio.Event()
    collector = AttentionCollector(finder)
    scrapes = [asyncio.create_task(collector.refresh()) for _ in range(8)]
    await asyncio.sleep(0)
    finder.gate.set()
    await asyncio.gather(*scrapes)
    assert finder.asked == 1


@pytest.mark.anyio
async def test_after_an_error_no_old_number_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    finder, clock = Finder(Attention(kind="in_doubt", operation="pay", policy="hold", number=3)), Clock()
    collector = AttentionCollector(finder, every=1, monotonic=clock)
    await collector.refresh()
    finder.found = OSError("gone")
    clock.now += 1
    await collector.refresh()
    text = shown(collector)
    assert "semel_in_doubt{" not in text
    assert f"{UP} 0.0" in text
    assert "could not be found out" in caplog.text


def test_before_the_first_answer_it_is_not_up() -> None:
    assert f"{UP} 0.0" in shown(AttentionCollector(Finder()))


def test_a_registry_refuses_a_second_collector_of_the_same_gauges() -> None:
    registry = CollectorRegistry()
    registry.register(AttentionCollector(Finder()))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(AttentionCollector(Finder()))


@pytest.mark.parametrize("bound", [0, -1, True, "5"])
def test_a_bound_that_is_none_is_refused(bound: object) -> None:
    with pytest.raises(UsageError, match="max_operations"):
        AttentionCollector(Finder(), max_operations=bound)  # type: ignore[arg-type]
