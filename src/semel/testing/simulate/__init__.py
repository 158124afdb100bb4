"""The simulator: real flows, lane, heartbeat and waiting over a store model, under every order and every fault.

Run `verify` (or `semel verify` on the command line) for the whole programme, `replay` for one schedule of one world.
"""

from semel.testing.simulate.explore import Failing, Replayed, every, replay, shrink, some
from semel.testing.simulate.report import SOMETIMES, Explored, Report
from semel.testing.simulate.server_worlds import SERVER_SOMETIMES, SERVER_WORLDS
from semel.testing.simulate.verify import verify
from semel.testing.simulate.violation import INVARIANTS, Violation
from semel.testing.simulate.within import WITHIN_SOMETIMES, WITHIN_WORLDS, WithinWorld
from semel.testing.simulate.world import FAULTS, QUIRKS, Asker, World
from semel.testing.simulate.worlds import SMALL, large

__all__ = [
    "FAULTS",
    "INVARIANTS",
    "QUIRKS",
    "SERVER_SOMETIMES",
    "SERVER_WORLDS",
    "SMALL",
    "SOMETIMES",
    "WITHIN_SOMETIMES",
    "WITHIN_WORLDS",
    "Asker",
    "Explored",
    "Failing",
    "Replayed",
    "Report",
    "Violation",
    "WithinWorld",
    "World",
    "every",
    "large",
    "replay",
    "shrink",
    "some",
    "verify",
]
