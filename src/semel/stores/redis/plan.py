"""Plans of the Redis store: operations as commands, listing and sweeping included. No I/O.

- A plan answers each operation as the memory store's table would. Each operation on a record is one script on one key,
  so a command may go to any node; all of a list go out together, and an error is the answer of its operation alone.
- Dead letters of a record are in a hash of their own, which lies in the slot of the record: the script that ends the
  record writes them.
- There is no index: listing and sweeping use SCAN, a few keys at a time, so the server never stalls and no record can
  be missing. What a scan saw decides nothing: a script judges each record again before it deletes or marks it.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from semel.core.claim_rules import MayWrite, granted, judge
from semel.core.events.letters import (
    DropLetter,
    Letter,
    LetterFound,
    LetterPage,
    PutLetter,
    ScanLetters,
    StoredLetter,
    TouchLetter,
    operation_of,
)
from semel.core.operations import (
    AddReplays,
    Answer,
    Checkpoint,
    Claim,
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
    JoinTransaction,
    LapsedRecord,
    LapsedRecords,
    Lost,
    MarkLapsed,
    Operation,
    Page,
    Pending,
    Purge,
    PurgeLetters,
    PurgeWorkers,
    Query,
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
    SkipRecords,
    StateMismatch,
    SweepCount,
)
from semel.core.record import (
    ERASED_FAILURE,
    ERASED_OUTCOME,
    LEASE_ENDED,
    REOPENED,
    WORKER_KEPT_US,
    Lease,
    Status,
    StoredRecord,
    Worker,
    processes_of,
)
from semel.core.store import Answers, Capability, Plan
from semel.errors import RecordUnreadable, StoreUnavailable
from semel.stores.admin import lacking_error
from semel.stores.letters import letter_with, matches_letter, page_of
from semel.stores.redis.key_names import RedisContext
from semel.stores.redis.record_hash import (
    WORKER_FIELDS,
    about_of,
    entries_of,
    letter_of,
    letter_values,
    owner_mark,
    packed_about,
    packed_failure,
    packed_key,
    packed_step,
    record_of,
    server_time_of,
    texts_of,
    worker_of,
)
from semel.stores.rows import new_record, storable
from semel.stores.search import counts_of, is_after, matches

Reply = Any
"""What the server said, or an exception."""
Batch = Sequence["Command"]
Steps = Generator[Batch, list[Reply], Any]


class Script(msgspec.Struct, frozen=True):
    """One of the scripts, on one record, and where it is concerned with them on the dead letters of that record."""

    name: str
    key: str
    values: tuple[Any, ...] = ()
    letters: str = ""


class Look(msgspec.Struct, frozen=True):
    """Fields of a record, without a script: for passing over many."""

    key: str
    fields: tuple[str, ...]


class Walk(msgspec.Struct, frozen=True):
    """The next few keys that fit `match`. The reply is a pair: where to go on (None: that was all), and the keys."""

    match: str
    cursor: Any = None


class Clock(msgspec.Struct, frozen=True):
    """The store's now, in microseconds; of any node."""


Command = Script | Look | Walk | Clock


_LETTERS_AT_ONCE: Final = 100
_HEX: Final = re.compile(r"[0-9a-f]{0,64}")
_SETTLED: Final = frozenset({b"completed", b"failed", b"cancelled"})
_QUICK: Final = ("created_us", "status", "lease_us")
_DEEP: Final = (*_QUICK, "key", "about")
Keys = Generator[Any, list[Reply], list[str]]
FoundKeys = tuple[int, bytes, str]
"""When a record was created, its digest and its key: in the order of a listing."""


def scan_keys(match: str) -> Keys:
    """Every key that fits, once."""
    found: dict[str, None] = {}
    cursor: Any = None
    while True:
        cursor, keys = yield from step(match, cursor)
        found.update(dict.fromkeys(keys))
        if cursor is None:
            return list(found)


def step(match: str, cursor: Any) -> Generator[Any, list[Reply], tuple[Any, list[str]]]:
    """The next few keys, and where to go on; None: that was all."""
    (reply,) = yield [Walk(match, cursor)]
    if isinstance(reply, Exception):
        raise reply
    onward, keys = reply
    return onward, keys


