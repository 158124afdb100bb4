"""A world: who calls what, under which policy, and what may go wrong. All options, so that a schedule can be replayed.

What always holds: a world is a value whose `repr` makes it again; everything heavy that follows from it is made once.

The worlds that are simulated: small ones explored to the end, and larger ones drawn by chance.

What always holds: in every small world two processes share one key and two things go wrong (one, where records
expire), at any point and in any combination, under every order of moves; `slow` says how often time may pass although
somebody could go on. Where a world lists fewer kinds of faults, another one has the rest.

The worlds of servers that forget, lag and delete: small ones, explored to the end.

What always holds: on a Redis that forgets nothing, and on DynamoDB whatever it does, every invariant holds. On a Redis
that evicts or fails over an effect may be repeated, and then a record of its key was forgotten before.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Final, Literal

from semel.core.codec import PlainAdapter
from semel.core.fingerprint import PLAIN, encode_canonical, fingerprint
from semel.core.key import Key
from semel.core.policy import Doubt, Policy, WhenRunning
from semel.core.record import NOTHING, About
from semel.engine.call_flow import Request, terms_of
from semel.engine.engine import RegisteredOperation

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
SHAPE: Final = PlainAdapter()
STEP_POLICY: Final = Policy()
"""What steps are recorded under: as an operation that sets nothing."""
KEYS: Final = (
    Key.of("v", operation=OPERATION, scope="a"),
    Key.of("v", operation=OPERATION, scope="b"),  # the same value for somebody else
    Key.of("w", operation=OPERATION, scope="a"),
)
ASKED: Final = ({"amount": 1}, {"amount": 2}, {"amount": 1})
ABOUTS: Final = (NOTHING, About(subject="ann", tags={"till": "7"}), About(subject="bob", tags={"till": "7"}))
FINGERPRINTS: Final = (
    fingerprint(ASKED[0]),
    fingerprint(ASKED[1]),
    b"\x01" + sha256(encode_canonical(ASKED[2])).digest(),  # the first request again, by the rules of version 1
)


class NothingHappened(Exception):
    """What a handler raises for sure before its effect."""


class Declined(Exception):
    """What a handler raises as its answer."""


class Broken(Exception):
    """What a handler raises when nobody knows."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One caller: in which process, for which key and fingerprint; or the sweep, an operator, or a consumer."""

    worker: int = 0
    key: int = 0
    fingerprint: int = 0
    in_doubt: Doubt | None = None
    sweeps: bool = False
    erases: bool = False
    resolves: bool = False  # states what came of a doubt, and corrects what was stated
    forces: bool = False  # ends what is not settled by decision, a live lease too
    reopens: bool = False  # lets a key run again that failed for good or was cancelled
    counts: bool = False  # counts attempts that were rolled back with its own transaction
    about: int = 0  # what it says of its claim; 0: nothing

    @property
    def calls(self) -> bool:
        """Whether it calls the operation; if not, it tends records."""
        return not (self.sweeps or self.counts or self.decides)

    @property
    def decides(self) -> bool:
        """Whether it is an operator."""
        return self.erases or self.resolves or self.forces or self.reopens


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
    retry_budget: bool = True
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
        "searched",
        "twins",
        "world",
    )

    def __init__(self, world: World) -> None:
        self.world = world
        self.policies = {word: policy_of(world, word) for word in {world.in_doubt, *_words(world)}}
        self.requests = [request_of(self.policies[asker.in_doubt or world.in_doubt], asker) for asker in world.askers]
        policy = self.policies[world.in_doubt]
        self.known = {OPERATION: RegisteredOperation(policy, SHAPE, terms_of(policy))}
        self.keys = sorted({asker.key for asker in world.askers if asker.calls})
        self.searched = any(asker.about for asker in world.askers)
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
    return Request(KEYS[asker.key], taken, policy, terms_of(policy), ABOUTS[asker.about], SHAPE, asked, PLAIN)


def is_same_request(one: bytes, other: bytes) -> bool:
    """Whether two fingerprints are of one request, whichever way they were taken."""
    return ASKED[FINGERPRINTS.index(one)] == ASKED[FINGERPRINTS.index(other)]


@cache
def setting_of(world: World) -> Setting:
    """The one setting of a world."""
    return Setting(world)


_PAIR: Final = (Asker(0), Asker(1))
_SEARCHED: Final = (Asker(0, about=1), Asker(1, about=2))
_CROWD: Final = (Asker(0), Asker(0), Asker(1))
_STORE: Final[tuple[Fault, ...]] = ("refuse", "lose", "late", "crash", "stall", "hang", "cancel")
_ENDINGS: Final[tuple[Fault, ...]] = ("doubt", "retry", "final", "lose", "crash", "stall", "cancel")

