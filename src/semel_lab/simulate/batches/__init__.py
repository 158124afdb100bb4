"""The simulator of batches: real runners on the rules of a store, with crashes, lost replies and leases that pass."""

from semel_lab.simulate.batches.simulation import BatchSimulation
from semel_lab.simulate.batches.world import BATCH_SOMETIMES, BATCH_WORLDS, BatchWorld

__all__ = ["BATCH_SOMETIMES", "BATCH_WORLDS", "BatchSimulation", "BatchWorld"]
