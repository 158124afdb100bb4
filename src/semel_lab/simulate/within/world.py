"""Worlds in which callers bring transactions of their own: who calls, on which server, and what may go wrong.

What always holds: a world is a value whose `repr` makes it again, and every one of them is explored to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Final, Literal

from semel.core.key import Key
from semel.core.policy import Doubt, Policy, WhenRunning
from semel.core.record import NOTHING, About
from semel.engine.call_flow import Request, terms_of
from semel_lab.simulate.models import Isolation
from semel_lab.simulate.world import FINGERPRINTS, KEYS, SHAPE, Declined, NothingHappened

Fault = Literal[
    "crash",  # the caller is gone, and its transaction with it
    "rollback",  # it rolls back what it was to commit
    "commit early",  # its handler commits
    "rollback early",  # its handler rolls back
    "retry",  # its handler raises one of retry_errors, before its effect
    "doubt",  # its handler raises after its effect
    "swallow",  # it commits although the call raised
]
Kind = Literal["read committed", "repeatable read", "lane", "neighbour", "eraser"]
"""A caller in a transaction of its own, or one without; one whose key is another and shares a gate with it; or whoever
erases the record."""
ServerName = Literal["postgresql", "mysql"]

LEASE: Final = 0.2
SUBJECTS: Final = ("ann", "bob")
TAGS: Final = {"till": "7"}
NEIGHBOUR: Final = Key.of("n-26867", operation="charge", scope="a")
"""A key whose first gate on MySQL is the first gate of the key that all ask for."""
_ALL: Final[tuple[Fault, ...]] = ("crash", "rollback", "commit early", "rollback early", "retry", "doubt", "swallow")


@dataclass(frozen=True, kw_only=True)
class WithinWorld:
    """What is simulated. All callers but neighbours ask for the same key.

    Args:
        callers: what kinds of them there are.
        faults: what may go wrong; `budget` is how often.
        slow: how often time may pass although somebody could go on.
        looks: whether a caller reads something first, so that its snapshot is older than its claim.
        counts: after how many attempts a failure is final that is counted once its transaction was rolled back; nobody
            counts any where it is None.
        steps: whether the work is a step in a transaction: that of the caller, or one that lasts as long as the step.
        searched: whether each caller says what its claim is about, and records are looked for by that.
    """

    name: str
    server: ServerName
    callers: tuple[Kind, ...]
    faults: tuple[Fault, ...] = _ALL
    budget: int = 2
    slow: int = 0
    in_doubt: Doubt = "rerun"
    when_running: WhenRunning = "wait"
    looks: bool = False
    counts: int | None = None
    steps: bool = False
    searched: bool = False


def _worlds(server: ServerName) -> tuple[WithinWorld, ...]:
    rc: Kind = "read committed"
    rr: Kind = "repeatable read"
    ends: tuple[Fault, ...] = ("crash", "rollback")
    return (
        WithinWorld(name=f"{server}: read committed", server=server, budget=3, callers=(rc, rc)),
        WithinWorld(name=f"{server}: repeatable read", server=server, budget=3, callers=(rr, rr), looks=True),
        WithinWorld(
            name=f"{server}: both levels", server=server, budget=3, callers=(rc, rr), looks=True, in_doubt="hold"
        ),
        WithinWorld(name=f"{server}: nobody waits", server=server, budget=3, callers=(rc, rr), when_running="reject"),
        WithinWorld(
            name=f"{server}: counted",
            server=server,
            callers=(rc, rr),
            faults=("crash", "rollback", "retry", "doubt"),
            budget=3,
            counts=2,
        ),
        WithinWorld(
            name=f"{server}: the only attempt", server=server, callers=(rc, rr), faults=("rollback", "doubt"), counts=1
        ),
        WithinWorld(name=f"{server}: beside a lane", server=server, callers=(rc, rr, "lane"), faults=ends),
        WithinWorld(
            name=f"{server}: a slow lane", server=server, callers=(rr, "lane"), faults=ends, slow=2, in_doubt="hold"
        ),
        WithinWorld(
            name=f"{server}: steps", server=server, callers=("lane", "lane"), faults=("crash",), slow=1, steps=True
        ),
        WithinWorld(
            name=f"{server}: steps, within", server=server, callers=("lane", rr), faults=ends, slow=1, steps=True
        ),
        WithinWorld(
            name=f"{server}: searched",
            server=server,
            callers=(rc, rr),
            faults=("rollback", "retry", "swallow"),
            looks=True,
            counts=3,
            searched=True,
        ),
        WithinWorld(
            name=f"{server}: searched beside a lane",
            server=server,
            callers=(rr, "lane"),
            faults=("rollback", "retry", "swallow"),
            in_doubt="hold",
            searched=True,
        ),
        WithinWorld(
            name=f"{server}: searched and erased",
            server=server,
            callers=(rc, "lane", "eraser"),
            faults=("crash",),
            budget=1,
            searched=True,
        ),
    )


def _beside_other_keys() -> tuple[WithinWorld, ...]:
    """Keys that share a gate, which only MySQL has."""
    rc: Kind = "read committed"
    rr: Kind = "repeatable read"
    ends: tuple[Fault, ...] = ("crash", "rollback")
    return (
        WithinWorld(name="mysql: beside another key", server="mysql", callers=(rc, rr, "neighbour"), faults=ends),
        WithinWorld(
            name="mysql: steps, beside another key",
            server="mysql",
            callers=("lane", rr, "neighbour"),
            faults=ends,
            budget=1,
            steps=True,
        ),
    )


WITHIN_WORLDS: Final = (*_worlds("postgresql"), *_worlds("mysql"), *_beside_other_keys())

WITHIN_SOMETIMES: Final = frozenset({
    *(f"within fault: {fault}" for fault in _ALL), "within fault: crash after commit",
    "within: first", "within: replay", "within: InProgress", "within: InDoubt", "within: NotInTransaction",
    "within: TransactionAborted", "within: Broken", "within: NothingHappened",
    "within: held", "within: row locked", "within: step done before", "within: effect repeated, told",
    "within: counted", "within: counted, final", "within: not counted",
    "within: ResultNotKept", "within: erased", "within: not erased", "within: swept in the end",
    "within: run in the end", "within: replayed in the end", "within: resolved in the end",
})  # fmt: skip


def level_of(kind: Kind) -> Isolation | None:
    """The isolation of a caller's own transaction around the call, if it has one."""
    return Isolation(kind) if kind in tuple(Isolation) else None


def about_of(world: WithinWorld, actor: int) -> About:
    """What a caller says that its claim is about: somebody of its own, and something that others say as well."""
    return About(subject=SUBJECTS[actor % len(SUBJECTS)], tags=TAGS) if world.searched else NOTHING


@cache
def request_of(world: WithinWorld, actor: int = 0) -> Request:
    """What the callers of a world ask for, and what each says of it."""
    policy = Policy(
        lease_for=timedelta(seconds=LEASE),
        when_running=world.when_running,
        wait_for=timedelta(seconds=0.12),
        final_errors=(Declined,),
        retry_errors=(NothingHappened,),
        in_doubt=world.in_doubt,
    )
    return Request(KEYS[0], FINGERPRINTS[0], policy, terms_of(policy), about_of(world, actor), SHAPE)
