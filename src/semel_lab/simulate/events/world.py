"""Worlds of events: who consumes what, how handlers end, and what may go wrong.

What always holds: a world is a value whose `repr` makes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from semel.core.policy import Doubt

Fault = Literal[
    "crash",  # the process dies here: its transaction is rolled back, what it had taken is delivered again
    "lost",  # an operation or commit is carried out, and its answer does not arrive
    "unsent",  # it does not arrive at all
    "fail",  # the handler raises
    "lost ack",  # the broker does not hear the acknowledgement
    "twice",  # the broker delivers what somebody holds to somebody else as well
]
FAULTS: Final[tuple[Fault, ...]] = ("crash", "lost", "unsent", "fail", "lost ack", "twice")
LEASE: Final = 0.2
MAX_ATTEMPTS: Final = 3


@dataclass(frozen=True, kw_only=True)
class EventWorld:
    """What is simulated.

    Args:
        events: how many there are, all of one subject.
        reused: whether each of them has another event with the same data under its id, about another subject.
        consumers: the names of those who take each of them.
        processes: how many processes each consumer has.
        transaction: whether effect and mark commit together.
        poison: whether the handler raises whenever it is called.
        outbox: whether the handler adds an event.
        serial: whether events of one subject are handled one after the other.
        redrives: whether an operator hands dead letters over again, once the handler is mended.
        in_doubt: what the consumers allow after an end that nobody knows.
        hook: where that is to ask, what the reconcile hook can say.
        faults: what may go wrong; `budget` is how often.
        slow: how often a lease may pass although somebody could go on.
    """

    name: str
    events: int = 1
    reused: bool = False
    consumers: tuple[str, ...] = ("billing",)
    processes: int = 2
    transaction: bool = False
    poison: bool = False
    outbox: bool = False
    serial: bool = False
    redrives: bool = False
    in_doubt: Doubt = "rerun"
    hook: Literal["knows", "cannot tell"] | None = None
    faults: tuple[Fault, ...] = FAULTS
    budget: int = 2
    slow: int = 1


EVENT_WORLDS: Final = (
    EventWorld(name="events: one consumer"),
    EventWorld(name="events: two consumers", consumers=("billing", "shipping"), processes=1),
    EventWorld(name="events: held", in_doubt="hold"),
    EventWorld(name="events: a hook that knows", in_doubt="reconcile", hook="knows"),
    EventWorld(name="events: a hook that cannot tell", in_doubt="reconcile", hook="cannot tell"),
    EventWorld(name="events: poison", poison=True),
    EventWorld(name="events: one subject at a time", events=2, serial=True, slow=0),
    EventWorld(name="events: in a transaction", transaction=True),
    EventWorld(name="events: poison in a transaction", transaction=True, poison=True),
    EventWorld(name="events: an outbox", transaction=True, outbox=True, events=2),
    EventWorld(name="events: ids used twice", reused=True),
    EventWorld(name="events: redriven", poison=True, redrives=True),
    EventWorld(name="events: ids used twice and redriven", reused=True, poison=True, redrives=True),
    EventWorld(name="events: redriven in a transaction", transaction=True, poison=True, redrives=True),
)

EVENT_SOMETIMES: Final = frozenset(
    f"events: {name}"
    for name in (
        "processed",
        "duplicate",
        "in_progress",
        "failed",
        "unavailable",
        "exhausted",
        "reused",
        "in_doubt",
        "acknowledged",
        "dead letter",
        "redriven",
        "taken twice",
        "took over",
        "asked",
        "gave up asking",
        "fault: crash",
        "fault: lost",
        "fault: unsent",
        "fault: fail",
        "fault: lost ack",
        "fault: twice",
    )
)
"""What has to happen in some schedule; otherwise the worlds prove less than they say."""
