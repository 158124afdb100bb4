"""A world: who calls what, under which policy, and what may go wrong. All options, so that a schedule can be replayed.

What always holds: a world is a value whose `repr` makes it again; everything heavy that follows from it is made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Final, Literal

from semel.core import canonical
from semel.core.fingerprint import PLAIN, fingerprint
from semel.core.key import Key
from semel.core.policy import Doubt, Policy, WhenRunning
from semel.core.record import NOTHING
from semel.core.shape import AsIs
from semel.engine.colourless import Known
from semel.engine.request import Request, terms_of

Fault = Literal[
    "refuse",  # the store does not answer, and nothing was applied
    "lose",  # it is applied, and the reply is lost
    "late",  # the reply is lost, and it is applied some time later
    "half",  # the first list of the round is applied, the others are not
    "crash",  # the process dies, before or after it is applied
    "stall",  # the process stands still past the lease, before or after it is applied
    "hang",  # the reply comes only after the lease, the process goes on
    "cancel",  # the caller is cancelled
    "jump",  # the store's clock jumps, forward past the lease or back
    "doubt",  # the handler raises after its effect, or an error nobody knows
    "retry",  # the handler raises one of retry_errors, before its effect
    "final",  # the handler raises one of final_errors
    "unsure",  # the reconcile hook cannot tell
]
Quirk = Literal[
    "evict",  # Redis removes a key for want of room
    "forget",  # Redis fails over, or is back, without the last writes
    "throttle",  # DynamoDB does not carry a request out, for longer than it is sent again
    "twice",  # the request reaches DynamoDB twice, and the second reply is the one that counts
    "lag",  # a reading that is not consistent shows an item as it was before
    "expire",  # DynamoDB deletes an item whose time to live is over
]
FAULTS: Final[tuple[Fault, ...]] = Fault.__args__  # type: ignore[attr-defined]
QUIRKS: Final[tuple[Quirk, ...]] = Quirk.__args__  # type: ignore[attr-defined]
Served = Literal["memory", "redis", "dynamodb"]
Colour = Literal["tasks", "threads"]
CallStyle = Literal["flow", "decorated"]

SECOND: Final = 1_000_000
OPERATION: Final = "charge"
SHAPE: Final = AsIs()
KEYS: Final = (
    Key.of("v", operation=OPERATION, scope="a"),
    Key.of("v", operation=OPERATION, scope="b"),  # the same value for somebody else
    Key.of("w", operation=OPERATION, scope="a"),
)
ASKED: Final = ({"amount": 1}, {"amount": 2}, {"amount": 1})
FINGERPRINTS: Final = (
    fingerprint(ASKED[0]),
    fingerprint(ASKED[1]),
    b"\x01" + sha256(canonical.encode(ASKED[2])).digest(),  # the first request again, by the rules of version 1
)


class NothingHappened(Exception):
    """What a handler raises for sure before its effect."""


class Declined(Exception):
    """What a handler raises as its answer."""


class Broken(Exception):
    """What a handler raises when nobody knows."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One caller: in which process, for which key and fingerprint; or the sweep, or whoever erases or resolves."""

    worker: int = 0
    key: int = 0
    fingerprint: int = 0
    in_doubt: Doubt | None = None
    sweeps: bool = False
    erases: bool = False
    resolves: bool = False  # states what came of a doubt, and corrects what was stated

    @property
    def calls(self) -> bool:
        """Whether it calls the operation; if not, it tends records."""
        return not self.sweeps and not self.erases and not self.resolves


@dataclass(frozen=True, kw_only=True)
class World:
    """What is simulated. Durations are seconds.

    Args:
        askers: the callers there are; one that dies with its process is replaced in a new one.
        faults: what may go wrong; `budget` is how often.
        slow: how often time may pass although somebody could go on.
        work: how long the first attempt takes before and after its effect; later ones are quick.
        delivery: how long an effect is on its way before the hook can see it.
        touches: whether the handler touches its attempt right before the effect.
        skews: how far the clock of each process is off.
        stall: how long a process stands still.
        failures: how many rounds without an answer until a process leaves the store alone.
        resends: whether claims are sent again; without, as if the budget for that were always used up.
        store: whose model the records are in.
        calls: whether callers drive the flow of a call by hand, or call a decorated function of the world's colour.
    """

    name: str
    askers: tuple[Asker, ...]
    faults: tuple[Fault | Quirk, ...] = ()
    budget: int = 0
    slow: int = 0
    colour: Colour = "tasks"
    calls: CallStyle = "flow"
    in_doubt: Doubt = "rerun"
    when_running: WhenRunning = "wait"
    wait_for: float = 0.6
    lease_for: float = 0.24
    keep_for: float = 3600.0
    max_runtime: float = 0.8
    reconcile_after: float = 0.2
    max_attempts: int | None = None
    work: tuple[float, float] = (0.0, 0.0)
    delivery: float = 0.0
    touches: bool = True
    steps: int = 0
    batch: int = 64
    skews: tuple[float, ...] = (0.0,)
    stall: float = 0.3
    failures: int = 5
    resends: bool = True
    store: Served = "memory"


