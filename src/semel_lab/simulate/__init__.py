"""The simulator: real flows, lane, heartbeat and waiting over a store model, under every order and every fault.

Run `verify` (or `semel verify` on the command line) for the whole programme, `replay` for one schedule of one world.
"""

from semel_lab.simulate.audits import AUDIT_SOMETIMES, AUDIT_WORLDS, AuditWorld
from semel_lab.simulate.batches import BATCH_SOMETIMES, BATCH_WORLDS, BatchWorld
from semel_lab.simulate.checks.violation import INVARIANTS, Violation
from semel_lab.simulate.events import EVENT_SOMETIMES, EVENT_WORLDS, EventWorld
from semel_lab.simulate.explore import Failing, Replayed, every, replay, shrink, some
from semel_lab.simulate.relays import RELAY_SOMETIMES, RELAY_WORLDS, RelayWorld, Writing
from semel_lab.simulate.verify import SOMETIMES, Explored, Report, verify
from semel_lab.simulate.within import WITHIN_SOMETIMES, WITHIN_WORLDS, WithinWorld
from semel_lab.simulate.world import FAULTS, QUIRKS, SERVER_SOMETIMES, SERVER_WORLDS, SMALL, Asker, World, large

__all__ = [
    "AUDIT_SOMETIMES",
    "AUDIT_WORLDS",
    "BATCH_SOMETIMES",
    "BATCH_WORLDS",
    "EVENT_SOMETIMES",
    "EVENT_WORLDS",
    "FAULTS",
    "INVARIANTS",
    "QUIRKS",
    "RELAY_SOMETIMES",
    "RELAY_WORLDS",
    "SERVER_SOMETIMES",
    "SERVER_WORLDS",
    "SMALL",
    "SOMETIMES",
    "WITHIN_SOMETIMES",
    "WITHIN_WORLDS",
    "Asker",
    "AuditWorld",
    "BatchWorld",
    "EventWorld",
    "Explored",
    "Failing",
    "RelayWorld",
    "Replayed",
    "Report",
    "Violation",
    "WithinWorld",
    "World",
    "Writing",
    "every",
    "large",
    "replay",
    "shrink",
    "some",
    "verify",
]