SMALL: Final[tuple[World, ...]] = (
    World(name="rerun", askers=_PAIR, faults=_STORE, budget=2, slow=1),
    World(name="hold", askers=_PAIR, faults=_STORE, budget=2, slow=1, in_doubt="hold"),
    World(
        name="reconcile", askers=_PAIR, faults=_STORE, budget=2, slow=1, in_doubt="reconcile", delivery=0.15, stall=0.6
    ),
    World(name="handler fails", askers=_PAIR, faults=_ENDINGS, budget=2),
    World(name="handler fails, hold", askers=_PAIR, faults=_ENDINGS, budget=2, in_doubt="hold"),
    World(
        name="hook asked",
        askers=_PAIR,
        faults=("doubt", "unsure", "crash", "stall", "lose", "cancel"),
        budget=2,
        slow=1,
        in_doubt="reconcile",
        delivery=0.15,
        stall=0.6,
        wait_for=2.0,
    ),
    World(
        name="attempts run out", askers=_PAIR, faults=("doubt", "retry", "crash", "cancel"), budget=2, max_attempts=2
    ),
    World(name="two policies", askers=(Asker(0), Asker(1, in_doubt="hold")), faults=_ENDINGS, budget=2),
    World(name="two fingerprints", askers=(Asker(0), Asker(1, fingerprint=1)), faults=_STORE, budget=2),
    World(name="two versions of fingerprints", askers=(Asker(0), Asker(1, fingerprint=2)), faults=_STORE, budget=2),
    World(name="clock jumps", askers=_PAIR, faults=("jump", "crash", "stall", "lose"), budget=2, slow=1),
    World(name="clocks off", askers=_PAIR, faults=_STORE, budget=2, skews=(600.0, -600.0)),
    World(name="never touched", askers=_PAIR, faults=_STORE, budget=2, touches=False),
    World(name="steps", askers=_PAIR, faults=("crash", "lose", "stall", "doubt"), budget=2, steps=2),
    World(
        name="long handler",
        askers=_PAIR,
        faults=("refuse", "lose", "stall", "hang", "cancel"),
        budget=2,
        work=(0.3, 0.1),
        wait_for=2.0,
    ),
    World(name="wedged handler", askers=_PAIR, faults=("lose", "crash"), budget=2, work=(1.2, 0.0), wait_for=2.0),
    World(name="impatient", askers=_PAIR, faults=_STORE, budget=2, work=(0.08, 0.0), wait_for=0.1),
    World(name="no waiting", askers=_PAIR, faults=_STORE, budget=2, when_running="reject"),
    World(
        name="purged",
        askers=(Asker(0), Asker(1), Asker(1, sweeps=True)),
        faults=("stall", "crash", "late"),
        budget=1,
        slow=2,
        keep_for=0.4,
        stall=1.2,
    ),
    World(name="swept", askers=(*_PAIR, Asker(1, sweeps=True)), faults=("crash", "stall"), budget=2),
    World(
        name="swept and asked",
        askers=(Asker(0), Asker(1, sweeps=True)),
        faults=("crash", "stall", "lose", "doubt"),
        budget=2,
        slow=1,
        in_doubt="reconcile",
        delivery=0.15,
        stall=0.6,
    ),
    World(
        name="erased",
        askers=(Asker(0), Asker(1, fingerprint=1), Asker(1, erases=True)),
        faults=("lose", "crash", "stall", "final", "retry"),
        budget=2,
    ),
    World(
        name="erased while they wait",
        askers=(*_PAIR, Asker(1, erases=True)),
        faults=("lose", "stall", "cancel"),
        budget=1,
        slow=1,
        work=(0.08, 0.0),
        wait_for=0.1,
    ),
    World(
        name="erased and expired",
        askers=(Asker(0), Asker(1, fingerprint=1), Asker(1, erases=True)),
        faults=("late", "stall", "crash"),
        budget=1,
        slow=2,
        keep_for=0.4,
        stall=1.2,
    ),
    World(
        name="stated and corrected",
        askers=(Asker(0), Asker(1, resolves=True), Asker(2, resolves=True)),
        faults=("doubt", "lose", "crash"),
        budget=2,
        in_doubt="hold",
    ),
    World(
        name="corrected and expired",
        askers=(*_PAIR, Asker(2, resolves=True)),
        faults=("doubt", "late"),
        budget=2,
        slow=1,
        in_doubt="hold",
        keep_for=0.1,
    ),
    World(
        name="forced",
        askers=(*_PAIR, Asker(2, forces=True)),
        faults=("lose", "stall", "late"),
        budget=1,
        slow=1,
        work=(0.08, 0.0),
    ),
    World(
        name="forced, hold",
        askers=(*_PAIR, Asker(2, forces=True)),
        faults=("lose", "crash", "doubt"),
        budget=1,
        in_doubt="hold",
        steps=1,
    ),
    World(
        name="reopened",
        askers=(Asker(0), Asker(1, reopens=True), Asker(2, reopens=True)),
        faults=("final", "lose", "late", "crash"),
        budget=2,
        steps=1,
    ),
    World(
        name="reopened after a doubt",
        askers=(Asker(0), Asker(1, reopens=True)),
        faults=("crash", "final", "doubt"),
        budget=3,
    ),
    World(
        name="reopened and expired",
        askers=(Asker(0), Asker(1, reopens=True)),
        faults=("final", "stall"),
        budget=2,
        slow=2,
        keep_for=0.4,
        stall=1.2,
    ),
    World(
        name="forced and reopened",
        askers=(Asker(0), Asker(1, forces=True), Asker(2, reopens=True)),
        faults=("lose", "late", "stall"),
        budget=1,
        steps=1,
    ),
    World(
        name="counted",
        askers=(Asker(0), Asker(1, counts=True), Asker(2, counts=True)),
        faults=("retry", "lose", "late"),
        budget=2,
        max_attempts=2,
    ),
    World(
        name="counted, two fingerprints",
        askers=(Asker(0), Asker(1, fingerprint=1, counts=True)),
        faults=("retry", "lose", "crash"),
        budget=2,
        max_attempts=3,
    ),
    World(
        name="counted and reopened",
        askers=(Asker(0), Asker(1, counts=True), Asker(2, reopens=True)),
        faults=("lose", "late", "final"),
        budget=1,
        max_attempts=1,
    ),
    World(
        name="counted and expired",
        askers=(Asker(0), Asker(1, counts=True)),
        faults=("lose", "late", "stall"),
        budget=1,
        slow=2,
        keep_for=0.4,
        stall=1.2,
    ),
    World(name="searched", askers=_SEARCHED, faults=("retry", "late", "crash", "stall"), budget=1, slow=1),
    World(
        name="searched and purged",
        askers=(*_SEARCHED, Asker(1, sweeps=True)),
        slow=2,
        keep_for=0.4,
    ),
    World(
        name="searched and erased",
        askers=(*_SEARCHED, Asker(1, erases=True)),
        faults=("lose", "retry", "final"),
        budget=2,
    ),
    World(
        name="searched and counted",
        askers=(Asker(0, about=1), Asker(1, counts=True, about=2)),
        faults=("retry", "lose", "late"),
        budget=2,
        max_attempts=3,
    ),
    World(
        name="searched in two scopes",
        askers=(Asker(0, about=1), Asker(1, key=1, about=2)),
        faults=("lose", "crash"),
        budget=1,
    ),
    World(name="one batch", askers=_CROWD, faults=("lose", "cancel"), budget=2),
    World(name="threads", askers=_CROWD, faults=("lose", "cancel"), budget=2, colour="threads"),
    World(
        name="left alone",
        askers=_CROWD,
        faults=("refuse", "lose", "hang"),
        budget=2,
        failures=1,
        work=(0.08, 0.0),
        batch=1,
    ),
    World(
        name="left alone, threads",
        askers=_CROWD,
        faults=("refuse", "cancel"),
        budget=2,
        failures=1,
        colour="threads",
        retry_budget=False,
    ),
    World(name="never sent again", askers=_PAIR, faults=_STORE, budget=2, retry_budget=False),
    World(name="two scopes", askers=(Asker(0), Asker(0, key=1)), faults=("half", "lose", "cancel"), budget=2),
)

