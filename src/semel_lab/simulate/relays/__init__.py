"""The simulator of relays: the real relay between models of an outbox and of a broker."""

from semel_lab.simulate.relays.simulation import RelaySimulation
from semel_lab.simulate.relays.world import RELAY_SOMETIMES, RELAY_WORLDS, RelayWorld, Writing

__all__ = ["RELAY_SOMETIMES", "RELAY_WORLDS", "RelaySimulation", "RelayWorld", "Writing"]
