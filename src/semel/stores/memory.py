"""The memory store: the rules of a store applied to a dictionary, behind a lock. Nothing survives the process.

- `apply` is atomic because it never waits; the caller holds the lock. Time is passed in. The simulator runs this very
  table, so what is proved there is what runs here.
- A pending invalidation goes only when it is confirmed, and a confirmation never removes one that was noted after the
  invalidation it confirms.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NoReturn

from msgspec.structs import replace

from semel.core.batch.operations import (
    AboutBatches,
    ClaimItems,
    CommitPage,
    ForgetItems,
    ItemsClaimed,
    ItemsForgotten,
    ItemsSettled,
    ReadRecords,
    RecordsFound,
    SettleItems,
    WithRecords,
)
from semel.core.claim_rules import MayWrite, count_failure, granted, judge, may_resolve, reopen
from semel.core.events.letters import DropLetter, Letter, PutLetter, ScanLetters, TouchLetter
from semel.core.events.outbox import OutboxEvent
from semel.core.flow import run
from semel.core.operations import (
    AddReplays,
    Answer,
    Checkpoint,
    Claim,
    ClaimAnswer,
    Complete,
    Confirm,
    Counted,
    CountFailure,
    CountRecords,
    Counts,
    Erase,
    Erased,
    Fail,
    Found,
    HistoryFound,
    Invalidate,
    Invalidation,
    JoinTransaction,
    LapsedRecord,
    LapsedRecords,
    Lost,
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
    Reopened,
    Resolve,
    Resolved,
    Scan,
    SkippedTo,
    SkipRecords,
    StateMismatch,
    SweepCount,
)
from semel.core.operators.audit import AboutAudit
from semel.core.operators.tokens import AboutTokens
from semel.core.record import (
    LEASE_ENDED,
    MOST_ENTRIES,
    Entry,
    Lease,
    Status,
    StoredRecord,
    Worker,
    changes_of,
    erase_entries,
    erase_record,
    processes_of,
)
from semel.core.store import SEARCHING, Answers, AsyncDriver, AsyncJoined, Capability, Joined, Plan
from semel.errors import UsageError
from semel.stores.batch.memory import MemoryBatches
from semel.stores.events.outbox import MemoryOutbox
from semel.stores.letters import Letters
from semel.stores.operators.memory import MemoryAudit, MemoryTokens
from semel.stores.rows import new_record
from semel.stores.search import after, count_records, first_page, matches, skip_records
from semel.stores.settings import StoreClock, machine_clock

__all__ = ["MemoryStore", "Table"]


class Invalidations:
    """One note per digest."""

    def __init__(self) -> None:
        self._noted: dict[bytes, Invalidation] = {}

    def apply(self, operation: Invalidate | Pending | Confirm, now: int) -> Recorded | PendingInvalidations:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case Invalidate():
                return Recorded(now)  # no copies are kept beside the table
            case Pending(limit):
                oldest = sorted(self._noted.values(), key=lambda noted: (noted.noted_us, noted.digest))
                return PendingInvalidations(tuple(oldest[: max(limit, 0)]))
            case Confirm(digest, before_us):
                noted = self._noted.get(digest)
                if noted is not None and noted.noted_us <= before_us:
                    del self._noted[digest]
                return Recorded(now)

    def note(self, invalidation: Invalidation) -> None:
        """Keep it until it is confirmed. It is later than the one before it, whatever the clock says."""
        before = self._noted.get(invalidation.digest)
        if before is not None and before.noted_us >= invalidation.noted_us:
            invalidation = replace(invalidation, noted_us=before.noted_us + 1)
        self._noted[invalidation.digest] = invalidation


class Histories:
    """What happened to records, by digest, and who the workers are. `most`: how many entries of a record are kept."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.entries: dict[bytes, tuple[Entry, ...]] = {}
        self._most = most
        self._workers: dict[bytes, tuple[Worker, int]] = {}

    def follow(self, before: StoredRecord | None, after: StoredRecord | None, digest: bytes) -> None:
        """Write down what a write to a record leaves; a new life, and none at all, begins without entries."""
        if after is None or before is None or before.created_us != after.created_us:
            self.entries.pop(digest, None)
        if after is None:
            return
        known = self.entries.get(digest, ())
        added = changes_of(before, after, known)
        if added:
            self.entries[digest] = (*known, *added)[-self._most :]

    def erase(self, record: StoredRecord, now: int) -> None:
        """Take the texts of errors, and note the erasure."""
        digest = record.key.digest
        self.entries[digest] = erase_entries(record, self.entries.get(digest, ()), now)[-self._most :]

    def read(self, record: StoredRecord | None, now: int) -> HistoryFound:
        """A record with its entries and their workers."""
        if record is None:
            return HistoryFound(None, (), (), now)
        entries = self.entries.get(record.key.digest, ())
        known = (self._workers.get(process) for process in processes_of(record, entries))
        return HistoryFound(record, entries, tuple(one for one, _ in filter(None, known)), now)

    def register(self, worker: Worker, now: int) -> Recorded:
        """Note a worker; it started when it was first noted."""
        before = self._workers.get(worker.process)
        started = now if before is None else before[0].started_us
        self._workers[worker.process] = replace(worker, started_us=started), now
        return Recorded(now)

    def purge(self, keep_us: int, now: int) -> SweepCount:
        """Forget workers that have given no sign for so long."""
        gone = [process for process, (_, seen_us) in self._workers.items() if seen_us <= now - keep_us]
        for process in gone:
            del self._workers[process]
        return SweepCount(len(gone))


