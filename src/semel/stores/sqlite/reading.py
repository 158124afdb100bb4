"""Plans that read: a record by its digest, its finished steps where it has any, and pages of records.

What always holds: a joined reading gives the same as any other, whatever factories and converters the caller has set.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from semel.core.operations import Found, Page, Read, Scan
from semel.core.record import Record
from semel.stores.sql import record_of, steps_of
from semel.stores.sqlite.commands import SQL, Command, Kind, Reply, Row, texts_decoded
from semel.stores.sqlite.scan import scan_command

Part = Generator[Command, Reply, Any]
"""What a plan does for one operation; returns its answer."""


def row_at(digest: bytes, *, joined: bool) -> Generator[Command, Reply, tuple[Row | None, int]]:
    """The row of a record, None where there is none, and the instant of the look."""
    rows, _, now = yield Command(Kind.READ, SQL["seen_joined" if joined else "seen"], {"digest": digest})
    if not rows:
        return None, now
    return (texts_decoded(rows[0]) if joined else rows[0]), now


def row_of(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Row | None]:
    """The row of a record."""
    row, _ = yield from row_at(digest, joined=joined)
    return row


def whole(row: Row, *, joined: bool) -> Generator[Command, Reply, Record]:
    """The record that a row stands for, with its finished steps."""
    if not row[-1]:
        return record_of(row)
    steps, _, _ = yield Command(Kind.READ, SQL["steps_joined" if joined else "steps"], {"digest": row[0]})
    if joined:
        steps = [(position, name.decode(), outcome) for position, name, outcome in steps]
    return record_of(row, steps_of(steps))


def record_at(digest: bytes, *, joined: bool) -> Generator[Command, Reply, Record | None]:
    """The record under a digest, with its finished steps."""
    row = yield from row_of(digest, joined=joined)
    return None if row is None else (yield from whole(row, joined=joined))


def read(operation: Read, *, joined: bool) -> Part:
    """Answers `Read`."""
    row, now = yield from row_at(operation.digest, joined=joined)
    return Found(None if row is None else (yield from whole(row, joined=joined)), now)


def scan(operation: Scan, *, joined: bool) -> Part:
    """Answers `Scan`."""
    del joined  # only ever asked of the store itself
    command = scan_command(operation)
    if command is None:
        return Page((), None)
    rows, _, _ = yield command
    records: list[Record] = []
    for row in rows[: operation.limit]:
        records += [(yield from whole(row, joined=False))]
    last = records[-1] if len(rows) > operation.limit else None
    return Page(tuple(records), None if last is None else (last.created_us, last.key.digest))
