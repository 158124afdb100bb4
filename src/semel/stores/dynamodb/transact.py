"""`within` on DynamoDB: the caller's writes and the record in one TransactWriteItems request, sync and async.

DynamoDB has no transaction that stays open, only one request that writes up to a hundred items or none. So a handler
does not write: it adds its writes to a `Writes`, and the end of the operation sends them with the record.

- A claim writes nothing, so a crash leaves nothing. The end writes the record over the exact item that the claim saw,
  or where it saw none. Of two that ran at the same time one is refused, with all its writes.
- A handler that raised has written nothing. Writes are accepted only while an operation, or a step of one, is open:
  what was added for one is never sent with another.
- If the reply to the end is lost, the nonce in the record tells whose it is. Nothing else is ever sent again here.
- The request goes through the caller's own client, or one opened for the operation. The client's retries are harmless:
  the same transaction carries the same token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from semel.core.claim_rules import granted
from semel.core.events.outbox import AddEvents, EventsAdded, OutboxEvent
from semel.core.flow import Flow, arun, run
from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    Granted,
    JoinTransaction,
    Lost,
    Operation,
    Read,
    Recorded,
    TransactionJoined,
)
from semel.core.record import Entry, Lease, Status, StoredRecord
from semel.core.store import Answers, Plan
from semel.errors import ConcurrentModification, NotInTransaction, StoreUnavailable, UsageError
from semel.stores.dynamodb import request_builders
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, CallerWrite, Cancelled, Inside, Now, Steps, TooLarge
from semel.stores.dynamodb.driver import AsyncDynamoDriver, DynamoContext, DynamoDriver
from semel.stores.dynamodb.events.outbox import event_writes
from semel.stores.dynamodb.items import Seen, entries_after, seen_of
from semel.stores.dynamodb.plan import apply, changed_by, letter_writes, one, read_item, too_large

_KINDS: Final = ("Put", "Update", "Delete", "ConditionCheck")
_MOST: Final = 99


@dataclass(frozen=True, slots=True)
class Opened:
    """An operation inside: the record as it will be claimed, over what was seen. For a step: neither."""

    name: str
    record: StoredRecord | None = None
    seen: Seen | None = None
    entries: tuple[Entry, ...] = ()


class Writes:
    """Writes of the caller, in the form of TransactWriteItems.

    Args:
        client: the DynamoDB client to send them with: boto3's for `Semel`, aiobotocore's for `AsyncSemel`. Without one,
            a client is opened for each operation.
    """

    def __init__(self, client: Any = None) -> None:
        self.client = client
        self.opened: Opened | None = None
        self._items: list[Mapping[str, Any]] = []

    def add(self, write: Mapping[str, Any]) -> None:
        """Add one write: `{"Put": {"TableName": …, "Item": …}}`, or Update, Delete or ConditionCheck.

        Raises:
            UsageError: it is no write, one too many, or no operation is open to send it with.
        """
        if not isinstance(write, Mapping) or len(write) != 1 or next(iter(write)) not in _KINDS:
            message = f"A write is a dict with one of {', '.join(_KINDS)} in it; it was not taken."
            raise UsageError(message)
        self.take(CallerWrite(write))

    def take(self, write: Mapping[str, Any]) -> None:
        """Add one write of semel's own, or one that was checked.

        Raises:
            UsageError: it is one too many, or no operation is open to send it with.
        """
        if self.opened is None:
            message = (
                "No operation is open that this write could be sent with; it was not taken. Add writes inside the "
                "handler that runs within() these, or inside the function of a step."
            )
            raise UsageError(message)
        if len(self._items) == _MOST:
            message = f"DynamoDB writes a hundred items together, one of them the record; this is write {_MOST + 1}."
            raise UsageError(message)
        self._items.append(write)

    def __len__(self) -> int:
        return len(self._items)

    def open(self, opened: Opened) -> None:
        """Take writes for this operation from here on.

        Raises:
            UsageError: another one is open.
        """
        if self.opened is not None and self.opened.name != opened.name:
            message = (
                "Another operation within() these writes is still open, and each is sent by itself; nothing ran. "
                "Give the inner operation a Writes of its own, or run it after the outer one."
            )
            raise UsageError(message)
        self.opened = opened

    def close(self) -> list[Mapping[str, Any]]:
        """What was added; from here on nothing is taken."""
        items, self._items, self.opened = self._items, [], None
        return items


_ACTIONS = {"put_item": "Put", "update_item": "Update"}
_TOKEN_BYTES: Final = 16  # the service takes up to 36 characters


def joined_plan(operation: Operation) -> Plan:
    """One operation together with the caller's writes."""
    try:
        answer: Answer | Exception = yield Inside(operation)
    except Exception as error:  # noqa: BLE001 - as an answer: a store that is silent ends the caller's transaction
        answer = error
    return [answer]