def scan(context: RedisContext, operations: Sequence[Scan]) -> Steps:
    """A page for each."""
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _page(context, operation)))
    return answers


def _page(context: RedisContext, operation: Scan) -> Generator[Any, list[Reply], Page]:
    """One pass over all records finds the first that fit, in the order asked for; those are read as they are then."""
    query = operation.query
    now = yield from _now()
    fields = _DEEP if _is_deep(context, query) else _QUICK
    first: list[FoundKeys] = []
    choose = heapq.nlargest if query.newest_first else heapq.nsmallest
    at: Any = None
    while True:
        at, looks = yield from _look(context, query, fields, at)
        found = {
            (*place, key)
            for key, reply in looks.items()
            if (place := _fits(context, key, reply, query, now))
            and (operation.cursor is None or is_after(place, operation.cursor, query))
        }
        first = choose(operation.limit + 1, found.union(first))
        if at is None:
            break
    page = first[: operation.limit]
    records = yield from _read(context, page, query, now)
    last = page[-1] if len(first) > operation.limit else None
    return Page(tuple(records), None if last is None else (last[0], last[1]))


def count_all(context: RedisContext, operations: Sequence[CountRecords]) -> Steps:
    """How many there are, for each."""
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _count(context, operation.query)))
    return answers


def _count(context: RedisContext, query: Query) -> Generator[Any, list[Reply], Counts]:
    """One pass over all records, each of which is counted once however often the server names it."""
    now = yield from _now()
    found: dict[str, tuple[str, str]] = {}
    at: Any = None
    while True:
        at, looks = yield from _look(context, query, _DEEP, at)
        for key, reply in looks.items():
            if (place := _fits(context, key, reply, query, now)) is not None:
                _, operation, _ = texts_of(reply[len(_QUICK)])
                if context.pattern.key(operation, place[1]) == key:  # else it is of a store whose pattern begins alike
                    found[key] = (operation, reply[1].decode())
        if at is None:
            return counts_of((*group, number) for group, number in Counter(found.values()).items())


def _now() -> Generator[Any, list[Reply], int]:
    (now,) = yield [Clock()]
    if isinstance(now, Exception):
        raise now
    return cast("int", now)


def _look(
    context: RedisContext, query: Query, fields: tuple[str, ...], at: Any
) -> Generator[Any, list[Reply], tuple[Any, dict[str, Reply]]]:
    """Fields of the next few records that may fit, by their keys, and where to go on; None: that was all."""
    if query.reference is not None and not _HEX.fullmatch(query.reference):
        return None, {}
    at, keys = yield from step(context.pattern.match(query.operation, query.reference or ""), at)
    looks = yield [Look(key, fields) for key in keys]
    return at, dict(zip(keys, looks, strict=True))


def _is_deep(context: RedisContext, query: Query) -> bool:
    """Whether more than status and times has to be looked at."""
    unnamed = query.operation is not None and not context.pattern.names_operation
    left_out = query.hides_erased or query.without_operation is not None
    return unnamed or left_out or query.scope is not None or bool(query.terms)


def _fits(context: RedisContext, key: str, reply: Reply, query: Query, now: int) -> tuple[int, bytes] | None:
    """The place of a record in a listing, if what was looked at fits; when it is read, all of it is compared."""
    digest = context.pattern.digest(key)
    if digest is None or isinstance(reply, Exception) or None in reply[: len(_QUICK)]:
        return None  # it is gone, or no record
    created_us, status, lease_us = int(reply[0]), reply[1].decode(), int(reply[2])
    fits = (
        (query.status is None or status == query.status)
        and (query.before_us is None or created_us < query.before_us)
        and (query.after_us is None or created_us >= query.after_us)
        and (not query.stuck or status == Status.IN_DOUBT or (status == Status.RUNNING and lease_us <= now))
    )
    return (created_us, digest) if fits and (len(reply) == len(_QUICK) or _fits_deep(reply[3:], query)) else None