_FAULTS_OF_A_CALL: Final[tuple[Fault, ...]] = ("lose", "crash", "stall")
_BY_BOTH_COLOURS: Final = tuple(
    World(name=f"decorated, {name}", askers=askers, budget=1, calls="decorated", **settings)
    for name, askers, settings in (
        ("rerun", _PAIR, {"faults": (*_FAULTS_OF_A_CALL, "refuse", "hang"), "slow": 1}),
        ("hold", _PAIR, {"faults": (*_FAULTS_OF_A_CALL, "doubt", "retry", "final"), "in_doubt": "hold"}),
        (
            "hook asked",
            _PAIR,
            {
                "faults": ("doubt", "unsure", "crash", "stall"),
                "in_doubt": "reconcile",
                "delivery": 0.15,
                "stall": 0.6,
                "wait_for": 2.0,
            },
        ),
        ("long handler", _PAIR, {"faults": ("refuse", "stall", "lose"), "work": (0.3, 0.1), "wait_for": 2.0}),
        ("crowd", _CROWD, {"faults": ("lose", "crash")}),
        ("two fingerprints", (Asker(0), Asker(1, fingerprint=1)), {"faults": _FAULTS_OF_A_CALL}),
        ("two scopes", (Asker(0), Asker(0, key=1)), {"faults": ("half", "lose")}),
        ("cancelled", _CROWD, {"faults": ("lose", "cancel")}),
        ("cancelled in doubt", _PAIR, {"faults": ("cancel",), "in_doubt": "hold", "work": (0.08, 0.0), "slow": 1}),
        ("steps", _PAIR, {"faults": ("crash", "lose", "cancel"), "steps": 2}),
    )
)
DECORATED: Final[tuple[World, ...]] = (
    *_BY_BOTH_COLOURS,
    *(replace(world, name=f"{world.name}, threads", colour="threads") for world in _BY_BOTH_COLOURS),
)
"""The same calls through decorated functions of both colours."""


