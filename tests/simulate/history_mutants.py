"""Mistakes one could make where histories are written, as switches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.record import Entry, Status, StoredRecord, changes_of, erase_entries
from semel.stores import memory
from semel.stores.memory import Histories, Table
from semel_lab.simulate import World
from tests.simulate.mutants import BY_NAME, Mutant, Switch

HISTORY_MUTANTS: list[Mutant] = []
Rule = Callable[[StoredRecord | None, StoredRecord, tuple[Entry, ...]], tuple[Entry, ...]]


def mutant(name: str, worlds: str | World) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        chosen = (worlds,) if isinstance(worlds, World) else tuple(BY_NAME[world] for world in worlds.split("; "))
        HISTORY_MUTANTS.append(Mutant(name, switch, chosen, frozenset({"history"})))
        return switch

    return add


def entering(rule: Rule) -> AbstractContextManager[Any]:
    """Entries that are chosen otherwise than they should be."""

    def wrong(before: StoredRecord | None, after: StoredRecord, known: Iterable[Entry] = ()) -> tuple[Entry, ...]:
        return rule(before, after, changes_of(before, after, known))

    return patch.object(memory, "changes_of", wrong)


@mutant("a take-over is not entered", "rerun; handler fails")
def _() -> AbstractContextManager[Any]:
    return entering(lambda _before, _after, entries: tuple(one for one in entries if one.kind != "taken_over"))


@mutant("an attempt that ended without a value is not entered", "rerun; handler fails")
def _() -> AbstractContextManager[Any]:
    return entering(lambda _before, _after, entries: tuple(one for one in entries if one.kind != "attempt"))


@mutant("an attempt whose handler was never called is entered", "rerun; handler fails")
def _() -> AbstractContextManager[Any]:
    def rule(before: StoredRecord | None, after: StoredRecord, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        gave_back = before is not None and after.nonce == before.nonce and after.attempts < before.attempts
        if not gave_back or before is None:
            return entries
        return changes_of(before, replace(after, attempts=before.attempts))

    return entering(rule)


@mutant("a failure that is sent again is entered again", "handler fails; handler fails, hold")
def _() -> AbstractContextManager[Any]:
    right = Table.fail

    def fail(self: Table, operation: Any, now: int) -> Any:
        before = self.records.get(operation.lease.key.digest)
        answer = right(self, operation, now)
        digest = operation.lease.key.digest
        known = self.histories.entries.get(digest, ())
        if before is not None and self.records[digest] is before and known and known[-1].nonce == operation.lease.nonce:
            self.histories.entries[digest] = (*known, known[-1])
        return answer

    return patch.object(Table, "fail", fail)


@mutant("a completed attempt is entered", "rerun; handler fails")
def _() -> AbstractContextManager[Any]:
    right = Table.complete

    def complete(self: Table, operation: Any, now: int) -> Any:
        answer = right(self, operation, now)
        digest = operation.lease.key.digest
        record = self.records.get(digest)
        known = self.histories.entries.get(digest, ())
        if record is not None and record.status is Status.COMPLETED and record.nonce == operation.lease.nonce:
            ended = Entry(record.fence, "attempt", 1, now, now, record.nonce, "completed", None)
            self.histories.entries[digest] = (*known, ended)
        return answer

    return patch.object(Table, "complete", complete)


@mutant("the errors of attempts are not erased", "erased")
def _() -> AbstractContextManager[Any]:
    def wrong(record: StoredRecord, entries: Iterable[Entry], now: int) -> tuple[Entry, ...]:
        kept = tuple(entries)
        return (*kept, *erase_entries(record, kept, now)[len(kept) :])

    return patch.object(memory, "erase_entries", wrong)


@mutant("an erasure is not entered", "erased")
def _() -> AbstractContextManager[Any]:
    return patch.object(Histories, "erase", lambda _self, _record, _now: None)


@mutant("a reopening is not entered", "reopened; forced and reopened")
def _() -> AbstractContextManager[Any]:
    return entering(lambda _before, _after, entries: tuple(one for one in entries if one.kind != "reopened"))


@mutant("a decision is not entered", "forced; forced and reopened")
def _() -> AbstractContextManager[Any]:
    return entering(lambda _before, _after, entries: tuple(one for one in entries if one.kind != "resolved"))


@mutant("the attempt that a decision ends is not entered", "forced; forced, hold")
def _() -> AbstractContextManager[Any]:
    return entering(lambda _before, _after, entries: entries[-1:])


@mutant("a next life has the entries of the one before", "counted and expired")
def _() -> AbstractContextManager[Any]:
    right = Histories.follow

    def follow(self: Histories, before: StoredRecord | None, after: StoredRecord | None, digest: bytes) -> None:
        kept = self.entries.get(digest, ())
        right(self, before, after, digest)
        if after is not None and before is not None and before.created_us != after.created_us and kept:
            self.entries[digest] = kept

    return patch.object(Histories, "follow", follow)
