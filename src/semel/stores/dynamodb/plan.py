"""Plans of the DynamoDB store: each operation as one conditional write, by the rules of a claim. No I/O.

- A refused write returns the item that stood in its way; the answer follows from that item, or a further write over
  exactly that item. So a claim of an unknown key, a replay, a renewal and a completion take one request each, and no
  read ever decides.
- Whether a lease or a record has ended is judged at the earliest possible now; what is written begins at the latest.
- Operations on one record run in the order of the list, those on different records side by side; an error of one is
  its answer alone.
- Dead letters of a record are an item of their own. Where an operation writes or deletes one, record and letters are
  written in one TransactWriteItems; no other operation looks at them, except decisions and erasures.
- Events are items of their own, in a sparse index: `events.outbox` has their plans. They are written with the record.
- Listing and sweeping read the table page by page. There is no index for them on purpose: one for the order of creation
  would cost a further write for every first run, one for what is open two; people list, one process sweeps now and
  then, and the service itself deletes what has expired. A listing is sorted after all pages were read; what a sweep
  changes is decided by the condition of its write, so the page it was found on may be old.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from msgspec.structs import replace

from semel.core.claim_rules import MayWrite, count_failure, judge
from semel.core.events.letters import (
    REUSED,
    DropLetter,
    Letter,
    LetterFound,
    LetterPage,
    LetterTooLarge,
    PutLetter,
    ScanLetters,
    StoredLetter,
    TouchLetter,
)
from semel.core.events.outbox import AboutOutbox
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
    Resolve,
    Scan,
    SkipRecords,
    StateMismatch,
    SweepCount,
)
from semel.core.record import Failure, Status, StoredRecord, Worker, processes_of
from semel.core.store import Answers, Capability, Plan, scan_needed_error
from semel.errors import RecordUnreadable, StoreUnavailable, UsageError
from semel.stores.admin import lacking_error
from semel.stores.dynamodb import request_builders
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import (
    Call,
    Cancelled,
    Chain,
    Item,
    NoIndex,
    Now,
    Refused,
    Steps,
    Together,
    TooLarge,
)
from semel.stores.dynamodb.events.outbox import about_outbox, event_writes
from semel.stores.dynamodb.items import (
    KEY,
    LARGEST,
    SEARCHED,
    WORKER,
    Seen,
    entries_after,
    fits,
    is_record,
    letters_of,
    plain,
    room_for_entries,
    seen_of,
    shrink,
    worker_item,
    worker_of,
)
from semel.stores.dynamodb.request_builders import Expression
from semel.stores.letters import letter_with, matches_letter, page_of
from semel.stores.memory import Table
from semel.stores.rows import storable, stored_failure
from semel.stores.search import after, count_records, first_page, matches


def apply(
    record: StoredRecord | None, operation: Operation, digest: bytes, moment: Moment
) -> tuple[Answer, StoredRecord | None]:
    """The answer, and the record as it then has to be; the same one where nothing has to be written."""
    early = _too_early(record, operation, moment)
    if early is not None:
        return early, record
    table = Table()
    if record is not None:
        table.records[digest] = record
    answer = table.apply(operation, moment.high)
    return answer, table.records.get(digest)


def _too_early(record: StoredRecord | None, operation: Operation, moment: Moment) -> Answer | None:
    """The answer where it may be that time is not up yet."""
    match operation:
        case Claim():
            verdict = judge(record, operation, moment.low)
            return None if isinstance(verdict, MayWrite) else verdict
        case CountFailure() if record is not None and record.nonce != operation.nonce:
            return StateMismatch(record) if count_failure(record, operation, moment.low) is None else None
        case Resolve() if record is not None and record.nonce != operation.nonce and not operation.force:
            live = record.status is Status.RUNNING and record.lease_us > moment.low
            return StateMismatch(record) if live else None
    return None


def storable_operation(operation: Operation) -> Operation:
    """The operation with its texts as they come back from an item, so that one sent again is recognised."""
    match operation:
        case Fail(_, _, error) | CountFailure(_, _, _, error):
            return replace(operation, error=stored_failure(error))
        case Resolve(error=Failure() as error):
            return replace(operation, error=stored_failure(error))
        case Checkpoint(_, step):
            return replace(operation, step=replace(step, name=storable(step.name)))
    return operation


_ROUNDS: Final = 8
Write = Callable[[str, Any, Moment], Call]
_WRITES: Final[dict[type, Write]] = {
    Renew: request_builders.renew,
    Complete: request_builders.complete,
    Fail: request_builders.fail,
    Checkpoint: request_builders.checkpoint,
}


def plan(table: str, places: Places, operations: Sequence[Operation]) -> Plan:
    """The commands for `operations`, all of one kind."""
    order: dict[bytes, list[int]] = {}
    for index, operation in enumerate(operations):
        order.setdefault(digest_of(operation), []).append(index)
    chains = [_chain(table, places, [operations[index] for index in indexes]) for indexes in order.values()]
    answers: Answers = [Lost()] * len(operations)
    if chains:
        replies = yield Together(tuple(chains))
        for indexes, reply in zip(order.values(), replies, strict=True):
            for index, answer in zip(indexes, reply, strict=True):
                answers[index] = answer
    return answers


def digest_of(operation: Operation) -> bytes:
    """The record that an operation is about; none where it is about many."""
    match operation:
        case Claim(key) | CountFailure(key):
            return key.digest
        case Renew(lease) | Complete(lease) | Fail(lease) | Checkpoint(lease) | JoinTransaction(lease):
            return lease.key.digest
        case PutLetter(letter):
            return letter.record or letter.id
        case TouchLetter(_, record):
            return record
        case Read(digest) | ReadHistory(digest) | Resolve(digest) | Reopen(digest) | Erase(digest) | AddReplays(digest):
            return digest
    return b""


def _chain(table: str, places: Places, operations: Sequence[Operation]) -> Chain:
    answers: Answers = []
    for operation in operations:
        try:
            answers.append((yield from one(table, places, storable_operation(operation))))
        except Exception as error:  # noqa: BLE001 - an error of one operation is its answer
            answers.append(error)
    return answers


def one(table: str, places: Places, operation: Operation) -> Steps:
    """Carry one operation out."""
    match operation:
        case Claim():
            return (yield from _claim(table, operation))
        case Renew() | Complete() | Fail() | Checkpoint():
            return (yield from write(table, operation))
        case Resolve(digest) | Reopen(digest) | Erase(digest):
            return (yield from settle_over(table, operation, (yield from read_item(table, digest))))
        case CountFailure():
            return (yield from settle_over(table, operation, None))
        case Read(digest):
            seen = yield from read_item(table, digest)
            moment: Moment = yield Now()
            return Found(None if seen is None else seen.record, moment.low)
        case AddReplays(digest, replays):
            moment = yield Now()
            yield request_builders.tally(table, digest, replays, moment)
            return Recorded(moment.low)
        case Scan():
            by_index = operation.query.terms and not operation.query.scan
            return (yield from (_search if by_index else _scan)(table, operation))
        case CountRecords(query):
            return (yield from _count(table, query))
        case Purge(limit) | MarkLapsed(limit):
            sweep = _PURGE if isinstance(operation, Purge) else _LAPSE
            return (yield from _sweep(table, places, sweep, limit))
        case ReadHistory() | RegisterWorker() | PurgeWorkers():
            return (yield from _look_back(table, operation))
        case _ if isinstance(operation, EventOperation):
            return (yield from _about_events(table, operation))
        case JoinTransaction():
            return Lost()  # there is no transaction to enter
        case Invalidate():
            return Recorded(0)  # no copies are kept beside DynamoDB
        case Pending() | Confirm() | SkipRecords():
            is_skip = isinstance(operation, SkipRecords)
            raise lacking_error("DynamoDB", Capability.COUNT if is_skip else Capability.INVALIDATIONS)


def read_item(table: str, digest: bytes) -> Steps:
    """What is stored now; None where nothing is."""
    reply = yield request_builders.get(table, digest)
    item = reply.get("Item")
    return None if item is None else seen_of(item)


def _look_back(table: str, operation: ReadHistory | RegisterWorker | PurgeWorkers) -> Steps:
    """Histories, and the workers that they name."""
    match operation:
        case ReadHistory(digest):
            return (yield from _read_history(table, digest))
        case RegisterWorker(worker):
            return (yield from _register(table, worker))
        case PurgeWorkers():
            return SweepCount(0)  # the service deletes them by itself


def _read_history(table: str, digest: bytes) -> Steps:
    seen: Seen | None = yield from read_item(table, digest)
    moment: Moment = yield Now()
    if seen is None:
        return HistoryFound(None, (), (), moment.low)
    workers: list[Worker] = []
    for process in processes_of(seen.record, seen.entries):
        reply = yield request_builders.get(table, WORKER + process)
        workers += [worker_of(reply["Item"])] if "Item" in reply else []
    return HistoryFound(seen.record, seen.entries, tuple(workers), moment.low)


def _register(table: str, worker: Worker) -> Steps:
    """A worker started when it was first noted; two notes of one process do not meet."""
    reply = yield request_builders.get(table, WORKER + worker.process)
    moment: Moment = yield Now()
    started_us = worker_of(reply["Item"]).started_us if "Item" in reply else moment.low
    yield Call("put_item", {"TableName": table, "Item": worker_item(worker, moment.low, started_us)})
    return Recorded(moment.low)


def _claim(table: str, claim: Claim) -> Steps:
    """As if the key were unknown; a refusal brings what is known."""
    moment: Moment = yield Now()
    _, fresh = apply(None, claim, claim.key.digest, moment)
    if fresh is not None and not fits(fresh, LARGEST // 4):
        message = (
            f"The key and what it is about take more than {LARGEST // 4096} KiB, which leaves an item of DynamoDB "
            f"too little room for an outcome; nothing ran. Use shorter values, or their digests."
        )
        raise UsageError(message)
    return (yield from settle_over(table, claim, None))


def write(table: str, operation: Renew | Complete | Fail | Checkpoint) -> Steps:
    """A write under the lease; where the usual form is refused, from what came back."""
    operation, _ = shrink(operation, None)
    has_events = isinstance(operation, Complete) and bool(operation.events)
    if has_events or (isinstance(operation, Complete | Fail) and letter_with(operation) is not None):
        return (yield from settle_over(table, operation, (yield from read_item(table, operation.lease.key.digest))))
    moment: Moment = yield Now()
    reply = yield _WRITES[type(operation)](table, operation, moment)
    if isinstance(reply, Refused):
        seen = None if reply.item is None else seen_of(reply.item)
        return (yield from settle_over(table, operation, seen))
    if isinstance(reply, TooLarge):
        # Only the record can tell what to leave out, so the next write is over the very item that is read here.
        return (yield from settle_over(table, operation, (yield from read_item(table, operation.lease.key.digest))))
    return Renewed(moment.high + operation.lease_us) if isinstance(operation, Renew) else Recorded(moment.high)


def settle_over(table: str, operation: Operation, seen: Seen | None) -> Steps:
    """Decide on the item seen and write over exactly that one; if another write was faster, decide on its item next."""
    room, is_halved = LARGEST, False
    for _ in range(_ROUNDS):
        record = None if seen is None else seen.record
        moment: Moment = yield Now()
        answer, changed = changed_by(record, operation, moment, room - room_for_entries(seen))
        if changed is None or changed is record:
            return answer
        call = request_builders.put(table, changed, seen, entries_after(seen, changed, operation, moment.high))
        letter = yield from letter_writes(table, operation, changed, moment)
        beside = [] if letter is None else [letter]
        if isinstance(operation, Complete) and operation.events:
            beside += yield from event_writes(table, operation.events, moment.high, 1 + len(beside))
        reply = (yield from _write_all(call, beside, changed)) if beside else (yield call)
        if reply is _LETTERS_CHANGED:
            continue
        if isinstance(reply, TooLarge):
            if is_halved:
                raise too_large(changed.reference)
            room, is_halved = room // 2, True  # the service counts otherwise than we do: leave out what can be left out
        elif isinstance(reply, Refused):
            seen = None if reply.item is None else seen_of(reply.item)
        else:
            return answer
    message = "The record changed under every look at it; nothing was written. Try again."
    raise StoreUnavailable(message, conflict=True)


_LETTERS_CHANGED: Final = object()
"""Somebody put or deleted a letter since they were read; nothing was written."""


def letter_writes(table: str, operation: Operation, changed: StoredRecord, moment: Moment) -> Steps:
    """What has to be written to the letters of a record together with it; None where nothing has to be."""
    digest = changed.key.digest
    match operation:
        case Fail(letter=Letter() as letter) if operation.ending != "retry":
            return {"Update": request_builders.put_letter(table, letter, moment.high)}
        case CountFailure(letter=Letter() as letter) if not changed.retryable:
            return {"Update": request_builders.put_letter(table, letter, moment.high)}
        case Complete(letter=bytes() as id_):
            letters, _ = yield from _read_letters(table, digest)
            is_there = any(one.id == id_ for one in letters)
            return {"Update": request_builders.drop_letters(table, digest, [id_])} if is_there else None
        case Resolve() if not changed.retryable:  # else nobody but the letter may have the event that may run now
            letters, version = yield from _read_letters(table, digest)
            closed = [one.id for one in letters if one.reason != REUSED]
            return {"Update": request_builders.drop_letters(table, digest, closed, version)} if closed else None
        case Erase():
            letters, version = yield from _read_letters(table, digest)
            ids = [one.id for one in letters]
            return {"Update": request_builders.drop_letters(table, digest, ids, version)} if ids else None
    return None


def _read_letters(table: str, place: bytes) -> Generator[Any, Any, tuple[list[StoredLetter], int]]:
    """The letters of a record, and which write made them so."""
    item = (yield request_builders.get_letters(table, place)).get("Item")
    return letters_of(item), 0 if item is None else plain(item["version"])


def _write_all(call: Call, beside: list[Item], record: StoredRecord) -> Steps:
    """Write a record, its letters and its events, or nothing. The reply is as that to the record's own write."""
    reply = yield Call("transact_write_items", {"TransactItems": [{"Put": call.parameters}, *beside]})
    if not isinstance(reply, Cancelled):
        return reply
    first, *others = ({"Code": "None", **reason} for reason in reply.reasons)
    if first["Code"] == "ConditionalCheckFailed":
        return Refused(first.get("Item"))
    codes = {other["Code"] for other in others}
    if "ConditionalCheckFailed" in codes:  # only letters are written on a condition
        return _LETTERS_CHANGED
    if "ValidationError" in codes:
        raise letter_too_large(record.reference)
    return TooLarge()