class Table:
    """Records by digest, what happened to them, letters, events, batches, audit entries and so on."""

    def __init__(self) -> None:
        self.records: dict[bytes, StoredRecord] = {}
        self.histories = Histories()
        self.letters = Letters()
        self.outbox = MemoryOutbox()
        self.batches = MemoryBatches()
        self.audit = MemoryAudit()
        self.tokens = MemoryTokens()
        self.invalidations = Invalidations()
        self.lock = threading.Lock()

    @property
    def events(self) -> list[OutboxEvent]:
        """What is in the outbox, published events too."""
        return self.outbox.events

    @cached_property
    def install_id(self) -> bytes:
        """Which table this is: copies that outlive it must not be taken for those of another."""
        return secrets.token_bytes(16)

    def _enter(self, before: StoredRecord | None, digest: bytes) -> None:
        """Write down, in the same step, what a write has left in the history of a record."""
        self.histories.follow(before, self.records.get(digest), digest)

    def apply(self, operation: Operation, now: int) -> Answer:
        """Carry out `operation` at the instant `now`."""
        if isinstance(operation, AboutBatches | WithRecords):
            return self.batch(operation, now)
        if isinstance(operation, AboutAudit):
            return self.audit.apply(operation, now)
        if isinstance(operation, AboutTokens):
            return self.tokens.apply(operation, now)
        match operation:
            case Claim():
                return self.claim(operation, now)
            case Renew(lease, lease_us):
                return self.renew(lease, lease_us, now)
            case Complete():
                return self.complete(operation, now)
            case Fail():
                return self.fail(operation, now)
            case Checkpoint():
                return self.checkpoint(operation, now)
            case JoinTransaction():
                return Lost()  # there is no transaction to enter
            case Read() | ReadHistory() | Scan() | CountRecords() | SkipRecords():
                return self.look(operation, now)
            case Resolve() | Reopen() | CountFailure() | Erase():
                return self.decide(operation, now)
            case Invalidate() | Pending() | Confirm():
                return self.invalidations.apply(operation, now)
            case Purge() | MarkLapsed() | AddReplays() | RegisterWorker() | PurgeWorkers():
                return self.upkeep(operation, now)
            case PutLetter() | TouchLetter() | ScanLetters() | DropLetter() | PurgeLetters():
                return self.letters.apply(operation, now)
            case _:
                return self.outbox.apply(operation, now)

    def batch(self, operation: AboutBatches | WithRecords, now: int) -> Answer:
        """What is about batches; some of it changes records, too."""
        match operation:
            case ClaimItems(claims):
                return ItemsClaimed(tuple(self.claim(claim, now) for claim in claims))
            case ReadRecords(digests):
                return RecordsFound(tuple(map(self.records.get, digests)))
            case SettleItems(number, page, ends):
                answers = {end.position: self.apply(end.write, now) for end in ends if end.write is not None}
                noted = [end for end in ends if isinstance(answers.get(end.position, Recorded(now)), Recorded)]
                self.batches.settle(number, page, noted, now)
                return ItemsSettled(tuple(answers.values()))
            case CommitPage():
                return Lost()  # there is no transaction to enter
            case ForgetItems(_, digests):
                is_done = self.batches.forget(operation)
                for digest in digests if is_done else ():
                    record = self.records.get(digest)
                    if record is not None and record.settled:
                        self.records[digest] = replace(record, expires_us=0)
                return ItemsForgotten(is_done)
            case _:
                return self.batches.apply(operation, now)

    def decide(self, operation: Resolve | Reopen | CountFailure | Erase, now: int) -> Answer:
        """What changes a record without its lease."""
        match operation:
            case Resolve():
                return self.resolve(operation, now)
            case Reopen():
                return self.reopen(operation, now)
            case CountFailure():
                return self.count_failure(operation, now)
            case Erase():
                return self.erase(operation, now)

    def look(
        self, operation: Read | ReadHistory | Scan | CountRecords | SkipRecords, now: int
    ) -> Found | HistoryFound | Page | Counts | SkippedTo:
        """What changes nothing."""
        match operation:
            case Read(digest):
                return Found(self.records.get(digest), now)
            case ReadHistory(digest):
                return self.histories.read(self.records.get(digest), now)
            case Scan():
                return self.scan(operation, now)
            case CountRecords(query):
                return count_records(record for record in self.records.values() if matches(record, query, now))
            case SkipRecords():
                return skip_records(self.records.values(), operation)

    def claim(self, claim: Claim, now: int) -> ClaimAnswer:
        """Judge and write in one step."""
        seen = self.records.get(claim.key.digest)
        verdict = judge(seen, claim, now)
        if not isinstance(verdict, MayWrite):
            return verdict
        record = (
            self._fresh(claim, now, seen) if verdict.how in ("absent", "expired") else self._again(claim, now, seen)
        )
        self.records[claim.key.digest] = record
        if seen is not None:
            self._enter(seen, claim.key.digest)
        return granted(record)

    def _fresh(self, claim: Claim, now: int, expired: StoredRecord | None) -> StoredRecord:
        fence = 1 if expired is None else expired.fence + 1
        return new_record(claim, now, lease_us=claim.terms.lease_us, fence=fence)

    def _again(self, claim: Claim, now: int, seen: StoredRecord | None) -> StoredRecord:
        assert seen is not None  # noqa: S101 - `judge` answers "absent" otherwise
        fresh = self._fresh(claim, now, seen)
        return replace(
            fresh,
            attempts=seen.attempts + 1,
            doubtful=seen.doubtful or not seen.settled,
            error=seen.error,
            created_us=seen.created_us,
            steps=seen.steps,
            resolution=seen.resolution,
        )

    def owned(self, lease: Lease) -> StoredRecord | None:
        """The record, if `lease` is its current one: the fence that keeps late workers out."""
        record = self.records.get(lease.key.digest)
        if record is None or record.nonce != lease.nonce or record.fence != lease.fence:
            return None
        return record

    def _write(self, record: StoredRecord, now: int, **changes: Any) -> None:
        self.records[record.key.digest] = replace(record, updated_us=now, **changes)

    def renew(self, lease: Lease, lease_us: int, now: int) -> Renewed | Lost:
        """Extend a lease that is still the current one."""
        record = self.owned(lease)
        if record is None or record.status is not Status.RUNNING:
            return Lost()
        self._write(record, now, lease_us=now + lease_us)
        return Renewed(now + lease_us)

    def complete(self, operation: Complete, now: int) -> Recorded | Lost:
        """Record a value; the same completion again answers as the first time."""
        record = self.owned(operation.lease)
        if record is None:
            return Lost()
        if record.status is Status.COMPLETED:
            return Recorded(record.completed_us or now)
        if record.status is not Status.RUNNING:
            return Lost()
        self._settle(record, now, status=Status.COMPLETED, outcome=operation.outcome, error=None)
        if operation.letter is not None:
            self.letters.drop(operation.letter)
        if operation.events:
            self.outbox.add(operation.events, now)
        return Recorded(now)

    def _settle(self, record: StoredRecord, now: int, **changes: Any) -> None:
        kept = record.kept_until(now)
        self._write(record, now, completed_us=now, expires_us=kept, lease_us=min(record.lease_us, now), **changes)

    def fail(self, operation: Fail, now: int) -> Recorded | Lost:
        """Record an end without a value; the same one again answers as the first time."""
        record = self.owned(operation.lease)
        if record is None or record.status is Status.COMPLETED:
            return Lost()
        if record.status is not Status.RUNNING:
            return Recorded(record.updated_us) if record.error == operation.error else Lost()
        attempts = record.attempts if operation.started else max(record.attempts - 1, 0)
        changes = {"error": operation.error, "doubtful": operation.doubtful, "attempts": attempts}
        match operation.ending:
            case "final":
                self._settle(record, now, status=Status.FAILED, retryable=False, **changes)
            case "retry":
                self._settle(record, now, status=Status.FAILED, retryable=True, **changes)
            case "doubt":
                self._write(record, now, status=Status.IN_DOUBT, lease_us=min(record.lease_us, now), **changes)
        self._keep_letter(operation.lease.key.digest, None if operation.ending == "retry" else operation.letter, now)
        self._enter(record, record.key.digest)
        return Recorded(now)

    def _keep_letter(self, digest: bytes, letter: Letter | None, now: int) -> None:
        """Keep a letter, and its record for as long: forgotten before it, the event would be processed anew."""
        if letter is not None:
            record, kept = self.records[digest], self.letters.put(letter, now)
            self.records[digest] = replace(record, expires_us=max(record.expires_us, kept.expires_us))

    def checkpoint(self, operation: Checkpoint, now: int) -> Recorded | Lost:
        """Record a finished step under the lease; the same step again answers as the first time."""
        record = self.owned(operation.lease)
        if record is None or record.status is not Status.RUNNING:
            return Lost()
        if operation.step not in record.steps:
            steps = tuple(sorted((*record.steps, operation.step), key=lambda step: step.index))
            self._write(record, now, steps=steps)
        return Recorded(now)

    def scan(self, operation: Scan, now: int) -> Page:
        """One page."""
        query, cursor = operation.query, operation.cursor
        found = [one for one in self.records.values() if matches(one, query, now) and after(one, cursor, query)]
        page, onward = first_page(found, query, operation.limit)
        return Page(tuple(page), onward)

    def resolve(self, operation: Resolve, now: int) -> Resolved | StateMismatch:
        """End a doubt by decision; the new nonce shuts out an attempt that may still be running."""
        record = self.records.get(operation.digest)
        if record is not None and record.nonce == operation.nonce:
            return Resolved(record)
        if record is None or not may_resolve(record, operation, now):
            return StateMismatch(record)
        self._settle(
            record,
            now,
            status=operation.status,
            retryable=operation.status is Status.FAILED and operation.error is None,
            outcome=operation.outcome,
            error=operation.error or record.error,
            nonce=operation.nonce,
            fence=record.fence + 1,
            doubtful=False,
            resolution=operation.note,
        )
        self._enter(record, operation.digest)
        resolved = self.records[operation.digest]
        if not resolved.retryable:  # else nobody but the letter has the event that may run now
            self.letters.close(operation.digest)
        return Resolved(resolved)

    def reopen(self, operation: Reopen, now: int) -> Reopened | StateMismatch:
        """Let a key run again whose failure was final."""
        record = self.records.get(operation.digest)
        if record is not None and record.nonce == operation.nonce:
            return Reopened(record)
        changed = None if record is None else reopen(record, operation, now)
        if changed is None:
            return StateMismatch(record)
        self.records[operation.digest] = changed
        self._enter(record, operation.digest)
        return Reopened(changed)

    def count_failure(self, operation: CountFailure, now: int) -> Counted | StateMismatch:
        """Count an attempt that left nothing behind."""
        record = self.records.get(operation.key.digest)
        if record is not None and record.nonce == operation.nonce and record.status is Status.FAILED:
            return Counted(record)  # the same again, after its reply was lost
        changed = count_failure(record, operation, now)
        if changed is None:
            return StateMismatch(record)
        self.records[operation.key.digest] = changed
        self._keep_letter(operation.key.digest, None if changed.retryable else operation.letter, now)
        self._enter(record, operation.key.digest)
        return Counted(self.records[operation.key.digest])

    def erase(self, operation: Erase, now: int) -> Erased | StateMismatch:
        """Leave of a settled record what keeps the key shut."""
        record = self.records.get(operation.digest)
        if record is None or not record.settled:
            return StateMismatch(record)
        left = self.records[operation.digest] = erase_record(record, operation.note)
        self.histories.erase(left, now)
        self.letters.erase(operation.digest)
        if operation.invalidates:
            self.invalidations.note(Invalidation(operation.digest, record.key.operation, now))
        return Erased(left)

    def upkeep(self, operation: Purge | MarkLapsed | AddReplays | RegisterWorker | PurgeWorkers, now: int) -> Answer:
        """What no caller waits for."""
        match operation:
            case Purge(limit):
                return self.purge(limit, now)
            case MarkLapsed(limit):
                return self.lapse(limit, now)
            case AddReplays(digest, replays):
                return self.tally(digest, replays, now)
            case RegisterWorker(worker):
                return self.histories.register(worker, now)
            case PurgeWorkers(keep_us):
                return self.histories.purge(keep_us, now)

    def purge(self, limit: int, now: int) -> SweepCount:
        """Delete what is settled and expired, and nothing else."""
        gone = _first(limit, (r for r in self.records.values() if r.settled and r.expires_us <= now))
        for record in gone:
            del self.records[record.key.digest]
            self._enter(record, record.key.digest)
        return SweepCount(len(gone))

    def lapse(self, limit: int, now: int) -> LapsedRecords:
        """Mark running records whose lease is over as in doubt."""
        stale = (r for r in self.records.values() if r.status is Status.RUNNING and r.lease_us <= now)
        gone = _first(limit, stale)
        for record in gone:
            self._write(record, now, status=Status.IN_DOUBT, error=LEASE_ENDED, doubtful=True)
            self._enter(record, record.key.digest)
        marked = (LapsedRecord(r.key.digest, r.key.operation, now - r.started_us) for r in gone)
        return LapsedRecords(tuple(sorted(marked)))

    def tally(self, digest: bytes, replays: int, now: int) -> Recorded:
        """Add replays counted in memory."""
        record = self.records.get(digest)
        if record is not None:
            self.records[digest] = replace(record, replays=record.replays + replays, replayed_us=now)
        return Recorded(now)


