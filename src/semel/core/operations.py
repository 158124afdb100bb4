"""Operations: all that an engine may ask of a store, and all that a store may answer. Frozen values without behaviour.

- After a claim, every write carries the lease (fence and nonce).
- Expected answers are values; only a store that cannot answer raises.
- An operation sent again after a lost reply gets the answer of the first time.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from semel.core.batch.operations import AboutBatches, BatchAnswer, WithRecords
from semel.core.events.letters import DropLetter, Letter, LetterFound, LetterPage, PutLetter, ScanLetters, TouchLetter
from semel.core.events.outbox import AboutOutbox, OutboxAnswer, OutboxEvent
from semel.core.flow import Asks
from semel.core.key import Key
from semel.core.operators.audit import AboutAudit, AuditAnswer
from semel.core.operators.tokens import AboutTokens, TokenAnswer
from semel.core.policy import Doubt
from semel.core.record import About, Count, Entry, Failure, Lease, Status, Step, StoredRecord, Term, Worker


class Terms(msgspec.Struct, frozen=True):
    """What of a policy the store has to know, in microseconds."""

    lease_us: int
    keep_us: int
    in_doubt: Doubt
    reconcile_after_us: int


class Claim(msgspec.Struct, Asks["ClaimAnswer"], frozen=True):
    """The atomic attempt to become the one who runs."""

    key: Key
    fingerprint: bytes
    nonce: bytes
    terms: Terms
    about: About


class Renew(msgspec.Struct, Asks["Renewed | Lost"], frozen=True):
    """Extend a lease from the store's now."""

    lease: Lease
    lease_us: int


class Complete(msgspec.Struct, Asks["Recorded | Lost"], frozen=True):
    """Record the value of the attempt that holds the lease; a dead letter of that id goes with it, events are added."""

    lease: Lease
    outcome: bytes
    letter: bytes | None = None
    events: tuple[OutboxEvent, ...] = ()


class Fail(msgspec.Struct, Asks["Recorded | Lost"], frozen=True):
    """Record that the attempt ended without a value.

    `ending` says what is known: the failure is the answer, nothing happened, or nobody knows. `doubtful` is what the
    next attempt is told of earlier ones. `started` is false where the handler was never called: such an attempt does
    not count. A `letter` is written together with the record, unless it may be claimed again at once (`retry`).
    """

    lease: Lease
    ending: Literal["final", "retry", "doubt"]
    error: Failure
    doubtful: bool
    started: bool = True
    letter: Letter | None = None


class Checkpoint(msgspec.Struct, Asks["Recorded | Lost"], frozen=True):
    """Record a finished step under the lease."""

    lease: Lease
    step: Step


class JoinTransaction(msgspec.Struct, Asks["TransactionJoined | Lost"], frozen=True):
    """Name the caller's open transaction before a step runs in it; only ever sent to a joined connection."""

    lease: Lease


class Read(msgspec.Struct, Asks["Found"], frozen=True):
    """Ask for a record, finished steps included where wanted. `waits`: somebody waits for its end, to be told of it.

    `operation`, where it is known, helps a store that keeps it in the name of the record; the digest alone decides.
    """

    digest: bytes
    with_steps: bool = False
    waits: bool = False
    operation: str = ""


_NARROW_DIGITS = 3
"""From so many digits on, a reference leads to few records: one in 4,096."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to list or count; what is None does not restrict.

    `stuck`: only what waits for somebody (`claim_rules.is_stuck`). `scan`: all records may be read where no index
    leads to those asked for. `newest_first`: pages begin with the record created last. `hides_erased`: those that were
    erased are left out, which have no scope any more. `without_operation`: those of one operation are left out.
    """

    status: Status | None = None
    operation: str | None = None
    scope: str | None = None
    before_us: int | None = None
    after_us: int | None = None
    process_instance: str | None = None
    business_key: str | None = None
    reference: str | None = None
    subject: str | None = None
    requester: str | None = None
    tag: tuple[str, str] | None = None
    stuck: bool = False
    scan: bool = False
    newest_first: bool = False
    hides_erased: bool = False
    without_operation: str | None = None

    @property
    def hides_internal(self) -> bool:
        """Whether operations of semel's own (`semel:…`) are left out: unless an operation or a record is named."""
        return self.operation is None and self.reference is None

    @property
    def is_narrow(self) -> bool:
        """Whether few records can match, and an index leads to them: what is open, or begins like a reference."""
        is_open = self.status in (Status.RUNNING, Status.IN_DOUBT) or self.stuck
        return is_open or len(self.reference or "") >= _NARROW_DIGITS

    @property
    def terms(self) -> tuple[Term, ...]:
        """What of an `About` is searched for; what as a rule belongs to fewest records comes first."""
        about = About(
            subject=self.subject,
            business_key=self.business_key,
            process_instance=self.process_instance,
            requester=self.requester,
            tags={} if self.tag is None else dict([self.tag]),
        )
        return tuple(about.terms())