def letter_too_large(reference: str) -> LetterTooLarge:
    """The error for a letter that no item can hold."""
    return LetterTooLarge(
        f"The dead letters of the record {reference[:16]} would be larger than the {LARGEST // 1024} KiB that DynamoDB "
        f"keeps in an item; nothing was written. Keep large data elsewhere, and its address in the event.",
        reference=reference,
    )


EventOperation = PutLetter | TouchLetter | ScanLetters | DropLetter | PurgeLetters | AboutOutbox


def _about_events(table: str, operation: EventOperation) -> Steps:
    match operation:
        case PutLetter(letter):
            return (yield from _put_letter(table, letter))
        case TouchLetter():
            return (yield from _touch_letter(table, operation))
        case DropLetter():
            return (yield from _drop_letter(table, operation))
        case ScanLetters():
            return (yield from _scan_letters(table, operation))
        case PurgeLetters():
            return SweepCount(0)  # the service deletes them by itself
        case _:
            return (yield from about_outbox(table, operation))


def _put_letter(table: str, letter: Letter) -> Steps:
    moment: Moment = yield Now()
    parameters = request_builders.put_letter(table, letter, moment.high)
    reply = yield Call("update_item", {**parameters, "ReturnValues": "ALL_NEW"})
    if isinstance(reply, TooLarge):
        raise letter_too_large((letter.record or letter.id).hex())
    return _found(letters_of(reply["Attributes"]), letter.id)


