"""Builders of DynamoDB requests: each operation as one conditional write whose refusal returns the item in its way.

- A write after the claim demands nonce, fence and a running record in its condition, so a late worker changes nothing.
- A condition also holds what the written values were calculated from; where that has changed, the write is refused and
  calculated again from the item that came back. Every write raises `version`.
- Every name and value in an expression is a placeholder, so reserved words and the caller's texts cannot change its
  meaning.
"""

from __future__ import annotations

from typing import Any, Final

from semel.core.events.letters import Letter
from semel.core.operations import Checkpoint, Complete, Fail, Query, Renew
from semel.core.record import LEASE_ENDED, Entry, EntryEnding, Failure, Lease, Status, StoredRecord, Term
from semel.stores.dynamodb.clock import SECOND, Moment
from semel.stores.dynamodb.commands import Call, Item
from semel.stores.dynamodb.items import (
    KEY,
    OPEN_ENTRY,
    OWNER,
    TTL,
    Seen,
    attribute,
    entry_value,
    item_of,
    key_of,
    letter_names,
    letter_value,
    letters_key,
    search_attribute,
    settled_statuses,
    step_value,
)
from semel.stores.rows import storable
from semel.stores.search import term_number

INNER: Final = "#inner_"
"""How the placeholders of names begin that are no attributes of an item, but inside one."""


