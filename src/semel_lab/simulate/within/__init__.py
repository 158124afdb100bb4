"""The simulator of `within`: real flows in the transactions of their callers, over the models of the servers."""

from semel_lab.simulate.within.simulation import WithinSimulation
from semel_lab.simulate.within.world import WITHIN_SOMETIMES, WITHIN_WORLDS, WithinWorld

__all__ = ["WITHIN_SOMETIMES", "WITHIN_WORLDS", "WithinSimulation", "WithinWorld"]