def _found(letters: Sequence[StoredLetter], id_: bytes) -> LetterFound:
    return LetterFound(next((one for one in letters if one.id == id_), None))


def _touch_letter(table: str, operation: TouchLetter) -> Steps:
    letters, _ = yield from _read_letters(table, operation.record)
    own = [one for one in letters if one.reason != REUSED and one.consumer == operation.consumer]
    if not own:
        return LetterFound(None)
    oldest = min(own, key=_letter_age)
    moment: Moment = yield Now()
    reply = yield request_builders.touch_letter(table, operation.record, oldest.id, moment.high)
    return LetterFound(None) if isinstance(reply, Refused) else _found(letters_of(reply["Attributes"]), oldest.id)


def _drop_letter(table: str, operation: DropLetter) -> Steps:
    found = yield from _find_letters(table, operation.consumer, operation.record, operation.id)
    letter = _found(found, operation.id).letter
    if letter is None or letter.consumer != operation.consumer:
        return LetterFound(None)
    parameters = request_builders.drop_letters(table, letter.record or letter.id, [letter.id])
    reply = yield Call("update_item", parameters)
    return LetterFound(None if isinstance(reply, Refused) else letter)


def _find_letters(
    table: str, consumer: str | None, record: bytes | None, id_: bytes | None
) -> Generator[Any, Any, list[StoredLetter]]:
    """The letters of a consumer, or of every one: all, those of one record, or one by its id."""
    place = record or id_
    if place is not None:
        letters, _ = yield from _read_letters(table, place)
        if letters or record is not None:
            return letters
    found: list[StoredLetter] = []
    parameters, start = request_builders.scan_letters(table, consumer), cast("Item | None", {})
    while start is not None:
        reply = yield Call("scan", {**parameters, **_from(start)})
        found += [letter for item in reply["Items"] for letter in letters_of(item)]
        start = reply.get("LastEvaluatedKey")
    return found