def inside(table: str, writes: Writes, operation: Operation) -> Steps:
    """Carry one operation out with the caller's writes."""
    match operation:
        case Claim():
            return (yield from _claim(table, writes, operation))
        case Complete():
            return (yield from _end(table, writes, operation))
        case Fail():
            return (yield from _fail(table, writes, operation))
        case JoinTransaction(lease):
            return (yield from _enter(table, writes, lease))
        case Checkpoint():
            return (yield from _checkpoint(table, writes, operation))
        case Read():
            return (yield from one(table, {}, operation))
        case AddEvents(events):
            return (yield from _add_events(table, writes, events))
    message = (
        "This decides for everybody and is not part of your writes; nothing was changed. Call it outside within()."
    )
    raise UsageError(message)


def _claim(table: str, writes: Writes, claim: Claim) -> Steps:
    name = claim.nonce.hex()
    writes.open(Opened(name))  # refuses one inside the other before anything is looked up
    answer: Answer | None = None
    try:
        seen: Seen | None = yield from read_item(table, claim.key.digest)
        moment: Moment = yield Now()
        unleased = replace(claim, terms=replace(claim.terms, lease_us=0))
        answer, record = apply(None if seen is None else seen.record, unleased, claim.key.digest, moment)
        if isinstance(answer, Granted) and record is not None:
            writes.open(Opened(name, record, seen, entries_after(seen, record, unleased, moment.high)))
            return replace(granted(record), transaction=f"semel_{name}")
        return answer
    finally:
        if not isinstance(answer, Granted):
            writes.close()


def _add_events(table: str, writes: Writes, events: Sequence[OutboxEvent]) -> Steps:
    """Events as further writes of the operation that is open."""
    moment: Moment = yield Now()
    for write in (yield from event_writes(table, events, moment.high, len(writes) + 1)):
        writes.take(write)
    return EventsAdded(moment.high)


def _own(writes: Writes, lease: Lease) -> Opened:
    opened = writes.opened
    if opened is None or opened.name != lease.nonce.hex():
        message = "These writes were sent or given up since the claim; nothing more was written. Run it again."
        raise NotInTransaction(message)
    return opened


def _end(table: str, writes: Writes, operation: Complete | Fail) -> Steps:
    """Closes: two that both saw no outcome. The record is written over what the claim saw, or nothing is written."""
    opened = _own(writes, operation.lease)
    moment: Moment = yield Now()
    answer, record = changed_by(opened.record, operation, moment)
    items = writes.close()
    if record is None or isinstance(answer, Lost):
        return answer
    claimed = None if opened.record is None else Seen(opened.record, 0, opened.entries)
    entries = entries_after(claimed, record, operation, moment.high)
    letter = yield from letter_writes(table, operation, record, moment)
    events = len(operation.events) if isinstance(operation, Complete) else 0
    if letter is not None and len(items) + events < _MOST:  # else a redrive deletes it afterwards
        items.append(letter)
    if isinstance(operation, Complete) and operation.events:
        items += yield from event_writes(table, operation.events, moment.high, 1 + len(items))
    written = yield from _send(operation.lease, request_builders.put(table, record, opened.seen, entries), items)
    return Recorded(moment.high) if written else Lost()


def _fail(table: str, writes: Writes, operation: Fail) -> Steps:
    """Nothing of what was added is sent. Only a failure that is the answer is recorded; the rest did not happen."""
    opened = _own(writes, operation.lease)
    writes.close()
    if operation.ending != "final":
        moment: Moment = yield Now()
        return Recorded(moment.high)
    writes.open(opened)
    return (yield from _end(table, writes, operation))


def _enter(table: str, writes: Writes, lease: Lease) -> Steps:
    seen: Seen | None = yield from read_item(table, lease.key.digest)
    if seen is None or not _holds(seen, lease):
        return Lost()
    writes.close()  # a step that is tried again begins with nothing
    writes.open(Opened(lease.nonce.hex()))
    return TransactionJoined(f"semel_step_{lease.nonce.hex()}")


def _holds(seen: Seen, lease: Lease) -> bool:
    record = seen.record
    return record.nonce == lease.nonce and record.fence == lease.fence and record.status is Status.RUNNING


