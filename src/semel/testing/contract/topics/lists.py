"""Lists: an operation does the same alone and beside others of its kind, whatever statements a store has for either."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from semel.core import codec
from semel.core.operations import (
    Checkpoint,
    Claim,
    Complete,
    Erase,
    Fail,
    Operation,
    Read,
    Renew,
    Resolve,
    Tally,
)
from semel.core.policy import Policy
from semel.core.record import Failure, Lease, Record, Status, Step
from semel.core.shape import AsIs
from semel.stores.memory.table import Table
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

KEEP = 20
POLICY = Policy(keep_for=timedelta(seconds=KEEP))
VALUE = codec.encode("value", AsIs(), 1000)
OOPS = Failure("builtins.OSError", "oops")
STEP = Step(0, "reserve", VALUE)


class Case(NamedTuple):
    """An operation on a claimed key, what is done to the key before it, and whether it settles the record."""

    operation: Callable[[World, Lease], Operation]
    before: Callable[[Lease], Operation] | None = None
    settles: bool = False


def _claim(world: World, lease: Lease) -> Claim:
    return replace(world.claim(policy=POLICY), key=lease.key)


def _final(lease: Lease) -> Fail:
    return Fail(lease, "final", OOPS, doubtful=False)


def _retry(lease: Lease) -> Fail:
    return Fail(lease, "retry", OOPS, doubtful=False)


def _doubt(lease: Lease) -> Fail:
    return Fail(lease, "doubt", OOPS, doubtful=True)


def _complete(lease: Lease) -> Complete:
    return Complete(lease, VALUE)


def _resolve(status: Status, outcome: bytes | None) -> Callable[[World, Lease], Resolve]:
    # One of the three statuses that a decision can have.
    return lambda _world, lease: Resolve(lease.key.digest, b"n" * 16, status, outcome, "looked")  # type: ignore[arg-type]


CASES: dict[str, Case] = {
    "renew": Case(lambda _world, lease: Renew(lease, 30_000_000)),
    "complete": Case(lambda _world, lease: _complete(lease), settles=True),
    "complete after a step": Case(
        lambda _world, lease: _complete(lease), before=lambda lease: Checkpoint(lease, STEP), settles=True
    ),
    "fail for good": Case(lambda _world, lease: _final(lease), settles=True),
    "fail and retry": Case(lambda _world, lease: _retry(lease), settles=True),
    "fail in doubt": Case(lambda _world, lease: _doubt(lease)),
    "give back": Case(lambda _world, lease: replace(_retry(lease), started=False), settles=True),
    "checkpoint": Case(lambda _world, lease: Checkpoint(lease, STEP)),
    "claim what runs": Case(_claim, before=lambda lease: Renew(lease, 100_000_000)),
    "claim what lapsed": Case(_claim),
    "claim what failed": Case(_claim, before=_retry),
    "claim what is in doubt": Case(_claim, before=_doubt),
    "claim what is completed": Case(_claim, before=_complete),
    "resolve as happened": Case(_resolve(Status.COMPLETED, VALUE), before=_doubt, settles=True),
    "resolve as not happened": Case(_resolve(Status.FAILED, None), before=_doubt, settles=True),
    "resolve as cancelled": Case(_resolve(Status.CANCELLED, None), before=_doubt, settles=True),
    "erase": Case(lambda _world, lease: Erase(lease.key.digest, "note"), before=_complete),
    "tally": Case(lambda _world, lease: Tally(lease.key.digest, 3), before=_complete),
    "read": Case(lambda _world, lease: Read(lease.key.digest, with_steps=True), before=_complete),
}
SETTLING = {name: case for name, case in CASES.items() if case.settles}

of_each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
of_each_settling = pytest.mark.parametrize("case", SETTLING.values(), ids=SETTLING.keys())
alone_and_several = pytest.mark.parametrize("count", [1, 3], ids=["alone", "in a list"])


class ListContract(Contract, calls=False):
    """What an operation does to its record does not depend on how many travel with it."""

    @of_each_case
    @alone_and_several
    async def test_a_list_does_to_each_record_what_the_rules_say(self, world: World, case: Case, count: int) -> None:
        leases = await _claimed(world, case, count, 3 * KEEP)
        before = await _records(world, leases)
        operations = [case.operation(world, lease) for lease in leases]
        now = world.clock.store_clock()
        answers = await world.perform(*operations)
        after = await _records(world, leases)
        for place, operation in enumerate(operations):
            expected, left = _by_the_rules(before[place], operation, now)
            assert type(answers[place]) is type(expected), f"{place + 1} of {count}: {answers[place]!r}"
            assert after[place] == left, f"{place + 1} of {count}"

    @of_each_settling
    @alone_and_several
    async def test_an_outcome_after_a_run_longer_than_keep_for_is_kept_for_its_full_time(
        self, world: World, case: Case, count: int
    ) -> None:
        leases = await _claimed(world, case, count, 3 * KEEP)
        await world.perform(*[case.operation(world, lease) for lease in leases])
        full = world.clock.store_clock() + KEEP * 1_000_000
        kept = [record.expires_us for record in await _records(world, leases)]
        assert kept == [full] * count

    @of_each_settling
    @alone_and_several
    async def test_an_outcome_after_a_short_run_expires_as_the_claim_said(
        self, world: World, case: Case, count: int
    ) -> None:
        said = world.clock.store_clock() + KEEP * 1_000_000
        leases = await _claimed(world, case, count, 1)
        await world.perform(*[case.operation(world, lease) for lease in leases])
        kept = [record.expires_us for record in await _records(world, leases)]
        assert kept == [said] * count

    @alone_and_several
    async def test_renewed_leases_last_their_full_time_after_a_run_longer_than_keep_for(
        self, world: World, count: int
    ) -> None:
        leases = await _claimed(world, CASES["renew"], count, 3 * KEEP)
        await world.perform(*[Renew(lease, 30_000_000) for lease in leases])
        full = world.clock.store_clock() + 30_000_000
        assert [record.lease_us for record in await _records(world, leases)] == [full] * count


async def _claimed(world: World, case: Case, count: int, seconds: int) -> list[Lease]:
    """Keys that were claimed so many seconds ago, and are as the case wants them."""
    leases = [await world.crash(f"k{number}", policy=POLICY) for number in range(count)]
    if case.before is not None:
        await world.perform(*[case.before(lease) for lease in leases])
    world.clock.advance(seconds)
    return leases


async def _records(world: World, leases: list[Lease]) -> list[Record]:
    found: list[Any] = await world.perform(*[Read(lease.key.digest, with_steps=True) for lease in leases])
    return [answer.record for answer in found]


def _by_the_rules(record: Record, operation: Operation, now: int) -> tuple[Any, Record | None]:
    """The answer of the decision table to one operation, and the record that it leaves."""
    table = Table()
    table.records[record.key.digest] = record
    return table.apply(operation, now), table.records.get(record.key.digest)