def _scan_letters(table: str, operation: ScanLetters) -> Generator[Any, Any, LetterPage]:
    query, cursor = operation.query, operation.cursor
    found = yield from _find_letters(table, query.consumer, query.record, query.id)
    fitting = [one for one in found if matches_letter(one, query) and (cursor is None or _letter_age(one) > cursor)]
    return page_of(sorted(fitting, key=_letter_age)[: operation.limit + 1], operation.limit)


def _letter_age(letter: StoredLetter) -> tuple[int, bytes]:
    return letter.first_us, letter.id


def changed_by(
    record: StoredRecord | None, operation: Operation, moment: Moment, room: int = LARGEST
) -> tuple[Answer, StoredRecord | None]:
    """What an operation makes of a record, with values that fit into an item of this size."""
    answer, changed = apply(record, operation, digest_of(operation), moment)
    if changed is None or changed is record or fits(changed, room):
        return answer, changed
    smaller, leave_steps_out = shrink(operation, record, room)
    answer, changed = apply(record, smaller, digest_of(operation), moment)
    if changed is not None and leave_steps_out:
        changed = replace(changed, steps=())
    return answer, changed


def too_large(reference: str) -> UsageError:
    """The error for a record that no item can hold."""
    return UsageError(
        f"The record {reference[:16]} would be larger than the {LARGEST // 1024} KiB that DynamoDB keeps in an item, "
        f"so this was not written to it. Keep less in the results of steps.",
        reference=reference,
    )


