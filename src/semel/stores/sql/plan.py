"""Plans of the SQL stores: operations as commands, one plan for every dialect. No I/O.

- A plan answers each operation as the memory store's table would. A list goes out as one command; if a single row of it
  fails, they are sent one by one, and the error is the answer of that one alone.
- A write that changed nothing reports the row it found: sent again after a lost reply, it gets the answer of the first.
- A claim is decided by one statement for the whole list, which returns the row as it is afterwards, so a refusal is
  judged on the very row that refused it. The same key twice in a list is sent once; the second is judged by what the
  first found. A joined claim has no lease and notes the name of the caller's transaction.
- Erasing changes a settled record, its finished steps and the note of its invalidation in one command.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Literal, cast

from msgspec.structs import replace

from semel.core.claim_rules import MayWrite, granted, judge
from semel.core.events.letters import (
    DropLetter,
    Letter,
    LetterFound,
    LetterTooLarge,
    PutLetter,
    ScanLetters,
    TouchLetter,
)
from semel.core.events.outbox import AddEvents
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
    Erase,
    Erased,
    Fail,
    Found,
    Granted,
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
    Running,
    Scan,
    SkippedTo,
    SkipRecords,
    StateMismatch,
    SweepCount,
    TransactionJoined,
)
from semel.core.record import Entry, Failure, Lease, Status, StoredRecord, Worker, processes_of
from semel.core.store import Answers, Plan
from semel.errors import StoreUnavailable, UsageError
from semel.stores.letters import letter_of, letter_with, page_of
from semel.stores.rows import new_record, record_of, steps_of, storable, stored_failure
from semel.stores.search import counts_of
from semel.stores.sql.batch.plan import BATCH_OPERATIONS, plan_batch
from semel.stores.sql.dialect import Command, Dialect, Row, ServerDialect, Values, Won
from semel.stores.sql.errors import RecordHeld, RowError, RowLocked, ended, other_database
from semel.stores.sql.events.outbox import OUTBOX_PLANS
from semel.stores.sql.operators.plan import OPERATOR_PLANS

TRY_AGAIN_US: Final = 50_000
_ROUNDS: Final = 5
Judged = Answer | Exception | None
"""None: to be sent (again)."""


def claims(dialect: ServerDialect, asked: Sequence[Claim], *, joined: bool) -> Plan:
    """Send what can be sent together; a claim refused by a row that has changed since is sent again."""
    answers: list[Judged] = [None] * len(asked)
    if joined:
        answers[0] = yield from _claim_shortly(dialect, asked[0])
    for turn in range(_ROUNDS):
        open_ = [place for place, answer in enumerate(answers) if answer is None]
        if not open_:
            break
        first = {asked[place].key.digest: place for place in reversed(open_)}
        rows = yield dialect.claim([asked[place] for place in first.values()], joined=joined, turn=turn)
        if joined and not rows and turn:
            raise other_database()
        by_digest = {row[0]: row for row in rows}
        for place in open_:
            line = by_digest.get(asked[place].key.digest)
            answers[place] = yield from _judge_row(dialect, asked[place], line, joined=joined)
    return [_contention_error() if answer is None else answer for answer in answers]


def _claim_shortly(dialect: ServerDialect, claim: Claim) -> Generator[Command, list[Row], Judged]:
    told = yield from dialect.claim_short(claim)
    if isinstance(told, Won):
        return replace(granted(new_record(claim, told.now, lease_us=0)), transaction=told.transaction)
    return (yield from _judge_row(dialect, claim, told, joined=True))


def _judge_row(
    dialect: ServerDialect, claim: Claim, line: Row | None, *, joined: bool
) -> Generator[Command, list[Row], Judged]:
    if line is None:
        return None
    *columns, now, transaction = line
    row = tuple(columns)
    if row[4] is None:  # an open transaction is writing this very key; or perhaps another one, and it is asked again
        return None if transaction else Running(TRY_AGAIN_US)
    try:
        record = record_of(row)
        if row[-1] and _mine(record, claim):
            record = record_of(
                row, steps_of((yield dialect.steps(record.key.digest, record.created_us, joined=joined)))
            )
        answer = granted(record) if _mine(record, claim) else judge(record, claim, now)
    except Exception as error:  # noqa: BLE001 - an error of one claim is its answer alone
        return error
    if isinstance(answer, MayWrite):
        return None
    if not joined:
        return answer
    if isinstance(answer, Granted):
        yield from dialect.keep_terms(claim, answer.record)
    return (yield from _note_transaction(dialect, claim, answer, transaction))


def _mine(record: StoredRecord, claim: Claim) -> bool:
    return record.nonce == claim.nonce and record.status is Status.RUNNING


def _note_transaction(
    dialect: ServerDialect, claim: Claim, answer: ClaimAnswer, transaction: str | None
) -> Generator[Command, list[Row], ClaimAnswer]:
    if not isinstance(answer, Granted):
        return answer
    taken_over = dialect.note_taken_over(claim.key.digest) if answer.record.attempts > 1 else None
    if taken_over is not None:
        yield taken_over
    if transaction is None:
        transaction = f"semel_{claim.nonce.hex()}"
        mark = dialect.set_savepoint(transaction)
        if mark is not None:
            yield mark
    return replace(answer, transaction=transaction)


def _contention_error() -> StoreUnavailable:
    return StoreUnavailable("The record changed under every look at it; nothing ran. Try again.", conflict=True)


def erase_records(dialect: Dialect, operations: Sequence[Erase], *, joined: bool) -> Plan:
    """Answers to `Erase`."""
    if joined:
        raise _outside_only_error("erase()")
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _erase(dialect, operation)))
    return answers


def _erase(dialect: Dialect, operation: Erase) -> Generator[Command, list[Row], Answer]:
    while True:
        changed = yield dialect.erase(operation)
        if changed:
            return Erased(record_of(changed[0]))
        ((*row, _),) = yield dialect.read([operation.digest], joined=False)
        if row[0] is None:
            return StateMismatch(None)
        record = record_of(row)
        if not record.settled:
            steps = (yield dialect.steps(operation.digest, record.created_us, joined=False)) if row[-1] else []
            return StateMismatch(record_of(row, steps_of(steps)))
        # It was settled in between: there is something to erase now.


def note_invalidations(_dialect: Dialect, operations: Sequence[Invalidate], *, joined: bool) -> Plan:
    """Answers to `Invalidate`: no copy of a record is kept beside the server."""
    del joined
    return [Recorded(0)] * len(operations)
    yield


def list_invalidations(dialect: Dialect, operations: Sequence[Pending], *, joined: bool) -> Plan:
    """Answers to `Pending`."""
    del joined
    answers: Answers = []
    for operation in operations:
        rows = yield dialect.pending(operation)
        answers.append(PendingInvalidations(tuple(Invalidation(*row) for row in rows)))
    return answers


def confirm_invalidations(dialect: Dialect, operations: Sequence[Confirm], *, joined: bool) -> Plan:
    """Answers to `Confirm`."""
    del joined
    answers: Answers = []
    for operation in operations:
        ((now,),) = yield dialect.confirm(operation)
        answers.append(Recorded(now))
    return answers


Many = Callable[..., Plan]
"""The plan for operations of one kind: takes the dialect, the operations, and whether they are joined."""
Part = Generator[Command, list[Row], Any]


def plan(dialect: Dialect, operations: Sequence[Operation], *, joined: bool) -> Plan:
    """The commands for `operations`, all of one kind."""
    many = _PLANS[type(operations[0])] if operations else _answer_nothing
    try:
        return (yield from many(dialect, operations, joined=joined))
    except RowError as problem:
        if len(operations) == 1:
            return [_answer_of_row_error(operations[0], problem)]
    except Exception as error:  # noqa: BLE001 - it failed all of them
        return [error] * len(operations)
    return (yield from one_by_one(dialect, operations, joined=joined))


def one_by_one(dialect: Dialect, operations: Sequence[Operation], *, joined: bool) -> Plan:
    """The same, each for itself."""
    answers: Answers = []
    for operation in operations:
        answers += yield from plan(dialect, [operation], joined=joined)
    return answers


def _answer_of_row_error(operation: Operation, problem: RowError) -> Answer | Exception:
    """The error of a single operation; a record that is locked is an answer like any other."""
    if isinstance(problem, RecordHeld):
        match operation:
            case Claim():
                return Running(TRY_AGAIN_US)  # an open transaction is writing this very key
            case CountFailure():
                return StateMismatch(None)
            case Renew(lease) | Complete(lease) | Fail(lease) | Checkpoint(lease):
                return RowLocked(lease.key.reference)
    match operation:
        case PutLetter() | Fail(letter=Letter()) | CountFailure(letter=Letter()):
            # Whatever else these write is short, and taken by every server.
            refused = LetterTooLarge(
                f"The database does not take a dead letter as large as this one ({type(problem.error).__name__}); "
                f"nothing was written. Keep large data elsewhere, and its address in the event."
            )
            refused.__cause__ = problem.error
            return refused
    return problem.error


def _answer_nothing(_dialect: Dialect, _operations: Sequence[Operation], *, joined: bool) -> Plan:
    del joined
    return []
    yield


def _lease_values(lease: Lease) -> Values:
    return lease.key.digest, lease.nonce, lease.fence


def _renew_row(operation: Renew) -> Values:
    return (*_lease_values(operation.lease), operation.lease_us)


def _complete_row(operation: Complete) -> Values:
    return (*_lease_values(operation.lease), operation.outcome)


def _fail_row(operation: Fail) -> Values:
    error = stored_failure(operation.error)
    status = Status.IN_DOUBT if operation.ending == "doubt" else Status.FAILED
    unstarted = 0 if operation.started else 1
    retryable = operation.ending == "retry"
    return (
        *_lease_values(operation.lease),
        status.value,
        retryable,
        error.type,
        error.message,
        operation.doubtful,
        unstarted,
    )


def _checkpoint_row(operation: Checkpoint) -> Values:
    step = operation.step
    return (*_lease_values(operation.lease), step.index, storable(step.name), step.outcome)


def _write_plan(what: str, row: Callable[[Any], Values]) -> Many:
    ends = what in ("complete", "fail")

    def many(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
        if len(operations) > 1 and ends and not all(_is_plain(operation) for operation in operations):
            return (yield from _apart(dialect, operations, joined=joined))
        if what == "complete" and operations[0].events:
            return (yield from _complete_with_events(dialect, operations[0], joined=joined))
        if len(operations) > 1 and _has_rivals(operations):
            return (yield from one_by_one(dialect, operations, joined=joined))
        lease: Lease = operations[0].lease
        transaction = lease.transaction if joined and lease.transaction else None
        demand = dialect.assert_savepoint(transaction) if transaction is not None else None
        if demand is not None:
            yield demand
        letter = letter_with(operations[0]) if ends and operations[0].letter is not None else None
        is_short = transaction is not None and what == "complete" and letter is None
        finish = dialect.complete_short(row(operations[0]), transaction or "") if is_short else None
        if finish is not None:
            finished = yield finish
            if finished:
                return [Recorded(finished[0][0])]
        if len(operations) == 1:
            told = yield dialect.write(what, (row(operations[0]),), transaction=transaction, letter=letter)
            if not told and transaction is not None:
                raise ended()
            return [_outcome(operations[0], told[0] if told else None)]
        told = yield dialect.write(what, [row(operation) for operation in operations], transaction=None)
        by_lease = {line[0]: line for line in told}
        return [_outcome(operation, by_lease.get(operation.lease.key.digest)) for operation in operations]

    return many


def _is_plain(operation: Complete | Fail) -> bool:
    """Whether it writes its record, and nothing else."""
    return operation.letter is None and not (isinstance(operation, Complete) and operation.events)


def _apart(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
    """Those without a letter or events as the list that they are, and then each of the others."""
    plain = [place for place, operation in enumerate(operations) if _is_plain(operation)]
    answers: dict[int, Answer | Exception] = {}
    if plain:
        told = yield from plan(dialect, [operations[place] for place in plain], joined=joined)
        answers.update(zip(plain, told, strict=True))
    for place, operation in enumerate(operations):
        if place not in answers:
            (answers[place],) = yield from plan(dialect, [operation], joined=joined)
    return [answers[place] for place in range(len(operations))]


def _complete_with_events(dialect: Dialect, operation: Complete, *, joined: bool) -> Plan:
    """A completion that adds its events in its own statement or transaction."""
    if operation.letter is not None:
        if not joined:
            raise UsageError("Events ride on a completion in your transaction; nothing was recorded. Use within().")
        (answer,) = yield from plan(dialect, [replace(operation, events=())], joined=joined)
        if isinstance(answer, Recorded):
            (added,) = yield from plan(dialect, [AddEvents(operation.events)], joined=joined)
            answer = added if isinstance(added, Exception) else answer  # a completion without its events is none
        return [answer]
    transaction = (operation.lease.transaction or None) if joined else None
    demand = dialect.assert_savepoint(transaction) if transaction is not None else None
    if demand is not None:
        yield demand
    told = yield from dialect.outbox.complete(_complete_row(operation), transaction, operation.events)
    if not told and transaction is not None:
        raise ended()
    return [_outcome(operation, told[0] if told else None)]


def _has_rivals(operations: Sequence[Any]) -> bool:
    """Whether a late worker and its successor are in one list: what became of a record would be told to both."""
    leases = {_lease_values(operation.lease) for operation in operations}
    return len(leases) > len({digest for digest, *_ in leases})


def _outcome(operation: Renew | Complete | Fail | Checkpoint, told: Row | None) -> Answer | Exception:
    """What became of one write."""
    if told is None:
        return Lost()
    now: int = told[2]
    if told[1]:
        return Renewed(now + operation.lease_us) if isinstance(operation, Renew) else Recorded(now)
    _, _, _, nonce, fence, status, completed_us, updated_us, *error = told
    lease = operation.lease
    if nonce != lease.nonce or fence != lease.fence:
        return Lost()
    if status == Status.RUNNING:
        return RowLocked(lease.key.reference)
    match operation:
        case Complete() if status == Status.COMPLETED:
            return Recorded(completed_us or now)  # the same completion again, after its reply was lost
        case Fail() if status != Status.COMPLETED and Failure(error[0], error[1]) == stored_failure(operation.error):
            return Recorded(updated_us)  # the same end again
    return Lost()


def _join_transaction(dialect: Dialect, operations: Sequence[JoinTransaction], *, joined: bool) -> Plan:
    if not joined:
        return [Lost()] * len(operations)  # there is no transaction to enter
    lease = operations[0].lease
    *line, transaction = yield from _enter(dialect, lease)
    if not line[1]:
        ours = line[3] == lease.nonce and line[4] == lease.fence and line[5] == Status.RUNNING
        return [RowLocked(lease.key.reference) if ours else Lost()]
    if transaction is None:
        transaction = f"semel_step_{lease.nonce.hex()}"
        yield cast("Command", dialect.set_savepoint(transaction))
    return [TransactionJoined(transaction)]


def _enter(dialect: Dialect, lease: Lease) -> Generator[Command, list[Row], Row]:
    """What the first touch of a step is told."""
    for turn in range(_ROUNDS):
        told = yield dialect.enter(_lease_values(lease), turn=turn)
        if not told:
            raise other_database()
        if told[0][1] is not None:
            return told[0]
    raise _contention_error()


def with_steps(dialect: Dialect, row: Row, *, joined: bool) -> Generator[Command, list[Row], StoredRecord]:
    """The record that a row stands for, with its finished steps."""
    record = record_of(row)
    if not row[-1]:
        return record
    steps = yield dialect.steps(record.key.digest, record.created_us, joined=joined)
    return record_of(row, steps_of(steps))


def read_record(dialect: Dialect, digest: bytes, *, joined: bool) -> Generator[Command, list[Row], StoredRecord | None]:
    """The record under a digest, with its finished steps."""
    ((*row, _),) = yield dialect.read([digest], joined=joined)
    return None if row[0] is None else (yield from with_steps(dialect, tuple(row), joined=joined))


def _read(dialect: Dialect, operations: Sequence[Read], *, joined: bool) -> Plan:
    want = dialect.request_notification([operation.digest for operation in operations if operation.waits])
    if want is not None:
        yield want  # first: what ends after this is told, what ended before is read
    rows = yield dialect.read([operation.digest for operation in operations], joined=joined)
    answers: Answers = []
    for *row, now in rows:
        try:
            found = None if row[0] is None else (yield from with_steps(dialect, tuple(row), joined=joined))
        except Exception as error:  # noqa: BLE001 - a row that cannot be read is the answer of who asked for it
            answers.append(error)
        else:
            answers.append(Found(found, now))
    return answers


def _scan(dialect: Dialect, operations: Sequence[Scan], *, joined: bool) -> Plan:
    del joined  # only ever asked of the store itself
    answers: Answers = []
    for operation in operations:
        command = dialect.scan(operation)
        rows = (yield command) if command is not None else []
        records: list[StoredRecord] = []
        for row in rows[: operation.limit]:
            records += [(yield from with_steps(dialect, row, joined=False))]
        last = records[-1] if len(rows) > operation.limit else None
        answers.append(Page(tuple(records), None if last is None else (last.created_us, last.key.digest)))
    return answers


def _count_records(dialect: Dialect, operations: Sequence[CountRecords], *, joined: bool) -> Plan:
    del joined  # as above
    answers: Answers = []
    for operation in operations:
        command = dialect.count_records(operation)
        rows = (yield command) if command is not None else []
        answers.append(counts_of((name, status, number) for name, status, number in rows))
    return answers


def _skip_records(dialect: Dialect, operations: Sequence[SkipRecords], *, joined: bool) -> Plan:
    del joined  # as above
    answers: Answers = []
    for operation in operations:
        rows = yield dialect.skip_records(operation)
        answers.append(SkippedTo(rows[0][0] if rows else None))
    return answers


def _deciding(what: Literal["resolve", "reopen"], answer: type[Resolved | Reopened]) -> Many:
    def many(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
        if joined and not dialect.decides_inside:
            raise _outside_only_error(f"{what}()")
        answers: Answers = []
        for operation in operations:
            changed = yield dialect.resolve(operation) if what == "resolve" else dialect.reopen(operation)
            if changed:
                answers.append(answer((yield from with_steps(dialect, changed[0], joined=joined))))
                continue
            record = yield from read_record(dialect, operation.digest, joined=joined)
            again = record is not None and record.nonce == operation.nonce  # the same command before its reply was lost
            answers.append(answer(cast("StoredRecord", record)) if again else StateMismatch(record))
        return answers

    return many


def _count_failures(dialect: Dialect, operations: Sequence[CountFailure], *, joined: bool) -> Plan:
    if joined:
        raise _outside_only_error("Counting a failure")
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _count_failure(dialect, operation)))
    return answers


def _count_failure(dialect: Dialect, operation: CountFailure) -> Generator[Command, list[Row], Answer]:
    """Insert, or else change; each decides by itself, so that what others write in between is met by the next look."""
    fence = 1
    for _ in range(_ROUNDS):
        changed = (yield dialect.count_first(operation, fence=fence)) or (yield dialect.count_again(operation))
        if changed:
            return Counted((yield from with_steps(dialect, changed[0], joined=False)))
        ((*row, now),) = yield dialect.read([operation.key.digest], joined=False)
        if row[0] is None:
            return StateMismatch(None)  # somebody's open transaction is writing this very key
        record = yield from with_steps(dialect, tuple(row), joined=False)
        if record.nonce == operation.nonce and record.status is Status.FAILED:
            return Counted(record)  # the same again, after its reply was lost
        if not (record.settled and record.expires_us <= now):
            return StateMismatch(record)
        yield dialect.forget_expired(operation.key.digest)
        fence = record.fence + 1  # a new life goes on where the one before ended
    raise _contention_error()


def _sweep_plan(sweep_of: Callable[[Dialect, Any], Part]) -> Many:
    def many(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
        if joined and not dialect.decides_inside:
            raise _outside_only_error("sweep()")
        answers: Answers = []
        for operation in operations:
            answers.append((yield from sweep_of(dialect, operation)))
        return answers

    return many


def _purge(dialect: Dialect, operation: Purge) -> Part:
    return SweepCount((yield from dialect.purge(operation)))


def _mark_lapsed(dialect: Dialect, operation: MarkLapsed) -> Part:
    marked = yield from dialect.lapse(operation)
    return LapsedRecords(tuple(sorted(LapsedRecord(*row) for row in marked)))


def _outside_only_error(what: str) -> UsageError:
    """The error for what has transactions of its own: inside the caller's it would hold the rows of others."""
    return UsageError(
        f"{what} decides for everybody and is not part of your transaction; nothing was changed. Call it outside "
        f"within()."
    )


