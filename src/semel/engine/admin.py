"""What operators do to records, as flows: read, list, resolve, erase, sweep.

- An operator is fenced like any writer: resolving is a compare-and-set on a record in doubt, and its reason is kept.
- Reconciling is an ordinary take-over whose holder asks the hook and runs nothing.
- Erasing never makes an effect possible again (`semel.core.record`). An invalidation is forgotten only after every copy
  is confirmed to be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec.structs import replace

from semel.core import codec
from semel.core.batch.retention import forget_expired, release_held
from semel.core.flow import Flow, ask
from semel.core.key import Key
from semel.core.operations import (
    Confirm,
    CountRecords,
    Erase,
    Erased,
    Invalidate,
    Invalidation,
    LapsedRecord,
    MarkLapsed,
    Page,
    Pending,
    Purge,
    PurgeLetters,
    PurgeWorkers,
    Query,
    Read,
    ReadHistory,
    Reopen,
    Reopened,
    Resolve,
    Resolved,
    Scan,
    StateMismatch,
)
from semel.core.record import (
    ERASED_RESOLUTION,
    WORKER_KEPT_US,
    Cancelled,
    Count,
    DidNotHappen,
    Failed,
    Failure,
    Happened,
    HistoryEntry,
    Note,
    Record,
    Resolution,
    Status,
    StoredRecord,
    show_history,
    with_present,
)
from semel.core.store import Capability, Store, scan_needed_error
from semel.engine import call_errors
from semel.engine.call_flow import Pause, Request, RunCall, terms_of
from semel.engine.clock import Clock
from semel.engine.engine import RegisteredOperation
from semel.errors import NotResolvable, RecordNotFound, SemelError, StoreUnavailable, UsageError

_INVALIDATIONS_PER_PAGE: Final = 100


def has_copies(store: Store) -> bool:
    """Whether this store answers from copies of its records as well, so that erased ones have to be invalidated."""
    return Capability.LANE_WRAPPER in store.capabilities


def erase(key: Key, *, reason: str, by: str) -> Flow[StoredRecord]:
    """Take out of a settled record what may be personal; what keeps the key shut stays.

    Raises:
        UsageError: no reason was given.
        NotResolvable: there is no record under that key, or it is not settled.
    """
    if not isinstance(reason, str) or not reason.strip():
        message = "erase() needs a reason, which is kept with the record; nothing was erased."
        raise UsageError(message)
    note = Note(ERASED_RESOLUTION, reason[:1000], by).text()
    answer = yield from ask(Erase(key.digest, note, key.operation))
    match answer:
        case Erased(record):
            return record
        case StateMismatch(found):
            raise not_erasable(key, found)
    raise AssertionError(answer)


def purge_cached(key: Key, store: Store) -> Flow[None]:
    """Take a record out of the caches in front of the store; the record itself stays.

    Raises:
        UsageError: there is no cache.
        StoreUnavailable: the cache did not answer.
    """
    if not has_copies(store):
        message = "There is no cache in front of the store, so nothing was purged. Name one: cache=, or SEMEL_CACHE."
        raise UsageError(message)
    yield from ask(Invalidate(key.digest, key.operation, at_once=True))


def not_erasable(key: Key, record: StoredRecord | Record | None) -> NotResolvable:
    """The error for a record that cannot be erased, or is not there."""
    if record is None:
        return NotResolvable(f"There is no record {key.reference[:16]}; nothing was erased.", reference=key.reference)
    then = (
        "Resolve it first: semel show, then semel resolve."
        if record.status is Status.IN_DOUBT
        else "Erase it once it has ended."
    )
    return NotResolvable(
        f"The record {record.reference[:16]} is {record.status}, so what it needs to end is still in use; "
        f"nothing was erased. {then}",
        reference=record.reference,
    )


def repeat_invalidations() -> Flow[int]:
    """Send invalidations again that are not confirmed, oldest first; answers how many are confirmed now.

    What cannot be confirmed yet stays noted for the next sweep, and holds up none of the others. Where nothing answers
    for many in a row, so does the rest.
    """
    confirmed, in_a_row = 0, 0
    left: set[Invalidation] = set()
    while True:
        most = _INVALIDATIONS_PER_PAGE + len(left)
        awaiting = yield from ask(Pending(most))
        for noted in awaiting.invalidations:
            if noted in left:
                continue
            try:
                yield from ask(Invalidate(noted.digest, noted.operation, noted.noted_us))
            except StoreUnavailable as error:
                left.add(noted)
                in_a_row = 0 if error.conflict else in_a_row + 1
                if in_a_row == _INVALIDATIONS_PER_PAGE:
                    return confirmed
            else:
                yield from ask(Confirm(noted.digest, noted.noted_us))
                confirmed, in_a_row = confirmed + 1, 0
        if len(awaiting.invalidations) < most:
            return confirmed


PAGE = 200
_BATCH = 500
_BATCHES = 100
_LONGEST_REST = 1.0


def read(key: Key) -> Flow[StoredRecord | None]:
    """The record of a key, expired ones included until they are deleted."""
    found = yield from ask(Read(key.digest, with_steps=True, operation=key.operation))
    return found.record


def check_reach(store: Store, query: Query, *, counts: bool = False) -> None:
    """Refuse what a store could only answer by reading all of its records, unless that is asked for.

    Raises:
        UsageError: it could, and `scan` does not say so.
    """
    if query.scan:
        return
    if query.terms and not {Capability.SEARCH, Capability.SEARCH_ON_DEMAND} & store.capabilities:
        kinds = " and ".join(dict.fromkeys(term.kind.replace("_", " ") for term in query.terms))
        raise scan_needed_error(store.name, f"has no index of records by {kinds}")
    if counts and Capability.COUNT not in store.capabilities:
        raise scan_needed_error(store.name, "cannot count records by itself")


def count(query: Query) -> Flow[tuple[Count, ...]]:
    """How many records there are, for each operation and status."""
    answer = yield from ask(CountRecords(query))
    return answer.counts


def page(query: Query, cursor: tuple[int, bytes] | None) -> Flow[Page]:
    """One page of records."""
    answer = yield from ask(Scan(query, cursor, PAGE))
    return answer


def resolve(
    key: Key,
    resolution: Resolution,
    *,
    reason: str,
    by: str,
    nonce: bytes,
    known: RegisteredOperation | None,
    correct: bool = False,
    force: bool = False,
    fence: int | None = None,
) -> Flow[StoredRecord]:
    """End a doubt by decision. Where the operation is known, a value has to fit what it declares to return.

    With `correct`, replace the value that an earlier `Happened` stated: that it happened stays, and nothing runs again.
    With `force`, end a live lease, too: its holder can record nothing any more.
    With `fence`, decide about the record as it had that fence, and about no other.

    Raises:
        UsageError: no reason was given, or the resolution is none.
        NotResolvable: nothing is in doubt under that key, its fence is another, or nothing was stated to `correct`.
    """
    if not isinstance(reason, str) or not reason.strip():
        message = "resolve() needs a reason, which is kept with the record; nothing was changed."
        raise UsageError(message)
    if correct and force:
        message = "correct= replaces a value, force= ends a live lease; nothing was changed. Give one of them."
        raise UsageError(message)
    status, outcome, error = _decide(resolution)
    if outcome is not None and known is not None:
        _check_fit(outcome, known)
    corrects = (yield from _stated(key, resolution)) if correct else None
    note = Note(type(resolution).__name__, reason[:1000], by)
    decision = Resolve(key.digest, nonce, status, outcome, note.text(), key.operation, corrects, error, fence=fence)
    answer = yield from ask(decision)
    if force and isinstance(answer, StateMismatch) and _is_running(answer.record, fence):
        # Only now, so that the note says truly whether a live lease was ended.
        answer = yield from ask(replace(decision, note=replace(note, forced=True).text(), force=True))
    match answer:
        case Resolved(record):
            return record
        case StateMismatch(None):
            message = f"There is no record {key.reference[:16]}; nothing was changed."
            raise NotResolvable(message)
        case StateMismatch(StoredRecord() as record):
            raise not_resolvable(record) if _has_fence(record, fence) else _changed_record_error(record)
    raise AssertionError(answer)


def _is_running(record: StoredRecord | None, fence: int | None) -> bool:
    return record is not None and record.status is Status.RUNNING and _has_fence(record, fence)


def _has_fence(record: StoredRecord, fence: int | None) -> bool:
    """Whether it is still the record that was seen, where somebody says which one that was."""
    return fence is None or record.fence == fence


def _changed_record_error(record: StoredRecord) -> NotResolvable:
    return NotResolvable(
        f"The record {record.reference[:16]} has changed since it was looked at; nothing was changed. Look again.",
        reference=record.reference,
    )


def not_resolvable(record: StoredRecord | Record) -> NotResolvable:
    """The error for a record whose doubt is ended, or that still runs."""
    if is_stated(record):
        then = "The value that was stated then can be changed: correct=True, or --correct."
    elif record.status is Status.RUNNING:
        then = "Wait until its lease is over; force=True, or --force, ends a live one."
    else:
        then = "Only what is in doubt, or whose lease is over, can be resolved."
        if is_reopenable(record):
            then += " What failed for good or was cancelled can be reopened."
    return NotResolvable(
        f"The record {record.reference[:16]} is {record.status}, not in doubt; nothing was changed. {then}"
    )


def is_stated(record: StoredRecord | Record) -> bool:
    """Whether somebody stated what it gave, so that the value can be corrected."""
    note = record.note
    stated = note is not None and note.resolution == Happened.__name__
    return stated and record.status is Status.COMPLETED and not record.erased


def _stated(key: Key, resolution: Resolution) -> Flow[bytes]:
    """The nonce of the record whose stated value is to be replaced."""
    if not isinstance(resolution, Happened):
        message = "Only a value that was stated can be corrected, by another Happened(value); nothing was changed."
        raise UsageError(message)
    found = yield from ask(Read(key.digest, operation=key.operation))
    if found.record is None or not is_stated(found.record):
        message = (
            f"No value was stated for {key.reference[:16]}, so there is none to correct; nothing was changed. "
            f"Only what was resolved with Happened can be corrected."
        )
        raise NotResolvable(message)
    return found.record.nonce


def check_value(value: object, known: RegisteredOperation | None) -> None:
    """Refuse a value that cannot be stored, or that is not what a known operation declares to return.

    Raises:
        UsageError: it is such a value.
    """
    outcome = codec.encode_manual(value)
    if known is not None:
        _check_fit(outcome, known)


def _check_fit(outcome: bytes, known: RegisteredOperation) -> None:
    try:
        codec.decode(outcome, known.shape)
    except SemelError as problem:
        message = f"The value stated is not what the operation returns: {problem.__cause__}; nothing was changed."
        raise UsageError(message) from None


_STATED_FAILURE: Final = "semel.Failed"
_REOPENED: Final = "Reopened"
_Settled = Literal[Status.COMPLETED, Status.FAILED, Status.CANCELLED]


def _decide(resolution: Resolution) -> tuple[_Settled, bytes | None, Failure | None]:
    match resolution:
        case Happened(value):
            return Status.COMPLETED, codec.encode_manual(value), None
        case DidNotHappen():
            return Status.FAILED, None, None
        case Cancelled():
            return Status.CANCELLED, None, None
        case Failed(reason) if isinstance(reason, str) and reason.strip():
            return Status.FAILED, None, Failure(_STATED_FAILURE, reason[:2000])
        case _:
            message = (
                f"{resolution!r} resolves nothing; nothing was changed. "
                f'Give Happened(value), DidNotHappen(), Cancelled() or Failed("why").'
            )
            raise UsageError(message)


def reopen(key: Key, *, reason: str, by: str, nonce: bytes, fence: int | None = None) -> Flow[StoredRecord]:
    """Let a key run again whose failure was final, or that was cancelled; its attempts are counted from none.

    With `fence`, decide about the record as it had that fence, and about no other.

    Raises:
        UsageError: no reason was given.
        RecordNotFound: there is no record under that key.
        NotResolvable: it is completed, running, in doubt or erased, may be tried again anyway, or has just changed.
    """
    if not isinstance(reason, str) or not reason.strip():
        message = "reopen() needs a reason, which is kept with the record; nothing was changed."
        raise UsageError(message)
    found = yield from ask(Read(key.digest, operation=key.operation))
    if found.record is None or _has_expired(found.record, found.now_us):
        raise _not_found(key)
    if not _has_fence(found.record, fence):
        raise _changed_record_error(found.record)
    note = Note(_REOPENED, reason[:1000], by).text()
    answer = yield from ask(Reopen(key.digest, nonce, found.record.nonce, note, key.operation))
    match answer:
        case Reopened(record):
            return record
        case StateMismatch(None):
            raise _not_found(key)
        case StateMismatch(StoredRecord() as record):
            raise not_reopenable(record)
    raise AssertionError(answer)


def is_reopenable(record: StoredRecord | Record) -> bool:
    """Whether it failed for good or was cancelled, and what is needed to run it is still there."""
    return record.final and record.status is not Status.COMPLETED and not record.erased


def not_reopenable(record: StoredRecord | Record) -> NotResolvable:
    """The error for a record that cannot run again, or may anyway."""
    if record.erased:
        why = "was erased, so nothing is left to run it with"
    elif is_reopenable(record):
        why = "has changed since it was looked at; ask again"
    elif record.retryable:
        why = "may be tried again anyway"
    else:
        why = f"is {record.status}; only what failed for good or was cancelled can be reopened"
    return NotResolvable(f"The record {record.reference[:16]} {why}. Nothing was changed.", reference=record.reference)


def _has_expired(record: StoredRecord, now_us: int) -> bool:
    """Whether it counts as none: the next claim of its key begins anew."""
    return record.settled and record.expires_us <= now_us


def _not_found(key: Key) -> RecordNotFound:
    message = f"There is no record {key.reference[:16]}, or it has expired; nothing ran."
    return RecordNotFound(message, reference=key.reference)


def value(key: Key, shape: codec.Shape) -> Flow[Any]:
    """What the operation of a key gave, without running anything.

    Raises:
        RecordNotFound: there is no record under that key.
        InProgress: it is running.
        InDoubt: it started, and no outcome is known.
        FailedBefore: it failed or was cancelled.
        ResultNotKept: it is done, and its value was not kept.
    """
    found = yield from ask(Read(key.digest, operation=key.operation))
    record = found.record
    if record is None or _has_expired(record, found.now_us):
        raise _not_found(key)
    if record.status is Status.RUNNING and record.lease_us > found.now_us:
        raise call_errors.in_progress_error(key, record.lease_us - found.now_us)
    if not record.settled:
        raise call_errors.in_doubt_error(record, None)
    return call_errors.replay(record, shape)


def history(key: Key) -> Flow[tuple[HistoryEntry, ...]]:
    """What happened to the record of a key, and who held it.

    Raises:
        RecordNotFound: there is no record under that key.
    """
    found = yield from ask(ReadHistory(key.digest, key.operation))
    if found.record is None or _has_expired(found.record, found.now_us):
        raise _not_found(key)
    workers = {worker.process: worker for worker in found.workers}
    return show_history(with_present(found.record, found.entries), workers)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did and what it leaves: deleted, newly in doubt, reconciled, and still waiting for somebody.

    `invalidated` counts erased records of which the last copy is confirmed to be gone only now.
    """

    deleted: int
    lapsed: int
    reconciled: int
    held: int
    invalidated: int = 0


