"""Which texts may order events: those that every store and every broker can hold."""

from __future__ import annotations

from typing import Any

import pytest

from semel import Semel
from semel.errors import UsageError
from semel.events import Event, Outbox
from semel.stores.memory import MemoryStore


@pytest.mark.parametrize("key", ["", "x" * 2049, "\ud800", "a\x00b", "\x1f", 5, b"a"], ids=ascii)
def test_an_ordering_key_that_is_no_text_is_refused(key: Any) -> None:
    with pytest.raises(UsageError, match="ordering_key"):
        Outbox(Semel(MemoryStore())).add(Event(type="t", source="/s", id="e"), ordering_key=key, autonomous=True)


@pytest.mark.parametrize("key", ["a", "x" * 2048, "pump 7", "\u00e9"], ids=ascii)
def test_any_other_text_orders_events(key: str) -> None:
    event = Event(type="t", source="/s", id="e")
    assert Outbox(Semel(MemoryStore())).add(event, ordering_key=key, autonomous=True) == event