def _add_replays(dialect: Dialect, operations: Sequence[AddReplays], *, joined: bool) -> Plan:
    del joined
    rows = yield dialect.tally(operations)
    return [Recorded(now) for _, now in rows]


def _read_histories(dialect: Dialect, operations: Sequence[ReadHistory], *, joined: bool) -> Plan:
    if joined:
        message = "history() reads what is committed; nothing was read. Call it outside within()."
        raise UsageError(message)
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _read_history(dialect, operation.digest)))
    return answers


def _read_history(dialect: Dialect, digest: bytes) -> Generator[Command, list[Row], HistoryFound]:
    """Record, entries and workers, one after the other.

    What changes in between can leave out an entry that is younger than the record that was read, and nothing else: an
    entry and the present attempt of a record are told apart by fences.
    """
    ((*row, now),) = yield dialect.read([digest], joined=False)
    if row[0] is None:
        return HistoryFound(None, (), (), now)
    record = yield from with_steps(dialect, tuple(row), joined=False)
    entries = tuple(map(_entry_of, (yield dialect.history(digest, record.created_us))))
    workers: list[Worker] = []
    for process in processes_of(record, entries):
        workers += [Worker(*found) for found in (yield dialect.worker(process))]
    return HistoryFound(record, entries, tuple(workers), now)


