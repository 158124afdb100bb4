"""Events: consumers whose effects happen once, and an outbox that loses nothing."""

from __future__ import annotations

from semel.errors import EventInvalid
from semel.events.consumer import Consumer
from semel.events.dead_letters import DeadLetter, RedriveReport
from semel.events.disposition import Backoff, Disposition
from semel.events.event import Event
from semel.events.outbox import Outbox
from semel.events.publishing import Publisher
from semel.events.relay import Parked, Relay

__all__ = [
    "Backoff",
    "Consumer",
    "DeadLetter",
    "Disposition",
    "Event",
    "EventInvalid",
    "Outbox",
    "Parked",
    "Publisher",
    "RedriveReport",
    "Relay",
]
