"""The database of a world of events: the memory store's table, and transactions that write to it at their commit.

What always holds: a transaction holds each key that it claims until it ends, and nobody else is granted that key. What
it wrote is there after its commit, and nothing of it after its rollback. Effects are rows of the same database.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from copy import copy
from typing import Any, Final

from msgspec.structs import replace

from semel.core.events.letters import StoredLetter
from semel.core.operations import Answer, Claim, CountFailure, Operation, Running, StateMismatch
from semel.core.store import Answers, Capability, Plan
from semel.stores.memory import Table
from semel_lab.simulate.world import SECOND

HELD: Final = Running(50_000)
START: Final = 1_000 * SECOND


class Wish:
    """Something to await that the simulation has to do."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self._wanted)


class Session:
    """The transaction of one process: what it sees, and which keys it holds."""

    def __init__(self, check_alive: Callable[[], None]) -> None:
        self.check_alive = check_alive
        self.table: Table | None = None
        self.keys: set[bytes] = set()
        self.effects: list[str] = []
        self.is_over = False


class InTransaction:
    """What a joined plan asks for: an operation in a session."""

    def __init__(self, session: Session, operation: Operation) -> None:
        self.session = session
        self.operation = operation


class Joined:
    """A session as a place for plans: each operation is a wish of the simulation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def perform(self, plan: Plan) -> Answers:
        """Have the operations of a plan carried out."""
        operations = next(plan)
        self._session.check_alive()
        return [await Wish(InTransaction(self._session, operation)) for operation in operations]


class Database:
    """All tables of a world; the port of a store as far as consumers need it."""

    name = "simulated://events"
    max_operations = 64
    capabilities = frozenset({Capability.JOIN, Capability.LETTERS, Capability.OUTBOX})

    def __init__(self) -> None:
        self.table = Table()
        self.effects: list[str] = []
        self.sessions: list[Session] = []
        self.now_us = START

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined
        answers: Answers = yield operations
        return answers

    def async_join(self, connection: Any) -> Joined:
        """A session as a place for plans."""
        return Joined(connection)

    def letters(self) -> list[StoredLetter]:
        """All dead letters."""
        return list(self.table.letters._kept.values())

    def apply(self, operation: Operation) -> Answer:
        """Carry out one operation on a connection of semel's own."""
        if isinstance(operation, Claim | CountFailure) and self._is_held(operation.key.digest, None):
            return HELD if isinstance(operation, Claim) else StateMismatch(None)
        return self.table.apply(operation, self.now_us)

    def begin(self, check_alive: Callable[[], None]) -> Session:
        """Begin a transaction of somebody who may die."""
        session = Session(check_alive)
        self.sessions.append(session)
        return session

    def apply_in(self, session: Session, operation: Operation) -> Answer:
        """Carry out one operation in a transaction."""
        if session.table is None:
            session.table = _copy_of(self.table)
        if isinstance(operation, Claim):
            digest = operation.key.digest
            if self._is_held(digest, session):
                return HELD
            session.keys.add(digest)
        answer: Any = session.table.apply(operation, self.now_us)
        granted = getattr(answer, "record", None)
        if isinstance(operation, Claim) and granted is not None and hasattr(answer, "transaction"):
            return replace(answer, transaction="simulated")  # type: ignore[no-any-return]
        return answer  # type: ignore[no-any-return]

    def commit(self, session: Session) -> None:
        """Let everybody see what a transaction wrote."""
        self.roll_back(session)
        self.effects += session.effects
        staged = session.table
        if staged is None:
            return
        for digest in session.keys:
            if digest in staged.records:
                self.table.records[digest] = staged.records[digest]
        self.table.letters._kept = {
            id_: letter
            for id_, letter in self.table.letters._kept.items()
            if letter.record not in session.keys or id_ in staged.letters._kept
        }
        self.table.outbox.add(staged.events, self.now_us)

    def roll_back(self, session: Session) -> None:
        """End a transaction, and let go of its keys."""
        session.is_over = True
        if session in self.sessions:
            self.sessions.remove(session)

    def _is_held(self, digest: bytes, by: Session | None) -> bool:
        return any(digest in session.keys for session in self.sessions if session is not by)


def _copy_of(table: Table) -> Table:
    """What a transaction sees; what it adds to the outbox is its own."""
    staged = Table()
    staged.records = dict(table.records)
    staged.letters = copy(table.letters)
    staged.letters._kept = dict(table.letters._kept)
    staged.histories.entries = dict(table.histories.entries)
    return staged