def _first(limit: int, records: Iterator[StoredRecord]) -> list[StoredRecord]:
    return [record for record, _ in zip(records, range(limit), strict=False)]


class MemoryStore:
    """Records in memory. `clock` is the store's clock; stores on one `table` are one place."""

    max_operations = 64
    capabilities = frozenset(
        {
            Capability.EAGER,
            Capability.SEPARATE_LOOP,
            Capability.INVALIDATIONS,
            Capability.LETTERS,
            Capability.OUTBOX,
            Capability.BATCH,
            Capability.AUDIT,
            *SEARCHING,
        }
    )

    def __init__(self, *, clock: StoreClock = machine_clock, table: Table | None = None) -> None:
        self.clock = clock
        self.table = table or Table()
        self.name = f"memory://{id(self.table):x}"  # two tables are two places, also to a handler that asks again
        # A fork while another thread holds the lock would leave it locked for ever in the child.
        renew = weakref.WeakMethod(self._renew_lock)
        os.register_at_fork(after_in_child=lambda: _call(renew()))

    def _renew_lock(self) -> None:
        self.table.lock = threading.Lock()

    @property
    def install_id(self) -> bytes:
        """Which table this is."""
        return self.table.install_id

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined  # `join` refuses first
        answers: Answers = yield operations
        return answers

    def apply(self, operations: Sequence[Operation]) -> Answers:
        """Carry out operations one after the other, in one hold of the lock."""
        with self.table.lock:
            return [self.table.apply(operation, self.clock()) for operation in operations]

    def driver(self) -> MemoryDriver:
        """A driver for threads."""
        return MemoryDriver(self)

    def async_driver(self) -> AsyncMemoryDriver:
        """A driver for an event loop."""
        return AsyncMemoryDriver(self)

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for an event loop of semel's own: connections belong to no loop of the caller."""
        return self.async_driver()

    def join(self, connection: Any) -> Joined:
        """There is no transaction to join."""
        _refuse(connection)

    def async_join(self, connection: Any) -> AsyncJoined:
        """There is no transaction to join."""
        _refuse(connection)

    def is_outage(self, error: Exception) -> bool:
        """There is no connection that could be lost."""
        del error
        return False

    @property
    def has_one_writer(self) -> bool:
        """There are no transactions."""
        return False


class MemoryDriver:
    """Carries rounds out at once."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run each plan."""
        return [run(plan, self._store.apply) for plan in plans]

    def close(self) -> None:
        """Nothing to let go of."""


class AsyncMemoryDriver:
    """The same for an event loop: nothing here ever waits."""

    def __init__(self, store: MemoryStore) -> None:
        self._driver = MemoryDriver(store)

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run each plan."""
        return self._driver.perform(plans)

    async def close(self) -> None:
        """Nothing to let go of."""


def _call(function: Callable[[], None] | None) -> None:
    if function is not None:
        function()


def _refuse(connection: object) -> NoReturn:
    message = (
        f"The memory store has no transaction that a {type(connection).__qualname__} could share; nothing ran. "
        f"Use a SQL store for within()."
    )
    raise UsageError(message)