def sweep(
    known: dict[str, RegisteredOperation],
    clock: Clock,
    tell_lapsed: Callable[[LapsedRecord], None],
    *,
    store: Store | None = None,
    limit: int | None = None,
) -> Flow[SweepReport]:
    """Delete what is expired, mark what has lapsed, ask the hooks of what can be reconciled, count what is held.

    `tell_lapsed` is called with each record that was marked. With `limit` at most so many are deleted, and at most so
    many marked; the rest is for the next sweep. With copies of records beside the `store`, first repeat
    the invalidations that are not confirmed. Where it keeps dead letters or batches, those that are expired go too.

    Raises:
        UsageError: the limit is below 1.
    """
    if limit is not None and limit < 1:
        message = f"limit={limit} would sweep nothing; nothing was swept. Give 1 or more, or leave it out."
        raise UsageError(message)
    invalidated = (yield from repeat_invalidations()) if store is not None and has_copies(store) else 0
    if store is not None and Capability.BATCH in store.capabilities:
        yield from release_held()
        yield from forget_expired(_BATCHES if limit is None else limit)
    deleted = yield from _delete_in_batches(clock, Purge, limit)
    if store is not None and Capability.LETTERS in store.capabilities:
        yield from _delete_in_batches(clock, PurgeLetters, limit)
    yield from ask(PurgeWorkers(WORKER_KEPT_US))
    lapsed = yield from _mark_lapsed(clock, tell_lapsed, limit)
    reconciled, held = 0, 0
    cursor: tuple[int, bytes] | None = None
    while True:
        answer = yield from page(Query(status=Status.IN_DOUBT), cursor)
        for record in answer.records:
            if (yield from _reconcile(record, known.get(record.key.operation))):
                reconciled += 1
            else:
                held += 1
        cursor = answer.cursor
        if cursor is None:
            return SweepReport(deleted, lapsed, reconciled, held, invalidated)