class Scan(msgspec.Struct, Asks["Page"], frozen=True):
    """One page of records, in the order of the query, after the cursor (creation instant and digest)."""

    query: Query
    cursor: tuple[int, bytes] | None
    limit: int


class CountRecords(msgspec.Struct, Asks["Counts"], frozen=True):
    """How many records there are, for each operation and status."""

    query: Query


class SkipRecords(msgspec.Struct, Asks["SkippedTo"], frozen=True):
    """When the record was created that is `number` places on by time: how far a search of so many records reaches.

    Counted are all records in the times of the query, in its order; where it has a searched value, those of the first
    one, in its scope. A store in which an index leads to its operation or its status may count those of them alone.
    Nothing else of the query is looked at: it costs no more than to walk along an index.
    """

    query: Query
    number: int


class Resolve(msgspec.Struct, Asks["Resolved | StateMismatch"], frozen=True):
    """End a doubt by decision: completed, claimable again, failed for good, or cancelled.

    The nonce shuts out a running attempt. With `error` a failure is final, without it the key may be claimed again.
    With `force` a live lease is ended, too: its holder can record nothing any more. With `corrects` no doubt is ended:
    it is the nonce of the completed record that was seen, whose outcome is replaced unless it was erased or resolved
    since. With `fence` the decision is about the record as it had that fence: one that has gone on since is left alone.
    `operation` as in `Read`.
    """

    digest: bytes
    nonce: bytes
    status: Literal[Status.COMPLETED, Status.FAILED, Status.CANCELLED]
    outcome: bytes | None
    note: str
    operation: str = ""
    corrects: bytes | None = None
    error: Failure | None = None
    force: bool = False
    fence: int | None = None


class Reopen(msgspec.Struct, Asks["Reopened | StateMismatch"], frozen=True):
    """Let a key run again whose failure was final, or that was cancelled: failed, claimable, with no attempt counted.

    `seen` is the nonce of the record that the decision is about; one that has changed since is left alone. Fence,
    fingerprint, finished steps and what was in doubt stay. `operation` as in `Read`.
    """

    digest: bytes
    nonce: bytes
    seen: bytes
    note: str
    operation: str = ""


class CountFailure(msgspec.Struct, Asks["Counted | StateMismatch"], frozen=True):
    """Count an attempt that was rolled back together with its caller's transaction, and so left nothing behind.

    Where there is no record, or a failed one of the same request that may be tried again, it becomes failed with one
    attempt more; the last of `max_attempts` is final. Records of any other state or request are left alone. The nonce
    is that of the attempt: sent again, it counts once.
    """

    key: Key
    fingerprint: bytes
    nonce: bytes
    error: Failure
    terms: Terms
    about: About
    max_attempts: int | None = None
    letter: Letter | None = None


class Erase(msgspec.Struct, Asks["Erased | StateMismatch"], frozen=True):
    """Take out of a settled record what may be personal, and leave what shuts the key (`semel.core.record`).

    `invalidates`: there are copies of records beside this store. A pending invalidation of the digest is noted in the
    same transaction. `operation` as in `Read`.
    """

    digest: bytes
    note: str
    operation: str = ""
    invalidates: bool = False


