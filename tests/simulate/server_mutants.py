"""Mistakes one could make on Redis and on DynamoDB, each as a switch that puts it in and takes it out again.

Those of the engine and of the rules are in `mutants.py`; here is what only a server that lags, deletes, forgets or
carries a request out twice gives away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace as with_changes
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.claim_rules import judge
from semel.core.operations import Claim, Operation
from semel.core.record import Lease, StoredRecord
from semel.stores import memory
from semel.stores.dynamodb import plan, request_builders
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call
from semel.stores.memory import Table
from semel_lab.simulate import SERVER_WORLDS
from semel_lab.simulate.models.redis import RedisModel
from semel_lab.simulate.store_model import WatchedDynamo
from tests.simulate.mutants import Mutant, Switch

SERVER_MUTANTS: list[Mutant] = []
BY_NAME = {world.name: world for world in SERVER_WORLDS}


def mutant(name: str, worlds: str, *breaks: str) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        chosen = tuple(BY_NAME[word] for word in worlds.split("; "))
        SERVER_MUTANTS.append(Mutant(name, switch, chosen, frozenset(breaks)))
        return switch

    return add


def judging(change: Callable[[StoredRecord, Claim], tuple[StoredRecord, Claim]]) -> AbstractContextManager[Any]:
    """The decision table, asked about something else than what is there."""

    def wrong(record: StoredRecord | None, claim: Claim, now: int) -> Any:
        return judge(record, claim, now) if record is None else judge(*change(record, claim), now)

    switches = ExitStack()
    for place in (memory, plan):
        switches.enter_context(patch.object(place, "judge", wrong))
    return switches


def without_terms(change: Callable[[list[str]], list[str]]) -> AbstractContextManager[Any]:
    """The writes under a lease with another condition."""
    right = request_builders._lease_terms
    return patch.object(request_builders, "_lease_terms", lambda expression, lease: change(right(expression, lease)))


@mutant("redis: a script without fence and nonce", "redis; redis fails over", "I4")
def _() -> AbstractContextManager[Any]:
    return patch.object(Table, "owned", lambda self, lease: self.records.get(lease.key.digest))


@mutant("redis: a script that compares the fence alone", "redis fails over", "I4")
def _() -> AbstractContextManager[Any]:
    def owned(self: Table, lease: Lease) -> StoredRecord | None:
        record = self.records.get(lease.key.digest)
        return record if record is not None and record.fence == lease.fence else None

    return patch.object(Table, "owned", owned)


@mutant("redis: the same claim again is not recognised", "redis", "ownerless")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim: (record, replace(claim, nonce=b"another")))


@mutant("redis: a key is removed before its time, and nobody said that it evicts", "redis", "I7")
def _() -> AbstractContextManager[Any]:
    right = RedisModel.apply

    def apply(self: RedisModel, operation: Operation, now: int) -> Any:
        for digest, record in list(self.table.records.items()):
            if record.settled:
                del self.table.records[digest]
        return right(self, operation, now)

    return patch.object(RedisModel, "apply", apply)


@mutant("dynamodb: the time to live decides what has expired", "dynamodb deletes", "I7")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim: (replace(record, expires_us=2**60), claim))


@mutant("dynamodb: readings are not consistent", "dynamodb lags", "waiters")
def _() -> AbstractContextManager[Any]:
    right = request_builders.get

    def get(name: str, digest: bytes) -> Call:
        call = right(name, digest)
        return with_changes(call, parameters={**call.parameters, "ConsistentRead": False})

    return patch.object(request_builders, "get", get)


@mutant("dynamodb: the worker's clock says what has expired", "dynamodb, clocks off", "I4", "I7", "I8", "told")
def _() -> AbstractContextManager[Any]:
    def moment(self: WatchedDynamo, worker: Any) -> Moment:
        now = self.sim.store_now() + round((0.0 if worker is None else worker.skew) * 1_000_000)
        return Moment(now, now)

    return patch.object(WatchedDynamo, "moment", moment)


@mutant("dynamodb: no nonce is compared after a request was sent again", "dynamodb", "ownerless")
def _() -> AbstractContextManager[Any]:
    return judging(lambda record, claim: (record, replace(claim, nonce=b"another")))


@mutant("dynamodb: writes without fence and nonce", "dynamodb, crashes; dynamodb", "I4")
def _() -> AbstractContextManager[Any]:
    return without_terms(lambda terms: terms[2:])


@mutant("dynamodb: writes without a running record", "dynamodb, hold; dynamodb", "I7")
def _() -> AbstractContextManager[Any]:
    return without_terms(lambda terms: terms[:2])


@mutant("dynamodb: a claim overwrites whatever is there", "dynamodb, crashes; dynamodb", "I4", "I7", "I9")
def _() -> AbstractContextManager[Any]:
    right = request_builders.put

    def put(name: str, record: StoredRecord, *rest: Any) -> Call:
        call = right(name, record, *rest)
        return with_changes(call, parameters={**call.parameters, "ConditionExpression": ""})

    return patch.object(request_builders, "put", put)


@mutant("dynamodb: a sweep believes the page that it has read", "dynamodb, swept", "I4", "I7")
def _() -> AbstractContextManager[Any]:
    right = plan._LAPSE.change

    def lapse(name: str, digest: bytes, moment: Moment) -> Call:
        call = right(name, digest, moment)
        return with_changes(call, parameters={**call.parameters, "ConditionExpression": ""})

    return patch.object(plan, "_LAPSE", with_changes(plan._LAPSE, change=lapse))
