"""The worlds of servers that forget, lag and delete: small ones, explored to the end.

What always holds: on a Redis that forgets nothing, and on DynamoDB whatever it does, every invariant holds. On a Redis
that evicts or fails over an effect may be repeated, and then a record of its key was forgotten before.
"""

from __future__ import annotations

from typing import Final

from semel.testing.simulate.world import Asker, World

_PAIR: Final = (Asker(0), Asker(1))

_REDIS: Final = (
    World(name="redis", store="redis", askers=_PAIR, faults=("lose", "late", "crash", "stall"), budget=2),
    World(
        name="redis evicts",
        store="redis",
        askers=_PAIR,
        faults=("evict", "crash", "stall", "cancel"),
        budget=2,
        in_doubt="hold",
    ),
    World(
        name="redis forgets, long",
        store="redis",
        askers=_PAIR,
        faults=("evict", "forget"),
        budget=2,
        work=(0.3, 0.1),
        wait_for=2.0,
    ),
    World(name="redis fails over", store="redis", askers=_PAIR, faults=("forget", "crash", "lose", "cancel"), budget=2),
    World(
        name="redis forgets, asked",
        store="redis",
        askers=_PAIR,
        faults=("forget", "evict", "crash", "stall"),
        budget=2,
        in_doubt="reconcile",
        delivery=0.15,
        stall=0.6,
    ),
    World(name="redis forgets steps", store="redis", askers=_PAIR, faults=("forget", "crash"), budget=2, steps=2),
)

_DYNAMODB: Final = (
    World(
        name="dynamodb", store="dynamodb", askers=_PAIR, faults=("throttle", "lose", "late", "twice"), budget=2, slow=1
    ),
    World(name="dynamodb, crashes", store="dynamodb", askers=_PAIR, faults=("crash", "stall", "cancel"), budget=2),
    World(
        name="dynamodb, hold",
        store="dynamodb",
        askers=_PAIR,
        faults=("lose", "twice", "crash", "stall"),
        budget=2,
        in_doubt="hold",
    ),
    World(
        name="dynamodb lags",
        store="dynamodb",
        askers=_PAIR,
        faults=("lag", "lose", "stall"),
        budget=2,
        work=(0.08, 0.0),
        wait_for=0.1,
    ),
    World(
        name="dynamodb deletes",
        store="dynamodb",
        askers=_PAIR,
        faults=("expire", "stall"),
        budget=2,
        slow=1,
        keep_for=0.4,
        stall=1.2,
    ),
    World(
        name="dynamodb, swept",
        store="dynamodb",
        askers=(Asker(0), Asker(1, sweeps=True)),
        faults=("expire", "lag", "stall", "crash"),
        budget=2,
        keep_for=0.4,
        stall=1.2,
    ),
    World(
        name="dynamodb, clocks off",
        store="dynamodb",
        askers=_PAIR,
        faults=("lose", "stall", "crash"),
        budget=1,
        skews=(600.0, -600.0),
    ),
    World(name="dynamodb, steps", store="dynamodb", askers=_PAIR, faults=("crash", "lose", "twice"), budget=1, steps=2),
    World(
        name="dynamodb, one round",
        store="dynamodb",
        askers=(Asker(0), Asker(0, key=1)),
        faults=("lose", "throttle", "cancel"),
        budget=1,
    ),
)

SERVER_WORLDS: Final[tuple[World, ...]] = (*_REDIS, *_DYNAMODB)

SERVER_SOMETIMES: Final = frozenset({
    "fault: evict", "fault: forget", "fault: throttle", "fault: twice", "fault: lag", "fault: expire",
    "effect repeated, its record was forgotten",
})  # fmt: skip