class Expression:
    """The names and values of one request, collected while its texts are written."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}

    def name(self, attribute_name: str) -> str:
        """What stands for an attribute."""
        mark = f"#{attribute_name}"
        self._names[mark] = attribute_name
        return mark

    def inner(self, name: str) -> str:
        """What stands for a name inside an attribute."""
        mark = f"{INNER}{name}"
        self._names[mark] = name
        return mark

    def value(self, value: Any) -> str:
        """What stands for a value."""
        mark = f":v{len(self._values)}"
        self._values[mark] = attribute(value)
        return mark

    def compare(self, attribute_name: str, sign: str, value: Any) -> str:
        """A comparison of an attribute with a value."""
        return f"{self.name(attribute_name)} {sign} {self.value(value)}"

    def equal(self, **values: Any) -> list[str]:
        """Each attribute has this value."""
        return [self.compare(name, "=", value) for name, value in values.items()]

    def one_of(self, attribute_name: str, values: list[Any]) -> str:
        """The attribute has one of these values."""
        return f"{self.name(attribute_name)} IN ({', '.join(map(self.value, values))})"

    def setting(self, **values: Any) -> list[str]:
        """Assignments for SET."""
        return self.equal(**values)

    def rising(self, attribute_name: str, by: int = 1) -> str:
        """The assignment that adds to a number."""
        mark = self.name(attribute_name)
        return f"{mark} = {mark} + {self.value(by)}"

    def parameters(self) -> dict[str, Any]:
        """What the request has to carry for its texts to be understood."""
        parameters: dict[str, Any] = {"ExpressionAttributeNames": self._names}
        if self._values:
            parameters["ExpressionAttributeValues"] = self._values
        return parameters


_LATEST: Final = 2**62
_TELL: Final = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def get(table: str, digest: bytes) -> Call:
    """Read one item as it is, not as it was on some replica a moment ago."""
    return Call("get_item", {"TableName": table, "Key": key_of(digest), "ConsistentRead": True})


def index_of(kind: str) -> str:
    """The name of the index for one kind of searched value."""
    return f"semel_{kind}"


def search(table: str, term: Term, query: Query, cursor: tuple[int, bytes] | None, limit: int) -> dict[str, Any]:
    """The parameters of a query for the keys of records that have a value, in the order of the query."""
    expression = Expression()
    first = query.after_us or 0
    last = _LATEST if query.before_us is None else query.before_us - 1
    if cursor is not None and query.newest_first:
        last = min(last, cursor[0])
    elif cursor is not None:
        first = max(first, cursor[0])
    value = expression.compare(search_attribute(term.kind), "=", term_number(term))
    span = f"{expression.name('created_us')} BETWEEN {expression.value(first)} AND {expression.value(max(first, last))}"
    return {
        "TableName": table,
        "IndexName": index_of(term.kind),
        "KeyConditionExpression": f"{value} AND {span}",
        "Limit": limit,
        "ScanIndexForward": not query.newest_first,
        **expression.parameters(),
    }


def put(table: str, record: StoredRecord, over: Seen | None, entries: tuple[Entry, ...] = ()) -> Call:
    """Write a whole record, with its history, over the very item that was seen, or where there is none.

    Closes: two claims that both saw no item, or both saw the same one. One of the two is refused.
    """
    expression = Expression()
    if over is None:
        terms = [f"attribute_not_exists({expression.name(KEY)})"]
    else:
        terms = expression.equal(nonce=over.record.nonce, version=over.version)
    item = item_of(record, 1 if over is None else over.version + 1, entries)
    return Call("put_item", {"TableName": table, "Item": item, **_condition(expression, terms), **_TELL})


def renew(table: str, operation: Renew, moment: Moment) -> Call:
    """Closes: a renewal that arrives after somebody else has taken over."""
    expression = Expression()
    sets = expression.setting(lease_us=moment.high + operation.lease_us, updated_us=moment.high)
    terms = _lease_terms(expression, operation.lease)
    return _update(table, operation.lease.key.digest, expression, sets=sets, terms=terms)


def complete(table: str, operation: Complete, moment: Moment) -> Call:
    """Closes: a completion under a lease that is not the current one.

    As nearly always, the lease still runs and more than half of the time to keep it is left; otherwise it is refused
    and written from what came back.
    """
    expression = Expression()
    sets = [
        *expression.setting(status=Status.COMPLETED.value, outcome=operation.outcome),
        *_settling(expression, moment),
    ]
    terms = [*_lease_terms(expression, operation.lease), *_in_time(expression, moment)]
    gone = f" REMOVE {expression.name('error_type')}, {expression.name('error_message')}"
    return _update(table, operation.lease.key.digest, expression, sets=sets, terms=terms, gone=gone)


def fail(table: str, operation: Fail, moment: Moment) -> Call:
    """Closes: an end without a value under a lease that is not the current one. See `complete`."""
    expression = Expression()
    doubt = operation.ending == "doubt"
    unstarted = 0 if operation.started else 1
    sets = expression.setting(
        status=(Status.IN_DOUBT if doubt else Status.FAILED).value,
        error_type=storable(operation.error.type),
        error_message=storable(operation.error.message),
        doubtful=operation.doubtful,
    )
    sets.append(expression.rising("attempts", -unstarted))
    if operation.started:
        ending: EntryEnding = _ENDINGS[operation.ending]
        sets.append(_entering(expression, ending, operation.error, moment))
    if doubt:
        sets += expression.setting(lease_us=moment.high, updated_us=moment.high)
    else:
        sets += [*expression.setting(retryable=operation.ending == "retry"), *_settling(expression, moment)]
    terms = [*_lease_terms(expression, operation.lease), *_in_time(expression, moment)]
    terms.append(expression.compare("attempts", ">=", unstarted))
    return _update(table, operation.lease.key.digest, expression, sets=sets, terms=terms)


_ENDINGS: Final[dict[str, EntryEnding]] = {"final": "failed", "retry": "retryable", "doubt": "in_doubt"}


def _entering(expression: Expression, ending: EntryEnding, error: Failure, moment: Moment) -> str:
    """The assignment that enters the end of the present attempt.

    What the record says by itself is filled in by whoever writes over it.
    """
    entry = Entry(OPEN_ENTRY, "attempt", OPEN_ENTRY, OPEN_ENTRY, moment.high, None, ending, error)
    mark, empty, added = expression.name("history"), expression.value([]), expression.value([entry_value(entry)])
    return f"{mark} = list_append(if_not_exists({mark}, {empty}), {added})"


def checkpoint(table: str, operation: Checkpoint, moment: Moment) -> Call:
    """Closes: a step recorded under a lease that is not the current one. The same step again finds itself there."""
    expression, step = Expression(), operation.step
    place = f"{expression.name('steps')}.{expression.inner(str(step.index))}"
    sets = [f"{place} = {expression.value(step_value(step))}", *expression.setting(updated_us=moment.high)]
    terms = [*_lease_terms(expression, operation.lease), f"attribute_not_exists({place})"]
    return _update(table, operation.lease.key.digest, expression, sets=sets, terms=terms)


def lapse(table: str, digest: bytes, moment: Moment) -> Call:
    """Closes: a lease that was renewed, or a record that was settled, since it was listed."""
    expression = Expression()
    sets = expression.setting(
        status=Status.IN_DOUBT.value,
        error_type=LEASE_ENDED.type,
        error_message=LEASE_ENDED.message,
        doubtful=True,
        updated_us=moment.high,
    )
    sets.append(_entering(expression, "in_doubt", LEASE_ENDED, moment))
    return _update(table, digest, expression, sets=sets, terms=lapsed_terms(expression, moment))


def lapsed_terms(expression: Expression, moment: Moment) -> list[str]:
    """The conditions for what has run past its lease."""
    return [*expression.equal(status=Status.RUNNING.value), expression.compare("lease_us", "<=", moment.low)]


def delete(table: str, digest: bytes, moment: Moment) -> Call:
    """Closes: a record that was claimed again since it was listed."""
    expression = Expression()
    terms = expired_terms(expression, moment)
    return Call("delete_item", {"TableName": table, "Key": key_of(digest), **_condition(expression, terms)})


def expired_terms(expression: Expression, moment: Moment) -> list[str]:
    """The conditions for what is settled and expired."""
    return [expression.one_of("status", settled_statuses()), expression.compare("expires_us", "<=", moment.low)]


def tally(table: str, digest: bytes, replays: int, moment: Moment) -> Call:
    """Closes: a record that was deleted since it was replayed; it must not come back as half an item."""
    expression = Expression()
    sets = [expression.rising("replays", replays), *expression.setting(replayed_us=moment.low)]
    terms = [f"attribute_exists({expression.name(KEY)})"]
    return _update(table, digest, expression, sets=sets, terms=terms)


def get_letters(table: str, place: bytes) -> Call:
    """The dead letters of a record, as they are."""
    return Call("get_item", {"TableName": table, "Key": letters_key(place), "ConsistentRead": True})


def put_letter(table: str, letter: Letter, now: int) -> Item:
    """The parameters of the update that keeps a letter, or sees it once more.

    The service deletes the item some time after its last letter is expired.
    """
    expression, names = Expression(), letter_names(letter.id)
    first, expires_us = expression.name(names["first_us"]), now + letter.keep_us
    sets = [
        f"{first} = if_not_exists({first}, {expression.value(now)})",
        *expression.setting(
            **{
                names["last_us"]: now,
                names["expires_us"]: expires_us,
                names["letter"]: letter_value(letter),
                OWNER: letter.consumer,
                TTL: -(-expires_us // SECOND),
            }
        ),
    ]
    counted = [f"{expression.name(name)} {expression.value(1)}" for name in (names["seen"], "version")]
    text = f"SET {', '.join(sets)} ADD {', '.join(counted)}"
    key = letters_key(letter.record or letter.id)
    return {"TableName": table, "Key": key, "UpdateExpression": text, **expression.parameters()}


def touch_letter(table: str, place: bytes, id_: bytes, now: int) -> Call:
    """Closes: a letter that was deleted since it was read."""
    expression, names = Expression(), letter_names(id_)
    sets = [*expression.setting(**{names["last_us"]: now}), expression.rising(names["seen"])]
    terms = [f"attribute_exists({expression.name(names['letter'])})"]
    call = _update_item(table, letters_key(place), expression, sets=sets, terms=terms)
    return Call(call.action, {**call.parameters, "ReturnValues": "ALL_NEW"})


def drop_letters(table: str, place: bytes, ids: list[bytes], version: int | None = None) -> Item:
    """The parameters of the update that deletes letters, if need be of the very item that was seen.

    Closes: a letter that was deleted, or with `version` one that was put, since they were read.
    """
    expression = Expression()
    names = [expression.name(name) for id_ in ids for name in letter_names(id_).values()]
    there = [f"attribute_exists({expression.name(letter_names(id_)['letter'])})" for id_ in ids]
    terms = there if version is None else expression.equal(version=version)
    text = f"SET {expression.rising('version')} REMOVE {', '.join(names)}"
    condition = _condition(expression, terms)
    return {"TableName": table, "Key": letters_key(place), "UpdateExpression": text, **condition}


def scan_letters(table: str, consumer: str | None) -> dict[str, Any]:
    """The parameters of a scan for the letters of a consumer, or of every one."""
    expression = Expression()
    filtering = (
        f"attribute_exists({expression.name(OWNER)})" if consumer is None else expression.compare(OWNER, "=", consumer)
    )
    return {"TableName": table, "ConsistentRead": True, "FilterExpression": filtering, **expression.parameters()}


def _lease_terms(expression: Expression, lease: Lease) -> list[str]:
    return expression.equal(nonce=lease.nonce, fence=lease.fence, status=Status.RUNNING.value)


def _in_time(expression: Expression, moment: Moment) -> list[str]:
    return [expression.compare(name, sign, moment.high) for name, sign in (("lease_us", ">="), ("extend_from_us", ">"))]


def _settling(expression: Expression, moment: Moment) -> list[str]:
    now = moment.high
    return [
        *expression.setting(completed_us=now, updated_us=now, lease_us=now),
        f"{expression.name(TTL)} = {expression.name('expires_s')}",
    ]


def _update(
    table: str, digest: bytes, expression: Expression, *, sets: list[str], terms: list[str], gone: str = ""
) -> Call:
    return _update_item(table, key_of(digest), expression, sets=sets, terms=terms, gone=gone)


def _update_item(
    table: str, key: Item, expression: Expression, *, sets: list[str], terms: list[str], gone: str = ""
) -> Call:
    text = f"SET {', '.join([*sets, expression.rising('version')])}{gone}"
    condition = _condition(expression, terms)
    return Call("update_item", {"TableName": table, "Key": key, "UpdateExpression": text, **condition, **_TELL})


def _condition(expression: Expression, terms: list[str]) -> Item:
    return {"ConditionExpression": " AND ".join(terms), **expression.parameters()}
