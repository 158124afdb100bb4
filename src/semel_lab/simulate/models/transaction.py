"""A transaction in a model: what it has written, what it has locked, and what it can see.

What always holds: nobody else sees a version before it is committed; whoever rolls back, or dies, leaves nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec

from semel.core.record import Entry, StoredRecord


class Isolation(StrEnum):
    """How a caller's transaction looks at what others commit."""

    READ_COMMITTED = "read committed"
    REPEATABLE_READ = "repeatable read"


class Row(msgspec.Struct, frozen=True):
    """One version of a record. No two versions have the same stamp."""

    record: StoredRecord
    stamp: int
    wanted: bool = False
    entries: tuple[Entry, ...] = ()


Rows = dict[bytes, Row]


class SearchRow(NamedTuple):
    """One row beside a record by which it is found: the number of a searched value, and the life it was said in."""

    term: int
    created_us: int
    scope: str


SearchRows = dict[bytes, frozenset[SearchRow]]
"""By the digest of their record."""


@dataclass(eq=False, slots=True)
class Transaction:
    """One that is open."""

    name: str
    isolation: Isolation
    snapshot: Rows | None = None
    snapshot_search: SearchRows = field(default_factory=dict)
    written: dict[bytes, Row | None] = field(default_factory=dict)
    written_search: SearchRows = field(default_factory=dict)
    locked: set[bytes] = field(default_factory=set)
    gaps: set[bytes] = field(default_factory=set)
    held: set[Hashable] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    effects: list[Hashable] = field(default_factory=list)
    aborted: bool = False

    def claims(self, digest: bytes) -> bool:
        """Whether it keeps others from writing this row."""
        return digest in self.locked or digest in self.written

    def abort(self) -> None:
        """The server gave it up: what it did is undone at once, and it stays unusable until it is rolled back."""
        self.aborted = True
        self.written.clear()
        self.written_search.clear()
        self.locked.clear()
        self.gaps.clear()
        self.held.clear()
        self.marks.clear()
        self.effects.clear()


@dataclass(eq=False, slots=True)
class Session:
    """A connection: one of a lane, which has no isolation of its own, or one of a caller. No two have the same name."""

    name: str = ""
    isolation: Isolation | None = None
    transaction: Transaction | None = None
    begun: int = 0

    @property
    def joined(self) -> bool:
        """Whether it is a caller's."""
        return self.isolation is not None


class Begin(msgspec.Struct, frozen=True):
    """The caller begins a transaction."""


class Commit(msgspec.Struct, frozen=True):
    """The caller commits; where there is nothing to commit, nothing happens."""


class Rollback(msgspec.Struct, frozen=True):
    """The caller rolls back, or is gone: to the server that is the same."""
