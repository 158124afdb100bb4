"""The simulator of events: real consumers and outboxes over a model of a broker and of a database."""

from semel_lab.simulate.events.simulation import EventSimulation
from semel_lab.simulate.events.world import EVENT_SOMETIMES, EVENT_WORLDS, EventWorld

__all__ = ["EVENT_SOMETIMES", "EVENT_WORLDS", "EventSimulation", "EventWorld"]