def _fits_deep(reply: Sequence[bytes | None], query: Query) -> bool:
    try:
        (scope, operation, value), about = texts_of(reply[0]), about_of(reply[1])
    except RecordUnreadable:
        return False
    if (query.hides_erased and not value) or operation == query.without_operation:
        return False
    wanted = ((query.scope, scope), (query.operation, operation))
    return all(asked is None or asked == there for asked, there in wanted) and set(query.terms) <= set(about.terms())


def _read(
    context: RedisContext, page: Sequence[FoundKeys], query: Query, now: int
) -> Generator[Any, list[Reply], list[StoredRecord]]:
    """The records of a page as they are now, without those of another store whose pattern begins alike."""
    replies = yield [Script("read", key, (0,)) for _, _, key in page]
    records: list[StoredRecord] = []
    for (_, digest, key), reply in zip(page, replies, strict=True):
        try:
            record = _record_from_reply(digest, reply)
        except RecordUnreadable:
            continue  # it does not hide the others; the doctor counts it, and a claim of it fails
        if record is None or context.pattern.key(record.key.operation, digest) != key:
            continue
        records += [record] if matches(record, query, now) else []
    return records


def _record_from_reply(digest: bytes, reply: Reply) -> StoredRecord | None:
    if isinstance(reply, Exception):
        raise reply
    return None if isinstance(reply, int) else record_of(digest, reply)


def purge(context: RedisContext, operations: Sequence[Purge]) -> Steps:
    """Delete what is settled and expired; on a real clock Redis has done most of it by itself."""
    answers: Answers = []
    for operation in operations:
        gone = yield from _sweep(context, "purge", (), operation.limit)
        answers.append(SweepCount(len(gone)))
    return answers


def lapse(context: RedisContext, operations: Sequence[MarkLapsed]) -> Steps:
    """Mark running records whose lease is over."""
    answers: Answers = []
    for operation in operations:
        marked = yield from _sweep(context, "lapse", (packed_failure(LEASE_ENDED),), operation.limit)
        records = (
            LapsedRecord(digest, texts_of(packed)[1], int(age_us))
            for key, (packed, age_us) in marked
            if (digest := context.pattern.digest(key))
        )
        answers.append(LapsedRecords(tuple(sorted(records))))
    return answers


def _sweep(
    context: RedisContext, script: str, values: tuple[Any, ...], limit: int
) -> Generator[Any, list[Reply], list[tuple[str, Any]]]:
    """The keys that the script changed, each with what it answered; 0 where it changed nothing."""
    changed: list[tuple[str, Any]] = []
    at: Any = None
    while True:
        at, keys = yield from step(context.pattern.match(), at)
        now, *looks = yield [Clock(), *(Look(key, ("status", "expires_us", "lease_us")) for key in keys)]
        if isinstance(now, Exception):
            raise now
        due = [key for key, reply in zip(keys, looks, strict=True) if _is_due(script, reply, now)]
        due = [key for key in dict.fromkeys(due) if context.pattern.digest(key)][: max(limit - len(changed), 0)]
        done = yield [Script(script, key, values) for key in due]
        for key, reply in zip(due, done, strict=True):
            if isinstance(reply, Exception):
                raise reply
            if reply:
                changed.append((key, reply))
        if at is None or len(changed) >= limit:
            return changed


def _is_due(script: str, reply: Reply, now: int) -> bool:
    if isinstance(reply, Exception) or None in reply:
        return False
    status, expires_us, lease_us = reply
    if script == "purge":
        return status in _SETTLED and int(expires_us) <= now
    return bool(status == b"running" and int(lease_us) <= now)


Values = tuple[Any, ...]
Many = Callable[[RedisContext, Sequence[Any]], Steps]


def plan(context: RedisContext, operations: Sequence[Operation]) -> Plan:
    """The commands for `operations`, all of one kind."""
    if not operations:
        return []
    try:
        return cast("Answers", (yield from _PLANS[type(operations[0])](context, operations)))
    except Exception as error:  # noqa: BLE001 - it failed all of them
        return [error] * len(operations)


def _each(
    operations: Sequence[Any], replies: Sequence[Reply], answer: Callable[[Any, Reply], Answer | Exception]
) -> Answers:
    """The answer to each operation: what the reply means, or the error that is the reply."""
    answers: Answers = []
    for operation, reply in zip(operations, replies, strict=True):
        if isinstance(reply, Exception):
            answers.append(reply)
            continue
        try:
            answers.append(answer(operation, reply))
        except Exception as error:  # noqa: BLE001 - a record that cannot be read is the answer of who asked for it
            answers.append(error)
    return answers


