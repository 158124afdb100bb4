"""Events of two pumps, and a delivery of them as brokers do it: each several times, in any order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from semel.events import Event

_WHEN = datetime(2026, 3, 1, 8, tzinfo=UTC)


def _event(number: int, type_: str, asset: str, **data: object) -> Event:
    return Event(id=f"e-{number}", type=type_, source="/facilities/7", subject=asset, time=_WHEN, data=data)


EVENTS = (
    _event(1, "asset.registered", "pump-1", facility="north", type="pump", capacity_kw=50.0),
    _event(2, "asset.state_changed", "pump-1", state="running", load_kw=20.0, version=1),
    _event(3, "asset.state_changed", "pump-1", state="running", load_kw=45.5, version=2),
    _event(4, "asset.saved", "pump-1", facility="south", type="pump", capacity_kw=50.0, version=2),
    _event(5, "asset.energy_metered", "pump-1", kwh=12.5),
    _event(6, "asset.energy_metered", "pump-1", kwh=7.5),
    _event(7, "asset.registered", "pump-2", facility="north", type="pump", capacity_kw=30.0),
    _event(8, "asset.state_changed", "pump-2", state="maintenance", load_kw=0.0, version=1),
)


LIFE = tuple(event for event in EVENTS if event.subject == "pump-1")
"""All that happens to one pump."""


def make_life(asset: str) -> list[Event]:
    """The same for another asset, as events of its own."""
    return [replace(event, id=f"{asset}-{event.id}", subject=asset) for event in LIFE]


def deliveries(chance: random.Random, times: int = 3, events: Sequence[Event] = EVENTS) -> list[Event]:
    """Every event at least once and up to `times` times, in any order."""
    drawn = [event for event in events for _ in range(chance.randint(1, times))]
    chance.shuffle(drawn)
    return drawn