Places = dict[type, Item]
"""Where the next sweep of each kind goes on: so that one over a large table does not begin anew every time."""
_EQUAL: Final = ("operation", "scope", "process_instance", "business_key", "subject", "requester")


def _scan(table: str, operation: Scan) -> Generator[Any, Any, Page]:
    """One page of records."""
    query = operation.query
    found: list[StoredRecord] = []
    start: Item | None = {}
    while start is not None:
        records, start = yield from _read_some(table, query, start)
        found += [one for one in records if after(one, operation.cursor, query)]
        found, _ = first_page(found, query, operation.limit + 1)
    page, cursor = first_page(found, query, operation.limit)
    return Page(tuple(page), cursor)


def _search(table: str, operation: Scan) -> Generator[Any, Any, Page]:
    """One page of records by the index of one searched value; the records themselves decide.

    The index may lag a moment behind the table. It gives the order of creation, but those of one instant in any order;
    so a page is whole once the index has given something beyond the instant of its last record.
    """
    query = operation.query
    term = next((term for term in query.terms if term.kind in SEARCHED), None)
    if term is None:
        raise scan_needed_error(f"DynamoDB table {table}", "has no index of records by tag, of which they have several")
    parameters = request_builders.search(table, term, query, operation.cursor, operation.limit + 1)
    found: list[StoredRecord] = []
    start: Item | None = {}
    while start is not None:
        reply = yield Call("query", {**parameters, **_from(start)})
        if isinstance(reply, NoIndex):
            kind = term.kind.replace("_", " ")
            why = f"has no index of records by {kind} (`semel migrate --search` makes one)"
            raise scan_needed_error(f"DynamoDB table {table}", why)
        found += yield from _read_found(table, operation, [plain(item[KEY]) for item in reply["Items"]])
        start = reply.get("LastEvaluatedKey")
        if start is not None and len(found) > operation.limit:
            beyond, _ = first_page(found, query, operation.limit + 1)
            at, onward = beyond[-1].created_us, plain(start["created_us"])
            start = None if (onward < at if query.newest_first else onward > at) else start
    page, cursor = first_page(found, query, operation.limit)
    return Page(tuple(page), cursor)


