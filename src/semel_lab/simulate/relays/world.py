"""Worlds of relays: who adds which events, how their transactions end, and what may go wrong on the way to a broker.

Invariant: a world is a value whose `repr` makes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

RelayFault = Literal[
    "crash",  # the relay dies here; what its claim holds is free once the lease has passed
    "lost",  # an operation is carried out, and its answer does not arrive
    "unsent",  # it does not arrive at all
    "no confirm",  # the broker keeps what it was given, and nobody hears of it
    "gone",  # the broker cannot be reached
    "half",  # the broker keeps the first of several, and cannot be reached for the others
    "raises",  # it cannot be reached, and the publisher says so by an error of its own
    "backwards",  # what is published at the same time arrives in the reverse order
]
RELAY_FAULTS: Final[tuple[RelayFault, ...]] = (
    "crash",
    "lost",
    "unsent",
    "no confirm",
    "gone",
    "half",
    "raises",
    "backwards",
)
End = Literal["commit", "roll back", "stay open"]
OutboxKind = Literal["snapshots", "deleting", "positions"]


@dataclass(frozen=True)
class Writing:
    """A transaction of a caller: the ordering keys of the events that it adds, and how it ends.

    One that stays open commits when all others have been published.
    """

    keys: tuple[str | None, ...] = (None,)
    end: End = "commit"


@dataclass(frozen=True, kw_only=True)
class RelayWorld:
    """What is simulated.

    Args:
        outbox: how the store reads: by snapshots of transactions as PostgreSQL does, whatever is there and not deleted
            as MySQL does, or by position with one writer at a time as SQLite does.
        writings: transactions that add events; those of one key after each other, as if they locked what it names.
        relays: how many processes publish.
        batch: how many events are read together.
        in_flight: how many are published together.
        poison: numbers of transactions whose events the broker refuses, until somebody has mended that.
        raising: whether the publisher raises for all that are with such an event, and does not answer.
        full: numbers of transactions whose destination takes nothing for now, until somebody has mended that.
        faults: what may go wrong; `budget` is how often.
        slow: how often a lease may pass although somebody could go on.
        is_restored: whether a dump of the server is restored in another cluster at some time, and all go on there.
    """

    name: str
    outbox: OutboxKind = "snapshots"
    writings: tuple[Writing, ...] = (Writing(), Writing())
    relays: int = 2
    batch: int = 2
    in_flight: int = 2
    poison: tuple[int, ...] = ()
    raising: bool = False
    full: tuple[int, ...] = ()
    faults: tuple[RelayFault, ...] = RELAY_FAULTS
    budget: int = 2
    slow: int = 1
    is_restored: bool = False


_MIXED: Final = (
    Writing((None, None)),
    Writing(("a",)),
    Writing(("a", "b")),
    Writing((None,), "stay open"),
    Writing(("b",), "roll back"),
    Writing(("a",)),
)
_LATE: Final = (Writing((None,), "stay open"), Writing(), Writing((None,), "roll back"), Writing())
_ONE_KEY: Final = (Writing(("a", "a")), Writing(("a",)), Writing(("a",)), Writing(("b",)))
_TWO_KEYS: Final = (Writing(("a", "b")), Writing(("a",)), Writing((None,)), Writing(("b",)))
_FOLLOWED: Final = (Writing(("a",)), Writing(), Writing(), Writing(("a",)), Writing(("a",)))

RELAY_WORLDS: Final = (
    RelayWorld(name="relays: late commits by snapshots", writings=_LATE, relays=1, budget=1),
    RelayWorld(name="relays: everything by snapshots", writings=_MIXED),
    RelayWorld(name="relays: full batches by snapshots", writings=_MIXED, batch=1, in_flight=1),
    RelayWorld(name="relays: a poisoned key by snapshots", writings=_ONE_KEY, poison=(0,), batch=3),
    RelayWorld(name="relays: restored by snapshots", writings=_MIXED, relays=1, budget=1, is_restored=True),
    RelayWorld(
        name="relays: a broker that fails",
        writings=_ONE_KEY,
        relays=1,
        batch=3,
        faults=("no confirm", "gone", "half", "raises", "backwards"),
        slow=0,
    ),
    RelayWorld(
        name="relays: a publisher that raises",
        writings=_TWO_KEYS,
        poison=(0,),
        raising=True,
        batch=4,
        in_flight=4,
        faults=("crash", "lost", "unsent", "no confirm", "gone", "half", "backwards"),
    ),
    RelayWorld(name="relays: a full destination", writings=_TWO_KEYS, full=(0,), batch=4, in_flight=4, budget=1),
    RelayWorld(
        name="relays: a full destination, deleting",
        outbox="deleting",
        writings=_TWO_KEYS,
        full=(0,),
        batch=4,
        in_flight=4,
    ),
    RelayWorld(
        name="relays: full batches, deleting", outbox="deleting", writings=_FOLLOWED, batch=1, relays=1, budget=1
    ),
    RelayWorld(name="relays: late commits, deleting", outbox="deleting", writings=_LATE),
    RelayWorld(name="relays: everything, deleting", outbox="deleting", writings=_MIXED),
    RelayWorld(name="relays: a poisoned key, deleting", outbox="deleting", writings=_ONE_KEY, poison=(0,), batch=3),
    RelayWorld(name="relays: everything by positions", outbox="positions", writings=_MIXED),
    RelayWorld(name="relays: a poisoned key by positions", outbox="positions", writings=_ONE_KEY, poison=(0,)),
)

RELAY_SOMETIMES: Final = frozenset(
    f"relays: {name}"
    for name in (
        "published",
        "published again",
        "committed late",
        "committed unnamed",
        "rolled back",
        "left open",
        "taken over",
        "overtaken",
        "in progress",
        "opened at the same time",
        "read ahead",
        "parked",
        "waited behind",
        "released",
        "refused, by raising",
        "set aside",
        "gave up",
        "released, and refused again",
        "purged",
        "restored",
        "restored before anything was read",
        *(f"fault: {fault}" for fault in RELAY_FAULTS),
    )
)
"""What has to happen in some schedule; otherwise the worlds prove less than they say."""
