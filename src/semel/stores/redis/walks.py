"""Plans that pass over many records: a page of a listing, and the sweep.

There is no index: what is there is found by SCAN, a few keys at a time, so the server never stands still for it and a
record can never be missing from a listing. What always holds: what was looked at decides nothing. A record is deleted
or marked by a script that judges it again; a page holds records as they are when it is read.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Generator, Sequence
from typing import Any, Final

from semel.core.operations import Lapse, Page, Purge, Query, Scan, Swept
from semel.core.record import LEASE_ENDED, Record
from semel.core.store import Answers
from semel.errors import RecordUnreadable
from semel.stores.memory.table import matches
from semel.stores.redis.commands import Clock, Look, Reply, Script, Talk, Walk
from semel.stores.redis.fields import about_of, packed_failure, record_of, texts_of
from semel.stores.redis.place import Place

_HEX: Final = re.compile(r"[0-9a-f]{0,64}")
_SETTLED: Final = frozenset({b"completed", b"failed", b"cancelled"})
_QUICK: Final = ("created_us", "status")
_DEEP: Final = (*_QUICK, "key", "about")
Keys = Generator[Any, list[Reply], list[str]]
Found = tuple[int, bytes, str]
"""When a record was created, its digest and its key: in the order of a listing."""


def walked(match: str) -> Keys:
    """Every key that fits, once."""
    found: dict[str, None] = {}
    place: Any = None
    while True:
        place, keys = yield from step(match, place)
        found.update(dict.fromkeys(keys))
        if place is None:
            return list(found)


def step(match: str, place: Any) -> Generator[Any, list[Reply], tuple[Any, list[str]]]:
    """The next few keys, and where to go on; None: that was all."""
    (reply,) = yield [Walk(match, place)]
    if isinstance(reply, Exception):
        raise reply
    onward, keys = reply
    return onward, keys


def scan(place: Place, operations: Sequence[Scan]) -> Talk:
    """A page for each."""
    answers: Answers = []
    for operation in operations:
        answers.append((yield from _page(place, operation)))
    return answers


def _page(place: Place, operation: Scan) -> Generator[Any, list[Reply], Page]:
    """One pass over all records finds the oldest that fit; those are read as they are then."""
    query = operation.query
    if query.reference is not None and not _HEX.fullmatch(query.reference):
        return Page((), None)
    match = place.pattern.match(query.operation, query.reference or "")
    fields = _DEEP if _is_deep(place, query) else _QUICK
    oldest: list[Found] = []
    at: Any = None
    while True:
        at, keys = yield from step(match, at)
        looks = yield [Look(key, fields) for key in keys]
        found = {one for key, reply in zip(keys, looks, strict=True) if (one := _fits(place, key, reply, operation))}
        oldest = heapq.nsmallest(operation.limit + 1, found.union(oldest))
        if at is None:
            break
    page = oldest[: operation.limit]
    records = yield from _read(place, page, query)
    last = page[-1] if len(oldest) > operation.limit else None
    return Page(tuple(records), None if last is None else (last[0], last[1]))


def _is_deep(place: Place, query: Query) -> bool:
    """Whether more than status and time has to be looked at."""
    unnamed = query.operation is not None and not place.pattern.names_operation
    return unnamed or any((query.scope is not None, query.process_instance is not None, query.business_key is not None))


def _fits(place: Place, key: str, reply: Reply, operation: Scan) -> Found | None:
    """Whether what was looked at may be part of the page; when the record is read, all of it is compared."""
    digest = place.pattern.digest(key)
    if digest is None or isinstance(reply, Exception) or None in reply[:2]:
        return None  # it is gone, or no record
    query, found = operation.query, (int(reply[0]), digest)
    fits = (
        (query.status is None or reply[1].decode() == query.status)
        and (query.before_us is None or found[0] < query.before_us)
        and (query.after_us is None or found[0] >= query.after_us)
        and (operation.cursor is None or found > operation.cursor)
    )
    return (*found, key) if fits and (len(reply) == len(_QUICK) or _fits_deep(reply[2:], query)) else None


def _fits_deep(reply: Sequence[bytes | None], query: Query) -> bool:
    try:
        (scope, operation, _), about = texts_of(reply[0]), about_of(reply[1])
    except RecordUnreadable:
        return False
    wanted = (
        (query.scope, scope),
        (query.operation, operation),
        (query.process_instance, about.process_instance),
        (query.business_key, about.business_key),
    )
    return all(asked is None or asked == there for asked, there in wanted)


def _read(place: Place, page: Sequence[Found], query: Query) -> Generator[Any, list[Reply], list[Record]]:
    """The records of a page as they are now, without those of another store whose pattern begins alike."""
    replies = yield [Script("read", key, (0,)) for _, _, key in page]
    records: list[Record] = []
    for (_, digest, key), reply in zip(page, replies, strict=True):
        try:
            record = _told(digest, reply)
        except RecordUnreadable:
            continue  # it keeps nobody from the others; the doctor counts it, and whoever claims it is told
        if record is None or place.pattern.key(record.key.operation, digest) != key:
            continue
        records += [record] if matches(record, query) else []
    return records


def _told(digest: bytes, reply: Reply) -> Record | None:
    if isinstance(reply, Exception):
        raise reply
    return None if isinstance(reply, int) else record_of(digest, reply)


def purge(place: Place, operations: Sequence[Purge]) -> Talk:
    """Delete what is settled and expired; on a real clock Redis has done most of it by itself."""
    answers: Answers = []
    for operation in operations:
        count = yield from _swept(place, "purge", (), operation.limit)
        answers.append(Swept(count))
    return answers


def lapse(place: Place, operations: Sequence[Lapse]) -> Talk:
    """Mark running records whose lease is over."""
    answers: Answers = []
    for operation in operations:
        count = yield from _swept(place, "lapse", (packed_failure(LEASE_ENDED),), operation.limit)
        answers.append(Swept(count))
    return answers


def _swept(place: Place, script: str, values: tuple[Any, ...], limit: int) -> Generator[Any, list[Reply], int]:
    count = 0
    at: Any = None
    while True:
        at, keys = yield from step(place.pattern.match(), at)
        now, *looks = yield [Clock(), *(Look(key, ("status", "expires_us", "lease_us")) for key in keys)]
        if isinstance(now, Exception):
            raise now
        due = [key for key, reply in zip(keys, looks, strict=True) if _is_due(script, reply, now)]
        due = [key for key in dict.fromkeys(due) if place.pattern.digest(key)][: limit - count]
        done = yield [Script(script, key, values) for key in due]
        for reply in done:
            if isinstance(reply, Exception):
                raise reply
            count += reply
        if at is None or count >= limit:
            return count


def _is_due(script: str, reply: Reply, now: int) -> bool:
    if isinstance(reply, Exception) or None in reply:
        return False
    status, expires_us, lease_us = reply
    if script == "purge":
        return status in _SETTLED and int(expires_us) <= now
    return bool(status == b"running" and int(lease_us) <= now)