def _read_found(table: str, operation: Scan, digests: Sequence[bytes]) -> Generator[Any, Any, list[StoredRecord]]:
    """Those of these records that fit, as they are now."""
    moment: Moment = yield Now()
    replies = (yield Together(tuple(_look(table, digest) for digest in digests))) if digests else []
    records = [found.record for (found,) in replies if isinstance(found, Found) and found.record is not None]
    fitting = [record for record in records if matches(record, operation.query, moment.low)]
    return [record for record in fitting if after(record, operation.cursor, operation.query)]


def _look(table: str, digest: bytes) -> Chain:
    seen = yield from read_item(table, digest)
    return [Found(None if seen is None else seen.record, 0)]


def _count(table: str, query: Query) -> Generator[Any, Any, Counts]:
    """How many there are. Every record is read: the service has no sums."""
    found: dict[bytes, StoredRecord] = {}
    start: Item | None = {}
    while start is not None:
        records, start = yield from _read_some(table, query, start)
        found.update({record.key.digest: replace(record, outcome=None, steps=()) for record in records})
    return count_records(found.values())


def _read_some(table: str, query: Query, start: Item) -> Generator[Any, Any, tuple[list[StoredRecord], Item | None]]:
    """Those records of the next part of the table that fit, and where to go on; None: that was all."""
    parameters = {"TableName": table, "ConsistentRead": True, **_filter_of(query)}
    reply = yield Call("scan", {**parameters, **_from(start)})
    moment: Moment = yield Now()
    records = (_record_if_readable(item) for item in reply["Items"] if is_record(item))
    fitting = [one for one in records if one is not None and matches(one, query, moment.low)]
    return fitting, reply.get("LastEvaluatedKey")


