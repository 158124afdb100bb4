"""The worlds of servers that forget, lag and delete: small ones, explored to the end.

What always holds: on a Redis that forgets nothing, and on DynamoDB whatever it does, every invariant holds. On a Redis
that evicts or fails over an effect may be repeated, and then a record of its key was forgotten before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from semel.testing.simulate.world import Asker, World

_REDIS: Final = World(
    name="redis", store="redis", askers=(Asker(0), Asker(1)), faults=("lose", "late", "crash", "stall"), budget=2
)
_ERASED: Final = (Asker(0), Asker(1, fingerprint=1), Asker(1, erases=True))
_CORRECTED: Final = (Asker(0), Asker(1, resolves=True), Asker(2, resolves=True))
_REDIS_CORRECTED: Final = replace(
    _REDIS, name="redis, corrected", askers=_CORRECTED, faults=("doubt", "lose", "late"), in_doubt="hold"
)
_REDIS_ERASED: Final = replace(_REDIS, name="redis, erased", askers=_ERASED, budget=1)
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
    replace(_DYNAMODB, name="dynamodb, steps", faults=("crash", "lose", "twice"), budget=1, steps=2),
    replace(
        _DYNAMODB,
        name="dynamodb, one round",
        askers=(Asker(0), Asker(0, key=1)),
        faults=("lose", "throttle", "cancel"),
        budget=1,
    ),
)

SERVER_WORLDS: Final[tuple[World, ...]] = (_REDIS, _REDIS_ERASED, _REDIS_CORRECTED, *_FORGETTING, *_UNRELIABLE)

SERVER_SOMETIMES: Final = frozenset({
    "fault: evict", "fault: forget", "fault: throttle", "fault: twice", "fault: lag", "fault: expire",
    "effect repeated, its record was forgotten",
})  # fmt: skip
