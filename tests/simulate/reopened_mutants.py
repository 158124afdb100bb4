"""Mistakes one could make where operators force and reopen, and where failures are counted afterwards, as switches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.claim_rules import count_failure, may_resolve, reopen
from semel.core.operations import Counted, CountFailure, Reopen, Resolve, Resolved, StateMismatch
from semel.core.record import Status, StoredRecord
from semel.engine import admin
from semel.stores import memory
from semel.stores.memory import Table
from semel_lab.simulate import Asker, World
from tests.simulate.mutants import BY_NAME, Mutant, Switch

REOPENED_MUTANTS: list[Mutant] = []


def mutant(name: str, worlds: str | World, *breaks: str) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        chosen = (worlds,) if isinstance(worlds, World) else tuple(BY_NAME[world] for world in worlds.split("; "))
        REOPENED_MUTANTS.append(Mutant(name, switch, chosen, frozenset(breaks)))
        return switch

    return add


def as_if(change: Callable[[StoredRecord, Reopen], StoredRecord]) -> AbstractContextManager[Any]:
    """Whether a record may be reopened, asked about another one than is there."""

    def wrong(record: StoredRecord, operation: Reopen, now: int) -> StoredRecord | None:
        opened = reopen(change(record, operation), operation, now)
        return opened and replace(opened, outcome=record.outcome)

    return patch.object(memory, "reopen", wrong)


def opening(change: Callable[[StoredRecord, StoredRecord], StoredRecord]) -> AbstractContextManager[Any]:
    """What becomes of a record that is reopened, otherwise than it should."""

    def wrong(record: StoredRecord, operation: Reopen, now: int) -> StoredRecord | None:
        opened = reopen(record, operation, now)
        return None if opened is None else change(record, opened)

    return patch.object(memory, "reopen", wrong)


def resolving(change: Callable[[StoredRecord, StoredRecord], StoredRecord]) -> AbstractContextManager[Any]:
    """What becomes of a record that is resolved by force, otherwise than it should."""
    right = Table.resolve

    def resolve(self: Table, operation: Resolve, now: int) -> Resolved | StateMismatch:
        seen, answer = self.records.get(operation.digest), right(self, operation, now)
        if seen is None or not operation.force or seen.nonce == operation.nonce or isinstance(answer, StateMismatch):
            return answer
        record = self.records[operation.digest] = change(seen, answer.record)
        return Resolved(record)

    return patch.object(Table, "resolve", resolve)


def counting(
    change: Callable[[StoredRecord | None, CountFailure], tuple[StoredRecord | None, CountFailure]],
) -> AbstractContextManager[Any]:
    """The rule of counting, asked about something else than what is there."""

    def wrong(record: StoredRecord | None, operation: CountFailure, now: int) -> StoredRecord | None:
        return count_failure(*change(record, operation), now)

    return patch.object(memory, "count_failure", wrong)


TWO_OPERATORS = World(
    name="two operators",
    askers=(Asker(0), Asker(1), Asker(2, reopens=True), Asker(3, reopens=True)),
    faults=("final",),
    budget=2,
)


@mutant("a reopening does not compare the record with the one that was seen", TWO_OPERATORS, "reopened")
def _() -> AbstractContextManager[Any]:
    return as_if(lambda record, operation: replace(record, nonce=operation.seen))


@mutant("what is completed is reopened", "reopened; forced and reopened", "I7")
def _() -> AbstractContextManager[Any]:
    return as_if(
        lambda record, _: replace(record, status=Status.CANCELLED) if record.status is Status.COMPLETED else record
    )


@mutant("what runs is reopened", "reopened; forced and reopened", "reopened")
def _() -> AbstractContextManager[Any]:
    return as_if(
        lambda record, _: replace(record, status=Status.CANCELLED) if record.status is Status.RUNNING else record
    )


@mutant("what may be tried again anyway is reopened", "forced and reopened", "reopened")
def _() -> AbstractContextManager[Any]:
    return as_if(lambda record, _: replace(record, retryable=False))


@mutant("a reopening forgets finished steps", "reopened; forced and reopened", "reopened")
def _() -> AbstractContextManager[Any]:
    return opening(lambda _, opened: replace(opened, steps=()))


@mutant("a reopening starts the fence again", "reopened; forced and reopened", "reopened")
def _() -> AbstractContextManager[Any]:
    return opening(lambda _, opened: replace(opened, fence=0))


@mutant("a reopening forgets what was in doubt", "reopened after a doubt", "reopened")
def _() -> AbstractContextManager[Any]:
    return opening(lambda _, opened: replace(opened, doubtful=False))


@mutant("a reopening keeps the attempts that were counted", "counted and reopened", "reopened")
def _() -> AbstractContextManager[Any]:
    return opening(lambda record, opened: replace(opened, attempts=record.attempts))


@mutant("a reopening leaves the nonce as it is", "reopened; forced and reopened", "reopened")
def _() -> AbstractContextManager[Any]:
    return opening(lambda record, opened: replace(opened, nonce=record.nonce))


@mutant("an operator reopens whatever is there when its decision arrives", "reopened", "reopened")
def _() -> AbstractContextManager[Any]:
    right = admin.reopen

    def wrong(*arguments: Any, **options: Any) -> Any:
        flow = right(*arguments, **options)
        found = yield next(flow)
        operation = flow.send(found)
        return flow.send((yield replace(operation, seen=b"whatever")))

    switches = ExitStack()
    switches.enter_context(patch.object(admin, "reopen", wrong))
    switches.enter_context(as_if(lambda record, operation: replace(record, nonce=operation.seen)))
    return switches


@mutant("force leaves the fence as it is", "forced; forced and reopened", "I4")
def _() -> AbstractContextManager[Any]:
    return resolving(lambda seen, record: replace(record, fence=seen.fence))


@mutant("force leaves the nonce as it is", "forced; forced and reopened", "I4")
def _() -> AbstractContextManager[Any]:
    return resolving(lambda seen, record: replace(record, nonce=seen.nonce))


@mutant("a live lease is ended without force", "stated and corrected", "I4")
def _() -> AbstractContextManager[Any]:
    def wrong(record: StoredRecord, operation: Resolve, now: int) -> bool:
        return may_resolve(record, replace(operation, force=operation.corrects is None), now)

    return patch.object(memory, "may_resolve", wrong)


@mutant("force changes what is settled", "forced; forced, hold", "I4")
def _() -> AbstractContextManager[Any]:
    def wrong(record: StoredRecord, operation: Resolve, now: int) -> bool:
        return operation.force or may_resolve(record, operation, now)

    return patch.object(memory, "may_resolve", wrong)


@mutant("what is stated to have failed may be tried again", "forced", "stated")
def _() -> AbstractContextManager[Any]:
    return resolving(lambda _, record: replace(record, retryable=record.status is Status.FAILED))


@mutant("a failure is counted for another fingerprint", "counted, two fingerprints", "I5")
def _() -> AbstractContextManager[Any]:
    return counting(
        lambda record, operation: (record, operation if record is None else _with_fingerprint(operation, record))
    )


def _with_fingerprint(operation: CountFailure, record: StoredRecord) -> CountFailure:
    return replace(operation, fingerprint=record.fingerprint)


@mutant("a failure is counted in a record that runs", "counted", "counted")
def _() -> AbstractContextManager[Any]:
    def change(record: StoredRecord | None, operation: CountFailure) -> tuple[StoredRecord | None, CountFailure]:
        if record is not None and record.status is Status.RUNNING:
            record = replace(record, status=Status.FAILED, retryable=True)
        return record, operation

    return counting(change)


@mutant("a failure is counted in a record that is over", "counted", "counted")
def _() -> AbstractContextManager[Any]:
    def change(record: StoredRecord | None, operation: CountFailure) -> tuple[StoredRecord | None, CountFailure]:
        if record is not None and record.settled:
            record = replace(record, status=Status.FAILED, retryable=True)
        return record, operation

    return counting(change)


@mutant("an attempt is counted twice", "counted", "counted")
def _() -> AbstractContextManager[Any]:
    def count(self: Table, operation: CountFailure, now: int) -> Counted | StateMismatch:
        record = self.records.get(operation.key.digest)
        changed = count_failure(record, operation, now)
        if changed is None:
            return StateMismatch(record)
        self.records[operation.key.digest] = changed
        self._enter(record, operation.key.digest)
        return Counted(changed)

    return patch.object(Table, "count_failure", count)


@mutant("the last attempt that is allowed is not final", "counted", "counted")
def _() -> AbstractContextManager[Any]:
    return counting(lambda record, operation: (record, replace(operation, max_attempts=None)))


@mutant("one attempt more than is allowed", "counted", "counted")
def _() -> AbstractContextManager[Any]:
    def change(record: StoredRecord | None, operation: CountFailure) -> tuple[StoredRecord | None, CountFailure]:
        return record, replace(operation, max_attempts=(operation.max_attempts or 0) + 1)

    return counting(change)


@mutant("an expired record is counted on", "counted and expired", "counted", "I4", "I7")
def _() -> AbstractContextManager[Any]:
    return counting(lambda record, operation: (record and replace(record, expires_us=2**60), operation))


@mutant("a counted failure leaves the fence as it is", "counted", "I4")
def _() -> AbstractContextManager[Any]:
    def count(record: StoredRecord | None, operation: CountFailure, now: int) -> StoredRecord | None:
        counted = count_failure(record, operation, now)
        return counted if record is None or counted is None else replace(counted, fence=record.fence)

    return patch.object(memory, "count_failure", count)
