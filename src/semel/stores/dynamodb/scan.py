"""Listing and sweeping: reading the table page by page. There is no index on purpose.

An index for the order of creation would cost a further write for every first run, and one for what is open two; listing
is done by people and the sweep by one process now and then, and the service itself deletes what has expired. What
always holds: a listing is sorted after all pages were read, in memory for one page of records; what a sweep changes is
decided by the condition of its write, so the page it was found on may be old.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.core.operations import MarkLapsed, Page, Purge, Query, Scan, SweepCount
from semel.core.record import Record
from semel.stores.dynamodb import request_builders
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, Chain, Item, Now, Refused, Together, TooLarge
from semel.stores.dynamodb.items import KEY, plain, seen_of
from semel.stores.dynamodb.request_builders import Expression
from semel.stores.memory import after, matches

Places = dict[type, Item]
"""Where the next sweep of each kind goes on: so that one over a large table does not begin anew every time."""
_EQUAL: Final = ("operation", "scope", "process_instance", "business_key")
Steps = Generator[Any, Any, Any]


def scan(table: str, operation: Scan) -> Generator[Any, Any, Page]:
    """One page of records, oldest first."""
    parameters = {"TableName": table, "ConsistentRead": True, **_restricted(operation.query)}
    found: list[Record] = []
    start: Item | None = {}
    while start is not None:
        reply = yield Call("scan", {**parameters, **_from(start)})
        records = [seen_of(item).record for item in reply["Items"]]
        found += [one for one in records if matches(one, operation.query) and after(one, operation.cursor)]
        found = sorted(found, key=_age)[: operation.limit + 1]
        start = reply.get("LastEvaluatedKey")
    page = tuple(found[: operation.limit])
    return Page(page, _age(page[-1]) if len(found) > operation.limit else None)


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One kind of sweep: what it looks for, and what it does to it."""

    kind: type
    wanted: Callable[[Expression, Moment], list[str]]
    change: Callable[[str, bytes, Moment], Call]


_PURGE: Final = _Sweep(Purge, request_builders.expired, request_builders.delete)
_LAPSE: Final = _Sweep(MarkLapsed, request_builders.lapsed, request_builders.lapse)


def purge(table: str, places: Places, limit: int) -> Steps:
    """Delete what is settled and expired."""
    return (yield from _swept(table, places, _PURGE, limit))


def lapse(table: str, places: Places, limit: int) -> Steps:
    """Mark what has run past its lease as in doubt."""
    return (yield from _swept(table, places, _LAPSE, limit))


def _swept(table: str, places: Places, sweep: _Sweep, limit: int) -> Steps:
    """Go through the table from where the last sweep stopped, and then from its beginning, until enough was changed."""
    start = places.get(sweep.kind, {})
    count, unseen = 0, bool(start)
    while True:
        moment: Moment = yield Now()
        expression = Expression()
        filtering = " AND ".join(sweep.wanted(expression, moment))
        parameters = {"TableName": table, "FilterExpression": filtering, "ProjectionExpression": expression.name(KEY)}
        reply = yield Call("scan", {**parameters, **expression.parameters(), **_from(start)})
        found = [sweep.change(table, plain(item[KEY]), moment) for item in reply["Items"]]
        while found and count < limit:
            some, found = found[: limit - count], found[limit - count :]
            swept = yield Together(tuple(map(_changing, some)))
            count += sum(one.count for (one,) in swept)
        if found:
            places[sweep.kind] = start  # the rest of this page is for the next sweep
            return SweepCount(count)
        start = reply.get("LastEvaluatedKey", {})
        if count == limit or not (start or unseen):
            places[sweep.kind] = start
            return SweepCount(count)
        unseen = unseen and bool(start)


def _changing(change: Call) -> Chain:
    done = yield change
    return [SweepCount(0 if isinstance(done, (Refused, TooLarge)) else 1)]


def _restricted(query: Query) -> Mapping[str, Any]:
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


def _age(record: Record) -> tuple[int, bytes]:
    return record.created_us, record.key.digest