def _claim_records(context: RedisContext, claims: Sequence[Claim]) -> Steps:
    replies = yield [Script("claim", context.key(claim.key), _claim_values(claim)) for claim in claims]
    return _each(claims, replies, _claim_answer)


def _claim_values(claim: Claim) -> Values:
    terms = claim.terms
    return (
        claim.fingerprint,
        claim.nonce,
        terms.lease_us,
        terms.keep_us,
        terms.in_doubt,
        terms.reconcile_after_us,
        packed_key(claim.key),
        packed_about(claim.about),
    )


def _claim_answer(claim: Claim, reply: Reply) -> Answer | Exception:
    """What a claim met: judged on the very record, and at the very instant, that decided about it."""
    if isinstance(reply, int):
        return granted(new_record(claim, reply, lease_us=claim.terms.lease_us))  # there was none
    record = record_of(claim.key.digest, reply)
    if record.nonce == claim.nonce and record.status is Status.RUNNING:
        return granted(record)
    answer = judge(record, claim, server_time_of(reply))
    if isinstance(answer, MayWrite):
        return StoreUnavailable("The record could be claimed and was not; nothing ran. Try again.", conflict=True)
    return answer


def _with_letter(context: RedisContext, script: Script, letter: Letter | bytes | None) -> Script:
    """A script that also keeps a letter of a failure, or deletes the one that goes with a completion."""
    if letter is None:
        return script
    values = letter_values(letter) if isinstance(letter, Letter) else (letter.hex(),)
    return Script(script.name, script.key, (*script.values, *values), context.pattern.letters(script.key))


def _write_plan(name: str, values: Callable[[RedisContext, Any], Values]) -> Many:
    ends = name in ("complete", "fail")

    def many(context: RedisContext, operations: Sequence[Any]) -> Steps:
        scripts = [
            Script(
                name, context.key(operation.lease.key), (*_lease_values(operation.lease), *values(context, operation))
            )
            for operation in operations
        ]
        if ends:
            scripts = [
                _with_letter(context, script, letter_with(each))
                for script, each in zip(scripts, operations, strict=True)
            ]
        return _each(operations, (yield scripts), _write_answer)

    return many


def _lease_values(lease: Lease) -> Values:
    return lease.nonce, lease.fence


def _notification_values(context: RedisContext, digest: bytes) -> Values:
    return context.pattern.channel, digest.hex()


def _complete_values(context: RedisContext, operation: Complete) -> Values:
    return operation.outcome, *_notification_values(context, operation.lease.key.digest)


def _fail_values(context: RedisContext, operation: Fail) -> Values:
    return (
        operation.ending,
        packed_failure(operation.error),
        int(operation.doubtful),
        int(not operation.started),
        *_notification_values(context, operation.lease.key.digest),
    )


def _write_answer(operation: Renew | Complete | Fail | Checkpoint, reply: int) -> Answer:
    if not reply:
        return Lost()
    return Renewed(reply) if isinstance(operation, Renew) else Recorded(reply)


def _join_transactions(_context: RedisContext, operations: Sequence[JoinTransaction]) -> Steps:
    return [Lost()] * len(operations)  # there is no transaction to enter
    yield []


def _locate(context: RedisContext, wanted: Sequence[tuple[bytes, str]]) -> Generator[Any, list[Reply], list[str]]:
    """The keys of digests. One whose operation nobody named since this process began is looked for among all."""
    keys: list[str] = []
    for digest, operation in wanted:
        key = context.known_key(digest, operation)
        if key is None:
            found = yield from scan_keys(context.pattern.match(reference=digest.hex()))
            key = next(
                (context.remember(digest, each) for each in found if context.pattern.digest(each) == digest), None
            )
        keys.append(key or _key_of_nothing(context, digest))
    return keys


def _key_of_nothing(context: RedisContext, digest: bytes) -> str:
    """A key that no record has, because no operation is empty: what is asked of it is asked of nothing."""
    return context.pattern.key("", digest)


