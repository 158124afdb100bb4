"""Mistakes one could make where operators state what came of a doubt, and correct what was stated, as switches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.claim_rules import may_resolve
from semel.core.operations import Claim, Replay, Resolve, Resolved, StateMismatch
from semel.core.record import Failure, Status, StoredRecord
from semel.engine import admin
from semel.stores import memory
from semel.stores.memory import Table
from semel_lab.simulate import Asker, World
from tests.simulate.mutants import BY_NAME, PAIR, Mutant, Switch

STATED_MUTANTS: list[Mutant] = []


def mutant(name: str, world: str | World, breaks: str) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        chosen = BY_NAME[world] if isinstance(world, str) else world
        STATED_MUTANTS.append(Mutant(name, switch, (chosen,), frozenset({breaks})))
        return switch

    return add


def correctable(rule: Callable[[StoredRecord, Resolve], bool]) -> AbstractContextManager[Any]:
    """Another rule for what may be corrected; doubts are ended as ever."""

    def wrong(record: StoredRecord, operation: Resolve, now: int) -> bool:
        return may_resolve(record, operation, now) if operation.corrects is None else rule(record, operation)

    return patch.object(memory, "may_resolve", wrong)


@mutant("a correction does not compare the record with the one that was seen", "stated and corrected", "stated")
def _() -> AbstractContextManager[Any]:
    return correctable(lambda record, _: record.status is Status.COMPLETED and not record.erased)


@mutant("a correction overwrites a claim that runs", "corrected and expired", "I4")
def _() -> AbstractContextManager[Any]:
    return correctable(
        lambda record, correction: record.status is Status.RUNNING or record.nonce == correction.corrects
    )


@mutant("what a handler gave is corrected", "stated and corrected", "stated")
def _() -> AbstractContextManager[Any]:
    return patch.object(admin, "is_stated", lambda record: record.status is Status.COMPLETED)


@mutant("a correction leaves the fence as it is", "stated and corrected", "I4")
def _() -> AbstractContextManager[Any]:
    right = Table.resolve

    def resolve(self: Table, operation: Resolve, now: int) -> Resolved | StateMismatch:
        seen, answer = self.records.get(operation.digest), right(self, operation, now)
        if seen is None or operation.corrects is None or isinstance(answer, StateMismatch):
            return answer
        record = self.records[operation.digest] = replace(answer.record, fence=seen.fence)
        return Resolved(record)

    return patch.object(Table, "resolve", resolve)


@mutant("a correction leaves the value that was stated before", "stated and corrected", "stated")
def _() -> AbstractContextManager[Any]:
    right = Table.resolve

    def resolve(self: Table, operation: Resolve, now: int) -> Resolved | StateMismatch:
        seen = self.records.get(operation.digest)
        corrects = seen is not None and operation.corrects is not None
        return right(self, replace(operation, outcome=seen.outcome) if corrects and seen else operation, now)

    return patch.object(Table, "resolve", resolve)


ASKED_LATER = World(
    name="asked later", askers=(*PAIR, Asker(2, resolves=True)), faults=("doubt",), budget=1, in_doubt="hold"
)


@mutant("a replay tells what was stated before the correction", ASKED_LATER, "I2")
def _() -> AbstractContextManager[Any]:
    right_resolve, right_claim = Table.resolve, Table.claim

    def resolve(self: Table, operation: Resolve, now: int) -> Resolved | StateMismatch:
        seen, answer = self.records.get(operation.digest), right_resolve(self, operation, now)
        if seen is None or seen.outcome is None or isinstance(answer, StateMismatch):
            return answer
        record = self.records[operation.digest] = replace(answer.record, error=Failure("before", seen.outcome.hex()))
        return Resolved(record)

    def claim(self: Table, operation: Claim, now: int) -> Any:
        answer = right_claim(self, operation, now)
        if isinstance(answer, Replay) and answer.record.error is not None and answer.record.error.type == "before":
            before = bytes.fromhex(answer.record.error.message)
            return replace(answer, record=replace(answer.record, outcome=before))
        return answer

    switches = ExitStack()
    switches.enter_context(patch.object(Table, "resolve", resolve))
    switches.enter_context(patch.object(Table, "claim", claim))
    return switches