class Invalidate(msgspec.Struct, Asks["Recorded"], frozen=True):
    """Remove every copy of a record that is kept beside the store; a store without copies has nothing to do.

    `noted_us` is when the store noted that this has to be done. With `at_once` it is done when the shared cache and
    this process have removed theirs; other processes keep a copy for as long as they keep any.
    """

    digest: bytes
    operation: str
    noted_us: int = 0
    at_once: bool = False


class Pending(msgspec.Struct, Asks["PendingInvalidations"], frozen=True):
    """Ask for at most `limit` invalidations that nobody has confirmed, oldest first."""

    limit: int


class Confirm(msgspec.Struct, Asks["Recorded"], frozen=True):
    """Every copy is gone: remove its note, unless it was noted again after `before_us`."""

    digest: bytes
    before_us: int


class Purge(msgspec.Struct, Asks["SweepCount"], frozen=True):
    """Delete at most `limit` records that are settled and expired."""

    limit: int


class MarkLapsed(msgspec.Struct, Asks["LapsedRecords"], frozen=True):
    """Mark at most `limit` running records whose lease is over as in doubt, and tell which."""

    limit: int


class AddReplays(msgspec.Struct, Asks["Recorded"], frozen=True):
    """Add replays that were counted in memory; lazily, never on the way of a caller."""

    digest: bytes
    replays: int


class ReadHistory(msgspec.Struct, Asks["HistoryFound"], frozen=True):
    """Ask for a record and what happened to it; `operation` as in `Read`."""

    digest: bytes
    operation: str = ""


class RegisterWorker(msgspec.Struct, Asks["Recorded"], frozen=True):
    """Note, or note again, which process draws nonces that begin so; never on the way of a caller."""

    worker: Worker


class PurgeWorkers(msgspec.Struct, Asks["SweepCount"], frozen=True):
    """Delete the workers that have given no sign for `keep_us`; a store that does this by itself deletes none."""

    keep_us: int


class PurgeLetters(msgspec.Struct, Asks["SweepCount"], frozen=True):
    """Delete at most `limit` dead letters that are expired; a store that does this by itself deletes none."""

    limit: int


Operation = (
    Claim
    | Renew
    | Complete
    | Fail
    | Checkpoint
    | JoinTransaction
    | Read
    | Scan
    | CountRecords
    | SkipRecords
    | Resolve
    | Reopen
    | CountFailure
    | Erase
    | Invalidate
    | Pending
    | Confirm
    | Purge
    | MarkLapsed
    | AddReplays
    | ReadHistory
    | RegisterWorker
    | PurgeWorkers
    | PutLetter
    | TouchLetter
    | PurgeLetters
    | ScanLetters
    | DropLetter
    | AboutOutbox
    | AboutBatches
    | WithRecords
    | AboutAudit
    | AboutTokens
)


class Granted(msgspec.Struct, frozen=True):
    """The claim is won. `in_doubt`: an earlier attempt may have had its effect. `reconcile`: ask the hook first.

    `protected` is false where semel is switched off: everybody's claim is won, and nothing is recorded.
    """

    record: StoredRecord
    in_doubt: bool = False
    reconcile: bool = False
    transaction: str = ""
    protected: bool = True

    @property
    def lease(self) -> Lease:
        """The proof that later writes show."""
        record = self.record
        return Lease(record.key, record.fence, record.nonce, record.lease_us, self.transaction)


class Replay(msgspec.Struct, frozen=True):
    """There is an answer already. `now_us` is the store's now; `tier` is the cache that answered, if one did."""

    record: StoredRecord
    now_us: int = 0
    tier: Literal["process", "redis"] | None = None


class Running(msgspec.Struct, frozen=True):
    """Somebody holds a live lease; it ends in `remaining_us` unless renewed."""

    remaining_us: int


class Reused(msgspec.Struct, frozen=True):
    """The key stands for another request; `now_us` as in `Replay`."""

    record: StoredRecord
    now_us: int = 0


class InDoubtAnswer(msgspec.Struct, frozen=True):
    """It started, no outcome is known, and this claim may not take over (not before `remaining_us`, where given)."""

    record: StoredRecord
    remaining_us: int | None