def _read_records(context: RedisContext, operations: Sequence[Read]) -> Steps:
    keys = yield from _locate(context, [(operation.digest, operation.operation) for operation in operations])
    scripts = [Script("read", key, (int(operation.waits),)) for key, operation in zip(keys, operations, strict=True)]
    return _each(operations, (yield scripts), _read_answer)


def _read_answer(operation: Read, reply: Reply) -> Answer:
    if isinstance(reply, int):
        return Found(None, reply)
    return Found(record_of(operation.digest, reply), server_time_of(reply))


def _resolve_records(context: RedisContext, operations: Sequence[Resolve]) -> Steps:
    keys = yield from _locate(context, [(operation.digest, operation.operation) for operation in operations])
    scripts = [
        Script("resolve", key, _resolve_values(context, operation), context.pattern.letters(key))
        for key, operation in zip(keys, operations, strict=True)
    ]
    return _each(operations, (yield scripts), _resolve_answer)


def _resolve_values(context: RedisContext, operation: Resolve) -> Values:
    outcome = (0, b"") if operation.outcome is None else (1, operation.outcome)
    told = _notification_values(context, operation.digest)
    error = b"" if operation.error is None else packed_failure(operation.error)
    decided = (
        operation.corrects or b"",
        error,
        int(operation.force),
        -1 if operation.fence is None else operation.fence,
    )
    return operation.nonce, operation.status.value, operation.note, *told, *outcome, *decided


def _resolve_answer(operation: Resolve, reply: Reply) -> Answer:
    return _decided_answer(Resolved, operation.digest, reply)


def _decided_answer(done: type[Resolved | Reopened | Counted | Erased], digest: bytes, reply: Reply) -> Answer:
    """What a script decided: done, or the record that it left alone."""
    if reply is None:
        return StateMismatch(None)
    is_done, told = reply
    record = record_of(digest, told)
    return done(record) if is_done else StateMismatch(record)


def _reopen_records(context: RedisContext, operations: Sequence[Reopen]) -> Steps:
    keys = yield from _locate(context, [(operation.digest, operation.operation) for operation in operations])
    error = packed_failure(REOPENED)
    scripts = [
        Script("reopen", key, (operation.nonce, operation.seen, operation.note, error))
        for key, operation in zip(keys, operations, strict=True)
    ]
    return _each(operations, (yield scripts), lambda one, reply: _decided_answer(Reopened, one.digest, reply))


def _count_failures(context: RedisContext, operations: Sequence[CountFailure]) -> Steps:
    scripts = [
        _with_letter(context, Script("count_failure", context.key(each.key), _count_values(each)), each.letter)
        for each in operations
    ]
    return _each(operations, (yield scripts), lambda one, reply: _decided_answer(Counted, one.key.digest, reply))


def _count_values(operation: CountFailure) -> Values:
    terms = operation.terms
    return (
        operation.fingerprint,
        operation.nonce,
        terms.keep_us,
        terms.in_doubt,
        terms.reconcile_after_us,
        packed_key(operation.key),
        packed_about(operation.about),
        packed_failure(operation.error),
        "" if operation.max_attempts is None else operation.max_attempts,
    )


def _erase_records(context: RedisContext, operations: Sequence[Erase]) -> Steps:
    keys = yield from _locate(context, [(operation.digest, operation.operation) for operation in operations])
    left = (ERASED_OUTCOME, packed_failure(ERASED_FAILURE))
    scripts = [
        Script("erase", key, (operation.note, *left), context.pattern.letters(key))
        for key, operation in zip(keys, operations, strict=True)
    ]
    return _each(operations, (yield scripts), _erase_answer)


def _erase_answer(operation: Erase, reply: Reply) -> Answer:
    return _decided_answer(Erased, operation.digest, reply)


def _ignore_invalidations(_context: RedisContext, operations: Sequence[Invalidate]) -> Steps:
    return [Recorded(0)] * len(operations)  # no copies are kept beside Redis
    yield []


def _refuse_pending(_context: RedisContext, operations: Sequence[Pending | Confirm]) -> Steps:
    return [lacking_error("Redis", Capability.INVALIDATIONS)] * len(operations)
    yield []