class Setting:
    """What follows from a world, made once."""

    __slots__ = (
        "alone",
        "keys",
        "known",
        "limit_us",
        "max_runtime_us",
        "menus",
        "policies",
        "requests",
        "twins",
        "world",
    )

    def __init__(self, world: World) -> None:
        self.world = world
        self.policies = {word: policy_of(world, word) for word in {world.in_doubt, *_words(world)}}
        self.requests = [request_of(self.policies[asker.in_doubt or world.in_doubt], asker) for asker in world.askers]
        self.known = {OPERATION: Known(self.policies[world.in_doubt], SHAPE)}
        self.keys = sorted({asker.key for asker in world.askers if asker.calls})
        self.alone = _alone(world)
        self.twins = _twins(world)
        self.menus = menus_of(world.faults)
        self.max_runtime_us = round(world.max_runtime * SECOND)
        quiet = world.reconcile_after if "reconcile" in self.policies else 0.0
        busy = min(sum(world.work), world.max_runtime + world.lease_for)
        self.limit_us = round((world.lease_for + 2.0 + quiet + busy * (1 + len(world.askers))) * SECOND)


def _alone(world: World) -> set[int]:
    """Callers that have a process to themselves."""
    processes = [asker.worker for asker in world.askers]
    return {index for index, process in enumerate(processes) if processes.count(process) == 1}


def _twins(world: World) -> dict[int, int]:
    """Callers that differ in nothing, in processes that differ in nothing: which of two starts first is no choice."""
    if len(set(world.skews)) > 1:
        return {}
    plain = {i: replace(world.askers[i], worker=0) for i in sorted(_alone(world))}
    return {i: j for i in plain for j in reversed(plain) if j < i and plain[i] == plain[j]}


def menus_of(faults: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What may happen to a round, to one that only reads, at a point of a handler, and at its end."""
    chosen = set(faults)
    both = [f"{kind} {when}" for kind in ("crash", "stall") if kind in chosen for when in ("before", "after")]
    menu = (*(kind for kind in ("refuse", "lose", "late", "half", "hang") if kind in chosen), *both)
    reading = tuple(kind for kind in menu if kind in ("refuse", "crash before", "stall before"))
    point = tuple(kind for kind in ("crash", "stall") if kind in chosen)
    endings = tuple(kind for kind in ("doubt", "retry", "final") if kind in chosen)
    return menu, reading, point, endings


def _words(world: World) -> set[Doubt]:
    return {asker.in_doubt for asker in world.askers if asker.in_doubt is not None}


def policy_of(world: World, in_doubt: Doubt) -> Policy:
    """The policy of the callers of a world that chose this word."""
    return Policy(
        keep_for=timedelta(seconds=world.keep_for),
        lease_for=timedelta(seconds=world.lease_for),
        max_runtime=timedelta(seconds=world.max_runtime),
        when_running=world.when_running,
        wait_for=timedelta(seconds=world.wait_for),
        final_errors=(Declined,),
        retry_errors=(NothingHappened,),
        max_attempts=world.max_attempts,
        in_doubt=in_doubt,
        reconcile=_asked_elsewhere if in_doubt == "reconcile" else None,
        reconcile_after=timedelta(seconds=world.reconcile_after),
    )


def _asked_elsewhere(_attempt: object) -> object:
    message = "the simulation answers for the hook"
    raise AssertionError(message)


def request_of(policy: Policy, asker: Asker) -> Request:
    """What a caller asks for."""
    asked, taken = ASKED[asker.fingerprint], FINGERPRINTS[asker.fingerprint]
    return Request(KEYS[asker.key], taken, policy, terms_of(policy), NOTHING, SHAPE, asked, PLAIN)


def is_same_request(one: bytes, other: bytes) -> bool:
    """Whether two fingerprints are of one request, whichever way they were taken."""
    return ASKED[FINGERPRINTS.index(one)] == ASKED[FINGERPRINTS.index(other)]


@cache
def setting_of(world: World) -> Setting:
    """The one setting of a world."""
    return Setting(world)
