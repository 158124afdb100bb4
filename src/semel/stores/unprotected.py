"""The store of an engine that is switched off: every claim is granted, nothing is recorded, nothing is contacted.

- Handlers, steps and transactions of the caller run as if semel were not there.
- It tells so at the first claim, and then at most once a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from semel.core.batch.operations import AboutBatches, WithRecords
from semel.core.events.letters import (
    DropLetter,
    Letter,
    LetterFound,
    LetterPage,
    PutLetter,
    ScanLetters,
    TouchLetter,
)
from semel.core.events.outbox import AboutOutbox
from semel.core.flow import run
from semel.core.observer import Observer, Signal, notify
from semel.core.operations import (
    AddReplays,
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Confirm,
    CountFailure,
    CountRecords,
    Counts,
    Erase,
    Fail,
    Found,
    Granted,
    HistoryFound,
    Invalidate,
    JoinTransaction,
    LapsedRecords,
    MarkLapsed,
    Operation,
    Page,
    Pending,
    PendingInvalidations,
    Purge,
    PurgeLetters,
    PurgeWorkers,
    Read,
    ReadHistory,
    Recorded,
    RegisterWorker,
    Renew,
    Renewed,
    Reopen,
    Resolve,
    Scan,
    SkippedTo,
    SkipRecords,
    StateMismatch,
    SweepCount,
    TransactionJoined,
)
from semel.core.operators.audit import AboutAudit
from semel.core.operators.tokens import AboutTokens
from semel.core.store import SEARCHING, Answers, AsyncDriver, AsyncJoined, Capability, Driver, Joined, Plan
from semel.errors import TryLater, UsageError
from semel.stores.rows import new_record
from semel.stores.settings import StoreClock, machine_clock

EVERY: Final = 60.0
"""Seconds between two warnings."""
_NO_LETTERS: Final = "No dead letter can be kept while semel is switched off; have the event delivered again."
_WARNING: Final = "semel is switched off (enabled = false): this ran unprotected, and nothing is recorded"


class UnprotectedStore:
    """Grants everything and keeps nothing.

    Args:
        name: what it stands for, in messages.
        observer: told, once a minute, that calls run unprotected.
        monotonic: what that minute is measured by.
        clock: what records are dated by, in microseconds.
    """

    max_operations = 64
    capabilities = frozenset(
        {Capability.JOIN, Capability.EAGER, Capability.SEPARATE_LOOP, Capability.LETTERS, *SEARCHING}
    )

    def __init__(
        self, name: str, observer: Observer, monotonic: Callable[[], float], clock: StoreClock = machine_clock
    ) -> None:
        self.name = name
        self._observer = observer
        self._monotonic = monotonic
        self._clock = clock
        self._warned_at: float | None = None

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined
        answers: Answers = yield operations
        return answers

    def answer(self, operations: Sequence[Operation]) -> Answers:
        """The answers, without doing anything."""
        return [self._answer(operation, self._clock()) for operation in operations]

    def _answer(self, operation: Operation, now: int) -> Answer | Exception:
        match operation:
            case PutLetter() | Fail(letter=Letter()):
                # Its broker would forget what nobody here has kept.
                return TryLater(_NO_LETTERS)
            case Claim():
                self._warn(operation)
                return Granted(new_record(operation, now, lease_us=operation.terms.lease_us), protected=False)
            case Renew(_, lease_us):
                return Renewed(now + lease_us)
            case Complete() | Fail() | Checkpoint() | Invalidate() | Confirm() | AddReplays() | RegisterWorker():
                return Recorded(now)
            case JoinTransaction():
                return TransactionJoined("unprotected")
            case Read():
                return Found(None, now)
            case ReadHistory():
                return HistoryFound(None, (), (), now)
            case Scan():
                return Page((), None)
            case CountRecords():
                return Counts(())
            case SkipRecords():
                return SkippedTo(None)
            case Resolve() | Reopen() | Erase() | CountFailure():
                return StateMismatch(None)
            case Pending():
                return PendingInvalidations(())
            case MarkLapsed():
                return LapsedRecords(())
            case Purge() | PurgeWorkers() | PurgeLetters():
                return SweepCount(0)
            case _:
                return _answer_about_events(operation)

    def _warn(self, claim: Claim) -> None:
        now = self._monotonic()
        if self._warned_at is None or now - self._warned_at >= EVERY:
            self._warned_at = now
            key = claim.key
            signal = Signal(kind="unprotected", operation=key.operation, reference=key.reference, detail=_WARNING)
            notify(self._observer, signal)

    def driver(self) -> Driver:
        """A driver for threads."""
        return _SyncDriver(self)

    def async_driver(self) -> AsyncDriver:
        """A driver for an event loop."""
        return _AsyncDriver(self)

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for an event loop of semel's own."""
        return self.async_driver()

    def join(self, connection: Any) -> Joined:
        """The caller's connection, which is left alone."""
        del connection
        return _SyncJoined(self)

    def async_join(self, connection: Any) -> AsyncJoined:
        """The caller's connection, which is left alone."""
        del connection
        return _AsyncJoined(self)


def _answer_about_events(
    operation: TouchLetter
    | DropLetter
    | ScanLetters
    | AboutOutbox
    | AboutBatches
    | WithRecords
    | AboutAudit
    | AboutTokens,
) -> Answer:
    """There are no letters; an event that was not kept would be lost without a word.

    Raises:
        UsageError: there are events to be kept.
    """
    match operation:
        case ScanLetters():
            return LetterPage((), None)
        case TouchLetter() | DropLetter():
            return LetterFound(None)
    if isinstance(operation, AboutAudit | AboutTokens):
        raise UsageError(
            "Nothing is audited, and there are no tokens, while semel is switched off; nothing was changed."
        )
    if isinstance(operation, AboutBatches | WithRecords):
        raise UsageError("Batches cannot be kept while semel is switched off; nothing was changed.")
    raise UsageError("Events can neither be kept nor published while semel is switched off; nothing was changed.")


class _AsyncDriver:
    def __init__(self, store: UnprotectedStore) -> None:
        self._store = store

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Answer each plan."""
        return [run(plan, self._store.answer) for plan in plans]

    async def close(self) -> None:
        """Nothing to let go of."""


class _AsyncJoined:
    def __init__(self, store: UnprotectedStore) -> None:
        self._store = store

    async def perform(self, plan: Plan) -> Answers:
        """Answer one plan."""
        return run(plan, self._store.answer)


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class _SyncDriver:
    def __init__(self, store: UnprotectedStore) -> None:
        self._store = store

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Answer each plan."""
        return [run(plan, self._store.answer) for plan in plans]

    def close(self) -> None:
        """Nothing to let go of."""


class _SyncJoined:
    def __init__(self, store: UnprotectedStore) -> None:
        self._store = store

    def perform(self, plan: Plan) -> Answers:
        """Answer one plan."""
        return run(plan, self._store.answer)