def _refuse_skipping(_context: RedisContext, operations: Sequence[SkipRecords]) -> Steps:
    return [lacking_error("Redis", Capability.COUNT)] * len(operations)
    yield []


def _add_replays(context: RedisContext, operations: Sequence[AddReplays]) -> Steps:
    # The counter has claimed here, so it knows the key; one forgotten since is not worth a search of all keys.
    keys = [
        context.known_key(operation.digest) or _key_of_nothing(context, operation.digest) for operation in operations
    ]
    scripts = [Script("tally", key, (operation.replays,)) for key, operation in zip(keys, operations, strict=True)]
    return _each(operations, (yield scripts), lambda _, now: Recorded(now))


def _read_histories(context: RedisContext, operations: Sequence[ReadHistory]) -> Steps:
    keys = yield from _locate(context, [(operation.digest, operation.operation) for operation in operations])
    replies = yield [Script("history", key) for key in keys]
    found: list[Any] = _each(operations, replies, _history_answer)
    known = [answer for answer in found if isinstance(answer, HistoryFound) and answer.record is not None]
    processes = {process for answer in known for process in _processes(answer)}
    workers = yield from _read_workers(context, list(processes))
    return [
        replace(answer, workers=tuple(workers[one] for one in _processes(answer) if one in workers))
        if isinstance(answer, HistoryFound)
        else answer
        for answer in found
    ]


def _processes(found: HistoryFound) -> list[bytes]:
    return [] if found.record is None else processes_of(found.record, found.entries)


def _history_answer(operation: ReadHistory, reply: Reply) -> Answer:
    if isinstance(reply, int):
        return HistoryFound(None, (), (), reply)
    told, entries = reply
    return HistoryFound(record_of(operation.digest, told), entries_of(entries), (), server_time_of(told))


def _read_workers(
    context: RedisContext, processes: Sequence[bytes]
) -> Generator[Any, list[Reply], dict[bytes, Worker]]:
    replies = (yield [Look(_worker_key(context, one), WORKER_FIELDS) for one in processes]) if processes else []
    workers: dict[bytes, Worker] = {}
    for process, reply in zip(processes, replies, strict=True):
        if isinstance(reply, Exception):
            raise reply
        worker = worker_of(process, reply)
        if worker is not None:
            workers[process] = worker
    return workers


def _worker_key(context: RedisContext, process: bytes) -> str:
    return f"{context.pattern.worker}{process.hex()}"


def _register_workers(context: RedisContext, operations: Sequence[RegisterWorker]) -> Steps:
    scripts = [
        Script("register", _worker_key(context, worker.process), _worker_values(worker))
        for worker in (operation.worker for operation in operations)
    ]
    return _each(operations, (yield scripts), lambda _, now: Recorded(now))


def _worker_values(worker: Worker) -> Values:
    return storable(worker.host), worker.pid, storable(worker.version), WORKER_KEPT_US


def _purge_workers(_context: RedisContext, operations: Sequence[PurgeWorkers]) -> Steps:
    return [SweepCount(0)] * len(operations)  # the server forgets them by itself
    yield []


def _letters_of(context: RedisContext, consumer: str, record: bytes) -> str:
    """Where a letter of a consumer is; one without a record is under its own id."""
    return context.pattern.letters(context.pattern.key(operation_of(consumer), record))


def _put_letters(context: RedisContext, operations: Sequence[PutLetter]) -> Steps:
    scripts = [
        Script("put_letter", _letters_of(context, one.consumer, one.record or one.id), letter_values(one))
        for one in (operation.letter for operation in operations)
    ]
    return _each(operations, (yield scripts), _letter_answer)


def _touch_letters(context: RedisContext, operations: Sequence[TouchLetter]) -> Steps:
    scripts = [
        Script("touch_letter", _letters_of(context, one.consumer, one.record), (owner_mark(one.consumer),))
        for one in operations
    ]
    return _each(operations, (yield scripts), _letter_answer)


def _letter_answer(_operation: PutLetter | TouchLetter, reply: Reply) -> Answer:
    return LetterFound(None if reply is None else letter_of(reply))