def _checkpoint(table: str, writes: Writes, operation: Checkpoint) -> Steps:
    """Closes: a step whose effects are kept although another attempt has the key by now."""
    _own(writes, operation.lease)
    moment: Moment = yield Now()
    items = writes.close()
    call = request_builders.checkpoint(table, operation, moment)
    written = yield from _send(operation.lease, call, items, operation.step.index)
    return Recorded(moment.high) if written else Lost()


def _send(lease: Lease, call: Call, items: list[Mapping[str, Any]], step: int | None = None) -> Steps:
    """Send the record's write and the caller's as one; whether it was written."""
    written = [{_ACTIONS[call.action]: call.parameters}, *items]
    try:
        reply = yield Call("transact_write_items", {"TransactItems": written, "ClientRequestToken": _token(written)})
    except StoreUnavailable:
        if (yield from _is_recorded(call.parameters["TableName"], lease, step)):
            return True
        raise
    if isinstance(reply, TooLarge) or (isinstance(reply, Cancelled) and _is_too_large(reply.reasons[0])):
        raise too_large(lease.key.reference)
    if not isinstance(reply, Cancelled):
        return True
    if reply.reasons[0].get("Code") == "ConditionalCheckFailed":
        return (yield from _is_recorded(call.parameters["TableName"], lease, step))
    raise _writes_refused_error(reply)


def _token(written: list[Mapping[str, Any]]) -> str:
    """Equal for equal writes alone: a step that is tried again, with other writes, is another transaction."""
    return hashlib.blake2b(repr(written).encode(), digest_size=_TOKEN_BYTES).hexdigest()


def _is_too_large(reason: Mapping[str, Any]) -> bool:
    """In a transaction the service tells of an item that would be too large as a reason, not as an error."""
    return reason.get("Code") == "ValidationError" and "maximum allowed size" in str(reason.get("Message", ""))


def _is_recorded(table: str, lease: Lease, step: int | None) -> Steps:
    """Whether the record already carries what was sent: the reply to it was lost."""
    reply = yield request_builders.get(table, lease.key.digest)
    seen = seen_of(reply["Item"]) if "Item" in reply else None
    if seen is None or seen.record.nonce != lease.nonce:
        return False
    finished = {one.index for one in seen.record.steps}
    return seen.record.settled if step is None else step in finished


def _writes_refused_error(reply: Cancelled) -> ConcurrentModification:
    found = [
        f"write {number}: {reason.get('Code')}"
        for number, reason in enumerate(reply.reasons)
        if reason.get("Code", "None") != "None"
    ]
    return ConcurrentModification(
        f"DynamoDB refused the writes of the handler ({', '.join(found)}); none of them was kept, and nothing was "
        f"recorded. Read again what they depend on, and run it again.",
        reasons=tuple(found),
        items=tuple(reason.get("Item") for reason in reply.reasons[1:]),
    )


class AsyncDynamoJoined:
    """The writes of a handler, as a place for single plans."""

    def __init__(self, context: DynamoContext, writes: Writes) -> None:
        self._context = context
        self._writes = writes

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan."""
        driver = AsyncDynamoDriver(self._context, self._writes.client)
        try:
            return await arun(plan, lambda wanted: driver.carry(_steps(self._context, self._writes, wanted)))
        finally:
            await driver.close()


def _steps(context: DynamoContext, writes: Writes, wanted: Inside) -> Flow[Any]:
    return inside(context.settings.table, writes, wanted.operation)


def writes_of(given: object, *, awaited: bool) -> Writes:
    """What was given to `within`, checked.

    Raises:
        UsageError: it is no `Writes`, or its client is of the other colour.
    """
    if not isinstance(given, Writes):
        message = (
            f"DynamoDB has no open transaction that a {type(given).__qualname__} could share; nothing ran. Give "
            f"within() a semel.stores.dynamodb.Writes, and add your writes to it inside the handler."
        )
        raise UsageError(message)
    if given.client is not None and _is_awaited(given.client) is not awaited:
        wanted = "aiobotocore" if awaited else "boto3"
        message = f"The client of these writes is of the other colour; nothing ran. Give a client of {wanted}."
        raise UsageError(message)
    return given


def _is_awaited(client: object) -> bool:
    return any(kind.__module__.startswith("aiobotocore") for kind in type(client).__mro__)


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class DynamoJoined:
    """The writes of a handler, as a place for single plans."""

    def __init__(self, context: DynamoContext, writes: Writes) -> None:
        self._context = context
        self._writes = writes

    def perform(self, plan: Plan) -> Answers:
        """Run one plan."""
        driver = DynamoDriver(self._context, self._writes.client)
        try:
            return run(plan, lambda wanted: driver.carry(_steps(self._context, self._writes, wanted)))
        finally:
            driver.close()
