"""The events that an attempt adds, whatever thread they come from."""

from __future__ import annotations

import threading
from typing import Any

from semel.core.events.outbox import OutboxEvent
from semel.engine.context import EventLog
from semel.events import Event
from semel.events.encoding import to_outbox


def an_event(name: str) -> OutboxEvent:
    return to_outbox(Event(type="t", source="/s", id=name), "default", None, "")


def test_what_was_added_is_told_in_its_order_and_what_comes_later_is_refused() -> None:
    log = EventLog()
    assert log.add(an_event("a"))
    assert log.add(an_event("b"))
    assert [event.id for event in log.end()] == ["a", "b"]
    assert not log.add(an_event("late"))
    assert [event.id for event in log.end()] == ["a", "b"], "as it was"


def test_an_event_is_told_or_refused_and_never_neither() -> None:
    for _ in range(50):
        log, together = EventLog(), threading.Barrier(4)
        taken: list[OutboxEvent] = []

        def add(name: str, log: EventLog = log, start: Any = together.wait, taken: list[OutboxEvent] = taken) -> None:
            events = [an_event(f"{name} {number}") for number in range(50)]
            start()
            taken += [event for event in events if log.add(event)]

        threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        together.wait()
        told = log.end()
        for thread in threads:
            thread.join()
        assert sorted(event.id for event in told) == sorted(event.id for event in taken)