def by_chance(seed: int) -> list[World]:
    """What chance explores: by turns a small world in which more goes wrong, and a larger one."""
    more = [replace(world, budget=world.budget + 1, slow=world.slow + 2) for world in SMALL]
    larger = large(seed, len(more) * 4)
    return [world for number, one in enumerate(larger) for world in (more[number % len(more)], one)]


def large(seed: int, count: int) -> list[World]:
    """Worlds with more of everything, by chance; the same ones for the same seed."""
    dice = random.Random(f"worlds:{seed}")
    return [_drawn(dice, number) for number in range(count)]


def _drawn(dice: random.Random, number: int) -> World:
    workers = dice.choice((2, 2, 3, 4))
    askers = tuple(_asker(dice, workers) for _ in range(dice.choice((2, 3, 3, 4, 6))))
    faults = tuple(kind for kind in FAULTS if dice.random() < 0.8)
    in_doubt: Doubt = dice.choice(("rerun", "hold", "reconcile"))
    world = World(
        name=f"large {number}",
        askers=askers if any(asker.calls for asker in askers) else (*askers, Asker(0)),
        faults=faults,
        budget=dice.randint(1, 5),
        slow=dice.randint(0, 6),
        colour=dice.choice(("tasks", "threads")),
        in_doubt=in_doubt,
        when_running=dice.choice(("wait", "wait", "wait", "reject")),
        wait_for=dice.choice((0.1, 0.6, 1.5, 3.0)),
        max_attempts=dice.choice((None, None, 2, 3)),
        work=dice.choice(((0.0, 0.0), (0.0, 0.0), (0.08, 0.0), (0.2, 0.2), (1.2, 0.0))),
        steps=dice.choice((0, 0, 2)),
        batch=dice.choice((1, 2, 64)),
        skews=dice.choice(((0.0,), (600.0, -600.0, 5.0))),
        touches=dice.random() < 0.8,
        failures=dice.choice((5, 5, 2, 1)),
        retry_budget=dice.random() < 0.8,
    )
    if in_doubt == "reconcile":
        world = replace(world, delivery=0.15, stall=0.6)
    if dice.random() < 0.2:
        world = replace(world, keep_for=0.4, stall=1.2)
    return world


def _asker(dice: random.Random, workers: int) -> Asker:
    return Asker(
        worker=dice.randrange(workers),
        key=dice.choice((0, 0, 0, 1, 2)),
        fingerprint=dice.choice((0, 0, 0, 0, 1)),
        in_doubt=dice.choice((None, None, None, None, None, "rerun", "hold")),
        sweeps=dice.random() < 0.12,
        erases=dice.random() < 0.1,
        resolves=dice.random() < 0.1,
        forces=dice.random() < 0.06,
        reopens=dice.random() < 0.06,
        counts=dice.random() < 0.06,
    )


