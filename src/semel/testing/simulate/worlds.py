"""The worlds that are simulated: small ones explored to the end, and larger ones drawn by chance.

What always holds: in every small world two processes share one key and two things go wrong (one, where records
expire), at any point and in any combination, under every order of moves; `slow` says how often time may pass although
somebody could go on. Where a world lists fewer kinds of faults, another one has the rest.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from semel.core.policy import Doubt
from semel.testing.simulate.world import FAULTS, Asker, Fault, World

_PAIR: Final = (Asker(0), Asker(1))
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
        resends=False,
    ),
    World(name="never sent again", askers=_PAIR, faults=_STORE, budget=2, resends=False),
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
    )
)
DECORATED: Final[tuple[World, ...]] = (
    *_BY_BOTH_COLOURS,
    *(replace(world, name=f"{world.name}, threads", colour="threads") for world in _BY_BOTH_COLOURS),
)
"""The same calls through decorated functions of both colours; cancelling those is for real loops and threads."""


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
        resends=dice.random() < 0.8,
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
    )