def _find_letters(context: RedisContext, consumer: str | None, record: bytes | None, id_: bytes | None) -> Keys:
    """Where letters of a consumer are, or of every one: all, those of a record, or one by its id."""
    if consumer is None:
        return (yield from scan_keys(context.pattern.match_letters(None)))
    if record is not None:
        return [_letters_of(context, consumer, record)]
    if id_ is not None:
        place = _letters_of(context, consumer, id_)
        (reply,) = yield [Look(place, (id_.hex(),))]
        if isinstance(reply, Exception):
            raise reply
        if reply[0] is not None:
            return [place]
    operation = operation_of(consumer) if context.pattern.names_operation else None
    return (yield from scan_keys(context.pattern.match_letters(operation)))


def _drop_letters(context: RedisContext, operations: Sequence[DropLetter]) -> Steps:
    answers: Answers = []
    for operation in operations:
        keys = yield from _find_letters(context, operation.consumer, operation.record, operation.id)
        values = (operation.id.hex(), owner_mark(operation.consumer))
        replies = yield [Script("drop_letter", key, values) for key in keys]
        answers.append(_first_letter(replies))
    return answers


def _first_letter(replies: Sequence[Reply]) -> LetterFound | Exception:
    """The one that was dropped; an error where one of the places could not be asked."""
    failed = [reply for reply in replies if isinstance(reply, Exception)]
    found = [letter_of(reply) for reply in replies if reply is not None and not isinstance(reply, Exception)]
    return LetterFound(found[0]) if found else failed[0] if failed else LetterFound(None)


def _scan_letters(context: RedisContext, operations: Sequence[ScanLetters]) -> Steps:
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _page_of_letters(context, operation)))
    return answers


def _page_of_letters(context: RedisContext, operation: ScanLetters) -> Generator[Any, list[Reply], LetterPage]:
    query, cursor = operation.query, operation.cursor
    keys = yield from _find_letters(context, query.consumer, query.record, query.id)
    oldest: list[tuple[int, bytes, StoredLetter]] = []
    for first in range(0, len(keys), _LETTERS_AT_ONCE):
        replies = yield [Script("letters", key) for key in keys[first : first + _LETTERS_AT_ONCE]]
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
            letters = map(_letter_if_readable, zip(reply[::2], reply[1::2], strict=True))
            oldest += [
                (one.first_us, one.id, one)
                for one in letters
                if one is not None
                and matches_letter(one, query)
                and (cursor is None or (one.first_us, one.id) > cursor)
            ]
        oldest = heapq.nsmallest(operation.limit + 1, oldest, key=lambda found: found[:2])
    return page_of([letter for _, _, letter in oldest], operation.limit)


def _letter_if_readable(told: Sequence[bytes]) -> StoredLetter | None:
    try:
        return letter_of(told)
    except RecordUnreadable:
        return None  # as with records: it does not hide the others, and stays until it expires


def _purge_letters(_context: RedisContext, operations: Sequence[PurgeLetters]) -> Steps:
    return [SweepCount(0)] * len(operations)  # the server forgets them by itself
    yield []


_PLANS: dict[type, Many] = {
    Claim: _claim_records,
    Renew: _write_plan("renew", lambda _, operation: (operation.lease_us,)),
    Complete: _write_plan("complete", _complete_values),
    Fail: _write_plan("fail", _fail_values),
    Checkpoint: _write_plan("checkpoint", lambda _, operation: packed_step(operation.step)),
    JoinTransaction: _join_transactions,
    Read: _read_records,
    Scan: scan,
    CountRecords: count_all,
    SkipRecords: _refuse_skipping,
    Resolve: _resolve_records,
    Reopen: _reopen_records,
    CountFailure: _count_failures,
    Erase: _erase_records,
    Invalidate: _ignore_invalidations,
    Pending: _refuse_pending,
    Confirm: _refuse_pending,
    Purge: purge,
    MarkLapsed: lapse,
    AddReplays: _add_replays,
    ReadHistory: _read_histories,
    RegisterWorker: _register_workers,
    PurgeWorkers: _purge_workers,
    PutLetter: _put_letters,
    TouchLetter: _touch_letters,
    DropLetter: _drop_letters,
    ScanLetters: _scan_letters,
    PurgeLetters: _purge_letters,
}