def _record_if_readable(item: Item) -> StoredRecord | None:
    try:
        return seen_of(item).record
    except RecordUnreadable:
        return None  # of a newer release: it does not hide the others, and a claim of it fails


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One kind of sweep: what it looks for, what it does to it, and what it answers."""

    kind: type
    wanted: Callable[[Expression, Moment], list[str]]
    change: Callable[[str, bytes, Moment], Call]
    answer: Callable[[Sequence[tuple[Item, Moment]]], Answer]
    attributes: tuple[str, ...] = ()


def _deleted(items: Sequence[tuple[Item, Moment]]) -> Answer:
    return SweepCount(len(items))


def _marked(items: Sequence[tuple[Item, Moment]]) -> Answer:
    records = (
        LapsedRecord(plain(item[KEY]), plain(item["operation"]), moment.high - plain(item["started_us"]))
        for item, moment in items
    )
    return LapsedRecords(tuple(sorted(records)))


_PURGE: Final = _Sweep(Purge, request_builders.expired_terms, request_builders.delete, _deleted)
_LAPSE: Final = _Sweep(
    MarkLapsed, request_builders.lapsed_terms, request_builders.lapse, _marked, ("operation", "started_us")
)


def _sweep(table: str, places: Places, sweep: _Sweep, limit: int) -> Steps:
    """Go through the table from where the last sweep stopped, and then from its beginning, until enough was changed."""
    start = places.get(sweep.kind, {})
    changed: list[tuple[Item, Moment]] = []
    unseen = bool(start)
    while True:
        moment: Moment = yield Now()
        expression = Expression()
        filtering = " AND ".join(sweep.wanted(expression, moment))
        projection = ", ".join(expression.name(name) for name in (KEY, *sweep.attributes))
        parameters = {"TableName": table, "FilterExpression": filtering, "ProjectionExpression": projection}
        reply = yield Call("scan", {**parameters, **expression.parameters(), **_from(start)})
        found = reply["Items"]
        while found and len(changed) < limit:
            room = limit - len(changed)
            some, found = found[:room], found[room:]
            changes = (sweep.change(table, plain(item[KEY]), moment) for item in some)
            swept = yield Together(tuple(map(_change, changes)))
            changed += [(item, moment) for item, (one,) in zip(some, swept, strict=True) if one.count]
        if found:
            places[sweep.kind] = start  # the rest of this page is for the next sweep
            return sweep.answer(changed)
        start = reply.get("LastEvaluatedKey", {})
        if len(changed) == limit or not (start or unseen):
            places[sweep.kind] = start
            return sweep.answer(changed)
        unseen = unseen and bool(start)


def _change(change: Call) -> Chain:
    done = yield change
    return [SweepCount(0 if isinstance(done, (Refused, TooLarge)) else 1)]


def _filter_of(query: Query) -> Mapping[str, Any]:
    """What the service can leave out by itself; the rest is left out here."""
    expression = Expression()
    terms = [
        term for name in _EQUAL if getattr(query, name) for term in expression.equal(**{name: getattr(query, name)})
    ]
    if query.status is not None:
        terms += expression.equal(status=query.status.value)
    if query.before_us is not None:
        terms.append(expression.compare("created_us", "<", query.before_us))
    if query.after_us is not None:
        terms.append(expression.compare("created_us", ">=", query.after_us))
    return {"FilterExpression": " AND ".join(terms), **expression.parameters()} if terms else {}


def _from(start: Item) -> Item:
    return {"ExclusiveStartKey": start} if start else {}