def _delete_in_batches(clock: Clock, kind: type[Purge | PurgeLetters], limit: int | None) -> Flow[int]:
    """Batch after batch, with rests; answers how many were deleted."""
    deleted = 0
    while batch := _next_batch(deleted, limit):
        began = clock.monotonic()
        answer = yield from ask(kind(batch))
        deleted += answer.count
        if answer.count < batch:
            break
        yield from _rest(clock.monotonic() - began)
    return deleted


def _mark_lapsed(clock: Clock, tell_lapsed: Callable[[LapsedRecord], None], limit: int | None) -> Flow[int]:
    """Batch after batch, with rests; answers how many were marked."""
    marked = 0
    while batch := _next_batch(marked, limit):
        began = clock.monotonic()
        answer = yield from ask(MarkLapsed(batch))
        for record in answer.records:
            tell_lapsed(record)
        marked += answer.count
        if answer.count < batch:
            break
        yield from _rest(clock.monotonic() - began)
    return marked


def _next_batch(done: int, limit: int | None) -> int:
    return _BATCH if limit is None else min(_BATCH, limit - done)


def _rest(took: float) -> Flow[None]:
    """As long a rest as a batch took: half of the time belongs to those who claim."""
    if took > 0:
        yield from ask(Pause(min(took, _LONGEST_REST)))


def _reconcile(record: StoredRecord, known: RegisteredOperation | None) -> Flow[bool]:
    """Whether the doubt of this record could be ended by asking."""
    if known is None or known.policy.reconcile is None:
        return False
    request = Request(record.key, record.fingerprint, known.policy, terms_of(known.policy), record.about, known.shape)
    try:
        yield from ask(RunCall(request))
    except Exception:  # noqa: BLE001 - still in doubt, or the hook failed: kept in the record, and no reason to stop
        return False
    return True
