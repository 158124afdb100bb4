"""Mistakes one could make with the audit chain, each as a switch that puts it in, and what may give it away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.operators.audit import SealAdded, head_sealed
from semel.stores.operators.memory import MemoryAudit
from semel.stores.sql.dialect import Row
from semel.stores.sql.operators import plan
from semel_lab.simulate.audits.simulation import CHAIN, ModelAudit, Statement

Switch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class AuditMutant:
    """A mistake, and the invariants it breaks."""

    name: str
    switch: Switch
    breaks: frozenset[str]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


AUDIT_MUTANTS: list[AuditMutant] = []


def mutant(name: str, *breaks: str) -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        AUDIT_MUTANTS.append(AuditMutant(name, switch, frozenset(breaks)))
        return switch

    return add


@mutant("the head is not compared", "A1")
def _() -> AbstractContextManager[Any]:
    right: Any = ModelAudit.move

    def move(self: Any, _seen: Any, moved: Any, rows: Sequence[Row]) -> list[Row]:
        found: list[Row] = right(self, self.table.heads[CHAIN], moved, rows)
        return found

    return patch.object(ModelAudit, "move", move)


@mutant("the head is compared by its number alone and entries may be replaced", "A1", "A3")
def _() -> AbstractContextManager[Any]:
    def move(self: Any, _seen: Any, moved: Any, rows: Sequence[Row]) -> list[Row]:
        for _, *columns in rows:
            entry = plan._entry_of(tuple(columns))
            self.table.entries.setdefault(CHAIN, {})[entry.seq] = entry
        head = self.table.heads[CHAIN]
        self.table.heads[CHAIN] = replace(head, seq=moved.seq, hash=moved.hash, at_us=moved.at_us)
        return [(CHAIN,)]

    return patch.object(ModelAudit, "move", move)


@mutant("the head moves alone", "A1")
def _() -> AbstractContextManager[Any]:
    right: Any = ModelAudit.move

    def append(self: Any, seen: Any, moved: Any, rows: Sequence[Row]) -> Any:
        moving = yield Statement("append", act=lambda: right(self, seen, moved, ()))
        if moving:
            yield Statement("add", act=lambda: self.add(rows) or [])
        return bool(moving)

    return patch.object(ModelAudit, "append", append)


@mutant("an entry that is sent again is not looked for", "A2")
def _() -> AbstractContextManager[Any]:
    def command_among(_self: Any, name: str, _among: Sequence[bytes], *_values: Any) -> Statement:
        return Statement(name, act=list)

    return patch.object(ModelAudit, "command_among", command_among)


@mutant("entries that are asked for together all follow the head", "A1")
def _() -> AbstractContextManager[Any]:
    return patch.object(plan, "head_at", lambda head, _entry: head)


@mutant("a range is sealed twice", "A4")
def _() -> AbstractContextManager[Any]:
    def seal(self: Any, chain: bytes, seal: Any) -> SealAdded:
        self.seals.setdefault(chain, {})[seal.last] = seal
        self.heads[chain] = head_sealed(self.heads[chain], seal)
        return SealAdded(is_done=True)

    return patch.object(MemoryAudit, "_seal", seal)