_REDIS: Final = World(
    name="redis", store="redis", askers=(Asker(0), Asker(1)), faults=("lose", "late", "crash", "stall"), budget=2
)
_ERASED: Final = (Asker(0), Asker(1, fingerprint=1), Asker(1, erases=True))
_CORRECTED: Final = (Asker(0), Asker(1, resolves=True), Asker(2, resolves=True))
_REDIS_CORRECTED: Final = replace(
    _REDIS, name="redis, corrected", askers=_CORRECTED, faults=("doubt", "lose", "late"), in_doubt="hold"
)
_REOPENED: Final = (Asker(0), Asker(1, forces=True), Asker(2, reopens=True))
_COUNTED: Final = (Asker(0), Asker(1, counts=True), Asker(2, counts=True))
_REDIS_REOPENED: Final = replace(_REDIS, name="redis, reopened", askers=_REOPENED, faults=("final", "lose"), budget=1)
_REDIS_COUNTED: Final = replace(
    _REDIS, name="redis, counted", askers=_COUNTED, faults=("retry", "lose"), budget=1, max_attempts=2
)
_REDIS_ERASED: Final = replace(_REDIS, name="redis, erased", askers=_ERASED, budget=1)
_REDIS_SEARCHED: Final = replace(
    _REDIS, name="redis, searched", askers=(*_SEARCHED, Asker(1, erases=True)), faults=("retry", "lose"), budget=1
)
_FORGETTING: Final = (
    replace(_REDIS, name="redis evicts", faults=("evict", "crash", "stall", "cancel"), in_doubt="hold"),
    replace(_REDIS, name="redis forgets, long", faults=("evict", "forget"), work=(0.3, 0.1), wait_for=2.0),
    replace(_REDIS, name="redis fails over", faults=("forget", "crash", "lose", "cancel")),
    replace(
        _REDIS,
        name="redis forgets, asked",
        faults=("forget", "evict", "crash", "stall"),
        in_doubt="reconcile",
        delivery=0.15,
        stall=0.6,
    ),
    replace(_REDIS, name="redis forgets steps", faults=("forget", "crash"), steps=2),
)

_DYNAMODB: Final = replace(_REDIS, name="dynamodb, crashes", store="dynamodb", faults=("crash", "stall", "cancel"))
_DELETING: Final = replace(
    _DYNAMODB, name="dynamodb deletes", faults=("expire", "stall"), slow=1, keep_for=0.4, stall=1.2
)
_UNRELIABLE: Final = (
    replace(_DYNAMODB, name="dynamodb", faults=("throttle", "lose", "late", "twice"), slow=1),
    _DYNAMODB,
    replace(_DYNAMODB, name="dynamodb, hold", faults=("lose", "twice", "crash", "stall"), in_doubt="hold"),
    replace(_DYNAMODB, name="dynamodb lags", faults=("lag", "lose", "stall"), work=(0.08, 0.0), wait_for=0.1),
    _DELETING,
    replace(
        _DELETING,
        name="dynamodb, swept",
        askers=(Asker(0), Asker(1, sweeps=True)),
        faults=("expire", "lag", "stall", "crash"),
        slow=0,
    ),
    replace(_DYNAMODB, name="dynamodb, clocks off", faults=("lose", "stall", "crash"), budget=1, skews=(600.0, -600.0)),
    replace(_DYNAMODB, name="dynamodb, erased", askers=_ERASED, faults=("lose", "twice", "stall"), budget=1),
    replace(
        _DYNAMODB, name="dynamodb, corrected", askers=_CORRECTED, faults=("doubt", "late", "twice"), in_doubt="hold"
    ),
    replace(_DYNAMODB, name="dynamodb, reopened", askers=_REOPENED, faults=("final", "late", "twice"), budget=1),
    replace(
        _DYNAMODB,
        name="dynamodb, counted",
        askers=_COUNTED,
        faults=("retry", "late", "twice"),
        budget=1,
        max_attempts=2,
    ),
    replace(
        _DYNAMODB,
        name="dynamodb, searched",
        askers=(*_SEARCHED, Asker(1, erases=True)),
        faults=("retry", "late", "twice"),
        budget=1,
    ),
    replace(
        _DELETING, name="dynamodb, searched and deleted", askers=_SEARCHED, faults=("expire", "stall"), budget=1, slow=1
    ),
    replace(_DYNAMODB, name="dynamodb, steps", faults=("crash", "lose", "twice"), budget=1, steps=2),
    replace(
        _DYNAMODB,
        name="dynamodb, one round",
        askers=(Asker(0), Asker(0, key=1)),
        faults=("lose", "throttle", "cancel"),
        budget=1,
    ),
)

SERVER_WORLDS: Final[tuple[World, ...]] = (
    *(_REDIS, _REDIS_ERASED, _REDIS_CORRECTED, _REDIS_REOPENED, _REDIS_COUNTED, _REDIS_SEARCHED),
    *_FORGETTING,
    *_UNRELIABLE,
)

SERVER_SOMETIMES: Final = frozenset({
    "fault: evict", "fault: forget", "fault: throttle", "fault: twice", "fault: lag", "fault: expire",
    "effect repeated, its record was forgotten",
})  # fmt: skip