def _entry_of(row: Row) -> Entry:
    fence, kind, number, started_us, ended_us, nonce, ending, error_type, error_message = row
    error = None if error_type is None else Failure(error_type, error_message)
    return Entry(fence, kind, number, started_us, ended_us, nonce, ending, error)


def _register_workers(dialect: Dialect, operations: Sequence[RegisterWorker], *, joined: bool) -> Plan:
    del joined
    answers: Answers = []
    for operation in operations:
        ((now,),) = yield dialect.register(operation.worker)
        answers.append(Recorded(now))
    return answers


def _purge_workers(dialect: Dialect, operations: Sequence[PurgeWorkers], *, joined: bool) -> Plan:
    del joined
    answers: Answers = []
    for operation in operations:
        answers.append(SweepCount((yield from dialect.purge_workers(operation))))
    return answers


def _letter_plan(command_of: Callable[[Dialect, Any], Command]) -> Many:
    def many(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
        del joined  # what follows from a claim in the caller's transaction is part of that
        answers: Answers = []
        for operation in operations:
            rows = yield command_of(dialect, operation)
            answers.append(LetterFound(letter_of(rows[0]) if rows else None))
        return answers

    return many


def _scan_letters(dialect: Dialect, operations: Sequence[ScanLetters], *, joined: bool) -> Plan:
    del joined  # only ever asked of the store itself
    answers: Answers = []
    for operation in operations:
        rows = yield dialect.scan_letters(operation)
        answers.append(page_of([letter_of(row) for row in rows], operation.limit))
    return answers


def _purge_letters(dialect: Dialect, operations: Sequence[PurgeLetters], *, joined: bool) -> Plan:
    del joined
    answers: Answers = []
    for operation in operations:
        answers.append(SweepCount((yield from dialect.purge_letters(operation))))
    return answers


def _plan_batch(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
    def plan_records(records: Sequence[Operation], *, joined: bool) -> Plan:
        return plan(dialect, records, joined=joined)

    return plan_batch(dialect.batch, operations, joined=joined, plan_records=plan_records)


_PLANS: dict[type, Many] = {
    Claim: claims,
    Renew: _write_plan("renew", _renew_row),
    Complete: _write_plan("complete", _complete_row),
    Fail: _write_plan("fail", _fail_row),
    Checkpoint: _write_plan("checkpoint", _checkpoint_row),
    JoinTransaction: _join_transaction,
    Read: _read,
    Scan: _scan,
    CountRecords: _count_records,
    SkipRecords: _skip_records,
    Resolve: _deciding("resolve", Resolved),
    Reopen: _deciding("reopen", Reopened),
    CountFailure: _count_failures,
    Erase: erase_records,
    Invalidate: note_invalidations,
    Pending: list_invalidations,
    Confirm: confirm_invalidations,
    Purge: _sweep_plan(_purge),
    MarkLapsed: _sweep_plan(_mark_lapsed),
    AddReplays: _add_replays,
    ReadHistory: _read_histories,
    RegisterWorker: _register_workers,
    PurgeWorkers: _purge_workers,
    PutLetter: _letter_plan(lambda dialect, operation: dialect.put_letter(operation.letter)),
    TouchLetter: _letter_plan(lambda dialect, operation: dialect.touch_letter(operation)),
    DropLetter: _letter_plan(lambda dialect, operation: dialect.drop_letter(operation)),
    ScanLetters: _scan_letters,
    PurgeLetters: _purge_letters,
    **OUTBOX_PLANS,
    **dict.fromkeys(BATCH_OPERATIONS, _plan_batch),
    **OPERATOR_PLANS,
}