class Recorded(msgspec.Struct, frozen=True):
    """The write took effect, at this instant of the store."""

    at_us: int


class TransactionJoined(msgspec.Struct, frozen=True):
    """The caller's transaction is open, and this is its name."""

    transaction: str


class Renewed(msgspec.Struct, frozen=True):
    """The lease is extended."""

    until_us: int


class Lost(msgspec.Struct, frozen=True):
    """The lease shown is not the current one; nothing was changed."""


class Found(msgspec.Struct, frozen=True):
    """The answer to `Read`, with the store's now for judging leases."""

    record: StoredRecord | None
    now_us: int


class HistoryFound(msgspec.Struct, frozen=True):
    """The answer to `ReadHistory`: the record, its entries in their order, and the workers among those they name."""

    record: StoredRecord | None
    entries: tuple[Entry, ...]
    workers: tuple[Worker, ...]
    now_us: int


class Page(msgspec.Struct, frozen=True):
    """One page of a scan; no cursor means that it was the last."""

    records: tuple[StoredRecord, ...]
    cursor: tuple[int, bytes] | None


class SkippedTo(msgspec.Struct, frozen=True):
    """The instant at which that record was created; None: there are not so many."""

    created_us: int | None


class Counts(msgspec.Struct, frozen=True):
    """How many records of each operation and status were found, ordered by both; none that is 0."""

    counts: tuple[Count, ...]


class Resolved(msgspec.Struct, frozen=True):
    """The doubt is ended."""

    record: StoredRecord


class Reopened(msgspec.Struct, frozen=True):
    """The key may be claimed again."""

    record: StoredRecord


class Counted(msgspec.Struct, frozen=True):
    """The attempt is counted; the record says how many there were, and whether this failure is final."""

    record: StoredRecord


class StateMismatch(msgspec.Struct, frozen=True):
    """The record is in no state to be changed so: resolved, erased, reopened, counted. Nothing was changed."""

    record: StoredRecord | None


class Erased(msgspec.Struct, frozen=True):
    """The record as it is now; erasing it again gives the same."""

    record: StoredRecord


class Invalidation(msgspec.Struct, frozen=True):
    """A digest of which copies may be left although its record was erased, and when that was noted."""

    digest: bytes
    operation: str
    noted_us: int


class PendingInvalidations(msgspec.Struct, frozen=True):
    """Invalidations to be repeated, oldest first."""

    invalidations: tuple[Invalidation, ...]


class SweepCount(msgspec.Struct, frozen=True):
    """How many were deleted."""

    count: int


class LapsedRecord(msgspec.Struct, frozen=True, order=True):
    """A record that was marked as in doubt, and how long ago the attempt began whose lease is over."""

    digest: bytes
    operation: str
    age_us: int


class LapsedRecords(msgspec.Struct, frozen=True):
    """Which records were marked, in the order of their digests."""

    records: tuple[LapsedRecord, ...]

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.records)


ClaimAnswer = Granted | Replay | Running | Reused | InDoubtAnswer
Answer = (
    ClaimAnswer
    | Recorded
    | TransactionJoined
    | Renewed
    | Lost
    | Found
    | HistoryFound
    | Page
    | Counts
    | SkippedTo
    | Resolved
    | Reopened
    | Counted
    | StateMismatch
    | Erased
    | PendingInvalidations
    | SweepCount
    | LapsedRecords
    | LetterFound
    | LetterPage
    | OutboxAnswer
    | BatchAnswer
    | AuditAnswer
    | TokenAnswer
)


_GONE = Failure("semel.CallerGone", "the caller was cancelled before the handler was called")


def give_back(answer: Answer | Exception) -> Fail | None:
    """What undoes a claim that was granted to a caller who is gone: the handler was never called."""
    return undo_grant(answer, _GONE) if isinstance(answer, Granted) else None


def undo_grant(granted: Granted, why: Failure) -> Fail:
    """What undoes a claim for which no handler was called: it is no attempt, and what was in doubt stays so."""
    is_doubtful = granted.in_doubt or granted.reconcile
    return Fail(granted.lease, "doubt" if is_doubtful else "retry", why, doubtful=is_doubtful, started=False)
